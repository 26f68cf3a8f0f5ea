"""Accuracy and AUC of predictions for rows with labels, against scikit-learn and SciPy."""

import numpy as np
import pandas as pd
import pytest
from helpers import train
from sklearn.metrics import roc_auc_score

from v6_federated.data.source import Source
from v6_workbench.reporting import intervals, prediction


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3)).round(1)  # with ties
    table = pd.DataFrame(X, columns=list("abc")).assign(ill=(X[:, 0] + rng.normal(size=200) > 0).astype(int))
    return train("v6_fedavg", {1: table[:100], 2: table[100:]}, rounds=5, lr=0.5), table


def test_auc_and_interval_are_exact(model):
    result, table = model
    scores, found = prediction.predict(result, Source(table=table))
    assert found["auc"] == pytest.approx(roc_auc_score(table["ill"], scores["score"]), abs=1e-12)
    assert found["accuracy_interval"] == intervals.wilson(found["accuracy"], 200)
    # DeLong, Delong and Clarke-Pearson 1988 by hand: placements of each row among those of the other class
    one, zero = (scores["score"][table["ill"] == c].to_numpy() for c in (1, 0))
    wins = (one[:, None] > zero) + 0.5 * (one[:, None] == zero)
    variance = wins.mean(axis=1).var(ddof=1) / len(one) + wins.mean(axis=0).var(ddof=1) / len(zero)
    assert found["auc_interval"] == pytest.approx(intervals.on_logit_scale(wins.mean(), variance))


def test_rows_of_one_class_have_no_auc(model):
    result, table = model
    _, found = prediction.predict(result, Source(table=table[table["ill"] == 1]))
    assert {*found} == {"accuracy", "accuracy_interval"}
