"""The job: what every task says about it."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from v6_federated.base.errors import SafeError
from v6_federated.messages.codec import DTYPES
from v6_federated.messages.organizations import NOT_LISTED, Organizations, named

MODES = ("plain", "masked", "pinned")  # of aggregation, from the loosest to the strictest
AGGREGATIONS = ("auto", *MODES)  # what a job may ask for
TOLD, HIDDEN = "told", "hidden"  # of hospital_totals, as the study of a job's nodes says
KEY = re.compile("[0-9a-f]{32}")  # of a job
# partial functions that every method has, those without a model only describe, fit_step and forget; none trains
SHARED_FUNCTIONS = ("describe", "confirm", "count_rows", "extract", "fit_step", "keep_steps", "evaluate", "forget")
# attributes of a DataSpec that name columns which are neither features nor the label
SPECIAL = ("offset", "weights", "event", "time")
# the same, and the column that groups rows
COLUMNS = ("subgroup", *SPECIAL)
# attributes of a DataSpec that are left out of messages if they say nothing
SELDOM = ("exclude", "missing", "levels", *COLUMNS)


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
        exclude: columns that are not features, until central names the features.
        missing: whether the model takes missing values as they are.
        subgroup: a column by whose levels the last evaluation, or a method for times, counts rows; None means none.
        levels: these levels; empty until the nodes have named them.
        offset: column of numbers that is added to the linear predictor. It is no feature.
        weights: column of numbers that weight the rows. It is no feature.
        event: column that is 1 in rows whose label is the time of an event, and 0 in censored ones. It is no feature.
        time: column of times, if there is no label: of the event, or of censoring. It is no feature.
    """

    label: str | None = None
    features: Sequence[str] | None = None
    classes: Sequence[Any] | None = None
    holdout: float = 0.2
    preprocess: Sequence[dict[str, Any]] = ()
    categories: Sequence[str] | None = None
    supervised: bool = True
    regression: bool = False
    exclude: Sequence[str] = ()
    missing: bool = False
    subgroup: str | None = None
    levels: Sequence[str] = ()
    offset: str | None = None
    weights: str | None = None
    event: str | None = None
    time: str | None = None

    @property
    def by_role(self) -> dict[str, str]:
        """The columns that are neither features nor the label, by the attribute that names them."""
        named = {name: getattr(self, name) for name in SPECIAL}
        return {name: column for name, column in named.items() if column}

    @property
    def special(self) -> list[str]:
        """The columns that are neither features nor the label."""
        return [*self.by_role.values()]

    def has_types(self) -> bool:
        """Whether every attribute has the type that central sends, and a value that it can have."""
        texts = [names for names in (self.features, self.categories, self.exclude, self.levels) if names is not None]
        columns = (self.label, *(getattr(self, name) for name in COLUMNS))
        return (
            all(isinstance(names, list | tuple) and all(isinstance(n, str) for n in names) for names in texts)
            and all(isinstance(name, str | None) for name in columns)
            and isinstance(self.classes, list | tuple | None)
            and all(isinstance(named, str | int | float) for named in self.classes or ())
            and type(self.holdout) in (int, float)
            and 0 <= self.holdout < 1
            and type(self.supervised) is bool
            and type(self.regression) is bool
            and type(self.missing) is bool
            and isinstance(self.preprocess, list | tuple)
            and all(isinstance(step, dict) and isinstance(step.get("step"), str) for step in self.preprocess)
            and all("fitted" in step or "kept" in step for step in self.preprocess)
        )


