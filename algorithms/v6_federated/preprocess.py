"""Preprocessing as federated statistics: steps that are fitted in order before training, and applied at the nodes.

A step is a class: its fields are the options of a request, ``fit`` runs where central does and asks the nodes for
statistics of their training rows, ``apply`` is what nodes, and whoever predicts, do with what has been fitted. What is
fitted is JSON, part of ``job.data.preprocess``, of the result and of the exported model. No value of a row is sent: a
node answers means, sums of squares, counts rounded to a multiple of its minimum, levels that enough of its rows have,
and for PCA what ``components`` says.
"""

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pandas as pd
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from v6_federated import codec, components
from v6_federated.codec import Shape
from v6_federated.components import SolverName
from v6_federated.errors import SafeError
from v6_federated.guards import Policy
from v6_federated.state import State
from v6_federated.vantage import DataError

DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
KINDS = ("words", "mixed", "empty")  # of columns, beside those of numbers
LARGE = 100_000  # bytes of a fitted step from which on nodes keep it, and tasks name it only
BINS = 200  # of the histogram that a quantile is read from

# asks the nodes for a statistic of their training rows after the steps so far; answers by ascending id
Ask = Callable[..., Sequence[Any]]


# ---- features on their way through the steps


@dataclass(frozen=True)
class Features:
    """Features of n rows: numbers, words and missing values.

    Attributes:
        names: of the d columns; of arrays, which have none, their indices.
        X: (n, d), float64 of a table and as they are of arrays; NaN where missing, and throughout columns of words.
        words: (n,) of each column of words by its name, None where missing.
    """

    names: Sequence[str]
    X: np.ndarray
    words: Mapping[str, np.ndarray]

    def __len__(self) -> int:
        return len(self.X)

    def take(self, index: np.ndarray | slice) -> "Features":
        """Some of the rows."""
        return Features(self.names, self.X[index], {name: w[index] for name, w in self.words.items()})

    @property
    def numeric(self) -> list[str]:
        """The columns of numbers."""
        return [name for name in self.names if name not in self.words]

    def numbers(self, columns: Sequence[str] | None = None) -> np.ndarray:
        """X of columns of numbers (None: of all), float64."""
        wanted = self.numeric if columns is None else columns
        X = self.X if len(wanted) == len(self.names) else self.X[:, self.index(wanted)]
        return np.ascontiguousarray(X, dtype=np.float64)

    def with_numbers(self, columns: Sequence[str], X: np.ndarray) -> "Features":
        """The same with other numbers in some columns."""
        if len(columns) == len(self.names):
            return replace(self, X=X)
        whole = self.X.astype(np.float64)
        whole[:, self.index(columns)] = X
        return replace(self, X=whole)

    def index(self, columns: Sequence[str]) -> list[int]:
        """Where columns are. Raises SafeError for one that is not there."""
        at = {name: i for i, name in enumerate(self.names)}
        if absent := [c for c in columns if c not in at]:
            raise SafeError(f"no column {', '.join(absent)} among the features at this step; expected one that is")
        return [at[c] for c in columns]

    def check_complete(self, step: str = "training") -> None:
        """Raise DataError for columns with words, missing or infinite values; names the columns only."""
        if self.words:
            raise DataError(
                f"the column(s) {', '.join(self.words)} hold values that are not numbers; expected numbers at {step}, "
                "or a step onehot before it"
            )
        if bad := self._beyond(np.maximum, np.minimum):
            raise DataError(
                f"missing or infinite values in the column(s) {', '.join(bad)}; expected none at {step}, or a step "
                "impute before it that fills missing ones"
            )

    def check_finite(self) -> None:
        """Raise DataError for infinite values, which no step helps against; missing ones may stay."""
        if bad := self._beyond(np.fmax, np.fmin):
            raise DataError(f"infinite values in the column(s) {', '.join(bad)}; expected none")

    def _beyond(self, largest: np.ufunc, smallest: np.ufunc) -> list[str]:
        """The columns whose extremes are not finite in float32; found without a copy of X."""
        if not len(self):
            return []
        most = np.maximum(largest.reduce(self.X, axis=0), -smallest.reduce(self.X, axis=0))
        fine = most <= np.finfo(np.float32).max if largest is np.maximum else ~(most > np.finfo(np.float32).max)
        return [name for name, good in zip(self.names, fine, strict=True) if not good]


