"""The course of a training: results side by side, and the rounds of one."""

from collections.abc import Mapping
from typing import Any

from rich.markup import escape
from rich.table import Table

from v6_federated.messages.result import Round
from v6_workbench.reporting.hospitals import called
from v6_workbench.reporting.summary import Result, simulated, spent, summary
from v6_workbench.reporting.summary import measures as measures_of
from v6_workbench.reporting.tables.cells import add_numbers, empty, number

SHARED_COLUMNS = {*Round.model_fields} - {"uploads"}  # of a history; all others are a method's own


def table(results: Mapping[str, Result], target: float | None = None) -> Table:
    """Make a table with a line for each result. Measures that no result has are left out.

    Args:
        results: results by their names.
        target: accuracy to count the rounds, uploads and bytes to.

    Returns:
        The table.
    """
    out = empty()
    units = [("rounds", "rounds", 1, ".1f"), ("uploads", "uploads", 1, ".1f"), ("bytes", "MB", 1e6, ".3f")]
    if simulated(results):
        units.append(("seconds", "s", 1, ".1f"))
    reached = [] if target is None else [f"{name} to {100 * target:g}%" for _, name, *_ in units]
    last = [result["history"][-1] for result in results.values()]
    known = {label: key for label, key in measures_of(results).items() if any(row[key] is not None for row in last)}
    measures = {**known, **({"loss": "loss"} if any(row["loss"] is not None for row in last) else {})}
    for heading in ("", "rounds", *measures, *reached, "uploads", "MB up", "MB down", "s"):
        out.add_column(heading, justify="left" if heading == "" else "right", no_wrap=heading != "", overflow="fold")
    for name, result in results.items():
        s = summary(result, target)
        to = [(s[f"{unit}_to_target"], scale, form) for unit, _, scale, form in units if target is not None]
        costs = ["not reached" if cost is None else format(cost / scale, form) for cost, scale, form in to]
        out.add_row(
            escape(name),
            str(s["rounds"]),
            *(number(s[key], ".4f") for key in measures.values()),
            *costs,
            str(s["uploads"]),
            f"{s['bytes_up'] / 1e6:.3f}",
            f"{s['bytes_down'] / 1e6:.3f}",
            f"{s['seconds']:.2f}",
        )
    return out


def rounds_table(result: Result, lines: int = 12) -> Table:
    """Make a table of some rounds of a result, evenly spaced, the first and the last among them.

    Measures that no round has are left out.

    Args:
        result: the result.
        lines: about how many rounds to show; rounds in which answers were missing are all shown.

    Returns:
        The table.
    """
    history = result["history"]
    step = max(1, -(-len(history) // lines))
    out = empty()
    measures = measures_of({"": result})
    time = dict(zip((row["round"] for row in history), spent(result, "seconds"), strict=True))
    clock = ["s"] if simulated({"": result}) else []  # otherwise seconds are those of this machine
    measures = {"train loss": "train_loss", "loss": "loss", **measures}
    measures = {name: key for name, key in measures.items() if any(row.get(key) is not None for row in history)}
    changes = ["change"] if any(row.get("change") is not None for row in history) else []
    add_numbers(out, "round", "nodes", "rows", *measures, *changes, "kB up", "kB down", *clock)
    own = [
        name
        for name, value in history[-1].items()
        if name not in SHARED_COLUMNS
        and isinstance(value, int | float)
        and all(isinstance(row.get(name), int | float | None) for row in history)
    ]
    add_numbers(out, *(name.replace("_", " ") for name in own))
    if any(row.get("missing") for row in history):
        out.add_column("missing")
    for row in [
        r for r in history if r["round"] % step == 0 or r is history[-1] or r is history[0] or r.get("missing")
    ]:
        out.add_row(
            str(row["round"]),
            str(len(row["participants"])),
            str(row["n"]),
            *(number(row[key], ".4f") for key in measures.values()),
            *(number(row.get(key), ".2g") for key in changes),
            f"{row['bytes_up'] / 1e3:.1f}",
            f"{row['bytes_down'] / 1e3:.1f}",
            *([f"{time[row['round']]:.1f}"] if clock else []),
            *(number(row.get(name), "" if isinstance(row.get(name), int) else ".4g") for name in own),
            *([_missing(result, row)] if row.get("missing") else []),
        )
    return out


def _missing(result: Result, row: Mapping[str, Any]) -> str:
    reasons: dict[str, list[int]] = {}
    for absent in row["missing"]:
        reasons.setdefault(absent["reason"], []).append(absent["organization_id"])
    return escape("; ".join(f"{', '.join(called(result, who))}: {reason}" for reason, who in reasons.items()))
