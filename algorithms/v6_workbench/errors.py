"""Errors of the Docker engine and of networks, with a text of one line; names in such a text."""

import json
from collections.abc import Iterable, Sequence

from v6_federated.base.errors import SafeError
from v6_federated.base.text import shortened


class EngineError(RuntimeError):
    """The Docker engine of this machine does not answer, or did not do what was asked."""


class NetworkError(EngineError):
    """A network could not be started, found or reached."""


class ServerGone(NetworkError):
    """A server has not answered for as long as it may."""


def some_of(names: Iterable[object], most: int = 10) -> str:
    """List names in an error.

    Args:
        names: the names.
        most: how many are listed; the others are counted.

    Returns:
        The names in quotes, so that a space at an end is visible.
    """
    return shortened((repr(str(name)) for name in names), most)


def no_such(option: str, wrong: Sequence[str], there: Sequence[object], what: str = "column") -> SafeError:
    """Refuse names of columns.

    Args:
        option: the option that names them.
        wrong: the names that are not of columns.
        there: the names of the columns.
        what: what the option names.

    Returns:
        The error. If the name of a column was split at its comma, it shows how to write it.
    """
    text = f"{option} {', '.join(wrong)}: no such {what}; expected some of {some_of(there)}"
    split = [name for name in map(str, there) if {part.strip() for part in name.split(",")[1:]} & {*wrong}]
    if split:
        text += f"; name columns with a comma in a JSON list: {option} '{json.dumps(split[:1], ensure_ascii=False)}'"
    return SafeError(text)
