"""Commands and their options: the options of a command are a frozen dataclass, whose fields are annotated ``Option``.

The type of a field says how its text is read, its default is the option's default, and a field without a default is
required. So a name, its type, its default and its help are written once, and commands get typed values.
"""

import argparse
import math
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, fields
from pathlib import Path
from types import NoneType
from typing import Any, Generic, TypeVar, get_args, get_origin, get_type_hints

Record = TypeVar("Record")


@dataclass(frozen=True)
class Option:
    """How the command line shows a field.

    Attributes:
        help: text of ``--help``; ``{default}`` in it is the field's default.
        metavar: placeholder of the value.
        flag: name of the option; None is the field's name.
        positional: whether it is a word in a fixed place, without a flag.
        read: reads the value from its text; None reads it by the field's type.
        bare: value of an option that is given without one; None: a value must follow.
    """

    help: str
    metavar: str | None = None
    flag: str | None = None
    positional: bool = False
    read: Callable[[str], object] | None = None
    bare: object = None


@dataclass(frozen=True)
class Command(Generic[Record]):
    """A command.

    Attributes:
        name: its name.
        options: the record of its options.
        run: does the work and returns the exit status.
        help: what it does, in one line.
        example: its words in an example.
    """

    name: str
    options: type[Record]
    run: Callable[[Record], int]
    help: str
    example: str


def read_whole(text: str) -> int:
    """Read a whole number."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number; expected for example 10") from None


def read_number(text: str) -> float:
    """Read a number."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number; expected for example 0.5")
    return value


def read_seed(text: str) -> int:
    """Read a seed."""
    from v6_federated.messages.settings import LARGE

    if not text.isdecimal() or int(text) > LARGE:
        raise argparse.ArgumentTypeError(f"{text} is not a seed; expected a whole number from 0 to {LARGE}")
    return int(text)


def read_id(text: str) -> int:
    """Read the id of a task."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(
            f"{text!r} is not the id of a task; expected a whole number, as `v6-federated tasks` lists them"
        )
    return int(text)


READERS: dict[Any, Callable[[str], object]] = {int: read_whole, float: read_number, str: str, Path: Path}


def add_options(parser: argparse.ArgumentParser, record: type) -> None:
    """Add the options of a record to a parser.

    Args:
        parser: the parser.
        record: a dataclass whose fields are ``Annotated[TYPE, Option(...)]``.
    """
    hints = get_type_hints(record, include_extras=True)
    for field in fields(record):
        hint, option = get_args(hints[field.name])
        many = get_origin(hint) is tuple
        type_ = next(part for part in (*get_args(hint), hint) if part is not NoneType)
        settings: dict[str, Any] = {"help": option.help.replace("{default}", str(field.default))}
        if type_ is bool:
            settings["action"] = "store_true"
        else:
            settings |= {"metavar": option.metavar, "type": option.read or READERS[type_]}
        if option.bare is not None:
            settings |= {"nargs": "?", "const": option.bare}
        if many:
            settings |= {"nargs": "+"} if option.positional else {"action": "append"}
        if option.positional:
            parser.add_argument(field.name, **settings)
        else:  # an option that is not given is absent: the record has the defaults
            settings |= {"dest": field.name, "required": _required(field), "default": argparse.SUPPRESS}
            parser.add_argument(option.flag or f"--{field.name.replace('_', '-')}", **settings)


def _required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def filled(record: type[Record], given: dict[str, Any]) -> Record:
    """Make a record of the values that a user gave.

    Args:
        record: the record's type.
        given: values by the names of the fields; lists become tuples.

    Returns:
        The record.
    """
    return record(**{name: tuple(value) if isinstance(value, list) else value for name, value in given.items()})