def read_features(table: pd.DataFrame, columns: Sequence[str], categories: Sequence[str] | None = None) -> Features:
    """Columns of a table: words where they are among the categories, numbers otherwise.

    Without categories (None: no steps follow) text is refused. With them, text that reads as a decimal number is that
    number, wherever it stands; in a column of words a number is named by its shortest text (1.0 and "01" are "1").
    Empty text is missing. Raises DataError for other values.
    """
    frame = table[list(columns)]
    named = set(categories or ())
    plain = _numeric(frame) - named
    if len(plain) == len(columns):
        X = np.ascontiguousarray(frame.to_numpy(dtype=np.float64, na_value=np.nan))
        return Features(list(columns), X, {})
    X, words, text = np.full((len(frame), len(columns)), np.nan), {}, []
    for i, name in enumerate(columns):
        if name in plain:
            X[:, i] = frame[name].to_numpy(dtype=np.float64, na_value=np.nan)
            continue
        numbers, said = _read_column(frame[name])
        if name in named:
            words[name] = _named(numbers, said)
        elif categories is None or any(word is not None for word in said):
            text.append(name)
        X[:, i] = np.nan if name in words else numbers
    if text:
        raise DataError(
            f"the column(s) {', '.join(text)} hold values that are not numbers; expected numbers, or a step onehot"
        )
    return Features(list(columns), X, words)


def kinds(table: pd.DataFrame, columns: Sequence[str]) -> dict[str, list[str]]:
    """The columns that hold words only, both words and numbers, or nothing; all others hold numbers."""
    found: dict[str, list[str]] = {kind: [] for kind in KINDS}
    frame = table[list(columns)]
    numeric = _numeric(frame)
    found["empty"] = [str(c) for c, empty in frame[[c for c in columns if c in numeric]].isna().all().items() if empty]
    for name in columns:
        if name in numeric:
            continue
        numbers, said = _read_column(table[name])
        some_numbers, some_words = not np.isnan(numbers).all(), any(word is not None for word in said)
        kind = {(False, True): "words", (True, True): "mixed", (False, False): "empty"}.get((some_numbers, some_words))
        if kind:
            found[kind].append(name)
    return found


def _numeric(frame: pd.DataFrame) -> set[str]:
    """The columns that pandas holds as numbers."""
    return {str(c) for c, dtype in frame.dtypes.items() if pd.api.types.is_numeric_dtype(dtype)}


def _read_column(column: pd.Series) -> tuple[np.ndarray, np.ndarray]:
    """A column's numbers (NaN where there is none) and words (None where there is none), (n,) each."""
    numbers, said = np.full(len(column), np.nan), np.full(len(column), None, dtype=object)
    for i, (value, missing) in enumerate(zip(column.astype(object), column.isna(), strict=True)):
        if missing:
            continue
        text = value.strip() if isinstance(value, str) else None
        if text is None and not isinstance(value, bool | int | float | np.number | np.bool_):
            raise DataError(f"the column {column.name} holds values that are neither numbers nor words; leave it out")
        if text is None or DECIMAL.fullmatch(text):
            numbers[i] = float(value if text is None else text)
        elif text:
            said[i] = text
    return numbers, said


def _named(numbers: np.ndarray, said: np.ndarray) -> np.ndarray:
    """Words, with numbers by their shortest text."""
    given = ~np.isnan(numbers)
    said[given] = [_shortest(v) for v in numbers[given]]
    return said


def _shortest(number: float) -> str:
    return str(int(number)) if float(number).is_integer() else repr(float(number))


# ---- steps


def _columns(value: Any) -> Any:
    return [c.strip() for c in value.split("|")] if isinstance(value, str) else value


