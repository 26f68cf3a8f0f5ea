"""What a job will ask of a node in all, as far as it costs privacy: its plan, which is fixed before its first round."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from v6_federated.base.errors import SafeError

NOISE = (0.1, 1e6)
RANGES: Mapping[str, tuple[float, float]] = {
    "clip": (1e-6, 1e6),
    "noise": NOISE,
    "rate": (1e-6, 1.0),
    "steps": (0, 1_000_000),
    "steps_per_epoch": (1, 1_000_000),
    "evaluations": (0, 1_000_000),
    "evaluation_noise": NOISE,
    "statistics": (0, 1_000_000),
    "statistics_noise": NOISE,
    "holdout": (0.0, 1.0),
}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A job's plan. Each noise is the standard deviation of a sum's noise over the sum's sensitivity.

    Attributes:
        clip: C, the largest L2 norm of a row's gradient.
        noise: z, of a sum of gradients.
        rate: q, the probability with which each row takes part in a step; 1 means all rows, without sampling.
        steps: noisy sums of gradients, in all rounds together.
        steps_per_epoch: those of an epoch. They cost nothing but what ``steps`` says.
        evaluations: noisy counts of evaluations.
        evaluation_noise: z of each of them.
        statistics: noisy sums of the preparation.
        statistics_noise: z of each of them.
        holdout: the share of rows that is held out in all of the job, and evaluated on. Other rows are trained on.
    """

    clip: float = 1.0
    noise: float = 1.0
    rate: float = 1.0
    steps: int = 0
    steps_per_epoch: int = 1
    evaluations: int = 0
    evaluation_noise: float = 1.0
    statistics: int = 0
    statistics_noise: float = 1.0
    holdout: float = 0.0

    def __post_init__(self) -> None:
        """Check the ranges, and make numbers of one kind, so that equal plans are written alike.

        Raises:
            SafeError: a number is out of range.
        """
        for field in dataclasses.fields(self):
            value, (low, high) = getattr(self, field.name), RANGES[field.name]
            whole = field.type is int
            if type(value) not in ((int,) if whole else (int, float)) or not low <= value <= high:
                kind = "whole number" if whole else "number"
                raise SafeError(f"{field.name} of a privacy plan must be a {kind} from {low:g} to {high:,.12g}")
            if not whole:
                object.__setattr__(self, field.name, float(value))

    def to_json(self) -> dict[str, Any]:
        """Write the plan.

        Returns:
            Its attributes.
        """
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, message: Any) -> "Plan":
        """Read a plan.

        Args:
            message: JSON that somebody else has written.

        Returns:
            The plan.

        Raises:
            SafeError: this is no plan.
        """
        if not isinstance(message, dict) or set(message) != set(RANGES):
            raise SafeError(f"a privacy plan must have exactly these fields: {', '.join(RANGES)}")
        return cls(**message)
