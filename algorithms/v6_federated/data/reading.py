"""Reading features: columns of a table, whose text may be numbers, and arrays."""

import datetime
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from v6_federated.base.arrays import Array
from v6_federated.base.tables import MARKS
from v6_federated.base.vantage6_api import DataError
from v6_federated.data.columns import COMMAS, DATES, EMPTY, OMIT, ONEHOT, Features, UnfitColumns, marked

DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
# text that is nearly a number: with a comma instead of the point, a sign like <, or a percentage
ALMOST = re.compile(r"[<>~=]*\s*[+-]?(\d{1,3}(?:[.,]\d{3})*|\d+)([.,]\d+)?\s*%?", re.ASCII)
# a day as 2024-03-01, 1.3.2024 or 3/1/24, with a time or without
DATE = re.compile(
    r"(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d{2}))([T ]\d{1,2}:\d{2}(:\d{2})?[^a-zA-Z]*Z?)?",
    re.ASCII,
)
# a number with commas, as text: pandas reads it as a word where commas separate columns, and in Excel
COMMA = re.compile(r"[+-]?[\d.,]*,[\d.]+", re.ASCII)
TRUE, FALSE = ("True", "TRUE", "true"), ("False", "FALSE", "false")  # pandas reads a column of only these as 1 and 0
KINDS = ("words", "mixed", "empty")  # of columns that are not all numbers


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
    X, words, text, mixed = np.full((len(frame), len(columns)), np.nan), {}, [], []
    for i, name in enumerate(columns):
        if name in plain:
            X[:, i] = frame[name].to_numpy(dtype=np.float64, na_value=np.nan)
            continue
        numbers, said = numbers_and_words(frame[name])
        if name in named:
            words[name] = _named(numbers, said)
        elif categories is None or any(word is not None for word in said):
            text.append(name)
            mixed += [] if np.isnan(numbers).all() else [name]
        X[:, i] = np.nan if name in words else numbers
    if text:
        _check_written(frame, text)
        if mixed:
            together = ",".join(map(str, mixed))
            raise UnfitColumns(
                f"some values in the column(s) {', '.join(map(str, mixed))} are not numbers",
                "correct them, or empty those cells; if the columns are categories, name them in a step onehot "
                f"(--preprocess onehot:{together}), or {OMIT}",
            )
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
        DataError: a column holds dates, or values that are neither numbers nor words.
    """
    found: dict[str, list[str]] = {kind: [] for kind in KINDS}
    frame = table[list(columns)]
    numeric, found_dates = _numeric(frame), list[str]()
    found["empty"] = [str(c) for c, empty in frame[[c for c in columns if c in numeric]].isna().all().items() if empty]
    for name in columns:
        if name in numeric:
            continue
        numbers, said = numbers_and_words(table[name])
        found_words = [word for word in said if word is not None]
        if found_words and np.isnan(numbers).all() and all(map(DATE.fullmatch, found_words)):
            found_dates.append(str(name))
        some_numbers, some_words = not np.isnan(numbers).all(), bool(found_words)
        # nearly numbers: a column of categories only if the request says so
        some_numbers |= some_words and all(map(ALMOST.fullmatch, found_words))
        kind = {(False, True): "words", (True, True): "mixed", (False, False): "empty"}.get((some_numbers, some_words))
        if kind:
            found[kind].append(name)
    if found_dates:
        raise _dates(found_dates)
    return found


def dates(table: pd.DataFrame, columns: Sequence[str]) -> list[str]:
    """Find columns of dates.

    Args:
        table: the table.
        columns: the columns to look at.

    Returns:
        Those that hold dates, as dates or as text.
    """
    found = []
    for name in columns:
        values = table[name].dropna()
        said = [value.strip() for value in values if isinstance(value, str)] if values.dtype.kind == "O" else []
        written = bool(said) and len(said) == len(values) and all(map(DATE.fullmatch, said))
        if written or _holds_dates(table[name]):
            found.append(str(name))
    return found


def _holds_dates(column: "pd.Series[Any]") -> bool:
    return column.dtype.kind == "M" or any(isinstance(value, datetime.date) for value in column.dropna().head(1))


def marks(table: pd.DataFrame, columns: Sequence[str]) -> dict[str, str]:
    """Find columns of numbers in which a mark stands for missing values, so that they are no numbers for pandas.

    Args:
        table: the table.
        columns: columns that do not hold numbers only.

    Returns:
        The mark of each such column, one of ``MARKS``.
    """
    found = {str(name): mark_of(table[name]) for name in columns}
    return {name: mark for name, mark in found.items() if mark}


def mark_of(column: "pd.Series[Any]") -> str:
    """Find the mark that stands for missing values in a column of numbers.

    Args:
        column: the column (n,), of numbers and texts.

    Returns:
        The mark, one of ``MARKS``; empty if there is none, or if there are other words.
    """
    values = column.dropna().unique()
    texts = {value.strip() for value in values if isinstance(value, str)} - {""}
    others = {text for text in texts if text.casefold() not in MARKS}
    if len(others) == len(texts) or not all(map(_is_nearly_a_number, others)):
        return ""
    if not others and all(isinstance(value, str) for value in values):
        return ""  # nothing but marks
    return next(mark for mark in MARKS if mark in {text.casefold() for text in texts})


def _is_nearly_a_number(text: str) -> bool:
    return any(form.fullmatch(text) for form in (DECIMAL, ALMOST, COMMA))


def _check_written(frame: pd.DataFrame, columns: Sequence[str]) -> None:
    """Refuse columns that hold a mark for missing values, dates, or numbers with commas.

    For others, the caller's error helps more.
    """
    if found := marks(frame, columns):
        raise UnfitColumns(marked(found), EMPTY)
    said = {name: [word for word in numbers_and_words(frame[name])[1] if word is not None] for name in columns}
    if found_dates := [name for name, words in said.items() if words and all(map(DATE.fullmatch, words))]:
        raise _dates(found_dates)
    if commas := [name for name, words in said.items() if words and all(map(COMMA.fullmatch, words))]:
        named = ",".join(commas)
        raise UnfitColumns(f"the column(s) {named} hold numbers with commas as text", f"{COMMAS}{named}")


def _dates(columns: Sequence[str]) -> UnfitColumns:
    named = ",".join(columns)
    return UnfitColumns(f"the column(s) {named} hold dates", f"{DATES}, or leave them out (--exclude {named})")


def _numeric(frame: pd.DataFrame) -> set[str]:
    """The columns that pandas holds as numbers."""
    return {str(c) for c, dtype in frame.dtypes.items() if pd.api.types.is_numeric_dtype(dtype) and dtype.kind != "c"}


def numbers_and_words(column: "pd.Series[Any]") -> tuple[Array, Array]:
    """Read the cells of a column one by one.

    Args:
        column: the column (n,).

    Returns:
        Its numbers, NaN where there is none, and its words, None where there is none, (n,) each.

    Raises:
        DataError: it holds dates, or values that are neither numbers nor words.
    """
    if _holds_dates(column):
        raise _dates([str(column.name)])
    if column.dtype.kind == "c":
        raise DataError(f"the column {column.name} holds complex numbers; expected real ones, or leave it out")
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
