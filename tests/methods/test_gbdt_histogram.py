"""Trees from sums by bin: LightGBM's on the pooled rows, tree by tree, with masks and without; and bagging."""

import numpy as np
import pandas as pd
import pytest
from boosted import SMALL, by_lightgbm, edges_of, ensemble, features, numbers, rows_of_leaves
from boosted import splits as splits_of
from helpers import table, train
from vantage6.algorithm.tools.exceptions import UserInputError

from v6_gbdt import bins, leaves
from v6_gbdt.growth import Growth
from v6_gbdt.structures import Branch, Split, best_splits
from v6_gbdt.trees import FEATURE, LEAF, VALUE

LEAST_1 = {"V6_FEDERATED_MINIMUM_ROWS": "1"}
# few large leaves: small ones can be cut in several ways of equal gain, of which LightGBM may take another. And a small
# penalty: in the leaves below a split, LightGBM does not try columns again that brought no gain above it
GROWN = {"lr": 0.3, "lambda_l2": 2.0, "min_rows_leaf": 1, "max_bin": 16, "max_depth": 3, "max_leaves": 6}


def with_missing(rows, seed):
    gone = np.random.default_rng(seed).random(len(rows)) < 0.3
    return rows.assign(x0=rows["x0"].where(~gone))


KINDS = {
    "two classes": (lambda k: table(400, seed=k), {"objective": "binary"}),
    "three classes": (lambda k: table(400, seed=k, classes=3), {"objective": "multiclass", "num_class": 3}),
    "numbers": (lambda k: numbers(400, seed=k), {"objective": "regression"}),
    "missing values": (lambda k: with_missing(table(400, seed=k), k), {"objective": "binary"}),
}


@pytest.mark.parametrize("mode", ["plain", "masked"])
@pytest.mark.parametrize("kind", KINDS)
def test_ten_trees_equal_lightgbm_on_the_pooled_rows(kind, mode):
    """LightGBM is given the same bins, and no minimum of rows, since it only estimates how many there are."""
    if (kind, mode) == ("numbers", "masked"):
        return  # refused, see test_gbdt_random
    rows_of, own = KINDS[kind]
    nodes = {k: rows_of(k) for k in (3, 5, 8)}
    regression = {"objective": "regression"} if kind == "numbers" else {}
    settings = {**GROWN, **regression, "rounds": 10, "holdout": 0}
    result = train("v6_gbdt", nodes, aggregation=mode, environment=LEAST_1, mode="histogram", **settings)
    model, w = ensemble(result)
    rows = pd.concat(nodes.values())
    X, y = features(rows), rows.iloc[:, -1].to_numpy()
    indices = bins.indices(edges_of(result), X)
    common = {"num_leaves": 6, "max_depth": 3, "lambda_l2": 2.0}
    central = by_lightgbm(indices, y, 10, boost_from_average=kind == "numbers", **common, **own)
    trees = model.split(w)[1 if regression else 0 :]
    theirs = central.dump_model()["tree_info"]
    assert len(trees) == len(theirs) == 10 * model.columns
    for t, (mine, other) in enumerate(zip(trees, theirs, strict=True)):
        assert (mine[:, FEATURE] == LEAF).sum() == other["num_leaves"], t
        splits = mine[mine[:, FEATURE] != LEAF]
        assert sorted(splits[:, FEATURE]) == sorted(feature for feature, _ in splits_of(other)), t
    for r in range(1, 11):
        so_far = np.concatenate(model.split(w)[: r * model.columns + bool(regression)])
        scores = central.predict(indices.astype(float), raw_score=True, num_iteration=r).reshape(len(X), -1)
        np.testing.assert_allclose(model.scores(so_far, X), scores, atol=1e-6 * max(1.0, np.abs(scores).max()))
    named = central.feature_importance().tolist()
    mine = {row["feature"]: row["splits"] for row in result["feature_importance"]}
    assert [mine.get(f"x{j}", 0) for j in range(len(named))] == named


def test_with_one_node_and_a_minimum_of_rows_every_leaf_has_them():
    rows = table(300, d=5, seed=4)
    settings = {"rounds": 5, "holdout": 0, "mode": "histogram", "min_rows_leaf": 17}
    result = train("v6_gbdt", {1: rows}, environment=LEAST_1, **settings)
    model, w = ensemble(result)
    found = [n for tree in model.split(w) for n in rows_of_leaves(tree, features(rows))]
    assert min(found) >= 17 and len(found) > 10


