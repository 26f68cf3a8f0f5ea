"""What runs write to their logs, which vantage6 sends to the server: finished rounds, and why a run failed."""

import json
import re
import sys
from collections.abc import Callable
from typing import Any

ROUND = "v6-federated round "  # a line of a log that begins with this holds a row of the history
CALLING = re.compile(r"Error encountered while calling \w+: (.*)")  # what vantage6 logs of a function that fails
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# lines that a node of vantage6 5 writes itself: in place of a log that it does not share, and above the others
OF_NODE = re.compile(r"Node does not allow sharing algorithm logs|LOGS of POD \S+ \(created by job \S+\)")
WITHHELD = "its text is withheld"  # marks an unexpected error, whose text does not leave the node

BEGINNING, END = 700, 250  # letters that are kept of a longer line: what was wrong, and what to do instead


def print_anything() -> None:
    """Let this process print what its terminal or its log cannot show: a letter becomes its number.

    Otherwise a name in the rows would end a job with a UnicodeEncodeError, where the encoding is not UTF-8.
    """
    for stream in (sys.stdout, sys.stderr):
        if (change := getattr(stream, "reconfigure", None)) is not None:  # a notebook's streams print everything
            change(errors="backslashreplace")


def one_line(text: object) -> str:
    """Write a text in one line: an error may name a column with a line break in it, or thousands of columns."""
    line = "".join(c for c in " ".join(str(text).split()) if c.isprintable())
    return line if len(line) <= BEGINNING + END else f"{line[:BEGINNING]} ... {line[-END:]}"


def progress(client: Any, row: dict[str, Any]) -> None:
    """Report a finished round: to the mock network's ``on_round``, or as a line of the task's log."""
    listener: Callable[[dict[str, Any]], None] | None = getattr(client, "on_round", None)
    if listener is not None:
        listener(row)
    else:
        print(ROUND + json.dumps(row), flush=True)


def last_words(log: str | None) -> str:
    """What an algorithm printed when it failed."""
    plain = COLOUR.sub("", log or "")
    printable = ("".join(c for c in line if c.isprintable()).strip() for line in plain.splitlines())
    lines = [line for line in printable if line and not OF_NODE.fullmatch(line)]
    errors = [found[1] for line in lines if (found := CALLING.search(line))]
    return [*lines[-1:], *errors][-1] if lines else ""


def said_no(line: str) -> bool:
    """Whether a node refused a task, and would refuse it again, or just broke down."""
    return line.startswith("organization ") and WITHHELD not in line