@dataclass(frozen=True)
class Job:
    """What every task says about its job.

    Attributes:
        method: name of the method.
        key: identifies the job's state at a node, 32 hexadecimal digits.
        seed: seed of every random choice in the job.
        participants: ids of the organizations that train, ascending.
        evaluators: ids of the organizations that only evaluate, ascending.
        rounds: number of rounds; None until it is known.
        model: name, options and sizes of the model; None until the nodes have described their data.
        data: which columns are used, and how.
        minimum_rows: rows that the researcher requires of a node, above the node's own minimum.
        precision: number format of the arrays that are sent.
        aggregation: what central sees of the nodes' answers: "plain", "masked" or "pinned"; "auto" until the nodes have
            said what they require.
        privacy: what the job asks of a node in all under noise, see ``noise.plan.Plan``; None without noise.
        hospital_totals: whether sums may tell totals of single hospitals, as the study of its nodes says; empty without
            one, and until the nodes have said it.
    """

    method: str
    key: str
    seed: int
    participants: Collection[int]
    evaluators: Collection[int]
    rounds: int | None
    model: dict[str, Any] | None
    data: DataSpec
    minimum_rows: int | None
    precision: str
    aggregation: str = "plain"
    privacy: dict[str, Any] | None = None
    hospital_totals: str = ""

    @property
    def hides_totals(self) -> bool:
        """Whether only sums over rows are answered, which tell nothing of single hospitals."""
        return self.hospital_totals == HIDDEN

    @property
    def counts_hospitals(self) -> bool:
        """Whether it is counted how many hospitals have rows of a group or level."""
        return not self.hides_totals

    @property
    def loss(self) -> str:
        """The name of the loss of a model of numbers; empty if the model has another one."""
        outcome = (self.model or {}).get("loss")
        return str(outcome.get("name", "")) if isinstance(outcome, dict) else ""

    def to_json(self) -> dict[str, Any]:
        """The job as JSON, without what most jobs do not say: it goes to every node in every round."""
        data = {name: value for name, value in vars(self.data).items() if name not in SELDOM or value}
        said = {name: value for name, value in vars(self).items() if name != "hospital_totals" or value}
        return {
            **said,
            "participants": named(self.participants),
            "evaluators": named(self.evaluators),
            "data": data,
        }

    @classmethod
    def from_json(cls, message: Any) -> "Job":
        """The job that a message describes; its values are not checked."""
        try:
            who = {name: Organizations(message[name]) for name in ("participants", "evaluators")}
            return cls(**{**message, **who, "data": DataSpec(**message["data"])})
        except (TypeError, KeyError):
            raise SafeError("the job lacks a part or has an unknown one; it must be as central sends it") from None

    def check(self, organization: int, round_: Any) -> None:
        """Check what a task says about its job: a task may contain anything."""
        if not KEY.fullmatch(str(self.key)) or not re.fullmatch("[a-z0-9_]{1,40}", str(self.method)):
            raise SafeError("the job has no proper key or method; it needs 32 hexadecimal digits and a method's name")
        participants, evaluators = (
            who if isinstance(who, Organizations) else Organizations([*who])
            for who in (self.participants, self.evaluators)
        )
        if not participants.isdisjoint(evaluators) or not (organization in participants or organization in evaluators):
            raise SafeError(NOT_LISTED)
        if type(round_) is not int or round_ < 0:
            raise SafeError("the round of the task is not a whole number from 0")
        whole = [self.seed, *(number for number in (self.rounds, self.minimum_rows) if number is not None)]
        if not (
            all(type(number) is int and number >= 0 for number in whole)
            and isinstance(self.model, dict | None)
            and isinstance(self.privacy, dict | None)
            and self.precision in [*DTYPES]
            and self.aggregation in AGGREGATIONS
            and self.hospital_totals in ("", TOLD, HIDDEN)
            and self.data.has_types()
        ):
            raise SafeError("a part of the job has the wrong type; it must be as central sends it")
        spec, classes = self.data, self.data.classes  # the limits on labels count them
        if classes is not None and (spec.regression or not spec.supervised or len({*map(str, classes)}) < len(classes)):
            raise SafeError("class lists are rejected for jobs without classes, and must name each class once")
        if len({*spec.levels}) < len(spec.levels):  # rows of a level that is named twice would count twice
            raise SafeError("the job names a level of the subgroup's column twice; it must name each once")
        if self.model is not None and self.model.get("classes") != (1 if spec.regression else len(classes or [])):
            raise SafeError("the job's model must have as many classes as the job names, or one if it is a regression")
