"""Boosted trees: LightGBM on pooled rows, rounds by hand, and classes that a node lacks."""

import numpy as np
import pytest
from boosted import HISTOGRAM, RANDOM, SHARED, SMALL, by_lightgbm, edges_of, ensemble, exported, features, splits
from helpers import table, train
from vantage6.algorithm.tools.exceptions import UserInputError

from v6_workbench.conformance import MethodCase, conformance_tests

OF_SUMS = {"equal_nodes_equal_one": "three times the rows count more against the penalty, as in one place"}
OF_LEVELS = {
    **OF_SUMS,
    "as_many_rounds_as_a_node_allows": "a request a level: a node's limit of rounds counts levels",
    "failed_answers_change_nothing": "a node that fails in one request of a tree takes part in its others",
}
OF_BAGS = {"equal_nodes_equal_one": "three nodes grow three trees where one grows one, whose outputs are as large"}
test_conformance = conformance_tests(
    MethodCase("gbdt", RANDOM, exceptions=OF_SUMS, noisy={"preprocess": ["scale"]}),
    MethodCase("gbdt", SMALL, "cyclic"),
    MethodCase("gbdt", {**SMALL, "objective": "regression"}, "cyclic regression"),
    MethodCase("gbdt", HISTOGRAM, "histogram", exceptions=OF_LEVELS),
    MethodCase("gbdt", {**HISTOGRAM, "objective": "regression"}, "histogram regression", exceptions=OF_LEVELS),
    MethodCase("gbdt", {**SMALL, "mode": "bagging"}, "bagging", exceptions=OF_BAGS),
)


@pytest.mark.parametrize("classes", [2, 3])
def test_one_node_equals_lightgbm_on_the_same_rows_and_bins(classes, tmp_path):
    """LightGBM's own objective, in one go, on the indices of the same bins."""
    rows, rounds = table(2000, d=5, classes=classes), 8
    open_ = {"V6_FEDERATED_MINIMUM_ROWS": "1"}
    result = train("v6_gbdt", {1: rows}, rounds=rounds, holdout=0, environment=open_, **SHARED)
    model, w = ensemble(result)
    X, y = features(rows), rows["label"].to_numpy()
    indices = np.column_stack([np.searchsorted(e, x) for e, x in zip(edges_of(result), X.T, strict=True)])
    own = {"objective": "binary"} if classes == 2 else {"objective": "multiclass", "num_class": classes}
    central = by_lightgbm(indices, y, rounds, boost_from_average=False, **own)
    theirs = central.predict(indices.astype(float), raw_score=True).reshape(len(X), -1)
    np.testing.assert_allclose(model.scores(w, X), theirs, atol=1e-6)
    mine = exported(result, tmp_path)
    np.testing.assert_allclose(mine.predict(X), central.predict(indices.astype(float)), atol=1e-6)
    for a, b in zip(mine.dump_model()["tree_info"], central.dump_model()["tree_info"], strict=True):
        assert [s for s, _ in splits(a)] == [s for s, _ in splits(b)]
        assert a["num_leaves"] == b["num_leaves"]
    np.testing.assert_array_equal(mine.feature_importance(), central.feature_importance())
    np.testing.assert_allclose(mine.feature_importance("gain"), central.feature_importance("gain"), rtol=0.05)


