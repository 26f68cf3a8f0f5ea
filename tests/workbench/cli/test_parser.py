"""The parser: help, typed options, and the list of commands."""

from argparse import HelpFormatter
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, get_args, get_type_hints

import pytest

from v6_workbench.cli import parser
from v6_workbench.cli.commands.network import UpOptions
from v6_workbench.cli.commands.run import RunOptions
from v6_workbench.cli.records import Group, Option, add_options, filled

GROUPS = {group.name: group.commands for group in parser.COMMANDS if isinstance(group, Group)}
ALL = [one for each in parser.COMMANDS for one in GROUPS.get(each.name, (each,))]


def read(record, *arguments):
    """A record of these words of the command line."""
    made = parser.Parser(prog="program")
    add_options(made, record)
    return filled(record, vars(made.parse_args([*arguments])))


@dataclass(frozen=True, kw_only=True)
class Options:
    """One option of each kind."""

    files: Annotated[tuple[Path, ...], Option("files", "FILE", positional=True)]
    to: Annotated[Path, Option("a folder")]
    rounds: Annotated[int, Option("rounds ({default})")] = 10
    share: Annotated[float | None, Option("a share")] = None
    encrypted: Annotated[bool, Option("encrypted")] = False
    names: Annotated[tuple[str, ...], Option("names", flag="--name")] = ()
    times: Annotated[int | None, Option("times", bare=1)] = None


def test_options_have_the_types_of_the_record():
    words = ["a", "b", "--to", "c", "--share", "0.5", "--encrypted", "--name", "x", "--name", "y", "--times"]
    assert read(Options, *words) == Options(
        files=(Path("a"), Path("b")), to=Path("c"), share=0.5, encrypted=True, names=("x", "y"), times=1
    )
    assert read(Options, "a", "--to", "c") == Options(files=(Path("a"),), to=Path("c"))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "the following arguments are required: FILE, --to"),
        (("a", "--to", "c", "--rounds", "many"), "argument --rounds: 'many' is not a whole number"),
        (("a", "--to", "c", "--share", "nan"), "argument --share: 'nan' is not a number; expected for example 0.5"),
        (("a", "--to", "c", "--speed", "3"), "unrecognized arguments: --speed 3"),
    ],
)
def test_a_wrong_option_is_one_line(words, says, capsys):
    with pytest.raises(SystemExit) as ended:
        read(Options, *words)
    err = capsys.readouterr().err
    assert ended.value.code == 2 and err.startswith(f"program: {says}") and err.endswith("; see `program --help`\n")
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("command", ALL, ids=lambda command: command.example.replace(" ", "-")[:20])
def test_every_command_has_help_with_an_example_that_it_understands(command, call):
    words = command.example.split()
    place = words[: 2 if words[0] in GROUPS else 1]
    status, out, _ = call(*place, "--help")
    assert status == 0 and out.rstrip().endswith(f"example: v6-federated {command.example}") and command.help in out
    read_command, options = parser.parse(words)
    assert read_command is command and type(options) is command.options


@pytest.mark.parametrize("command", ALL, ids=lambda command: command.options.__name__)
def test_every_option_is_explained(command):
    made = parser.Parser(prog="program", formatter_class=lambda prog: HelpFormatter(prog, width=1000))
    add_options(made, command.options)
    shown = made.format_help()
    hints = get_type_hints(command.options, include_extras=True)
    for field in fields(command.options):
        _, option = get_args(hints[field.name])
        assert option.help and option.help.replace("{default}", str(field.default)) in shown


def test_defaults_are_those_of_the_records():
    _, run = parser.parse(["run", "fedavg", "--data", "wine"])
    assert run == RunOptions(method="fedavg", data=("wine",)) and run.rounds is None
    _, up = parser.parse(["network", "up", "--data", "wine", "--partition", "iid"])
    assert up == UpOptions(data=("wine",), partition="iid")


def test_the_version_is_shown(call):
    from v6_federated import __version__

    assert call("--version")[:2] == (0, f"{__version__}\n")
