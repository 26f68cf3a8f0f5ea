"""The command line ``v6-federated``. Progress goes to standard error; standard output ends with one line of JSON.

Exit status: 0, 1 (the work failed or a node refused), 2 (the request was wrong) or 130 (stopped by Ctrl-C or SIGTERM);
never a traceback. This module imports nothing slow, so that ``main`` is there to catch Ctrl-C while libraries are
imported.
"""

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from v6_workbench.cli.console import FAILED, INTERRUPTED, OK, WRONG, complain

GO_ON = ("folds.json", "scores.json")  # files from which the same command goes on


def main(arguments: list[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: the words after ``v6-federated``; None takes them from the process.

    Returns:
        The exit status.

    Raises:
        SystemExit: after ``--help``, or if options are wrong, as argparse does.
    """
    folder: Path | None = None
    before: dict[Path, int] = {}
    ended: Any = None
    try:
        if threading.current_thread() is threading.main_thread():  # elsewhere Python handles no signal
            ended = signal.signal(signal.SIGTERM, signal.default_int_handler)
        from v6_federated.base.logs import print_anything
        from v6_workbench.cli import parser

        print_anything()
        command, options = parser.parse(arguments)
        folder = getattr(options, "out", None)
        before = _results(folder)
        return command.run(options)
    except KeyboardInterrupt:
        written = {file.name for file, _ in _results(folder).items() - before.items()}  # by no earlier command
        return complain(INTERRUPTED, f"interrupted{_kept(folder, written)}")
    except BrokenPipeError:  # the reader, for example `head`, has closed the pipe; Python would complain when it exits
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except Exception as error:
        return _failed(error)
    finally:
        if ended is not None:
            signal.signal(signal.SIGTERM, ended)
        if (results := sys.modules.get("v6_workbench.cli.results")) is not None:  # it may not be imported yet
            results.remove_empty()


def _kept(folder: Path | None, written: set[str]) -> str:
    """What is left of a command that was interrupted, which has written files of these names."""
    if {*GO_ON} & written:
        return f"; what is known so far is in {folder}, and the same command goes on from there"
    where = f"; the results so far are in {folder}, of which the last may be of a training that was interrupted"
    return where if written else ""


def _failed(error: Exception) -> int:
    """Say in one line what went wrong; return the exit status."""
    from v6_federated.base import files
    from v6_federated.base.errors import SafeError
    from v6_workbench.errors import EngineError

    if isinstance(error, SafeError):
        return complain(WRONG, error)
    if isinstance(error, EngineError):
        return complain(FAILED, error)
    if isinstance(error, OSError) and (wrong := files.unusable(error)):
        return complain(WRONG, wrong)
    if isinstance(error, OSError):  # those of requests have no number and no text of the system
        what = error.strerror or f"{type(error).__name__}: {error}"
        return complain(FAILED, f"{what}: {error.filename}" if error.strerror and error.filename else what)
    if os.environ.get("V6_FEDERATED_DEBUG") == "1":
        raise error
    if type(error).__module__.startswith("vantage6."):
        return complain(WRONG if type(error).__name__ == "UserInputError" else FAILED, error)
    return complain(FAILED, f"{type(error).__name__}: {error} (set V6_FEDERATED_DEBUG=1 to see the traceback)")


def _results(folder: Path | None) -> dict[Path, int]:
    """The results in a command's folder, and when they were written."""
    patterns = ("result.json", "*/result.json", *GO_ON)
    files = [] if folder is None else [file for pattern in patterns for file in folder.glob(pattern)]
    return {file: file.stat().st_mtime_ns for file in files}


if __name__ == "__main__":
    sys.exit(main())
