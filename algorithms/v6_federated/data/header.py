"""Whether a table has a header. Without one, its first row would be taken for the names of columns and leave the node.

Only what can be told from the table is found: a first row of words that no other row has passes for a header.
"""

import re
from typing import Any

import numpy as np
import pandas as pd

from v6_federated.base.arrays import Array
from v6_federated.data.reading import ALMOST, DECIMAL, FALSE, TRUE

# names that a first row without a value gets, or leaves
BLANK = re.compile(r"Unnamed: \d+|n/?a|nan|null|none|[^\w]*", re.IGNORECASE)
SAMPLE, COLUMNS = 100, 100  # values, and columns, whose form is compared with the names; there may be thousands
RUN = 3  # numbers in a row that pandas writes for columns without names; a patient may have 0, or 1 and 2


def missing(table: pd.DataFrame) -> str | None:
    """Find signs that the names of a table's columns are its first row.

    Args:
        table: the table, its columns named by texts.

    Returns:
        What is wrong, without any name or value; None if there is no sign.
    """
    there = {*map(str, table.columns)}
    names = [_as_in_file(str(name), there) for name in table.columns]
    numbers = [name for name in names if _is_number(name)]
    if numbers:
        if not any(numbers == [*map(str, range(first, first + len(numbers)))] for first in (0, 1)):
            return "the names of some columns are numbers"
        if len(numbers) >= RUN:
            return None
    words = [not (_is_number(name) or BLANK.fullmatch(name) or name in TRUE + FALSE) for name in names]
    if any(word and dtype.kind in "iuf" for word, dtype in zip(words, table.dtypes, strict=True)):
        return None  # a word above a column of numbers is a name
    for i, name in enumerate(names[:COLUMNS]):
        if words[i] and _has_form_of(table.iloc[:, i], name):
            return "the name of a column is written like its values, with other digits"
    return _named_like_a_row(table, names)


def _named_like_a_row(table: pd.DataFrame, names: list[str]) -> str | None:
    """What is wrong if a row, or each column of categories, has the columns' names."""
    alike = np.full(len(table), len(names) > 1)
    categories, named = 0, 0
    for i, name in enumerate(names):
        column = _comparable(table.iloc[:, i])
        own = _equal(column, name)
        alike &= own
        if not BLANK.fullmatch(name) and 1 < column.nunique() <= len(table) / 2:
            categories += 1
            named += own.sum() > 1
        if named < categories and not alike.any():
            return None
    if alike.any():
        return "a row repeats the names of the columns"
    return "the names of the columns are among their values" if categories > 1 else None


def _as_in_file(name: str, names: set[str]) -> str:
    """A name without the number that pandas adds if it occurs twice: 84.5.1 is 84.5."""
    before, dot, count = name.rpartition(".")
    return (before if dot and count.isdecimal() and before in names else name).strip()


def _is_number(name: str) -> bool:
    return bool(DECIMAL.fullmatch(name) or ALMOST.fullmatch(name))


def _has_form_of(column: "pd.Series[Any]", name: str) -> bool:
    """Whether all values are like the name, except for their digits, and mostly differ: dates and identifiers."""
    if not re.search(r"\d", name) or column.dtype.kind in "iufb":
        return False
    values = column.dropna().head(SAMPLE).astype(str).str.strip()
    form = re.sub(r"\d+", "9", name)
    return values.nunique() > max(1, len(values) / 2) and bool(
        (values.str.replace(r"\d+", "9", regex=True) == form).all()
    )


def _comparable(column: "pd.Series[Any]") -> "pd.Series[Any]":
    """Numbers as they are, and the text of all other values, which may be of any type; missing ones stay missing."""
    return column if column.dtype.kind in "iuf" else column.astype(str).str.strip().where(column.notna())


def _equal(column: "pd.Series[Any]", name: str) -> Array:
    """Which values are the same text or number as the column's name, (n,); a blank name is a missing value."""
    if BLANK.fullmatch(name):
        return column.isna().to_numpy()
    if column.dtype.kind in "iuf":
        return (column == float(name)).to_numpy() if DECIMAL.fullmatch(name) else np.zeros(len(column), dtype=bool)
    return (column == name).to_numpy()