@pytest.mark.parametrize("minimum", [1, 5, 40])
def test_no_sum_of_a_bin_is_about_few_rows(minimum):
    rng = np.random.default_rng(minimum)
    X = rng.normal(size=(200, 3)).astype(np.float32)
    X[rng.random(200) < 0.04, 1], X[rng.random(200) < 0.95, 2] = np.nan, np.nan
    edges = [np.linspace(-2, 2, k).astype(np.float32) for k in (30, 7, 12)]
    split = np.array([[0, edges[0][4], 0], [-1, 1, 0], [0, edges[0][20], 0], [-1, 0, 0], [-1, 1, 0]], np.float32)
    ones = np.ones((200, 1))
    sums = leaves.sums_of_bins([split], edges, bins.indices(edges, X), ones, ones, minimum)
    assert sums.shape == (3, 2, 3, 32)
    counts = sums[2]
    assert ((counts == 0) | (counts >= minimum)).all() and np.array_equal(sums[0], counts)
    cell = leaves.cells(split, edges, bins.indices(edges, X), minimum)
    np.testing.assert_array_equal(counts.sum(axis=2), [[(cell == leaf).sum()] * 3 for leaf in (0, 2)])


def test_bins_are_folded_by_hand():
    """Bins of 3, 2, 0, 4 and 1 rows, and 2 without a value, in fives: 5 at the second, all others at the last."""
    counts = np.array([3.0, 2, 0, 4, 1, 2])
    found = leaves.folded(np.stack([counts * 10, counts]), 5)
    np.testing.assert_array_equal(found[1], [0, 5, 0, 0, 7, 0])
    np.testing.assert_array_equal(found[0], 10 * found[1])
    np.testing.assert_array_equal(leaves.folded(counts[None], 6)[0], [0, 0, 0, 12, 0, 0])
    np.testing.assert_array_equal(leaves.folded(np.array([[1.0, 1, 0, 0, 0, 9]]), 5)[0], [0, 0, 0, 0, 0, 11])


def test_of_splits_that_are_alike_the_first_is_taken():
    """It is where a node has counted enough rows; in the middle, its few rows in between would be on the other side."""
    sums = np.zeros((3, 1, 1, 7))
    sums[:, 0, 0, 0], sums[:, 0, 0, 4] = (-8, 8, 8), (8, 8, 9)
    [split] = best_splits(sums, [np.arange(5)], Growth(min_rows_leaf=5, lambda_l2=0.0))
    assert split == Split(0, 0, False, 16.0)
    assert best_splits(sums, [np.arange(5)], Growth(min_rows_leaf=9, lambda_l2=0.0)) == [None]


def test_pruned_as_if_grown_leaf_by_leaf():
    """Gains 5 at the root, then 1 and 4, and 9 below 1: three leaves keep 5 and 4, four 9 only with 1 above it."""

    def grown(max_leaves):
        tree = Branch()
        tree.grow(Split(0, 0, True, 5.0))
        for branch, gain in zip(tree.below, (1.0, 4.0), strict=True):
            branch.grow(Split(1, 0, True, gain))
        tree.below[0].below[0].grow(Split(2, 0, True, 9.0))
        tree.prune(max_leaves)
        return [row[0] for row in tree.rows([np.zeros(1)] * 3)]

    assert grown(3) == [0, -1, 1, -1, -1]
    assert grown(4) == [0, 1, -1, -1, 1, -1, -1]
    assert grown(5) == grown(9) == [0, 1, 2, -1, -1, -1, 1, -1, -1]


def test_bagging_adds_every_nodes_tree_by_its_share_of_the_rows():
    nodes = {1: table(60, seed=1), 2: table(120, seed=2)}
    apart = {k: train("v6_gbdt", {k: rows}, rounds=1, holdout=0, **SMALL) for k, rows in nodes.items()}
    both = train("v6_gbdt", nodes, rounds=2, holdout=0, **{**SMALL, "mode": "bagging"})
    assert [row["trees"] for row in both["history"]] == [2, 4]
    assert [row["participants"] for row in both["history"]] == [[1, 2], [1, 2]]
    model, w = ensemble(both)
    # bins are agreed by both nodes, so only the outputs' scale is compared: those of a node's tree, times its share
    for tree, k, share in zip(model.split(w)[:2], (1, 2), (1 / 3, 2 / 3), strict=True):
        own = ensemble(apart[k])[1]
        mine, theirs = (np.abs(t[t[:, FEATURE] == LEAF, VALUE]).max() for t in (tree, own))
        assert mine == pytest.approx(share * theirs, rel=0.3)


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ({"trees": 3}, "trees=3 cannot be used with mode=histogram, whose trees would be equal; set 1"),
        ({"max_depth": 20}, "max_depth=20 is too deep for mode=histogram; expected at most 12"),
    ],
)
def test_settings_that_histograms_cannot_use(hospitals, setting, says):
    with pytest.raises(UserInputError, match=says):
        train("v6_gbdt", hospitals, rounds=1, mode="histogram", **setting)
