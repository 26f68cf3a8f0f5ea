"""What nodes say of their data before the first round, and what follows."""

import time
from types import SimpleNamespace

import numpy as np
import pytest
from helpers import refused, table, train

from v6_federated import SafeError
from v6_federated.central import preparation


def test_a_model_that_does_not_fit_the_data_is_refused(hospitals):
    pytest.importorskip("torch")
    with pytest.raises(SafeError, match="3 features are not a square image"):
        train("v6_fedavg", hospitals, rounds=1, model="cnn_garst", features=["x0", "x1", "x2"])


def test_all_nodes_evaluate_in_every_round(hospitals):
    result = train("v6_fedavg", hospitals, rounds=4, fraction=0.4)
    assert {row["evaluated"] for row in result["history"]} == {30}
    assert {len(row["participants"]) for row in result["history"]} == {1}
    assert result["traffic"]["evaluation"]["bytes_down"] > 0


def test_nodes_with_different_columns_are_named(hospitals):
    other = {9: table(30, d=5), 11: table(30).drop(columns="x1")}
    said = refused("the nodes hold different features: ", {**hospitals, **other})
    assert "'x1' is missing at organization 11" in said and "'x4' is missing at organizations 3, 5, 8, 11" in said
    assert "Name those that all have in `features`, or leave out the others with `exclude`" in said
    train("v6_fedavg", {**hospitals, **other}, rounds=1, exclude=["x1", "x4"])


def test_a_label_with_too_many_classes_names_the_limit(hospitals):
    rows = {k: table(100, seed=k).assign(label=np.repeat(np.arange(20), 5) + 20 * k) for k in range(1, 7)}
    refused("the label has 120 values; expected at most 100 classes (V6_FEDERATED_MAXIMUM_CLASSES", rows, holdout=0)


def test_an_accuracy_to_reach_needs_rows_to_evaluate_on(hospitals):
    refused("target=0.9 needs holdout or evaluators", hospitals, target=0.9, holdout=0)
    refused("subgroup=x1 needs holdout or evaluators", hospitals, subgroup="x1", holdout=0)


def test_thousands_of_nodes_with_the_same_columns_are_compared_at_once():
    values = {"features": [f"x{i}" for i in range(30)], "label": "y"}
    answers = [SimpleNamespace(organization_id=k, values=values) for k in range(5000)]
    began = time.perf_counter()
    assert preparation._same_features(answers) == values["features"]
    assert time.perf_counter() - began < 5  # milliseconds; if each was compared with all others, a minute


def test_the_order_of_the_columns_in_a_table_changes_nothing(hospitals):
    turned = {k: v[["x2", "x0", "x3", "x1", "label"]] if k == 5 else v for k, v in hospitals.items()}
    assert train("v6_fedavg", turned, rounds=2)["weights"] == train("v6_fedavg", hospitals, rounds=2)["weights"]


def test_all_nodes_have_the_same_label_if_only_the_features_are_named(hospitals):
    """Even a node that only evaluates, and whose table has another last column."""
    *here, last = sorted(hospitals)
    turned = hospitals | {last: hospitals[last][["label", "x2", "x0", "x3", "x1"]]}
    settings = {"rounds": 2, "features": ["x0", "x1"], "organizations": here, "evaluators": [last]}
    assert train("v6_fedavg", turned, **settings)["final"] == train("v6_fedavg", hospitals, **settings)["final"]
    assert train("v6_fedavg", turned, **settings)["data"]["label"] == "label"
