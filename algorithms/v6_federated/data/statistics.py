"""Statistics of training rows, to which steps, PCA and boosted trees are fitted: one class each, see ``STATISTICS``.

No value of a row is sent as such: a node answers means, sums of squares, counts rounded to a multiple of its minimum,
levels of categories that enough of its rows have, and covariances. docs/preprocessing.md says what many of them reveal
together. Where central learns sums only, a node adds up what ``summands`` declares, and nothing else.
"""

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any, ClassVar, Literal, Protocol, TypeAlias, cast

import numpy as np
import pandas as pd

from v6_federated.base.arrays import Array
from v6_federated.base.errors import SafeError
from v6_federated.base.text import MOST_TEXT
from v6_federated.data import pca, small_cells
from v6_federated.data.columns import OMIT, Features, check_scale
from v6_federated.data.reading import shortest
from v6_federated.masks import exact
from v6_federated.masks.summands import Count, Declared, Part, Sum
from v6_federated.messages import codec
from v6_federated.messages.codec import Shape
from v6_federated.messages.job import Job
from v6_federated.messages.result import MOST_ROWS
from v6_federated.rules.policy import Policy

BINS = 200  # of the histogram from which a quantile is read
EDGES = BINS + 3
FEWEST = 3  # hospitals that must have enough rows of a level: the sum would be about one or two of them, others say 0
PRODUCTS = range(-64, 65)  # e of sums of products, which follows from the squares of the columns
MOST = float(np.finfo(np.float32).max)  # of a value: a column's values fit float32
MOST_PRODUCT = 1e36  # of two values of a row: sums of such products fit float32

KEYWORD = inspect.Parameter.KEYWORD_ONLY
OF_MEANS = "a sum of the nodes' means would tell their numbers of rows"

Sent: TypeAlias = Array | None
"""An array that a task may send."""
Limits: TypeAlias = dict[str, tuple[float, float]]
"""By array of an answer, the least and the largest number that it may hold."""


class OwnRows(Protocol):
    """The rows that a node trains on, as a statistic may use them: neither the client nor the request is among it.

    Attributes:
        job: what central tells all nodes.
        policy: the limits of the node's operator.
        pinned: whether the answer is a part of a sum over a block of a study. There nothing is rounded or left out by
            its count: central's code does, over a block.
    """

    job: Job
    policy: Policy
    pinned: bool

    @property
    def layout(self) -> Features:
        """The columns after the steps so far, without rows."""

    @property
    def as_read(self) -> Features:
        """The rows before any step."""

    @property
    def features(self) -> Features:
        """The rows (n, d) after the steps so far."""

    @property
    def labels(self) -> Array:
        """Their classes (n,), as indices."""

    @property
    def numbers(self) -> Array:
        """Their labels (n,), if these are numbers."""

    def as_used(self, X: Array) -> Array:
        """Columns with the limits on columns held, as they are used."""

    def check_time(self) -> None:
        """End a task that takes too long. It is called before each column of a histogram and each block of rows."""


@dataclass
class Known:
    """What central knows of the blocks of one job from their moments. Products need it.

    Attributes:
        squares: of all columns about their means, over all rows.
        of_blocks: rows, sums, and squares about means, by first member.
        multiplied: how many columns of blocks products were asked for.
    """

    squares: Array | None = None
    of_blocks: dict[int, tuple[int, Array, Array]] = field(default_factory=dict)
    multiplied: int = 0


@dataclass
class Blocks:
    """The blocks of nodes of which central learns sums, as a statistic may use them.

    Attributes:
        job: what central tells the nodes.
        d: number of columns of numbers.
        policy: the limits of the node where central runs.
        study: whether nodes send exact counts, of which central rounds, or leaves out, what is small over a block.
        levels: the levels of each column of words that some node has named.
        known: what was learnt from earlier statistics.
        ask: asks all blocks for their sums of a statistic, in the unit that e names; counts the bytes of all requests.
        unasked: makes an answer of what is known.
        columns: returns the names of the columns of numbers.
        groups: returns what each column is made of, see ``affine.groups_of``; None if it cannot be said.
    """

    job: Job
    d: int
    policy: Policy
    study: bool
    levels: Mapping[str, Sequence[str]]
    known: Known
    ask: Callable[["Statistic", int | None], list[Any]]
    unasked: Callable[[dict[str, Any]], list[Any]]
    columns: Callable[[], Sequence[str]]
    groups: Callable[[], tuple[Array, Array, list[str]] | None]


