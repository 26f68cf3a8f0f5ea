"""Errors whose text is one line. Of the errors that Python code raises, only a SafeError's text may leave a node."""

import traceback
from pathlib import Path
from typing import Any


class SafeError(ValueError):
    """A request is wrong, or its outcome cannot be used.

    Its text may leave a node: write no value of a row into it. Say what was wrong, what is accepted and what to do.
    """


class Interrupted(KeyboardInterrupt):
    """A job was stopped with Ctrl-C.

    Attributes:
        result: the job's result after its last finished round.
    """

    def __init__(self, result: dict[str, Any]) -> None:
        super().__init__("interrupted")
        self.result = result


def place_of(error: Exception) -> str:
    """Where an error was raised, without its text, which could quote a row."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{Path(place.filename).name}, line {place.lineno}"
