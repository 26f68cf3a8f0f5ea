"""Tables of two columns of levels, of which central writes no small cell."""

import numpy as np
import pytest

from v6_federated.data.small_cells import without_small


@pytest.mark.parametrize("seed", range(40))
def test_no_cell_is_small_and_all_margins_stay(seed):
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(2, 6, 2))
    table = rng.poisson(rng.choice([1.0, 4.0, 30.0], shape)) * (rng.random(shape) < 0.8)
    found = without_small(table, 5)
    assert found.min() > -1e-9
    np.testing.assert_allclose(found.sum(axis=0), table.sum(axis=0))
    np.testing.assert_allclose(found.sum(axis=1), table.sum(axis=1))
    few = (found > 0.5) & (found < 5)
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / max(table.sum(), 1)
    assert not few.any() or np.allclose(found, expected), "a small cell is what the margins tell anyway"
    small = (table > 0) & (table < 5)
    assert small.any() or (found == table).all(), "a table without small cells stays as it is"


def test_a_small_cell_becomes_nothing_or_the_least():
    """Two rows of the first cell go along its row and its column; two come to each of the others."""
    np.testing.assert_array_equal(without_small(np.array([[2, 50], [40, 100]]), 5), [[0, 52], [42, 98]])
    np.testing.assert_array_equal(without_small(np.array([[3, 50], [40, 100]]), 5), [[5, 48], [38, 102]])
