"""Reading a table cell by cell, for a node with a privacy budget: what a cell is read as hangs on nothing but itself.

pandas chooses the type of a column from all of its cells, so that one odd cell changes how it reads the others: a whole
number from 2^63 on makes words of all others, an empty line in a table of one column moves all rows below it. Here a
cell of text is a text, and a cell of Excel or Parquet has the type that the file gives it. ``data.declared`` makes
numbers, levels and classes of them, as the schema says.

A line is never refused for what its cells hold. Only a file in which quotes do not match is, since one quote too many
would make many rows a single cell. No program that writes csv makes such a file.
"""

import csv
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

# texts that pandas, too, reads as missing
MISSING = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA"),
    *("NULL", "NaN", "None", "n/a", "nan", "null"),
)
MOST_KNOWN = 2**20  # texts that are held once, however many cells have them
LONGEST = 2**31 - 1  # letters of a cell: the largest limit that the csv module can be given
QUOTE, NUL, REPLACED = '"', "\0", "\ufffd"


class Unmatched(ValueError):
    """Quotes of a text file do not match."""


def of_lines(lines: Iterable[str], separator: str) -> pd.DataFrame:
    """Read the lines of a text file. Each line is a row, also an empty one; a quoted cell may have several lines.

    Within a line, other characters that end lines elsewhere are read as spaces.

    A line with fewer cells than there are columns lacks the last ones. One with more has no value at all: which of its
    cells is which column's cannot be known.
    """
    csv.field_size_limit(LONGEST)
    rows = csv.reader(_checked(lines, separator), delimiter=separator)
    names = next((row for row in rows if len(row) > 1 or any(map(str.strip, row))), [])
    return _table(names, list(_texts(rows, len(names))))


def of_excel(file: Path, sheet: str | None) -> pd.DataFrame:
    """Read a sheet of an Excel file. Rows below the last one that has a value are no rows."""
    from openpyxl import load_workbook

    book = load_workbook(file, read_only=True, data_only=True, keep_links=False)
    try:
        found = book.worksheets[0] if sheet is None else book[sheet]
        found.reset_dimensions()  # what some programs write is wrong
        rows = [list(row) for row in found.iter_rows(values_only=True)]
    finally:
        book.close()
    while rows and _is_empty(rows[-1]):
        rows.pop()
    first = next((i for i, row in enumerate(rows) if not _is_empty(row)), len(rows))
    width = max(map(len, rows), default=0)
    names, *others = [[*row, *[None] * (width - len(row))] for row in rows[first:]] or [[]]
    named = ["" if name is None else str(name) for name in names]
    return _table(named, [[None if _is_missing(cell) else cell for cell in row] for row in others])


def of_parquet(file: Path) -> pd.DataFrame:
    """Read a Parquet file."""
    from pyarrow import parquet

    table = parquet.read_table(file)
    found = pd.DataFrame({i: _column(column) for i, column in enumerate(table.columns)}, index=range(len(table)))
    return found.set_axis(table.column_names, axis=1)


def _checked(lines: Iterable[str], separator: str) -> Iterator[str]:
    """Lines in which a quote opens a cell, closes one, or is one of two within a quoted cell (RFC 4180).

    Then whether a cell is open at the end of a line follows from the number of quotes until there, even or odd. So a
    line after which another one would be read otherwise makes the number of all quotes odd, and is refused at the end
    of the file if not before: one row changes how no other is read.
    """
    is_open = False
    for line in lines:
        text = line.removesuffix("\n").removesuffix("\r")
        if QUOTE in text:
            parts = text.split(QUOTE)
            for i, part in enumerate(parts):
                if not (i % 2 == 0) ^ is_open or not part:  # within quotes, or between the two for one quote
                    continue
                after_a_cell, before_one = i > 0, i < len(parts) - 1
                if (after_a_cell and part[0] != separator) or (before_one and part[-1] != separator):
                    raise Unmatched
            is_open ^= len(parts) % 2 == 0
        yield text.replace(NUL, REPLACED).replace("\r", " ").replace("\n", " ") + "\n"
    if is_open:
        raise Unmatched


def _texts(rows: Iterable[Sequence[str]], width: int) -> Iterator[list[str | None]]:
    """Cells as texts, None where they are missing."""
    known: dict[str, str | None] = dict.fromkeys(MISSING)
    for row in rows:
        if len(row) > width and any(row[width:]):
            yield [None] * width
            continue
        if len(known) > MOST_KNOWN:
            known = dict.fromkeys(MISSING)
        yield [*(known.setdefault(cell, cell) for cell in row[:width]), *[None] * (width - len(row))]


def _table(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> pd.DataFrame:
    """A table, whose columns without names are called as pandas does."""
    named = [name or f"Unnamed: {i}" for i, name in enumerate(names)]
    return pd.DataFrame(rows, columns=pd.Index(named, dtype=object), dtype=object)


def _is_empty(row: Sequence[Any]) -> bool:
    return all(cell is None for cell in row)


def _is_missing(cell: Any) -> bool:
    return isinstance(cell, str) and cell in MISSING


def _column(column: Any) -> "pd.Series[Any]":
    """A column of Arrow's, whose type is the file's."""
    from pyarrow import large_binary, types

    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if types.is_integer(kind) or types.is_floating(kind):  # missing ones make floats of all, which are read as the same
        numbers: pd.Series[Any] = column.to_pandas()
        return numbers
    if types.is_string(kind) or types.is_large_string(kind):  # whose bytes nobody has checked
        texts = column.cast(large_binary()).to_pylist()
        found = [None if text is None else text.decode("utf-8", "replace") for text in texts]
    else:
        found = [*map(_value, column)]
    return pd.Series(found, dtype=object)


def _value(cell: Any) -> Any:
    try:
        return cell.as_py()
    except (ValueError, OverflowError):  # a day that Python does not have
        return None
