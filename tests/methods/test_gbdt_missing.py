"""Boosted trees with missing values, as LightGBM takes them."""

import numpy as np
import pandas as pd
import pytest
from boosted import SHARED, SMALL, by_lightgbm, edges_of, ensemble, exported, features, rows_of_leaves, splits
from helpers import table, train

from v6_federated.base.errors import SafeError
from v6_federated.base.vantage6_api import CollectResultsError
from v6_federated.data.source import Source
from v6_gbdt.grower import Grower
from v6_gbdt.growth import Growth
from v6_gbdt.trees import EVERY, GAIN, Trees
from v6_workbench.reporting import prediction


def with_gaps(n=300, seed=1, share=0.3):
    """Rows of which some lack values; that x0 is missing says something about the label."""
    rows = table(n, d=4, classes=2, seed=seed)
    gone = np.random.default_rng(seed).random((n, 2)) < share
    rows.loc[gone[:, 0], "x0"] = np.nan
    rows.loc[gone[:, 1], "x1"] = np.nan
    rows.loc[gone[:, 0], "label"] = 1
    return rows


def test_one_node_equals_lightgbm_on_the_same_rows_and_bins(tmp_path):
    rows, rounds = with_gaps(2000), 8
    open_ = {"V6_FEDERATED_MINIMUM_ROWS": "1"}
    result = train("v6_gbdt", {1: rows}, rounds=rounds, holdout=0, environment=open_, **SHARED)
    model, w = ensemble(result)
    X, y = features(rows), rows["label"].to_numpy()
    indices = np.column_stack([np.searchsorted(e, x) for e, x in zip(edges_of(result), X.T, strict=True)])
    indices = np.where(np.isnan(X), np.nan, indices.astype(float))
    central = by_lightgbm(indices, y, rounds, objective="binary", boost_from_average=False)
    np.testing.assert_allclose(model.scores(w, X)[:, 0], central.predict(indices, raw_score=True), atol=1e-6)
    mine = exported(result, tmp_path)
    np.testing.assert_allclose(mine.predict(X), central.predict(indices), atol=1e-6)
    for a, b in zip(mine.dump_model()["tree_info"], central.dump_model()["tree_info"], strict=True):
        assert [s for s, _ in splits(a)] == [s for s, _ in splits(b)]
    assert (w[:, 1] == EVERY).any() or np.signbit(w[:, GAIN]).any(), "missing values had a say"


def test_no_leaf_has_few_rows_even_if_few_values_are_missing():
    """A split of 4 rows without a value from all others would single them out."""
    rows = table(200, d=2, classes=2)
    rows.loc[:3, "x0"] = np.nan
    rows["label"] = rows["x0"].isna().astype(int) | (np.arange(200) % 2)
    result = train("v6_gbdt", {1: rows}, rounds=5, mode="cyclic", holdout=0, min_rows_leaf=10)
    model, w = ensemble(result)
    X = features(rows)
    assert min(n for tree in model.split(w) for n in rows_of_leaves(tree, X)) >= 10


def test_hospitals_with_and_without_values_train_together_and_predict():
    nodes = {k: with_gaps(seed=k) for k in (1, 2, 3)}
    nodes[3]["x0"] = np.nan  # never measured there
    nodes[2]["x1"] = nodes[2]["x1"].fillna(0.0)
    result = train("v6_gbdt", nodes, rounds=9, mode="cyclic", min_rows_leaf=10)
    assert result["data"]["missing"] and result["final"]["accuracy"] > 0.7
    new = pd.DataFrame({"x0": [np.nan, 1.0], "x1": [np.nan, np.nan], "x2": [0.5, np.nan], "x3": [0.1, 0.2]})
    found, _ = prediction.predict(result, Source(table=new))
    assert found["probability=1"].between(0, 1).all()


def test_other_methods_still_refuse_missing_values():
    with pytest.raises((SafeError, CollectResultsError), match="missing values in the column"):
        train("v6_fedavg", {k: with_gaps(seed=k) for k in (1, 2, 3)}, rounds=1)


def test_where_nothing_was_missing_missing_values_go_with_most_rows():
    rows = table(100, d=1, classes=2)
    model, w = ensemble(train("v6_gbdt", {1: rows}, rounds=1, holdout=0, **{**SMALL, "max_leaves": 2}))
    x, (_, t, gain) = features(rows)[:, 0], w[0]
    side = w[2 if np.signbit(gain) else 1, 1]
    assert ((x <= t).sum() * 2 >= len(x)) != np.signbit(gain)
    assert model.scores(w, np.array([[np.nan]], np.float32))[0, 0] == pytest.approx(side)


@pytest.mark.parametrize(("few", "chosen"), [(9, "left"), (10, "right")])
def test_the_way_of_few_rows_is_that_of_most_others(few, chosen):
    """The labels of rows without a value are those of the right side; of fewer than 10 rows, the way would tell it."""
    x = np.array([0.0] * 30 + [1.0] * 20 + [np.nan] * few, np.float32)
    g = np.where(x == 0, 1.0, -1.0)[:, None]
    growth = Growth(min_rows_leaf=10, max_leaves=2, lambda_l2=0.0, lr=1.0)
    tree = Grower(x[:, None], [np.array([0.5, 0.7])], growth, 10).grow(g, np.ones_like(g))
    assert np.signbit(tree[0, GAIN]) == (chosen == "right")
    expected = [(few - 30) / (few + 30), 1] if few < 10 else [-1, 1]
    assert tree[1:, 1] == pytest.approx(expected), "outputs are those of the rows that are there"


def test_the_sign_of_a_gain_is_no_importance():
    w = np.array([[0, 0.5, -2.0], [-1, 1, 0], [-1, -1, 0]], np.float32)
    assert Trees(1, 2).importance(w)[1].tolist() == [2.0] and "decision_type=8\n" in Trees(1, 2).text(w)