@dataclass(frozen=True, eq=False)
class Statistic(ABC):
    """A question about the training rows. Its fields are what a task sends in addition to its name.

    Each class also has ``pool``, which makes of the answers of all nodes what steps and methods use.

    Attributes:
        name: its name in tasks.
        parts: names of what an answer holds that is no array.
        compared: the array whose deviation a row is compared with those of the other nodes; empty for none.
        pool: see above.
    """

    name: ClassVar[str]
    parts: ClassVar[frozenset[str]] = frozenset()
    compared: ClassVar[str] = ""
    pool: ClassVar[Callable[..., Any]]

    @property
    def sent(self) -> dict[str, Any]:
        """What a task sends: its name as ``statistic``, and its fields that are not None; see ``read``."""
        own = {f.name: getattr(self, f.name) for f in fields(self)}
        return {"statistic": self.name, **{k: v for k, v in own.items() if v is not None}}

    # ---- what a sum of it is

    @abstractmethod
    def summands(self, asked: Any) -> Declared:
        """Declare what ``as_sums`` is a sum of. No row decides any of it.

        Args:
            asked: what the task asks for, see ``layouts.Asked``.

        Returns:
            The declaration. Outside a study nodes round their own counts, or leave out what few of their rows have.

        Raises:
            SafeError: the task lacks what the statistic is about.
        """

    # ---- what a node computes

    @abstractmethod
    def of_rows(self, rows: OwnRows) -> dict[str, Any]:
        """Compute a node's own answer.

        Args:
            rows: the node's rows.

        Returns:
            The answer.

        Raises:
            SafeError: the request does not fit the columns.
            DataError: values are missing, or words among them, where only numbers can be used.
            PrivacyThresholdViolation: the statistic would describe too few rows.
        """

    def as_sums(self, rows: OwnRows) -> dict[str, Any]:
        """Compute what a node adds to a sum.

        Args:
            rows: the node's rows.

        Returns:
            The summands.

        Raises:
            SafeError: the request does not fit the columns, or asks for the sum of what is no sum over rows.
            DataError: values are missing, or words among them, where only numbers can be used.
            PrivacyThresholdViolation: the statistic would describe too few rows.
        """
        return self.of_rows(rows)

    # ---- what central makes of it

    @abstractmethod
    def shapes(self, d: int) -> dict[str, Shape]:
        """The shapes of the arrays in a node's own answer.

        Args:
            d: number of columns of numbers; of classes for "classes", 1 for "label".

        Returns:
            The shapes, by name.
        """

    def limits(self, n: int) -> Limits:
        """Between which numbers those of n rows lie. Others, added up, would end the job.

        Args:
            n: number of rows.

        Returns:
            The limits of each array.
        """
        return {}

    def wrong(self, answer: Any) -> str | None:
        """Find impossible numbers in a node's own answer.

        Args:
            answer: the answer, with its number of rows n.

        Returns:
            What is wrong with it, for the error; None if nothing is.
        """
        limits = self.limits(answer.n)
        for name, array in answer.arrays.items():
            low, high = limits[name]
            if array.size and not (low <= float(array.min()) and float(array.max()) <= high):
                return f"sent {name} that {answer.n} rows cannot have; expected numbers from {low:g} to {high:g}"
        return None

    @abstractmethod
    def from_sums(self, blocks: Blocks) -> list[Any]:
        """Ask blocks for their sums, and give these the form of a node's own answer.

        Args:
            blocks: the blocks.

        Returns:
            The answers.

        Raises:
            SafeError: the statistic cannot be had from sums, or its numbers are too large.
        """

    @property
    def measures(self) -> Mapping[str, Callable[[Any], Array] | None]:
        """What of an answer is compared with those of the other nodes: its values' deviation, not their mean."""

        def deviation(answer: Any) -> Array:
            # the root of a sum of squares a row: in the units of the columns, so that ratios are those of deviations
            found: Array = np.sqrt(np.abs(answer[self.compared], dtype=np.float64).sum(keepdims=True) / answer.n)
            return found

        return {name: deviation if name == self.compared else None for name in self.limits(1)}


# ---- moments


@dataclass(frozen=True, eq=False)
class _About(Statistic):
    """Numbers of values, their means, and sums of squares about these.

    Sums are about a center that central names: the sum of the nodes' means would count each row as 1 / n_k. They take
    two requests: squares about zero, in fixed point, would lose what is small beside the mean.

    Attributes:
        center: what sums are about (c,), where central learns sums only.
    """

    center: Sent = None

    def summands(self, asked: Any) -> Declared:
        """``count`` (c,), ``first`` and ``second``, see ``about``."""
        if self.center is None:
            raise SafeError(f"{self._without_center()}: {OF_MEANS}")
        (c,) = asked.array("center").shape
        return {"count": Count(c), "first": Sum(c), "second": Sum(c)}

    def shapes(self, d: int) -> dict[str, Shape]:
        """One number a column."""
        return {name: (self._width(d),) for name in self.limits(1)}

    def limits(self, n: int) -> Limits:
        """Those of values that fit float32."""
        return {"mean": (-MOST, MOST), "mean_rest": (-MOST, MOST), "squares": (0, n * MOST**2)}

    def wrong(self, answer: Any) -> str | None:
        """Find impossible numbers, and means and squares that values cannot have that fit float32."""
        if (problem := super().wrong(answer)) is not None:
            return problem
        n, mean = answer.n, np.add(answer["mean"], answer.arrays.get("mean_rest", 0), dtype=np.float64)
        if not (answer["squares"] / n + np.square(mean) <= MOST**2).all():
            return f"sent means and sums of squares that {n} rows cannot have; expected those of values up to {MOST:g}"
        return None

    def from_sums(self, blocks: Blocks) -> list[Any]:
        """Ask for sums about zero, and then about the mean that follows."""
        width = self._width(blocks.d)
        about_zero = [_sums(a) for a in blocks.ask(replace(self, center=np.zeros(width)), None)]
        rows = np.sum([count for count, _, _ in about_zero], axis=0)
        mean = np.sum([first for _, first, _ in about_zero], axis=0) / np.maximum(rows, 1)
        return [_with(a, self._of_block(a, mean, blocks)) for a in blocks.ask(replace(self, center=mean), None)]

    def _of_block(self, answer: Any, center: Array, blocks: Blocks) -> dict[str, Array]:
        """A node's arrays, of a block's sums about a center."""
        mean, squares = _moments(center, *_sums(answer))
        return {**codec.two_parts("mean", mean), "squares": squares}

    def _width(self, d: int) -> int:
        """How many columns it is about."""
        return d

    def _without_center(self) -> str:
        return f"the task asks for a sum of {self.name} without the center that it is about"

    def _checked_center(self, c: int) -> Array:
        """Refuse to answer with means where answers are added up."""
        center = np.asarray(self.center, np.float64)
        if center.shape != (c,) or not np.isfinite(center).all():
            raise SafeError(f"{self._without_center()}; expected center, {c} numbers: {OF_MEANS}")
        return center


