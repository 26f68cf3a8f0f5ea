"""Boosted trees: LightGBM's text, and how much each feature splits."""

import json

import numpy as np
import pandas as pd
import pytest
from boosted import SMALL, ensemble, exported, features
from helpers import train

from v6_federated.base.errors import SafeError
from v6_federated.data import source
from v6_workbench.reporting import export, prediction


def test_feature_importance_names_what_splits():
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(rng.normal(size=(200, 3)), columns=["noise", "blood pressure", "age"])
    rows["ill"] = (rows["blood pressure"] + 0.3 * rows["age"] > 0).astype(int)
    result = train("v6_gbdt", {1: rows[:100], 2: rows[100:]}, rounds=10, **SMALL)
    assert result["feature_importance"][0]["feature"] == "blood pressure"
    assert sum(row["splits"] for row in result["feature_importance"]) == (ensemble(result)[1][:, 0] >= 0).sum()


def test_feature_importance_names_features_after_preprocessing(hospitals):
    nodes = {k: rows.assign(x0=np.where(rows["x0"] > 0, "high", "low")) for k, rows in hospitals.items()}
    half = train("v6_gbdt", nodes, rounds=3, preprocess=["onehot"], **SMALL)
    result = train("v6_gbdt", nodes, rounds=6, resume=json.loads(json.dumps(half)), **SMALL)
    names = {row["feature"] for row in result["feature_importance"]}
    assert names <= {"x0=high", "x0=low", "x1", "x2", "x3"} and names & {"x0=high", "x0=low"}
    predicted, measured = prediction.predict(result, source.Source(table=nodes[3]))
    assert measured["accuracy"] > 0.6 and list(predicted) == ["prediction", "score", "probability=0", "probability=1"]


def test_the_exported_text_compares_as_nodes_do(tmp_path):
    """LightGBM compares float64 values, nodes float32: dates as numbers lie on thresholds."""
    rng = np.random.default_rng(0)
    days = 20200000 + rng.integers(100, 1200, 300)
    nodes = {
        k: pd.DataFrame({"day": days + k, "label": (days + rng.integers(-90, 90, 300) > 20200600).astype(int)})
        for k in (1, 2, 3)
    }
    result = train("v6_gbdt", nodes, rounds=6, holdout=0)
    model, w = ensemble(result)
    X = np.concatenate([rows[["day"]].to_numpy() for rows in nodes.values()])
    assert (X.astype(np.float32) != X).any() and (w[:, 0] >= 0).any()
    theirs = exported(result, tmp_path).predict(X.astype(np.float64), raw_score=True)
    np.testing.assert_allclose(model.scores(w, X.astype(np.float32))[:, 0], theirs, atol=1e-12)


def test_export_is_lightgbms_text(hospitals, tmp_path):
    pytest.importorskip("torch")  # for .pt
    rows = {k: v.rename(columns={"x0": "blood pressure [mmHg]", "x1": "x 1"}) for k, v in hospitals.items()}
    result = train("v6_gbdt", rows, rounds=6, **SMALL)
    booster, (model, w) = exported(result, tmp_path), ensemble(result)
    assert booster.feature_name() == ["blood_pressure__mmHg_", "x_1", "x2", "x3"]
    X = features(rows[3])
    p = booster.predict(X)
    np.testing.assert_allclose(p, 1 / (1 + np.exp(-model.scores(w, X)[:, 0])), atol=1e-12)
    np.testing.assert_array_equal(p > 0.5, model.predict(w, X))
    for ending in (".npz", ".safetensors", ".pt"):
        export.save(result, tmp_path / f"model{ending}")
        again, measured = prediction.predict(export.load(tmp_path / f"model{ending}"), source.Source(table=rows[3]))
        np.testing.assert_array_equal(again["score"], model.scores(w, X)[:, 0])
        assert measured["accuracy"] > 0.6


def test_export_refuses_what_the_text_cannot_hold(hospitals, tmp_path):
    scaled = train("v6_gbdt", hospitals, rounds=1, preprocess=["standardize"], **SMALL)
    with pytest.raises(SafeError, match="cannot hold preprocessing; expected .npz"):
        export.save(scaled, tmp_path / "model.txt")
    linear = train("v6_fedavg", hospitals, rounds=1)
    with pytest.raises(SafeError, match="a logreg model cannot be a .txt; expected .npz"):
        export.save(linear, tmp_path / "model.txt")
