"""``v6-federated check``: the public checks that every method must pass."""

from v6_workbench.cli import console
from v6_workbench.cli.options import CheckOptions


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
