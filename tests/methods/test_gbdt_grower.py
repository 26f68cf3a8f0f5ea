"""Trees of a node's own: every split is the best that leaves rows enough, and scikit-learn's with its criterion."""

import numpy as np
import pytest
from boosted import rows_of_leaves
from sklearn.tree import DecisionTreeRegressor

from v6_gbdt.grower import Grower
from v6_gbdt.growth import Growth
from v6_gbdt.trees import FEATURE, LEAF, VALUE, Trees

LEAST, LAMBDA = 15, 0.3
EDGES = [np.linspace(-1.5, 1.5, 13).astype(np.float32)] * 3


@pytest.fixture
def rows():
    """Features (200, 3), first derivatives, and second ones that differ a thousandfold, (200, 1) each."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(200, 3)).astype(np.float32)
    g = (np.sin(3 * X[:, 0]) + X[:, 1] + rng.normal(size=200))[:, None]
    return X, g, 10.0 ** rng.uniform(-3, 0, g.shape)


def test_every_split_is_the_best_that_leaves_rows_enough(rows):
    """By trying all edges. LightGBM takes a leaf's share of the second derivatives for that of its rows."""
    X, g, h = rows
    tree = Grower(X, EDGES, Growth(min_rows_leaf=LEAST, lambda_l2=LAMBDA, lr=1.0), 10).grow(g, h)
    todo, splits = [np.arange(200)], 0

    def score(part):
        return g[part].sum() ** 2 / (h[part].sum() + LAMBDA)

    for feature, value, _ in tree:
        part = todo.pop()
        sides = [(part[X[part, j] <= e], part[X[part, j] > e]) for j, edges in enumerate(EDGES) for e in edges]
        gains = [score(a) + score(b) - score(part) for a, b in sides if min(len(a), len(b)) >= LEAST]
        if feature == LEAF:
            assert max(gains, default=0) <= 1e-9
            assert value == pytest.approx(-g[part].sum() / (h[part].sum() + LAMBDA), rel=1e-5)
        else:
            left, right = part[X[part, int(feature)] <= value], part[X[part, int(feature)] > value]
            assert score(left) + score(right) - score(part) == pytest.approx(max(gains))
            todo += [right, left]
            splits += 1
    assert splits > 5 and min(rows_of_leaves(tree, X)) >= LEAST


def test_the_criterion_variance_is_scikit_learns(rows):
    """Its trees of the squared error, grown leaf by leaf on the same bins; outputs are Newton steps all the same."""
    X, g, h = rows
    growth = Growth(min_rows_leaf=LEAST, max_leaves=7, criterion="variance", lambda_l2=LAMBDA, lr=1.0)
    tree = Grower(X, EDGES, growth, 10).grow(g, h)
    binned = np.column_stack([np.searchsorted(e, x) for e, x in zip(EDGES, X.T, strict=True)])
    theirs = DecisionTreeRegressor(max_leaf_nodes=7, min_samples_leaf=LEAST, random_state=0).fit(binned, -g[:, 0])
    leaf, outputs = theirs.apply(binned), Trees(3, 2).scores(tree, X)[:, 0]
    assert len(np.unique(leaf)) == np.count_nonzero(tree[:, FEATURE] == LEAF) == 7
    for number in np.unique(leaf):
        part = leaf == number
        assert outputs[part] == pytest.approx(-g[part].sum() / (h[part].sum() + LAMBDA), rel=1e-5)


def test_of_edges_that_part_the_rows_alike_the_middle_one_is_taken():
    x = np.repeat([-1.4, 1.4], 20).astype(np.float32)[:, None]
    tree = Grower(x, EDGES[:1], Growth(min_rows_leaf=10), 10).grow(np.sign(x), np.ones_like(x))
    assert tree[0, VALUE] == EDGES[0][6] == 0


def test_missing_values_alone_are_a_side():
    x = np.repeat([np.nan, 0.1, np.nan, 1.2], 10).astype(np.float32)[:, None]
    tree = Grower(x, EDGES[:1], Growth(min_rows_leaf=10, lr=1.0, lambda_l2=0), 10).grow(
        np.where(np.isnan(x), -1.0, 1.0), np.ones_like(x)
    )
    assert Trees(1, 2).scores(tree, np.array([[np.nan], [5.0]], np.float32))[:, 0].tolist() == [1, -1]
