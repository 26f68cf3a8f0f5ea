"""Boosted trees: LightGBM on pooled rows, two rounds by hand, guards, and what an ensemble may tell."""

import importlib
import json
import re
from types import SimpleNamespace

import lightgbm
import numpy as np
import pandas as pd
import pytest
from helpers import OPEN, spoilt, table, train
from vantage6.algorithm.tools.exceptions import CollectResultsError, UserInputError
from vantage6.algorithm.tools.mock_client import MockAlgorithmClient

import v6_gbdt
from v6_federated.base.errors import SafeError
from v6_federated.base.vantage6_api import PrivacyThresholdViolation
from v6_federated.data import source
from v6_federated.messages import codec
from v6_federated.privacy.policy import Policy
from v6_gbdt import bins
from v6_gbdt.trees import Trees
from v6_workbench.reporting import export
from v6_workbench.simulation.mock import CallOutcome, MockNetwork

SMALL = {"min_rows_leaf": 10, "max_leaves": 4}


def ensemble(result):
    model = Trees(result["model"]["features"], result["model"]["classes"])
    return model, codec.decode(result["weights"])["weights"]


def edges_of(result):
    return bins.unpack(codec.decode(result["bins"]))


def features(rows):
    return rows.iloc[:, :-1].to_numpy(np.float32)


def exported(result, tmp_path):
    export.save(result, tmp_path / "model.txt")
    return lightgbm.Booster(model_file=str(tmp_path / "model.txt"))


@pytest.mark.parametrize("classes", [2, 3])
def test_one_node_equals_lightgbm_on_the_same_rows_and_bins(classes, tmp_path):
    """LightGBM's own objective, in one go, on the indices of the same bins."""
    rows, rounds = table(300, d=5, classes=classes), 8
    settings = {"min_rows_leaf": 15, "max_leaves": 6, "lr": 0.3, "lambda_l2": 0.5}
    # LightGBM only estimates a leaf's rows, and is taken as it is where the node's minimum asks no more
    open_ = {"V6_FEDERATED_MINIMUM_ROWS": "1"}
    result = train("v6_gbdt", {1: rows}, rounds=rounds, holdout=0, environment=open_, **settings)
    model, w = ensemble(result)
    X, y = features(rows), rows["label"].to_numpy()
    indices = np.column_stack([np.searchsorted(e, x) for e, x in zip(edges_of(result), X.T, strict=True)])
    central = lightgbm.train(
        {
            "objective": "binary" if classes == 2 else "multiclass",
            "num_class": 1 if classes == 2 else classes,
            "boost_from_average": False,
            "min_data_in_leaf": 15,
            "num_leaves": 6,
            "learning_rate": 0.3,
            "lambda_l2": 0.5,
            "min_data_in_bin": 1,
            "max_bin": 300,
            "num_threads": 1,
            "deterministic": True,
            "verbosity": -1,
        },
        lightgbm.Dataset(indices.astype(float), y),
        rounds,
    )
    theirs = central.predict(indices.astype(float), raw_score=True).reshape(len(X), -1)
    np.testing.assert_allclose(model.scores(w, X), theirs, atol=1e-6)
    mine = exported(result, tmp_path)
    np.testing.assert_allclose(mine.predict(X), central.predict(indices.astype(float)), atol=1e-6)
    for a, b in zip(mine.dump_model()["tree_info"], central.dump_model()["tree_info"], strict=True):
        assert [s for s, _ in splits(a)] == [s for s, _ in splits(b)]
        assert a["num_leaves"] == b["num_leaves"]
    np.testing.assert_array_equal(mine.feature_importance(), central.feature_importance())
    np.testing.assert_allclose(mine.feature_importance("gain"), central.feature_importance("gain"), rtol=0.05)


def splits(tree):
    """(feature, threshold) of each split, a node before its left subtree, that before its right one."""
    todo, found = [tree["tree_structure"]], []
    while todo:
        node = todo.pop()
        if "split_feature" in node:
            found.append((node["split_feature"], node["threshold"]))
            todo += [node["right_child"], node["left_child"]]
    return found


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
        "v6_gbdt", nodes, rounds=2, holdout=0, lr=lr, lambda_l2=lam, min_rows_leaf=least, max_leaves=2, max_bin=16
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


