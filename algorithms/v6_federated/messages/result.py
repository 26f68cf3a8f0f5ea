"""What a result holds. Whoever reads one that may have been changed checks it by this description."""

from dataclasses import fields
from typing import Annotated, Any, Literal, get_type_hints

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, create_model, model_validator

from v6_federated.base.errors import SafeError
from v6_federated.messages import codec
from v6_federated.messages.job import SELDOM, DataSpec
from v6_federated.messages.settings import LARGE, problem_of

MOST_ROWS = 2**53  # JSON and float64 hold whole numbers up to here exactly
Count = Annotated[int, Field(ge=0, le=MOST_ROWS)]
Share = Annotated[float, Field(ge=0, le=1)]
Noisy = Annotated[float, Field(ge=-(2**53), le=2**53)]  # a count with noise
Error = Annotated[float, Field(ge=0, allow_inf_nan=False)]
MOST_CROSSED = 1000  # classes whose rows an evaluation counts by true and predicted class
MOST_NOISE = 0.05  # of an area under the curve: with more it says nothing


def confusion_shape(classes: int) -> tuple[int, int]:
    """Return the shape of an evaluation's ``confusion``.

    Returns:
        (c, c): true class by predicted class. Of more than ``MOST_CROSSED`` classes, such as the words of a language,
        (1, 2): the rows whose class is predicted, and all others.
    """
    return (classes, classes) if classes <= MOST_CROSSED else (1, 2)


def crossed(subgroup: str | None) -> str:
    """Return why a subgroup's rows are not counted by class."""
    return f"subgroup={subgroup} cannot be used with more than {MOST_CROSSED} classes; leave it out"


class _Part(BaseModel):
    """A part of a result, which may hold more than is named here."""

    model_config = ConfigDict(extra="allow", strict=True, protected_namespaces=(), defer_build=True)


class Traffic(_Part):
    """Bytes of encoded payloads, to all nodes and from them."""

    bytes_up: int
    bytes_down: int


class Absence(_Part):
    """An organization without a usable answer, and why."""

    organization_id: int
    reason: str


class Round(Traffic):
    """A row of the history; further columns are the method's own. Measures are None where nothing was evaluated."""

    round: int
    participants: list[int]
    n: int
    train_loss: float | None
    loss: float | None
    accuracy: float | None
    auc: float | None
    r2: float | None = None
    rmse: Error | None = None
    mae: Error | None = None
    c_index: Share | None = None
    change: float | None = None
    evaluated: int | None
    seconds: float
    uploads: int = 0
    missing: list[Absence] = []
    unevaluated: list[Absence] = []


class NodeRow(_Part):
    """A row of ``per_node``; further columns are what the method's nodes answer."""

    round: int
    organization_id: int


class Final(_Part):
    """The last evaluation, or what else a method says about its end."""

    evaluated: Count | None = None
    accuracy: Share | None = None
    accuracy_error: Error | None = None
    auc: Share | None = None
    auc_error: Error | None = None
    auc_variance: Error | None = None
    r2: float | None = None
    rmse: Error | None = None
    mae: Error | None = None
    c_index: Share | None = None
    c_index_error: Error | None = None
    confusion: list[list[Count]] | list[list[Noisy]] | None = None


class ModelSpec(_Part):
    """Name, options and sizes of the model."""

    name: str
    features: Annotated[int, Field(ge=0, le=LARGE)]
    classes: Annotated[int, Field(ge=1, le=LARGE)] | None = None


class UsedSettings(_Part):
    """The job's settings, of which every method has these."""

    seed: int
    preprocess: list[str | dict[str, Any]] = []


class Seen(_Part):
    """What central saw of the nodes' answers."""

    aggregation: Literal["plain", "masked", "pinned"] = "plain"
    hospital_totals: Literal["told", "hidden"] | None = None


class Phases(_Part):
    """Bytes of what belongs to no round."""

    preparation: Traffic
    evaluation: Traffic


class Importance(_Part):
    """How often trees split a column, and the total gain of these splits."""

    feature: str
    splits: Count
    gain: Error


class Limits(_Part):
    """Limits in force at some nodes."""

    organizations: list[int]
    limits: dict[str, Any]


class Image(_Part):
    """The image that ran, and its digest if it is known."""

    name: str
    digest: str = ""


class Origin(_Part):
    """The experiment on mock nodes, or the server and task, that the result is from."""

    data: str = ""
    partition: str = ""
    partition_seed: int = 0
    nodes: list[str] = []
    rows: list[int] = []
    speeds: float | None = None
    trained: str = "federated"
    organizations: dict[Annotated[str, Field(pattern="^[0-9]{1,15}$")], str] = {}
    limits: list[Limits] = []

    @model_validator(mode="after")
    def _whole(self) -> "Origin":
        if "data" in self.model_fields_set and not {"partition", "partition_seed", "nodes", "rows"} <= {
            *self.model_fields_set
        }:
            raise ValueError("it lacks the partition, its seed, the nodes or their rows")
        return self


_types = get_type_hints(DataSpec)
DataForm: Any = create_model(
    "DataForm",
    __config__=ConfigDict(extra="forbid", strict=True),
    **{part.name: (_types[part.name], part.default if part.name in SELDOM else ...) for part in fields(DataSpec)},  # type: ignore[call-overload]  # mypy cannot see the fields of **
)


def _decoded(payload: dict[str, Any]) -> dict[str, Any]:
    codec.decode(payload)
    return payload


class ResultForm(_Part):
    """A result, as docs/reference/result.md describes it."""

    method: str
    settings: UsedSettings
    organizations: list[int]
    weights: Annotated[dict[str, Any], AfterValidator(_decoded)]
    state: dict[str, Any]
    model: ModelSpec
    data: DataForm
    undescribed: list[Absence]
    history: list[Round] = Field(min_length=1)
    per_node: list[NodeRow]
    traffic: Phases
    final: Final | None
    feature_importance: list[Importance] = []
    stopped: str = ""
    resumable: bool = True
    converged_in: Annotated[int, Field(ge=1)] | None = None
    started: str = ""
    ended: str = ""
    image: Image | None = None
    experiment: Origin = Origin()
    privacy: Seen | None = None

    @model_validator(mode="after")
    def _fits(self) -> "ResultForm":
        if [row.round for row in self.history] != list(range(1, len(self.history) + 1)):
            raise ValueError("history: its rounds are not 1, 2, ...")
        if self.data.supervised and (self.data.classes is None) != self.data.regression:
            raise ValueError("data: its classes and regression contradict each other")
        if any(not isinstance(value, str | int | float) for value in self.data.classes or ()):
            raise ValueError("data: its classes are not texts or numbers")
        if any(not isinstance(step.get("step"), str) or "fitted" not in step for step in self.data.preprocess):
            raise ValueError("data: a step of preprocess is not a fitted one")
        counts = (self.final.confusion if self.final else None) or []
        rows, columns = confusion_shape(len(self.data.classes or ()))
        if counts and (len(counts) != rows or {len(row) for row in counts} != {columns}):
            raise ValueError("final: its confusion does not fit the classes of data")
        return self


def check(found: Any) -> None:
    """Check that something has the form of a result."""
    try:
        ResultForm.model_validate(found)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        raise SafeError(": ".join(filter(None, [".".join(map(str, first["loc"])), problem_of(first)]))) from None
