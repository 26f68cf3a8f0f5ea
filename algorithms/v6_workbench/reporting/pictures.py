"""Pictures of results: PNG, SVG or PDF files, as their names end."""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill

import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, StrMethodFormatter

from v6_federated.base.files import replacing
from v6_workbench.reporting.hospitals import called, own_results
from v6_workbench.reporting.intervals import accuracy_interval
from v6_workbench.reporting.noise import Alternative
from v6_workbench.reporting.summary import MEASURES, Result, Try, Verdict, components_of, measure, simulated, spent
from v6_workbench.reporting.tables import ratio_of

# Okabe and Ito's colours, which colour-blind readers can tell apart; the line styles differ in grey too
# Okabe and Ito, then Tol: more than there are line styles, so that no two of 12 curves look alike
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"]
COLOURS += ["#882255", "#999933", "#332288", "#888888", "#661100"]
STYLES = ["-", "--", "-.", ":"]
UNITS = {
    "rounds": "round",
    "uploads": "uploads (answers of nodes)",
    "bytes": "megabytes sent, both ways",
    "seconds": "seconds of simulated time",
}
KINDS = (
    "distances",
    "components",
    "importances",
    "scores",
    "hospitals",
    "coefficients",
    "survival",
    "baseline",
)  # of pictures of one result
REFERENCES = {"distance": "global model", "from_reference": "reference"}  # what a node's model is compared with


def curves(results: Mapping[str, Result], path: Path, target: float | None = None) -> bool:
    """Draw accuracy (R squared of numbers, C-index of times) and loss by round.

    A bar is the 95% interval of the final accuracy. Without losses, as under noise for privacy, it is the AUC instead,
    if there is any.

    Args:
        results: results by their names.
        path: the picture. If there is nothing to draw, an earlier picture at this path is removed.
        target: accuracy to draw a line at.

    Returns:
        Whether there is a picture: not of results that were never evaluated.
    """
    if not _any(results, measure(results), "loss"):
        path.unlink(missing_ok=True)
        return False
    measured, bars = measure(results), []
    # under noise for privacy there is no loss, and an area under the curve only if there is little noise
    second = next((name for name in ("loss", "auc") if _any(results, name)), None)
    number = 1 if second is None else 2
    figure, row = plt.subplots(1, number, figsize=(5 * number, 4), squeeze=False, constrained_layout=True)
    left, right = row[0, 0], row[0, -1]
    for i, (name, result) in enumerate(results.items()):
        _line(left, result, "rounds", measured, name, i)
        if second is not None:
            _line(right, result, "rounds", second, name, i)
        bars.append(measured == "accuracy" and _bar(left, result, i, len(results)))
    with_bars = "\n(bar: 95% interval)" if any(bars) else ""
    if second is not None:
        _finish(right, "rounds", f"{MEASURES.get(second, second)} on held-out rows")
    _finish(left, "rounds", f"{_of_rows(results, measured)}{with_bars}", target)
    if all(sum(r.get(measured) is not None for r in result["history"]) < 2 for result in results.values()):
        left.set_xlim(0, 1.05 * max(result["history"][-1]["round"] for result in results.values()))  # points, no lines
    _save_with_legend(figure, left, path)
    return True


def comparison(results: Mapping[str, Result], path: Path, target: float | None = None) -> bool:
    """Draw accuracy, and AUC if there is one, by round, uploads, bytes and, if it was simulated, by time.

    Args:
        results: results by their names.
        path: the picture. If there is nothing to draw, an earlier picture at this path is removed.
        target: accuracy to draw a line at.

    Returns:
        Whether there is a picture: not of results that were never evaluated.
    """
    if not _any(results, measure(results)):
        path.unlink(missing_ok=True)
        return False
    units = [unit for unit in UNITS if unit != "seconds" or simulated(results)]
    measures = [measure(results), *(["auc"] if _any(results, "auc") else [])]
    size = 4.4 * len(units), 0.6 + 3.2 * len(measures)
    figure, rows = plt.subplots(
        len(measures), len(units), figsize=size, sharex="col", sharey="row", squeeze=False, constrained_layout=True
    )
    for axes, y in zip(rows, measures, strict=True):
        for axis, x in zip(axes, units, strict=True):
            for i, (name, result) in enumerate(results.items()):
                _line(axis, result, x, y, name, i)
            unit = _of_rows(results, y) if x == "rounds" else ""
            _finish(axis, x, unit, target if y == measures[0] else None)
    for axis in rows[:-1].flat:
        axis.set_xlabel("")
    _save_with_legend(figure, rows[0, 0], path)
    return True