def test_the_order_of_nodes_is_that_of_ids(hospitals):
    other = {k: hospitals[k] for k in (8, 3, 5)}
    first, second = (train("v6_gbdt", nodes, rounds=4, **SMALL) for nodes in (hospitals, other))
    assert [row["participants"] for row in first["history"]] == [[3], [5], [8], [3]]
    assert first["weights"] == second["weights"]


def test_equal_nodes_equal_one():
    """Which of them is asked makes no difference, and the bins are those of one."""
    rows = table(80)
    one, three = (train("v6_gbdt", dict.fromkeys(ids, rows), rounds=5, holdout=0, **SMALL) for ids in ([1], [1, 2, 3]))
    assert one["weights"] == three["weights"]


def test_bytes_equal_the_formula():
    """16 bytes a split or leaf, of the new trees up, of the ensemble down, beside the edges: 16/3 each."""
    nodes = {k: table(400, d=6, seed=k) for k in (1, 2, 3)}
    overhead = []
    for leaves in (2, 25):
        result = train("v6_gbdt", nodes, rounds=4, max_leaves=leaves, min_rows_leaf=10)
        edges, (model, w) = sum(map(len, edges_of(result))), ensemble(result)
        sizes = [len(t) for t in model.split(w)]
        for t, row in enumerate(result["history"]):
            down = row["bytes_down"] - 16 * sum(sizes[:t]) - 16 / 3 * edges
            overhead.append((row["bytes_up"] - 16 * sizes[t], down))
    assert np.max(overhead) < 1500
    evaluated = [up for t, (up, _) in enumerate(overhead) if t % 4]  # the first round's answer has no evaluation
    assert np.ptp(evaluated) < 80, "numbers of other lengths only"


@pytest.mark.parametrize("classes", [2, 3])
def test_same_bits_everywhere(classes, monkeypatch):
    nodes = {k: table(60, classes=classes, seed=k) for k in (3, 5, 8)}
    for name, value in OPEN.items():
        monkeypatch.setenv(name, value)
    settings = {"rounds": 4, "seed": 5, "trees": 2, **SMALL}
    one, two = (train("v6_gbdt", nodes, processes=p, **settings) for p in (1, 2))
    client = MockAlgorithmClient(
        [[{"database": rows, "db_type": "csv"}] for rows in nodes.values()], "v6_gbdt", organization_ids=list(nodes)
    )
    theirs = importlib.import_module("v6_gbdt").central(mock_client=client, **settings)
    assert without_times(one) == without_times(two) == without_times(theirs)
    assert len(ensemble(one)[0].split(ensemble(one)[1])) == 4 * 2 * (1 if classes == 2 else 3)


def without_times(result):
    return {**result, "history": [{k: v for k, v in row.items() if k != "seconds"} for row in result["history"]]}


def test_rate_zero_changes_nothing(hospitals):
    result = train("v6_gbdt", hospitals, rounds=3, lr=0.0, **SMALL)
    model, w = ensemble(result)
    assert not model.scores(w, features(hospitals[3])).any()
    assert [row["loss"] for row in result["history"]] == pytest.approx([np.log(2)] * 3)


def test_learns_and_beats_one_node(hospitals):
    result = train("v6_gbdt", {**hospitals, 9: table(200, seed=42)}, rounds=30, evaluators=[9], **SMALL)
    assert result["final"]["accuracy"] > 0.85
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


def test_resuming_equals_a_straight_run(hospitals):
    straight, half = (train("v6_gbdt", hospitals, rounds=r, **SMALL) for r in (7, 4))
    resumed = train("v6_gbdt", hospitals, rounds=7, resume=json.loads(json.dumps(half)), **SMALL)
    assert resumed["weights"] == straight["weights"]
    assert resumed["bins"] == straight["bins"]
    assert [row["trees"] for row in resumed["history"]] == list(range(1, 8))


def test_a_node_that_fails_in_its_turn_ends_the_job(hospitals):
    """With the ensemble so far, which can be resumed: nobody else was asked."""
    strict = {5: {"V6_FEDERATED_MINIMUM_ROWS": "50"}}
    result = train("v6_gbdt", hospitals, stops=True, rounds=3, min_responses=0.5, environments=strict, **SMALL)
    assert [row["trees"] for row in result["history"]] == [1]
    assert "round 2, grow: organization 5: min_rows_leaf=10 is below the 50 rows" in result["stopped"]


# ---- what an ensemble tells


