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
    """Run all checks of a method and print a line for each; the exit status is 1 if one fails."""
    from v6_workbench.conformance.checks import cases_of, checks_of, outcome_of

    failed = 0
    for check in checks_of(*cases_of(options.method)):
        outcome = outcome_of(check)
        failed += outcome.status == "fail"
        print(outcome, flush=True)
    console.last_line({"method": options.method, "passed": not failed})
    return console.FAILED if failed else console.OK


COMMAND = Command(
    "check",
    CheckOptions,
    run,
    help="Check that a method keeps the rules of the project: laws, faults, limits, resumption, bytes.",
    example="check fedavg",
)
