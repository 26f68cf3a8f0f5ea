"""The columns that fitted steps name and make. This module imports nothing slow: reports of results need it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from v6_federated.base.errors import SafeError
from v6_federated.messages import codec

MOST_LEVELS = 10_000  # of a column


def missing(column: str) -> str:
    """Name the column that marks where another one has no value."""
    return f"missing({column})"


def level(column: str, word: str) -> str:
    """Name the column that marks where a column of words has one of its levels."""
    return f"{column}={word}"


def component(i: int) -> str:
    """Name a principal component, counted from 0."""
    return f"pc{i + 1}"


def names_after(steps: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[str]:
    """Name the columns after fitted steps, as ``preprocessing.apply`` does for rows.

    Args:
        steps: fitted steps, each ``{"step": NAME, "fitted": ...}``.
        names: the columns before them; none if the data are arrays.

    Returns:
        The columns after them; none if the data are arrays.

    Raises:
        SafeError: a step that makes columns is malformed.
    """
    found = [*names]
    for step in steps if names else ():
        kind, fitted = step.get("step"), step.get("fitted", {})
        if kind == "missing_indicator":
            found += map(missing, marked(fitted))
        elif kind == "onehot":
            levels = by_column(fitted, "levels", are_levels)
            found = [
                new for name in found for new in ([level(name, w) for w in levels[name]] if name in levels else [name])
            ]
        elif kind == "pca":
            d = len(found)
            arrays = codec.decode(fitted, {"mean": (d,), "mean_rest": (d,), "scale": (d,), "components": (None, d)})
            found = [*map(component, range(len(arrays["components"])))]
    return found


def by_column(fitted: Any, part: str, fits: Callable[[Any], bool]) -> Mapping[str, Any]:
    """Read what was fitted for each column. A task may contain anything, and numpy would compare a column with a list.

    Args:
        fitted: what was fitted.
        part: the part to read.
        fits: whether a value can belong to a column.

    Returns:
        The values by column.

    Raises:
        SafeError: the part is malformed.
    """
    found = fitted.get(part) if isinstance(fitted, Mapping) else None
    if not isinstance(found, Mapping) or not all(isinstance(name, str) and fits(v) for name, v in found.items()):
        raise SafeError(f"the {part} of a fitted step are malformed; expected them as an earlier job has fitted them")
    return found


def marked(fitted: Any) -> list[str]:
    """Read the columns whose missing values are marked. A task may contain anything.

    Args:
        fitted: what was fitted.

    Returns:
        Their names.

    Raises:
        SafeError: they are malformed.
    """
    found = fitted.get("columns") if isinstance(fitted, Mapping) else None
    texts = isinstance(found, list) and len(found) <= MOST_LEVELS and all(isinstance(name, str) for name in found)
    if not isinstance(found, list) or not texts or len(set(found)) < len(found):
        raise SafeError("the columns of a fitted step are malformed; expected them as an earlier job has fitted them")
    return found


def are_levels(value: Any) -> bool:
    """Whether a value can be the levels of a column: different words, and not so many that they take much memory."""
    words = isinstance(value, list) and len(value) <= MOST_LEVELS and all(isinstance(level, str) for level in value)
    return words and len(set(value)) == len(value)
