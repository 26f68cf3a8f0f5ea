"""Pictures and tables of results."""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.ticker import LogLocator, MaxNLocator
from rich.markup import escape
from rich.table import Table

from v6_federated.data import preprocessing
from v6_federated.messages import codec
from v6_workbench.reporting.summary import Verdict, spent, summary

# Okabe and Ito's colours, told apart by colour-blind readers; with line styles, also in grey
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"]
STYLES = ["-", "--", "-.", ":"]
UNITS = {
    "rounds": "round",
    "uploads": "uploads (answers of nodes)",
    "bytes": "megabytes sent, both ways",
    "seconds": "seconds of simulated time",
}
FROM = {"distance": "global one", "from_reference": "reference"}  # what a node's model is far from
OF_ALL = {
    "round",
    "n",
    "train_loss",
    "loss",
    "accuracy",
    "auc",
    "r2",
    "evaluated",
    "bytes_up",
    "bytes_down",
    "seconds",
}  # columns of a history that every method has; the others are its own
NAMES = {"accuracy": "accuracy", "r2": "R squared", "auc": "AUC"}

Result = Mapping[str, Any]


def measure(results: Mapping[str, Result]) -> str:
    """What tells how good the models are: accuracy, of regressions R squared."""
    return "r2" if all("r2" in result["history"][-1] for result in results.values()) else "accuracy"


def simulated(results: Mapping[str, Result]) -> bool:
    """Whether the seconds of all results are those of nodes of given speeds, not of this machine."""
    return all(result.get("experiment", {}).get("speeds") for result in results.values())


def curves(results: Mapping[str, Result], path: Path, target: float | None = None) -> bool:
    """Accuracy (R squared of regressions) and loss by round of one or more results, as a PNG.

    Returns False of results that were never evaluated; no picture is then left at ``path``, not an earlier result's.
    """
    if not _any(results, measure(results), "loss"):
        path.unlink(missing_ok=True)
        return False
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), constrained_layout=True)
    for i, (name, result) in enumerate(results.items()):
        _line(left, result, "rounds", measure(results), name, i)
        _line(right, result, "rounds", "loss", name, i)
    _finish(left, "rounds", f"{NAMES[measure(results)]} on held-out rows", target)
    _finish(right, "rounds", "loss on held-out rows")
    _save_with_legend(figure, left, path)
    return True


def comparison(results: Mapping[str, Result], path: Path, target: float | None = None) -> bool:
    """Accuracy, and AUC where there is any, by round, by uploads, by bytes and, where it was simulated, by time of
    several results side by side, as a PNG; as ``curves`` without."""
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
            unit = f"{NAMES[y]} on held-out rows" if x == "rounds" else ""
            _finish(axis, x, unit, target if y == measures[0] else None)
    for axis in rows[:-1].flat:
        axis.set_xlabel("")
    _save_with_legend(figure, rows[0, 0], path)
    return True


def distances_of(result: Result) -> tuple[str, dict[tuple[int, int], float]]:
    """What is measured, a name in ``FROM``, and by organization and round how far it was, where that is a number."""
    column = next((name for name in FROM if any(name in row for row in result["per_node"])), "distance")
    # a node that is asked twice in a round has two rows, of which one may have none; None is one that overflowed
    rows = [row for row in result["per_node"] if isinstance(row.get(column), int | float)]
    return column, {(row["organization_id"], row["round"]): row[column] for row in rows}


