"""The parser of the command line: the commands of researchers, and those that operators run from an image as well."""

from typing import Any

from v6_federated.base.version import __version__
from v6_federated.operator import commands as operator
from v6_workbench.cli import records
from v6_workbench.cli.commands import (
    check,
    compare,
    demo,
    export,
    network,
    predict,
    privacy,
    report,
    run,
    settings,
    submit,
    tasks,
    tune,
)
from v6_workbench.cli.records import Command, Group, Parser

COMMANDS: tuple[Command[Any] | Group, ...] = (
    demo.COMMAND,
    run.COMMAND,
    compare.COMMAND,
    tune.COMMAND,
    settings.COMMAND,
    report.COMMAND,
    export.COMMAND,
    predict.COMMAND,
    Group("privacy", (privacy.PLAN,), "Plan a job under a privacy budget."),
    submit.COMMAND,
    tasks.TASKS,
    tasks.STATUS,
    tasks.WATCH,
    tasks.FETCH,
    tasks.CANCEL,
    *operator.COMMANDS,
    check.COMMAND,
    Group(
        "network",
        (network.UP, network.STATUS, network.DOWN),
        "Start, show or remove a real vantage6 server and nodes in Docker on this machine.",
    ),
)


def parse(arguments: list[str] | None) -> tuple[Command[Any], Any]:
    """Read the words of the command line.

    Args:
        arguments: the words after ``v6-federated``; None takes them from the process.

    Returns:
        The command and its options.

    Raises:
        SystemExit: after ``--help``, or if options are wrong.
    """
    return records.parse(build(), arguments)


def build() -> Parser:
    """Build the parser of all commands."""
    parser = records.build(
        "v6-federated", COMMANDS, "Federated learning methods for hospitals: run, compare and export."
    )
    parser.add_argument("--version", action="version", version=__version__)
    return parser
