"""Audit by canaries: is the noise in a job's sums what the accountant was told?

A canary is a row whose clipped gradient has the norm C and a direction of its own, so that canaries do not hide each
other. Half of them, drawn at random, are in the hospitals' tables. An observer who knows all canaries scores each by
its coordinate of the noisy sums that central learns. If noise and clipping are as claimed, scores are Gaussian: with
variance 1 in units of the claimed noise, and with means that differ by mu = sqrt(steps) / z between canaries that are
there and canaries that are not. Two one-sided tests look for less noise and for a larger influence of a row.

A job that is caught has a fault. A job that is not caught may still have one, of a kind that these canaries do not see.
"""

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import numpy as np
from scipy import optimize, stats

from benchmarks import tables
from v6_federated import Answers, Federation
from v6_federated.node import noising
from v6_federated.noise import accountant, units
from v6_federated.noise.clipping import clipped_sum, sensitivity
from v6_federated.noise.gaussian import discrete_gaussian
from v6_federated.noise.plan import Plan
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


# ---- the page


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
