"""Preprocessing steps, which are fitted to the rows of all nodes before training, in order.

A step is a class. Its fields are the options of a request. ``fit`` runs in the central function and asks the nodes for
statistics of their training rows (``data.statistics``). ``apply`` runs at the nodes, and wherever predictions are made.
What is fitted is JSON, part of ``job.data.preprocess``, of the result and of the exported model.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pandas as pd
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from v6_federated.base.arrays import Array
from v6_federated.base.errors import SafeError
from v6_federated.data import pca
from v6_federated.data.columns import Features, UnfitColumns
from v6_federated.data.pca import SolverName
from v6_federated.data.quantiles import Ask, quantile
from v6_federated.data.reading import shortest
from v6_federated.data.statistics import Covariance, Levels, Moments, Present
from v6_federated.data.step_columns import are_levels, by_column, component, level, marked, missing
from v6_federated.messages import codec
from v6_federated.messages.settings import no_truth

MOST = 1e100  # the largest number that a fitted step may name; a table's end at 3.4e38
LEAST_LOADING = 2.0**-100  # of a column on a component; a smaller one counts as 0
WITHOUT_ROWS = ("onehot", "scale")  # steps that can follow from what operators have declared
LARGE = 100_000  # bytes of a fitted step from which on nodes keep it, and tasks only name it


def _columns(value: Any) -> Any:
    columns = [c.strip() for c in value.split("|")] if isinstance(value, str) else value
    if isinstance(columns, list) and len(set(map(str, columns))) < len(columns):
        raise ValueError("a column is named twice; name each once")
    return columns


def _check_numbers(*values: float | str | None) -> None:
    if any(isinstance(value, float) and not abs(value) <= MOST for value in values):
        raise ValueError(f"a number is out of range; expected numbers from {-MOST:g} to {MOST:g}")


Columns = Annotated[list[str] | None, BeforeValidator(_columns), Field(min_length=1)]


class Step(BaseModel, ABC):
    """A preprocessing step.

    Attributes:
        main: the option that ``NAME:VALUE`` sets.
        example: a step as a request names it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)
    main: ClassVar[str] = ""
    example: ClassVar[str]

    @abstractmethod
    def fit(self, layout: Features, ask: Ask) -> dict[str, Any]:
        """Fit the step to the rows of all nodes.

        Args:
            layout: the columns at this step, without rows.
            ask: asks the nodes for a statistic of their training rows.

        Returns:
            What is to be applied, as JSON.

        Raises:
            SafeError: the step does not fit the columns.
        """

    @staticmethod
    @abstractmethod
    def apply(fitted: Mapping[str, Any], features: Features) -> Features:
        """Apply the fitted step.

        Args:
            fitted: what ``fit`` returned; anything if a task is malicious.
            features: the features before the step.

        Returns:
            The features after it.

        Raises:
            SafeError: what is fitted is malformed, or does not fit the columns.
            UnfitColumns: values are missing.
        """

    @property
    def name(self) -> str:
        """The step's name in a request."""
        return next(name for name, kind in STEPS.items() if kind is type(self))


class Standardize(Step):
    """Scale columns of numbers to mean 0 and standard deviation 1 over the rows of all nodes; constant ones to 0."""

    example: ClassVar[str] = "standardize"

    def fit(self, layout: Features, ask: Ask) -> dict[str, Any]:
        """Fit mean and scale (d,)."""
        moments = Moments.pool(ask("moments", precision="float32"))
        return codec.encode({**codec.two_parts("mean", moments.mean), "scale": moments.scale()})

    @staticmethod
    def apply(fitted: Mapping[str, Any], features: Features) -> Features:
        """Scale the columns."""
        columns = features.numeric
        d = (len(columns),)
        arrays = codec.decode(fitted, {"mean": d, "mean_rest": d, "scale": d})
        X = features.X if not features.words else features.numbers()
        return features.with_numbers(columns, (X - codec.whole(arrays, "mean")) / arrays["scale"])


