"""The settings of the methods: one name, one type and one range each, wherever a setting appears.

A method's ``central`` declares what it uses by annotating its keyword arguments with these types. The same
annotations check a researcher's task, the command line's ``--set`` and the entry for the algorithm store.
"""

import inspect
import math
from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, create_model

from v6_federated import preprocess
from v6_federated.components import SolverName
from v6_federated.errors import SafeError

LARGE = 2**31 - 1
Settings = TypeVar("Settings", bound=BaseModel)


class Role(Enum):
    """What a setting is to a local step w <- w - rate (g + pull (w - w_0)), g the mean gradient of a minibatch: what a
    node must know to refuse steps that would single out rows."""

    BATCH = auto()  # the rows of a minibatch
    RATE = auto()
    ROW_RATE = auto()  # the rate of a step on one row, times the node's rows
    PULL = auto()
    OPTIMIZER = auto()
    OTHER = auto()  # makes no step longer


def _distinct(values: list[Any] | None) -> list[Any] | None:
    plain = all(isinstance(v, str | int) or (isinstance(v, float) and math.isfinite(v)) for v in values or [])
    if values is not None and (not plain or len(set(values)) < len(values)):
        raise ValueError("plain values are expected, each once")
    return values


def _share_or_number(value: float) -> float:
    if value > 1 and value != int(value):
        raise ValueError("a share up to 1 or a whole number is expected")
    return value


def _steps(values: list[Any]) -> list[Any]:
    for value in values:
        preprocess.parse(value)
    return values


Number = BeforeValidator(preprocess.no_truth)
Distinct = AfterValidator(_distinct)

Fraction = Annotated[
    float, Field(ge=0, le=1, description="C, the share of nodes asked in a round (0: one node)"), Number
]
Rounds = Annotated[int, Field(ge=1, le=LARGE, description="number of communication rounds"), Number]
Epochs = Annotated[
    int, Field(ge=1, le=LARGE, description="E, passes over a node's rows in a round"), Number, Role.OTHER
]
EpochsBefore = Annotated[int, Field(ge=0, le=LARGE, description="epochs of the rounds before"), Number, Role.OTHER]
Since = Annotated[int, Field(ge=0, le=LARGE, description="the last round whose passes are done"), Number, Role.OTHER]
BatchSize = Annotated[
    int | None,
    Field(ge=1, le=LARGE, description="B, rows of a minibatch (unset: all rows of the node)"),
    Number,
    Role.BATCH,
]
LearningRate = Annotated[
    float, Field(ge=0, allow_inf_nan=False, description="eta, the step of the local optimiser"), Number, Role.RATE
]
LrDecayRound = Annotated[
    float, Field(gt=0, le=1, description="factor on lr from each round to the next"), Number, Role.OTHER
]
LrDecayStep = Annotated[
    float, Field(ge=0, le=1, description="lambda of lr / (1 + lambda * local steps so far)"), Number, Role.OTHER
]  # not above 1: a rate that vanishes after the first row would send that row's gradient
OptimizerName = Annotated[
    Literal["sgd", "adam"], Field(description="local optimiser; Adam's moments start anew each round"), Role.OPTIMIZER
]
ProximalMu = Annotated[
    float, Field(ge=0, allow_inf_nan=False, description="mu of FedProx's term mu/2 |w - w_t|^2"), Number, Role.PULL
]

