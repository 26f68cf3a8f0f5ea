"""What nodes say of their data before the first round, and what follows."""

import pytest
from helpers import refused, table, train

from v6_federated import SafeError


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
    refused("organizations 3 and 9 hold different features", {**hospitals, 9: table(30, d=5)})


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