class Scale(Step):
    """Scale columns of numbers from the bounds that operators have declared to -1 ... 1. No row is read for it."""

    example: ClassVar[str] = "scale"

    def fit(self, layout: Features, ask: Ask) -> dict[str, Any]:
        """Fit the middle and half the width of the bounds, as mean and scale (d,)."""
        [declared] = ask("bounds", columns=layout.numeric)
        lower, upper = declared["lower"], declared["upper"]
        half = (upper - lower) / 2
        scale = np.where(half > 0, half, 1.0)
        return codec.encode({**codec.two_parts("mean", lower + half), "scale": scale})

    @staticmethod
    def apply(fitted: Mapping[str, Any], features: Features) -> Features:
        """Scale the columns."""
        return Standardize.apply(fitted, features)


class Impute(Step):
    """Fill missing values by the column's mean, median or most frequent value over all nodes, or by a constant.

    Without ``columns``, mean and median fill columns of numbers, most_frequent fills columns of words, and a constant
    fills those of its kind. The median is read from histograms, see ``quantiles.quantile``.
    """

    main: ClassVar[str] = "strategy"
    example: ClassVar[str] = "impute:median"
    strategy: Literal["mean", "median", "most_frequent", "constant"] = "mean"
    value: float | str | None = None
    columns: Columns = None

    def model_post_init(self, _: Any) -> None:
        """Check that the options fit each other."""
        if (self.strategy == "constant") != (self.value is not None):
            raise ValueError("strategy constant needs a value, for example impute:constant,value=0; others take none")
        _check_numbers(self.value)

    @property
    def _of_words(self) -> bool:
        return self.strategy == "most_frequent" or isinstance(self.value, str)

    def fills(self, column: str, words: bool) -> bool:
        """Say whether the step fills missing values of a column.

        Args:
            column: its name.
            words: whether the nodes read it as words.

        Returns:
            Whether it does.
        """
        return self._of_words == words if self.columns is None else column in self.columns

    def fit(self, layout: Features, ask: Ask) -> dict[str, Any]:
        """Fit the values, by column."""
        of_words = self._of_words
        columns = self.columns or (list(layout.words) if of_words else layout.numeric)
        layout.index(columns)
        if self.strategy == "constant":  # in a column of words, codes of categories are words: 0 is "0"
            code = shortest(self.value) if isinstance(self.value, float) else self.value
            values = {c: code if c in layout.words and self.columns else self.value for c in columns}
            wrong = [c for c in columns if (c in layout.words) != isinstance(values[c], str)]
        else:
            wrong = [c for c in columns if (c in layout.words) != of_words and self.strategy != "most_frequent"]
        if wrong:
            raise SafeError(
                f"impute cannot fill the column(s) {', '.join(wrong)} like this; expected a word or most_frequent for "
                "columns of words and those that onehot names, and a number, mean or median for columns of numbers"
            )
        if not columns:
            return {"values": {}}
        if self.strategy == "constant":
            return {"values": values}
        if self.strategy == "most_frequent":
            counts = Levels.pool(ask("levels", columns=columns, counts=True), columns)
            kind = {c: str if c in layout.words else float for c in columns}  # the smallest of equally frequent ones
            return {
                "values": {c: kind[c](max(sorted(counts[c], key=kind[c]), key=counts[c].__getitem__)) for c in columns}
            }
        n, mean, deviation = Present.pool(ask("present", columns=columns), columns)
        filled = mean if self.strategy == "mean" else quantile(0.5, columns, n, mean, deviation, ask)[0]
        return {"values": dict(zip(columns, filled.tolist(), strict=True))}

    @staticmethod
    def apply(fitted: Mapping[str, Any], features: Features) -> Features:
        """Fill missing values."""
        X, words = features.X.astype(np.float64), dict(features.words)
        values = by_column(fitted, "values", lambda value: isinstance(value, str) or _is_number(value))
        for i, (name, value) in zip(features.index(list(values)), values.items(), strict=True):
            if isinstance(value, str) != (name in words):
                raise SafeError(f"impute cannot fill the column {name} like this; expected a value of its kind")
            if name in words:
                words[name] = np.where(pd.isna(words[name]), value, words[name])
            else:
                X[np.isnan(X[:, i]), i] = value
        return Features(features.names, X, words)


