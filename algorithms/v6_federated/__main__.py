"""What operators run: ``docker run --network none -v FOLDER:/mnt/hospital IMAGE python -m v6_federated audit ...``."""

import argparse
import json
import sys
from pathlib import Path

from v6_federated.base.errors import SafeError
from v6_federated.operator import audit


def main(arguments: list[str] | None = None) -> int:
    """Run a command of the operator.

    Args:
        arguments: the words after ``python -m v6_federated``; None takes them from the process.

    Returns:
        The exit status: 0, or 2 if the request was wrong.

    Raises:
        SystemExit: after ``--help``, or if options are wrong.
    """
    parser = argparse.ArgumentParser(prog="python -m v6_federated", description="What operators of nodes run.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    command = commands.add_parser(
        "audit",
        help="show what left a node",
        description="Show what left a node, by job: functions, arrays, bytes, rows, and what was refused.",
        epilog="example: python -m v6_federated audit /mnt/hospital",
    )
    command.add_argument("file", metavar="FILE", type=Path, help="hospital's folder, audit.jsonl, or a task's output")
    command.add_argument("--job", metavar="KEY", help="show every answer of the job whose key begins so")
    given = parser.parse_args(arguments)
    try:
        lines, numbers = audit.shown(given.file, given.job)
    except (SafeError, OSError) as error:
        print(f"python -m v6_federated: {error}", file=sys.stderr)
        return 2
    print(*lines, json.dumps(numbers), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
