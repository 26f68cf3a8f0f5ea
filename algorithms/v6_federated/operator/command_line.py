"""Commands and their options: the options of a command are a frozen dataclass, whose fields are annotated ``Option``.

The type of a field says how its text is read, its default is the option's default, and a field without a default is
required. So a name, its type, its default and its help are written once, and commands get typed values.
"""

import argparse
import functools
import json
import math
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields
from pathlib import Path
from types import NoneType
from typing import Any, NoReturn, TypeVar, get_args, get_origin, get_type_hints

from v6_federated.base.errors import SafeError
from v6_federated.base.text import NOTHING_COMPUTED

Record = TypeVar("Record")
OK, FAILED, WRONG = 0, 1, 2  # exit statuses


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
class Command:
    """A command.

    Attributes:
        name: its name.
        options: the record of its options.
        home: the function that does the work, as ``MODULE:FUNCTION``. It is imported when the command is run, so that
            help and the refusal of a wrong request wait for no library.
        help: what it does, in one line.
        example: its words in an example.
    """

    name: str
    options: type
    home: str
    help: str
    example: str

    def run(self, options: Any) -> int:
        """Do the work."""
        work: Callable[[Any], int] = pkgutil.resolve_name(self.home)
        return work(options)


@dataclass(frozen=True)
class Group:
    """Commands with a common first word.

    Attributes:
        name: the word.
        commands: the commands, by their second word.
        help: what they do, in one line.
    """

    name: str
    commands: tuple[Command, ...]
    help: str


@dataclass(frozen=True)
class Found:
    """What a command for operators has to say.

    Attributes:
        lines: for a person.
        numbers: the same for a program, which is the last line, as JSON.
        status: the exit status.
    """

    lines: Sequence[str]
    numbers: Mapping[str, Any]
    status: int = OK


def prints(work: Callable[[Record], Found]) -> Callable[[Record], int]:
    """Make the function of a command: it prints what the work found, without characters that command a terminal."""

    @functools.wraps(work)
    def run(options: Record) -> int:
        try:
            found = work(options)
        except _answers() as error:
            raise SafeError(str(error).removesuffix(NOTHING_COMPUTED).strip()) from None
        for line in found.lines:
            print("".join(c for c in line if c.isprintable()))
        print(json.dumps(found.numbers), flush=True)
        return found.status

    return run


def _answers() -> tuple[type[Exception], ...]:
    """What a node would answer to a task."""
    from v6_federated.base import vantage6_api as api  # slow to import

    return api.DataError, api.NodePermissionException, api.PrivacyThresholdViolation, api.UserInputError


class Parser(argparse.ArgumentParser):
    """A parser that says in one line what is wrong."""

    def error(self, message: str) -> NoReturn:
        """Print the message and exit with status 2."""
        self.exit(WRONG, f"{self.prog}: {' '.join(message.split())}; see `{self.prog} --help`\n")


def build(program: str, commands: Sequence[Command | Group], description: str) -> Parser:
    """Build the parser of all commands."""
    first = next(command for command in commands if isinstance(command, Command))
    parser = Parser(prog=program, description=description, epilog=f"example: {program} {first.example}")
    _add(parser, "COMMAND", commands, program)
    return parser


def _add(parser: Parser, metavar: str, commands: Sequence[Command | Group], program: str) -> None:
    actions = parser.add_subparsers(required=True, metavar=metavar, parser_class=Parser)
    for command in commands:
        example = (command.commands[0] if isinstance(command, Group) else command).example
        added = actions.add_parser(
            command.name,
            help=command.help,
            description=command.help,
            epilog=f"example: {program} {example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,  # keeps the example on one line
        )
        if isinstance(command, Group):
            _add(added, "ACTION", command.commands, program)
        else:
            add_options(added, command.options)
            added.set_defaults(command=command)


def parse(parser: Parser, arguments: Sequence[str] | None) -> tuple[Command, Any]:
    """Read the words of the command line."""
    given = vars(parser.parse_args(arguments))
    command: Command = given.pop("command")
    return command, filled(command.options, given)


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


READERS: dict[Any, Callable[[str], object]] = {int: read_whole, float: read_number, str: str, Path: Path}


def add_options(parser: argparse.ArgumentParser, record: type) -> None:
    """Add the options of a record to a parser."""
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
            settings |= {"nargs": "+" if _required(field) else "*"} if option.positional else {"action": "append"}
        if option.positional:
            if not many and not _required(field):
                settings |= {"nargs": "?", "default": field.default}
            parser.add_argument(field.name, **settings)
        else:  # an option that is not given is absent: the record has the defaults
            settings |= {"dest": field.name, "required": _required(field), "default": argparse.SUPPRESS}
            parser.add_argument(option.flag or f"--{field.name.replace('_', '-')}", **settings)


def _required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def filled(record: type[Record], given: dict[str, Any]) -> Record:
    """Make a record of the values that a user gave."""
    return record(**{name: tuple(value) if isinstance(value, list) else value for name, value in given.items()})
