"""Ways to divide rows among mock nodes."""

import numpy as np
import pytest

from v6_federated.base.errors import SafeError
from v6_workbench.simulation import partitions


@pytest.mark.parametrize("name", [*partitions.PARTITIONS, "shards:4", "class:0.5", "classes:3", "dirichlet:5"])
@pytest.mark.parametrize("nodes", [5, 10])
def test_every_row_goes_to_one_node(name, nodes):
    y = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 60))
    parts = partitions.partition(name, y, nodes, 3)
    assert len(parts) == nodes
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(600))
    again = partitions.partition(name, y, nodes, 3)
    assert all((a == b).all() for a, b in zip(parts, again, strict=True))


def test_shards_are_mcmahans():
    """Sorted by digit, 200 shards of 300, two a node: most nodes have two digits."""
    y = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 6000))
    parts = partitions.partition("shards", y, 100, 1)
    assert {len(p) for p in parts} == {600}
    assert all(len(np.unique(y[p])) <= 2 for p in parts)


def test_shapes_of_the_other_partitions():
    y = np.random.default_rng(0).permutation(np.repeat(np.arange(2), 3000))
    sizes = [len(p) for p in partitions.partition("size", y, 10, 0)]
    assert sizes[0] * 10 == pytest.approx(sizes[-1], rel=0.02) and sizes == sorted(sizes)
    shares = [y[p].mean() for p in partitions.partition("class", y, 10, 0)]
    assert min(shares) == pytest.approx(0.05, abs=0.01) and max(shares) == pytest.approx(0.95, abs=0.01)
    assert np.ptp([len(p) for p in partitions.partition("class", y, 10, 0)]) <= 2
    assert [set(y[p]) for p in partitions.partition("classes:1", y, 2, 0)] == [{0}, {1}]
    for name in ("unbalanced", "sorted-balanced", "sorted-unbalanced"):
        assert all(len(np.unique(y[p])) == 2 for p in partitions.partition(name, y, 7, 0))


@pytest.mark.parametrize("name", ["shard", "iid:3", "dirichlet:0", "dirichlet:x", "column:", "class:2", "classes:9"])
def test_wrong_partitions_are_refused(name):
    with pytest.raises(SafeError):
        partitions.partition(name, np.arange(20) % 2, 4, 0)
