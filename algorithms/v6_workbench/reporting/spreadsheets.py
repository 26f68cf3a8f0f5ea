"""Tables for people, as ``.csv`` files that a spreadsheet shows and does not run."""

import csv
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from v6_federated.data.reading import DECIMAL

FORMULA = re.compile(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n]")  # how a formula begins; also in full width


def write(table: pd.DataFrame, path: Path) -> None:
    """Write a table as a ``.csv`` file. Every text is quoted, so that no separator within it begins a cell.

    Args:
        table: the table; its texts may come from anybody, such as names of classes from a node.
        path: the file.

    Raises:
        OSError: the file cannot be written.
    """
    safe = {i: _inert_column(table.iloc[:, i]) for i in range(table.shape[1])}
    names = pd.Index([_inert(name) for name in table.columns])
    pd.DataFrame(safe).set_axis(names, axis=1).to_csv(path, index=False, quoting=csv.QUOTE_NONNUMERIC)


def _inert_column(column: "pd.Series[Any]") -> "pd.Series[Any]":
    if column.dtype == np.float32:  # pandas would write all digits that it has in float64
        return column.astype(str).astype(float)
    return column if column.dtype.kind in "iufb" else column.map(_inert, na_action="ignore")


def _inert(cell: Any) -> Any:
    """A cell that is no formula: a text that would be one gets an apostrophe, as spreadsheets mark text themselves."""
    formula = isinstance(cell, str) and FORMULA.match(cell) and not DECIMAL.fullmatch(cell)
    return f"'{cell}" if formula else cell
