"""What results amount to: a line of numbers, what was spent on the way, and which of two methods is better."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from v6_federated.messages import codec
from v6_workbench.reporting.intervals import Result, accuracy_interval, auc_interval, noisy

CLEAR = 5  # standard deviations of noise above which a number of rows is known well enough to divide by it
CERTAIN = 0.95  # probability from which a difference has a sign
UNITS = {  # units of cost in which methods are compared, and how they are written
    "rounds": "round",
    "uploads": "uploads (answers of nodes)",
    "bytes": "bytes sent, both ways",
    "seconds": "seconds of simulated time",
}
MEASURES = {  # how a measure is written
    "accuracy": "accuracy",
    "r2": "R squared",
    "auc": "AUC",
    "c_index": "C-index",
    "rmse": "RMSE",
    "mae": "MAE",
}
OF_A_FIT = ("deviance", "null_deviance", "df_residual", "log_likelihood", "aic", "concordance")  # of a regression
OF_CLASSES, OF_NUMBERS, OF_TIMES = ("accuracy", "auc"), ("r2", "rmse", "mae"), ("c_index",)


def summary(result: Result, target: float | None = None) -> dict[str, Any]:
    """Sum up a result in one line of numbers.

    Args:
        result: the result.
        target: accuracy to count the rounds, uploads, bytes and seconds to.

    Returns:
        Names and numbers, as JSON.
    """
    history = result["history"]
    last = history[-1]
    return {
        "method": result["method"],
        "rounds": last["round"],
        "accuracy": last["accuracy"],
        "accuracy_interval": accuracy_interval(result),
        "auc": last["auc"],
        "auc_interval": auc_interval(result),
        "loss": last["loss"],
        **{name: result[name] for name in OF_A_FIT if name in result},
        **{name: last[name] for name in (*OF_NUMBERS, *OF_TIMES) if name in last},
        **{f"{unit}_to_target": None if target is None else to_target(result, target, unit) for unit in UNITS},
        "uploads": spent(result, "uploads")[-1],
        "bytes_up": sum(row["bytes_up"] for row in history),
        "bytes_down": sum(row["bytes_down"] for row in history),
        "seconds": round(sum(row["seconds"] for row in history), 3),
        "seed": result["settings"]["seed"],
        **({name: result["privacy"][name] for name in ("epsilon", "delta")} if noisy(result) else {}),
    }


def spent(result: Result, unit: str) -> list[float]:
    """Return what was spent up to each round.

    Args:
        result: the result.
        unit: one of ``UNITS``; bytes are those of both directions.

    Returns:
        A number for each row of the history.
    """
    history = result["history"]
    if unit == "rounds":
        return [row["round"] for row in history]
    if unit == "uploads":
        return list(itertools.accumulate(row.get("uploads", len(row["participants"])) for row in history))
    if unit == "seconds":
        return list(itertools.accumulate(row["seconds"] for row in history))
    return list(itertools.accumulate(row["bytes_up"] + row["bytes_down"] for row in history))


def to_target(result: Result, target: float, unit: str = "rounds") -> float | None:
    """Return what was spent until the accuracy reached a target, as McMahan et al. 2017 count it.

    The best accuracy so far is taken to grow linearly from one evaluation to the next.

    Args:
        result: the result.
        target: the accuracy.
        unit: one of ``UNITS``.

    Returns:
        The number; None if the accuracy did not reach the target.
    """
    best = 0.0
    before: float | None = None
    for row, now in zip(result["history"], spent(result, unit), strict=True):
        accuracy = row["accuracy"]
        if accuracy is None:
            continue
        if accuracy >= target:
            return now if before is None else before + (now - before) * (target - best) / (accuracy - best)
        best, before = max(best, accuracy), now
    return None


def measure(results: Mapping[str, Result]) -> str:
    """Return the measure of how good the models are: ``r2`` or ``c_index`` if all have it, otherwise ``accuracy``."""
    rows = [result["history"][-1] for result in results.values()]
    return next((name for name in ("r2", "c_index") if all(name in row for row in rows)), "accuracy")


def measures(results: Mapping[str, Result]) -> dict[str, str]:
    """Return the measures to show of results: names in a history by how they are written."""
    rows = [result["history"][-1] for result in results.values()]
    of = {"r2": OF_NUMBERS, "c_index": OF_TIMES, "accuracy": OF_CLASSES}[measure(results)]
    return {MEASURES[name]: name for name in of if name in OF_CLASSES or all(name in row for row in rows)}


def simulated(results: Mapping[str, Result]) -> bool:
    """Return whether all results are of nodes with given speeds, so that seconds are not those of this machine."""
    return all(result.get("experiment", {}).get("speeds") for result in results.values())


def most_frequent(result: Result) -> tuple[str, float] | None:
    """Return the most frequent class of the held-out rows, and the accuracy of always predicting it.

    Args:
        result: the result.

    Returns:
        The class and the accuracy; None if no rows were evaluated, or if noise hides how many rows a class has.
    """
    final = result.get("final") or {}
    confusion = np.asarray(final.get("confusion") or [[0]])
    if not confusion.any() or len(confusion) == 1:  # of very many classes rows are not counted one by one
        return None
    rows = confusion.sum(axis=1).clip(0)
    if noisy(result) and rows.max() < CLEAR * final["accuracy_error"] * final["evaluated"]:
        return None
    return str(result["data"]["classes"][int(rows.argmax())]), float(rows.max() / rows.sum())


def components_of(result: Result) -> dict[str, np.ndarray] | None:
    """Return the principal components of a result.

    Args:
        result: the result.

    Returns:
        ``components`` (k, d), ``explained_variance`` (k,), ``explained_variance_ratio`` (k,) and what else it has;
        None if the result has no components.
    """
    kept = result.get("weights")
    needed = {"components", "explained_variance", "explained_variance_ratio"}
    return codec.decode(kept) if isinstance(kept, dict) and needed <= {*kept.get("shapes", ())} else None


@dataclass(frozen=True)
class Try:
    """One combination of settings and how good it was.

    Attributes:
        settings: the values that were tried, by the names of the settings.
        scores: its score on the rows of each fold, or on those held out; more is better.
        failed: why it was not trained to the end; empty if it was.
    """

    settings: Mapping[str, Any]
    scores: Sequence[float]
    failed: str = ""

    @property
    def score(self) -> float:
        """The mean score; minus infinity if it was not trained to the end."""
        return -math.inf if self.failed or not self.scores else float(np.mean(self.scores))


@dataclass(frozen=True)
class Verdict:
    """What is known about two methods' mean difference in score, the first's minus the second's.

    Attributes:
        difference: the mean of the difference.
        better: probability that it is above the region of practical equivalence.
        equal: probability that it is within.
        worse: probability that it is below.
        posterior: baycomp's distribution of the second's minus the first's.
    """

    difference: float
    better: float
    equal: float
    worse: float
    posterior: Any

    @property
    def sign(self) -> str:
        """``+``, ``=`` or ``-`` if that has a probability of 95% or more, otherwise ``?``."""
        chances = {"+": self.better, "=": self.equal, "-": self.worse}
        return next((sign for sign, chance in chances.items() if chance >= CERTAIN), "?")