class Moments(_About):
    """Mean and sum of squares about it of all columns of numbers, which must be complete."""

    name = "moments"
    compared = "squares"
    pool = staticmethod(pca.pooled_moments)

    def of_rows(self, rows: OwnRows) -> dict[str, Any]:
        """``mean``, ``mean_rest`` and ``squares`` (d,), see ``pca.moments``."""
        numbers = self._complete(rows)
        found = pca.moments(numbers.X)
        check_squares(numbers.names, found["squares"])
        return found

    def as_sums(self, rows: OwnRows) -> dict[str, Any]:
        """See ``about``. In a study it is the block's sum of squares that is checked."""
        center = self._checked_center(len(rows.layout.numeric))
        numbers = self._complete(rows)
        if not rows.pinned:
            check_squares(numbers.names, pca.moments(numbers.X)["squares"])
        return about(numbers.X, center)

    def from_sums(self, blocks: Blocks) -> list[Any]:
        """Ask for sums about zero and about the mean; products need what they tell."""
        found = super().from_sums(blocks)
        blocks.known.squares = pca.pooled_moments(found).squares
        if blocks.study:
            check_squares(blocks.columns(), blocks.known.squares)
        return found

    def _of_block(self, answer: Any, center: Array, blocks: Blocks) -> dict[str, Array]:
        mean, squares = _moments(center, *(sums := _sums(answer)))
        blocks.known.of_blocks[answer.organization_id] = answer.n, sums[0] * mean, squares
        return super()._of_block(answer, center, blocks)

    @staticmethod
    def _complete(rows: OwnRows) -> Features:
        features = rows.features
        numbers = Features(features.numeric, features.numbers(), {})
        numbers.check_complete("standardize or pca")
        return numbers


@dataclass(frozen=True, eq=False)
class Present(_About):
    """Number of the values that are not missing, their mean, and their sum of squares about it, by column.

    Attributes:
        columns: the c columns.
    """

    columns: list[str] = field(default_factory=list)
    name = "present"

    def of_rows(self, rows: OwnRows) -> dict[str, Any]:
        """``count``, ``mean`` and ``squares`` (c,)."""
        X = self._numbers(rows)
        given = ~np.isnan(X)
        count = given.sum(axis=0)
        few = rows.policy.minimum_rows
        rows.policy.check_values([c for c, n in zip(self.columns, count, strict=True) if 0 < n < few])
        mean = np.where(given, X, 0).sum(axis=0) / np.maximum(count, 1)
        squares = np.square(np.where(given, X - mean, 0)).sum(axis=0)
        return {"count": count, "mean": mean, "squares": squares}

    def as_sums(self, rows: OwnRows) -> dict[str, Any]:
        """See ``about``. Too few values count as none."""
        center, X = self._checked_center(len(self.columns)), self._numbers(rows)
        least = 1 if rows.pinned else rows.policy.minimum_rows
        return about(np.where((~np.isnan(X)).sum(axis=0) >= least, X, np.nan), center)

    def limits(self, n: int) -> Limits:
        """Those of values that fit float32, and of their number."""
        return {"count": (0, n), "mean": (-MOST, MOST), "squares": (0, n * MOST**2)}

    @staticmethod
    def pool(answers: Sequence[Any], columns: Sequence[str]) -> tuple[Array, Array, Array]:
        """Add up what the nodes answer.

        Args:
            answers: the nodes' counts, means and sums of squares.
            columns: the c columns that were asked for.

        Returns:
            Number of values, mean, and standard deviation (n in the denominator) over all nodes, (c,) each.

        Raises:
            SafeError: a column has no value at any node.
        """
        n = np.asarray(sum(a["count"] for a in answers))
        if empty := [c for c, count in zip(columns, n, strict=True) if count == 0]:
            raise SafeError(f"no node has a value in the column(s) {', '.join(empty)}; {OMIT}")
        mean = np.asarray(sum(a["count"] * a["mean"] for a in answers)) / n
        squares = sum(a["squares"] + a["count"] * np.square(a["mean"] - mean) for a in answers)
        return n, mean, np.sqrt(squares / n)

    def _width(self, d: int) -> int:
        return len(self.columns)

    def _of_block(self, answer: Any, center: Array, blocks: Blocks) -> dict[str, Array]:
        count, first, second = _sums(answer)
        n = _enough(blocks, count, blocks.policy.minimum_rows)
        mean, squares = _moments(center, n, np.where(n > 0, first, 0), np.where(n > 0, second, 0))
        return {"mean": mean, "squares": squares, "count": n}

    def _numbers(self, rows: OwnRows) -> Array:
        features = rows.features
        _check_columns(self.columns, features)
        return features.numbers(self.columns)


