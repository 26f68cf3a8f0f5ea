"""Weights of classes: in the loss of every model, learned or given, and refused where a few rows would be all."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers import pooled, refused, table, train
from sklearn.linear_model import LogisticRegression
from sklearn.utils.class_weight import compute_class_weight

from v6_federated import models
from v6_federated.base.errors import SafeError
from v6_federated.messages import codec
from v6_federated.noise.clipping import clipped_sum

NAMES = ["logreg", "svm", "fnn:hidden=4", "cnn_garst"]
TEN_TIMES = {"rounds": 1500, "lr": 0.5, "until_converged": 1e-5, "server_momentum": 0.9}


def rare(n, seed):
    """A table in which a seventh of the rows are of class 1."""
    frame = table(7 * n, seed=seed)
    ones = frame[frame.iloc[:, -1] == 1].head(n)
    return (
        frame[frame.iloc[:, -1] == 0]
        .head(2 * n)
        .pipe(lambda zeros: type(frame)(np.vstack([zeros, ones])))
        .set_axis(frame.columns, axis=1)
        .astype(frame.dtypes)
    )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("classes", [2, 3])
def test_a_gradient_is_that_of_repeated_rows(name, classes):
    """A weight of 3 is that row three times, in the mean over the rows that there are."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20, 16)).astype(np.float32), rng.integers(0, classes, 20)
    spec = {**models.parse(name), "features": 16, "classes": classes}
    plain, weighted = models.build(spec), models.build({**spec, "weights": [3, *[1] * (classes - 1)]})
    w = plain.init(rng) + np.float32(0.1)
    many = np.concatenate([np.flatnonzero(y == 0)] * 2 + [np.arange(20)])
    loss, g = plain.loss_and_gradient(plain.asarray(w), plain.asarray(X[many]), plain.asarray(y[many]))
    expected = len(many) / 20 * np.array(g)
    own_loss, own = weighted.loss_and_gradient(weighted.asarray(w), weighted.asarray(X), weighted.asarray(y))
    assert np.allclose(own, expected, atol=1e-5) and own_loss == pytest.approx(len(many) / 20 * loss, rel=1e-5)
    clipped = clipped_sum(weighted, weighted.asarray(w), weighted.asarray(X), weighted.asarray(y), 1e6, 2**20)
    assert np.allclose(clipped * (1e6 / 2**20) / 20, expected, atol=2.0)
    scores = plain.scores(w, X)
    assert weighted.loss(scores, y) == plain.loss(scores, y), "an evaluation is without weights"


@pytest.mark.parametrize("weights", ["balanced", {"0": 1, "1": 4.5}, {"1": 3}])
@pytest.mark.parametrize("aggregation", ["plain", "masked"])
def test_federated_equals_weighted_training_of_pooled_rows(weights, aggregation):
    nodes = {k: rare(20, k) for k in (1, 2, 3)}
    settings = {"model": "logreg:l2=0.1", "holdout": 0, "aggregation": aggregation, **TEN_TIMES}
    result = train("v6_fedavg", nodes, class_weights=weights, **settings)
    X, y = pooled(nodes).iloc[:, :-1].to_numpy(), pooled(nodes).iloc[:, -1].to_numpy()
    by_class = weights if weights == "balanced" else {int(c): w for c, w in weights.items()}
    right = LogisticRegression(C=1 / (0.1 * len(y)), class_weight=by_class, tol=1e-12).fit(X, y)
    w = codec.decode(result["weights"])["weights"]
    assert np.allclose(w, [*right.coef_[0], *right.intercept_], atol=2e-5)
    if weights == "balanced":
        expected = compute_class_weight("balanced", classes=np.unique(y), y=y)
        assert np.allclose(result["model"]["weights"], expected, rtol=1e-12)


