"""The course of a training: measures by rounds and by what was sent, and how far the nodes' models are apart."""

from collections.abc import Mapping
from textwrap import fill

from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator

from v6_workbench.reporting.hospitals import called
from v6_workbench.reporting.intervals import accuracy_interval
from v6_workbench.reporting.pictures.style import (
    COLOURS,
    DASHED,
    legend,
    line,
    open_frame,
    panels,
    plain,
    width_of,
    wrapped,
)
from v6_workbench.reporting.summary import MEASURES, UNITS, Result, measure, simulated, spent

LABELS = {**UNITS, "bytes": "megabytes sent, both ways"}  # bytes have too many digits for ticks
REFERENCES = {"distance": "global model", "from_reference": "reference"}  # what a node's model is compared with


def curves(results: Mapping[str, Result], target: float | None = None) -> Figure | None:
    """Draw accuracy (R squared of numbers, C-index of times) and loss by round.

    A bar is the 95% interval of the final accuracy. Without losses, as under noise for privacy, it is the AUC instead,
    if there is any.

    Args:
        results: results by their names.
        target: accuracy to draw a line at.

    Returns:
        The figure; None of results that were never evaluated.
    """
    if not _any(results, measure(results), "loss"):
        return None
    measured, bars = measure(results), []
    # under noise for privacy there is no loss, and an area under the curve only if there is little noise
    second = next((name for name in ("loss", "auc") if _any(results, name)), None)
    number = 1 if second is None else 2
    figure, (row,) = panels(1, number, (5 * number, 4))
    left, right = row[0], row[-1]
    for i, (name, result) in enumerate(results.items()):
        _line(left, result, "rounds", measured, name, i)
        if second is not None:
            _line(right, result, "rounds", second, name, i)
        bars.append(measured == "accuracy" and _bar(left, result, i, len(results)))
    if second is not None:
        _finish(right, "rounds", f"{MEASURES.get(second, second)} on held-out rows")
    _finish(left, "rounds", _of_rows(results, measured, bars=any(bars)), target)
    if all(sum(r.get(measured) is not None for r in result["history"]) < 2 for result in results.values()):
        left.set_xlim(0, 1.05 * max(result["history"][-1]["round"] for result in results.values()))  # points, no lines
    legend(figure, left)
    return figure


def comparison(results: Mapping[str, Result], target: float | None = None) -> Figure | None:
    """Draw accuracy, and AUC if there is one, by round, uploads, bytes and, if it was simulated, by time.

    Args:
        results: results by their names.
        target: accuracy to draw a line at.

    Returns:
        The figure; None of results that were never evaluated.
    """
    if not _any(results, measure(results)):
        return None
    units = [unit for unit in UNITS if unit != "seconds" or simulated(results)]
    measures = [measure(results), *(["auc"] if _any(results, "auc") else [])]
    size = 4.4 * len(units), 0.6 + 3.2 * len(measures)
    figure, rows = panels(len(measures), len(units), size, sharex="col", sharey="row")
    for axes, y in zip(rows, measures, strict=True):
        for axis, x in zip(axes, units, strict=True):
            for i, (name, result) in enumerate(results.items()):
                _line(axis, result, x, y, name, i)
            unit = _of_rows(results, y) if x == "rounds" else ""
            _finish(axis, x, unit, target if y == measures[0] else None)
    for axis in rows[:-1].flat:
        axis.set_xlabel("")
    legend(figure, rows[0, 0])
    return figure


