"""Columns of tables, and how numbers are written in them."""

from collections.abc import Mapping
from typing import Any

from rich.table import Table


def empty(name: str | None = None) -> Table:
    """Make a table without lines and rows.

    Args:
        name: heading of a first column of names, which may take several lines; None is no such column.

    Returns:
        The table.
    """
    out = Table(box=None, pad_edge=False)
    if name is not None:
        out.add_column(name, overflow="fold")
    return out


def add_numbers(table: Table, *headings: str, no_wrap: bool = False) -> None:
    """Add columns of numbers.

    Args:
        table: the table.
        headings: a heading for each column.
        no_wrap: keep cells in one line.
    """
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=no_wrap)


def number(value: float | None, form: str) -> str:
    """Write a number.

    Args:
        value: the number; None if there is none.
        form: its format.

    Returns:
        The cell.
    """
    return "-" if value is None else format(value, form)


def between(row: Mapping[str, Any], lower: str, upper: str, form: str) -> str:
    """Write an interval.

    Args:
        row: a row with its ends.
        lower: name of the lower end.
        upper: name of the upper end.
        form: format of both.

    Returns:
        The cell.
    """
    low, high = row[lower], row[upper]
    return "-" if low is None or high is None else f"{low:{form}} to {high:{form}}"


def p_value(p: float) -> str:
    """Write a p-value.

    Args:
        p: the value.

    Returns:
        The cell.
    """
    return "<0.001" if p < 0.001 else f"{p:.3f}"
