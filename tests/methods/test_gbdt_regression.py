"""Boosted trees that predict a number."""

import json

import numpy as np
import pandas as pd
import pytest
from boosted import SHARED, SMALL, by_lightgbm, edges_of, ensemble, exported, features, numbers
from helpers import OPEN, spoilt, train
from vantage6.algorithm.tools.exceptions import CollectResultsError, UserInputError

from v6_federated.data import source
from v6_workbench.reporting import prediction
from v6_workbench.simulation.mock import MockNetwork


def test_regression_of_one_node_equals_lightgbm(tmp_path):
    """LightGBM's own objective, which starts from the labels' mean too, on the indices of the same bins."""
    rows = numbers(300)
    settings = {**SHARED, "objective": "regression", "min_rows_leaf": 15}
    result = train("v6_gbdt", {1: rows}, rounds=8, holdout=0, **settings)
    model, w = ensemble(result)
    X, y = features(rows), rows["pressure"].to_numpy()
    indices = np.column_stack([np.searchsorted(e, x) for e, x in zip(edges_of(result), X.T, strict=True)])
    central = by_lightgbm(indices, y, 8, objective="regression", min_data_in_leaf=15)
    theirs = central.predict(indices.astype(float))
    np.testing.assert_allclose(model.predict(w, X), theirs, rtol=1e-6)
    np.testing.assert_allclose(exported(result, tmp_path).predict(X), theirs, rtol=1e-6)
    predicted, measured = prediction.predict(result, source.Source(table=rows))
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
        mode="cyclic",
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


def test_a_result_of_another_objective_is_not_resumed():
    nodes = {k: numbers(60, seed=k) for k in (3, 5, 8)}
    half = train("v6_gbdt", nodes, rounds=2, objective="regression", **SMALL)
    with pytest.raises(UserInputError, match="resume: the earlier job predicts"):
        train("v6_gbdt", nodes, rounds=4, resume=json.loads(json.dumps(half)), **SMALL)


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
            "above 1e.12; expected numbers, large ones in another unit",
        ),
        (lambda t: t.assign(pressure=np.nan), {}, CollectResultsError, "missing values in the label column pressure"),
        (lambda t: t, {"classes": [0, 1]}, UserInputError, "objective=regression cannot be used with classes"),
        (lambda t: t, {"target": 0.9}, UserInputError, "objective=regression cannot be used with target"),
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
    assert any("sent a malformed evaluation" in reason for reason in [*reasons, result.get("stopped", "")])