def distances_of(result: Result) -> tuple[str, dict[tuple[int, int], float]]:
    """Return the distances of the nodes' models.

    Args:
        result: the result.

    Returns:
        What is measured, a name in ``REFERENCES``; and the distances that are numbers, by organization and round.
    """
    column = next((name for name in REFERENCES if any(name in row for row in result["per_node"])), "distance")
    # a node that is asked twice in a round has two rows, of which one may lack a distance; None: it overflowed
    rows = [row for row in result["per_node"] if isinstance(row.get(column), int | float)]
    return column, {(row["organization_id"], row["round"]): row[column] for row in rows}


def distances(result: Result, path: Path, name: str = "") -> bool:
    """Draw a heat map of the distance of each node's model from the global one, by round (like Garst, Fig. 4.2).

    If nodes mostly keep their models, it is the distance from their reference.

    Args:
        result: the result.
        path: the picture. If there is nothing to draw, an earlier picture at this path is removed.
        name: name of the result in the title; empty is the method's name.

    Returns:
        Whether there is a picture: not of results without distances or with one node.
    """
    column, cells = distances_of(result)
    nodes = sorted({*result.get("organizations", ()), *(k for k, _ in cells)})
    if not cells or len(nodes) < 2:  # a single node's model is the global model
        path.unlink(missing_ok=True)
        return False
    rounds = [row["round"] for row in result["history"]]
    grid = [[cells.get((k, t), float("nan")) for t in rounds] for k in nodes]
    height = min(max(2.4, 0.16 * len(nodes) + 1.2), 9)
    figure, axis = plt.subplots(figsize=(8, height), constrained_layout=True)
    least, most = min(cells.values()), max(cells.values())
    # distances in the first round are often many times those of later rounds
    norm = LogNorm(least, most) if 0 < least < most / 5 else None
    image = axis.imshow(grid, aspect="auto", cmap="viridis", interpolation="nearest", norm=norm)
    axis.set_facecolor("0.9")  # not asked in that round, or overflowed
    step, wide = max(1, len(nodes) // 25), max(1, len(rounds) // 15)
    names = [_plain(name) for name in called(result, nodes)]
    axis.set_yticks(range(0, len(nodes), step), names[::step], fontsize=8)
    axis.set_xticks(range(0, len(rounds), wide), [str(t) for t in rounds[::wide]], fontsize=8)
    axis.set(
        xlabel="round",
        ylabel="organization" if names == [str(k) for k in nodes] else "",
        title=f"{_plain(name or result['method'])}: distance of a node's model from the {REFERENCES[column]}",
    )
    # over many powers of ten, as after a training that diverged, there is no room for ticks between them
    ticks = LogLocator(subs=(1, 2, 5) if most < 1e4 * least else (1,)) if norm else None
    figure.colorbar(image, label="Euclidean distance", ticks=ticks, format="%g").minorticks_off()
    finished(figure, path)
    return True


def components(result: Result, path: Path, most: int = 30) -> bool:
    """Draw the share of variance that each principal component explains, and the cumulative share.

    Args:
        result: the result.
        path: the picture. If there is nothing to draw, an earlier picture at this path is removed.
        most: number of components to draw.

    Returns:
        Whether there is a picture: not of results without components.
    """
    if (arrays := components_of(result)) is None:
        path.unlink(missing_ok=True)
        return False
    shares = 100 * arrays["explained_variance_ratio"]
    figure, axis = plt.subplots(figsize=(7, 4), constrained_layout=True)
    numbers = np.arange(1, len(shares) + 1)[:most]
    axis.bar(numbers, shares[:most], color=COLOURS[5], label="each component")
    axis.plot(numbers, np.cumsum(shares)[:most], "o-", color=COLOURS[0], markersize=3, label="cumulative")
    axis.set_xlabel("principal component" if len(shares) <= most else f"principal component, {most} of {len(shares)}")
    axis.set_ylabel("variance explained, %")
    axis.set_ylim(0, 105)
    axis.set_xlim(0.4, len(numbers) + 0.6)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=2, frameon=False)
    finished(figure, path)
    return True


