"""Boosted trees: what an ensemble and its bins tell, and what nodes and central refuse."""

import json
import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from boosted import SMALL, edges_of, ensemble, exported, features, rows_of_leaves, splits
from helpers import OPEN, table, train
from vantage6.algorithm.tools.exceptions import CollectResultsError

import v6_gbdt
from v6_federated.base.errors import SafeError
from v6_federated.base.vantage6_api import PrivacyThresholdViolation
from v6_federated.messages import codec
from v6_federated.rules.policy import Policy
from v6_gbdt import bins
from v6_gbdt.trees import Trees
from v6_workbench.simulation.call_outcomes import CallOutcome
from v6_workbench.simulation.mock import MockNetwork


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


@pytest.mark.parametrize(("least", "classes"), [(10, 2), (10, 3), (40, 2)])
def test_no_leaf_has_fewer_rows_than_the_operators_minimum(least, classes):
    nodes = {k: table(200, d=6, classes=classes, seed=k) for k in (1, 2, 3)}
    result = train("v6_gbdt", nodes, rounds=6, mode="cyclic", lr=0.3, lambda_l2=0, min_rows_leaf=least, holdout=0)
    model, w = ensemble(result)
    found = [
        min(rows_of_leaves(tree, features(nodes[i // model.columns % 3 + 1]))) for i, tree in enumerate(model.split(w))
    ]
    assert least <= min(found) < least + 10, "splits come close to the limit"


def test_requests_with_other_minima_count_the_same(monkeypatch):
    """Many of them would tell the counts in between."""
    monkeypatch.setenv("V6_FEDERATED_PROFILE", "trusting")
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
        return codec.decode(answer["arrays"])["counts"]

    usual = count(None)
    assert set(usual) <= {*range(0, 91, 10)} and len(set(usual)) > 5
    for minimum_rows in range(10, 60):
        np.testing.assert_array_equal(count(minimum_rows), usual)


def test_leaves_of_few_rows_are_refused(hospitals):
    with pytest.raises(CollectResultsError, match="min_rows_leaf=9 is below the 10 rows"):
        train("v6_gbdt", hospitals, rounds=1, mode="cyclic", min_rows_leaf=9)
    with pytest.raises(CollectResultsError, match="min_rows_leaf=10 is below the 12 rows"):
        train("v6_gbdt", hospitals, rounds=1, minimum_rows=12, **SMALL)
    Policy.of("trusting", minimum_rows=10).check_leaf(10, None)
    with pytest.raises(PrivacyThresholdViolation):
        Policy.of("trusting", minimum_rows=10).check_leaf(5, 1)


def test_leaves_hold_the_rows_asked_for(hospitals):
    rows = hospitals[5]
    result = train("v6_gbdt", {1: rows}, rounds=1, mode="cyclic", holdout=0, min_rows_leaf=13, max_leaves=31)
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
        ([[1, 1.4, 1]] * 4 + [[-1, 2, 0]] * 5, r"sent trees of shape \(9, 3\); expected \(1 to 7, 3\)"),
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
