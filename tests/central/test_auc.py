"""The AUC of a result against the AUC of the same rows' scores."""

import numpy as np
import pandas as pd
import pytest
from helpers import table, train
from sklearn.metrics import roc_auc_score

from v6_federated.data import source
from v6_workbench.reporting import prediction
from v6_workbench.simulation.mock import MockNetwork


@pytest.mark.parametrize("method", ["fedavg", "scaffold", "gbdt"])
@pytest.mark.parametrize("rounds", [1, 3])
def test_the_auc_of_a_result_is_that_of_its_scores(method, rounds):
    """Also of a rare class, of which a model that has just begun knows nothing yet."""
    nodes = {}
    for k in (1, 2, 3):
        rows = table(400, seed=k)
        nodes[k] = rows.assign(label=(np.random.default_rng(k).random(400) < 0.02 + 0.08 * rows["label"]).astype(int))
    with MockNetwork(f"v6_{method}", nodes, on_round=lambda row: None) as network:
        result = network.run(rounds=rounds, preprocess=["standardize"])
    held = [source.split(400, 0.2, k)[1] for k in nodes]
    test = pd.concat([nodes[k].iloc[i] for k, i in zip(nodes, held, strict=True)])
    told, _ = prediction.predict(result, source.Source(table=test))
    assert result["final"]["auc"] == pytest.approx(roc_auc_score(test["label"], told["score"]), abs=0.01)
    assert result["history"][-1]["auc"] == result["final"]["auc"]


@pytest.mark.parametrize("lr", [0.02, 0.05])
def test_the_auc_after_rounds_without_change(lr):
    """Dynamic averaging whose nodes stay silent until the last round, after which scores lie elsewhere."""
    nodes = {k: table(400, seed=k) for k in (1, 2, 3, 4)}
    result = train("v6_dynavg", nodes, rounds=6, lr=lr)
    assert [row["uploads"] for row in result["history"]] == [0] * 5 + [4]
    test = pd.concat([nodes[k].iloc[source.split(400, 0.2, k)[1]] for k in nodes])
    told, _ = prediction.predict(result, source.Source(table=test))
    assert result["final"]["auc"] == pytest.approx(roc_auc_score(test["label"], told["score"]), abs=0.01)
