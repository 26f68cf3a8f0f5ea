"""Audit by canaries: is the noise in a job's sums what the accountant was told?

A canary is a row whose clipped gradient has the norm C and a direction of its own, so that canaries do not hide each
other. Half of them, drawn at random, are in the hospitals' tables. An observer who knows all canaries scores each by
its coordinate of the noisy sums that central learns. If noise and clipping are as claimed, scores are Gaussian: with
variance 1 in units of the claimed noise, and with means that differ by mu = sqrt(steps) / z between canaries that are
there and canaries that are not. Two one-sided tests look for less noise and for a larger influence of a row.

A job that is caught has a fault. A job that is not caught may still have one, of a kind that these canaries do not see.
"""

import contextlib
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
from scipy import optimize, stats

from benchmarks import tables
from benchmarks.attacks.researcher import LABEL, Researcher
from v6_federated import Answers, Federation
from v6_federated.data import pca
from v6_federated.messages import codec
from v6_federated.models import metrics
from v6_federated.models.clipping import clipped_sum, sensitivity
from v6_federated.node import noising
from v6_federated.privacy.dp import accountant, units
from v6_federated.privacy.dp.bounded import bounded_reach
from v6_federated.privacy.dp.noise import discrete_gaussian
from v6_federated.privacy.dp.plan import Plan
from v6_federated.privacy.policy import Policy
from v6_workbench.simulation.datasets import Dataset
from v6_workbench.simulation.mock import MockNetwork
from v6_workbench.simulation.mock_node import Database
from v6_workbench.simulation.studies import StudyPlan

Array = np.ndarray
LEVEL = 0.03  # share of sound jobs that the two tests together catch
HOSPITALS, COLLUDER = 4, 1  # a study of four assumes that one of them works with the server
CANARIES, DELTA = 2000, 1e-5
LENGTH = 2.0**12  # of a canary's features: all but 2^-25 of its gradient is along its own direction
ABOUT = (
    f"{CANARIES:,} canaries, half of them in the tables of the hospitals 2 to 4; hospital 1 works with the server and "
    "tells it its own answer. All numbers are those of whole jobs on mock nodes in a study: clipping, noise, masks and "
    "the sum that central learns. The model is logistic regression with lr=0, so that each step asks about the same "
    "model. An audit scores the sums of some steps with two one-sided tests, of the variance within the two groups of "
    f"scores (chi-squared) and of the difference of their means (normal), each at {LEVEL / 2:.1%}. A sound job is "
    f"caught in {1 - (1 - LEVEL / 2) ** 2:.2%} of audits. An audit that catches nothing proves nothing: it knows "
    "neither sampling of rows nor local steps, and canaries are rows that are easy to see."
)


@dataclass(frozen=True)
class Verdict:
    """What an audit found.

    Attributes:
        claimed: mu that follows from the plan: the distance of the two means in standard deviations of the noise.
        separation: the distance that was measured, in standard deviations of the claimed noise.
        variance: the variance that was measured, over the claimed one.
        less_noise: p-value of the test of the variance.
        more_influence: p-value of the test of the means.
    """

    claimed: float
    separation: float
    variance: float
    less_noise: float
    more_influence: float

    @property
    def measured(self) -> float:
        """The mu that was measured."""
        return self.separation / math.sqrt(self.variance)

    @property
    def caught(self) -> bool:
        """Whether one of the two tests rejects the claim."""
        return min(self.less_noise, self.more_influence) < LEVEL / 2


def score_test(scores: Array, present: Array, claimed: float) -> Verdict:
    """Compare the scores of canaries with the claimed privacy.

    Args:
        scores: of each canary (m,), in standard deviations of the claimed noise.
        present: whether it is in a table (m,).
        claimed: mu.

    Returns:
        The verdict.
    """
    there, absent = scores[present], scores[~present]
    squares = float(((there - there.mean()) ** 2).sum() + ((absent - absent.mean()) ** 2).sum())
    separation, freedom = float(there.mean() - absent.mean()), len(scores) - 2
    error = math.sqrt(1 / len(there) + 1 / len(absent))
    return Verdict(
        claimed,
        separation,
        squares / freedom,
        float(stats.chi2.cdf(squares, freedom)),
        float(stats.norm.sf((separation - claimed) / error)),
    )


