"""What is read from the logs of runs."""

import pytest

from v6_federated.base import logs


@pytest.mark.parametrize(
    ("log", "says"),
    [
        (None, ""),
        ("start\n\nError encountered while calling update: organization 3: no\n", "organization 3: no"),
        ("start\nkilled\x1b[2J\n  \n", "killed[2J"),
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
