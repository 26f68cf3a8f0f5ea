"""Federated SVRG: rounds by hand, and its fast pass over the rows of a network."""

import numpy as np
import pytest
from by_hand import SEED, arrays, average, check, gradient, order, rows_of
from helpers import train

from v6_federated import models
from v6_fsvrg.perceptron import svrg_pass
from v6_workbench.conformance import MethodCase, conformance_tests


def follow(result, nodes):
    """With all rows in one step a node's own gradients cancel; a step along the full gradient is left. It is that of
    the nodes that answered the first request, whoever of them answered the second."""
    h, w = result["settings"]["stepsize"], np.zeros(5)
    for row in result["history"]:
        answers = rows_of(result, row["round"])
        asked = [answer["organization_id"] for answer in answers if answer.get("train_loss") is not None]
        w = w - h * average(nodes, {k: gradient(w, *arrays(nodes[k])) for k in asked})
    return w


test_conformance = conformance_tests(MethodCase("fsvrg", vectors_up=2, vectors_down=3, follow=follow))


def test_fsvrg(hospitals):
    """Nilsson et al. 2018, Algorithm 2: h = 3, one row a step (B = 1)."""
    h = 3.0
    result = train("v6_fsvrg", hospitals, rounds=2, stepsize=h, holdout=0, seed=SEED)
    n = sum(len(rows) for rows in hospitals.values())
    w = np.zeros(5)
    for t in (1, 2):
        full = sum(len(rows) / n * gradient(w, *arrays(rows)) for rows in hospitals.values())
        models = {}
        for k, rows in hospitals.items():
            X, y = arrays(rows)
            v = w.copy()
            for i in order(k, t).permutation(len(y)):
                x_i, y_i = X[i : i + 1], y[i : i + 1]
                v = v - h / len(y) * (gradient(v, x_i, y_i) - gradient(w, x_i, y_i) + full)
            models[k] = v
        w = sum(len(hospitals[k]) / n * models[k] for k in hospitals)
    check(result, w)


@pytest.mark.parametrize("name", ["2nn", "nn_reddy"])
def test_fsvrg_on_networks_is_the_box_row_by_row(name, monkeypatch):
    """The fast pass of networks equals lines 7 to 11 of the paper's box, written with ``loss_and_gradient``."""
    monkeypatch.setattr("v6_fsvrg.perceptron.BLOCK", 16)  # 16, 16 and 8 rows
    rng = np.random.default_rng(0)
    model = models.build({"name": name, "hidden": 8, "features": 6, "classes": 3})
    X = rng.normal(size=(40, 6)).astype(np.float32) * (rng.random((40, 6)) > 0.4)
    y, order = np.arange(40) % 3, rng.permutation(40)
    w_t = model.init(rng)
    full = model.loss_and_gradient(w_t, X, y)[1].copy()
    fast, w = w_t + 0, w_t + 0
    svrg_pass(model, fast, w_t, X, y, full, 0.05, order)
    for i in order:
        g_t = model.loss_and_gradient(w_t, X[i : i + 1], y[i : i + 1])[1].copy()
        g = model.loss_and_gradient(w, X[i : i + 1], y[i : i + 1])[1]
        w -= np.float32(0.05) * (g - g_t + full)
    assert np.abs(w - w_t).max() > 0.05
    np.testing.assert_allclose(fast, w, atol=1e-6)