def epsilon_of(mu: float, delta: float = DELTA) -> float:
    """The epsilon of a Gaussian mechanism whose two means are mu standard deviations apart (Balle and Wang 2018)."""

    def excess(e: float) -> float:
        a, b = stats.norm.cdf(mu / 2 - e / mu), stats.norm.logcdf(-mu / 2 - e / mu)
        return float(a - math.exp(e + b) - delta)

    return float(optimize.brentq(excess, 0, 100)) if excess(0) > 0 else 0.0


@dataclass(frozen=True)
class Audited:
    """A job with canaries, and all sums that an observer has of it.

    Attributes:
        plan: the noise that the job claims.
        present: which canaries were in the tables (m,).
        sums: what central learned in each step, without the colluder's answer, in the canaries' directions (steps, m),
            in units.
        size: number of the model's parameters.
        declared: at how many hospitals the study lets a person be.
    """

    plan: Plan
    present: Array
    sums: Array
    size: int
    declared: int = 1

    def verdicts(self, steps: int = 1) -> list[Verdict]:
        """Audit the job by so many steps at a time.

        Args:
            steps: steps of one audit.

        Returns:
            One verdict for each group of so many steps.
        """
        whole = self.sums.reshape(-1, steps, len(self.present)).sum(axis=1)
        sigma = self.declared * self.plan.noise * sensitivity(self.size, units.GRADIENT) * math.sqrt(steps)
        return [score_test(scores, self.present, math.sqrt(steps) / self.plan.noise) for scores in whole / sigma]


def tables_with(canaries: int, present: Array, at: int = 1) -> dict[int, Database]:
    """The hospitals' rows: canaries that are present, and rows of zeros in the place of the others.

    Args:
        canaries: how many.
        present: which of them are there (canaries,).
        at: at how many hospitals each of them is.

    Returns:
        X and y of each hospital; all have the class 0, so that gradients are positive. The colluder's are zeros.
    """
    honest = [k for k in range(1, HOSPITALS + 1) if k != COLLUDER]
    rows = np.zeros((canaries, canaries), np.float32)
    rows[present, present] = LENGTH
    dealt: dict[int, Database] = {COLLUDER: (np.zeros((50, canaries), np.float32), np.zeros(50, np.int64))}
    for i, k in enumerate(honest):
        X = np.concatenate([rows[(i - j) % len(honest) :: len(honest)] for j in range(at)])
        dealt[k] = X, np.zeros(len(X), np.int64)
    return dict(sorted(dealt.items()))