def importances(result: Result, path: Path, most: int = 20) -> bool:
    """Draw the total gain of the columns that trees split on, the largest first.

    Args:
        result: the result.
        path: the picture. If there is nothing to draw, an earlier picture at this path is removed.
        most: number of columns to draw.

    Returns:
        Whether there is a picture: not of results without importances.
    """
    rows = (result.get("feature_importance") or [])[:most]
    if not rows:
        path.unlink(missing_ok=True)
        return False
    figure, axis = plt.subplots(figsize=(7, 1 + 0.26 * len(rows)), constrained_layout=True)
    axis.barh(range(len(rows)), [row["gain"] for row in rows], color=COLOURS[0])
    axis.set_yticks(range(len(rows)), [_plain(_short(str(row["feature"]))) for row in rows], fontsize=8)
    axis.invert_yaxis()
    more = len(result["feature_importance"]) - len(rows)
    axis.set_xlabel("total gain" + (f", {len(rows)} of {len(rows) + more} columns" if more else ""))
    axis.grid(alpha=0.3, axis="x")
    axis.spines[["top", "right"]].set_visible(False)
    finished(figure, path)
    return True


def scores(result: Result, path: Path) -> bool:
    """Draw how good the scores of two classes are: calibration, ROC and precision-recall curve.

    Args:
        result: the result.
        path: the picture. If there is nothing to draw, an earlier picture at this path is removed.

    Returns:
        Whether there is a picture: not of results without curves.
    """
    found = result.get("curves") or {}
    panels = [name for name in ("calibration", "roc", "precision_recall") if found.get(name)]
    if not panels:
        path.unlink(missing_ok=True)
        return False
    size = 3.9 * len(panels), 3.9
    figure, row = plt.subplots(1, len(panels), figsize=size, squeeze=False, constrained_layout=True)
    for axis, name in zip(row[0], panels, strict=True):
        if name == "calibration":
            bins = [b for b in found[name] if b["n"]]
            most = max(b["n"] for b in bins)
            sizes = [12 + 120 * b["n"] / most for b in bins]
            across, up = ([b[key] for b in bins] for key in ("predicted", "observed"))
            axis.scatter(across, up, s=sizes, color=COLOURS[0], alpha=0.8)
            x, y = "predicted share (dots: rows)", "observed share"
        else:
            axis.plot(*zip(*found[name], strict=True), color=COLOURS[0])
            x, y = ("false positive rate", "true positive rate") if name == "roc" else ("recall", "precision")
        if name != "precision_recall":
            axis.plot([0, 1], [0, 1], color="0.6", linewidth=0.8, linestyle=(0, (6, 4)))
        axis.set(xlabel=x, ylabel=y, xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal")
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    finished(figure, path)
    return True


def hospitals(result: Result, path: Path) -> bool:
    """Draw accuracy and AUC of each hospital with 95% intervals (R squared, C-index without), and a line for all.

    Args:
        result: the result.
        path: the picture. If there is nothing to draw, an earlier picture at this path is removed.

    Returns:
        Whether there is a picture: not of results that show no hospital's own.
    """
    rows = own_results(result)
    panels = [name for name in ("accuracy", "auc", "r2", "c_index") if any(row.get(name) is not None for row in rows)]
    if not panels:
        path.unlink(missing_ok=True)
        return False
    size = 4.4 * len(panels), 1.2 + 0.32 * len(rows)
    figure, (axes,) = plt.subplots(1, len(panels), figsize=size, sharey=True, squeeze=False, constrained_layout=True)
    for axis, name in zip(axes, panels, strict=True):
        for i, row in enumerate(rows):
            if (value := row.get(name)) is None:
                continue
            lower, upper = row.get(f"{name}_interval") or (value, value)
            axis.plot([lower, upper], [i, i], color=COLOURS[0], linewidth=1.5)
            axis.plot(value, i, "o", color=COLOURS[0])
        if (pooled := (result.get("final") or {}).get(name)) is not None:
            axis.axvline(pooled, color="0.4", linewidth=0.8, linestyle=(0, (6, 4)))
        axis.set_xlabel(f"{MEASURES[name]} (dashed: all hospitals)")
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    labels = [f"{_plain(row['name'])} ({row['evaluated']})" for row in rows]
    axes[0].set_yticks(range(len(rows)), labels, fontsize=8)
    axes[0].set_ylim(len(rows) - 0.5, -0.5)
    finished(figure, path)
    return True


def of_one(result: Result, folder: Path, form: str = "png", number: str = "", name: str = "") -> None:
    """Draw all pictures that are of one result, see ``KINDS``, if there are any.

    Args:
        result: the result.
        folder: their folder.
        form: their format.
        number: what follows the kind of picture in the name of its file.
        name: name of the result in the titles; empty is the method's name.
    """
    files = {kind: folder / f"{kind}{number}.{form}" for kind in KINDS}
    distances(result, files["distances"], name)
    components(result, files["components"])
    importances(result, files["importances"])
    scores(result, files["scores"])
    hospitals(result, files["hospitals"])
    coefficients(result, files["coefficients"])
    survival(result, files["survival"])
    baseline(result, files["baseline"])


def coefficients(result: Result, path: Path, most: int = 40) -> bool:
    """Draw coefficients, or the ratios that they mean, with their intervals.

    Args:
        result: the result.
        path: the picture. If there is nothing to draw, an earlier picture at this path is removed.
        most: columns that are drawn, the first ones of the table.

    Returns:
        Whether there is a picture: not of coefficients without intervals.
    """
    rows = [row for row in result.get("coefficients") or () if row["name"] != "intercept" and row["lower"] is not None]
    ratio = ratio_of(result)
    middle, low, high = (ratio, f"{ratio}_lower", f"{ratio}_upper") if ratio else ("estimate", "lower", "upper")
    rows = [row for row in rows if None not in (row[middle], row[low], row[high])][:most]
    if not rows:
        path.unlink(missing_ok=True)
        return False
    figure, axis = plt.subplots(figsize=(6, 1.2 + 0.28 * len(rows)), constrained_layout=True)
    at, values = np.arange(len(rows)), np.array([row[middle] for row in rows])
    axis.hlines(at, [row[low] for row in rows], [row[high] for row in rows], COLOURS[0])
    axis.plot(values, at, "s", color=COLOURS[0], markersize=5)
    axis.axvline(1 if ratio else 0, color="0.5", linewidth=0.8)
    axis.set_yticks(at, [_plain(_wrapped(str(row["name"]))) for row in rows])
    axis.invert_yaxis()
    what = ratio.replace("_", " ") or "coefficient"
    axis.set_xlabel(f"{what} of one unit, with {100 * result['confidence']:g}% interval")
    if ratio:
        axis.set_xscale("log")
        axis.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axis.xaxis.set_minor_formatter(StrMethodFormatter("{x:g}") if max(values) < 10 * min(values) else "")
    axis.grid(axis="x", alpha=0.3)
    finished(figure, path)
    return True


def survival(result: Result, path: Path, ticks: int = 6) -> bool:
    """Draw survival curves with their intervals, and the numbers at risk below.

    Args:
        result: the result.
        path: the picture. If there is nothing to draw, an earlier picture at this path is removed.
        ticks: times at which the numbers at risk stand.

    Returns:
        Whether there is a picture: not without curves.
    """
    curves = [found for found in result.get("curves_of_survival") or () if found["rows"]]
    if not curves:
        path.unlink(missing_ok=True)
        return False
    figure, (axis, below) = plt.subplots(
        2,
        1,
        figsize=(6.4, 4 + 0.22 * len(curves)),
        height_ratios=(4, 0.5 + 0.22 * len(curves)),
        sharex=True,
        constrained_layout=True,
    )
    last = max(found["rows"][-1]["end"] for found in curves)
    times = np.linspace(0, last, ticks)
    for i, found in enumerate(curves):
        rows, colour = found["rows"], COLOURS[i % len(COLOURS)]
        ends, at_risk = [0.0, *(row["end"] for row in rows)], [row["at_risk"] for row in rows]
        name = "all" if found["group"] is None else _plain(str(found["group"]))
        axis.step(ends, [1.0, *(row["survival"] for row in rows)], color=colour, where="post", label=name)
        bands = [[1.0, *(np.nan if row[side] is None else row[side] for row in rows)] for side in ("lower", "upper")]
        axis.fill_between(ends, *bands, step="post", color=colour, alpha=0.15, linewidth=0)
        for time in times[times <= ends[-1] + 1e-9]:  # a bin's rows are at risk until its end
            place = min(int(np.searchsorted(ends[1:], time - 1e-9)), len(rows) - 1)
            below.text(time, i, f"{at_risk[place]:.0f}", ha="center", va="center", fontsize=8)
    axis.set_ylim(0, 1.02)
    axis.set_ylabel(f"survival, with {100 * result['confidence']:g}% interval")
    axis.grid(alpha=0.3)
    if len(curves) > 1:
        axis.legend()
    names = ["at risk" if found["group"] is None else _plain(_wrapped(str(found["group"]))) for found in curves]
    below.set_yticks(range(len(curves)), names, fontsize=8)
    below.set_ylim(len(curves) - 0.5, -0.5)
    below.set_xticks(times, [f"{time:.3g}" for time in times])
    below.set_xlabel("time; the numbers are rows at risk")
    below.spines[:].set_visible(False)
    below.tick_params(length=0)
    finished(figure, path)
    return True


def baseline(result: Result, path: Path) -> bool:
    """Draw the baseline of proportional hazards: survival and cumulative hazard of a patient at the means of columns.

    The hazard is constant in each bin, so the cumulative one is a line between its ends. The last bin is open.

    Args:
        result: the result.
        path: the picture. If there is nothing to draw, an earlier picture at this path is removed.

    Returns:
        Whether there is a picture: not of hospitals with baseline hazards of their own, which stay there.
    """
    found = result.get("baseline") or {"ends": []}
    ends = np.array([0.0, *(end for end in found["ends"] if end is not None)])
    if len(ends) < 2:
        path.unlink(missing_ok=True)
        return False
    hazard = np.array(found["hazard"][: len(ends) - 1])
    times = np.unique(np.concatenate([ends, np.linspace(0, ends[-1], 200)]))
    cumulative = np.interp(times, ends, np.append(0.0, np.cumsum(hazard * np.diff(ends))))
    figure, axes = plt.subplots(1, 2, figsize=(8, 3.4), constrained_layout=True)
    for axis, values, name in zip(
        axes, (np.exp(-cumulative), cumulative), ("survival", "cumulative hazard"), strict=True
    ):
        axis.plot(times, values, color=COLOURS[0])
        axis.set_xlabel("time")
        axis.set_ylabel(f"{name} at the means of columns")
        axis.set_ylim(0, 1.02 if name == "survival" else None)
        axis.grid(alpha=0.3)
    finished(figure, path)
    return True


def posteriors(found: Mapping[tuple[str, str], Verdict], rope: float, path: Path, what: str = "accuracy") -> None:
    """Draw the posterior density of the mean difference in score of each two methods (like Nilsson's Figure 3).

    Args:
        found: a verdict for each pair of methods.
        rope: region of practical equivalence, a difference in score.
        path: the picture.
        what: name of the score.
    """
    from scipy import stats  # slow to import, and needed only here

    across = min(3, len(found))
    down = -(-len(found) // across)
    size = (4.2 * across, 3.1 * down)
    figure, axes = plt.subplots(down, across, figsize=size, squeeze=False, constrained_layout=True)
    for axis in axes.flat[len(found) :]:
        axis.set_axis_off()
    for axis, ((first, second), verdict) in zip(axes.flat, found.items(), strict=False):
        middle, deviation = verdict.difference, float(np.sqrt(verdict.posterior.var))
        # four standard deviations, and the region
        reach = max(4 * deviation, 1.5 * rope, 1e-6)
        d = np.linspace(min(middle - reach, -1.5 * rope), max(middle + reach, 1.5 * rope), 400)
        if deviation:
            # baycomp's posterior is a Student distribution of second minus first
            density = stats.t.pdf(d, verdict.posterior.df, middle, deviation)
            axis.plot(100 * d, density, color=COLOURS[0], linewidth=1.5)
            axis.fill_between(100 * d, density, color=COLOURS[5], alpha=0.5)
        else:
            axis.axvline(100 * middle, color=COLOURS[0], linewidth=1.5)
        if rope:
            label = f"practically equivalent (up to ±{100 * rope:g})" if axis is axes.flat[0] else None
            axis.axvspan(-100 * rope, 100 * rope, color=COLOURS[4], alpha=0.25, label=label)
        axis.set_yticks([])
        axis.set_ylim(bottom=0)
        chances = f"better {verdict.better:.0%}, equal {verdict.equal:.0%}, worse {verdict.worse:.0%}"
        names = "\n".join(
            fill(text, 44, break_long_words=False, break_on_hyphens=False) for text in (first, f"minus {second}")
        )
        axis.set_title(f"{names}\n{chances}", fontsize=9)
        axis.set_xlabel(f"difference in {what}, percentage points", fontsize=9)
        axis.spines[["top", "right", "left"]].set_visible(False)
    if rope:
        figure.legend(loc="outside lower center", frameon=False, fontsize=9)
    finished(figure, path)


def noise(found: Mapping[str, Sequence[Alternative]], rounds: int, path: Path) -> None:
    """Draw the noise of jobs of the same cost by their rounds: in a step, and in the whole job.

    Args:
        found: by what is done, the jobs by their rounds.
        rounds: the rounds to mark.
        path: the picture.
    """
    figure, both = plt.subplots(1, 2, figsize=(10, 4), constrained_layout=True)
    titles = {"of_step": "in a step", "of_job": "in the job"}
    for axis, (attribute, title) in zip(both, titles.items(), strict=True):
        for i, (name, jobs) in enumerate(found.items()):
            axis.plot(
                [job.rounds for job in jobs],
                [getattr(job, attribute) for job in jobs],
                STYLES[i % len(STYLES)],
                color=COLOURS[i % len(COLOURS)],
                label=_plain(name),
                marker="o",
                markersize=3,
                linewidth=1.5,
            )
        axis.set(xscale="log", xlabel="rounds", ylabel=f"noise / largest signal, {title}")
        axis.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axis.axvline(rounds, color="0.4", linewidth=0.8, linestyle=(0, (6, 4)))
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    both[0].set_yscale("log")  # from a step on all rows to one on few
    both[0].yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    both[1].set_ylim(bottom=0)
    _save_with_legend(figure, both[0], path)


def search(tries: Sequence[Try], path: Path, of: str = "accuracy") -> None:
    """Draw the score of each try by each setting that has several values; the best is filled.

    Args:
        tries: the tries; those that failed are left out.
        path: the picture. If no try was trained, an earlier picture at this path is removed.
        of: what they were scored by.
    """
    scored = [one for one in tries if not one.failed]
    if not scored:
        path.unlink(missing_ok=True)
        return
    best = max(scored, key=lambda one: one.score)
    names = [name for name in best.settings if len({str(one.settings[name]) for one in tries}) > 1] or [*best.settings]
    across = min(3, len(names))
    down = -(-len(names) // across)
    size = (3.6 * across, 3.2 * down)
    figure, axes = plt.subplots(down, across, figsize=size, sharey=True, squeeze=False, constrained_layout=True)
    for axis in axes.flat[len(names) :]:
        axis.set_axis_off()
    sign = -1 if of == "loss" else 1
    for axis, name in zip(axes.flat, names, strict=False):
        values = [one.settings[name] for one in scored]
        numbers = all(type(v) in (int, float) for v in values)
        if not numbers:
            words = [*dict.fromkeys(map(str, values))]
            axis.set_xticks(range(len(words)), [_wrapped(word) for word in words], fontsize=8)
        elif min(values) > 0 and max(values) >= 10 * min(values):
            axis.set_xscale("log")
            axis.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        if numbers and len({*values}) <= 6:
            axis.set_xticks(sorted({*values}), minor=False)
            axis.set_xticks([], minor=True)
        for one, v in zip(scored, values, strict=True):
            x = v if numbers else words.index(str(v))
            fill_with = COLOURS[0] if one is best else "none"
            axis.plot(x, sign * one.score, "o", color=COLOURS[0], markerfacecolor=fill_with, markersize=6)
        axis.set_xlabel(_plain(name))
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    for row in axes:
        row[0].set_ylabel(f"{MEASURES.get(of, of)} on rows\nkept for choosing")
    finished(figure, path)


def _short(text: str, most: int = 40) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _plain(text: str) -> str:
    """The text without matplotlib's mathematics."""
    return text.replace("$", r"\$")


def _of_rows(results: Mapping[str, Result], measured: str) -> str:
    """The label of an axis. For an accuracy it says how much one row is, since axes do not begin at zero."""
    counts = {(result.get("final") or {}).get("evaluated") for result in results.values()}
    n = counts.pop() if len(counts) == 1 else None
    if measured != "accuracy" or not n:
        return f"{MEASURES[measured]} on held-out rows"
    return f"accuracy on {n:,} held-out rows (1 row: {1 / n:.2g})"


def _wrapped(text: str) -> str:
    """A name in lines that end between words."""
    return fill(text, 44, break_long_words=False, break_on_hyphens=False)


def _any(results: Mapping[str, Result], *columns: str) -> bool:
    return any(row.get(name) is not None for r in results.values() for row in r["history"] for name in columns)


def _line(axis: Axes, result: Result, x: str, y: str, name: str, i: int) -> None:
    rows = [row for row in result["history"] if row.get(y) is not None]
    units = zip(result["history"], spent(result, x), strict=True)
    along = [cost / 1e6 if x == "bytes" else cost for row, cost in units if row.get(y) is not None]
    axis.plot(
        along,
        [row[y] for row in rows],
        STYLES[i % len(STYLES)],
        color=COLOURS[i % len(COLOURS)],
        label=_plain(name),
        marker="o" if len(rows) < 30 else None,
        markersize=3,
        linewidth=1.5,
    )


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
    axis.set_xlabel(UNITS[x])
    # fractions of megabytes are long; a single round still gets a tick
    axis.xaxis.set_major_locator(MaxNLocator(5) if x == "bytes" else MaxNLocator(integer=True, min_n_ticks=1))
    axis.set_ylabel(y)
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    if target is not None:
        axis.axhline(target, color="0.4", linewidth=0.8, linestyle=(0, (6, 4)))
        axis.annotate(
            f"target {target:g}",
            (1, target),
            xycoords=("axes fraction", "data"),
            ha="right",
            va="bottom",
            fontsize=8,
            color="0.3",
        )


def _save_with_legend(figure: Figure, axis: Axes, path: Path) -> None:
    handles, names = axis.get_legend_handles_labels()
    if len(names) > 1:
        wide = 0.8 + 0.08 * max(map(len, names))  # inches that the longest name takes with its line
        columns = max(1, min(len(names), 4, int(figure.get_figwidth() / wide)))
        figure.legend(handles, names, loc="outside lower center", ncols=columns, frameon=False, fontsize=9)
    finished(figure, path)


def finished(figure: Figure, path: Path) -> None:
    """Write a figure and close it.

    Args:
        figure: the figure.
        path: the file, whose ending is the format. In an SVG, text stays text.

    Raises:
        OSError: the file cannot be written; it is then as it was before.
    """
    with warnings.catch_warnings(), matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "v6-federated"}):
        # a hospital's name in a script that the font lacks is drawn as boxes; the tables show it
        warnings.filterwarnings("ignore", "Glyph .* missing from|Matplotlib currently does not support")
        form = path.suffix.removeprefix(".")
        try:
            with replacing(path) as stream:
                figure.savefig(stream, format=form, dpi=120, transparent=form == "svg")
        finally:
            plt.close(figure)
