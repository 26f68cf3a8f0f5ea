"""Times until an event: survival curves, and the baseline of proportional hazards."""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from v6_workbench.reporting.pictures.style import COLOURS, panels, plain, wrapped
from v6_workbench.reporting.summary import Result


def survival(result: Result, ticks: int = 6) -> Figure | None:
    """Draw survival curves with their intervals, and the numbers at risk below. In a bin, a curve falls in a line.

    Args:
        result: the result.
        ticks: most intervals between the round times at which the numbers at risk stand.

    Returns:
        The figure; None without curves.
    """
    curves = [found for found in result.get("curves_of_survival") or () if found["rows"]]
    if not curves:
        return None
    heights = 4, 0.5 + 0.22 * len(curves)
    figure, ((axis,), (below,)) = panels(2, 1, (6.4, 4 + 0.22 * len(curves)), height_ratios=heights, sharex=True)
    last = max(found["rows"][-1]["end"] for found in curves)
    times = np.array([time for time in MaxNLocator(ticks).tick_values(0, last) if time <= last])
    for i, found in enumerate(curves):
        rows, colour = found["rows"], COLOURS[i % len(COLOURS)]
        ends, at_risk = [0.0, *(row["end"] for row in rows)], [row["at_risk"] for row in rows]
        name = "all" if found["group"] is None else plain(str(found["group"]))
        axis.plot(ends, [1.0, *(row["survival"] for row in rows)], color=colour, label=name)
        bands = [[1.0, *(np.nan if row[side] is None else row[side] for row in rows)] for side in ("lower", "upper")]
        axis.fill_between(ends, *bands, color=colour, alpha=0.15, linewidth=0)
        left = at_risk[-1] - rows[-1]["events"] - rows[-1]["censored"]
        for time in times[times <= ends[-1] + 1e-9]:  # within a bin, about as many leave in any time
            there = np.interp(time, ends, [*at_risk, left])
            below.text(time, i, f"{there:.0f}", ha="center", va="center", fontsize=8)
    axis.set_ylim(0, 1.02)
    axis.set_ylabel(f"survival, with {100 * result['confidence']:g}% interval")
    axis.grid(alpha=0.3)
    if len(curves) > 1:
        axis.legend()
    names = ["at risk" if found["group"] is None else plain(wrapped(str(found["group"]))) for found in curves]
    below.set_yticks(range(len(curves)), names, fontsize=8)
    below.set_ylim(len(curves) - 0.5, -0.5)
    below.set_xticks(times, [f"{time:g}" for time in times])
    below.set_xlabel(f"{_column(result)}; the numbers are rows at risk")
    below.spines[:].set_visible(False)
    below.tick_params(length=0)
    return figure


def baseline(result: Result) -> Figure | None:
    """Draw the baseline of proportional hazards: survival and cumulative hazard of a patient at the means of columns.

    The hazard is constant in each bin, so the cumulative one is a line between its ends. The last bin is open.

    Args:
        result: the result.

    Returns:
        The figure; None of hospitals with baseline hazards of their own, which stay there.
    """
    found = result.get("baseline") or {"ends": []}
    ends = np.array([0.0, *(end for end in found["ends"] if end is not None)])
    if len(ends) < 2:
        return None
    hazard = np.array(found["hazard"][: len(ends) - 1])
    times = np.unique(np.concatenate([ends, np.linspace(0, ends[-1], 200)]))
    cumulative = np.interp(times, ends, np.append(0.0, np.cumsum(hazard * np.diff(ends))))
    figure, (axes,) = panels(1, 2, (8, 3.4))
    drawn = {"survival": np.exp(-cumulative), "cumulative hazard": cumulative}
    for axis, (name, values) in zip(axes, drawn.items(), strict=True):
        axis.plot(times, values, color=COLOURS[0])
        axis.set_xlabel(_column(result))
        axis.set_ylabel(f"{name}\nat the means of columns")
        axis.set_ylim(0, 1.02 if name == "survival" else None)
        axis.grid(alpha=0.3)
    return figure


def _column(result: Result) -> str:
    """The name of the column of times."""
    data = result["data"]
    return wrapped(plain(str(data.get("time") or data["label"])))
