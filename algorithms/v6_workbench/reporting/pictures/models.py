"""What a model consists of: principal components, importances of columns, and coefficients."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import Locator, LogLocator, MaxNLocator, NullLocator, StrMethodFormatter

from v6_workbench.reporting.levels import references
from v6_workbench.reporting.pictures.style import COLOURS, open_frame, panels, plain, wrapped
from v6_workbench.reporting.summary import Result, components_of
from v6_workbench.reporting.tables import class_of, ratio_named, ratio_of


def components(result: Result, most: int = 30) -> Figure | None:
    """Draw the share of variance that each principal component explains, and the cumulative share.

    Args:
        result: the result.
        most: number of components to draw.

    Returns:
        The figure; None of results without components.
    """
    if (arrays := components_of(result)) is None:
        return None
    shares = 100 * arrays["explained_variance_ratio"]
    figure, ((axis,),) = panels(1, 1, (7, 4))
    numbers = np.arange(1, len(shares) + 1)[:most]
    axis.bar(numbers, shares[:most], color=COLOURS[5], label="each component")
    axis.plot(numbers, np.cumsum(shares)[:most], "o-", color=COLOURS[0], markersize=3, label="cumulative")
    axis.set_xlabel("principal component" if len(shares) <= most else f"principal component, {most} of {len(shares)}")
    axis.set_ylabel("variance explained, %")
    axis.set_ylim(0, 105)
    axis.set_xlim(0.4, len(numbers) + 0.6)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    open_frame(axis)
    figure.legend(loc="outside upper center", ncols=2, frameon=False)
    return figure


def importances(result: Result, most: int = 20) -> Figure | None:
    """Draw the total gain of the columns that trees split on, the largest first.

    Args:
        result: the result.
        most: number of columns to draw.

    Returns:
        The figure; None of results without importances.
    """
    rows = (result.get("feature_importance") or [])[:most]
    if not rows:
        return None
    figure, ((axis,),) = panels(1, 1, (7, 1 + 0.26 * len(rows)))
    axis.barh(range(len(rows)), [row["gain"] for row in rows], color=COLOURS[0])
    axis.set_yticks(range(len(rows)), [plain(_short(str(row["feature"]))) for row in rows], fontsize=8)
    axis.invert_yaxis()
    more = len(result["feature_importance"]) - len(rows)
    axis.set_xlabel("total gain" + (f", {len(rows)} of {len(rows) + more} columns" if more else ""))
    open_frame(axis, grid="x")
    return figure


def coefficients(result: Result, most: int = 40) -> Figure | None:
    """Draw coefficients, or the ratios that they mean, with their intervals. An empty square is a reference.

    Args:
        result: the result.
        most: columns that are drawn, the first ones of the table.

    Returns:
        The figure; None of coefficients without intervals.
    """
    rows = [row for row in result.get("coefficients") or () if row["name"] != "intercept" and row["lower"] is not None]
    ratio = ratio_of(result)
    middle, low, high = (ratio, f"{ratio}_lower", f"{ratio}_upper") if ratio else ("estimate", "lower", "upper")
    rows = [row for row in rows if None not in (row[middle], row[low], row[high])][:most]
    if not rows:
        return None
    named, at, without = _lines(rows, result)
    figure, ((axis,),) = panels(1, 1, (6, 1.2 + 0.28 * len(named)))
    nothing = 1 if ratio else 0
    axis.hlines(at, [row[low] for row in rows], [row[high] for row in rows], COLOURS[0])
    axis.plot([row[middle] for row in rows], at, "s", color=COLOURS[0], markersize=5)
    axis.plot([nothing] * len(without), without, "s", color=COLOURS[0], markersize=5, markerfacecolor="none")
    axis.axvline(nothing, color="0.5", linewidth=0.8)
    axis.set_yticks(range(len(named)), [plain(wrapped(name)) for name in named])
    axis.set_ylim(len(named) - 0.5, -0.5)
    what = ratio_named(result) or " of ".join(filter(None, ["coefficient", class_of(result)]))
    axis.set_xlabel(f"{plain(wrapped(what))}, by one unit, with {100 * result['confidence']:g}% interval")
    if ratio:
        axis.set_xscale("log")
        axis.xaxis.set_major_locator(_ticks_of_ratios(*axis.get_xlim()))
        axis.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axis.xaxis.set_minor_locator(NullLocator())
    axis.grid(axis="x", alpha=0.3)
    return figure


def _lines(rows: Sequence[Mapping[str, Any]], result: Result) -> tuple[list[str], list[int], list[int]]:
    """The lines of coefficients: their names, where the rows are, and where the references before their levels are."""
    compared, named, at, without = references(result), list[str](), list[int](), dict[str, int]()
    for row in rows:
        if (levels := compared.get(row["name"])) and levels.column not in without:
            without[levels.column] = len(named)
            named.append(f"{levels.column}={levels.reference} (reference)")
        at.append(len(named))
        named.append(str(row["name"]))
    return named, at, [*without.values()]


def _ticks_of_ratios(least: float, most: float) -> Locator:
    """Ticks of a logarithmic axis, so few that their labels do not overlap."""
    if most < 3 * least:
        return MaxNLocator(6, steps=[1, 2, 5, 10])  # 1 is among the ticks of such steps
    subs = {10: (1, 1.5, 2, 3, 5, 7), 100: (1, 2, 5), math.inf: (1,)}
    return LogLocator(subs=next(of for factor, of in subs.items() if most < factor * least))


def _short(text: str, most: int = 40) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
