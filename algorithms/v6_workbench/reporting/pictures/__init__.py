"""Pictures of results, and their files: PNG, SVG or PDF, as their names end.

A function that draws returns a figure, or None if there is nothing to draw. ``write`` takes both.
"""

from collections.abc import Callable
from pathlib import Path

from matplotlib.figure import Figure

from v6_workbench.reporting.pictures.choosing import noise, posteriors, search
from v6_workbench.reporting.pictures.models import coefficients, components, importances
from v6_workbench.reporting.pictures.performance import hospitals, scores
from v6_workbench.reporting.pictures.style import COLOURS, STYLES, svg, write
from v6_workbench.reporting.pictures.times import baseline, survival
from v6_workbench.reporting.pictures.training import comparison, curves, distances
from v6_workbench.reporting.summary import Result

__all__ = [
    "COLOURS",
    "KINDS",
    "STYLES",
    "baseline",
    "coefficients",
    "comparison",
    "components",
    "curves",
    "distances",
    "hospitals",
    "importances",
    "noise",
    "of_one",
    "posteriors",
    "scores",
    "search",
    "survival",
    "svg",
    "write",
]

KINDS: dict[str, Callable[[Result], Figure | None]] = {  # pictures of one result, by what their files are called
    "distances": distances,
    "components": components,
    "importances": importances,
    "scores": scores,
    "hospitals": hospitals,
    "coefficients": coefficients,
    "survival": survival,
    "baseline": baseline,
}


def of_one(result: Result, folder: Path, form: str = "png", number: str = "", name: str = "") -> None:
    """Draw all pictures that are of one result, see ``KINDS``, if there are any.

    Args:
        result: the result.
        folder: their folder.
        form: their format.
        number: what follows the kind of picture in the name of its file.
        name: name of the result in the titles; empty is the method's name.
    """
    named = {**result, "method": name or result["method"]}
    for kind, draw in KINDS.items():
        write(draw(named), folder / f"{kind}{number}.{form}")
