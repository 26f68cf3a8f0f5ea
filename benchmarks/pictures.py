"""Pictures that several benchmarks draw."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
import numpy as np

from v6_workbench.reporting.pictures import COLOURS, STYLES

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.ticker import MaxNLocator

ACROSS = 3  # panels in a row
Line = tuple[Sequence[float], Sequence[Sequence[float]]]  # places on the horizontal axis, and the values of each run


def curves(
    panels: Mapping[str, Mapping[str, Line]],
    path: Path,
    *,
    xlabel: str = "round",
    ylabel: str = "test accuracy",
    bottom: float | None = None,
    target: float | Mapping[str, float] | None = None,
    log: bool = False,
    losses: bool = False,
    names: Sequence[str] = (),
) -> bool:
    """Draw a PNG with one panel a setting and one line a method: the mean of its runs, shaded from the lowest to the
    highest of them. A line ends with its shortest run. A panel without a line is left out.

    Args:
        panels: lines by the panel's title and their own name.
        path: where the picture is written.
        xlabel, ylabel: what the axes show.
        bottom: the lowest value shown.
        target: value at which a thin line is drawn, in all panels or by title.
        log: whether the horizontal axis is logarithmic.
        losses: whether the values are losses: the vertical axis is logarithmic and does not end at 1.
        names: lines that have the same colour in each panel, and one legend for all panels.

    Returns:
        Whether there was a line to draw.
    """
    panels = {title: lines for title, lines in panels.items() if lines}
    if not panels:
        return False
    down = -(-len(panels) // ACROSS)
    across = -(-len(panels) // down)
    figure, axes = plt.subplots(
        down, across, figsize=(4.2 * across, 3.8 * down), sharey=True, squeeze=False, constrained_layout=True
    )
    for axis in axes.flat[len(panels) :]:
        axis.set_axis_off()
    for i, (axis, (title, lines)) in enumerate(zip(axes.flat, panels.items(), strict=False)):
        for name in sorted(lines, key=[*names, *lines].index):
            along, runs = lines[name]
            j = [*names, *lines].index(name)
            length = min(map(len, runs))
            values, x = np.array([run[:length] for run in runs]), along[:length]
            colour, style = COLOURS[j % len(COLOURS)], STYLES[j % len(STYLES)]  # told apart in grey too
            axis.plot(x, values.mean(axis=0), style, color=colour, linewidth=1.3, label=name)
            if len(runs) > 1:
                axis.fill_between(x, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.2, linewidth=0)
        if target is not None:
            axis.axhline(target[title] if isinstance(target, Mapping) else target, color="0.5", linewidth=0.8)
        axis.set(title=title, xlabel=xlabel, ylabel=ylabel if i % across == 0 else "")
        if log:
            axis.set_xscale("log")
        else:
            axis.xaxis.set_major_locator(MaxNLocator(nbins="auto", integer=True))
        axis.tick_params(labelleft=True)
        axis.grid(alpha=0.3)
        if not names:
            axis.legend(frameon=False, loc="upper right" if losses else "lower right", fontsize=7)
        if losses:
            axis.set_yscale("log")
    if names:  # one legend for all panels, beside no line
        found = {name: h for axis in axes.flat for h, name in zip(*axis.get_legend_handles_labels(), strict=True)}
        shown = sorted(found, key=[*names, *found].index)
        handles, columns = [found[name] for name in shown], min(5, 3 * across)
        figure.legend(handles, shown, loc="outside lower center", ncols=columns, frameon=False, fontsize=8)
    axes[0, 0].set_ylim(bottom, None if losses else min(axes[0, 0].get_ylim()[1], 1))
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return True
