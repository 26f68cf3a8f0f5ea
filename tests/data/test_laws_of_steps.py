"""What holds for all steps."""

import importlib

import numpy as np
from helpers import ALL_STEPS, OPEN, fitted, pooled, train

from v6_federated.base.vantage6_api import mock_client
from v6_federated.data import source
from v6_federated.messages import codec


def test_several_nodes_fit_what_one_node_with_all_rows_fits(clinics):
    steps = ["impute", "impute:most_frequent", "onehot", "standardize"]
    one, many = (fitted(nodes, *steps) for nodes in ({1: pooled(clinics)}, clinics))
    assert one[1:3] == many[1:3]
    np.testing.assert_allclose(list(one[0]["values"].values()), list(many[0]["values"].values()), rtol=1e-12)
    for name in ("mean", "scale"):
        np.testing.assert_allclose(codec.decode(one[3])[name], codec.decode(many[3])[name], rtol=1e-5, atol=1e-6)


def test_steps_have_the_same_bits_on_every_network(clinics, monkeypatch, tmp_path):
    settings = {"rounds": 2, "preprocess": ALL_STEPS, "seed": 3}
    one, two = (train("v6_fedavg", clinics, processes=p, **settings) for p in (1, 2))
    turned = train("v6_fedavg", {k: clinics[k] for k in (3, 1, 2)}, **settings)
    for name, value in {**OPEN, "TEMPORARY_FOLDER": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    client = mock_client("v6_fedavg", clinics)
    theirs = importlib.import_module("v6_fedavg").central(mock_client=client, **settings)
    for other in (two, turned, theirs):
        assert other["weights"] == one["weights"] and other["data"] == one["data"]


def test_steps_are_fitted_to_training_rows_only(clinics):
    """Changing the rows that are held out changes no fitted number."""
    spoiled = {}
    for k, rows in clinics.items():
        _, held = source.split(len(rows), 0.2, k)
        spoiled[k] = rows.copy()
        spoiled[k].loc[held, ["x0", "x2"]] = 1000.0
    settings = {"rounds": 1, "preprocess": ALL_STEPS}
    good, bad = (train("v6_fedavg", nodes, **settings)["data"] for nodes in (clinics, spoiled))
    assert good == bad


def test_half_precision_does_not_change_fitted_steps(clinics):
    full, half = (
        train("v6_fedavg", clinics, rounds=1, preprocess=ALL_STEPS, precision=p) for p in ("float32", "float16")
    )
    assert full["data"] == half["data"]


def test_evaluators_apply_what_others_fitted(clinics):
    result = train(
        "v6_fedavg", clinics, rounds=2, organizations=[1, 2], evaluators=[3], holdout=0, preprocess=ALL_STEPS
    )
    assert result["final"]["evaluated"] == 70
