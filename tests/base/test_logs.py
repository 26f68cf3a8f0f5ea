"""What is read from the logs of runs."""

import pytest

from v6_federated.base import logs


@pytest.mark.parametrize(
    ("log", "says"),
    [
        (None, ""),
        ("start\n\nError encountered while calling update: organization 3: no\n", "organization 3: no"),
        ("start\nkilled\x1b[2J\n  \n", "killed[2J"),
        # as a node of vantage6 5 sends it: of a terminal, with what it adds itself
        (
            "LOGS of POD p (created by job j) \n\n error > Error encountered while calling update: organization 3: "
            "no\r\nTraceback (most recent call last):\r\n  File x\r\nerror > None\r\n\x1b[0m \n\n\n",
            "organization 3: no",
        ),
        ("LOGS of POD p (created by job j) \n\n info > begun\r\n\x1b[0m \n\n\n", "info > begun"),
        ("Node does not allow sharing algorithm logs", ""),
        ("LOGS of POD vantage6-run-5-x7 (created by job vantage6-run-5) \n\n  \n\n\n", ""),
    ],
)
def test_the_last_words_of_a_log_cannot_command_a_terminal(log, says):
    assert logs.last_words(log) == says


@pytest.mark.parametrize(
    ("line", "refused"),
    [
        ("organization 3: fewer than 10 rows", True),
        ("organization 3: KeyError in table.py, line 3; its text is withheld, it could hold a value", False),
        ("Killed", False),
    ],
)
def test_a_refusal_is_told_from_a_breakdown(line, refused):
    assert logs.said_no(line) is refused


def test_an_error_is_one_line_that_cannot_command_a_terminal():
    """A column's name may hold a line break, and an error thousands of names: its end says what to do."""
    assert logs.one_line("no column a\nb, \x1b[2Jc\r\n in the table\u2028") == "no column a b, [2Jc in the table"
    long = logs.one_line(f"no column {', '.join(map(str, range(10_000)))} in the table; name others with --features")
    assert len(long) < 1000 and long.startswith("no column 0, 1, 2, ") and long.endswith("name others with --features")
