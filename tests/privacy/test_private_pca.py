"""PCA from one noisy sum of clipped rows and of their products."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.decomposition import PCA

from v6_federated.base.errors import SafeError
from v6_federated.base.vantage6_api import CollectResultsError, UserInputError
from v6_federated.data import pca
from v6_federated.messages import codec
from v6_federated.node import noising
from v6_federated.noise import units
from v6_federated.noise.ledger import Ledger
from v6_federated.rules.schema import Column, Schema
from v6_workbench.reporting import diagnostics
from v6_workbench.simulation.mock import MockNetwork
from v6_workbench.simulation.studies import StudyPlan

PRIVATE = {
    "V6_FEDERATED_PROFILE": "private",
    "V6_FEDERATED_EPSILON": "3",
    "V6_FEDERATED_EPSILON_PER_JOB": "3",
    "V6_FEDERATED_DELTA": "1e-5",
}
COLUMNS = "abcd"
SCHEMA = Schema(tuple(Column(c, "number", -8, 8) for c in COLUMNS), label=None)
JOB = {"clip": 1.0, "preprocess": ["scale"], "components": 2}


def hospital(k: int) -> pd.DataFrame:
    rng = np.random.default_rng(k)
    mixing = np.array([[3, 1, 0, 0], [0, 1.5, 1, 0], [0, 0, 0.5, 0], [0, 0, 0, 0.3]])
    return pd.DataFrame((rng.normal(size=(500 + 10 * k, 4)) @ mixing).clip(-8, 8), columns=list(COLUMNS))


TABLES = {k: hospital(k) for k in range(1, 5)}
ROWS = np.concatenate([table.to_numpy() for table in TABLES.values()]) / 8  # as ``scale`` makes them


def network(environment=PRIVATE, **options):
    study = StudyPlan(schema=SCHEMA)
    return MockNetwork("v6_pca", TABLES, environment=environment, study=study, on_round=lambda row: None, **options)


def fitted(result):
    return codec.decode(result["weights"])


@pytest.fixture
def silent(monkeypatch):
    monkeypatch.setattr(noising, "discrete_gaussian", lambda key, sigma, size: np.zeros(size, np.int64))


def test_without_noise_it_is_that_of_the_clipped_rows(silent):
    with network() as found:
        result = found.run(**JOB, noise=5)
    clipped = ROWS / np.maximum(np.linalg.norm(ROWS, axis=1), 1)[:, None]
    expected = PCA(2).fit(clipped)
    got = fitted(result)
    np.testing.assert_allclose(np.abs(got["components"]), np.abs(expected.components_), atol=5e-3)
    np.testing.assert_allclose(got["explained_variance"], expected.explained_variance_, rtol=5e-3)
    np.testing.assert_allclose(got["mean"], clipped.mean(axis=0), atol=2 / units.MOMENT)
    assert result["privacy"]["noised"] == "sums over clipped rows"


def test_by_hand():
    """z = trunc(u x / max(||x||, C)), for u = 2^12: first u sum z, then sum z_i z_j for i <= j."""
    X, clip = np.array([[0.3, -0.4], [3.0, 4.0], [np.nan, 1.0]]), 1.0
    shrunk = 4096 * (1 - 2.0**-29)
    z = np.trunc(np.array([[0.3 * shrunk, -0.4 * shrunk], [0.6 * shrunk, 0.8 * shrunk]]))
    expected = [*(4096 * z.sum(axis=0)), (z[:, 0] ** 2).sum(), (z[:, 0] * z[:, 1]).sum(), (z[:, 1] ** 2).sum()]
    assert pca.clipped_moments(X, clip).tolist() == expected


def test_the_sum_over_hospitals_is_exactly_that_of_all_rows(monkeypatch):
    drawn = []
    real = noising.Noising._noise
    monkeypatch.setattr(
        noising.Noising, "_noise", lambda *args, **kwargs: drawn.append(real(*args, **kwargs)) or drawn[-1]
    )
    sums = []
    real_read = pca.of_clipped_moments
    monkeypatch.setattr(pca, "of_clipped_moments", lambda total, *rest: sums.append(total) or real_read(total, *rest))
    with network() as found:
        result = found.run(**JOB, noise=5)
    assert len(drawn) == 4 and result["privacy"]["noise_shared_in_a_block"] is True
    scaled = np.concatenate([table.to_numpy() / 8 for table in TABLES.values()]).astype(np.float32)
    [total] = sums
    assert (total == pca.clipped_moments(scaled, 1.0) + sum(drawn)).all()


NUMBERS = st.floats(allow_nan=True, allow_infinity=True, width=32)


@settings(max_examples=200)
@given(
    X=st.integers(1, 6).flatmap(
        lambda d: arrays(np.float32, st.tuples(st.integers(1, 5), st.just(d)), elements=NUMBERS)
    ),
    clip=st.floats(1e-6, 1e6),
    data=st.data(),
)
def test_one_row_moves_the_sum_no_further_than_is_proven(X, clip, data):
    """Also a row of huge, tiny, infinite or missing numbers. Without it, its place is empty."""
    i = data.draw(st.integers(0, len(X) - 1))
    without = X.copy()
    without[i] = 0
    with np.errstate(all="ignore"):
        moved = pca.clipped_moments(X, clip) - pca.clipped_moments(without, clip)
    assert math.sqrt(sum(int(x) ** 2 for x in moved)) <= pca.moments_sensitivity()


def test_the_bound_is_reached():
    """A row along one column at the clip: u z and z^2 are u^2 each."""
    moved = pca.clipped_moments(np.array([[5.0, 0.0]]), 1.0)
    assert np.linalg.norm(moved) == pytest.approx(pca.moments_sensitivity(), rel=1e-3)


@pytest.mark.parametrize(("scale", "epsilon"), [(False, 1), (True, 8)])
def test_a_study_finds_the_components(scale, epsilon):
    """With ``scale`` noise of columns that hardly vary is divided by little, and needs a larger epsilon."""
    roomy = {**PRIVATE, "V6_FEDERATED_EPSILON": "10", "V6_FEDERATED_EPSILON_PER_JOB": "10"}
    with network(roomy) as found:
        result = found.run(**JOB, epsilon=epsilon, scale=scale)
        folder = next(found.folder.rglob("ledger.sqlite")).parent
        [job] = Ledger(folder, 10, 1e-5).spent().jobs
    assert (job.steps, job.evaluations, job.statistics) == (0, 0, 1) and 0.99 < job.epsilon / epsilon <= 1
    clipped = ROWS / np.maximum(np.linalg.norm(ROWS, axis=1), 1)[:, None]
    expected = PCA(2).fit(clipped / clipped.std(axis=0) if scale else clipped)
    found = fitted(result)["components"]
    assert abs(found[0] @ expected.components_[0]) > 0.95
    assert "loss" not in result["final"] and result["history"][-1]["round"] == 1


@pytest.mark.parametrize(
    ("wrong", "says", "error"),
    [
        ({"solver": "subspace"}, "solver=subspace cannot be used with clip", UserInputError),
        ({"preprocess": ["standardize"]}, "no noise covers what it reads", UserInputError),
        ({"clip": None, "epsilon": None}, "privacy budget", CollectResultsError),
        ({"epsilon": 9}, "What would fit", CollectResultsError),
        ({"sampling": 0.5}, "unknown setting 'sampling'", UserInputError),
    ],
)
def test_what_noise_does_not_cover_is_refused(wrong, says, error):
    with network() as found, pytest.raises(error, match=says):
        found.run(**{**JOB, "epsilon": 1, **wrong})


def test_a_sum_of_too_many_numbers_is_refused():
    with (
        network({**PRIVATE, "V6_FEDERATED_MAXIMUM_PARAMETERS": "13"}) as found,  # of 4 + 10
        pytest.raises(CollectResultsError, match="some nodes .* could not compute their part"),
    ):
        found.run(**JOB, epsilon=1)


def test_noise_that_hides_everything_is_one_line():
    with pytest.raises(SafeError, match="noise is larger than the variance of every column"):
        pca.of_clipped_moments(np.array([0, 0, -5, 3, -5]), 2, 10, 1.0)


def test_components_of_noise_are_named():
    with network({**PRIVATE, "V6_FEDERATED_EPSILON": "20", "V6_FEDERATED_EPSILON_PER_JOB": "20"}) as found:
        result = found.run(**{**JOB, "components": 4}, epsilon=0.3)
    noise = result["final"]["variance_of_noise"]
    # the largest eigenvalue of a symmetric matrix of noise sigma is about 2 sigma sqrt(d); d is small here
    sigma = result["privacy"]["plan"]["statistics_noise"] * math.sqrt(2 * 4 / 3) / (len(ROWS) - 1)
    assert 0.4 * 2 * sigma * 2 < noise < 1.6 * 2 * sigma * 2
    [line] = diagnostics.hidden_components(result)
    assert "components explain no more than noise alone would" in line
    with network() as found:
        assert diagnostics.hidden_components(found.run(**{**JOB, "components": 1}, epsilon=3)) == []
