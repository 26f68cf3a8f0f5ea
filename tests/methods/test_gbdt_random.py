"""Trees of random splits: outputs by hand from pooled rows, masks that change nothing, and sums of enough rows."""

import numpy as np
import pandas as pd
import pytest
from boosted import RANDOM, ensemble, features, numbers
from helpers import table, train
from vantage6.algorithm.tools.exceptions import UserInputError

from v6_federated.messages import codec
from v6_gbdt import bins, leaves, structures
from v6_gbdt.trees import FEATURE, GAIN, LEAF, Trees
from v6_workbench.simulation.call_outcomes import CallOutcome
from v6_workbench.simulation.mock import TRUSTING, MockNetwork

LEAST_1 = {"V6_FEDERATED_MINIMUM_ROWS": "1"}


def boxes(tree, X):
    """The leaf of each row, from the boxes alone."""
    at, found, leaf = [np.arange(len(X))], np.empty(len(X), int), 0
    for feature, value, gain in tree:
        rows = at.pop()
        if feature == LEAF:
            found[rows] = leaf
            leaf += 1
        else:
            x = X[rows, int(feature)]
            left = np.where(np.isnan(x), not np.signbit(gain), x <= value)
            at += [rows[~left], rows[left]]
    return found


@pytest.mark.parametrize("mode", ["plain", "masked"])
@pytest.mark.parametrize("classes", [2, 3])
def test_outputs_are_newton_steps_on_pooled_rows(mode, classes):
    """-lr G / (H + lambda) of the rows of all nodes in each box; all trees of a round have the same gradient.

    With three classes, p is the softmax of the scores, and a second derivative is 3 / 2 p (1 - p), as LightGBM's is.
    """
    lr, lam = 0.2, 0.5
    nodes = {k: table(80, seed=k, classes=classes) for k in (3, 5, 8)}
    settings = {**RANDOM, "lr": lr, "lambda_l2": lam, "holdout": 0, "rounds": 3}
    result = train("v6_gbdt", nodes, aggregation=mode, environment=LEAST_1, **settings)
    model, w = ensemble(result)
    rows = pd.concat(nodes.values())
    X, y = features(rows), rows["label"].to_numpy()
    trees, f = model.split(w), np.zeros((len(X), model.columns))
    assert len(trees) == 9 * model.columns
    for r in range(3):
        if classes == 2:
            p = 1 / (1 + np.exp(-f))
            g, h = p - y[:, None], p * (1 - p)
        else:
            p = np.exp(f) / np.exp(f).sum(axis=1, keepdims=True)
            g, h = p - (y[:, None] == np.arange(3)), 1.5 * p * (1 - p)
        for t in range(3 * r * model.columns, 3 * (r + 1) * model.columns):
            c, leaf = t % model.columns, boxes(trees[t], X)
            outputs = trees[t][trees[t][:, FEATURE] == LEAF, 1]
            for i in np.unique(leaf):
                expected = -lr * g[leaf == i, c].sum() / (h[leaf == i, c].sum() + lam)
                assert outputs[i] == pytest.approx(expected, abs=1e-5)
            f[:, c] += outputs[leaf]


@pytest.mark.parametrize("settings", [{}, {"class_weights": "balanced"}])
def test_masks_change_no_bit(settings):
    """Sums are whole numbers of a fixed unit in both kinds of answers."""
    nodes = {k: table(60, seed=k, shift=0.2 * k) for k in (1, 2, 3)}
    settings = {**RANDOM, "rounds": 4, **settings}
    plain, masked = (train("v6_gbdt", nodes, aggregation=mode, **settings) for mode in ("plain", "masked"))
    assert masked["privacy"]["aggregation"] == "masked" and masked["per_node"] == []
    assert masked["weights"] == plain["weights"] and masked["bins"] == plain["bins"]
    assert masked["feature_importance"] == plain["feature_importance"] != []


def test_structures_depend_on_the_seed_and_the_edges_only():
    """Other labels give other outputs for the same splits."""
    one = {k: table(60, seed=k) for k in (1, 2, 3)}
    other = {k: rows.assign(label=1 - rows["label"]) for k, rows in one.items()}
    found = [ensemble(train("v6_gbdt", nodes, rounds=2, seed=s, **RANDOM))[1] for nodes, s in ((one, 1), (other, 1))]
    split = found[0][:, FEATURE] != LEAF
    np.testing.assert_array_equal(found[0][split, :2], found[1][split, :2])
    assert not np.allclose(found[0][~split], found[1][~split])
    elsewhere = ensemble(train("v6_gbdt", one, rounds=2, seed=2, **RANDOM))[1]
    assert found[0].shape != elsewhere.shape or not np.array_equal(found[0][:, :2], elsewhere[:, :2])


@pytest.mark.parametrize("minimum", [2, 10, 25])
def test_no_sum_is_about_few_rows(minimum):
    """Whatever the boxes are: rows that a split would single out follow the many."""
    rng = np.random.default_rng(minimum)
    X = rng.lognormal(size=(120, 3)).astype(np.float32)
    X[rng.random(X.shape) < 0.05] = np.nan
    edges = [np.sort(rng.choice(x[~np.isnan(x)], 30, replace=False)) for x in X.T]  # crafted, close to rows
    binned = bins.indices(edges, X)
    few = 0
    for tree in Trees(3, 2).split(structures.drawn(rng, edges, 7, 40)):
        counts = np.bincount(leaves.cells(tree, edges, binned, minimum))
        assert ((counts == 0) | (counts >= minimum)).all() and counts.sum() == 120
        few += (np.bincount(boxes(tree, X)) < minimum).sum()
    assert few > 100, "else this test shows nothing"