def job(
    plan: Plan, canaries: int, seed: int, fault: "Fault" = contextlib.nullcontext, *, at: int = 1, declared: int = 1
) -> Audited:
    """Run a job with canaries on mock nodes.

    Args:
        plan: clip, noise and the number of steps, one a round.
        canaries: how many there are; half of them are in the tables.
        seed: draws which.
        fault: what is wrong with the nodes while the job runs.
        at: at how many hospitals each canary is.
        declared: at how many the study says that a person may be.

    Returns:
        What an observer has.
    """
    present = np.random.default_rng(seed).permutation(np.arange(canaries) < canaries // 2)
    sums, known = list[Array](), list[Array]()
    of_node, of_job = noising.Noising.gradient, Federation.mean_gradient

    def gradient(self: noising.Noising, *arguments: Any) -> Array:
        found = of_node(self, *arguments)
        if self.request.entry.organization == COLLUDER:
            known.append(found)
        return found

    def mean_gradient(self: Federation, answers: Answers, w: Array) -> Array:
        sums.append(np.add.reduce([a.arrays["gradient, count"] for a in answers.parts()]))
        return of_job(self, answers, w)

    settings = {
        "aggregation": "pinned",
        "rounds": plan.steps,
        "evaluate_every": plan.steps,
        "lr": 0.0,
        "clip": plan.clip,
        "noise": plan.noise,
        "classes": [0, 1],
        "holdout": 0.0,
    }
    rows, study = tables_with(canaries, present, at), StudyPlan(hospitals_a_person=declared)
    nodes = MockNetwork("v6_fedavg", rows, study=study, on_round=lambda row: None)
    with (
        nodes,
        fault(),
        mock.patch.object(noising.Noising, "gradient", gradient),
        mock.patch.object(Federation, "mean_gradient", mean_gradient),
    ):
        result = nodes.run(**settings)
    assert result["privacy"]["noise_shared_in_a_block"] and len(sums) == len(known) == plan.steps
    of_the_others = np.stack(sums)[:, :canaries] - np.stack(known)[:, :canaries]
    return Audited(plan, present, of_the_others, canaries + 1, declared)


# ---- faults: what is wrong with the nodes

Fault = Callable[[], contextlib.AbstractContextManager[Any]]
noise_of = noising.Noising._noise


def scaled_noise(factor: float) -> Fault:
    """All nodes add noise of another standard deviation."""
    return lambda: mock.patch.object(
        noising, "discrete_gaussian", lambda key, sigma, size: discrete_gaussian(key, factor * sigma, size)
    )


def no_noise() -> contextlib.AbstractContextManager[Any]:
    """No node adds noise: what canaries contribute."""
    return mock.patch.object(noising, "discrete_gaussian", lambda key, sigma, size: np.zeros(size, np.int64))


def double_clip() -> contextlib.AbstractContextManager[Any]:
    """All nodes clip at twice the norm that the plan says."""
    return mock.patch.object(
        noising, "clipped_sum", lambda model, w, X, y, C, unit: clipped_sum(model, w, X, y, 2 * C, 2 * unit)
    )


def missing_share() -> contextlib.AbstractContextManager[Any]:
    """One hospital more than the assumed colluder adds no noise."""

    def noise(self: noising.Noising, purpose: str, sigma: float, size: int, shared: bool) -> Array:
        found: Array = noise_of(self, purpose, sigma, size, shared)
        return 0 * found if self.request.entry.organization == HOSPITALS else found

    return mock.patch.object(noising.Noising, "_noise", noise)


FAULTS: dict[str, Fault] = {
    "noise halved": scaled_noise(0.5),
    "sensitivity doubled: clipped at 2 C": double_clip,
    "a second hospital adds no noise": missing_share,
    "a quarter of the noise's variance missing": scaled_noise(math.sqrt(0.75)),
    "a tenth of the noise's variance missing": scaled_noise(math.sqrt(0.9)),
}


# ---- one request to each private function


@dataclass(frozen=True)
class Asked:
    """What one request to a private function has told.

    Attributes:
        noise: of the plan, in lengths of what one row may contribute.
        reach: the largest length of what one row contributes, in the answer's units.
        told: the answer in the canaries' own directions (m,), with the noise.
    """

    noise: float
    reach: float
    told: Array


class Plain(Researcher):
    """A researcher to whom each node answers by itself: CO-OP needs it."""

    mode = "plain"

    @property
    def environment(self) -> dict[str, str]:
        """The nodes' limits."""
        return {**super().environment, "V6_FEDERATED_AGGREGATION": "plain"}


def frames(rows: Array, labels: Array, most: float, alone: bool) -> dict[int, pd.DataFrame]:
    """Rows at the hospitals 1 to 3, or all of them at the first; the last one works with the server.

    Its rows, which are as large as canaries can be, have the schema say the same whoever is present.
    """
    table = pd.DataFrame(rows, columns=[f"c{i}" for i in range(rows.shape[1])]).assign(**{LABEL: labels})
    last = pd.DataFrame(most, index=range(50), columns=table.columns).assign(**{LABEL: 0})
    cuts = [*range(0, len(table), -(-len(table) // 3)), len(table)]
    parts = [table, last, last] if alone else [table.iloc[a:b] for a, b in itertools.pairwise(cuts)]
    return {k: part.reset_index(drop=True) for k, part in enumerate([*parts, last], start=1)}


def asked_once(
    researcher: Researcher, package: str, function: str, model: Any = None, arrays: Any = None, **settings: Any
) -> dict[str, Array]:
    """The sum over the hospitals that do not work with the server."""
    spec = {**researcher.spec, "holdout": 0.5 if function == "evaluate" else 0.0}
    researcher.plan = replace(researcher.plan, holdout=spec["holdout"]) if researcher.plan else None
    sizes = model and {"features": len(researcher.features), "classes": 2, **model}
    job_ = researcher.job(package, data=spec, model=sizes)
    agreed = researcher.agreed(package, job=job_)
    agreed.rows = sum(len(researcher.tables[k]) for k in researcher.block)
    request: dict[str, Any] = {"job": job_, "arrays": arrays, "to": researcher.block, **settings}
    nodes, failed, found = agreed.opened(*researcher.sums(package, function, agreed, **request))
    assert nodes == len(researcher.block) and not failed
    return found


LOGREG = {"name": "logreg"}
RATE = 2.0**-10


def of_steps(package: str, **settings: Any) -> Callable[[Researcher], Asked]:
    """A step of local training: its noise is each node's own."""

    def asked(researcher: Researcher) -> Asked:
        d = len(researcher.features) + 1
        arrays = {"weights": np.zeros(d)} | ({"c": np.zeros(d)} if package == "v6_scaffold" else {})
        local = {"local": {"lr": RATE}, **settings}
        researcher.reserve(steps=1)
        if package == "v6_coop":
            job_ = researcher.job(package, model={"features": d - 1, "classes": 2, **LOGREG})
            researcher.send(package, "describe", [1], job=job_, round=0, raw=True)
            sent = codec.encode(arrays, "float64")
            answers = researcher.send(package, "client_update", [1], job=job_, round=1, arrays=sent, **local)
            change = codec.decode(answers[1]["arrays"])["weights"]
        else:
            found = asked_once(researcher, package, "client_update", LOGREG, arrays, **local)
            change = next(v for k, v in found.items() if k.startswith(("share weights", "equal dy 2^")))
            change = change * (HOSPITALS if package == "v6_scaffold" else 1)  # a mean over the block's hospitals
        assert researcher.plan is not None
        told = -change[:-1] * len(researcher.tables[1]) * units.GRADIENT / (RATE * researcher.plan.clip)
        return Asked(researcher.plan.noise, sensitivity(d, units.GRADIENT), told)

    return asked


def of_gradients(researcher: Researcher) -> Asked:
    d = len(researcher.features) + 1
    researcher.reserve(steps=1)
    assert researcher.plan is not None
    found = asked_once(researcher, "v6_fedavg", "noisy_gradient", LOGREG, {"weights": np.zeros(d)})
    return Asked(researcher.plan.noise, sensitivity(d, units.GRADIENT), found["one gradient"][:-1])


def of_moments(researcher: Researcher) -> Asked:
    """A row's own sum and the square of it have equal parts."""
    d = len(researcher.features)
    researcher.reserve(statistics=1)
    assert researcher.plan is not None
    found = asked_once(researcher, "v6_pca", "noisy_moments", d=d)["one moments"]
    i, j = np.triu_indices(d)
    told = (found[:d] + found[d:][i == j]) / math.sqrt(2)
    return Asked(researcher.plan.statistics_noise, pca.moments_sensitivity(), told)


def of_newton(researcher: Researcher) -> Asked:
    """Products of the columns, of which one is large in each canary."""
    p = len(researcher.features) + 1
    researcher.reserve(statistics=1)
    assert researcher.plan is not None
    transform = codec.encode({"T": np.diag([*[1.0] * (p - 1), 2.0**-20])}, "float64")
    found = asked_once(researcher, "v6_glm", "noisy_newton", GLM, None, transform=transform, of_budget=1)["one sums"]
    i, j = np.tril_indices(p + 1)
    return Asked(researcher.plan.statistics_noise, bounded_reach(len(found)), found[i == j][: p - 1])


def of_leaves(researcher: Researcher) -> Asked:
    """A tree with a leaf for each canary, by the one column."""
    m = round(max(table["c0"].max() for table in researcher.tables.values()))

    def tree(low: int, high: int) -> list[list[float]]:
        """The splits and leaves of the values from ``low`` to ``high``."""
        if low == high:
            return [[-1.0, 0.0, 0.0]]
        middle = (low + high) // 2
        return [[0.0, middle + 0.5, 1.0], *tree(low, middle), *tree(middle + 1, high)]

    researcher.reserve(statistics=1)
    assert researcher.plan is not None
    arrays = {"weights": np.array([[-1.0, 0.0, 0.0]]), "structure": np.array(tree(0, m))}
    found = asked_once(researcher, "v6_gbdt", "noisy_leaf_sums", {"name": "trees"}, arrays)["one sums"]
    first, second = np.split(found, 2)
    told = (2 * first + 3 * second)[1:] / math.sqrt(13)  # a row of class 0 adds 1/2, and 3/4
    return Asked(researcher.plan.statistics_noise, bounded_reach(2), told)


def of_evaluations(researcher: Researcher) -> Asked:
    """Counts of scores in bands, by the one column, which is the score; again and again."""
    researcher.reserve(evaluations=EVALUATIONS)
    assert researcher.plan is not None
    asked = {"arrays": {"weights": np.array([1.0, 0.0])}, "evaluate": "held_out", "bands": BANDS}
    told = [asked_once(researcher, "v6_fedavg", "evaluate", LOGREG, **asked) for _ in range(EVALUATIONS)]
    counts = np.mean([found["one evaluation.bands"].ravel() for found in told], axis=0)
    noise = researcher.plan.evaluation_noise / math.sqrt(EVALUATIONS)  # of the mean
    return Asked(noise, metrics.reach(1) * units.COUNT, counts)


EVALUATIONS, BANDS = 16, Policy.of("private").score_bands
GLM = {"name": "glm", "family": "binomial", "link": "logit"}
COLEARNING = {"epochs": 1, "epochs_before": 0, "lr_cycle": 0.5}
# by method and function: how it is asked, and whether all canaries are at one hospital, whose own noise it is
FUNCTIONS: dict[str, tuple[Callable[[Researcher], Asked], bool]] = {
    "fedavg.noisy_gradient": (of_gradients, False),
    "fedavg.client_update": (of_steps("v6_fedavg"), True),
    "scaffold.client_update": (of_steps("v6_scaffold", known={}), True),
    "colearning.client_update": (of_steps("v6_colearning", **COLEARNING), True),
    "coop.client_update": (of_steps("v6_coop"), True),
    "glm.noisy_newton": (of_newton, False),
    "pca.noisy_moments": (of_moments, False),
    "gbdt.noisy_leaf_sums": (of_leaves, False),
    "evaluate": (of_evaluations, False),
}
ONE_COLUMN = ("gbdt.noisy_leaf_sums", "evaluate")


def hospitals_of(function: str, canaries: int, present: Array, alone: bool) -> dict[int, pd.DataFrame]:
    """The tables for a private function; an absent canary is a row of zeros."""
    labels = np.zeros(canaries, np.int64)
    if function == "evaluate":  # a score for each band, and for rows of either class
        u = np.minimum(np.arange(1, (BANDS - 1) // 2 + 1) / ((BANDS - 1) // 2), 0.95)
        values = np.resize(np.concatenate([sign * (u / (1 - u)) ** 5 for sign in (-1, 1)]), canaries)
        values[4 * len(u) :], labels[2 * len(u) :] = 0.0, 1
    else:
        values = np.arange(canaries) + 1.0 if function in ONE_COLUMN else np.full(canaries, LENGTH)
    rows = (values * present)[:, None] if function in ONE_COLUMN else np.diag(values * present)
    return frames(rows, labels, values.max(), alone)


def audited(function: str, canaries: int, seed: int, faults: Sequence["Fault"]) -> list[Verdict]:
    """Audit a private function by single requests to hospitals with canaries.

    Args:
        function: one of ``FUNCTIONS``.
        canaries: how many there are; half of them are in the tables.
        seed: draws which.
        faults: what is wrong with the nodes.

    Returns:
        What the answer shows, for each fault. What is claimed is the whole length that a row may contribute; a canary's
        own direction may hold less of it.
    """
    present = np.random.default_rng(seed).permutation(np.arange(canaries) < canaries // 2)
    run, alone = FUNCTIONS[function]
    kind = Plain if function == "coop.client_update" else Researcher
    colluding, told = [*range(2, HOSPITALS + 1)] if alone else [HOSPITALS], list[Asked]()
    for how in (no_noise, *faults):
        tables_ = hospitals_of(function, canaries, present, alone)
        with kind(tables_, "private 8", True, colluding=colluding) as researcher, how():
            told.append(run(researcher))
    exact, reach = told[0].told, told[0].reach
    cells = np.ones_like(exact, bool)
    if function == "evaluate":  # which rows are held out is the hospital's secret
        cells = np.isin(exact, (0, units.COUNT))
        present = exact[cells] > 0
    assert ((exact[cells] > reach / 4) == present).all()
    return [score_test(each.told[cells] / (each.noise * reach), present, 1 / each.noise) for each in told[1:]]


# ---- the page


def _of_functions(full: bool) -> Iterator[str]:
    yield from tables.head("function", "claimed epsilon", "measured", "variance, times claimed", "noise halved: caught")
    for function in FUNCTIONS:
        faults = (contextlib.nullcontext, FAULTS["noise halved"])
        found = [audited(function, 300 if full else 100, seed, faults) for seed in range(10 if full else 1)]
        sound, faulty = zip(*found, strict=True)
        measured = np.median([epsilon_of(verdict.measured) for verdict in sound])
        variance = np.mean([verdict.variance for verdict in sound])
        caught = f"{sum(v.caught for v in faulty)} of {len(faulty)}"
        yield tables.row(f"`{function}`", 8, f"{measured:.2f}", f"{variance:.3f}", caught)


def _lines(full: bool) -> Iterator[str]:
    audits, faulty = (1000, 50) if full else (50, 10)
    columns = ("claimed epsilon", "steps of an audit", "nodes", "audits", "caught", "by variance", "by means")
    yield from tables.head(*columns, "variance, times claimed", "measured epsilon, median")
    for target in (1.0, 8.0):
        plan = accountant.calibrated(Plan(steps=1), target, DELTA)
        yield _row(target, plan, "as they are", audits, 1, contextlib.nullcontext)
        for name, fault in FAULTS.items():
            yield _row(target, plan, name, faulty, 1, fault)
    steps = 10
    plan = accountant.calibrated(Plan(steps=steps), 1.0, DELTA)
    yield _row(1.0, plan, "as they are", audits // steps, steps, contextlib.nullcontext)
    yield _row(1.0, plan, "noise halved", faulty // steps, steps, FAULTS["noise halved"])


def _row(target: float, plan: Plan, name: str, audits: int, steps: int, fault: Fault) -> str:
    jobs = max(1, audits // 100)  # which canaries are present differs between jobs
    rounds = audits // jobs * steps
    found = [job(replace(plan, steps=rounds), CANARIES, seed, fault).verdicts(steps) for seed in range(jobs)]
    verdicts = [verdict for one in found for verdict in one]
    of = len(verdicts)
    shares = [
        sum(v.caught for v in verdicts) / of,
        sum(v.less_noise < LEVEL / 2 for v in verdicts) / of,
        sum(v.more_influence < LEVEL / 2 for v in verdicts) / of,
    ]
    variance = np.mean([v.variance for v in verdicts])
    measured = np.median([epsilon_of(v.measured) for v in verdicts])
    shown = [f"{100 * share:.1f}%" for share in shares]
    return tables.row(f"{target:g}", steps, name, of, *shown, f"{variance:.3f}", f"{measured:.2f}")


def main(dataset: Dataset | None, full: bool) -> None:
    """Print and keep the table. The rows are canaries."""
    tables.page(tables.Page("canaries", "Audit of the noise by canaries", full, ABOUT, "", timed=True), _lines(full))
