"""What central tells every node about the job in each task."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

# the partial functions that every method offers beside its own; none of them trains
SHARED_FUNCTIONS = ("describe", "fit_step", "keep_steps", "evaluate", "forget")


@dataclass(frozen=True)
class DataSpec:
    """Which columns a job uses and how; what central tells every node.

    Attributes:
        label, features: column names; None is the last column, all other columns. Arrays have no names.
        classes: the label's values in the order of their indices; None until agreed.
        holdout: share of the rows kept for evaluation.
        preprocess: fitted steps, in order, as ``{"step": "standardize", "fitted": payload of mean and scale (d,)}``.
        categories: feature columns that are read as words, as agreed by all nodes; None where no steps follow.
        supervised: whether rows have a label; without, the last column is a feature where ``features`` names it.
        regression: whether the label is a number to predict, not a class.
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
    """What central tells every node in every task.

    Attributes:
        method: the method's name; key: tells this job's state at a node from any other's.
        seed: of every random choice of the job.
        participants: ids of the organizations that take part in the job; evaluators: of those that only evaluate.
        rounds: rounds that the job will have; None before it is known.
        model: the model's full spec; None before the data are described.
        data: which columns are used and how.
        minimum_rows: rows that the researcher requires of a node, above the node's own minimum.
        precision: number format of arrays sent.
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
        return asdict(self)

    @classmethod
    def from_json(cls, message: dict[str, Any]) -> "Job":
        return cls(**{**message, "data": DataSpec(**message["data"])})
