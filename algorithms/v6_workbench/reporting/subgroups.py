"""What tables say about a subgroup beside its counts: recalls, and an interval of its accuracy."""

from collections.abc import Mapping
from typing import Any

from v6_workbench.reporting.intervals import Interval, accuracy_interval


def recalls(row: Mapping[str, Any]) -> list[float | None]:
    """Return the recall of each class.

    Args:
        row: a subgroup of a result.

    Returns:
        The share of each class's rows that were predicted right; None of a class without rows.
    """
    return [own[i] / sum(own) if sum(own) else None for i, own in enumerate(row["confusion"])]


def interval(result: Mapping[str, Any], row: Mapping[str, Any]) -> Interval | None:
    """Return the 95% interval of a subgroup's accuracy.

    Args:
        result: the result.
        row: one of its subgroups.

    Returns:
        The interval; None if it is not known.
    """
    # nodes round each subgroup's counts as they round those of all rows
    rounding = (result["final"].get("accuracy_error") or 0.0) * result["final"]["evaluated"]
    return accuracy_interval({"final": {**row, "accuracy_error": rounding / row["evaluated"]}})
