"""How good a model is on held-out rows: of all hospitals together, and of each."""

from matplotlib.figure import Figure

from v6_workbench.reporting.hospitals import own_results
from v6_workbench.reporting.pictures.style import COLOURS, DASHED, open_frame, panels, plain, width_of, wrapped
from v6_workbench.reporting.summary import MEASURES, Result


def scores(result: Result) -> Figure | None:
    """Draw how good the scores of two classes are: calibration, ROC and precision-recall curve.

    Args:
        result: the result.

    Returns:
        The figure; None of results without curves.
    """
    found = result.get("curves") or {}
    names = [name for name in ("calibration", "roc", "precision_recall") if found.get(name)]
    if not names:
        return None
    figure, (axes,) = panels(1, len(names), (3.9 * len(names), 3.9))
    for axis, name in zip(axes, names, strict=True):
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
            axis.plot([0, 1], [0, 1], color="0.6", **DASHED)
        axis.set(xlabel=x, ylabel=y, xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal")
        open_frame(axis)
    return figure


def hospitals(result: Result) -> Figure | None:
    """Draw accuracy and AUC of each hospital with 95% intervals (R squared, C-index without), and a line for all.

    Args:
        result: the result.

    Returns:
        The figure; None of results that show no hospital's own.
    """
    rows = own_results(result)
    names = [name for name in ("accuracy", "auc", "r2", "c_index") if any(row.get(name) is not None for row in rows)]
    if not names:
        return None
    labels = [wrapped(f"{plain(row['name'])} ({row['evaluated']})") for row in rows]
    size = width_of(labels) + 3.5 * len(names), 1.2 + 0.32 * len(rows)
    figure, (axes,) = panels(1, len(names), size, sharey=True)
    for axis, name in zip(axes, names, strict=True):
        for i, row in enumerate(rows):
            if (value := row.get(name)) is None:
                continue
            lower, upper = row.get(f"{name}_interval") or (value, value)
            axis.plot([lower, upper], [i, i], color=COLOURS[0], linewidth=1.5)
            axis.plot(value, i, "o", color=COLOURS[0])
        if (pooled := (result.get("final") or {}).get(name)) is not None:
            axis.axvline(pooled, color="0.4", **DASHED)
        axis.set_xlabel(f"{MEASURES[name]} (dashed: all hospitals)")
        open_frame(axis)
    axes[0].set_yticks(range(len(rows)), labels, fontsize=8)
    axes[0].set_ylim(len(rows) - 0.5, -0.5)
    return figure