class Label(_About):
    """The moments of a label that is a number."""

    name = "label"
    compared = "squares"
    pool = staticmethod(pca.pooled_moments)

    def of_rows(self, rows: OwnRows) -> dict[str, Any]:
        """As those of columns, (1,) each."""
        return pca.moments(rows.numbers[:, None])

    def as_sums(self, rows: OwnRows) -> dict[str, Any]:
        """See ``about``."""
        center = self._checked_center(1)
        return about(rows.numbers[:, None], center)


def about(X: Array, center: Array) -> dict[str, Any]:
    """Add up rows, as sums that can be added to those of other nodes. Nothing is rounded, whatever the center is.

    Args:
        X: numbers (n, c); NaN where there is none.
        center: any numbers (c,) that all nodes use.

    Returns:
        ``count`` (c,), the number of values; ``first``, the sum of their differences from ``center``; ``second``, the
        sum of the squares of these. They follow from exact sums of the values and of their squares.
    """
    given = ~np.isnan(X)
    X, count = np.where(given, X, 0), given.sum(axis=0)
    rows, c, x = count.tolist(), exact.total(center[None]), exact.total(X)
    n_c = c.times(rows)
    squares = exact.total_of_squares(X).at(2 * exact.FINEST)
    first = x + n_c.times([-1] * len(rows))
    # sum of x^2 - 2 c x + c^2
    second = squares + c.times(x).times([-2] * len(rows)) + c.times(n_c)
    return {"count": count.astype(np.int64), "first": first, "second": second}


def check_squares(names: Sequence[str], squares: Array) -> None:
    """Refuse columns that float32 cannot be divided by.

    Args:
        names: of the columns (c,).
        squares: sums of squares about the mean (c,).

    Raises:
        SafeError: there are such columns.
    """
    large = ~(squares <= MOST)
    if large.any():
        named = ",".join(name for name, is_large in zip(names, large, strict=True) if is_large)
        raise SafeError(
            f"the numbers in the column(s) {named} are too large to be squared; give them in another unit, limit "
            f"them (--preprocess clip:lower=A,upper=B,columns={named} before this step), or leave them out "
            f"(--exclude {named})"
        )


def _sums(answer: Any) -> tuple[Array, Array, Array]:
    """Number of values, sum of their differences from the center, and sum of the squares of these."""
    return _sum(answer, "count"), _sum(answer, "first"), _sum(answer, "second")


def _moments(center: Array, n: Array, first: Array, second: Array) -> tuple[Array, Array]:
    """Mean, and sum of squares about it, of sums about a center."""
    own = first / np.maximum(n, 1)
    return center + own, np.maximum(second - n * np.square(own), 0)


# ---- histograms


@dataclass(frozen=True, eq=False)
class Below(Statistic):
    """How many values of a column lie up to each edge of a histogram, see ``edges``, in multiples of ``step``.

    Attributes:
        columns: the c columns.
        lower: the first edge of each column's histogram (c,).
        upper: the last one (c,).
    """

    columns: list[str] = field(default_factory=list)
    lower: Sent = None
    upper: Sent = None
    name = "below"
    parts = frozenset({"step"})

    def summands(self, asked: Any) -> Declared:
        """Counts; outside a study each node's own ``step`` too."""
        additive = asked.only_in_a_study
        step = {} if additive == "row" else {"step": Count(additive="hospital")}
        return {"below": Count((len(self.columns), EDGES), additive), **step}

    def of_rows(self, rows: OwnRows) -> dict[str, Any]:
        """``below`` (c, EDGES), and ``step``. A column in which few rows have a value is refused."""
        return self._counted(rows, few=rows.policy.check_values)

    def as_sums(self, rows: OwnRows) -> dict[str, Any]:
        """The same, but a column in which few rows have a value counts as empty. In a study, nothing is rounded."""
        return self._counted(rows, few=lambda columns: None)

    def _counted(self, rows: OwnRows, few: Callable[[list[str]], None]) -> dict[str, Any]:
        features, c = rows.features, len(self.columns)
        lower, upper = _shaped(self, (c,), "lower", "upper")
        _check_columns(self.columns, features)
        rows.policy.check_size(c * EDGES, f"the histogram of {c} columns")
        # bins of fewer rows than m say nothing more
        m, least = (1, 1) if rows.pinned else (rows.policy.minimum_rows_a_class, rows.policy.minimum_rows)
        X, counts = features.numbers(self.columns), np.empty((c, EDGES))
        for i, column in enumerate(self.columns):
            rows.check_time()
            values = np.sort(X[~np.isnan(X[:, i]), i])
            if 0 < len(values) < least:
                few([column])
                values = values[:0]
            counts[i] = np.searchsorted(values, edges(float(lower[i]), float(upper[i])), side="right")
        return {"below": m * np.round(counts / m).astype(np.int64), "step": m}

    def shapes(self, d: int) -> dict[str, Shape]:
        """Those of c histograms."""
        return {"below": (len(self.columns), EDGES)}

    def limits(self, n: int) -> Limits:
        """Each node has rounded its counts."""
        return {"below": (0, 2 * n)}

    def wrong(self, answer: Any) -> str | None:
        """Find impossible counts, or counts without their step."""
        if (problem := super().wrong(answer)) is not None:
            return problem
        if not (type(answer.values.get("step")) is int and answer.values["step"] >= 1):
            return "did not say of what its counts are multiples; expected step, a whole number from 1"
        return None

    def from_sums(self, blocks: Blocks) -> list[Any]:
        """Ask for counts; in a study it is the sum that is rounded."""
        answers, m = blocks.ask(self, None), blocks.policy.minimum_rows_a_class
        if not blocks.study:
            return [_with(a, {"below": _sum(a, "below")}, step=int(_sum(a, "step"))) for a in answers]
        rounded = [m * np.round(_sum(a, "below") / m).astype(np.int64) for a in answers]
        return [_with(a, {"below": below}, step=m) for a, below in zip(answers, rounded, strict=True)]

    @staticmethod
    def pool(answers: Sequence[Any]) -> tuple[Array, int]:
        """Add up the nodes' counts.

        Args:
            answers: what they answer.

        Returns:
            The counts (c, EDGES), and the sum of the steps.
        """
        return np.asarray(sum(a["below"] for a in answers)), sum(a.values["step"] for a in answers)


