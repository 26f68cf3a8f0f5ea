"""Features between the steps: numbers, words and missing values, as in a table."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from v6_federated.base.arrays import Array
from v6_federated.base.errors import SafeError
from v6_federated.base.vantage6_api import DataError

FURTHEST = 2.0**100  # what columns may be centred, multiplied or divided by
ONEHOT = "add a step onehot (--preprocess onehot)"
EMPTY = "empty those cells, and fill them by a step impute (--preprocess impute)"
OMIT = "leave these columns out (--exclude)"
DATES = "replace each date by a number, such as an age in years or the days since another date"
COMMAS = (
    "write decimal commas as points, and leave out those between thousands, or save the table as csv with semicolons, "
    "where decimal commas are read; if they are codes, add --preprocess onehot:"
)
BLOCK = 1024  # rows
UNKNOWN = object()  # replaces a word that too few rows have; it equals no level


class UnfitColumns(DataError):  # type: ignore[misc]  # vantage6 has no types
    """Columns hold values that cannot be used as they are.

    Attributes:
        problem: what is wrong, without what a job could do about it. It names the columns and no values.
    """

    def __init__(self, problem: str, cure: str = "") -> None:
        super().__init__(f"{problem}; {cure}" if cure else problem)
        self.problem = problem


def marked(marks: Mapping[str, str]) -> str:
    """Say which columns hold marks for missing values, see ``reading.marks``.

    Args:
        marks: the mark of each of these columns.

    Returns:
        What is wrong, without what to do about it.
    """
    said = " or ".join(dict.fromkeys(map(repr, marks.values())))
    return f"the column(s) {', '.join(marks)} hold numbers and {said}, which stands for a missing value"


def check_scale(mean: Array, *scales: Array) -> None:
    """Refuse to centre and to scale by what no columns of a table have, before a row is read.

    A node takes numbers below 2^-1022 as 0, which is a threshold in each column: behind the limits on columns, a scale
    of t 2^1022 would leave the rows above t.

    Args:
        mean: what columns are centred by.
        scales: what they are divided by.

    Raises:
        SafeError: a number is beyond 2^100, or a scale below 2^-100.
    """
    mean, sizes = np.abs(np.asarray(mean, np.float64)), [np.abs(np.asarray(scale, np.float64)) for scale in scales]
    if not (mean <= FURTHEST).all() or not all(((s >= 1 / FURTHEST) & (s <= FURTHEST)).all() for s in sizes):
        raise SafeError(
            "the task centres or divides a column by a number beyond 1e30 or below 1e-30; give the column in another "
            "unit, or leave it out"
        )


class Marks(NamedTuple):
    """Columns of numbers (c,), by their indices, in which few rows differ from all others; and the others' value."""

    columns: list[int]
    values: Array


