"""Errors with a text of one line; only that of a SafeError may leave a node."""

import traceback
from pathlib import Path
from typing import Any


class SafeError(ValueError):
    """Something is wrong with a request or its outcome; the text holds no value of a row."""


class Interrupted(KeyboardInterrupt):
    """Somebody has ended a job by Ctrl-C; ``result`` is that of its last finished round."""

    def __init__(self, result: dict[str, Any]) -> None:
        super().__init__("interrupted")
        self.result = result


def place_of(error: Exception) -> str:
    """File and line in which an error was raised; no text of it, which could quote a row."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{Path(place.filename).name}, line {place.lineno}"
