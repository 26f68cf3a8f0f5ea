"""Tasks that a malicious researcher could write."""

import itertools
from types import SimpleNamespace

import pytest
from helpers import crafted, train
from vantage6.algorithm.tools.exceptions import (
    CollectResultsError,
)

from v6_federated.node import node


def test_a_regression_is_of_models_that_predict_numbers(hospitals):
    """Else no limit on labels would hold: a hinge loss has a threshold, that of a class between two identifiers."""
    data = {"classes": None, "holdout": 0.0, "preprocess": [], "regression": True}
    for model in ("svm", "logreg", "fnn"):
        job = {"model": {"name": model, "features": 4, "classes": 1}, "data": data}
        status, log = crafted(hospitals, "client_update", job)
        assert status == "crashed" and f"the model {model} predicts classes" in log


def test_a_crafted_task_cannot_loosen_a_limit(hospitals):
    assert crafted(hospitals) == ("completed", "")
    for request, says in [
        ({"round": 6}, "6 rounds are more than the 5"),
        ({"round": 6, "job": {"rounds": None}}, "6 rounds are more than the 5"),
        ({"round": -1}, "not a whole number from 0"),
        ({"round": True}, "not a whole number from 0"),
        ({"job": {"participants": [3]}}, "at least 3 must"),
        ({"job": {"participants": [3, 3, 3]}}, "does not list who takes part"),
        ({"job": {"participants": [5, 8, 9]}}, "does not list who takes part"),
        ({"job": {"participants": "358"}}, "does not list who takes part"),
        ({"job": {"minimum_rows": 1}}, "a request can only raise it"),
        ({"lr_decay_step": 1e30, "batch_size": 1}, "lr_decay_step=1e+30 is refused"),
        ({"batch_size": 0}, "batch_size=0 is refused"),
        ({"epochs": "many"}, "epochs='many' is refused"),
        ({"job": {"key": "*"}}, "no proper key"),
        ({"job": {"method": "../x"}}, "no proper key or method"),
        ({"rows": "all"}, "unknown setting 'rows'"),
        # rates that would grow before the first round
        ({"round": 0, "lr_decay_step": 1 - 1e-9, "batch_size": 1}, "round 0 is none of training"),
        ({"lr": 1.0, "proximal_mu": 1.0, "batch_size": 1}, "expected a product up to 0.5"),
        ({"job": {"rounds": 1.5}}, "not described as central does"),
        ({"job": {"minimum_rows": "10"}}, "not described as central does"),
        ({"job": {"data": {"classes": [0, 1], "holdout": -1.0}}}, "not described as central does"),
        ({"job": {"data": {"classes": [0, 1], "features": "x0"}}}, "not described as central does"),
        ({"job": {"data": {"classes": [0, 1], "preprocess": {}}}}, "not described as central does"),
        # else no limit on labels would hold: a class of its own for each patient
        ({"job": {"data": {"classes": [0, 1], "regression": True}}}, "classes for labels that are none"),
        ({"job": {"data": {"classes": [0, 1], "supervised": False}}}, "classes for labels that are none"),
        ({"job": {"data": {"classes": [0, 0]}}}, "or one twice"),
        ({"job": {"model": {"name": "logreg", "features": 4, "classes": 9}}}, "other classes than the job names"),
        ({"job": {"data": {"classes": None}}}, "other classes than the job names"),
        ({"job": {"data": {"classes": None, "regression": True}}}, "other classes than the job names"),
        ({"job": {"data": {"classes": None, "supervised": False}}}, "other classes than the job names"),
    ]:
        status, log = crafted(hospitals, **request)
        assert status == "crashed" and says in log, (request, log)


@pytest.mark.parametrize(
    ("package", "settings"),
    [
        ("v6_fedavg", {"epochs": 20}),
        ("v6_loadaboost", {"epochs": 40}),
        ("v6_fsvrg", {}),
        ("v6_fsvrg", {"model": "fnn:hidden=3"}),
        ("v6_gbdt", {"trees": 20, "min_rows_leaf": 10}),
    ],
)
def test_a_task_that_takes_too_long_is_ended(package, settings, hospitals, monkeypatch):
    """Between two minibatches, rows or trees, at the node whose operator says so."""
    clock = itertools.count(0, 5)
    monkeypatch.setattr(node, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    nodes, limit = {k: hospitals[k] for k in (5, 3, 8)}, {3: {"V6_FEDERATED_MAXIMUM_SECONDS": "60"}}
    asked = {"rounds": 1, "min_responses": 0.5, **settings}
    with pytest.raises(CollectResultsError, match=r"longer than 60 s \(V6_FEDERATED_MAXIMUM_SECONDS\)"):
        train(package, nodes, environments=limit, **{**asked, "min_responses": 1.0})
    train(package, nodes, environments={3: {"V6_FEDERATED_MAXIMUM_SECONDS": "6000"}}, **asked)
