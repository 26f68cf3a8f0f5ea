"""A small version of ``python -m benchmarks folding``: what folding and rounding by careful nodes do to results."""

import numpy as np
import pytest
from benchmarks import folding

RUNS = 200
MADE = -1  # of the tables


def test_folded_levels_find_nothing_where_nothing_is_and_an_effect_where_one_is():
    """Of 200 runs at 5%, more than 20 would be found once in 400 times."""
    none, one = (folding.simulated(folding.read()[MADE], effect, RUNS) for effect in folding.EFFECTS)
    for name in ("rare level", "flag"):
        _, folded, lost = none[name]
        assert folded.rejects <= 0.1 and folded.covers >= 0.9 and 0.1 < lost < 0.4
        assert abs(folded.bias) < 0.1 and one[name][1].rejects > 0.4
    assert abs(none["column of numbers"][1].bias) < 0.02 and none["column of numbers"][2] == 0


def test_a_level_of_which_most_rows_are_folded_is_diluted():
    exact, folded, lost = folding.simulated(folding.read()[0], 1.0, RUNS)["rare level"]
    assert lost > 0.5 and abs(exact.bias) < 0.15 and folded.bias < -0.2


def test_counts_that_central_rounds_are_nearer_than_those_that_each_node_rounds():
    nodes, central = folding.evaluations(RUNS).values()
    assert (central.std(axis=0) < nodes.std(axis=0) / 1.5).all()
    assert (np.abs(central.mean(axis=0)) < 4 * central.std(axis=0) / RUNS**0.5).all(), "rounded to the nearest multiple"


@pytest.mark.parametrize("table", folding.read(), ids=lambda table: table.name.split(",")[0].split(" (")[0])
def test_tables_with_small_cells_change_components_little(table):
    small, shares, loadings = folding.components(table)
    assert small and 0 < shares < 0.01 and loadings < 0.1
