"""What operators run: ``docker run --network none -v FOLDER:/mnt/hospital IMAGE python -m v6_federated audit ...``."""

import sys

from v6_federated.base import files
from v6_federated.base.errors import SafeError
from v6_federated.base.logs import print_anything
from v6_federated.operator import command_line
from v6_federated.operator.commands import COMMANDS

PROGRAM = "python -m v6_federated"


def main(arguments: list[str] | None = None) -> int:
    """Run a command of the operator.

    Args:
        arguments: the words after ``python -m v6_federated``; None takes them from the process.

    Returns:
        The exit status: 0, 1 if something was found wrong or failed, 2 if the request was wrong.

    Raises:
        SystemExit: after ``--help``, or if options are wrong.
    """
    print_anything()
    parser = command_line.build(PROGRAM, COMMANDS, "What operators of nodes run.")
    command, options = command_line.parse(parser, arguments)
    try:
        return command.run(options)
    except SafeError as error:
        return _complain(command_line.WRONG, str(error))
    except OSError as error:
        if wrong := files.unusable(error):
            return _complain(command_line.WRONG, wrong)
        return _complain(command_line.FAILED, f"{error.strerror or type(error).__name__}: {error.filename}")


def _complain(status: int, problem: str) -> int:
    text = " ".join(problem.split())
    print(f"{PROGRAM}: {''.join(c for c in text if c.isprintable())}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
