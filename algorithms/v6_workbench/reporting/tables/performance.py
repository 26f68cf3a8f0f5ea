"""How good a model is on held-out rows: of all hospitals together, of each, by class and by subgroup."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from rich.markup import escape
from rich.table import Table

from v6_workbench.reporting import subgroups
from v6_workbench.reporting.hospitals import called, own_results
from v6_workbench.reporting.intervals import Interval, accuracy_interval, auc_interval, noisy
from v6_workbench.reporting.summary import CLEAR, MEASURES, Result
from v6_workbench.reporting.tables.cells import add_numbers, empty, number


def intervals_table(results: Mapping[str, Result]) -> Table | None:
    """Make a table of the 95% confidence intervals of accuracy and AUC.

    Args:
        results: results by their names.

    Returns:
        The table; None if no result has an interval.
    """
    found = {name: (accuracy_interval(result), auc_interval(result)) for name, result in results.items()}
    if not any(any(both) for both in found.values()):
        return None
    out = empty("95% interval")
    add_numbers(out, MEASURES["accuracy"], MEASURES["auc"], no_wrap=True)
    for name, both in found.items():
        out.add_row(escape(name), *map(_interval, both))
    return out


def classes_table(result: Result, most: int = 12) -> Table | None:
    """Make a table of the classes: held-out rows, recall and precision of each.

    Of counts with noise, shares are shown only if the noise of the whole is far smaller than the whole.

    Args:
        result: the result.
        most: number of classes above which there is no table.

    Returns:
        The table; None if no rows were evaluated, or if there are more classes.
    """
    final = result.get("final") or {}
    confusion = np.asarray(final.get("confusion") or [[0]])
    classes = result["data"]["classes"] or []
    if not confusion.any() or len(classes) > most:
        return None
    out = empty()
    out.add_column("held-out class")
    add_numbers(out, "rows", "found", "recall", "predicted", "precision")
    # the noise of a row's sum is that of the diagonal's
    least = CLEAR * final["accuracy_error"] * final["evaluated"] if noisy(result) else 0
    form = ".0f" if noisy(result) else ""
    for c, (name, rows, predicted) in enumerate(
        zip(classes, confusion.sum(axis=1), confusion.sum(axis=0), strict=True)
    ):
        found = confusion[c, c]
        recall, precision = (f"{np.clip(found / of, 0, 1):.3f}" if of > least else "-" for of in (rows, predicted))
        n, right, guessed = (format(number, form) for number in (rows, found, predicted))
        out.add_row(escape(str(name)), n, right, recall, guessed, precision)
    return out


def hospitals_table(result: Result) -> Table | None:
    """Make a table of the hospitals' own results, with 95% intervals, and of all of them pooled.

    Args:
        result: the result.

    Returns:
        The table; None if no hospital's own results are shown.
    """
    if not (rows := own_results(result)):
        return None
    final = {**result["final"], "brier": (result.get("curves") or {}).get("brier")}
    pooled = {**final, "accuracy_interval": accuracy_interval(result), "auc_interval": auc_interval(result)}
    measures = {**MEASURES, "loss": "loss", "brier": "Brier score"}
    shown = [name for name in measures if any(row.get(name) is not None for row in rows)]
    out = empty("hospital")
    add_numbers(out, "held-out rows", *(measures[name] for name in shown))
    for row in (*rows, {"name": "all", **pooled}):
        out.add_row(escape(row["name"]), str(row["evaluated"]), *(_with_interval(row, name) for name in shown))
    return out


def personal_table(result: Result) -> Table | None:
    """Make a table of the global model beside the hospitals' own ones, on the same held-out rows, with 95% intervals.

    Args:
        result: the result.

    Returns:
        The table; None if no hospital has a model of its own.
    """
    if not (own := result.get("personal")):
        return None
    measures = {**MEASURES, "loss": "loss"}
    shown = [name for name in measures if own.get(name) is not None]
    out = empty("model")
    add_numbers(out, "held-out rows", *(measures[name] for name in shown))
    named = result["settings"]["personalize"]
    rows = [("global", result["final"]), (f"own ({named})", own)]
    rows += [(f"own, {called(result, [row['organization']])[0]}", row) for row in own.get("by_hospital") or ()]
    for name, row in rows:
        of = {"final": row}
        whole = {**row, "accuracy_interval": accuracy_interval(of), "auc_interval": auc_interval(of)}
        out.add_row(escape(name), str(row["evaluated"]), *(_with_interval(whole, measure) for measure in shown))
    return out


def calibration_table(result: Result) -> Table | None:
    """Make a table of predicted probabilities and how often they were right.

    Args:
        result: the result.

    Returns:
        The table; None if the result has no calibration.
    """
    bins = [b for b in (result.get("curves") or {}).get("calibration") or () if b["n"]]
    if not bins:
        return None
    out = empty()
    add_numbers(out, f"probability of {escape(str(result['data']['classes'][1]))}", "rows", "predicted", "observed")
    for b in bins:
        numbers = (f"{b[name]:.3f}" for name in ("predicted", "observed"))
        out.add_row(f"{b['lower']:.1f} to {b['upper']:.1f}", str(b["n"]), *numbers)
    return out


def subgroups_table(result: Result) -> Table | None:
    """Make a table of the accuracy by subgroup, with 95% intervals.

    Args:
        result: the result.

    Returns:
        The table; None if the result has no subgroups.
    """
    if not (found := result.get("subgroups")):
        return None
    out = empty(escape(str(found["column"])))
    add_numbers(out, "held-out rows", "accuracy", *(f"recall {escape(str(c))}" for c in result["data"]["classes"]))
    for row in found["rows"]:
        recalls = (number(recall, ".3f") for recall in subgroups.recalls(row))
        accuracy = _with_interval({**row, "accuracy_interval": subgroups.interval(result, row)}, "accuracy")
        out.add_row(escape(str(row["level"])), str(row["evaluated"]), accuracy, *recalls)
    if left := result["final"]["evaluated"] - sum(row["evaluated"] for row in found["rows"]):
        out.add_row("not counted: too few rows at a hospital", str(left), *["-"] * (1 + len(result["data"]["classes"])))
    return out


def _with_interval(row: Mapping[str, Any], name: str) -> str:
    interval = row.get(f"{name}_interval")
    within = "" if interval is None else " ({:.3f} to {:.3f})".format(*interval)
    return f"{number(row.get(name), '.3f')}{within}"


def _interval(interval: Interval | None) -> str:
    return "-" if interval is None else "{:.4f} to {:.4f}".format(*interval)
