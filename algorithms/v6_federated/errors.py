"""Errors that are told in one line; only that of a SafeError may leave a node."""

from typing import Any


class SafeError(ValueError):
    """Something is wrong with a request or its outcome; the text holds no value of a row."""


class EngineError(RuntimeError):
    """The Docker engine of this machine does not answer, or did not do what was asked; the text is one line."""


class NetworkError(EngineError):
    """A network could not be started, found or reached; the text is one line that says why and what would be right."""


class Interrupted(KeyboardInterrupt):
    """Somebody has ended a job by Ctrl-C; ``result`` is that of its last finished round."""

    def __init__(self, result: dict[str, Any]) -> None:
        super().__init__("interrupted")
        self.result = result
