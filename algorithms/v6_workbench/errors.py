"""Errors of the Docker engine and of networks, with a text of one line; what such texts name, and whole numbers."""

import json
from collections.abc import Iterable, Sequence
from numbers import Integral, Real
from typing import Any

from v6_federated.base.errors import SafeError
from v6_federated.base.text import shortened


class EngineError(RuntimeError):
    """The Docker engine of this machine does not answer, or did not do what was asked."""


class NetworkError(EngineError):
    """A network could not be started, found or reached."""


class ServerGone(NetworkError):
    """A server has not answered for as long as it may."""


def whole_number(name: str, value: Any, example: int = 1) -> int:
    """Read a whole number that was given in Python, where nothing else checks its type.

    Args:
        name: what the number is called.
        value: the number; 3.0 is whole.
        example: a right value, for the error.

    Returns:
        The number, as Python's own int.

    Raises:
        SafeError: it is another number, a truth value or no number.
    """
    whole = isinstance(value, Integral) or (isinstance(value, Real) and float(value).is_integer())
    if whole and not isinstance(value, bool):
        return int(value)
    raise SafeError(f"{name}={value!r} is no whole number; expected one, for example {name}={example}")


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