def test_trees_take_weights_as_lightgbm_does():
    """Its ``weight`` of a row multiplies both derivatives."""
    lightgbm = pytest.importorskip("lightgbm")
    rows = rare(60, 5)
    settings = {"mode": "cyclic", "rounds": 1, "holdout": 0, "lambda_l2": 0.0}
    settings |= {"min_rows_leaf": 10, "lr": 1.0, "max_leaves": 2}
    result = train("v6_gbdt", {1: rows}, class_weights={"1": 2}, **settings)
    X, y = rows.iloc[:, :-1].to_numpy(), rows.iloc[:, -1].to_numpy()
    own = models.build({**result["model"], "name": "trees"}).scores(codec.decode(result["weights"])["weights"], X)
    data = lightgbm.Dataset(X, y, weight=np.where(y == 1, 2.0, 1.0))
    options = {"objective": "binary", "num_leaves": 2, "min_data_in_leaf": 10, "learning_rate": 1.0, "lambda_l2": 0.0}
    booster = lightgbm.train({**options, "boost_from_average": False, "verbosity": -1}, data, 1)
    assert np.corrcoef(own[:, 0], booster.predict(X, raw_score=True))[0, 1] > 0.9
    unweighted = train("v6_gbdt", {1: rows}, **settings)
    assert unweighted["weights"] != result["weights"]


@pytest.mark.parametrize("method", ["scaffold", "fsvrg", "colearning", "coop", "loadaboost", "dynavg"])
def test_every_method_trains_with_weights(method):
    nodes = {k: rare(20, k) for k in (1, 2, 3)}
    found = [train(f"v6_{method}", nodes, rounds=2, class_weights=w)["weights"] for w in (None, {"1": 5})]
    assert found[0] != found[1]


def test_wrong_weights_are_refused_in_one_line():
    nodes = {k: rare(20, k) for k in (1, 2, 3)}
    with pytest.raises(SafeError, match="class_weights names 7; expected some of 0, 1"):
        train("v6_fedavg", nodes, rounds=2, class_weights={"7": 1})
    refused("weights must be numbers above 0", nodes, class_weights={"0": 0})
    refused("it must be balanced, or weights by class", nodes, class_weights="heavy")
    refused("class_weights=balanced cannot be used with clip", nodes, class_weights="balanced", clip=1.0, epsilon=1.0)
    refused(
        "objective=regression cannot be used with class_weights",
        nodes,
        "v6_gbdt",
        class_weights="balanced",
        objective="regression",
    )
    with pytest.raises(SafeError, match="follows from the data"):
        models.parse("logreg:weights=3")
    with pytest.raises(SafeError, match="a weight above 0"):
        models.build({"name": "logreg", "features": 2, "classes": 2, "weights": [1]})


@pytest.mark.parametrize("options", [[], ["-O"]])
def test_no_limit_is_an_assertion(options):
    """``python -O`` leaves out all of those."""
    job = """
from test_class_weights import rare
from v6_workbench.simulation.mock import MockNetwork
nodes = {k: rare(30, k) for k in (1, 2, 3)}
careful = {"V6_FEDERATED_PROFILE": "careful", "V6_FEDERATED_AGGREGATION": "plain"}
with MockNetwork("v6_fedavg", nodes, environment=careful, on_round=lambda row: None) as network:
    network.run(rounds=1, holdout=0, classes=[0, 1], batch_size=10, class_weights={"1": 20})
"""
    folders = [*map(str, Path(__file__).parents[:2]), *sys.path]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
    ended = subprocess.run([sys.executable, *options, "-c", job], env=environment, capture_output=True, text=True)
    assert "10 rows of this node count as fewer than 10" in ended.stderr, ended.stderr


def test_weights_that_leave_few_rows_are_refused():
    """A gradient of class 1 alone would be one about its five rows."""
    rows = {k: rare(20, k) for k in (1, 2, 3)}
    rows[2] = rows[2].head(45)  # five rows of class 1
    said = refused("count as fewer than 10", rows, class_weights={"1": 1e6})
    assert "organization 2" in said and "organization 1:" not in said
    train("v6_fedavg", rows, rounds=1, holdout=0, class_weights="balanced")
