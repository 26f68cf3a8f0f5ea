"""JSON from others: nesting and whole numbers are bounded and texts are Unicode, so that all can read and write it."""

import itertools
import json
from typing import Any

from v6_federated.base.errors import SafeError

MOST_LEVELS = 100  # lists and objects within each other; messages, results and checkpoints have fewer than 30
NESTED = (dict, list, tuple)
SMALLEST, LARGEST = -(2**63), 2**64 - 1  # whole numbers that others than Python can read, and numpy can hold
TOO_LARGE = "JSON with a whole number of more than 64 bits; expected smaller numbers"
NO_TEXT = "JSON with a text that is no Unicode; expected one that can be written as UTF-8"
TOO_DEEP = f"JSON of more than {MOST_LEVELS} levels; expected lists and objects that are nested less deeply"


def parse(text: str | bytes) -> Any:
    """Read JSON."""
    try:
        found = json.loads(text)
    except RecursionError:
        raise SafeError(TOO_DEEP) from None
    check(found)
    return found


def check(value: Any) -> None:
    """Check how deeply lists and objects are nested, how large whole numbers are, and that texts can be written."""
    level = [value]
    for _ in range(MOST_LEVELS + 1):
        numbers = [part for part in level if type(part) is int]
        if numbers and not SMALLEST <= min(numbers) <= max(numbers) <= LARGEST:
            raise SafeError(TOO_LARGE)
        nested = [part for part in level if isinstance(part, NESTED)]
        keys = (key for part in nested if isinstance(part, dict) for key in part)
        if not _is_text("".join(part for part in itertools.chain(level, keys) if isinstance(part, str))):
            raise SafeError(NO_TEXT)
        if not nested:
            return
        level = [part for outer in nested for part in (outer.values() if isinstance(outer, dict) else outer)]
    raise SafeError(TOO_DEEP)


def _is_text(text: str) -> bool:
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:  # of half a character, which JSON can hold
        return False
