"""JSON from others: its nesting is bounded, so that no reader runs out of stack."""

import json
from typing import Any

from v6_federated.base.errors import SafeError

MOST_LEVELS = 100  # lists and objects within each other; messages, results and checkpoints have fewer than 30
NESTED = (dict, list, tuple)
TOO_DEEP = f"JSON of more than {MOST_LEVELS} levels; expected lists and objects that are nested less deeply"


def parse(text: str | bytes) -> Any:
    """Read JSON.

    Args:
        text: the text.

    Returns:
        What it says.

    Raises:
        SafeError: it is nested too deeply.
        ValueError: it is not JSON.
    """
    try:
        found = json.loads(text)
    except RecursionError:
        raise SafeError(TOO_DEEP) from None
    check_levels(found)
    return found


def check_levels(value: Any) -> None:
    """Check how deeply lists and objects are nested.

    Args:
        value: JSON.

    Raises:
        SafeError: more than ``MOST_LEVELS`` deep.
    """
    level = [value] if isinstance(value, NESTED) else []
    for _ in range(MOST_LEVELS):
        if not level:
            return
        inner = (part for outer in level for part in (outer.values() if isinstance(outer, dict) else outer))
        level = [part for part in inner if isinstance(part, NESTED)]
    if level:
        raise SafeError(TOO_DEEP)