def edges(lower: float, upper: float) -> Array:
    """Compute the edges of a histogram.

    Args:
        lower: the first edge.
        upper: the last edge.

    Returns:
        (EDGES,), ascending: the edges of ``BINS`` equal bins, and two more, which enclose the decimal of fewest digits
        from ``lower`` to ``upper``. If many rows have one value, such as 0, it is usually this one.
    """
    value = shortest_between(lower, upper)
    gap = max(4 * np.spacing(abs(value)), np.finfo(np.float64).tiny)  # nodes take smaller numbers as 0
    return np.sort([*np.linspace(lower, upper, BINS + 1), value - gap, value])


def shortest_between(lower: float, upper: float) -> float:
    """Return the decimal of fewest digits from ``lower`` to ``upper``."""
    if lower <= 0 <= upper:
        return 0.0
    first = -math.floor(math.log10(max(abs(lower), abs(upper))))
    rounded = (round((lower + upper) / 2, places) for places in range(first, first + 18))
    return next((value for value in rounded if lower <= value <= upper), (lower + upper) / 2)


# ---- levels and classes


@dataclass(frozen=True, eq=False)
class Levels(Statistic):
    """The levels of columns of categories that enough rows have.

    Attributes:
        columns: the columns.
        counts: whether their rows are counted, or each counts 1. Where central learns sums only, they must be: a sum
            of ones would count nodes.
        known: the levels that are counted, by column, where central learns sums only.
    """

    columns: list[str] = field(default_factory=list)
    counts: bool = False
    known: dict[str, list[str]] | None = None
    name = "levels"
    parts = frozenset({"levels"})

    def summands(self, asked: Any) -> Declared:
        """Counts of the known levels; where counts of hospitals are made, ``contributes``: whether there are rows."""
        named = sum(map(len, (self.known or {}).values()))
        hospitals = {"contributes": Count(named, "hospital")} if asked.job.counts_hospitals else {}
        return {"counts": Count(named, asked.only_in_a_study), **hospitals}

    def of_rows(self, rows: OwnRows) -> dict[str, Any]:
        """``levels``: by column, the levels that enough rows have, with their counts or 1."""
        features = rows.features
        self._check_categories(rows)
        return {"levels": self.named(features, rows, rows.policy.minimum_rows_a_class)}

    def as_sums(self, rows: OwnRows) -> dict[str, Any]:
        """``counts``, in the order of ``known``; 0 for a level that few rows have. In a study they are exact."""
        if not self.counts:
            raise SafeError(
                "the task asks for a sum of levels without their counts; expected counts=true: a sum of ones would "
                "count the nodes with enough rows of a level"
            )
        features = rows.features
        self._check_categories(rows)
        found = self.named(features, rows, 1 if rows.pinned else rows.policy.minimum_rows_a_class)
        counts = [found[c].get(level, 0) for c, levels in (self.known or {}).items() for level in levels]
        summed = np.array(counts, dtype=np.int64)
        hospitals = {"contributes": (summed > 0).astype(np.int64)} if rows.job.counts_hospitals else {}
        return {"counts": summed, **hospitals}

    def named(self, features: Features, rows: OwnRows, least: int) -> dict[str, dict[str, int]]:
        """Find levels of columns.

        Args:
            features: the rows.
            rows: the node's limits.
            least: rows that a level must have.

        Returns:
            By column, the levels that so many rows have, with their counts if they are asked for, otherwise with 1.

        Raises:
            SafeError: a column is named twice, or there are fewer columns.
            PrivacyThresholdViolation: a column has too many levels.
        """
        _check_columns(self.columns, features)
        named: dict[str, dict[str, int]] = {}
        for column in self.columns:
            rows.check_time()
            if column in features.words:
                said = [word for word in features.words[column] if isinstance(word, str)]
            else:
                said = [shortest(v) for v in features.numbers([column])[:, 0] if not np.isnan(v)]
            found, counts = np.unique(np.asarray(said, dtype=str), return_counts=True)
            rows.policy.check_classes(len(found), f"the column {column}")
            enough = counts >= least
            pairs = zip(found[enough], counts[enough], strict=True)
            named[column] = {str(level): int(n) if self.counts else 1 for level, n in pairs}
        return named

    def _check_categories(self, rows: OwnRows) -> None:
        """Check that the columns are categories before any step.

        A column of many numbers that a step has clipped to bounds has few values: with one request after another, all
        of its values could be named.
        """
        raw = rows.as_read
        if made := [c for c in self.columns if c not in raw.names]:
            raise SafeError(
                f"the column(s) {', '.join(made)} are made by a step and have no levels; name columns of the table"
            )
        for column in self.columns:
            if column not in raw.words:  # words were counted when they were read
                rows.policy.check_classes(pd.Series(raw.numbers([column])[:, 0]).nunique(), f"the column {column}")

    def shapes(self, d: int) -> dict[str, Shape]:
        """No array."""
        return {}

    def wrong(self, answer: Any) -> str | None:
        """Find malformed or impossible levels."""
        levels, most = answer.values.get("levels"), Policy.of_node().most_classes
        if not isinstance(levels, dict) or sorted(levels) != sorted(self.columns):
            return "named levels of other columns; expected the columns that were asked for"
        for counts in levels.values():
            if not isinstance(counts, dict) or not all(type(c) is int and 0 < c < MOST_ROWS for c in counts.values()):
                return "named levels without their counts; expected whole numbers from 1"
            if len(counts) > most or max(map(len, counts), default=0) > MOST_TEXT:
                return (
                    f"named {len(counts)} levels of a column, or one of more than {MOST_TEXT} letters; expected at "
                    f"most {most} (MAXIMUM_CLASSES at the node where central runs)"
                )
        return None

    def from_sums(self, blocks: Blocks) -> list[Any]:
        """Ask for counts of the levels that nodes have named, or their study, and of words that steps filled in."""
        if unknown := [c for c in self.columns if c not in blocks.levels]:
            raise SafeError(
                f"the column(s) {', '.join(unknown)} hold numbers, and nodes that answer under masks count only levels "
                "that they have named, those of words: declare codes of categories in the study's schema as words with "
                "levels, and fill other numbers with mean, median or a constant"
            )
        # whether rows have what was filled in is not known
        filled = {c: _filled(blocks.job, c) - {*blocks.levels[c]} for c in self.columns}
        if not self.counts and not any(filled.values()):  # the nodes have named them all, or their study has
            return blocks.unasked({"levels": {c: dict.fromkeys(blocks.levels[c], 1) for c in self.columns}})
        known = {c: [*blocks.levels[c], *sorted(filled[c])] for c in self.columns}
        places = [(c, level) for c, levels in known.items() for level in levels]
        answers = blocks.ask(replace(self, known=known, counts=True), None)
        several: Array = np.ones(len(places), bool)
        if blocks.job.counts_hospitals:
            several = np.sum([_sum(a, "contributes") for a in answers], axis=0) >= FEWEST
        found = []
        for a in answers:
            rows_of: dict[str, dict[str, int]] = {c: {} for c in self.columns}
            counted = _enough(blocks, np.where(several, _sum(a, "counts"), 0), blocks.policy.minimum_rows_a_class)
            for (c, level), rows in zip(places, counted.tolist(), strict=True):
                if rows or (not self.counts and level not in filled[c]):
                    rows_of[c][level] = rows if self.counts else 1
            found.append(_with(a, {}, levels=rows_of))
        return found

    @staticmethod
    def pool(answers: Sequence[Any], columns: Sequence[str]) -> dict[str, dict[str, int]]:
        """Add up the nodes' levels.

        Args:
            answers: the nodes' levels.
            columns: the columns that were asked for.

        Returns:
            For each column its levels, sorted, with their counts over all nodes.

        Raises:
            SafeError: no node has enough rows with one value of a column.
        """
        pooled: dict[str, dict[str, int]] = {c: {} for c in columns}
        for a in answers:
            for c in columns:
                for level, count in a.values["levels"][c].items():
                    pooled[c][level] = pooled[c].get(level, 0) + count
        if empty := [c for c in columns if not pooled[c]]:
            raise SafeError(
                f"the column(s) {', '.join(empty)} have no level that enough rows of a node have (under masks, of "
                f"three); choose columns of categories, or {OMIT}"
            )
        return {c: dict(sorted(levels.items())) for c, levels in pooled.items()}