class MissingIndicator(Step):
    """Add a column missing(COLUMN) for each named column: 1 where it has no value, otherwise 0. No row is read for it.

    At a node where some rows, but too few, have a value in a named column, it counts as empty: 1 for all rows.
    """

    main: ClassVar[str] = "columns"
    example: ClassVar[str] = "missing_indicator:ca,thal"
    columns: Annotated[list[str], BeforeValidator(_columns), Field(min_length=1)]

    def fit(self, layout: Features, ask: Ask) -> dict[str, Any]:
        """Name the columns."""
        layout.index(self.columns)
        return {"columns": self.columns}

    @staticmethod
    def apply(fitted: Mapping[str, Any], features: Features) -> Features:
        """Add the columns."""
        columns = marked(fitted)
        index, new = features.index(columns), [missing(c) for c in columns]
        if twice := [name for name in new if name in features.names]:
            raise SafeError(f"there is a column {', '.join(twice)} already; rename it, or leave missing_indicator out")
        X = features.X.astype(np.float64)
        marks = [
            pd.isna(features.words[c]) if c in features.words else np.isnan(X[:, i])
            for c, i in zip(columns, index, strict=True)
        ]
        return Features([*features.names, *new], np.column_stack([X, *marks]), features.words)


class OneHot(Step):
    """Replace a column of words by a column of 0 and 1 for each level, named COLUMN=LEVEL, in the order of the levels.

    The levels are those that some node has in enough rows (its operator's minimum). A row with another level has 0 in
    all of them. Without ``columns``, all columns of words are replaced; a column that also holds numbers must be named.
    ``drop=first`` leaves out each column's first level, with which a regression then compares the others.
    """

    main: ClassVar[str] = "columns"
    example: ClassVar[str] = "onehot"
    columns: Columns = None
    drop: Literal["first"] | None = None

    def fit(self, layout: Features, ask: Ask) -> dict[str, Any]:
        """Fit the levels, by column, and those that are left out."""
        columns = list(layout.words) if self.columns is None else self.columns
        layout.index(columns)
        if wrong := [c for c in columns if c not in layout.words]:
            raise SafeError(f"onehot cannot use the column(s) {', '.join(wrong)}, which an earlier step has replaced")
        if not columns:
            return {"levels": {}}
        counts = Levels.pool(ask("levels", columns=columns, counts=False), columns)
        levels = {c: list(counts[c]) for c in columns}
        if self.drop is None:
            return {"levels": levels}
        return {
            "levels": {c: own[1:] for c, own in levels.items()},
            "dropped": {c: own[:1] for c, own in levels.items()},
        }

    @staticmethod
    def apply(fitted: Mapping[str, Any], features: Features) -> Features:
        """Replace the columns."""
        levels = by_column(fitted, "levels", are_levels)
        features.index(list(levels))
        if empty := [c for c in levels if pd.isna(features.words[c]).any()]:
            raise UnfitColumns(
                f"missing values in the column(s) {', '.join(empty)}",
                "onehot needs complete columns: add a step impute:most_frequent before it (--preprocess "
                "impute:most_frequent), or impute:constant,value=WORD (in text, None, NA and null count as missing; "
                "use another word if one of them is a level)",
            )
        names: list[str] = []
        parts: list[Array] = []
        for i, name in enumerate(features.names):
            if name in levels:
                names += [level(name, word) for word in levels[name]]
                parts += [features.words[name] == word for word in levels[name]]
            else:
                names.append(name)
                parts.append(features.X[:, i])
        X = np.empty((len(features), len(parts)))
        for i, part in enumerate(parts):
            X[:, i] = part
        return Features(names, X, {c: w for c, w in features.words.items() if c not in levels})