def test_what_a_node_sends_is_about_enough_rows():
    """The second derivatives of round 1 count rows in quarters: no count below the minimum but 0."""
    sent = []

    def alter(answer):
        sent.append(answer)
        return answer

    with MockNetwork(
        "v6_gbdt",
        {k: table(90, seed=k) for k in (1, 2, 3)},
        environment={**TRUSTING, "V6_FEDERATED_MINIMUM_ROWS": "7"},
        outcomes=lambda k, message: CallOutcome(alter=alter if message["method"] == "leaf_sums" else None),
        on_round=lambda row: None,
    ) as network:
        network.run(rounds=1, holdout=0, mode="random", trees=10, max_depth=8)
    for answer in sent:
        _, H = np.split(codec.decode(answer["arrays"])["sums"] * leaves.UNIT * 4, 2)
        assert np.array_equal(H, np.rint(H)) and ((H == 0) | (H >= 7)).all() and H.any()
    assert len(sent) == 3


def test_a_leaf_without_rows_has_the_output_around_it():
    """A split whose right side no row of any node reaches, by hand: outputs are -G / (H + 1)."""
    structure = np.array([[0, 1, 0], [1, 2, -0.0], [-1, 0, 0], [-1, 0, 0], [-1, 0, 0]], np.float32)
    found = structures.filled(structure, np.array([3.0, 0, -2]), np.array([2.0, 0, 3]), 1.0, 1.0)
    np.testing.assert_allclose(found[[2, 3, 4], 1], [-1, -1, 0.5])
    assert found[0, GAIN] == pytest.approx(9 / 3 + 4 / 4 - 1 / 6, rel=0.05) and np.signbit(found[1, GAIN])


def test_a_regression_equals_means_of_pooled_rows():
    """Round 1: a leaf of m rows says lr times their mean distance from the mean label, shrunk by m / (m + lambda)."""
    nodes = {k: numbers(70, seed=k) for k in (1, 2, 3)}
    settings = {**RANDOM, "objective": "regression", "rounds": 1, "holdout": 0, "lr": 1.0, "lambda_l2": 0.5}
    result = train("v6_gbdt", nodes, environment=LEAST_1, **settings)
    model, w = ensemble(result)
    rows = pd.concat(nodes.values())
    X, y = features(rows), rows["pressure"].to_numpy()
    first, *trees = model.split(w)
    assert first[0, 1] == pytest.approx(y.mean(), rel=1e-6)
    for tree in trees:
        leaf = boxes(tree, X)
        outputs = tree[tree[:, FEATURE] == LEAF, 1]
        for i in np.unique(leaf):
            residual = (y - first[0, 1])[leaf == i]
            assert outputs[i] == pytest.approx(residual.sum() / (len(residual) + 0.5), rel=1e-4, abs=1e-4)


def test_a_regression_under_masks_is_refused():
    """Whoever chooses the trees reads single rows off the squared errors: benchmarks/attacks, regression losses."""
    nodes = {k: numbers(70, seed=k) for k in (1, 2, 3)}
    with pytest.raises(UserInputError, match="squared errors of trees that predict a number tell single rows"):
        train("v6_gbdt", nodes, aggregation="masked", **{**RANDOM, "objective": "regression", "rounds": 2})


def test_a_remark_on_large_steps():
    model, w = Trees(2, 2), np.array([[-1, 0.5, 0]], np.float32)
    [said] = model.diagnostics(w, {"mode": "random", "trees": 20, "lr": 0.3})
    assert said.endswith("more than 2 in all is often too far: try lr=0.05")
    assert model.diagnostics(w, {"mode": "random", "trees": None, "lr": 0.1}) == []


def test_learns_where_each_node_has_one_class():
    """Sums over nodes do not care who holds which rows."""
    rows = pd.concat([table(300, seed=k) for k in (1, 2)])
    nodes = {1: rows[rows["label"] == 0], 2: rows[rows["label"] == 1]}
    common = {"rounds": 5, "classes": [0, 1], "evaluators": [9]}
    apart = train("v6_gbdt", {**nodes, 9: table(200, seed=42)}, mode="random", **common)
    assert apart["final"]["accuracy"] > 0.85
    assert apart["history"][-1]["trees"] == 50


def test_missing_values_and_early_stopping_under_masks():
    nodes = {k: table(120, seed=k) for k in (1, 2, 3)}
    for k, rows in nodes.items():
        rows.loc[np.random.default_rng(k).random(len(rows)) < 0.2, "x0"] = np.nan
    result = train(
        "v6_gbdt", nodes, aggregation="masked", rounds=40, early_stopping=1, **{**RANDOM, "trees": 5, "lr": 1.0}
    )
    losses = [row["loss"] for row in result["history"]]
    assert len(losses) < 40 and losses[-1] == min(losses)
    assert result["final"]["accuracy"] > 0.7


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        (
            {"max_leaves": 5},
            "max_leaves=5 cannot be used with mode=random: its splits are drawn down to max_depth; use max_depth",
        ),
        ({"min_rows_leaf": 30}, "min_rows_leaf=30 cannot be used with mode=random"),
        ({"criterion": "variance"}, "criterion=variance cannot be used with mode=random"),
        ({"max_depth": 20}, "max_depth=20 is too deep for mode=random; expected at most 12"),
    ],
)
def test_settings_of_other_modes(hospitals, setting, says):
    with pytest.raises(UserInputError, match=says):
        train("v6_gbdt", hospitals, rounds=1, mode="random", **setting)
