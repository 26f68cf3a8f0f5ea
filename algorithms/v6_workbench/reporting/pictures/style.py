"""How pictures look, and how they are written."""

import io
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any, BinaryIO, Literal

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from v6_federated.base.files import replacing

# Okabe and Ito's colours, which colour-blind readers can tell apart, then Tol's: more than there are line styles, so
# that no two of 12 curves look alike
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"]
COLOURS += ["#882255", "#999933", "#332288", "#888888", "#661100"]
STYLES = ["-", "--", "-.", ":"]  # they differ in grey too
DASHED: dict[str, Any] = {"linewidth": 0.8, "linestyle": (0, (6, 4))}  # of lines to compare with
ACROSS = 3  # most panels side by side, if there is one for each of several names


def panels(down: int, across: int, size: tuple[float, float], **options: Any) -> tuple[Figure, np.ndarray]:
    """Make a figure with panels.

    Args:
        down: their number from top to bottom.
        across: their number from left to right.
        size: width and height of the figure in inches.
        options: of ``Figure.subplots``.

    Returns:
        The figure; its axes (down, across).
    """
    figure = Figure(size, layout="constrained")
    return figure, figure.subplots(down, across, squeeze=False, **options)


def panel_for_each(number: int, width: float, height: float, **options: Any) -> tuple[Figure, np.ndarray]:
    """Make a figure with some panels, in rows of ``ACROSS``.

    Args:
        number: how many are used; the places after them stay empty.
        width: of one panel in inches.
        height: of one panel in inches.
        options: of ``Figure.subplots``.

    Returns:
        The figure; its axes (down, across).
    """
    across = min(ACROSS, number)
    down = -(-number // across)
    figure, axes = panels(down, across, (width * across, height * down), **options)
    for axis in axes.flat[number:]:
        axis.set_axis_off()
    return figure, axes


def line(axis: Axes, x: Sequence[float], y: Sequence[float], name: str, i: int, dots: bool = True) -> None:
    """Draw the line of one of several results.

    Args:
        axis: where.
        x: where its points are, from left to right.
        y: their values.
        name: its name in the legend.
        i: its number, which chooses colour and line style.
        dots: mark the points.
    """
    axis.plot(
        x,
        y,
        STYLES[i % len(STYLES)],
        color=COLOURS[i % len(COLOURS)],
        label=plain(name),
        marker="o" if dots else None,
        markersize=3,
        linewidth=1.5,
    )


def open_frame(axis: Axes, grid: Literal["x", "y", "both"] = "both") -> None:
    """Draw a grid, and no frame above and on the right.

    Args:
        axis: where.
        grid: lines at the ticks of "x", "y" or "both".
    """
    axis.grid(alpha=0.3, axis=grid)
    axis.spines[["top", "right"]].set_visible(False)


def legend(figure: Figure, axis: Axes) -> None:
    """Name the lines below the figure, if there are several.

    Args:
        figure: the figure.
        axis: axes with all lines.
    """
    handles, names = axis.get_legend_handles_labels()
    if len(names) > 1:
        wide = 0.8 + 0.08 * max(map(len, names))  # inches that the longest name takes with its line
        columns = max(1, min(len(names), 4, int(figure.get_figwidth() / wide)))
        figure.legend(handles, names, loc="outside lower center", ncols=columns, frameon=False, fontsize=9)


def plain(text: str) -> str:
    """Escape what matplotlib would read as mathematics.

    Args:
        text: the text.

    Returns:
        What is drawn as this text.
    """
    return text.replace("$", r"\$")


def wrapped(text: str) -> str:
    """Break a name between words.

    Args:
        text: the name.

    Returns:
        The name in lines.
    """
    return fill(text, 44, break_long_words=False, break_on_hyphens=False)


def width_of(names: Iterable[str]) -> float:
    """Estimate the room that the small labels of ticks need.

    Args:
        names: the labels, of one or several lines.

    Returns:
        The width of the longest line in inches.
    """
    return 0.065 * max(len(line) for name in names for line in name.split("\n"))


def write(figure: Figure | None, path: Path) -> bool:
    """Write a figure, or remove an earlier picture if there is nothing to draw.

    Args:
        figure: the figure, or None.
        path: the file, whose ending is the format.

    Returns:
        Whether there is a picture.

    Raises:
        OSError: the file cannot be written; it is then as it was before.
    """
    if figure is None:
        path.unlink(missing_ok=True)
        return False
    with replacing(path) as stream:
        _save(figure, stream, path.suffix.removeprefix("."))
    return True


def svg(figure: Figure) -> str:
    """Return a figure as SVG.

    Args:
        figure: the figure.

    Returns:
        The file's text, in which text stays text.
    """
    stream = io.BytesIO()
    _save(figure, stream, "svg")
    return stream.getvalue().decode()


def _save(figure: Figure, stream: BinaryIO, form: str) -> None:
    with warnings.catch_warnings(), matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "v6-federated"}):
        # a hospital's name in a script that the font lacks is drawn as boxes; the tables show it
        warnings.filterwarnings("ignore", "Glyph .* missing from|Matplotlib currently does not support")
        figure.savefig(stream, format=form, dpi=120, transparent=form == "svg")