class Clip(Step):
    """Clip columns of numbers to bounds: given ones, or the quantiles q and 1 - q over all nodes."""

    main: ClassVar[str] = "quantile"
    example: ClassVar[str] = "clip:0.01"
    quantile: Annotated[float | None, Field(ge=0.001, lt=0.5), BeforeValidator(no_truth)] = None
    lower: Annotated[float | None, Field(allow_inf_nan=False)] = None
    upper: Annotated[float | None, Field(allow_inf_nan=False)] = None
    columns: Columns = None

    def model_post_init(self, _: Any) -> None:
        """Check that the options fit each other."""
        if (self.quantile is None) == (self.lower is None and self.upper is None):
            raise ValueError("clip needs a quantile or bounds, for example clip:0.01 or clip:lower=0,upper=100")
        if self.lower is not None and self.upper is not None and self.lower > self.upper:
            raise ValueError("the lower bound is above the upper bound")
        _check_numbers(self.lower, self.upper)

    def fit(self, layout: Features, ask: Ask) -> dict[str, Any]:
        """Fit the bounds, by column."""
        columns = layout.numeric if self.columns is None else self.columns
        layout.index(columns)
        if wrong := [c for c in columns if c in layout.words]:
            raise SafeError(f"clip cannot use the column(s) {', '.join(wrong)}, which hold words; name others")
        if self.quantile is None or not columns:
            return {"bounds": {c: [self.lower, self.upper] for c in columns}}
        n, mean, deviation = Present.pool(ask("present", columns=columns), columns)
        (lower, below), (upper, above) = (
            quantile(q, columns, n, mean, deviation, ask) for q in (self.quantile, 1 - self.quantile)
        )
        # the same value found twice: a step standardize would blow up the rounding error between the bounds
        same = (below > 0) & (above > 0) & (np.abs(upper - lower) <= below + above)
        upper[same] = lower[same]
        return {"bounds": {c: [a, b] for c, a, b in zip(columns, lower.tolist(), upper.tolist(), strict=True)}}

    @staticmethod
    def apply(fitted: Mapping[str, Any], features: Features) -> Features:
        """Clip the columns."""
        X = features.X.astype(np.float64)
        bounds = by_column(fitted, "bounds", _are_bounds)
        for i, (lower, upper) in zip(features.index(list(bounds)), bounds.values(), strict=True):
            if lower is not None or upper is not None:
                X[:, i] = np.clip(X[:, i], lower, upper)
        return replace(features, X=X)


class PCA(Step):
    """Replace all columns by their first principal components over the rows of all nodes, pc1, pc2, ..."""

    main: ClassVar[str] = "components"
    example: ClassVar[str] = "pca:20"
    components: Annotated[int, Field(ge=1), BeforeValidator(no_truth)]
    solver: SolverName = "auto"
    scale: bool = False

    def fit(self, layout: Features, ask: Ask) -> dict[str, Any]:
        """Fit mean, scale and components."""
        layout.check_complete("pca")
        d = len(layout.names)
        moments = Moments.pool(ask("moments"))
        scale = moments.scale() if self.scale else np.ones(d)
        k = pca.number_of_components(self.components, moments, scale)
        if pca.chosen(self.solver, d) == "exact":
            A = Covariance.pool(ask("covariance", mean=moments.mean, scale=scale), d)
            found = pca.eigen(A, k)
        else:
            found = pca.subspace(ask, moments, scale, k)
        fitted = pca.Components.of(moments, scale, found)
        return codec.encode({**fitted.arrays(), **codec.two_parts("mean", fitted.mean)})

    @staticmethod
    def apply(fitted: Mapping[str, Any], features: Features) -> Features:
        """Project the rows on the components."""
        features.check_complete("pca")
        d = len(features.names)
        arrays = codec.decode(fitted, {"mean": (d,), "mean_rest": (d,), "scale": (d,), "components": (None, d)})
        mean = codec.whole(arrays, "mean")
        if len(arrays["components"]) > d:
            raise SafeError("a step pca has more components than there are columns; run the job again from its start")
        components = np.where(np.abs(arrays["components"]) < LEAST_LOADING, 0, arrays["components"])
        Z = pca.project(features.X, mean, arrays["scale"], components)
        return Features([component(i) for i in range(Z.shape[1])], Z, {})


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) <= MOST


def _are_bounds(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(b is None or _is_number(b) for b in value)


STEPS: dict[str, type[Step]] = {
    "missing_indicator": MissingIndicator,
    "impute": Impute,
    "onehot": OneHot,
    "clip": Clip,
    "standardize": Standardize,
    "scale": Scale,
    "pca": PCA,
}
