"""Isolating rows by sums above thresholds, and the forged steps that crafted tasks use."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from benchmarks.attacks.researcher import Refused, Researcher
from v6_federated.messages import codec

STEEP = 1e6  # how steep a crafted model is: its threshold is this sharp
LONG = 1e9  # a learning rate so large that the weights sent vanish beside the gradient
FAR = 25.0  # standard deviations beyond which no row lies


class Sum(NamedTuple):
    """How many rows, and the sum (d,) of what is asked of each."""

    size: float
    total: np.ndarray

    def __sub__(self, other: "Sum") -> "Sum":
        return Sum(self.size - other.size, self.total - other.total)

    @property
    def n(self) -> int:
        return round(self.size)


class Between(NamedTuple):
    """Two thresholds and the sum over the rows between them."""

    low: float
    high: float
    rows: Sum


Ask = Callable[[Sequence[float]], Sequence[Sum | None]]  # sums over the rows above thresholds; None: refused
Project = Callable[[np.ndarray], float]  # the number of a row (d,) that is compared with the thresholds


def isolate(
    ask: Ask, starts: Sequence[float], project: Project | None = None, a_task: int = 1, most: int = 10**6
) -> list[Between]:
    """Part the rows until each is alone between two thresholds.

    The mean of the rows between two thresholds lies among them, so a threshold there always parts them. If the sums do
    not hold what the thresholds are compared with, intervals are halved.

    Args:
        ask: asks a node for the sums above some thresholds.
        starts: the first thresholds, ascending.
        project: the number of a row that is compared with the thresholds, if the sums tell it.
        a_task: how many thresholds one task can have.
        most: stop after so many thresholds.

    Returns:
        The intervals with one row.
    """
    known = {t: above for t, above in asked_in_parts(ask, starts, a_task).items() if above is not None}
    waiting = [(Between(a, b, known[a] - known[b]), known[a], 0) for a, b in pairwise(sorted(known))]
    alone, asked = list[Between](), len(starts)
    while waiting:
        wanted = list[tuple[float, Between, Sum, int]]()
        for between, above, tries in waiting:
            if between.rows.n == 1:
                alone.append(between)
            elif between.rows.n > 1 and tries < (4 if project else 12):
                wanted.append((_middle(between, project, tries), between, above, tries))
        wanted = wanted[: max(most - asked, 0)]
        answers = asked_in_parts(ask, [t for t, *_ in wanted], a_task)
        asked += len(wanted)
        waiting = []
        for t, (a, b, rows), above, tries in wanted:
            if (middle := answers.get(t)) is None:
                continue
            parted = 0 < (above - middle).n < rows.n
            tries = 0 if parted else tries + 1
            waiting += [
                (Between(a, t, above - middle), above, tries),
                (Between(t, b, rows - (above - middle)), middle, tries),
            ]
    return alone


def asked_in_parts(ask: Ask, thresholds: Sequence[float], a_task: int) -> dict[float, Sum | None]:
    found = dict[float, Sum | None]()
    for i in range(0, len(thresholds), a_task):
        part = thresholds[i : i + a_task]
        try:
            found |= dict(zip(part, ask(part), strict=True))
        except Refused:
            found |= dict.fromkeys(part)
    return found


def _middle(between: Between, project: Project | None, tries: int) -> float:
    a, b, rows = between
    if project is not None and not tries and a < (mean := project(rows.total / rows.n)) < b:
        return mean
    return a + (b - a) * (0.5 if project is None else (0.5, 0.5, 0.31, 0.73)[tries])


def grid(mean: float, scale: float) -> list[float]:
    """Thresholds at which to begin; those beyond most rows may be refused."""
    return [mean + s * scale for s in np.linspace(-3, 3, 25)]


@dataclass
class Standard:
    """The target's columns in standard deviations from their means, and a direction along which rows are compared."""

    mean: np.ndarray
    scale: np.ndarray
    n: int
    direction: np.ndarray
    name: str = "standardize"

    @classmethod
    def of(cls, researcher: Researcher) -> "Standard":
        mean, deviation, n = researcher.moments()
        direction = np.random.default_rng(7).normal(size=len(mean))
        name = "scale" if researcher.epsilon else "standardize"  # a budget allows steps that follow from the schema
        return cls(mean, deviation, n, direction / np.linalg.norm(direction), name)

    @property
    def steps(self) -> list[dict[str, Any]]:
        return [standardize(self.mean, self.scale, self.name)]

    def project(self, row: np.ndarray) -> float:
        return float(row @ self.direction)

    def raw(self, rows: Sequence[np.ndarray]) -> list[np.ndarray]:
        return [row * self.scale + self.mean for row in rows]


def standardize(mean: np.ndarray, scale: np.ndarray, name: str = "standardize") -> dict[str, Any]:
    """A step that centres and divides the columns by any numbers, as if a job had fitted it."""
    fitted = codec.encode({**codec.two_parts("mean", mean), "scale": scale}, "float64")
    return {"step": name, "fitted": fitted}


def clip(bounds: Mapping[str, Sequence[float | None]]) -> dict[str, Any]:
    """A step that clips columns to any bounds, as if a job had fitted it."""
    return {"step": "clip", "fitted": {"bounds": {c: list(b) for c, b in bounds.items()}}}


def components(C: np.ndarray) -> dict[str, Any]:
    """A step ``pca`` with any components (k, d), as if a job had fitted it."""
    d = C.shape[1]
    fitted = {"mean": np.zeros(d), "mean_rest": np.zeros(d), "scale": np.ones(d), "components": C}
    return {"step": "pca", "fitted": codec.encode(fitted, "float64")}
