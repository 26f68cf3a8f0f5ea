"""Texts for messages."""

from collections.abc import Iterable

NOTHING_COMPUTED = "Nothing was computed."
MOST_TEXT = 1000  # letters of a text in an answer: of a reason, a class, a level
DIVERGED = "training has diverged; try a smaller lr, or put columns on one scale (--preprocess standardize)"


def shortened(names: Iterable[object], most: int = 10, between: str = ", ") -> str:
    """List names in a message."""
    texts = [*map(str, names)]
    more = len(texts) - most
    return between.join(texts[:most]) + (f" and {more} more" if more > 0 else "")


def counted(number: int, one: str, several: str = "") -> str:
    """Write a number of things."""
    return f"{number:,} {one if number == 1 else several or one + 's'}"