GlobalLr = Annotated[float, Field(ge=0, allow_inf_nan=False, description="eta_g, the server's step"), Number]
Stepsize = Annotated[
    float,
    Field(ge=0, allow_inf_nan=False, description="h of FSVRG; a node's step is h / n_k a row"),
    Number,
    Role.ROW_RATE,
]
Retrain = Annotated[
    Literal["above", "below"],
    Field(description="retrain while the loss is above (Huang) or below (poster) the median"),
    Role.OTHER,
]
Median = Annotated[
    float | None, Field(allow_inf_nan=False, description="of the nodes' losses in the round before"), Number, Role.OTHER
]
Epsilon = Annotated[
    float, Field(ge=0, allow_inf_nan=False, description="relative change up to which epochs double"), Number
]
LrCycle = Annotated[
    float,
    Field(gt=0, le=1, description="lambda: lr falls to this share of itself within a round"),
    Number,
    Role.OTHER,
]
MaximumEpochs = Annotated[
    int | None, Field(ge=1, le=LARGE, description="epochs that are not exceeded (unset: no limit)"), Number
]
Known = Annotated[
    dict[str, int], Field(description="the round in which each node kept its state, where it has one"), Role.OTHER
]
IsReference = Annotated[bool, Field(description="whether the weights are the new reference too"), Role.OTHER]
Protocol = Annotated[Literal["divergence", "svd", "loss"], Field(description="who communicates, and when")]
Delta = Annotated[
    float,
    Field(ge=0, allow_inf_nan=False, description="squared distance from the reference allowed"),
    Number,
    Role.OTHER,
]
LocalPasses = Annotated[
    int, Field(ge=1, le=LARGE, description="rho, passes over a node's rows in a round"), Number, Role.OTHER
]
AgeLower = Annotated[
    int | None,
    Field(
        ge=0, le=LARGE, description="b_l, age difference below which a node is overactive (unset: K // 6, at least 1)"
    ),
    Number,
]
AgeUpper = Annotated[
    int | None,
    Field(
        ge=1,
        le=LARGE,
        description="b_u, age difference above which a model is outdated (unset: K // 2 + 1, at least 10 and 2 b_l)",
    ),
    Number,
]
Components = Annotated[
    int | None, Field(ge=1, le=LARGE, description="k, principal components (unset: all; exact solver only)"), Number
]
Solver = Annotated[
    SolverName, Field(description="exact: one round for the covariance; subspace: none is formed; auto: by columns")
]
Scale = Annotated[bool, Field(description="divide columns by their deviation: components of the correlation matrix")]
Tolerance = Annotated[
    float, Field(ge=0, allow_inf_nan=False, description="relative change of variances at which subspace ends"), Number
]
Iterations = Annotated[int, Field(ge=1, le=LARGE, description="most rounds of the subspace solver"), Number]
Augmentation = Annotated[
    Literal["random", "doubling"], Field(description="nodes added to the violators: one at a time, or as many again")
]
TrainFrom = Annotated[
    Literal["own", "newest", "newest_pass"],
    Field(description="model that a due node trains: its own, the newest, the newest for this round alone"),
]

TreesModel = Annotated[Literal["trees"], Field(description="boosted trees, which this method makes")]
FullPrecision = Annotated[Literal["float32"], Field(description="number format of what is sent, here in full")]
TreesARound = Annotated[int, Field(ge=1, le=1000, description="trees that a node adds in its round (a class)"), Number]
MaxLeaves = Annotated[int, Field(ge=2, le=4096, description="leaves of a tree at most"), Number]
MinRowsLeaf = Annotated[
    int, Field(ge=1, le=LARGE, description="rows in a leaf at least; not below a node's minimum of rows"), Number
]
MaxDepth = Annotated[int | None, Field(ge=1, le=1000, description="splits above a leaf (unset: no limit)"), Number]
LambdaL2 = Annotated[
    float, Field(ge=0, allow_inf_nan=False, description="lambda of the penalty on a leaf's output"), Number
]
MaxBin = Annotated[int, Field(ge=4, le=255, description="bins of a column at most, agreed before training"), Number]
Objective = Annotated[
    Literal["classification", "regression"], Field(description="what the label is: a class, or a number to predict")
]
EarlyStopping = Annotated[
    int | None, Field(ge=1, le=LARGE, description="rounds without a smaller loss on held-out rows that end it"), Number
]


# a container begins sooner where the checks are made once they are needed
CHECKED = ConfigDict(extra="forbid", protected_namespaces=(), defer_build=True)


