"""Cross-validation: how folds are dealt, and experiments on one fold."""

import numpy as np
import pandas as pd
import pytest
from helpers import table

from v6_federated.base.errors import SafeError
from v6_workbench.simulation import datasets, dealing
from v6_workbench.simulation.datasets import Dataset
from v6_workbench.simulation.experiments import Experiment


def numbered(n, classes=10):
    """Rows that can be told apart, each class equally often."""
    y = np.arange(n) % classes
    return Dataset("numbered", (np.column_stack([np.arange(n), y]).astype(float), y))


def test_every_row_is_tested_once_and_never_trained_on_then():
    data, tested = numbered(1003), []
    for fold in range(5):
        training, (X, _) = dealing.deal_fold(data, "iid", 4, 3, None, fold, 5)
        rows = np.concatenate([X_k[:, 0] for X_k, _ in training.values()])
        assert len(rows) == 800 and len(X) == 200 and not set(rows) & set(X[:, 0])
        assert {len(X_k) for X_k, _ in training.values()} == {200}
        tested += X[:, 0].tolist()
    assert len(set(tested)) == 1000, "three rows are left out, so that the folds are equal"


def test_shards_are_at_the_same_positions_of_every_fold():
    """Nilsson et al. 2018, section 4.2: most nodes have two labels, though they have shards of every fold.

    Folds hold each label equally often, so shards at one position hold the same labels in every fold.
    """
    y = np.repeat(np.arange(10), 700)
    data = Dataset("labels", (np.zeros((len(y), 1)), y))
    training, (_, y_test) = dealing.deal_fold(data, "shards", 100, 1, None, 2, 5)
    labels = [len(np.unique(y_k)) for _, y_k in training.values()]
    assert [len(y_k) for _, y_k in training.values()] == [56] * 100 and len(y_test) == 1400
    assert np.mean(np.array(labels) <= 3) > 0.8
    other, _ = dealing.deal_fold(data, "shards", 100, 1, None, 3, 5)
    assert np.mean([set(a[1]) == set(b[1]) for a, b in zip(training.values(), other.values(), strict=True)]) > 0.5


def test_folds_include_the_test_set_and_keep_hospitals_apart():
    data = Dataset("two", numbered(80).rows, numbered(20).rows)
    training, test = dealing.deal_fold(data, "iid", 2, 0, None, 0, 5)
    assert sum(len(y) for _, y in training.values()) == 80 and len(test[1]) == 20
    rows = table(90).assign(hospital=np.repeat(["a", "b", "c"], 30))
    rows = rows[["hospital", *[c for c in rows if c != "hospital"]]]
    training, test = dealing.deal_fold(Dataset("t", rows), "column:hospital", None, 0, None, 1, 3)
    assert list(training) == ["a", "b", "c"] and "hospital" not in test.columns
    for name, own in training.items():
        assert set(own["x0"]) <= set(rows.loc[rows["hospital"] == name, "x0"])
    assert len(pd.concat([*training.values(), test])) == 90


def test_more_folds_than_rows_are_refused():
    with pytest.raises(SafeError, match="4 rows are too few for 5 folds; use --folds 4 or fewer"):
        dealing.deal_fold(numbered(4), "iid", 2, 0, None, 0, 5)


def test_an_experiment_on_a_fold():
    """Trained on the other folds, evaluated on the fold's rows; centralized on the same."""
    one = Experiment(datasets.load("wine"), 2, fold=(1, 4))
    values = {"rounds": 3, "lr": 0.1, "preprocess": ["standardize"]}
    federated, centralized = one.federated("fedavg", values), one.centralized("fedavg", values)
    assert federated["final"]["evaluated"] == centralized["final"]["evaluated"] == 178 // 4
    assert federated["history"][0]["n"] == centralized["history"][0]["n"] == 3 * (178 // 4)
    assert federated["final"]["accuracy"] == centralized["final"]["accuracy"], "one pass over all rows: the same model"
    other = Experiment(datasets.load("wine"), 2, fold=(0, 4)).federated("fedavg", values)
    assert other["weights"] != federated["weights"]
