"""What results come to: a line of numbers, what was spent on the way, and which of two methods is better."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from v6_federated.models import metrics

CERTAIN = 0.95  # the probability from which on a difference has a sign


def summary(result: Mapping[str, Any], target: float | None = None) -> dict[str, Any]:
    """The line of numbers that sums up a result."""
    history = result["history"]
    last = history[-1]
    return {
        "method": result["method"],
        "rounds": last["round"],
        "accuracy": last["accuracy"],
        "auc": last["auc"],
        "loss": last["loss"],
        **({"r2": last["r2"]} if "r2" in last else {}),
        **{f"{unit}_to_target": None if target is None else to_target(result, target, unit) for unit in UNITS},
        "uploads": spent(result, "uploads")[-1],
        "bytes_up": sum(row["bytes_up"] for row in history),
        "bytes_down": sum(row["bytes_down"] for row in history),
        "seconds": round(sum(row["seconds"] for row in history), 3),
        "seed": result["settings"]["seed"],
    }


UNITS = ("rounds", "uploads", "bytes", "seconds")  # by which methods are compared


def spent(result: Mapping[str, Any], unit: str) -> list[float]:
    """Rounds, uploads, bytes both ways or seconds up to each row of the history."""
    history = result["history"]
    if unit == "rounds":
        return [row["round"] for row in history]
    if unit == "uploads":
        return list(itertools.accumulate(row.get("uploads", len(row["participants"])) for row in history))
    if unit == "seconds":
        return list(itertools.accumulate(row["seconds"] for row in history))
    return list(itertools.accumulate(row["bytes_up"] + row["bytes_down"] for row in history))


def to_target(result: Mapping[str, Any], target: float, unit: str = "rounds") -> float | None:
    """Rounds, uploads, bytes or seconds until the accuracy reaches ``target``, interpolated as McMahan does; None if it
    does not."""
    return metrics.rounds_to_target([row["accuracy"] for row in result["history"]], spent(result, unit), target)


@dataclass(frozen=True)
class Verdict:
    """What is known of two methods' mean difference in score, the first's less the second's.

    Attributes:
        difference: its mean; better, equal, worse: probability that it is above, within and below the region of
            practical equivalence; posterior: baycomp's, of the second's less the first's.
    """

    difference: float
    better: float
    equal: float
    worse: float
    posterior: Any

    @property
    def sign(self) -> str:
        """``+``, ``=`` or ``-`` where that has a probability of 95% or more, else ``?``."""
        chances = {"+": self.better, "=": self.equal, "-": self.worse}
        return next((sign for sign, chance in chances.items() if chance >= CERTAIN), "?")