class Classes(Statistic):
    """How many rows each of the job's classes has."""

    name = "classes"

    def summands(self, asked: Any) -> Declared:
        """The counts."""
        return {"classes": Count(asked.classes, asked.only_in_a_study)}

    def of_rows(self, rows: OwnRows) -> dict[str, Any]:
        """``classes``: the counts; 0 for a class that too few rows have. In a study they are exact."""
        if rows.job.data.classes is None:
            raise SafeError("the task counts classes, and the job has none; expected a job with classes")
        counts = np.bincount(rows.labels, minlength=len(rows.job.data.classes))
        least = 1 if rows.pinned else rows.policy.minimum_rows_a_class
        return {"classes": np.where(counts >= least, counts, 0).astype(np.int64)}

    def shapes(self, d: int) -> dict[str, Shape]:
        """Those of d classes."""
        return {"classes": (d,)}

    def limits(self, n: int) -> Limits:
        """Counts of rows."""
        return {"classes": (0, n)}

    def from_sums(self, blocks: Blocks) -> list[Any]:
        """Ask for the counts; in a study, a class that too few of a block's rows have counts 0."""
        least = blocks.policy.minimum_rows_a_class
        return [_with(a, {"classes": _enough(blocks, _sum(a, "classes"), least)}) for a in blocks.ask(self, None)]

    @staticmethod
    def pool(answers: Sequence[Any]) -> Array:
        """Add up the nodes' counts.

        Args:
            answers: what they answer.

        Returns:
            The counts (c,).
        """
        return np.asarray(sum(a["classes"] for a in answers))


def _filled(job: Job, column: str) -> set[str]:
    """The levels that steps so far have put in the place of missing values."""
    values = [step["fitted"].get("values", {}) for step in job.data.preprocess if step["step"] == "impute"]
    return {value[column] for value in values if isinstance(value.get(column), str)}


# ---- products