@dataclass(frozen=True)
class Features:
    """Features of n rows: numbers, words and missing values.

    Attributes:
        names: names of the d columns, or their indices if the data are arrays.
        X: (n, d), float64 for a table, and in the arrays' own type for arrays; NaN if missing or a word.
        words: by its name, the words (n,) of each column of words; None if missing.
    """

    names: Sequence[str]
    X: Array
    words: Mapping[str, Array]

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.X)

    def take(self, index: Array | slice) -> "Features":
        """Choose rows.

        Args:
            index: their indices, or a slice.

        Returns:
            The features of these rows.
        """
        return Features(self.names, self.X[index], {name: w[index] for name, w in self.words.items()})

    @property
    def numeric(self) -> list[str]:
        """The columns of numbers."""
        return [name for name in self.names if name not in self.words]

    def numbers(self, columns: Sequence[str] | None = None) -> Array:
        """Return columns of numbers.

        Args:
            columns: their names; None means all columns of numbers.

        Returns:
            (n, columns), float64.

        Raises:
            SafeError: there is no such column.
        """
        wanted = self.numeric if columns is None else columns
        X = self.X if list(wanted) == list(self.names) else self.X[:, self.index(wanted)]
        return np.ascontiguousarray(X, dtype=np.float64)

    def with_numbers(self, columns: Sequence[str], X: Array) -> "Features":
        """Replace columns of numbers.

        Args:
            columns: their names.
            X: their new numbers (n, columns).

        Returns:
            The features with the new numbers.

        Raises:
            SafeError: there is no such column.
        """
        if list(columns) == list(self.names):
            return replace(self, X=X)
        whole = self.X.astype(np.float64)
        whole[:, self.index(columns)] = X
        return replace(self, X=whole)

    def index(self, columns: Sequence[str]) -> list[int]:
        """Find columns.

        Args:
            columns: their names.

        Returns:
            Their indices.

        Raises:
            SafeError: there is no such column.
        """
        at = {name: i for i, name in enumerate(self.names)}
        if absent := [c for c in columns if c not in at]:
            raise SafeError(f"no column {', '.join(absent)} among the features at this step; name columns of the table")
        return [at[c] for c in columns]

    def scarce(self, least: int) -> list[str]:
        """Find columns in which few rows have a value.

        Args:
            least: how many rows are no longer few.

        Returns:
            The columns in which at least one row has a value, fewer than ``least`` have, and not all have.
        """
        given = np.full(len(self.names), len(self))
        if self.X.dtype.kind == "f":
            given -= np.isnan(self.X).sum(axis=0)
        for name, i in zip(self.words, self.index(list(self.words)), strict=True):
            given[i] = len(self) - int(pd.isna(self.words[name]).sum())
        return [name for name, n in zip(self.names, given, strict=True) if 0 < n < min(least, len(self))]

    def without(self, columns: Sequence[str]) -> "Features":
        """Empty columns.

        Args:
            columns: their names.

        Returns:
            The features with missing values in these columns.

        Raises:
            SafeError: there is no such column.
        """
        if not columns:
            return self
        words = {name: np.full(len(self), None, dtype=object) for name in columns if name in self.words}
        X = self.X.astype(np.float64)
        X[:, self.index(columns)] = np.nan
        return Features(self.names, X, {**self.words, **words})

    def folded(self, least: int, filled: Collection[str] = (), like: "Features | None" = None) -> "Features":
        """Replace rare words, so that no task can separate fewer than ``least`` rows by a column's word.

        All words that fewer rows have become one word that is no level. If fewer rows then have that one, they get the
        column's most frequent word instead; so do missing words of so few rows in columns that a step fills.

        Args:
            least: how many rows must have a word.
            filled: columns whose missing values a step fills.
            like: the rows that are counted; None means these rows.

        Returns:
            The features with these words.
        """
        if least <= 1 or not self.words:
            return self
        words = {}
        for name, said in self.words.items():
            counted = said if like is None else like.words[name]
            codes, found = pd.factorize(np.concatenate([counted, said]))  # -1: missing
            rows = np.bincount(codes[: len(counted)] + 1, minlength=len(found) + 1)
            codes = codes[len(counted) :]
            new = np.array([*found, None], dtype=object)  # the last one is for -1
            rare = np.flatnonzero(rows[1:] < least)
            most = new[int(rows[1:].argmax())] if len(rare) < len(found) else UNKNOWN
            new[rare] = UNKNOWN if rows[1:][rare].sum() >= least else most
            new[-1] = most if rows[0] < least and name in filled else None
            words[name] = new[codes]
        return replace(self, words=words)

    def marks(self, least: int) -> "Marks":
        """Find columns of numbers that mark few rows: all others have one value, from which these few differ.

        Args:
            least: how many rows are no longer few.

        Returns:
            The columns, and the value that nearly all rows have.
        """
        n, d = self.X.shape
        if least <= 1 or not n:
            return Marks([], np.empty(0))
        # a value that all but a few rows have is the median of any 2 * least - 1 rows
        common = np.sort(self.X[: 2 * least - 1], axis=0)[min(n, 2 * least - 1) // 2]
        rest, others = np.arange(d), np.zeros(d, dtype=np.int64)
        start, size = 0, 4 * least  # a few rows are enough for most columns
        while start < n and len(rest):
            block = self.X[start : start + size]
            others[rest] += ((block if len(rest) == d else block[:, rest]) != common[rest]).sum(axis=0)
            rest = rest[others[rest] < least]
            start, size = start + size, BLOCK
        marking = {int(i): common[i] for i in rest if others[i]}
        if self.X.dtype.kind == "f":
            for i in np.flatnonzero(np.isnan(self.X.min(axis=0))).tolist():
                values, rows = np.unique(self.X[~np.isnan(self.X[:, i]), i], return_counts=True)
                marking.pop(i, None)
                if len(values) and 0 < rows.sum() - rows.max() < least:
                    marking[i] = values[rows.argmax()]
        return Marks([*marking], np.array([*marking.values()], dtype=self.X.dtype))

    def without_marks(self, marks: "Marks") -> "Features":
        """Make columns constant, except for missing values.

        Args:
            marks: the columns, and their values.

        Returns:
            The features with these values.
        """
        if not marks.columns:
            return self
        X = self.X.copy()
        part = X[:, marks.columns]
        X[:, marks.columns] = np.where(part == part, marks.values, part)  # NaN is not equal to itself
        return replace(self, X=X)

    def check_complete(self, step: str = "training", missing: bool = False) -> None:
        """Check that all values are numbers.

        Args:
            step: what needs them, for the error.
            missing: whether values may be missing.

        Raises:
            UnfitColumns: columns hold words, or missing or infinite values.
        """
        if self.words:
            raise UnfitColumns(
                f"the column(s) {', '.join(self.words)} hold values that are not numbers",
                f"{step} needs numbers: {ONEHOT}, or {OMIT}",
            )
        if missing:
            self.check_finite()
        elif bad := self._beyond(np.maximum, np.minimum):
            self.check_finite()
            raise UnfitColumns(
                f"missing values in the column(s) {', '.join(bad)}",
                f"{step} needs complete columns: add a step impute before it, which fills them (--preprocess impute), "
                f"or {OMIT}",
            )

    def check_finite(self) -> None:
        """Check that no value is infinite, whatever steps follow.

        Raises:
            UnfitColumns: columns hold infinite values.
        """
        if bad := self._beyond(np.fmax, np.fmin):
            raise UnfitColumns(
                f"infinite values (or beyond 3.4e38) in the column(s) {', '.join(bad)}",
                f"correct them in the data, or {OMIT}",
            )

    def _beyond(self, largest: np.ufunc, smallest: np.ufunc) -> list[str]:
        """The columns whose extremes are not finite in float32, found without a copy of X."""
        if not len(self):
            return []
        limit = np.finfo(np.float32).max
        if self.X.size and -limit <= self.X.min() and self.X.max() <= limit:  # several times as fast as by column
            return []
        most = np.maximum(largest.reduce(self.X, axis=0), -smallest.reduce(self.X, axis=0))
        fine = most <= limit if largest is np.maximum else ~(most > limit)
        return [name for name, good in zip(self.names, fine, strict=True) if not good]
