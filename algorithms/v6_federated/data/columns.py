"""Features on their way through the steps: numbers, words and missing values, as a table holds them."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from v6_federated.base.errors import SafeError
from v6_federated.base.vantage6_api import DataError

DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
# what is no number yet: a comma for the point, signs like <, a percentage
ALMOST = re.compile(r"[<>~=]*\s*[+-]?(\d{1,3}(?:[.,]\d{3})*|\d+)([.,]\d+)?\s*%?", re.ASCII)
TRUE, FALSE = ("True", "TRUE", "true"), ("False", "FALSE", "false")  # that pandas takes for 1 and 0, if all are
KINDS = ("words", "mixed", "empty")  # of columns, beside those of numbers
UNKNOWN = object()  # in place of a word that is too rare to be told: equal to no level


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
        X = self.X if list(wanted) == list(self.names) else self.X[:, self.index(wanted)]
        return np.ascontiguousarray(X, dtype=np.float64)

    def with_numbers(self, columns: Sequence[str], X: np.ndarray) -> "Features":
        """The same with other numbers in some columns."""
        if list(columns) == list(self.names):
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

    def scarce(self, least: int) -> list[str]:
        """The columns in which some rows, but fewer than ``least``, have a value; complete ones are none of them."""
        given = np.full(len(self.names), len(self))
        if self.X.dtype.kind == "f":
            given -= np.isnan(self.X).sum(axis=0)
        for name, i in zip(self.words, self.index(list(self.words)), strict=True):
            given[i] = len(self) - int(pd.isna(self.words[name]).sum())
        return [name for name, n in zip(self.names, given, strict=True) if 0 < n < min(least, len(self))]

    def without(self, columns: Sequence[str]) -> "Features":
        """The same with nothing in some columns."""
        if not columns:
            return self
        words = {name: np.full(len(self), None, dtype=object) for name in columns if name in self.words}
        X = self.X.astype(np.float64)
        X[:, self.index(columns)] = np.nan
        return Features(self.names, X, {**self.words, **words})

    def folded(self, least: int, filled: Collection[str] = ()) -> "Features":
        """The same with one word that is no level in place of all words that fewer than ``least`` rows have; and with
        the most frequent word where so few rows then have that one, or, in columns that a step is to have ``filled``,
        none: by a word, whatever levels or values a task names, fewer rows are no group of their own."""
        if least <= 1 or not self.words:
            return self
        words = {}
        for name, said in self.words.items():
            codes, found = pd.factorize(said)  # -1: missing
            rows = np.bincount(codes + 1, minlength=len(found) + 1)
            told = np.array([*found, None], dtype=object)  # the last one is that of -1
            rare = np.flatnonzero(rows[1:] < least)
            most = told[int(rows[1:].argmax())] if len(rare) < len(found) else UNKNOWN
            told[rare] = UNKNOWN if rows[1:][rare].sum() >= least else most
            told[-1] = most if rows[0] < least and name in filled else None
            words[name] = told[codes]
        return replace(self, words=words)

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
            raise DataError(f"infinite values (or beyond 3.4e38) in the column(s) {', '.join(bad)}; expected none")

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
        found_words = [word for word in said if word is not None]
        some_numbers, some_words = not np.isnan(numbers).all(), bool(found_words)
        # numbers that are no categories unless it is said
        some_numbers |= some_words and all(map(ALMOST.fullmatch, found_words))
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
    """Words, with numbers by their shortest text; a column of nothing else than true and false is one of 1 and 0."""
    given = ~np.isnan(numbers)
    said[given] = [shortest(v) for v in numbers[given]]
    said[np.isin(said.astype(str), TRUE)], said[np.isin(said.astype(str), FALSE)] = "1", "0"
    return said


def shortest(number: float) -> str:
    return str(int(number)) if float(number).is_integer() else repr(float(number))