def _truth(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("a number is expected, not true or false")
    return value


Columns = Annotated[list[str] | None, BeforeValidator(_columns), Field(min_length=1)]


class Step(BaseModel, ABC):
    """What every step has: options, ``fit`` and ``apply``.

    Attributes:
        main: the option that stands alone after the colon of ``NAME:VALUE``.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    main: ClassVar[str] = ""

    @abstractmethod
    def fit(self, layout: Features, ask: Ask) -> dict[str, Any]:
        """What is to be applied, as JSON. ``layout`` has the columns at this step and no rows."""

    @staticmethod
    @abstractmethod
    def apply(fitted: Mapping[str, Any], features: Features) -> Features:
        """The features after the step."""

    @property
    def name(self) -> str:
        """As a request has it."""
        return next(name for name, kind in STEPS.items() if kind is type(self))


class Standardize(Step):
    """Columns of numbers to mean 0 and deviation 1 over the rows of all nodes; a constant column to 0."""

    def fit(self, layout: Features, ask: Ask) -> dict[str, Any]:
        answers = ask("moments", precision="float32")
        n, mean, squares = components.pooled_moments(answers)
        scale = components.deviation(n, mean, squares)
        return codec.encode({**codec.two_parts("mean", mean), "scale": scale})

    @staticmethod
    def apply(fitted: Mapping[str, Any], features: Features) -> Features:
        arrays, columns = codec.decode(fitted), features.numeric
        X = features.X if not features.words else features.numbers()
        return features.with_numbers(columns, (X - codec.whole(arrays, "mean")) / arrays["scale"])


class Impute(Step):
    """Missing values: by the columns' mean, median or most frequent value over all nodes, or by a constant.

    Without ``columns``, mean and median fill the columns of numbers, most_frequent those of words, and a constant those
    that it fits. The median is read from a histogram, see ``quantiles``.
    """

    main: ClassVar[str] = "strategy"
    strategy: Literal["mean", "median", "most_frequent", "constant"] = "mean"
    value: float | str | None = None
    columns: Columns = None

    def model_post_init(self, _: Any) -> None:
        if (self.strategy == "constant") != (self.value is not None):
            raise ValueError("strategy constant, and no other, takes a value, for example impute:constant,value=0")

    def fit(self, layout: Features, ask: Ask) -> dict[str, Any]:
        of_words = self.strategy == "most_frequent" or isinstance(self.value, str)
        columns = self.columns or (list(layout.words) if of_words else layout.numeric)
        layout.index(columns)
        wrong = [c for c in columns if (c in layout.words) != of_words and self.strategy != "most_frequent"]
        if wrong:
            raise SafeError(
                f"impute cannot fill the column(s) {', '.join(wrong)} so; expected a word for columns of words (or "
                "strategy most_frequent), and a number, mean or median for columns of numbers"
            )
        if not columns:
            return {"values": {}}
        if self.strategy == "constant":
            return {"values": dict.fromkeys(columns, self.value)}
        if self.strategy == "most_frequent":
            counts = _pooled_levels(columns, ask("levels", columns=columns, counts=True))
            kind = {c: str if c in layout.words else float for c in columns}  # of equally frequent ones the smallest
            return {
                "values": {c: kind[c](max(sorted(counts[c], key=kind[c]), key=counts[c].__getitem__)) for c in columns}
            }
        n, mean, deviation = _pooled_present(columns, ask("present", columns=columns))
        filled = mean if self.strategy == "mean" else quantile(0.5, columns, n, mean, deviation, ask)
        return {"values": dict(zip(columns, filled.tolist(), strict=True))}

    @staticmethod
    def apply(fitted: Mapping[str, Any], features: Features) -> Features:
        X, words = features.X.astype(np.float64), dict(features.words)
        for i, (name, value) in zip(features.index(list(fitted["values"])), fitted["values"].items(), strict=True):
            if name in words:
                words[name] = np.where(pd.isna(words[name]), value, words[name])
            else:
                X[np.isnan(X[:, i]), i] = value
        return Features(features.names, X, words)


class OneHot(Step):
    """A column of words becomes a column of 0 and 1 for each level, named COLUMN=LEVEL, in the order of the levels.

    Levels are those that some node has in enough rows (its operator's minimum); a row with another level has 0 in all.
    Without ``columns``, all columns of words; a column that holds numbers too is taken only where it is named.
    """

    main: ClassVar[str] = "columns"
    columns: Columns = None

    def fit(self, layout: Features, ask: Ask) -> dict[str, Any]:
        columns = list(layout.words) if self.columns is None else self.columns
        layout.index(columns)
        if wrong := [c for c in columns if c not in layout.words]:
            raise SafeError(f"onehot cannot take the column(s) {', '.join(wrong)} twice, or after another step")
        if not columns:
            return {"levels": {}}
        counts = _pooled_levels(columns, ask("levels", columns=columns, counts=False))
        return {"levels": {c: list(counts[c]) for c in columns}}

    @staticmethod
    def apply(fitted: Mapping[str, Any], features: Features) -> Features:
        levels = fitted["levels"]
        features.index(list(levels))
        missing = [c for c in levels if pd.isna(features.words[c]).any()]
        if missing:
            raise DataError(
                f"missing values in the column(s) {', '.join(missing)}; expected none at onehot, or a step "
                "impute:most_frequent or impute:constant before it"
            )
        names: list[str] = []
        parts: list[np.ndarray] = []
        for i, name in enumerate(features.names):
            if name in levels:
                names += [f"{name}={level}" for level in levels[name]]
                parts += [features.words[name] == level for level in levels[name]]
            else:
                names.append(name)
                parts.append(features.X[:, i])
        X = np.empty((len(features), len(parts)))
        for i, part in enumerate(parts):
            X[:, i] = part
        return Features(names, X, {c: w for c, w in features.words.items() if c not in levels})


class Clip(Step):
    """Columns of numbers to bounds: given ones, or the quantiles q and 1 - q over all nodes, see ``quantile``."""

    main: ClassVar[str] = "quantile"
    quantile: Annotated[float | None, Field(ge=0.001, lt=0.5), BeforeValidator(_truth)] = None
    lower: Annotated[float | None, Field(allow_inf_nan=False)] = None
    upper: Annotated[float | None, Field(allow_inf_nan=False)] = None
    columns: Columns = None

    def model_post_init(self, _: Any) -> None:
        if (self.quantile is None) == (self.lower is None and self.upper is None):
            raise ValueError("clip takes a quantile, or bounds, for example clip:0.01 or clip:lower=0,upper=100")
        if self.lower is not None and self.upper is not None and self.lower > self.upper:
            raise ValueError("clip's lower bound is above the upper one")

    def fit(self, layout: Features, ask: Ask) -> dict[str, Any]:
        columns = layout.numeric if self.columns is None else self.columns
        layout.index(columns)
        if wrong := [c for c in columns if c in layout.words]:
            raise SafeError(f"clip cannot take the column(s) {', '.join(wrong)}: they hold words; expected numbers")
        if self.quantile is None or not columns:
            return {"bounds": {c: [self.lower, self.upper] for c in columns}}
        n, mean, deviation = _pooled_present(columns, ask("present", columns=columns))
        lower, upper = (quantile(q, columns, n, mean, deviation, ask) for q in (self.quantile, 1 - self.quantile))
        return {"bounds": {c: [a, b] for c, a, b in zip(columns, lower.tolist(), upper.tolist(), strict=True)}}

    @staticmethod
    def apply(fitted: Mapping[str, Any], features: Features) -> Features:
        X = features.X.astype(np.float64)
        for i, (lower, upper) in zip(features.index(list(fitted["bounds"])), fitted["bounds"].values(), strict=True):
            if lower is not None or upper is not None:
                X[:, i] = np.clip(X[:, i], lower, upper)
        return replace(features, X=X)


class PCA(Step):
    """The first principal components, pc1, pc2, ..., of all columns over the rows of all nodes; see ``components``."""

    main: ClassVar[str] = "components"
    components: Annotated[int, Field(ge=1), BeforeValidator(_truth)]
    solver: SolverName = "auto"
    scale: bool = False

    def fit(self, layout: Features, ask: Ask) -> dict[str, Any]:
        layout.check_complete("pca")
        found = components.fit(ask, len(layout.names), self.components, self.solver, self.scale)
        return codec.encode({**found.arrays(), **codec.two_parts("mean", found.mean)})

    @staticmethod
    def apply(fitted: Mapping[str, Any], features: Features) -> Features:
        features.check_complete("pca")
        arrays = codec.decode(fitted)
        mean = codec.whole(arrays, "mean")
        Z = components.project(features.X, mean, arrays["scale"], arrays["components"])
        return Features([f"pc{i + 1}" for i in range(Z.shape[1])], Z, {})


STEPS: dict[str, type[Step]] = {
    "impute": Impute, "onehot": OneHot, "clip": Clip, "standardize": Standardize, "pca": PCA
}  # fmt: skip


def parse(step: str | Mapping[str, Any]) -> Step:
    """A step from ``"standardize"``, ``"pca:20"``, ``"impute:median,columns=age|weight"``, ``{"step": "pca", ...}`` or
    the same as JSON text. Raises SafeError."""
    if isinstance(step, str) and step.lstrip().startswith("{"):
        try:
            step = json.loads(step)
        except ValueError:
            raise SafeError(f'the step {step!r} is not JSON; expected for example {{"step": "standardize"}}') from None
    if isinstance(step, str):
        name, _, rest = step.partition(":")
        options: dict[str, Any] = {}
        for i, text in enumerate(filter(None, rest.split(","))):
            key, equals, value = text.partition("=")
            main = STEPS[name].main if name in STEPS else ""
            if not equals and (i or not main):
                raise SafeError(
                    f"the step {step!r} is not understood at {text!r}; expected NAME, NAME:VALUE or KEY=VALUE"
                )
            key, value = (key, value) if equals else (main, text)
            if key in options:
                raise SafeError(f"the step {step!r} gives {key} twice; expected once")
            options[key] = value
        filled = options.get("value")
        if isinstance(filled, str) and DECIMAL.fullmatch(filled):
            options["value"] = float(filled)
    else:
        options = dict(step)
        name = str(options.pop("step", None))
    if name not in STEPS:
        raise SafeError(f"unknown step {name!r}; expected one of {', '.join(STEPS)}")
    try:
        return STEPS[name](**options)
    except ValidationError as error:
        first = error.errors()[0]
        where = f"{first['loc'][0]}: " if first["loc"] else ""
        raise SafeError(f"the step {name} is refused: {where}{first['msg'].removeprefix('Value error, ')}") from None


def large(steps: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The fitted steps that go to a node once, for it to keep."""
    return [step for step in steps if codec.size(step) >= LARGE]


def reference(step: Mapping[str, Any]) -> dict[str, Any]:
    """What stands for a fitted step that the nodes keep: its name and its digest."""
    digest = hashlib.sha256(json.dumps(step, sort_keys=True).encode()).hexdigest()
    return {"step": step["step"], "kept": digest}


def keep(steps: Sequence[Mapping[str, Any]], state: State) -> None:
    """Keep fitted steps at a node for the rounds to come."""
    for step in steps:
        text = np.frombuffer(json.dumps(step).encode(), dtype=np.uint8)
        state.part(f"step-{reference(step)['kept']}").save({"step": text})


def kept(steps: Sequence[dict[str, Any]], state: State) -> Sequence[dict[str, Any]]:
    """The steps with those that the node keeps in full. Raises SafeError for one that is gone."""
    whole = []
    for step in steps:
        if "kept" in step:
            if not re.fullmatch("[0-9a-f]{64}", str(step["kept"])):
                raise SafeError("a step that is said to be kept has no proper digest; expected 64 hexadecimal digits")
            found = state.part(f"step-{step['kept']}").load(0)
            if found is None:
                raise SafeError(f"the fitted step {step['step']} is gone from the job's folder; run the job again")
            step = json.loads(bytes(found["step"]))
        whole.append(step)
    return whole


def layout(names: Sequence[str], categories: Sequence[str]) -> Features:
    """Columns without rows: what central knows of the features on their way through the steps."""
    return Features(list(names), np.empty((0, len(names))), {c: np.empty(0, dtype=object) for c in categories})


def categories(steps: Sequence[Step], told: Mapping[int, Mapping[str, Sequence[str]]], columns: Sequence[str]) -> list:
    """The columns of words, from what each organization tells by ``kinds``. Raises SafeError that names columns."""
    named = {c for step in steps if isinstance(step, OneHot) for c in step.columns or ()}
    every = any(isinstance(step, OneHot) and step.columns is None for step in steps)
    for organization, found in sorted(told.items()):
        if wrong := [c for c in found["mixed"] if c not in named]:
            raise SafeError(
                f"organization {organization}: the column(s) {', '.join(wrong)} hold both numbers and words; expected "
                f"numbers, or a step onehot that names them (onehot:{'|'.join(wrong)})"
            )
        if not every and (wrong := [c for c in found["words"] if c not in named]):
            raise SafeError(
                f"organization {organization}: the column(s) {', '.join(wrong)} hold values that are not numbers; "
                "expected numbers, or a step onehot"
            )
    words = {c for found in told.values() for c in found["words"]}
    for organization, found in sorted(told.items()):
        if wrong := sorted(words - named - {c for kind in found.values() for c in kind}):
            raise SafeError(
                f"organization {organization}: the column(s) {', '.join(wrong)} hold numbers, elsewhere words; "
                f"expected one kind, or a step onehot that names them (onehot:{'|'.join(wrong)})"
            )
    return [c for c in columns if c in named | words]


def apply(features: Features, steps: Sequence[Mapping[str, Any]]) -> Features:
    """The features after fitted steps, each ``{"step": NAME, "fitted": ...}``. Raises SafeError for an unknown one."""
    for step in steps:
        if step.get("step") not in STEPS:
            raise SafeError(f"unknown step {step.get('step')!r}; expected one of {', '.join(STEPS)}")
        features = STEPS[step["step"]].apply(step["fitted"], features)
    return features


# ---- statistics: what nodes answer, and what central makes of them


def statistic(
    name: str,
    features: Features,
    policy: Policy,
    columns: Sequence[str],
    counts: bool,
    arrays: Mapping[str, np.ndarray],
) -> dict[str, Any]:
    """A statistic of a node's training rows, after the steps so far. Refused where it would describe too few rows."""
    if name == "levels":
        return {"levels": {c: _levels(c, features, policy, counts) for c in columns}}
    if name == "present":
        return _present(features, policy, columns)
    if name == "below":
        return {"below": _below(features, policy, columns, arrays["lower"], arrays["upper"])}
    if name == "moments":  # of the columns of numbers, which must be complete
        numbers = Features(features.numeric, features.numbers(), {})
        numbers.check_complete("standardize or pca")
        return components.moments(numbers.X)
    features.check_complete("pca")
    mean, scale = arrays["mean"], arrays["scale"]
    if name == "covariance":
        return {"covariance": components.covariance(features.X, mean, scale)}
    return {"product": components.product(features.X, mean, scale, arrays["block"])}


def shapes(
    statistic: str,
    d: int,
    columns: Sequence[str] = (),
    counts: bool = False,
    draw: int | None = None,
    block: Mapping[str, Any] | None = None,
) -> dict[str, Shape]:
    """The arrays that a statistic of d columns of numbers answers, by name; the rest is as it is asked for."""
    c, wide = len(columns), draw if block is None else block["shapes"]["Q"][1]
    of: dict[str, dict[str, Shape]] = {
        "levels": {},
        "present": {"count": (c,), "mean": (c,), "squares": (c,)},
        "below": {"below": (c, BINS + 1)},
        "moments": {"mean": (d,), "mean_rest": (d,), "squares": (d,)},
        "covariance": {"covariance": (d * (d + 1) // 2,)},
        "product": {"product": (d, wide)},
    }
    return of[statistic]


def _levels(column: str, features: Features, policy: Policy, counts: bool) -> dict[str, int]:
    """The levels that enough rows have, with their counts where they are asked for, else 1."""
    if column in features.words:
        said = features.words[column]
        values = said[~pd.isna(said)].astype(str)
    else:
        values = np.asarray([_shortest(v) for v in features.numbers([column])[:, 0] if not np.isnan(v)], dtype=str)
    found, rows = np.unique(values, return_counts=True)
    policy.check_classes(len(found), f"the column {column}")
    named = rows >= policy.minimum_rows_a_class
    return {str(v): int(c) if counts else 1 for v, c in zip(found[named], rows[named], strict=True)}


def _pooled_levels(columns: Sequence[str], answers: Sequence[Any]) -> dict[str, dict[str, int]]:
    """Of each column its levels, sorted, with their counts over all nodes."""
    pooled: dict[str, dict[str, int]] = {c: {} for c in columns}
    for a in answers:
        for c in columns:
            for level, count in a.values["levels"][c].items():
                pooled[c][level] = pooled[c].get(level, 0) + count
    if empty := [c for c in columns if not pooled[c]]:
        raise SafeError(
            f"no node has enough rows with one value of the column(s) {', '.join(empty)} to name it; expected "
            "categories, or leave them out"
        )
    return {c: dict(sorted(levels.items())) for c, levels in pooled.items()}


def _present(features: Features, policy: Policy, columns: Sequence[str]) -> dict[str, Any]:
    """Number, mean and sum of squares about it of the values that are not missing, (columns,) each."""
    X = features.numbers(columns)
    given = ~np.isnan(X)
    count = given.sum(axis=0)
    policy.check_values([c for c, n in zip(columns, count, strict=True) if 0 < n < policy.minimum_rows])
    mean = np.where(given, X, 0).sum(axis=0) / np.maximum(count, 1)
    squares = np.square(np.where(given, X - mean, 0)).sum(axis=0)
    return {"count": count, "mean": mean, "squares": squares}


def _pooled_present(columns: Sequence[str], answers: Sequence[Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Number of values, mean and deviation of each column over all nodes."""
    n = np.asarray(sum(a["count"] for a in answers))
    if empty := [c for c, count in zip(columns, n, strict=True) if count == 0]:
        raise SafeError(f"no node has a value in the column(s) {', '.join(empty)}; expected some, or leave them out")
    mean = np.asarray(sum(a["count"] * a["mean"] for a in answers)) / n
    squares = sum(a["squares"] + a["count"] * np.square(a["mean"] - mean) for a in answers)
    return n, mean, np.sqrt(squares / n)


def quantile(
    q: float, columns: Sequence[str], n: np.ndarray, mean: np.ndarray, deviation: np.ndarray, ask: Ask
) -> np.ndarray:
    """The quantile q of each column over all nodes, (columns,), from one histogram of ``BINS`` bins.

    A quantile lies between mean - deviation sqrt((1-q)/q) and mean + deviation sqrt(q/(1-q)) (Cantelli), so the edges
    are agreed without anybody's smallest or largest value; a median is found within a hundredth of a deviation, and
    the roundings of the nodes' counts.
    """
    lower, upper = mean - deviation * np.sqrt((1 - q) / q), mean + deviation * np.sqrt(q / (1 - q))
    answers = ask("below", columns=columns, lower=lower, upper=upper)
    below = np.asarray(sum(a["below"] for a in answers))
    edges = np.linspace(lower, upper, BINS + 1, axis=1)
    return np.asarray([np.interp(q * n[i], below[i], edges[i]) for i in range(len(columns))])


def _below(
    features: Features, policy: Policy, columns: Sequence[str], lower: np.ndarray, upper: np.ndarray
) -> np.ndarray:
    """Values up to each edge, (columns, BINS + 1), rounded to a multiple of the rows that a class must have."""
    X, edges, m = features.numbers(columns), np.linspace(lower, upper, BINS + 1, axis=1), policy.minimum_rows_a_class
    counts = np.empty(edges.shape)
    for i in range(len(columns)):
        values = np.sort(X[~np.isnan(X[:, i]), i])
        policy.check_values([columns[i]] if 0 < len(values) < policy.minimum_rows else [])
        counts[i] = np.searchsorted(values, edges[i], side="right")
    return m * np.round(counts / m)
