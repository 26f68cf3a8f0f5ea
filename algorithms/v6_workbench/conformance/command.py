"""Checking a method on the command line."""

import argparse
from collections.abc import Sequence

from v6_federated.base.errors import SafeError
from v6_workbench.conformance.checks import cases_of, checks_of, outcome_of


def show(method: str) -> int:
    """Run all checks of a method and print a line for each.

    Args:
        method: a method's name, its import package, or a test file that calls ``conformance_tests``. The cases of a
            method are those of its test file, if it has one.

    Returns:
        The exit status: 1 if a check fails, else 0.

    Raises:
        SafeError: there is no such method or file.
    """
    failed = 0
    for check in checks_of(*cases_of(method)):
        outcome = outcome_of(check)
        failed += outcome.status == "fail"
        print(outcome, flush=True)
    return int(failed > 0)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m v6_workbench.conformance", description="Run all checks of a method."
    )
    parser.add_argument("method", metavar="METHOD", help="a name, an import package, or a test file")
    try:
        return show(parser.parse_args(arguments).method)
    except SafeError as error:
        parser.error(str(error))
