"""An audit by canaries of each private function, and the lower bound of epsilon that it measures.

Each function is asked once for its sum, or for a few, by a researcher who spends the whole budget on it. Canaries are
rows that contribute as much as any may, each in a direction of its own; see ``benchmarks.canaries``.
"""

import contextlib
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from benchmarks import tables
from benchmarks.attacks.researcher import LABEL, Researcher
from benchmarks.canaries import (
    FAULTS,
    HOSPITALS,
    LENGTH,
    Array,
    Fault,
    Verdict,
    epsilon_of,
    no_noise,
    score_test,
)
from v6_federated.data import pca
from v6_federated.messages import codec
from v6_federated.models import metrics
from v6_federated.noise import units
from v6_federated.noise.bounded import bounded_reach
from v6_federated.noise.clipping import sensitivity
from v6_federated.rules.policy import Policy
from v6_workbench.simulation.datasets import Dataset

EPSILON = 8
ABOUT = (
    f"Each private function is asked by a researcher who spends a budget of epsilon {EPSILON} on one sum (of an "
    f"evaluation: on 16). Half of the canaries are in the tables of three hospitals; the fourth works with the server. "
    "Where each node adds all of the noise by itself, all canaries are at one hospital and the other three work with "
    "the server. The measured epsilon follows from the measured distance of canaries that are there from those that "
    "are not, in standard deviations of the noise as it is: a lower bound, since a canary's own direction may hold "
    "less than all that a row contributes (the root of 1/2 in an evaluation, .9 in trees). Median of the audits."
)


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

    Its rows are as large as canaries can be, so that the schema is the same whichever canaries are present.
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


def _lines(full: bool) -> Iterator[str]:
    head = ("function", "claimed epsilon", "audits", "measured epsilon", "variance, times claimed", "caught")
    yield from tables.head(*head, "noise halved: caught")
    for function in FUNCTIONS:
        faults = (contextlib.nullcontext, FAULTS["noise halved"])
        found = [audited(function, 300 if full else 100, seed, faults) for seed in range(5 if full else 1)]
        sound, faulty = zip(*found, strict=True)
        measured = np.median([epsilon_of(verdict.measured) for verdict in sound])
        variance = np.mean([verdict.variance for verdict in sound])
        caught = [sum(v.caught for v in verdicts) for verdicts in (sound, faulty)]
        yield tables.row(f"`{function}`", EPSILON, len(found), f"{measured:.2f}", f"{variance:.3f}", *caught)


def main(dataset: Dataset | None, full: bool) -> None:
    """Print and keep the table. The rows are canaries."""
    title = "Audit of each private function by canaries"
    tables.page(tables.Page("private_functions", title, full, ABOUT, "", timed=True), _lines(full))
