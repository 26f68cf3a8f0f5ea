"""Errors of the Docker engine and of networks, with a text of one line; names in such a text."""

from collections.abc import Iterable

from v6_federated.base.text import shortened


class EngineError(RuntimeError):
    """The Docker engine of this machine does not answer, or did not do what was asked."""


class NetworkError(EngineError):
    """A network could not be started, found or reached."""


def some_of(names: Iterable[object], most: int = 10) -> str:
    """List names in an error.

    Args:
        names: the names.
        most: how many are listed; the others are counted.

    Returns:
        The names in quotes, so that a space at an end is visible.
    """
    return shortened((repr(str(name)) for name in names), most)
