"""The settings of a method."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table

from v6_workbench.reporting.tables.cells import empty


def settings_table(arguments: Sequence[Mapping[str, Any]]) -> Table:
    """Make a table of a method's settings.

    Args:
        arguments: the settings as the method's entry in an algorithm store has them.

    Returns:
        The table.
    """
    out = empty()
    for heading in ("setting", "default", "meaning"):
        out.add_column(heading, overflow="fold", no_wrap=heading == "setting")
    for argument in arguments:
        default = argument.get("default_value", "") if argument["has_default_value"] else "required"
        allowed = argument.get("allowed_values")
        meaning = argument["description"] + (f"; one of {', '.join(map(str, allowed))}" if allowed else "")
        out.add_row(argument["name"], str(default), escape(meaning))
    return out
