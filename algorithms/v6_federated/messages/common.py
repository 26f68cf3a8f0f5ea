"""The settings that all methods share: the model, the data, the organizations, evaluation and missing answers."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, model_validator

from v6_federated.messages.relations import Excludes, Needs
from v6_federated.messages.settings import CHECKED, LARGE, Distinct, Number

Rounds = Annotated[int, Field(ge=1, le=LARGE, description="number of communication rounds"), Number]
Fraction = Annotated[
    float, Field(ge=0, le=1, description="C, the share of nodes asked in a round (0: one node)"), Number
]


def _names(value: Any) -> Any:
    if isinstance(value, str):
        raise ValueError(f"it must be a list of names, such as [{value!r}]")
    return value


Names = BeforeValidator(_names)
Holdout = Annotated[
    float, Field(ge=0, lt=1, description="share of a node's rows kept for evaluation", examples=[0.2]), Number
]
# what a setting declares by which the label is a number
NoClasses = Excludes("classes", "class_weights", "target", "subgroup", because="the label is then a number")
WithClip = Needs("clip", instead="set clip and epsilon, for example clip=1 epsilon=1")
HeldOut = Needs("holdout", "evaluators", because="models are evaluated on rows that are held out")


def _share_or_number(value: float | None) -> float | None:
    if value is not None and value > 1 and value != int(value):
        raise ValueError("it must be a share up to 1 or a whole number")
    return value


def _by_class(value: Any) -> Any:
    if isinstance(value, dict):
        if not all(type(weight) in (int, float) and 0 < weight <= 1e6 for weight in value.values()):
            raise ValueError("weights must be numbers above 0 and up to 1,000,000")
        return {str(named): weight for named, weight in value.items()}  # keys of JSON are texts
    if value not in (None, "balanced"):
        raise ValueError('it must be balanced, or weights by class, such as {"no": 1, "yes": 5}')
    return value


class Common(BaseModel):
    """The settings that all methods share; each field describes itself.

    Attributes:
        for_numbers: the setting with which the method predicts a number in place of a class; empty if it cannot.
        times_only: whether the method looks at times, events and groups only. Its label is then no label of a model.
        evaluates: whether models can be evaluated on rows that are held out.
        unused: settings that have no effect on the method, which refuses them, and why, as ``which trains no model``.
        same_when_resumed: the method's own settings on which the model of earlier rounds depends for good, so that a
            job that resumes an earlier one must have the same.
    """

    model_config = CHECKED
    for_numbers: ClassVar[str] = ""
    times_only: ClassVar[bool] = False
    evaluates: ClassVar[bool] = True
    unused: ClassVar[Mapping[str, str]] = {}
    same_when_resumed: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def predicts_numbers(cls, values: Mapping[str, Any]) -> bool:
        """Say whether a job predicts a number and no class, as with ``objective=regression``.

        Args:
            values: its settings; those that are missing have their defaults.
        """
        return values.get("objective") == "regression"

    @classmethod
    def measured_by(cls, values: Mapping[str, Any]) -> str:
        """Name the measure of how good a job's models are: ``accuracy``, or ``r2`` or ``c_index`` of numbers.

        Args:
            values: its settings; those that are missing have their defaults.
        """
        return "r2" if cls.predicts_numbers(values) else "accuracy"

    @property
    def regression(self) -> bool:
        """Whether the job predicts a number in place of a class."""
        return self.predicts_numbers(dict(self))

    @property
    def named_model(self) -> str | dict[str, Any]:
        """The model, as nodes are told its name and options."""
        return self.model

    model: Annotated[str | dict[str, Any], Field(description="name of a model, or its name and options")] = "logreg"
    start_from: Annotated[
        str | None,
        Field(min_length=1, description="file.npz of weights to start from, in the folder of the hospital of central"),
    ] = None
    seed: Annotated[int, Field(ge=0, le=LARGE, description="seed of every random choice"), Number] = 0
    organizations: Annotated[
        list[int] | None, Field(min_length=1, description="ids of the organizations that train (unset: all)"), Distinct
    ] = None
    evaluators: Annotated[
        list[int] | None,
        Field(description="ids of organizations that evaluate on all their rows and do not train"),
        Distinct,
        Excludes("clip", because="their answers would be single ones"),
    ] = None
    label: Annotated[str | None, Field(description="the label's column (unset: the last)")] = None
    features: Annotated[
        list[str] | None, Field(min_length=1, description="the features' columns (unset: all others)"), Distinct, Names
    ] = None
    exclude: Annotated[
        list[str] | None,
        Field(min_length=1, description="columns that are not features, if none are named"),
        Distinct,
        Names,
        Excludes("features", instead="remove those columns from features"),
    ] = None
    classes: Annotated[
        list[Any] | None, Field(min_length=2, description="the label's values (unset: the nodes name them)"), Distinct
    ] = None
    class_weights: Annotated[
        str | dict[str, float] | None,
        Field(description="factors on the training losses of classes, by class (1 for others), or balanced"),
        BeforeValidator(_by_class),
        Excludes(
            "clip",
            when="balanced",
            because="no noise covers the counts of classes",
            instead='give weights by class, for example class_weights={"no": 1, "yes": 5}',
        ),
    ] = None
    preprocess: Annotated[
        list[str] | list[str | dict[str, Any]],
        Field(description="steps fitted in order: missing_indicator, impute, onehot, clip, standardize, scale, pca:K"),
    ] = []
    subgroup: Annotated[
        str | None,
        Field(description="column by whose values the last evaluation counts rows, feature or not"),
        Excludes("clip", because="a budget covers counts of all rows"),
        HeldOut,
    ] = None
    holdout: Holdout = 0.2
    evaluate_every: Annotated[
        int, Field(ge=1, le=LARGE, description="rounds from one evaluation to the next"), Number
    ] = 1
    target: Annotated[
        float | None, Field(gt=0, le=1, description="accuracy at which training stops"), Number, HeldOut
    ] = None
    until_converged: Annotated[
        float | None,
        Field(gt=0, lt=1, description="ends training once so small a share of the model is left to change"),
        Number,
        Excludes("clip", because="noise keeps the model moving"),
    ] = None
    precision: Annotated[Literal["float32", "float16"], Field(description="number format of what is sent")] = "float32"
    aggregation: Annotated[
        Literal["auto", "plain", "masked", "pinned"],
        Field(description="plain: central sees single answers; else sums (auto: as nodes require)"),
    ] = "auto"
    round_timeout: Annotated[
        float | None,
        Field(
            gt=0,
            allow_inf_nan=False,
            description="seconds for each request of a round (unset: 3600; none on mock nodes)",
        ),
        Number,
    ] = None
    min_responses: Annotated[
        float | None,
        Field(
            gt=0,
            le=LARGE,
            description="answers that a round needs: a share of the nodes asked, or a number from 2 (unset: all; in a "
            "study 0.6 of the blocks)",
        ),
        Number,
        AfterValidator(_share_or_number),
    ] = None
    retries: Annotated[int, Field(ge=0, le=100, description="times a node that broke down is asked again"), Number] = 1
    cooldown_rounds: Annotated[
        int, Field(ge=0, le=LARGE, description="rounds for which a node that failed is not asked"), Number
    ] = 0
    offline_timeout: Annotated[
        float, Field(ge=0, allow_inf_nan=False, description="seconds to wait for a node that is offline"), Number
    ] = 600.0
    server_timeout: Annotated[
        float,
        Field(ge=1, allow_inf_nan=False, description="seconds to wait for a vantage6 server that does not answer"),
        Number,
    ] = 600.0
    maximum_share: Annotated[
        float,
        Field(gt=0, le=1, description="share of all training rows that one node may have; above it, the job ends"),
        Number,
    ] = 0.8
    maximum_norm_ratio: Annotated[
        float,
        Field(
            ge=1,
            allow_inf_nan=False,
            description="times the median norm that a node's update may reach; above it, the job ends",
        ),
        Number,
    ] = 10.0
    resume: Annotated[
        dict[str, Any] | None, Field(description="the result of an earlier job, to continue after its last round")
    ] = None
    minimum_rows: Annotated[
        int | None, Field(ge=1, le=LARGE, description="rows a node must have, above its own minimum"), Number
    ] = None


class Training(Common):
    """The settings of methods that train a model step by step, of classes or of numbers."""

    for_numbers: ClassVar[str] = "loss=squared"

    loss: Annotated[
        Literal["cross_entropy", "squared", "poisson", "cox"],
        Field(description="cross_entropy for classes, squared for numbers, poisson for counts, cox for times"),
        NoClasses,
        Excludes("clip", because="no noise covers the errors of numbers"),
    ] = "cross_entropy"
    event: Annotated[
        str | None,
        Field(description="column that is 1 if the label is the time of an event, 0 if of censoring (unset: all are)"),
        Needs(loss="cox"),
    ] = None

    @classmethod
    def predicts_numbers(cls, values: Mapping[str, Any]) -> bool:
        """Say whether the loss is one of numbers, counts or times.

        Args:
            values: its settings; those that are missing have their defaults.
        """
        return values.get("loss", "cross_entropy") != "cross_entropy" or super().predicts_numbers(values)

    @classmethod
    def measured_by(cls, values: Mapping[str, Any]) -> str:
        """Name the measure of how good a job's models are: of times, it is ``c_index``.

        Args:
            values: its settings; those that are missing have their defaults.
        """
        return "c_index" if values.get("loss") == "cox" else super().measured_by(values)

    @model_validator(mode="before")
    @classmethod
    def _numbers_have_a_linear_model(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("loss") in ("squared", "poisson", "cox") and "model" not in values:
            return {**values, "model": "linear"}
        return values


class WithNoise(Common):
    """The settings of methods to whose answers nodes can add noise: differential privacy."""

    clip: Annotated[
        float | None,
        Field(
            gt=0,
            allow_inf_nan=False,
            description="largest norm of what a row contributes to a sum with noise (unset: no noise)",
            examples=[1],
        ),
        Number,
        Needs("epsilon", "noise"),
    ] = None
    noise: Annotated[
        float | None,
        Field(gt=0, allow_inf_nan=False, description="standard deviation of a sum's noise over what a row can change"),
        Number,
        Needs("clip"),
        Excludes("epsilon", because="epsilon sets the noise"),
    ] = None
    epsilon: Annotated[
        float | None,
        Field(gt=0, allow_inf_nan=False, description="what the job may cost each node; sets the noise", examples=[1]),
        Number,
        Needs("clip"),
    ] = None
    delta: Annotated[float, Field(gt=0, lt=1, description="delta of epsilon, below 1 / rows"), Number, WithClip] = 1e-5


class EvaluatedWithNoise(WithNoise):
    """The same for methods whose models are evaluated."""

    evaluation_noise: Annotated[
        float | None,
        Field(gt=0, allow_inf_nan=False, description="as noise, of an evaluation's counts (unset: 0.9 of epsilon)"),
        Number,
        WithClip,
    ] = None


class TrainingWithNoise(Training, EvaluatedWithNoise):
    """The same for methods that train models step by step."""

    sampling: Annotated[
        float,
        Field(gt=0, le=1, description="probability of a row to take part in a step with noise (1: all rows)"),
        Number,
        WithClip,
    ] = 1.0
    steps_per_epoch: Annotated[
        int | None,
        Field(ge=1, le=LARGE, description="steps with noise of an epoch (unset: 1 / sampling; 1: FedSGD)"),
        Number,
        WithClip,
    ] = None


OF_NOISE = tuple(name for name in TrainingWithNoise.model_fields if name not in Training.model_fields)