def distances(result: Result, path: Path, name: str = "") -> bool:
    """Heat map of the distance of each node's model from the global one by round (like Garst, Fig. 4.2), as a PNG.

    Of nodes that mostly keep their models, from the reference. ``name``: of the result, in place of the method's.
    Returns False of a result without; no picture is then left at ``path``, not an earlier result's.
    """
    column, cells = distances_of(result)
    nodes = sorted({*result.get("organizations", ()), *(k for k, _ in cells)})
    if not cells or len(nodes) < 2:  # one node's model is the global one
        path.unlink(missing_ok=True)
        return False
    rounds = [row["round"] for row in result["history"]]
    grid = [[cells.get((k, t), float("nan")) for t in rounds] for k in nodes]
    height = min(max(2.4, 0.16 * len(nodes) + 1.2), 9)
    figure, axis = plt.subplots(figsize=(8, height), constrained_layout=True)
    least, most = min(cells.values()), max(cells.values())
    # the first round's are often many times the others
    norm = LogNorm(least, most) if 0 < least < most / 5 else None
    image = axis.imshow(grid, aspect="auto", cmap="viridis", interpolation="nearest", norm=norm)
    axis.set_facecolor("0.9")  # not asked in that round, or overflowed
    step, wide = max(1, len(nodes) // 25), max(1, len(rounds) // 15)
    called = dict(enumerate(result.get("experiment", {}).get("nodes", []), start=1))
    names = [_plain(str(called.get(k, k))) for k in nodes]
    axis.set_yticks(range(0, len(nodes), step), names[::step], fontsize=8)
    axis.set_xticks(range(0, len(rounds), wide), [str(t) for t in rounds[::wide]], fontsize=8)
    axis.set(
        xlabel="round",
        ylabel="organization" if names == [str(k) for k in nodes] else "",
        title=f"{_plain(name or result['method'])}: distance of a node's model from the {FROM[column]}",
    )
    # over many powers of ten, as of a training that has diverged, ticks between them would leave no room for any
    ticks = LogLocator(subs=(1, 2, 5) if most < 1e4 * least else (1,)) if norm else None
    figure.colorbar(image, label="Euclidean distance", ticks=ticks, format="%g").minorticks_off()
    _save(figure, path)
    return True


def components(result: Result, path: Path, most: int = 30) -> bool:
    """The share of variance that each principal component explains, and that of all up to it, as a PNG. Returns False,
    as ``curves``, of a result that has none."""
    if (arrays := _components(result)) is None:
        path.unlink(missing_ok=True)
        return False
    shares = 100 * arrays["explained_variance_ratio"]
    figure, axis = plt.subplots(figsize=(7, 4), constrained_layout=True)
    numbers = np.arange(1, len(shares) + 1)[:most]
    axis.bar(numbers, shares[:most], color=COLOURS[5], label="each")
    axis.plot(numbers, np.cumsum(shares)[:most], "o-", color=COLOURS[0], markersize=3, label="together")
    axis.set_xlabel("principal component" if len(shares) <= most else f"principal component, {most} of {len(shares)}")
    axis.set_ylabel("variance explained, %")
    axis.set_ylim(0, 105)
    axis.set_xlim(0.4, len(numbers) + 0.6)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=2, frameon=False)
    _save(figure, path)
    return True


def components_table(result: Result, most: int = 12, loadings: int = 3) -> Table | None:
    """Of the first ``most`` principal components the variance and the columns with the largest loadings; None of a
    result that has none."""
    if (arrays := _components(result)) is None:
        return None
    data = result["data"]
    columns = preprocessing.names_after(
        data.get("preprocess") or [], data.get("features") or [], data.get("categories") or []
    )
    shares = arrays["explained_variance_ratio"]
    out = Table(box=None, pad_edge=False)
    for heading in ("component", "variance", "share", "together"):
        out.add_column(heading, justify="right")
    out.add_column("largest loadings", overflow="fold")
    for i, row in enumerate(arrays["components"][:most]):
        largest = np.argsort(-np.abs(row), kind="stable")[:loadings]
        named = (escape(f"{columns[j] if columns else f'column {j + 1}'} {row[j]:+.2f}") for j in largest)
        out.add_row(
            f"{i + 1} of {len(shares)}",
            f"{arrays['explained_variance'][i]:.4g}",
            f"{shares[i]:.3f}",
            f"{shares[: i + 1].sum():.3f}",
            ", ".join(named),
        )
    return out


def _components(result: Result) -> dict[str, np.ndarray] | None:
    kept = result.get("weights")
    needed = {"components", "explained_variance", "explained_variance_ratio"}
    return codec.decode(kept) if isinstance(kept, dict) and needed <= {*kept.get("shapes", ())} else None


