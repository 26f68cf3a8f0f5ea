"""What to choose: methods by their scores, settings by what a search has tried, rounds by their noise."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from rich.markup import escape
from rich.table import Table

from v6_workbench.reporting.summary import MEASURES, Try, Verdict
from v6_workbench.reporting.tables.cells import add_numbers, empty, number

if TYPE_CHECKING:
    from v6_workbench.reporting.noise import Alternative


def signs(found: Mapping[tuple[str, str], Verdict], scores: Mapping[str, Sequence[float]]) -> Table:
    """Make a table of the methods' mean scores, and of each row against each column.

    Signs: better +, worse -, practically equivalent =, undecided ?.

    Args:
        found: a verdict for each pair of methods.
        scores: the scores of each method, one for each fold.

    Returns:
        The table.
    """
    out = empty("")
    add_numbers(out, "mean", "deviation", *map(str, range(1, len(scores) + 1)))
    opposite = {"+": "-", "-": "+"}
    for i, (name, own) in enumerate(scores.items(), start=1):
        cells = []
        for other in scores:
            if (name, other) in found:
                cells.append(found[name, other].sign)
            elif (other, name) in found:
                cells.append(opposite.get(found[other, name].sign, found[other, name].sign))
            else:
                cells.append("")
        out.add_row(f"{i} {escape(name)}", f"{np.mean(own):.4f}", f"{np.std(own, ddof=1):.4f}", *cells)
    return out


def search_table(tries: Sequence[Try], measure: str, most: int = 20) -> Table:
    """Make a table of what a search has tried, the best first.

    Args:
        tries: the tries.
        measure: what they were scored by.
        most: number of lines.

    Returns:
        The table: the settings, the mean score, and from which fold's score to which.
    """
    out = empty()
    names = [*tries[0].settings]
    for name in names:
        out.add_column(escape(name), justify="right", overflow="fold")
    several = any(len(one.scores) > 1 for one in tries)
    add_numbers(out, MEASURES.get(measure, measure), *(["by fold"] if several else []))
    ranked = sorted(tries, key=lambda one: -one.score)
    sign = -1 if measure == "loss" else 1
    for one in ranked[:most]:
        cells = [escape(f"{one.settings[name]}") for name in names]
        if one.failed:
            out.add_row(*cells, "failed")
            continue
        own = sorted(sign * score for score in one.scores)
        out.add_row(*cells, f"{sign * one.score:.4f}", *([f"{own[0]:.4f} to {own[-1]:.4f}"] if several else []))
    if len(ranked) > most:
        out.add_row(f"... {len(ranked) - most} more")
    return out


def noise_table(found: "Sequence[Alternative]") -> Table:
    """Make a table of ways to spend a privacy budget.

    Args:
        found: the ways.

    Returns:
        The table.
    """
    out = empty("")
    add_numbers(
        out,
        "rounds",
        "steps",
        "rows a step",
        "noise",
        "in a step",
        "in the job",
        "evaluations",
        "their noise",
        "accuracy ±",
        "epsilon",
        "by PLD",
    )
    for it in found:
        out.add_row(
            escape(it.name),
            str(it.rounds),
            str(it.plan.steps),
            f"{it.rows_a_step:.0f}",
            f"{it.plan.noise:.4g}",
            f"{it.of_step:.3g}",
            f"{it.of_job:.3g}",
            str(it.plan.evaluations),
            f"{it.plan.evaluation_noise:.4g}",
            number(it.accuracy_error, ".3f"),
            f"{it.epsilon:.3g}",
            f"{it.epsilon_pld:.3g}",
        )
    return out