@dataclass(frozen=True, eq=False)
class _Products(Statistic):
    """Sums of products of centred and divided columns, of which ``pca`` says more.

    Attributes:
        mean: what columns are centred by (d,).
        scale: what they are divided by (d,).
    """

    mean: Sent = None
    scale: Sent = None

    def _checked(self, rows: OwnRows, size: int, what: str) -> tuple[Array, Array]:
        """Mean and scale, if these, the rows, and the size of the answer are allowed."""
        d = len(rows.features.names)
        mean, scale = _shaped(self, (d,), "mean", "scale")
        rows.policy.check_size(size, what)
        rows.policy.check_wide(len(rows.features), d)
        rows.features.check_complete("pca")
        check_scale(mean, scale)
        return mean, scale

    @staticmethod
    def _used(rows: OwnRows, mean: Array, scale: Array) -> Array:
        """Centred and divided rows, with the limits on columns held once more."""
        rows.check_time()
        return rows.as_used((np.asfortranarray(rows.features.X, np.float64) - mean) / scale)

    def _scaled(self, blocks: Blocks) -> Array:
        """The diagonal of A."""
        if blocks.known.squares is None:
            raise SafeError(f"{self.name} is asked for before the moments of the columns; ask for moments first")
        found: Array = blocks.known.squares / np.square(np.asarray(self.scale))
        return found


class Covariance(_Products):
    """The products of all pairs of columns: a node's part of the matrix A."""

    name = "covariance"
    compared = "covariance"
    pool = staticmethod(pca.pooled_covariance)

    def summands(self, asked: Any) -> Declared:
        """The upper triangle of A."""
        return {"covariance": Sum(_triangle(len(asked.array("mean"))), unit=PRODUCTS)}

    def of_rows(self, rows: OwnRows) -> dict[str, Any]:
        """``covariance`` (d (d + 1) / 2,), see ``pca.covariance``."""
        return {"covariance": pca.covariance(rows.features.X, *self._allowed(rows), rows.check_time)}

    def as_sums(self, rows: OwnRows) -> dict[str, Any]:
        """The same without rounding."""
        return {"covariance": pca.exact_covariance(self._used(rows, *self._allowed(rows)))}

    def shapes(self, d: int) -> dict[str, Shape]:
        """That of the triangle."""
        return {"covariance": (_triangle(d),)}

    def limits(self, n: int) -> Limits:
        """Products of differences of two values that fit float32."""
        return {"covariance": (-4 * n * MOST**2, 4 * n * MOST**2)}

    def from_sums(self, blocks: Blocks) -> list[Any]:
        """Ask for sums, of which no small cell of a table of two columns of levels is left."""
        e = _unit(float(self._scaled(blocks).max(initial=0.0)))
        answers, least = blocks.ask(self, e), blocks.policy.minimum_rows_a_side
        groups = blocks.groups() if least else None
        found = [_sum(a, "covariance", e) for a in answers]
        if groups is not None:
            found = [self._without_small(A, a, blocks, groups, least) for A, a in zip(found, answers, strict=True)]
        return [_with(a, {"covariance": A}) for A, a in zip(found, answers, strict=True)]

    def _allowed(self, rows: OwnRows) -> tuple[Array, Array]:
        d = len(rows.features.names)
        return self._checked(rows, _triangle(d), f"the covariance of {d} columns")

    def _without_small(
        self, triangle: Array, answer: Any, blocks: Blocks, groups: tuple[Array, Array, list[str]], least: int
    ) -> Array:
        if answer.organization_id not in blocks.known.of_blocks:
            raise SafeError("covariance is asked for before the moments of the columns; ask for moments first")
        n, sums, squares = blocks.known.of_blocks[answer.organization_id]
        mean, scale = np.asarray(self.mean), np.asarray(self.scale)
        at, A = np.triu_indices(len(mean)), np.zeros((len(mean), len(mean)))
        A[at] = triangle
        products = A * np.outer(scale, scale) + np.outer(sums, mean) + np.outer(mean, sums) - n * np.outer(mean, mean)
        change = small_cells.changed(products, n, sums, squares, *groups, least)
        found: Array = (A + change / np.outer(scale, scale))[at]
        return found


