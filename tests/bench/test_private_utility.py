"""The benchmark of private jobs: its features, its split, and that its search takes the steps of a job."""

import numpy as np
import pandas as pd
import pytest
import torch
from benchmarks.private_utility import heart, jobs, scattering

from v6_federated import codec, models
from v6_federated.node import noising
from v6_workbench.simulation.mock import MockNetwork
from v6_workbench.simulation.studies import StudyPlan


def test_scattering_by_its_formula():
    """Channels of each order, in double precision and without halving images on the way, which costs little."""
    across, down = np.meshgrid(np.arange(28), np.arange(28))
    x = np.exp(-((across - 13) ** 2) / 20 - (down - 11) ** 2 / 60)  # as smooth as a digit
    x = np.pad(x, scattering.BORDER, mode="reflect")
    first, second = scattering._wavelets(0), scattering._wavelets(1)
    assert abs(first[:, 0, 0]).max() < 1e-5 and abs(second[:, 0, 0]).max() < 1e-5  # their sums are zero
    u = np.minimum(np.arange(36), 36 - np.arange(36))
    phi = np.exp(-(u[:, None] ** 2 + u**2) / (2 * 1.6**2)) / (2 * np.pi * 1.6**2)

    def convolved(a, transformed):
        return np.fft.ifft2(np.fft.fft2(a) * transformed)

    def averaged(a):
        return convolved(a, np.fft.fft2(phi)).real[4:29:4, 4:29:4]

    tensors = [torch.tensor(a, dtype=torch.float32) for a in (x[None, None], first, second)]
    found = scattering._scattered(*tensors)[0].numpy()
    assert found.shape == (81, 7, 7)
    U = abs(convolved(x, first[3]))
    for channel, expected in ((0, x), (1 + 3, U), (9 + 5, abs(convolved(x, second[5])))):
        _near(found[channel], averaged(expected))
    _near(found[17 + 3 * 8 + 5], averaged(abs(convolved(U, second[5]))))


def _near(a, b):
    assert np.linalg.norm(a - b) < 0.01 * np.linalg.norm(b)


def test_features_are_normal_in_groups_of_channels():
    images = np.random.default_rng(1).integers(0, 256, (60, 28, 28), dtype=np.uint8)
    groups = scattering.features(images).reshape(60, 27, 3 * 49)
    assert abs(groups.mean(axis=2)).max() < 1e-4
    assert groups[:, 0].std(axis=1).min() > 0.999 and groups.std(axis=2).max() < 1.001  # less where hardly any
    np.testing.assert_array_equal(scattering.features(images[7:8])[0], groups[7].ravel())  # a row by itself


def test_pooled_steps_are_those_of_a_job(monkeypatch):
    """Clipping, momentum and learning rate, without noise."""
    monkeypatch.setattr(noising, "discrete_gaussian", lambda key, sigma, size: np.zeros(size, np.int64))
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(120, 5)).astype(np.float32), rng.integers(0, 10, 120)
    values = jobs.settings(jobs.Task("logreg", 6), jobs.SHARED, 3.0, {"clip": 0.5, "lr": 1.0, "server_momentum": 0.9})
    dealt = {k + 1: (X[k::4], y[k::4]) for k in range(4)}
    with MockNetwork("v6_fedavg", dealt, study=StudyPlan(), on_round=lambda row: None) as network:
        result = network.run(**values)
    model = models.build({"name": "logreg", "features": 5, "classes": 10})
    w = jobs.descended(model, X, y, values, jobs.plan_of(values), 0.0, rng)
    np.testing.assert_allclose(codec.decode(result["weights"])["weights"], w, atol=1e-5)


@pytest.mark.parametrize(("rows", "training"), [(303, 199), (261, 172), (46, 30), (130, 85)])
def test_the_split_has_the_sizes_of_flamby(rows, training):
    columns = {name: np.full(rows + 1, low) for name, (low, *_) in heart.RANGES.items()}
    columns |= {name: np.full(rows + 1, next(iter(words))) for name, words in heart.LEVELS.items()}
    table = pd.DataFrame({**columns, "hospital": "a", "target": np.arange(rows + 1) % 2})
    table.loc[rows, "chol"] = np.nan  # not in FLamby's
    found = heart.split(table)
    assert len(found.training["a"]) == training and len(found.test["a"]) == rows - training


def test_columns_are_encoded_as_nodes_encode_them():
    table = pd.DataFrame({"age": [60.0], "trestbps": [80.0], "chol": [0.0], "thalach": [500.0], "oldpeak": [1.25]})
    words = {name: [[*levels.values()][-1]] for name, levels in heart.LEVELS.items()}
    X = heart._encoded(heart._declared(table.assign(**words, target=[1])))
    assert X.tolist() == [[0, -1, -1, 1, -0.5, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 1, 0, 1]]
