"""Pictures of how good scores are: calibration, ROC and precision-recall curve."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib import pyplot as plt

from v6_workbench.reporting.pictures import COLOURS, finished


def draw(curves: Mapping[str, Any], path: Path) -> bool:
    """Draw the curves of a result of two classes.

    Args:
        curves: ``curves`` of the result.
        path: the picture.

    Returns:
        Whether there is a picture: not without curves.
    """
    panels = [name for name in ("calibration", "roc", "precision_recall") if curves.get(name)]
    if not panels:
        return False
    size = 3.9 * len(panels), 3.9
    figure, row = plt.subplots(1, len(panels), figsize=size, squeeze=False, constrained_layout=True)
    for axis, name in zip(row[0], panels, strict=True):
        if name == "calibration":
            bins = [b for b in curves[name] if b["n"]]
            most = max(b["n"] for b in bins)
            axis.scatter(
                [b["predicted"] for b in bins],
                [b["observed"] for b in bins],
                s=[12 + 120 * b["n"] / most for b in bins],
                color=COLOURS[0],
                alpha=0.8,
            )
            x, y, diagonal = "predicted share (dots: rows)", "observed share", True
        else:
            axis.plot(*zip(*curves[name], strict=True), color=COLOURS[0])
            x, y = ("false positive rate", "true positive rate") if name == "roc" else ("recall", "precision")
            diagonal = name == "roc"
        if diagonal:
            axis.plot([0, 1], [0, 1], color="0.6", linewidth=0.8, linestyle=(0, (6, 4)))
        axis.set(xlabel=x, ylabel=y, xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal")
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    finished(figure, path)
    return True
