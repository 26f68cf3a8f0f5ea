"""Standardizing over nodes."""

import numpy as np
import pandas as pd
import pytest
from helpers import train

from v6_federated.data import pca
from v6_federated.messages import codec


def test_a_constant_column_of_many_rows_is_constant():
    """The error of numpy's mean grows with the rows; it must not be taken for a deviation."""
    X = np.column_stack([np.full(400_000, 37.2), np.arange(400_000.0)])
    found = pca.moments(X)
    scale = pca.Moments(len(X), codec.whole(found, "mean"), found["squares"]).scale()
    assert scale[0] == 1 and scale[1] == pytest.approx(X[:, 1].std())


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e6])
def test_training_on_standardized_columns_works_at_any_scale(hospitals, scale):
    scaled = {k: v.assign(**{c: v[c] * scale + 7 * scale for c in v.columns[:-1]}) for k, v in hospitals.items()}
    result = train("v6_fedavg", scaled, rounds=20, lr=0.5, preprocess=["standardize"], precision="float16")
    assert result["final"]["accuracy"] > 0.7


def test_a_column_with_a_large_offset_keeps_its_digits(hospitals):
    """A time stamp is centred before it becomes float32."""
    shifted = {
        k: v.assign(x0=v["x0"] + 1e9, constant=5.0)[["x0", "x1", "constant", "label"]] for k, v in hospitals.items()
    }
    plain = {k: v.assign(constant=5.0)[["x0", "x1", "constant", "label"]] for k, v in hospitals.items()}
    one, two = (train("v6_fedavg", d, rounds=5, preprocess=["standardize"])["final"]["loss"] for d in (plain, shifted))
    assert one == pytest.approx(two, rel=0.05)


def test_mean_and_deviation_are_those_of_the_pooled_rows(hospitals):
    result = train("v6_fedavg", hospitals, rounds=1, preprocess=["standardize"], holdout=0)
    fitted = codec.decode(result["data"]["preprocess"][0]["fitted"])
    assert fitted["mean_rest"].any()
    pooled = pd.concat(hospitals.values()).iloc[:, :-1]
    np.testing.assert_allclose(fitted["mean"], pooled.mean(), rtol=1e-5)
    np.testing.assert_allclose(fitted["scale"], pooled.std(ddof=0), rtol=1e-5)
