"""The job: what every task says about it."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from v6_federated.base.errors import SafeError

# partial functions that every method has, those without a model only describe, fit_step and forget; none trains
SHARED_FUNCTIONS = ("describe", "fit_step", "keep_steps", "evaluate", "forget")


@dataclass(frozen=True)
class DataSpec:
    """Which columns a job uses, and how.

    Attributes:
        label: column of the label; None means the last one. Arrays have no column names.
        features: columns of the features; None means all others.
        classes: the label's values, in the order of their indices; None until the nodes have named them.
        holdout: share of a node's rows that is kept for evaluation.
        preprocess: fitted steps, in order, as ``{"step": "standardize", "fitted": payload of mean and scale (d,)}``.
        categories: feature columns that all nodes read as words; None if there are no steps.
        supervised: whether rows have a label. If not, the last column is a feature only if ``features`` names it.
        regression: whether the label is a number to predict instead of a class.
    """

    label: str | None = None
    features: Sequence[str] | None = None
    classes: Sequence[Any] | None = None
    holdout: float = 0.2
    preprocess: Sequence[dict[str, Any]] = ()
    categories: Sequence[str] | None = None
    supervised: bool = True
    regression: bool = False


@dataclass(frozen=True)
class Job:
    """What every task says about its job.

    Attributes:
        method: name of the method.
        key: identifies the job's state at a node, 32 hexadecimal digits.
        seed: seed of every random choice in the job.
        participants: ids of the organizations that train.
        evaluators: ids of the organizations that only evaluate.
        rounds: number of rounds; None until it is known.
        model: name, options and sizes of the model; None until the nodes have described their data.
        data: which columns are used, and how.
        minimum_rows: rows that the researcher requires of a node, above the node's own minimum.
        precision: number format of the arrays that are sent.
    """

    method: str
    key: str
    seed: int
    participants: list[int]
    evaluators: list[int]
    rounds: int | None
    model: dict[str, Any] | None
    data: DataSpec
    minimum_rows: int | None
    precision: str

    def to_json(self) -> dict[str, Any]:
        """The job as JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, message: Any) -> "Job":
        """The job that a message describes; its values are not checked.

        Args:
            message: what ``to_json`` made, or what a task claims to be one.

        Returns:
            The job.

        Raises:
            SafeError: the message is no job: an attribute is missing or unknown.
        """
        try:
            return cls(**{**message, "data": DataSpec(**message["data"])})
        except (TypeError, KeyError):
            raise SafeError("the job lacks a part or has an unknown one; it must be as central sends it") from None