def table(results: Mapping[str, Result], target: float | None = None) -> Table:
    """One line a result."""
    out = Table(box=None, pad_edge=False)
    units = [("rounds", "rounds", 1, ".1f"), ("uploads", "uploads", 1, ".1f"), ("bytes", "MB", 1e6, ".3f")]
    if simulated(results):
        units.append(("seconds", "s", 1, ".1f"))
    reached = [] if target is None else [f"{name} to {100 * target:g}%" for _, name, *_ in units]
    measures = {"R squared": "r2"} if measure(results) == "r2" else {"accuracy": "accuracy", "AUC": "auc"}
    for heading in ("", "rounds", *measures, "loss", *reached, "uploads", "MB up", "MB down", "s"):
        out.add_column(heading, justify="left" if heading == "" else "right", no_wrap=heading != "", overflow="fold")
    for name, result in results.items():
        s = summary(result, target)
        to = [(s[f"{unit}_to_target"], scale, form) for unit, _, scale, form in units if target is not None]
        costs = ["not reached" if cost is None else format(cost / scale, form) for cost, scale, form in to]
        out.add_row(
            escape(name),
            str(s["rounds"]),
            *(_number(s[key], ".4f") for key in measures.values()),
            _number(s["loss"], ".4f"),
            *costs,
            str(s["uploads"]),
            f"{s['bytes_up'] / 1e6:.3f}",
            f"{s['bytes_down'] / 1e6:.3f}",
            f"{s['seconds']:.2f}",
        )
    return out


def classes_table(result: Result, most: int = 12) -> Table | None:
    """Of each class how many held-out rows there are, how many of these are found, and how many it is said of; None
    where nothing was counted, or of more than ``most`` classes."""
    confusion = np.asarray((result.get("final") or {}).get("confusion") or [[0]])
    classes = result["data"]["classes"] or []
    if not confusion.any() or len(classes) > most:
        return None
    out = Table(box=None, pad_edge=False)
    for heading in ("held-out class", "rows", "found", "recall", "said of", "precision"):
        out.add_column(heading, justify="left" if heading == "held-out class" else "right")
    for c, (name, rows, said) in enumerate(zip(classes, confusion.sum(axis=1), confusion.sum(axis=0), strict=True)):
        found = confusion[c, c]
        recall, precision = (f"{found / of:.3f}" if of else "-" for of in (rows, said))
        out.add_row(escape(str(name)), str(rows), str(found), recall, str(said), precision)
    return out


def most_frequent(result: Result) -> tuple[str, float] | None:
    """The class that most held-out rows have, and the accuracy of always saying it; None where nothing was counted."""
    confusion = np.asarray((result.get("final") or {}).get("confusion") or [[0]])
    if not confusion.any():
        return None
    rows = confusion.sum(axis=1)
    return str(result["data"]["classes"][int(rows.argmax())]), float(rows.max() / rows.sum())


def signs(found: Mapping[tuple[str, str], Verdict], scores: Mapping[str, Sequence[float]]) -> Table:
    """Each method's mean score, and row against column: better +, worse -, practically equivalent =, not known ?."""
    out = Table(box=None, pad_edge=False)
    out.add_column("", overflow="fold")
    for heading in ("mean", "deviation", *map(str, range(1, len(scores) + 1))):
        out.add_column(heading, justify="right")
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