class Common(BaseModel):
    """Settings that every method takes: what to train, on which data, where, and how it is evaluated."""

    model_config = CHECKED

    model: Annotated[str | dict[str, Any], Field(description="name of a model, or its name and options")] = "logreg"
    seed: Annotated[int, Field(ge=0, le=LARGE, description="seed of every random choice"), Number] = 0
    organizations: Annotated[
        list[int] | None, Field(min_length=1, description="who trains (unset: all organizations)"), Distinct
    ] = None
    evaluators: Annotated[
        list[int] | None, Field(description="organizations that evaluate on all their rows and do not train"), Distinct
    ] = None
    label: Annotated[str | None, Field(description="the label's column (unset: the last)")] = None
    features: Annotated[
        list[str] | None, Field(min_length=1, description="the features' columns (unset: all others)"), Distinct
    ] = None
    classes: Annotated[
        list[Any] | None, Field(min_length=2, description="the label's values (unset: asked)"), Distinct
    ] = None
    preprocess: Annotated[
        list[str] | list[str | dict[str, Any]],
        Field(description="steps fitted in order before training: impute, onehot, clip, standardize, pca:K"),
        AfterValidator(_steps),
    ] = []
    holdout: Annotated[float, Field(ge=0, lt=1, description="share of a node's rows kept for evaluation"), Number] = 0.2
    evaluate_every: Annotated[
        int, Field(ge=1, le=LARGE, description="rounds from one evaluation to the next"), Number
    ] = 1
    target: Annotated[float | None, Field(gt=0, le=1, description="accuracy at which training stops"), Number] = None
    precision: Annotated[Literal["float32", "float16"], Field(description="number format of what is sent")] = "float32"
    deadline: Annotated[
        float | None,
        Field(gt=0, allow_inf_nan=False, description="seconds each request of a round may take (unset: no limit)"),
        Number,
    ] = None
    enough: Annotated[
        float,
        Field(gt=0, le=LARGE, description="answers that a round needs: a share of the nodes asked, or a number from 2"),
        Number,
        AfterValidator(_share_or_number),
    ] = 1.0
    retries: Annotated[int, Field(ge=0, le=100, description="times a node that broke down is asked again"), Number] = 1
    leave_out: Annotated[
        int, Field(ge=0, le=LARGE, description="rounds for which a node that failed is not asked"), Number
    ] = 0
    patience: Annotated[
        float, Field(ge=0, allow_inf_nan=False, description="seconds that an awaited node may be offline"),
        Number,
    ] = 600.0  # fmt: skip
    resume: Annotated[
        dict[str, Any] | None, Field(description="the result of an earlier job, to go on from its last round")
    ] = None
    minimum_rows: Annotated[
        int | None, Field(ge=1, le=LARGE, description="rows a node must have, above its own minimum"), Number
    ] = None


def changed(checked: BaseModel, names: Iterable[str]) -> list[str]:
    """Those of the settings ``names`` that are not the default."""
    fields = type(checked).model_fields
    return [name for name in names if getattr(checked, name) != fields[name].default]


def settings_of(central: Callable) -> type[Common]:
    """The settings of a method: ``Common`` and the annotated keyword arguments of its ``central``."""
    own = {k: p for k, p in inspect.signature(central, eval_str=True).parameters.items() if p.kind is p.KEYWORD_ONLY}
    if bare := [name for name, p in own.items() if p.annotation is p.empty]:
        raise TypeError(f"{central.__name__}: {', '.join(bare)} without a type; expected one of settings.py")
    fields: dict[str, Any] = {
        name: (p.annotation, ... if p.default is p.empty else p.default) for name, p in own.items()
    }
    return create_model("Settings", __base__=Common, **fields)


def settings_of_partial(partial: Callable) -> type[BaseModel]:
    """The keyword arguments of a partial function: a node checks them too, whoever sent them."""
    fields: dict[str, Any] = {
        name: (Any if p.annotation is p.empty else p.annotation, ... if p.default is p.empty else p.default)
        for name, p in inspect.signature(partial, eval_str=True).parameters.items()
        if p.kind is p.KEYWORD_ONLY
    }
    model = create_model("Arguments", __config__=CHECKED, **fields)
    roles = roles_of(model)
    if Role.BATCH in roles.values():
        for name in model.model_fields.keys() - roles.keys():
            raise TypeError(
                f"{partial.__name__}: nothing says what {name!r} is to a step on a minibatch; expected a type of "
                "settings.py, or another with a Role, as it is: not a union with more"
            )
    return model


def roles_of(model: type[BaseModel]) -> dict[str, Role]:
    """The role of each setting that has one."""
    fields = model.model_fields.items()
    return {name: part for name, field in fields for part in field.metadata if isinstance(part, Role)}


def with_role(checked: BaseModel, role: Role) -> list[Any]:
    """The values of the settings with a role."""
    return [getattr(checked, name) for name, its in roles_of(type(checked)).items() if its is role]


def validate(model: type[Settings], values: dict[str, Any]) -> Settings:
    """Check ``values``. Raises SafeError with one line that names the setting, its value and what is right."""
    try:
        return model(**values)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else "settings"
        raise SafeError(_explain(model, name, first)) from None


def _explain(model: type[BaseModel], name: str, error: Any) -> str:
    if error["type"] == "extra_forbidden":
        return f"unknown setting {name!r}; expected one of {', '.join(sorted(model.model_fields))}"
    if error["type"] == "missing":
        return f"the setting {name!r} is missing"
    field = model.model_fields[name]
    problem = error["msg"].removeprefix("Value error, ")
    problem = problem[0].lower() + problem[1:]
    default = "" if field.is_required() or field.default in (None, []) else f", for example {name}={field.default}"
    meaning = f"; {name} is {field.description}" if field.description else ""
    return f"{name}={error['input']!r} is refused: {problem}{meaning}{default}"