@dataclass(frozen=True, eq=False)
class Product(_Products):
    """A node's part of the product of A with a block of columns Q (d, l).

    Attributes:
        draw: l, if the node draws the block.
        block: the block as a payload, if it is sent.
    """

    draw: int | None = None
    block: dict[str, Any] | None = None
    name = "product"
    compared = "product"
    pool = staticmethod(pca.pooled_product)

    def summands(self, asked: Any) -> Declared:
        """A Q, row by row."""
        d = len(asked.array("mean"))
        shape = (d, int(self.draw or 0)) if self.block is None else codec.decode(self.block)["Q"].shape
        return {"product": Sum(shape, unit=PRODUCTS)}

    def of_rows(self, rows: OwnRows) -> dict[str, Any]:
        """``product`` (d, l), see ``pca.product``."""
        Q, mean, scale = self._allowed(rows)
        return {"product": pca.product(rows.features.X, mean, scale, Q, rows.check_time)}

    def as_sums(self, rows: OwnRows) -> dict[str, Any]:
        """The same without rounding."""
        Q, mean, scale = self._allowed(rows)
        return {"product": pca.exact_product(self._used(rows, mean, scale), Q)}

    def shapes(self, d: int) -> dict[str, Shape]:
        """That of the block."""
        return {"product": (d, self.draw if self.block is None else self.block["shapes"]["Q"][1])}

    def limits(self, n: int) -> Limits:
        """Sums that fit float32."""
        return {"product": (-n * MOST_PRODUCT, n * MOST_PRODUCT)}

    def from_sums(self, blocks: Blocks) -> list[Any]:
        """Ask for sums, if they are too few to tell small cells of a table of two columns of levels."""
        scaled, Q = self._scaled(blocks), self._read_block(blocks.d)
        most = float(scaled.max(initial=0.0))
        e = _unit(float(np.sqrt(most * scaled.sum()) * np.linalg.norm(Q, axis=0).max(initial=0.0)))
        blocks.known.multiplied += Q.shape[1]
        groups = blocks.groups() if blocks.policy.minimum_rows_a_side else None
        if groups is not None and 2 * blocks.known.multiplied > blocks.d and _tabled(blocks, *groups):
            raise SafeError(
                "so many products with columns of levels would tell how many rows have two of them, also of single "
                "patients; use solver=exact, from whose result small numbers are left out, or fewer components"
            )
        return [_with(a, {"product": _sum(a, "product", e)}) for a in blocks.ask(self, e)]

    def _read_block(self, d: int) -> Array:
        return pca.read_block(d, self.draw, self.block)

    def _allowed(self, rows: OwnRows) -> tuple[Array, Array, Array]:
        d, what = len(rows.features.names), "the product with the block"
        rows.policy.check_size(d * (self.draw or 0), what)
        Q = self._read_block(d)
        return Q, *self._checked(rows, Q.size, what)


def _triangle(d: int) -> int:
    return d * (d + 1) // 2


def _unit(most: float) -> int:
    """The e of sums up to a number."""
    with np.errstate(divide="ignore"):  # of 0
        return int(np.clip(np.ceil(np.log2(most)) + 1, PRODUCTS[0], PRODUCTS[-1]))


def _tabled(blocks: Blocks, a: Array, s: Array, own: Sequence[str]) -> bool:
    """Whether some block has two columns of levels, or of 0 and 1, of which a table could be made."""
    for n, sums, squares in blocks.known.of_blocks.values():
        _, found = small_cells.zeros_and_ones(n, sums, squares, a, s)
        if len({name for name, is_binary in zip(own, found, strict=True) if is_binary}) > 1:
            return True
    return False


# ---- all of them


STATISTICS: Mapping[str, type[Statistic]] = {
    kind.name: kind for kind in (Moments, Present, Below, Levels, Covariance, Product, Classes, Label)
}


def read(name: str, settings: Mapping[str, Any], arrays: Mapping[str, Any]) -> Statistic:
    """Read a statistic from what a task sends.

    Args:
        name: its name.
        settings: settings by name, of which it takes its own; None for those that were not sent.
        arrays: arrays, as well.

    Returns:
        The statistic.
    """
    kind = STATISTICS[name]
    own = {f.name: (arrays if f.type is Sent else settings).get(f.name) for f in fields(kind)}
    return kind(**{k: v for k, v in own.items() if v is not None})


def parameters() -> list[inspect.Parameter]:
    """What a task may send: the arrays and settings of all statistics.

    Returns:
        The parameters of the partial function: arrays first; then the statistic's name, and settings, by keyword.

    Raises:
        TypeError: two statistics have fields of one name and several types.
    """
    found = {"statistic": inspect.Parameter("statistic", KEYWORD, annotation=Literal[tuple(STATISTICS)])}
    for kind in STATISTICS.values():
        for f in fields(kind):
            sort = inspect.Parameter.POSITIONAL_OR_KEYWORD if f.type is Sent else KEYWORD
            # a list is None if it is not sent
            is_list = f.default is MISSING
            default, annotation = (None, cast(Any, f.type) | None) if is_list else (f.default, f.type)
            new = inspect.Parameter(f.name, sort, default=default, annotation=annotation)
            if found.setdefault(f.name, new) != new:
                raise TypeError(f"{kind.name}: {f.name} has another type in another statistic; choose another name")
    return sorted(found.values(), key=lambda parameter: parameter.kind)


# ---- what several use


def _check_columns(columns: Sequence[str], features: Features) -> None:
    """Refuse a task that names a column twice, or more columns than there are."""
    if len({*columns}) < len(columns):
        raise SafeError("the task names a column twice; name each once")
    if len(columns) > (d := len(features.names)):  # the error about unknown ones would list them all
        raise SafeError(f"the task names {len(columns)} columns, and there are {d}; name some of these")


def _shaped(statistic: Statistic, shape: tuple[int], *names: str) -> list[Array]:
    """Reject arrays that numpy would broadcast: a mean for each row instead of one for each column."""
    arrays: list[Array] = [getattr(statistic, name) for name in names]
    if odd := [name for name, a in zip(names, arrays, strict=True) if a is None or a.shape != shape]:
        raise SafeError(
            f"the task asks for {statistic.name} with {', '.join(odd)} of another shape; the shape must be {shape}"
        )
    return arrays


def _enough(blocks: Blocks, counts: Array, least: int) -> Array:
    """Counts over a block, in a study 0 where they are smaller than the least."""
    return np.where(counts < least, 0, counts) if blocks.study else counts


def _sum(answer: Any, name: str, e: int | None = None) -> Array:
    found: Array = answer.values["sums"][Part(name, "one", 64, (), e).key]
    return found


def _with(answer: Any, arrays: dict[str, Array], **values: Any) -> Any:
    return replace(answer, arrays=arrays, values=values)
