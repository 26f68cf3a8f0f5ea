"""Means and intervals over repeats of one experiment."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from v6_workbench.reporting.summary import MEASURES, Result

if TYPE_CHECKING:
    from rich.table import Table

LEVEL = 0.95
FEWEST = 3  # repeats that give an interval: t of one degree of freedom makes one of two 13 times as wide as they differ
OF_FINAL = (*MEASURES, "loss")
BOUNDS = {  # what each measure can be
    **dict.fromkeys(("accuracy", "auc", "c_index"), (0.0, 1.0)),
    **dict.fromkeys(("rmse", "mae", "loss"), (0.0, math.inf)),
    "r2": (-math.inf, 1.0),
}
ESTIMATES = (
    "Each interval is a 95% t interval of the mean over repeats: where the mean would lie if these same rows were "
    "dealt and split again, many times. It says nothing about other patients or hospitals; for those, see the "
    f"intervals of a single result. With fewer than {FEWEST} repeats there is none."
)


@dataclass(frozen=True)
class Spread:
    """A measure over R repeats.

    Attributes:
        mean: the mean.
        deviation: standard deviation of a single repeat (R - 1 in the denominator).
        low: where the 95% t interval of the mean begins; None with fewer than ``FEWEST`` repeats.
        high: where it ends; None with fewer.
        values: the measure of each repeat.
    """

    mean: float
    deviation: float
    low: float | None
    high: float | None
    values: list[float]

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Sum up the values of two repeats or more.

        Args:
            values: a value of each repeat.
        """
        from scipy import stats  # slow to import

        mean, deviation = float(np.mean(values)), float(np.std(values, ddof=1))
        if len(values) < FEWEST:
            return cls(mean, deviation, None, None, [*map(float, values)])
        half = float(stats.t.ppf((1 + LEVEL) / 2, len(values) - 1)) * deviation / math.sqrt(len(values))
        return cls(mean, deviation, mean - half, mean + half, [*map(float, values)])


def spreads(results: Sequence[Result]) -> dict[str, Spread]:
    """Sum up what the last round of each repeat measured.

    Args:
        results: a result of each repeat.

    Returns:
        By measure, those that all repeats have.
    """
    found = {}
    for name in OF_FINAL:
        values = [result["history"][-1].get(name) for result in results]
        if all(value is not None for value in values):
            found[name] = _bounded(Spread.of(values), *BOUNDS[name])
    return found


def _bounded(spread: Spread, least: float, most: float) -> Spread:
    """A few values that vary much give an interval beyond what the measure can be."""
    if spread.low is None or spread.high is None:
        return spread
    return replace(spread, low=max(spread.low, least), high=min(spread.high, most))


def as_json(results: Mapping[str, Sequence[Result]]) -> dict[str, Any]:
    """Return means and intervals as JSON, for ``repeats.json``.

    Args:
        results: by name, a result of each repeat.

    Returns:
        By name and measure a ``Spread``, and what the intervals estimate.
    """
    by_name = {name: {m: asdict(spread) for m, spread in spreads(found).items()} for name, found in results.items()}
    return {"repeats": len(next(iter(results.values()))), "results": by_name, "estimates": ESTIMATES}


def table(results: Mapping[str, Sequence[Result]]) -> "Table":
    """Make a table of means and intervals.

    Args:
        results: by name, a result of each repeat. If there are several, those after the first are compared with it.

    Returns:
        A row for each name and measure.
    """
    from rich.markup import escape
    from rich.table import Table

    made = Table(box=None, pad_edge=False)
    for heading in ("", "measure", "mean", "deviation", "95% interval"):
        made.add_column(heading, justify="right" if heading in ("mean", "deviation") else "left")
    first = spreads(next(iter(results.values())))
    if len(results) > 1:
        made.add_column("minus the first, repeat by repeat")
    for i, (name, found) in enumerate(results.items()):
        for measure, spread in spreads(found).items():
            cells = [escape(name), MEASURES.get(measure, measure), f"{spread.mean:.4f}", f"{spread.deviation:.4f}"]
            cells.append(_interval(spread))
            if i and measure in first:
                apart = Spread.of(np.subtract(spread.values, first[measure].values).tolist())
                within = f" ({_interval(apart, '+')})" if apart.low is not None else ""
                cells.append(f"{apart.mean:+.4f}{within}")
            made.add_row(*cells)
    return made


def _interval(spread: Spread, sign: str = "") -> str:
    if spread.low is None or spread.high is None:
        return "-"
    return f"{spread.low:{sign}.4f} to {spread.high:{sign}.4f}"