def posteriors(found: Mapping[tuple[str, str], Verdict], rope: float, path: Path, what: str = "accuracy") -> None:
    """The posterior density of each two methods' mean difference in score, with the region of practical equivalence
    (like Nilsson's Figure 3), as a PNG."""
    from scipy import stats  # slow to import, and needed here only

    across = min(3, len(found))
    down = -(-len(found) // across)
    size = (4.2 * across, 3.1 * down)
    figure, axes = plt.subplots(down, across, figsize=size, squeeze=False, constrained_layout=True)
    for axis in axes.flat[len(found) :]:
        axis.set_axis_off()
    for axis, ((first, second), verdict) in zip(axes.flat, found.items(), strict=False):
        middle, deviation = verdict.difference, float(np.sqrt(verdict.posterior.var))
        # four deviations, and the region
        reach = max(4 * deviation, 1.5 * rope, 1e-6)
        d = np.linspace(min(middle - reach, -1.5 * rope), max(middle + reach, 1.5 * rope), 400)
        if deviation:
            # baycomp's posterior is a Student distribution of second less first
            density = stats.t.pdf(d, verdict.posterior.df, middle, deviation)
            axis.plot(100 * d, density, color=COLOURS[0], linewidth=1.5)
            axis.fill_between(100 * d, density, color=COLOURS[5], alpha=0.5)
        else:
            axis.axvline(100 * middle, color=COLOURS[0], linewidth=1.5)
        if rope:
            label = f"practically equal, up to {100 * rope:g}" if axis is axes.flat[0] else None
            axis.axvspan(-100 * rope, 100 * rope, color=COLOURS[4], alpha=0.25, label=label)
        axis.set_yticks([])
        axis.set_ylim(bottom=0)
        chances = f"better {verdict.better:.0%}, equal {verdict.equal:.0%}, worse {verdict.worse:.0%}"
        names = "\n".join(fill(text, 44) for text in (first, f"less {second}"))
        axis.set_title(f"{names}\n{chances}", fontsize=9)
        axis.set_xlabel(f"difference in {what}, points", fontsize=9)
        axis.spines[["top", "right", "left"]].set_visible(False)
    if rope:
        figure.legend(loc="outside lower center", frameon=False, fontsize=9)
    _save(figure, path)


def settings_table(arguments: Sequence[Mapping[str, Any]]) -> Table:
    """The settings of a method, as its entry in an algorithm store has them."""
    out = Table(box=None, pad_edge=False)
    for heading in ("setting", "default", "meaning"):
        out.add_column(heading, overflow="fold", no_wrap=heading == "setting")
    for argument in arguments:
        default = argument.get("default_value", "") if argument["has_default_value"] else "none: give it"
        allowed = argument.get("allowed_values")
        meaning = argument["description"] + (f" ({', '.join(map(str, allowed))})" if allowed else "")
        out.add_row(argument["name"], str(default), escape(meaning))
    return out


def rounds_table(result: Result, lines: int = 12) -> Table:
    """A few rounds of one result, evenly spaced, the last among them."""
    history = result["history"]
    step = max(1, -(-len(history) // lines))
    out = Table(box=None, pad_edge=False)
    measures = {"R squared": "r2"} if "r2" in history[-1] else {"accuracy": "accuracy", "AUC": "auc"}
    time = dict(zip((row["round"] for row in history), spent(result, "seconds"), strict=True))
    clock = ["s"] if simulated({"": result}) else []  # others' seconds are this machine's
    for heading in ("round", "nodes", "rows", "train loss", "loss", *measures, "kB up", "kB down", *clock):
        out.add_column(heading, justify="right")
    own = [name for name, value in history[-1].items() if name not in OF_ALL and isinstance(value, int | float)]
    for name in own:
        out.add_column(name.replace("_", " "), justify="right")
    if any(row.get("missing") for row in history):
        out.add_column("missing")
    for row in [
        r for r in history if r["round"] % step == 0 or r is history[-1] or r is history[0] or r.get("missing")
    ]:
        out.add_row(
            str(row["round"]),
            str(len(row["participants"])),
            str(row["n"]),
            _number(row["train_loss"], ".4f"),
            _number(row["loss"], ".4f"),
            *(_number(row[key], ".4f") for key in measures.values()),
            f"{row['bytes_up'] / 1e3:.1f}",
            f"{row['bytes_down'] / 1e3:.1f}",
            *([f"{time[row['round']]:.1f}"] if clock else []),
            *(_number(row.get(name), "" if isinstance(row.get(name), int) else ".4g") for name in own),
            *([_missing(row)] if row.get("missing") else []),
        )
    return out


def _plain(text: str) -> str:
    """Without matplotlib's mathematics."""
    return text.replace("$", r"\$")


def _missing(row: Mapping[str, Any]) -> str:
    reasons: dict[str, list[str]] = {}
    for absent in row["missing"]:
        reasons.setdefault(absent["reason"], []).append(str(absent["organization_id"]))
    return "; ".join(f"{', '.join(who)}: {reason}" for reason, who in reasons.items())


def _number(value: float | None, form: str, absent: str = "-") -> str:
    return absent if value is None else format(value, form)


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


def _finish(axis: Axes, x: str, y: str, target: float | None = None) -> None:
    axis.set_xlabel(UNITS[x])
    # fractions of megabytes are long; one tick, of one round
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


def _save_with_legend(figure: Any, axis: Axes, path: Path) -> None:
    handles, names = axis.get_legend_handles_labels()
    if len(names) > 1:
        wide = 0.8 + 0.08 * max(map(len, names))  # inches that the longest takes with its sample
        columns = max(1, min(len(names), 4, int(figure.get_figwidth() / wide)))
        figure.legend(handles, names, loc="outside lower center", ncols=columns, frameon=False, fontsize=9)
    _save(figure, path)


def _save(figure: Any, path: Path) -> None:
    with warnings.catch_warnings():
        # a hospital's name in a script that the font lacks is drawn as boxes; the tables have it
        warnings.filterwarnings("ignore", "Glyph .* missing from|Matplotlib currently does not support")
        figure.savefig(path, dpi=120)
    plt.close(figure)
