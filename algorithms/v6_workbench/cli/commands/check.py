"""``v6-federated check``: the public checks that every method must pass."""

from dataclasses import dataclass
from typing import Annotated

from v6_workbench.cli import console
from v6_workbench.cli.records import Command, Option


@dataclass(frozen=True, kw_only=True)
class CheckOptions:
    """Options of ``check``."""

    method: Annotated[str, Option("a method's name, its import package, or its test file", "METHOD", positional=True)]


def run(options: CheckOptions) -> int:
    """Run all checks of a method; a line for each."""
    from v6_workbench.conformance import command

    status = command.show(options.method)
    console.last_line({"method": options.method, "passed": status == 0})
    return status


COMMAND = Command(
    "check",
    CheckOptions,
    run,
    help="Check that a method keeps the rules of the project: laws, faults, limits, resumption, bytes.",
    example="check fedavg",
)
