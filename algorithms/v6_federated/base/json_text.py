"""JSON from others: its nesting and its whole numbers are bounded, so that every reader and writer can handle it."""

import json
from typing import Any

from v6_federated.base.errors import SafeError

MOST_LEVELS = 100  # lists and objects within each other; messages, results and checkpoints have fewer than 30
NESTED = (dict, list, tuple)
SMALLEST, LARGEST = -(2**63), 2**64 - 1  # whole numbers that others than Python can read, and numpy can hold
TOO_LARGE = "JSON with a whole number of more than 64 bits; expected smaller numbers"
TOO_DEEP = f"JSON of more than {MOST_LEVELS} levels; expected lists and objects that are nested less deeply"


def parse(text: str | bytes) -> Any:
    """Read JSON.

    Args:
        text: the text.

    Returns:
        What it says.

    Raises:
        SafeError: it is nested too deeply, or holds a whole number of more than 64 bits.
        ValueError: it is not JSON.
    """
    try:
        found = json.loads(text)
    except RecursionError:
        raise SafeError(TOO_DEEP) from None
    check(found)
    return found


def check(value: Any) -> None:
    """Check how deeply lists and objects are nested, and how large whole numbers are.

    Args:
        value: JSON.

    Raises:
        SafeError: more than ``MOST_LEVELS`` deep, or a number has more than 64 bits.
    """
    level = [value]
    for _ in range(MOST_LEVELS + 1):
        if any(type(part) is int and not SMALLEST <= part <= LARGEST for part in level):
            raise SafeError(TOO_LARGE)
        nested = [part for part in level if isinstance(part, NESTED)]
        if not nested:
            return
        level = [part for outer in nested for part in (outer.values() if isinstance(outer, dict) else outer)]
    raise SafeError(TOO_DEEP)
