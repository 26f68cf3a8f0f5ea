"""Ways to divide rows among mock nodes."""

import re

import numpy as np
import pytest

from v6_federated.base.errors import SafeError
from v6_workbench.simulation import partitions


@pytest.mark.parametrize(
    "name", [*partitions.PARTITIONS, "shards:4", "size:0.66", "class:0.5", "powerlaw:0.5", "classes:3", "dirichlet:5"]
)
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


def test_power_laws_by_hand():
    """k^2 of three nodes is 1 : 4 : 9. Of 1400 rows, 100 + 400 + 900; of 700 rows of the lower classes, 0.5 as exponent
    gives shares of 1, 1.414 and 1.732 of 4.146, and each node is filled up to a third of all rows."""
    y = np.random.default_rng(0).permutation(np.repeat(["a", "b", "c", "d"], 350))
    assert [len(p) for p in partitions.partition("size:2", y, 3, 0)] == [100, 400, 900]
    parts = partitions.partition("powerlaw:0.5", y, 3, 0)
    assert [len(p) for p in parts] == [466, 466, 468]
    assert [int(np.isin(y[p], ["a", "b"]).sum()) for p in parts] == [168, 239, 293]  # 168.8, and 407.6 of the first two


def test_the_power_law_of_garsts_scripts():
    """Two classes, ten nodes: the shares of the first class that his thesis's author published, 17% to 76%."""
    y = np.random.default_rng(0).permutation(np.repeat([4, 9], [5842, 5949]))
    shares = [np.mean(y[p] == 4) for p in partitions.partition("powerlaw", y, 10, 1)]
    assert shares == sorted(shares) and [round(shares[k], 2) for k in (0, -1)] == [0.17, 0.76]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("shard", "unknown partition 'shard'; expected one of iid, "),
        ("iid:3", "the partition 'iid:3' is not understood; expected iid"),
        ("dirichlet:0", "the partition 'dirichlet:0' is not understood; expected dirichlet:NUMBER, for example"),
        ("dirichlet:x", "the partition 'dirichlet:x' is not understood; expected dirichlet:NUMBER, for example"),
        ("column:", "the partition 'column:' lacks a name; expected column:NAME"),
        ("size:11", "size:11 is out of range; expected an exponent from 0 to 10, for example size:0.66"),
        (
            "powerlaw:x",
            "the partition 'powerlaw:x' is not understood; expected powerlaw:NUMBER, for example powerlaw:0.66",
        ),
        ("powerlaw:11", "powerlaw:11 is out of range; expected an exponent from 0 to 10, for example powerlaw:0.66"),
        ("powerlaw:3", "powerlaw:3 gives a node more rows of the lower half of the classes than a node of"),
        ("class:2", "class:2 is out of range; expected a strength from 0 to 1"),
        ("classes:9", "classes:9 is too many: the label has 2 classes; expected classes:1 to classes:2"),
        ("shards:9", "20 rows are too few for 4 nodes with 9 shards each"),
        ("sorted-balanced", "1000 random cuts left a node without 10 rows of two classes; use fewer nodes"),
    ],
)
def test_wrong_partitions_are_refused(name, says):
    with pytest.raises(SafeError, match=re.escape(says)):
        partitions.partition(name, np.arange(20) % 2, 4, 0)


@pytest.mark.parametrize(
    ("name", "nodes", "says"),
    [
        ("iid", 21, "21 nodes cannot share 20 rows; expected 1 to 20 nodes"),
        ("size", 15, "the partition size leaves a node without rows; use fewer than 15 nodes"),
        (
            "dirichlet:0.0001",
            10,
            "1000 draws of dirichlet:0.0001 left a node with fewer than 2 rows; use fewer nodes, or",
        ),
        ("classes:1", 2, "classes:1 on 2 nodes leaves some of the 20 classes without a node; use more nodes"),
    ],
)
def test_too_many_nodes_for_the_rows_are_refused(name, nodes, says):
    with pytest.raises(SafeError, match=re.escape(says)):
        partitions.partition(name, np.arange(20), nodes, 0)
