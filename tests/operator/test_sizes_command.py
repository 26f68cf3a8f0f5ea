"""``study sizes``."""

import itertools
import math

import numpy as np
import pytest

from v6_federated.central import tolerance
from v6_federated.operator import sizes


def test_the_share_of_blocks_is_the_one_that_central_needs():
    assert sizes.OF_BLOCKS == tolerance.OF_BLOCKS


def test_the_table_is_that_of_rounds_that_are_drawn(call):
    _, lines, found, _ = call("study", "sizes", "--hospitals", 50, "--misses", 0.03, "--rounds", 1)
    assert len(lines) == len(found["sizes"]) + 3
    down, again = np.random.default_rng(1).random((2, 20000, 50)) < 0.03
    for row in found["sizes"]:
        edges = [50 * i // row["blocks"] for i in range(row["blocks"] + 1)]
        for name, missing in (("jobs", down), ("again", down & again)):
            whole = np.array([~missing[:, a:b].any(axis=1) for a, b in itertools.pairwise(edges)])
            share = (whole.sum(axis=0) >= row["needed"]).mean()
            assert share == pytest.approx(row[name], abs=4 * math.sqrt(0.25 / len(down))), row
    [five] = [row for row in found["sizes"] if row["size"] == 5]
    assert (five["blocks"], five["needed"]) == (10, 6) and five["whole"] == pytest.approx(0.97**5)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--hospitals", 2], "--hospitals 2 is out of range"),
        (["--hospitals", 9, "--misses", 1], "--misses 1 is no share"),
        (["--hospitals", 9, "--rounds", 0], "--rounds 0 is too few"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(call, options, says):
    status, _, _, err = call("study", "sizes", *options)
    assert status == 2 and says in err
