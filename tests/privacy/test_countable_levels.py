"""Neither a level of few rows, nor all rows without those of counted levels, may be told apart."""

import numpy as np
import pytest

from v6_federated.rules.levels import countable

A, B, C = ["a"] * 9, ["b"] * 7, ["c"] * 5


@pytest.mark.parametrize(
    ("said", "counted"),
    [
        (A + B + C, "abc"),
        (A + B + ["c"] * 4, "a"),  # all minus a and b would be c
        (A + B + C + ["d"], "ab"),
        (A + B + C + [None], "ab"),
        (A + B + C + ["d", "e", None], "ab"),
        (A + B + C + ["d", "e"] * 2 + [None], "abc"),  # these are five
        ([*A, "d"], ""),
        ([None] * 3, ""),
        ([], ""),
    ],
)
def test_levels_and_what_they_leave_have_enough_rows(said, counted):
    found = countable(np.array(said, object), np.zeros(len(said), int), lambda rows: few(rows.sum(axis=-1)))
    assert found == {*counted}


def test_rows_by_class_count_too():
    said, classes = np.array(A + B + C, object), np.array([0] * 9 + [1] * 7 + [0] * 4 + [1])
    assert countable(said, classes, lambda rows: few(rows).any(axis=-1)) == set(), "c has one row of class 1"


def few(rows):
    return (rows > 0) & (rows < 5)
