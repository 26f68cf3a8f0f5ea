"""The parser of the command line: all commands, and the help of each."""

import argparse
from typing import Any, NoReturn

from v6_federated.base.version import __version__
from v6_workbench.cli.commands import (
    audit,
    check,
    compare,
    demo,
    export,
    network,
    predict,
    report,
    run,
    settings,
    submit,
    tasks,
)
from v6_workbench.cli.records import Command, add_options, filled

COMMANDS: tuple[Command[Any], ...] = (
    demo.COMMAND,
    run.COMMAND,
    compare.COMMAND,
    settings.COMMAND,
    report.COMMAND,
    export.COMMAND,
    predict.COMMAND,
    submit.COMMAND,
    tasks.TASKS,
    tasks.STATUS,
    tasks.WATCH,
    tasks.FETCH,
    tasks.CANCEL,
    audit.COMMAND,
    check.COMMAND,
)
NETWORK_COMMANDS: tuple[Command[Any], ...] = (network.UP, network.STATUS, network.DOWN)
NETWORK = "Start, show or remove a real vantage6 server and nodes in Docker on this machine."


class Parser(argparse.ArgumentParser):
    """A parser that says in one line what is wrong."""

    def error(self, message: str) -> NoReturn:
        """Print the message and exit with status 2."""
        self.exit(2, f"{self.prog}: {' '.join(message.split())}; see `{self.prog} --help`\n")


def parse(arguments: list[str] | None) -> tuple[Command[Any], Any]:
    """Read the words of the command line.

    Args:
        arguments: the words after ``v6-federated``; None takes them from the process.

    Returns:
        The command and its options.

    Raises:
        SystemExit: after ``--help``, or if options are wrong.
    """
    given = vars(build().parse_args(arguments))
    command: Command[Any] = given.pop("command")
    return command, filled(command.options, given)


def build() -> Parser:
    """Build the parser of all commands."""
    parser = Parser(
        prog="v6-federated",
        description="Federated learning methods for hospitals: run, compare and export.",
        epilog="example: v6-federated demo",
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=Parser)
    for command in COMMANDS:
        _add(commands, command)
    network = commands.add_parser(
        "network", help=NETWORK, description=NETWORK, epilog=f"example: v6-federated {NETWORK_COMMANDS[0].example}"
    )
    actions = network.add_subparsers(required=True, metavar="ACTION", parser_class=Parser)
    for command in NETWORK_COMMANDS:
        _add(actions, command)
    return parser


def _add(commands: "argparse._SubParsersAction[Parser]", command: Command[Any]) -> None:
    parser = commands.add_parser(
        command.name,
        help=command.help,
        description=command.help,
        epilog=f"example: v6-federated {command.example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,  # keeps the example on one line
    )
    add_options(parser, command.options)
    parser.set_defaults(command=command)
