"""What commands print: warnings, the last line, tables and progress."""

import contextlib
import json
import os
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

OK, FAILED, WRONG, INTERRUPTED = 0, 1, 2, 130  # exit statuses
SECONDS = 10  # between two lines of progress, if standard error is not a terminal


def say(text: object) -> None:
    """Print a line on standard error. If its reader or its disk is gone, the work goes on without it."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def announce(text: str) -> None:
    """Print a line on standard output before the work, which is done even if nobody can read the line.

    Args:
        text: the line.
    """
    with contextlib.suppress(OSError):  # what is printed after the work fails in the same way, and says so
        print(text, flush=True)


def complain(status: int, problem: object) -> int:
    """Print a problem in one line on standard error.

    Args:
        status: the exit status.
        problem: an error or a text.

    Returns:
        The exit status.
    """
    text = " ".join(str(problem).split())
    say(f"v6-federated: {''.join(c for c in text if c.isprintable())}")  # a file's names could command the terminal
    return status


def console() -> "Console":
    """Return standard output for tables: 140 characters wide if it is not a terminal."""
    from rich.console import Console  # slow to import

    return Console() if sys.stdout is not None and sys.stdout.isatty() else Console(width=140)


def last_line(values: Mapping[str, Any]) -> None:
    """Print a command's last line of standard output: JSON."""
    print(json.dumps(values), flush=True)


class Bar:
    """A progress bar on standard error; if that is not a terminal, a line of text from time to time.

    Args:
        rounds: number of rounds to come; None if it is not known.
        text: what is trained.
        one_job: whether the rounds are those of one job, which may be resumed and then does not begin with round 1.
    """

    def __init__(self, rounds: int | None, text: str, one_job: bool = False) -> None:
        from rich import progress
        from rich.console import Console

        self.rounds, self.text, self.one_job, self.done, self.said = rounds, text, one_job, 0, time.monotonic()
        self.console = Console(stderr=True)
        self.progress = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TextColumn("{task.fields[last]}"),
            progress.TimeElapsedColumn(),
            progress.TimeRemainingColumn(),
            console=self.console,
            disable=not self.console.is_terminal,
        )

    def __enter__(self) -> "Bar":
        if self.console.is_terminal:
            self.progress.start()
        self.bar = self.progress.add_task(self.text, total=self.rounds, last="")
        return self

    def __exit__(self, *exception: object) -> None:
        if self.console.is_terminal:  # elsewhere it would print an empty line
            self.progress.stop()

    def on_call(self, text: str) -> None:
        """Show what is done before the first round is finished.

        Args:
            text: what is done.
        """
        self.progress.update(self.bar, last=text)
        if not self.console.is_terminal:
            say(f"{self.text}: {text}")

    def on_round(self, row: Mapping[str, Any]) -> None:
        """Show a finished round.

        Args:
            row: its row of the history.
        """
        self.done = row["round"] if self.one_job else self.done + 1
        measure = next((name for name in ("r2", "c_index") if name in row), "accuracy")
        reached = "" if row[measure] is None else f"{measure} {row[measure]:.4f}"
        self.progress.update(self.bar, completed=self.done, last=reached)
        if not self.console.is_terminal and (time.monotonic() - self.said > SECONDS or self.done == self.rounds):
            self.said = time.monotonic()
            of = "" if self.rounds is None else f" of {self.rounds}"
            say(f"{self.text}: round {self.done}{of} {reached}")