def test_every_threshold_is_an_agreed_edge_and_no_value_of_a_row(hospitals, tmp_path):
    result = train("v6_gbdt", hospitals, rounds=9, **SMALL)
    edges, values = edges_of(result), pd.concat(hospitals.values())
    booster = exported(result, tmp_path)
    found = [s for t in booster.dump_model()["tree_info"] for s in splits(t)]
    assert found
    for feature, threshold in found:
        assert np.float32(threshold) in edges[feature]
        assert threshold not in values.iloc[:, feature].to_numpy(np.float32)
    text = (tmp_path / "model.txt").read_text()
    assert not re.search("count|weight|internal|parameters|\\[", text)
    # nor anywhere in the result: a value of these rows has many digits
    told = json.dumps(result)
    assert not any(repr(v) in told or repr(float(np.float32(v))) in told for v in np.ravel(features(values)).tolist())


def test_edges_follow_quantiles_and_stay_within_the_range():
    x = np.random.default_rng(0).lognormal(sigma=1.5, size=3000).astype(np.float32)
    low, high = (np.array([x.mean() + s * bins.SPREAD * x.std()], np.float32) for s in (-1, 1))
    at = bins.boundaries(low, high, 64)
    [e] = bins.edges(bins.counts(x[:, None], at, 10), at, 3000, 64)
    assert 40 < len(e) < 64
    assert low[0] < e[0] and e[-1] < high[0] and (np.diff(e) > 0).all()
    share = np.diff([0, *np.searchsorted(np.sort(x), e), 3000]) / 3000
    assert share.max() < 0.12, "no bin holds much, though the column is skewed"


def test_counts_are_multiples_of_the_minimum_of_rows():
    X = table(95).iloc[:, :-1].to_numpy(np.float32)
    found = bins.counts(X, bins.boundaries(X.min(axis=0), X.max(axis=0), 8), 10)
    assert set(np.unique(found)) <= set(range(0, 91, 10))


def test_cells_crafted_to_zoom_in_tell_no_more():
    """Boundaries closer together than 1/256 of a deviation count as one."""
    X = table(95).iloc[:, :1].to_numpy(np.float32)
    value = np.sort(X[:, 0])[9:10]
    near = bins.boundaries(value - np.float32(1e-4), value + np.float32(1e-4), 16)
    assert len(np.unique(bins.counts(X, near, 10))) <= 2
    grain = X.std() / bins.FINEST
    jumps = near[0, np.flatnonzero(np.diff(bins.counts(X, near, 10)[0]))]
    assert (np.abs(jumps / grain - np.round(jumps / grain)) < 0.01).all(), "at the grid's steps, not at a value"
    assert len(bins.coarse(near[0], X[:, 0])) <= 2


def rows_of_leaves(tree, X):
    """The number of rows (n, d) that come to each leaf of a tree (m, 3)."""
    found, todo = [], [np.arange(len(X))]
    for feature, threshold, _ in tree:
        rows = todo.pop()
        if feature < 0:
            found.append(len(rows))
        else:
            left = X[rows, int(feature)] <= threshold
            todo += [rows[~left], rows[left]]
    return found


def test_the_exported_text_compares_as_nodes_do(tmp_path):
    """LightGBM compares float64 values, nodes float32: dates as numbers lie on thresholds."""
    rng = np.random.default_rng(0)
    days = 20200000 + rng.integers(100, 1200, 300)
    nodes = {
        k: pd.DataFrame({"day": days + k, "label": (days + rng.integers(-90, 90, 300) > 20200600).astype(int)})
        for k in (1, 2, 3)
    }
    result = train("v6_gbdt", nodes, rounds=6, holdout=0)
    model, w = ensemble(result)
    X = np.concatenate([rows[["day"]].to_numpy() for rows in nodes.values()])
    assert (X.astype(np.float32) != X).any() and (w[:, 0] >= 0).any()
    theirs = exported(result, tmp_path).predict(X.astype(np.float64), raw_score=True)
    np.testing.assert_allclose(model.scores(w, X.astype(np.float32))[:, 0], theirs, atol=1e-12)


