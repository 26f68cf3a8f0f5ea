"""What commands show of a result: its rounds, its classes, and what its numbers may hide."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from v6_federated.base.text import shortened
from v6_workbench.cli import console, results
from v6_workbench.reporting import diagnostics, intervals, summary, totals


def finish(
    result: dict[str, Any], out: Path | None, target: float | None, more: Mapping[str, Any] | None = None
) -> int:
    """Write a result's files, show it, and end with the line of JSON.

    Args:
        result: the result.
        out: the folder of ``--out``.
        target: the accuracy to count the rounds to.
        more: what the line of JSON holds besides.

    Returns:
        The exit status.
    """
    if out:
        results.write(out, result, target)
    show(result)
    if target is not None:
        print(f"accuracy {target:g}: {_reached(result, target)}")
    console.last_line({**summary.summary(result, target), **(more or {})})
    if "stopped" in result:
        rounds = len(result["history"])
        kept = _how_to_go_on(result, out)
        status = console.INTERRUPTED if result["stopped"] == "interrupted" else console.FAILED
        return console.complain(status, f"{result['stopped']}; the model is that of round {rounds}{kept}")
    return console.OK


def _how_to_go_on(result: Mapping[str, Any], out: Path | None) -> str:
    """How to resume a job that has stopped; empty if it would only stop again."""
    task = result.get("experiment", {}).get("task")
    if not out and task is None:
        return "; it is not kept, since --out was not given"
    return f"; resume it with --resume {out or task}" if result.get("resumable", True) else ""


def _reached(result: dict[str, Any], target: float) -> str:
    rounds = summary.to_target(result, target)
    if rounds is None:
        return "not reached"
    seconds = summary.to_target(result, target, "seconds")
    clock = f", {seconds:.1f} s of simulated time" if summary.simulated({"": result}) else ""
    return f"reached after {rounds:.1f} rounds{clock}"


def show(result: dict[str, Any]) -> None:
    """Print the rounds, the classes, components or importances, the intervals, and warnings.

    Args:
        result: the result.
    """
    from v6_workbench.reporting import tables

    out = console.console()
    out.print(tables.rounds_table(result))
    of_model = (tables.classes_table, tables.components_table, tables.importances_table, tables.calibration_table)
    of_rows = (tables.hospitals_table, tables.personal_table, tables.subgroups_table)
    for table in (make(result) for make in (*of_model, *of_rows, tables.coefficients_table, tables.survival_table)):
        if table is not None:
            out.print(table)
    for line in filter(None, (tables.fit_of(result), tables.survival_of(result))):
        print(line)
    if suppressed := (result.get("subgroups") or {}).get("suppressed"):
        print(f"not shown, since hospitals have too few rows: {', '.join(map(str, suppressed))}")
    show_intervals({result["method"]: result})
    if blocks := result.get("privacy", {}).get("blocks"):
        sums = f"{len(blocks)} blocks" if len(blocks) > 1 else "all hospitals"
        mode, tell = result["privacy"]["aggregation"], totals.of_totals(result["privacy"])
        print(f"aggregation {mode}: central has seen sums over {sums}, no single answer; {tell}")
    if intervals.noisy(result):
        print(_cost(result["privacy"]))
    for warning in diagnostics.warnings_about(result):
        console.say(warning)


def _cost(privacy: Mapping[str, Any]) -> str:
    """What a job with noise has cost each node."""
    plan, earlier = privacy["plan"], privacy.get("earlier_plans")
    if earlier:
        also = f"with the {len(earlier)} job(s) before it"
    else:
        also = f"{privacy['epsilon_by_privacy_loss_distribution']:.3g} by privacy loss distributions"
    noises = {"steps": "noise", "evaluations": "evaluation_noise", "statistics": "statistics_noise"}
    asked = (f"{plan[z]:.4g} in {plan[what]:,} {what.removesuffix('s')}(s)" for what, z in noises.items() if plan[what])
    return (
        f"privacy: epsilon {privacy['epsilon']:.3g} at delta {privacy['delta']:g} for each node ({also}); noise "
        + ", ".join(asked)
    )


def show_intervals(results: Mapping[str, dict[str, Any]]) -> None:
    """Print the 95% intervals of results, and what they mean.

    Args:
        results: results by their names.
    """
    from v6_workbench.reporting import tables

    table = tables.intervals_table(results)
    if table is None:
        return
    console.console().print(table)
    said: dict[str, list[str]] = {}
    for name, result in results.items():
        for line in intervals.explained(result):
            said.setdefault(line, []).append(name)
    for line, names in said.items():
        print(line if len(names) == len(results) else f"{shortened(names)}: {line}")
