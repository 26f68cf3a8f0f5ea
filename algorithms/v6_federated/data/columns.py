"""Features between the steps: numbers, words and missing values, as in a table."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from v6_federated.base.arrays import Array
from v6_federated.base.errors import SafeError
from v6_federated.base.vantage6_api import DataError

DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
# text that is nearly a number: with a comma instead of the point, a sign like <, or a percentage
ALMOST = re.compile(r"[<>~=]*\s*[+-]?(\d{1,3}(?:[.,]\d{3})*|\d+)([.,]\d+)?\s*%?", re.ASCII)
TRUE, FALSE = ("True", "TRUE", "true"), ("False", "FALSE", "false")  # pandas reads a column of only these as 1 and 0
KINDS = ("words", "mixed", "empty")  # of columns that are not all numbers
ONEHOT = "add a step onehot (--preprocess onehot)"
OMIT = "leave these columns out (--features names those to use)"
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
        for start in range(0, n, BLOCK):
            block = self.X[start : start + BLOCK]
            others[rest] += (block[:, rest] != common[rest]).sum(axis=0)
            rest = rest[others[rest] < least]
        marking = {int(i): common[i] for i in rest if others[i]}
        if self.X.dtype.kind == "f":
            for i in np.flatnonzero(np.isnan(self.X).any(axis=0)).tolist():
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

    def check_complete(self, step: str = "training") -> None:
        """Check that all values are numbers.

        Args:
            step: what needs them, for the error.

        Raises:
            UnfitColumns: columns hold words, or missing or infinite values.
        """
        if self.words:
            raise UnfitColumns(
                f"the column(s) {', '.join(self.words)} hold values that are not numbers",
                f"{step} needs numbers: {ONEHOT}, or {OMIT}",
            )
        if bad := self._beyond(np.maximum, np.minimum):
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
        most = np.maximum(largest.reduce(self.X, axis=0), -smallest.reduce(self.X, axis=0))
        fine = most <= np.finfo(np.float32).max if largest is np.maximum else ~(most > np.finfo(np.float32).max)
        return [name for name, good in zip(self.names, fine, strict=True) if not good]


def read_features(table: pd.DataFrame, columns: Sequence[str], categories: Sequence[str] | None = None) -> Features:
    """Read columns of a table.

    Text that reads as a decimal number is that number; empty text is missing. In a column of words, a number is named
    by its shortest text: 1.0 and "01" are "1".

    Args:
        table: the table.
        columns: the columns to read.
        categories: those that hold words; None means that no steps follow, so that all must hold numbers.

    Returns:
        The features.

    Raises:
        DataError: a column holds words and is not among the categories, or values of another kind.
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
        raise UnfitColumns(f"the column(s) {', '.join(text)} hold values that are not numbers", f"{ONEHOT}, or {OMIT}")
    return Features(list(columns), X, words)


def as_features(X: Array) -> Array:
    """Turn an array into features.

    Args:
        X: numbers (n, ...).

    Returns:
        (n, d): pixels of 8 bits divided by 255, other numbers as they are; float32 if it holds all values of the
        array's type, otherwise float64.

    Raises:
        DataError: the array holds other values, or none.
    """
    flat = X.reshape(len(X), -1)
    if flat.dtype == np.uint8:
        return flat.astype(np.float32) / np.float32(255)
    if flat.dtype.kind not in "fiub":
        raise DataError("the array x holds values that are not numbers; expected numbers")
    if not flat.shape[1]:
        raise DataError("the array x has no features; expected at least one")
    with np.errstate(over="ignore"):
        numbers = np.asarray(flat, dtype=np.float32 if np.can_cast(flat.dtype, np.float32) else np.float64)
    if not np.isfinite(numbers).all():
        raise DataError("missing or infinite values in the array x; expected none")
    return numbers


def kinds(table: pd.DataFrame, columns: Sequence[str]) -> dict[str, list[str]]:
    """Sort columns by what they hold.

    Args:
        table: the table.
        columns: the columns to sort.

    Returns:
        Columns of words only ("words"), of words and numbers ("mixed") and of nothing ("empty"); all others hold
        numbers.

    Raises:
        DataError: a column holds values that are neither numbers nor words.
    """
    found: dict[str, list[str]] = {kind: [] for kind in KINDS}
    frame = table[list(columns)]
    numeric = _numeric(frame)
    found["empty"] = [str(c) for c, empty in frame[[c for c in columns if c in numeric]].isna().all().items() if empty]
    for name in columns:
        if name in numeric:
            continue
        numbers, said = _read_column(table[name])
        found_words = [word for word in said if word is not None]
        some_numbers, some_words = not np.isnan(numbers).all(), bool(found_words)
        # nearly numbers: a column of categories only if the request says so
        some_numbers |= some_words and all(map(ALMOST.fullmatch, found_words))
        kind = {(False, True): "words", (True, True): "mixed", (False, False): "empty"}.get((some_numbers, some_words))
        if kind:
            found[kind].append(name)
    return found


def _numeric(frame: pd.DataFrame) -> set[str]:
    """The columns that pandas holds as numbers."""
    return {str(c) for c, dtype in frame.dtypes.items() if pd.api.types.is_numeric_dtype(dtype)}


def _read_column(column: "pd.Series[Any]") -> tuple[Array, Array]:
    """A column's numbers, NaN if there is none, and words, None if there is none, (n,) each."""
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


def _named(numbers: Array, said: Array) -> Array:
    """Words, with numbers by their shortest text; a column of only true and false becomes one of 1 and 0."""
    given = ~np.isnan(numbers)
    said[given] = [shortest(v) for v in numbers[given]]
    said[np.isin(said.astype(str), TRUE)], said[np.isin(said.astype(str), FALSE)] = "1", "0"
    return said


def shortest(number: float) -> str:
    """Write a number as its shortest text.

    Args:
        number: a number.

    Returns:
        The text: whole numbers have no decimal point.
    """
    return str(int(number)) if float(number).is_integer() else repr(float(number))