@pytest.mark.parametrize(("least", "classes"), [(10, 2), (10, 3), (40, 2)])
def test_no_leaf_has_fewer_rows_than_the_operators_minimum(least, classes):
    """LightGBM's own count is an estimate, and is wrong once the ensemble is sure of most rows."""
    nodes = {k: table(200, d=6, classes=classes, seed=k) for k in (1, 2, 3)}
    settings = {"rounds": 15, "lr": 0.3, "lambda_l2": 0, "min_rows_leaf": least, "holdout": 0}
    found = {}
    for minimum in (least, 1):
        result = train("v6_gbdt", nodes, environment={"V6_FEDERATED_MINIMUM_ROWS": str(minimum)}, **settings)
        model, w = ensemble(result)
        found[minimum] = [
            min(rows_of_leaves(tree, features(nodes[i // model.columns % 3 + 1])))
            for i, tree in enumerate(model.split(w))
        ]
    assert min(found[least]) >= least
    assert min(found[1]) < least, "else this test shows nothing"


def test_requests_with_other_minima_count_the_same():
    """Many of them would tell the counts in between."""
    rows = table(95)

    def count(minimum_rows):
        job = {
            "method": "gbdt",
            "key": "0" * 32,
            "seed": 0,
            "participants": [1, 2, 3],
            "evaluators": [],
            "rounds": 1,
            "model": {"name": "trees", "features": 1, "classes": 2},
            "minimum_rows": minimum_rows,
            "precision": "float32",
            "data": {"label": "label", "features": ["x0"], "classes": [0, 1], "holdout": 0.0, "preprocess": []},
        }
        arrays = codec.encode({"low": np.array([-4], np.float32), "high": np.array([4], np.float32)})
        mine = {"mock_client": SimpleNamespace(organization_id=1), "mock_data": [rows]}
        answer = v6_gbdt.count(**mine, job=job, round=1, arrays=arrays, max_bin=16)
        return codec.decode(answer["arrays"])["counts"][0]

    usual = count(None)
    assert set(usual) <= {*range(0, 91, 10)} and len(set(usual)) > 5
    for minimum_rows in range(10, 60):
        np.testing.assert_array_equal(count(minimum_rows), usual)


# ---- regression


def numbers(n=200, d=4, seed=0):
    """A label that is a number, far from zero."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = 120 + 15 * X[:, 0] + 10 * np.sin(2 * X[:, 1]) + 2 * rng.normal(size=n)
    return pd.DataFrame(X, columns=[f"x{i}" for i in range(d)]).assign(pressure=y)


def test_regression_of_one_node_equals_lightgbm(tmp_path):
    """LightGBM's own objective, which starts from the labels' mean too, on the indices of the same bins."""
    rows = numbers(300)
    settings = {"min_rows_leaf": 15, "max_leaves": 6, "lr": 0.3, "lambda_l2": 0.5, "objective": "regression"}
    result = train("v6_gbdt", {1: rows}, rounds=8, holdout=0, **settings)
    model, w = ensemble(result)
    X, y = features(rows), rows["pressure"].to_numpy()
    indices = np.column_stack([np.searchsorted(e, x) for e, x in zip(edges_of(result), X.T, strict=True)])
    central = lightgbm.train(
        {
            "objective": "regression",
            "min_data_in_leaf": 15,
            "num_leaves": 6,
            "learning_rate": 0.3,
            "lambda_l2": 0.5,
            "min_data_in_bin": 1,
            "max_bin": 300,
            "num_threads": 1,
            "deterministic": True,
            "verbosity": -1,
        },
        lightgbm.Dataset(indices.astype(float), y),
        8,
    )
    theirs = central.predict(indices.astype(float))
    np.testing.assert_allclose(model.predict(w, X), theirs, rtol=1e-6)
    np.testing.assert_allclose(exported(result, tmp_path).predict(X), theirs, rtol=1e-6)
    predicted, measured = export.predict(result, source.Source(table=rows))
    np.testing.assert_allclose(predicted["prediction"], theirs, rtol=1e-6)
    assert list(predicted) == ["prediction"]
    assert measured["r2"] == pytest.approx(1 - np.mean((y - theirs) ** 2) / y.var(), abs=1e-6)


def test_two_rounds_of_a_regression_by_hand():
    """Squared error (f - y)^2 / 2: g = f - y and h = 1, so a leaf of m rows says -lr G / (m + lambda).

    All begins with the mean label over the rows of all nodes; round 1 is node 3's, round 2 node 8's.
    """
    lr, lam, least = 0.4, 0.7, 12
    nodes = {3: numbers(50, seed=1), 8: numbers(60, seed=2)}
    result = train(
        "v6_gbdt",
        nodes,
        rounds=2,
        holdout=0,
        lr=lr,
        lambda_l2=lam,
        min_rows_leaf=least,
        max_leaves=2,
        max_bin=16,
        objective="regression",
    )
    base = (50 * nodes[3]["pressure"].mean() + 60 * nodes[8]["pressure"].mean()) / 110
    edges, trees = edges_of(result), []

    def f(X):
        return sum((np.where(X[:, j] <= e, left, right) for j, e, left, right in trees), np.full(len(X), base))

    for k in (3, 8):
        X, y = features(nodes[k]), nodes[k]["pressure"].to_numpy()
        g, best = f(X) - y, (-np.inf, None)
        for j in range(4):
            for e in edges[j]:
                L = X[:, j] <= e
                if min(L.sum(), (~L).sum()) >= least:
                    gain = sum(g[s].sum() ** 2 / (s.sum() + lam) for s in (L, ~L))
                    if gain > best[0] + 1e-6:
                        best = (gain, (j, [e], L))
                    elif abs(gain - best[0]) <= 1e-6 and best[1][0] == j:
                        best[1][1].append(e)
        _, (j, alike, L) = best
        left, right = (-lr * g[s].sum() / (s.sum() + lam) for s in (L, ~L))
        trees.append((j, alike[len(alike) // 2], left, right))
    model, w = ensemble(result)
    expected = [(-1, base)] + [row for j, e, left, right in trees for row in ((j, e), (-1, left), (-1, right))]
    np.testing.assert_allclose(w[:, :2], expected, rtol=1e-6)
    np.testing.assert_allclose(model.predict(w, X), f(X), rtol=1e-6)


def test_regression_is_measured_by_pooled_sums():
    """Mean squared error and R squared of held-out rows of all nodes are those of the pooled rows; no score leaves."""
    nodes = {k: numbers(100 + 30 * k, seed=k).assign(pressure=lambda t, k=k: t["pressure"] + 5 * k) for k in (1, 2, 3)}
    result = train("v6_gbdt", nodes, rounds=9, objective="regression", **SMALL)
    model, w = ensemble(result)
    held = pd.concat([rows.iloc[source.split(len(rows), 0.2, k)[1]] for k, rows in nodes.items()])
    y, prediction = held["pressure"].to_numpy(), model.predict(w, features(held))
    final = result["final"]
    assert final["evaluated"] == len(held) and final["accuracy"] is None
    assert final["loss"] == pytest.approx(np.mean((y - prediction) ** 2))
    assert final["r2"] == pytest.approx(1 - np.mean((y - prediction) ** 2) / y.var())
    assert [row["r2"] is not None for row in result["history"]] == [True] * 9
    assert result["history"][-1]["r2"] > result["history"][0]["r2"] > 0
    assert result["history"][-1]["r2"] == final["r2"]
    told = json.dumps(result)
    assert not any(repr(v) in told or repr(float(np.float32(v))) in told for v in held["pressure"].tolist())


def test_regression_same_bits_and_resumed(monkeypatch):
    nodes = {k: numbers(60, seed=k) for k in (3, 5, 8)}
    settings = {"objective": "regression", **SMALL}
    straight, half = (train("v6_gbdt", nodes, rounds=r, **settings) for r in (7, 4))
    two = train("v6_gbdt", nodes, processes=2, rounds=7, **settings)
    resumed = train("v6_gbdt", nodes, rounds=7, resume=json.loads(json.dumps(half)), **settings)
    assert straight["weights"] == two["weights"] == resumed["weights"]
    with pytest.raises(UserInputError, match="resume: a result of objective='regression'; expected the same"):
        train("v6_gbdt", nodes, rounds=7, resume=json.loads(json.dumps(half)), **SMALL)


def test_regression_stops_early_and_at_rate_zero_predicts_the_mean():
    nodes = {k: numbers(60, seed=k).assign(pressure=np.random.default_rng(k).normal(size=60)) for k in (1, 2, 3)}
    result = train("v6_gbdt", nodes, rounds=60, lr=0.5, early_stopping=3, objective="regression", **SMALL)
    losses = [row["loss"] for row in result["history"]]
    best = int(np.argmin(losses[:-1]))
    assert len(losses) == best + 1 + 3 + 1 < 60
    assert losses[-1] == pytest.approx(losses[best])
    zero = train("v6_gbdt", nodes, rounds=2, lr=0.0, holdout=0, objective="regression", **SMALL)
    model, w = ensemble(zero)
    expected = np.mean([rows["pressure"].mean() for rows in nodes.values()])
    np.testing.assert_allclose(model.predict(w, features(nodes[1])), expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("change", "settings", "error", "says"),
    [
        (lambda t: t.assign(pressure="high"), {}, CollectResultsError, "labels that are not numbers; expected numbers"),
        (
            lambda t: t.assign(pressure=1e39),
            {},
            CollectResultsError,
            "beyond 1e.12; expected numbers, large ones in anot",
        ),
        (lambda t: t.assign(pressure=np.nan), {}, CollectResultsError, "missing values in the label column pressure"),
        (lambda t: t, {"classes": [0, 1]}, UserInputError, "classes=\\[0, 1\\] has no effect with objective"),
        (lambda t: t, {"target": 0.9}, UserInputError, "target=0.9 has no effect with objective=regression"),
        (lambda t: t, {"objective": "poisson"}, UserInputError, "objective='poisson' is refused"),
    ],
)
def test_what_is_no_regression(change, settings, error, says):
    nodes = {k: change(numbers(60, seed=k)) for k in (1, 2)}
    with pytest.raises(error, match=says):
        train("v6_gbdt", nodes, **{"rounds": 1, "objective": "regression", **SMALL, **settings})


def test_regression_of_large_labels():
    """Platelets a litre: their squares are far beyond what counts may be."""
    nodes = {k: numbers(80, seed=k).assign(pressure=lambda t: t["pressure"] * 2e9) for k in (1, 2)}
    plain = {k: numbers(80, seed=k) for k in (1, 2)}
    settings = {"rounds": 6, "objective": "regression", **SMALL}
    large, small = (train("v6_gbdt", n, **settings) for n in (nodes, plain))
    assert large["final"]["r2"] == pytest.approx(small["final"]["r2"], rel=1e-3)


def test_regression_of_numbers_in_an_object_column():
    nodes = {k: numbers(60, seed=k).astype({"pressure": object}) for k in (1, 2)}
    assert train("v6_gbdt", nodes, rounds=2, objective="regression", **SMALL)["final"]["r2"] is not None


@pytest.mark.parametrize(
    "nonsense",
    [{"loss": -5.0}, {"squares": -1e9}, {"mean": 1e200}, {"loss": 1e200}, {"n": 2**62}, {"n": 2**53}, {"mean": None}],
)
def test_an_evaluation_of_a_regression_that_cannot_be(nonsense):
    nodes = {k: numbers(60, seed=k) for k in (1, 2, 3)}
    settings = {"rounds": 2, "objective": "regression", "min_responses": 2, "retries": 0, **SMALL}
    with MockNetwork(
        "v6_gbdt", nodes, environment=OPEN, outcomes=spoilt(**nonsense), on_round=lambda row: None
    ) as network:
        result = network.run(**settings)
    reasons = [m["reason"] for row in result["history"] for m in (*row["missing"], *row["unevaluated"])]
    assert any("answers an evaluation that is none" in reason for reason in [*reasons, result.get("stopped", "")])


# ---- guards and refusals


def test_leaves_of_few_rows_are_refused(hospitals):
    with pytest.raises(CollectResultsError, match="min_rows_leaf=9 is below the 10 rows"):
        train("v6_gbdt", hospitals, rounds=1, min_rows_leaf=9)
    with pytest.raises(CollectResultsError, match="min_rows_leaf=10 is below the 12 rows"):
        train("v6_gbdt", hospitals, rounds=1, minimum_rows=12, **SMALL)
    Policy(minimum_rows=10).check_leaf(10, None)
    with pytest.raises(PrivacyThresholdViolation):
        Policy(minimum_rows=10).check_leaf(5, 1)


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({"V6_FEDERATED_MINIMUM_ROWS": "50"}, "fewer than 50 rows"),
        ({"V6_FEDERATED_DISALLOWED_COLUMNS": "x1"}, "the column\\(s\\) x1 may not be used"),
        ({"V6_FEDERATED_MAXIMUM_ROUNDS": "2"}, "3 rounds are more than the 2"),
    ],
)
def test_a_strict_node_refuses(hospitals, environment, says):
    with pytest.raises(CollectResultsError, match=says):
        train("v6_gbdt", hospitals, rounds=3, environments={5: environment}, **SMALL)


def test_leaves_hold_the_rows_asked_for(hospitals):
    rows = hospitals[5]
    result = train("v6_gbdt", {1: rows}, rounds=1, holdout=0, min_rows_leaf=13, max_leaves=31)
    model, w = ensemble(result)
    _, counts = np.unique(model.scores(w, features(rows)), return_counts=True)
    assert counts.min() >= 13


@pytest.mark.parametrize(
    ("w", "says"),
    [
        ([[0, 1, 1], [-1, 2, 0]], "ends within a tree"),
        ([[7, 1, 1], [-1, 2, 0], [-1, 1, 0]], "other features than the 4"),
        ([[0.5, 1, 1], [-1, 2, 0], [-1, 1, 0]], "other features than the 4"),
        ([[-1, 2], [-1, 1]], "expected \\(rows, 3\\)"),
    ],
)
def test_an_ensemble_that_is_none(w, says):
    with pytest.raises(SafeError, match=says):
        Trees(4, 2).split(np.array(w, np.float32))


def test_an_ensemble_of_some_classes():
    with pytest.raises(SafeError, match="expected a multiple of 3"):
        Trees(4, 3).split(np.array([[-1, 2, 0]] * 4, np.float32))


@pytest.mark.parametrize(
    ("w", "says"),
    [
        ([[1, 1.4, 1], [-1, 2, 0], [-1, 1, 0]], "sends a threshold that is not an agreed bin edge"),
        ([[-1, 2, 0], [-1, 1, 0]], "sends other trees than asked for; expected 1 of at most 4 leaves"),
        ([[1, 1.4, 1]] * 4 + [[-1, 2, 0]] * 5, "sends other trees than asked for; expected 1 of at most 4 leaves"),
        ([[1, 1.4, 1], [-1, 2, 0]], "sends no trees: an ensemble that ends within a tree"),
    ],
)
def test_trees_that_were_not_asked_for_are_refused(hospitals, w, says):
    def alter(answer):
        if "train_loss" in answer:
            answer["arrays"] = codec.encode({"trees": np.array(w, np.float32)})
        return answer

    told = {"environment": OPEN, "outcomes": lambda *_: CallOutcome(alter=alter), "on_round": lambda row: None}
    with (
        MockNetwork("v6_gbdt", hospitals, **told) as network,
        pytest.raises(CollectResultsError, match=f"round 1, grow: organization 3: {says}"),
    ):
        network.run(rounds=2, **SMALL)


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ({"precision": "float16"}, "precision='float16' is refused: it should be 'float32'"),
        ({"model": "logreg"}, "model='logreg' is refused: it should be 'trees'"),
        ({"max_bin": 500}, "max_bin=500 is refused"),
    ],
)
def test_settings_that_do_not_fit(hospitals, setting, says):
    with pytest.raises(UserInputError, match=says):
        train("v6_gbdt", hospitals, rounds=1, **setting)


# ---- early stopping, importance, export


def test_early_stopping_goes_back_to_the_best_round():
    rng = np.random.default_rng(0)
    nodes = {k: table(60, seed=k).assign(label=rng.integers(0, 2, 60)) for k in (1, 2, 3)}  # nothing to learn
    result = train("v6_gbdt", nodes, rounds=60, lr=0.5, early_stopping=3, **SMALL)
    losses = [row["loss"] for row in result["history"]]
    best = int(np.argmin(losses[:-1]))
    assert len(losses) < 60
    assert result["history"][-1]["trees"] == best + 1
    assert losses[-1] == pytest.approx(losses[best])
    assert len(losses) == best + 1 + 3 + 1, "three rounds without a smaller loss, and the one that goes back"
    model, w = ensemble(result)
    assert len(model.split(w)) == best + 1


@pytest.mark.parametrize("cut", [1, 3, 5])
def test_early_stopping_of_a_resumed_job(cut):
    """The last model of the first job was evaluated out of turn; an uninterrupted job would not know."""
    others = 0
    for seed in range(4):
        nodes = {k: table(60, seed=10 * seed + k, shift=0.2 * k) for k in (1, 2, 3)}
        settings = {"lr": 0.5, "early_stopping": 1, "evaluate_every": 2, **SMALL}
        whole = train("v6_gbdt", nodes, rounds=16, **settings)
        first = train("v6_gbdt", nodes, rounds=cut, **settings)
        assert train("v6_gbdt", nodes, rounds=16, resume=first, **settings)["weights"] == whole["weights"]
        told = [row["loss"] for row in whole["history"]]
        others += len(told) > cut and first["history"][-1]["loss"] is not None is told[cut - 1]
    assert others, "somewhere the first job knows a loss that the whole one does not"


def test_a_resumed_job_that_is_evaluated_more_often():
    """No round of the first was due by the second's count."""
    nodes = {k: table(60, seed=k) for k in (1, 2, 3)}
    first = train("v6_gbdt", nodes, rounds=6, evaluate_every=10, **SMALL)
    result = train("v6_gbdt", nodes, rounds=12, evaluate_every=5, early_stopping=5, resume=first, **SMALL)
    assert len(result["history"]) > 6 and "stopped" not in result


@pytest.mark.parametrize("unfit", [{"holdout": 0}, {"evaluate_every": 4}])
def test_early_stopping_needs_rows_held_out(unfit, hospitals):
    with pytest.raises(
        UserInputError, match="early_stopping=2 needs losses on held-out rows; expected a holdout above"
    ):
        train("v6_gbdt", hospitals, rounds=6, early_stopping=2, **{**SMALL, **unfit})


def test_early_stopping_where_no_node_can_hold_rows_out(hospitals):
    """What was trained until that is known is not lost."""
    strict = {k: {"V6_FEDERATED_MINIMUM_ROWS": "10"} for k in hospitals}
    few = {k: rows[:15] for k, rows in hospitals.items()}
    result = train("v6_gbdt", few, stops=True, rounds=6, early_stopping=2, environments=strict, **SMALL)
    assert "early_stopping=2: no loss on held-out rows after 3 rounds; no node has rows enough" in result["stopped"]
    assert len(result["history"]) == 3


def test_feature_importance_names_what_splits():
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(rng.normal(size=(200, 3)), columns=["noise", "blood pressure", "age"])
    rows["ill"] = (rows["blood pressure"] + 0.3 * rows["age"] > 0).astype(int)
    result = train("v6_gbdt", {1: rows[:100], 2: rows[100:]}, rounds=10, **SMALL)
    assert result["feature_importance"][0]["feature"] == "blood pressure"
    assert sum(row["splits"] for row in result["feature_importance"]) == (ensemble(result)[1][:, 0] >= 0).sum()


def test_feature_importance_names_features_after_preprocessing(hospitals):
    nodes = {k: rows.assign(x0=np.where(rows["x0"] > 0, "high", "low")) for k, rows in hospitals.items()}
    half = train("v6_gbdt", nodes, rounds=3, preprocess=["onehot"], **SMALL)
    result = train("v6_gbdt", nodes, rounds=6, resume=json.loads(json.dumps(half)), **SMALL)
    names = {row["feature"] for row in result["feature_importance"]}
    assert names <= {"x0=high", "x0=low", "x1", "x2", "x3"} and names & {"x0=high", "x0=low"}
    predicted, measured = export.predict(result, source.Source(table=nodes[3]))
    assert measured["accuracy"] > 0.6 and list(predicted) == ["prediction", "score", "probability=0", "probability=1"]


def test_export_is_lightgbms_text(hospitals, tmp_path):
    rows = {k: v.rename(columns={"x0": "blood pressure [mmHg]", "x1": "x 1"}) for k, v in hospitals.items()}
    result = train("v6_gbdt", rows, rounds=6, **SMALL)
    booster, (model, w) = exported(result, tmp_path), ensemble(result)
    assert booster.feature_name() == ["blood_pressure__mmHg_", "x_1", "x2", "x3"]
    X = features(rows[3])
    p = booster.predict(X)
    np.testing.assert_allclose(p, 1 / (1 + np.exp(-model.scores(w, X)[:, 0])), atol=1e-12)
    np.testing.assert_array_equal(p > 0.5, model.predict(w, X))
    for ending in (".npz", ".safetensors", ".pt"):
        export.save(result, tmp_path / f"model{ending}")
        again, measured = export.predict(export.load(tmp_path / f"model{ending}"), source.Source(table=rows[3]))
        np.testing.assert_array_equal(again["score"], model.scores(w, X)[:, 0])
        assert measured["accuracy"] > 0.6


def test_export_refuses_what_the_text_cannot_hold(hospitals, tmp_path):
    scaled = train("v6_gbdt", hospitals, rounds=1, preprocess=["standardize"], **SMALL)
    with pytest.raises(SafeError, match="no place for preprocessing; expected .npz"):
        export.save(scaled, tmp_path / "model.txt")
    linear = train("v6_fedavg", hospitals, rounds=1)
    with pytest.raises(SafeError, match="no form as text"):
        export.save(linear, tmp_path / "model.txt")


def test_exports_only_callables():
    module = importlib.import_module("v6_gbdt")
    public = [n for n in dir(module) if callable(getattr(module, n)) and not n.startswith("__")]
    assert sorted(public) == sorted(module.__all__)