def distances(result: Result) -> Figure | None:
    """Draw a heat map of the distance of each node's model from the global one, by round (like Garst, Fig. 4.2).

    If nodes mostly keep their models, it is the distance from their reference.

    Args:
        result: the result.

    Returns:
        The figure; None of results without distances or with one node.
    """
    column, cells = _distances_of(result)
    nodes = sorted({*result.get("organizations", ()), *(k for k, _ in cells)})
    if not cells or len(nodes) < 2:  # a single node's model is the global model
        return None
    rounds = [row["round"] for row in result["history"]]
    grid = [[cells.get((k, t), float("nan")) for t in rounds] for k in nodes]
    names = [wrapped(plain(name)) for name in called(result, nodes)]
    height = min(max(2.4, 0.16 * sum(name.count("\n") + 1 for name in names) + 1.2), 9)
    figure, ((axis,),) = panels(1, 1, (5.5 + max(2.5, width_of(names)), height))
    least, most = min(cells.values()), max(cells.values())
    # distances in the first round are often many times those of later rounds
    norm = LogNorm(least, most) if 0 < least < most / 5 else None
    image = axis.imshow(grid, aspect="auto", cmap="viridis", interpolation="nearest", norm=norm)
    axis.set_facecolor("0.9")  # not asked in that round, or overflowed
    step, wide = max(1, len(nodes) // 25), max(1, len(rounds) // 15)
    axis.set_yticks(range(0, len(nodes), step), names[::step], fontsize=8)
    axis.set_xticks(range(0, len(rounds), wide), [str(t) for t in rounds[::wide]], fontsize=8)
    axis.set(
        xlabel="round",
        ylabel="organization" if names == [str(k) for k in nodes] else "",
    )
    title = f"{plain(result['method'])}: distance of a node's model from the {REFERENCES[column]}"
    figure.suptitle(fill(title, 70))  # the figure is wider than the axes, whose ticks may have long names
    # over many powers of ten, as after a training that diverged, there is no room for ticks between them
    ticks = LogLocator(subs=(1, 2, 5) if most < 1e4 * least else (1,)) if norm else None
    figure.colorbar(image, label="Euclidean distance", ticks=ticks, format="%g").minorticks_off()
    return figure


def _distances_of(result: Result) -> tuple[str, dict[tuple[int, int], float]]:
    """What is measured, a name in ``REFERENCES``; and the distances that are numbers, by organization and round."""
    column = next((name for name in REFERENCES if any(name in row for row in result["per_node"])), "distance")
    # a node that is asked twice in a round has two rows, of which one may lack a distance; None: it overflowed
    rows = [row for row in result["per_node"] if isinstance(row.get(column), int | float)]
    return column, {(row["organization_id"], row["round"]): row[column] for row in rows}


def _any(results: Mapping[str, Result], *columns: str) -> bool:
    return any(row.get(name) is not None for r in results.values() for row in r["history"] for name in columns)


def _of_rows(results: Mapping[str, Result], measured: str, bars: bool = False) -> str:
    """The label of an axis. For an accuracy it says how much one row is, since axes do not begin at zero."""
    remarks = ["bar: 95% interval"] if bars else []
    counts = {(result.get("final") or {}).get("evaluated") for result in results.values()}
    n = counts.pop() if len(counts) == 1 else None
    of = ""
    if measured == "accuracy" and n:
        of, remarks = f"{n:,} ", [f"1 row: {1 / n:.2g}", *remarks]
    return f"{MEASURES[measured]} on {of}held-out rows" + (f"\n({'; '.join(remarks)})" if remarks else "")


def _line(axis: Axes, result: Result, x: str, y: str, name: str, i: int) -> None:
    rows = [row for row in result["history"] if row.get(y) is not None]
    units = zip(result["history"], spent(result, x), strict=True)
    along = [cost / 1e6 if x == "bytes" else cost for row, cost in units if row.get(y) is not None]
    line(axis, along, [row[y] for row in rows], name, i, dots=len(rows) < 30)


def _bar(axis: Axes, result: Result, i: int, of: int) -> bool:
    """Draw the interval of the final accuracy at the last round, side by side with others; False if there is none."""
    interval, last = accuracy_interval(result), result["history"][-1]
    if interval is None or last["accuracy"] is None:
        return False
    beside = 0.012 * (i - (of - 1) / 2) * last["round"]
    axis.errorbar(
        last["round"] + beside,
        last["accuracy"],
        [[max(0.0, last["accuracy"] - interval[0])], [max(0.0, interval[1] - last["accuracy"])]],
        color=COLOURS[i % len(COLOURS)],
        linewidth=1,
        capsize=3,
    )
    return True


def _finish(axis: Axes, x: str, y: str, target: float | None = None) -> None:
    axis.set_xlabel(LABELS[x])
    # fractions of megabytes are long; a single round still gets a tick
    axis.xaxis.set_major_locator(MaxNLocator(5) if x == "bytes" else MaxNLocator(integer=True, min_n_ticks=1))
    axis.set_ylabel(y)
    open_frame(axis)
    if target is not None:
        axis.axhline(target, color="0.4", **DASHED)
        axis.annotate(
            f"target {target:g}",
            (1, target),
            xycoords=("axes fraction", "data"),
            ha="right",
            va="bottom",
            fontsize=8,
            color="0.3",
        )
