"""Tasks that a malicious researcher could write: a node refuses each for its own reason."""

import itertools
from types import SimpleNamespace

import pytest
from helpers import crafted, refused, train

from v6_federated.node import rows


def test_a_proper_task_is_done(hospitals):
    assert crafted(hospitals) == ("completed", "")


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        ({"round": 6}, "6 rounds are more than the 5"),
        ({"round": 6, "job": {"rounds": None}}, "6 rounds are more than the 5"),
        ({"job": {"rounds": 6}}, "6 rounds are more than the 5"),
        ({"round": -1}, "the round of the task is not a whole number from 0"),
        ({"round": True}, "the round of the task is not a whole number from 0"),
        ({"job": {"participants": [3]}}, "only 1 organization(s) take part, but this node requires 3"),
        ({"job": {"minimum_rows": 1}}, "the request asks for minimum_rows=1, but this node requires 10 rows"),
        (
            {"lr_decay_step": 1e30, "batch_size": 1},
            "lr_decay_step=1e+30 is refused: it should be less than or equal to 1",
        ),
        ({"batch_size": 0}, "batch_size=0 is refused: it should be greater than or equal to 1"),
        ({"epochs": "many"}, "epochs='many' is refused: it should be a valid integer"),
        ({"rows": "all"}, "unknown setting 'rows'"),
        # the rate of a round before the first would have grown
        ({"round": 0, "lr_decay_step": 1 - 1e-9, "batch_size": 1}, "training rounds start at 1; got 0"),
        ({"lr": 1.0, "proximal_mu": 1.0, "batch_size": 1}, "a step of 1 with a penalty of 1 "),
    ],
)
def test_a_task_cannot_loosen_a_limit(hospitals, request_, says):
    status, log = crafted(hospitals, **request_)
    assert status == "crashed" and f"organization 3: {says}" in log, log


@pytest.mark.parametrize(
    ("job", "says"),
    [
        ({"participants": [3, 3, 3]}, "the job does not list who takes part"),
        ({"participants": [5, 8, 9]}, "the job does not list who takes part"),
        ({"participants": "358"}, "the job does not list who takes part"),
        ({"key": "*"}, "the job has no proper key or method"),
        ({"method": "../x"}, "the job has no proper key or method"),
        ({"rounds": 1.5}, "a part of the job has the wrong type"),
        ({"minimum_rows": "10"}, "a part of the job has the wrong type"),
    ],
)
def test_a_malformed_job_is_refused(hospitals, job, says):
    status, log = crafted(hospitals, job=job)
    assert status == "crashed" and f"organization 3: {says}" in log, log


@pytest.mark.parametrize(
    "data",
    [
        {"classes": [0, 1], "holdout": -1.0},
        {"classes": [0, 1], "features": "x0"},
        {"classes": [0, 1], "preprocess": {}},
        {"classes": "01"},
        {"classes": [0, 1], "label": 3},
        {"classes": [0, 1], "supervised": 1},
    ],
)
def test_a_malformed_description_of_the_data_is_refused(hospitals, data):
    status, log = crafted(hospitals, job={"data": data})
    assert status == "crashed" and "organization 3: a part of the job has the wrong type" in log, log


@pytest.mark.parametrize(
    ("job", "says"),
    [
        ({"data": {"classes": [0, 1], "regression": True}}, "class lists are rejected for jobs without classes"),
        ({"data": {"classes": [0, 1], "supervised": False}}, "class lists are rejected for jobs without classes"),
        (
            {"data": {"classes": [0, 0]}},
            "class lists are rejected for jobs without classes",
        ),
        ({"model": {"name": "logreg", "features": 4, "classes": 9}}, "the job's model must have as many classes"),
        ({"data": {"classes": None}}, "the job's model must have as many classes"),
        ({"data": {"classes": None, "regression": True}}, "the job's model must have as many classes"),
        ({"data": {"classes": None, "supervised": False}}, "the job's model must have as many classes"),
    ],
)
def test_classes_that_would_evade_the_limits_on_labels_are_refused(hospitals, job, says):
    """A class of its own for each patient would have parameters of its own."""
    status, log = crafted(hospitals, job=job)
    assert status == "crashed" and f"organization 3: {says}" in log, log