def test_two_rounds_by_hand():
    """Trees of one split at two nodes, in plain numpy float64.

    With scores f, p = 1 / (1 + exp(-f)), a row's loss log(1 + exp(f)) - y f has the derivatives g = p - y and
    h = p (1 - p). The best output of a leaf is -G / (H + lambda), G and H the sums over its rows, and lowers the loss
    to second order by G^2 / (H + lambda) / 2; so a split is chosen by the largest
    G_L^2 / (H_L + lambda) + G_R^2 / (H_R + lambda), the parent's being the same for all. Outputs are shrunk by lr.
    Round 1 is node 3's, round 2 node 8's, under the tree of round 1.
    """
    lr, lam, least = 0.4, 0.7, 12
    nodes = {3: table(50, seed=1), 8: table(60, seed=2, shift=0.3)}
    result = train(
        "v6_gbdt",
        nodes,
        rounds=2,
        mode="cyclic",
        holdout=0,
        lr=lr,
        lambda_l2=lam,
        min_rows_leaf=least,
        max_leaves=2,
        max_bin=16,
    )
    edges, trees = edges_of(result), []

    def f(X):
        return sum((np.where(X[:, j] <= e, left, right) for j, e, left, right in trees), np.zeros(len(X)))

    for k in (3, 8):
        X, y = features(nodes[k]), nodes[k]["label"].to_numpy()
        p = 1 / (1 + np.exp(-f(X)))
        g, h = p - y, p * (1 - p)
        best = (-np.inf, None)
        for j in range(4):
            for e in edges[j]:
                L = X[:, j] <= e
                if min(L.sum(), (~L).sum()) >= least:
                    gain = sum(g[s].sum() ** 2 / (h[s].sum() + lam) for s in (L, ~L))
                    # edges without a row between them split alike: LightGBM takes the one in the middle
                    if gain > best[0] + 1e-9:
                        best = (gain, (j, [e], L))
                    elif abs(gain - best[0]) <= 1e-9 and best[1][0] == j:
                        best[1][1].append(e)
        _, (j, alike, L) = best
        left, right = (-lr * g[s].sum() / (h[s].sum() + lam) for s in (L, ~L))
        trees.append((j, alike[len(alike) // 2], left, right))
    model, w = ensemble(result)
    expected = [row for j, e, left, right in trees for row in ((j, e), (-1, left), (-1, right))]
    np.testing.assert_allclose(w[:, :2], expected, atol=1e-6)
    np.testing.assert_allclose(model.scores(w, X)[:, 0], f(X), atol=1e-6)


def test_nodes_take_turns_in_the_order_of_their_ids(hospitals):
    result = train("v6_gbdt", {k: hospitals[k] for k in (8, 3, 5)}, rounds=4, **SMALL)
    assert [row["participants"] for row in result["history"]] == [[3], [5], [8], [3]]


def test_bytes_equal_the_formula():
    """16 bytes a split or leaf, of the new trees up, of the ensemble down, beside the edges: 16/3 each."""
    nodes = {k: table(400, d=6, seed=k) for k in (1, 2, 3)}
    overhead = []
    for leaves in (2, 25):
        result = train("v6_gbdt", nodes, rounds=4, mode="cyclic", max_leaves=leaves, min_rows_leaf=10)
        edges, (model, w) = sum(map(len, edges_of(result))), ensemble(result)
        sizes = [len(t) for t in model.split(w)]
        for t, row in enumerate(result["history"]):
            down = row["bytes_down"] - 16 * sum(sizes[:t]) - 16 / 3 * edges
            overhead.append((row["bytes_up"] - 16 * sizes[t], down))
    assert np.max(overhead) < 1500
    evaluated = [up for t, (up, _) in enumerate(overhead) if t % 4]  # the first round's answer has no evaluation
    assert np.ptp(evaluated) < 80, "numbers of other lengths only"


def test_learns_and_beats_one_node(hospitals):
    result = train("v6_gbdt", {**hospitals, 9: table(200, seed=42)}, rounds=30, evaluators=[9], **SMALL)
    assert result["final"]["accuracy"] > 0.7  # .825, whatever the seed
    assert result["history"][-1]["loss"] < result["history"][0]["loss"]
    assert result["history"][-1]["trees"] == 30


def test_classes_missing_at_nodes():
    """The classes are agreed first; a node without one lowers its score on all its rows."""
    rows = table(180, classes=3)
    nodes = {1: rows[rows["label"] != 2], 2: rows[rows["label"] != 0], 3: rows}
    result = train("v6_gbdt", nodes, rounds=6, **SMALL)
    assert result["data"]["classes"] == [0, 1, 2]
    model, w = ensemble(result)
    trees = model.split(w)
    assert len(trees) == 18
    outputs = trees[2][trees[2][:, 0] == -1][:, 1]  # of class 2, grown at node 1, which has none
    assert (outputs < 0).all()
    assert result["final"]["accuracy"] > 0.6


def test_one_class_at_a_node_of_two():
    rows = table(120)
    result = train("v6_gbdt", {1: rows[rows["label"] == 0], 2: rows}, rounds=1, classes=[0, 1], holdout=0, **SMALL)
    model, w = ensemble(result)
    assert (model.scores(w, features(rows)) < 0).all()


def test_nothing_to_split_is_one_leaf():
    """A column without spread has no edge; every tree is a leaf."""
    rows = table(60)
    rows[["x0", "x1", "x2", "x3"]] = 1.0
    result = train("v6_gbdt", {1: rows, 2: rows}, rounds=2, **SMALL)
    model, w = ensemble(result)
    assert [len(t) for t in model.split(w)] == [1, 1]
    assert result["feature_importance"] == []


def test_two_values_are_told_apart_though_few_rows_have_one():
    """Rounded counts lose a value that few rows have; the even edges do not."""
    rows = table(200)
    rows["x0"] = (np.arange(200) % 25 == 0).astype(float)
    result = train("v6_gbdt", {1: rows, 2: rows}, rounds=1, **SMALL)
    assert ((edges_of(result)[0] >= 0) & (edges_of(result)[0] < 1)).any()


def test_a_node_that_fails_in_its_turn_ends_the_job(hospitals):
    """With the ensemble so far, which can be resumed: nobody else was asked."""
    strict = {5: {"V6_FEDERATED_MINIMUM_ROWS": "50"}}
    result = train("v6_gbdt", hospitals, stops=True, rounds=3, min_responses=0.5, environments=strict, **SMALL)
    assert [row["trees"] for row in result["history"]] == [1]
    assert "round 2, grow: organization 5: min_rows_leaf=10 is below the 50 rows" in result["stopped"]


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ({"precision": "float16"}, "precision='float16' is refused: it should be 'float32'"),
        ({"model": "logreg"}, "model='logreg' is refused: it should be 'trees'"),
        ({"max_bin": 500}, "max_bin=500 is refused"),
        ({"criterion": "gini"}, "criterion='gini' is refused: it should be 'newton' or 'variance'"),
    ],
)
def test_settings_that_do_not_fit(hospitals, setting, says):
    with pytest.raises(UserInputError, match=says):
        train("v6_gbdt", hospitals, rounds=1, **setting)