@pytest.mark.parametrize("model", ["svm", "logreg", "fnn"])
def test_a_model_of_classes_takes_no_regression(hospitals, model):
    """No limit on labels would hold: a hinge loss has a threshold, which would part two numbers of identifiers."""
    data = {"classes": None, "holdout": 0.0, "preprocess": [], "regression": True}
    status, log = crafted(hospitals, job={"model": {"name": model, "features": 4, "classes": 1}, "data": data})
    assert status == "crashed" and f"organization 3: the model {model} predicts classes" in log, log


@pytest.mark.parametrize(
    ("package", "settings", "says"),
    [
        ("v6_fedavg", {"epochs": 3}, "3 local steps are more than the 2 that this node allows a request"),
        ("v6_fedavg", {"epochs": 1, "batch_size": 20}, "a batch_size without local_steps may ask for more than the 2"),
        ("v6_fedavg", {"local_steps": 3, "batch_size": 20}, "3 local steps are more than the 2"),
        ("v6_scaffold", {"epochs": 3}, "3 local steps are more than the 2"),
        ("v6_colearning", {"epochs": 3}, "3 local steps are more than the 2"),
        ("v6_fsvrg", {}, "a batch_size without local_steps may ask for more than the 2"),
        ("v6_dynavg", {"protocol": "loss", "epochs": 3}, "3 local steps are more than the 2"),
    ],
)
def test_more_local_steps_than_the_operator_allows_are_refused(package, settings, says, hospitals):
    """The mean of several local steps can tell single hospitals apart; the limit does not depend on a row."""
    nodes = {k: hospitals[k] for k in (5, 3, 8)}
    two = {3: {"V6_FEDERATED_MAXIMUM_LOCAL_STEPS": "2"}}
    settings = {"rounds": 1, **settings}
    refused(f"organization 3: {says}", nodes, package, environments=two, **settings)


@pytest.mark.parametrize(
    ("package", "settings", "says"),
    [
        ("v6_fedavg", {"local_steps": 1, "batch_size": 20}, "local steps on minibatches are more than the 1"),
        ("v6_fsvrg", {}, "a batch_size without local_steps may ask for more than the 1"),
    ],
)
def test_a_step_on_a_minibatch_is_not_one_step_on_all_rows(package, settings, says, hospitals):
    """Nodes with fewer rows than a minibatch take it on all of theirs: as it grows, the sum tells who does."""
    nodes = {k: hospitals[k] for k in (5, 3, 8)}
    one = {3: {"V6_FEDERATED_MAXIMUM_LOCAL_STEPS": "1"}}
    refused(f"organization 3: {says}", nodes, package, environments=one, **{"rounds": 1, **settings})


def test_local_steps_are_counted_as_they_are_taken(hospitals):
    """LoAdaBoost takes up to half as many steps again as its settings ask for."""
    two = {3: {"V6_FEDERATED_MAXIMUM_LOCAL_STEPS": "2"}}
    result = train(
        "v6_loadaboost", hospitals, environments=two, stops=True, epochs=2, retrain="below", rounds=3, cooldown_rounds=0
    )
    assert "organization 3: 3 local steps are more than the 2" in result["stopped"]


def test_local_steps_within_the_limit_are_answered(hospitals):
    one = {3: {"V6_FEDERATED_MAXIMUM_LOCAL_STEPS": "1"}}
    result = train("v6_fedavg", hospitals, environments=one, rounds=2)  # FedSGD
    assert result["weights"] == train("v6_fedavg", hospitals, rounds=2)["weights"]


@pytest.mark.parametrize(
    ("package", "settings"),
    [
        ("v6_fedavg", {"epochs": 20}),
        ("v6_loadaboost", {"epochs": 40}),
        ("v6_fsvrg", {}),
        ("v6_fsvrg", {"model": "fnn:hidden=3"}),
        ("v6_gbdt", {"mode": "cyclic", "trees": 20, "min_rows_leaf": 10}),
    ],
)
def test_a_task_that_takes_too_long_is_ended(package, settings, hospitals, monkeypatch):
    """Between two minibatches, rows or trees, at the node whose operator says so. A look at the clock takes 5 s."""
    clock = itertools.count(0, 5)
    monkeypatch.setattr(rows, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    nodes = {k: hospitals[k] for k in (5, 3, 8)}  # central runs at the first of them
    minute, hours = ({3: {"V6_FEDERATED_MAXIMUM_SECONDS": text}} for text in ("60", "6000"))
    settings = {"rounds": 1, **settings}
    says = "organization 3: the task takes longer than 60 s (V6_FEDERATED_MAXIMUM_SECONDS)"
    refused(says, nodes, package, environments=minute, **settings)
    train(package, nodes, environments=hours, **settings)
