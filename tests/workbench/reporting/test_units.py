"""Rows in another unit than those that a model was trained on, and ordinary rows, of which nothing may be said."""

import numpy as np
import pandas as pd
import pytest
from helpers import train

from v6_federated.data.source import Source
from v6_workbench.reporting import prediction
from v6_workbench.reporting.units import remark


def lognormal(cv):
    s = np.sqrt(np.log1p(cv**2))
    return lambda rng, n: np.exp(rng.normal(-(s**2) / 2, s, n))


HONEST = {  # numbers as columns of patients have them
    "haemoglobin": lambda rng, n: rng.normal(13.5, 1.6, n),
    "glucose": lambda rng, n: 100 * lognormal(0.3)(rng, n),
    "age": lambda rng, n: rng.uniform(20, 90, n).round(),
    "bilirubin": lognormal(1.4),
    "c-reactive protein": lognormal(2.0),
    "ferritin": lognormal(3.0),
    "albumin, with a long tail to the left": lambda rng, n: 45 - 10 * rng.gamma(1.5, 0.4, n),
    "base excess, about 0": lambda rng, n: rng.normal(0, 3, n),
    "admissions": lambda rng, n: rng.poisson(0.3, n).astype(float),
    "days of ventilation, mostly 0": lambda rng, n: rng.exponential(5, n) * (rng.random(n) < 0.1),
    "yes or no": lambda rng, n: (rng.random(n) < 0.05).astype(float),
    "stage": lambda rng, n: rng.integers(1, 5, n).astype(float),
}
KEPT = {
    name: (big.mean(), big.std()) for name, draw in HONEST.items() for big in [draw(np.random.default_rng(1), 10**5)]
}


@pytest.mark.parametrize("name", HONEST)
@pytest.mark.parametrize("n", [1, 10, 50, 500])
def test_of_a_thousand_honest_samples_at_most_one_is_remarked(name, n):
    rng, (mean, deviation) = np.random.default_rng(n), KEPT[name]
    samples = 1000 if n <= 50 else 200
    found = [remark(HONEST[name](rng, n), mean, deviation) for _ in range(samples)]
    assert sum(one is not None for one in found) <= 1


@pytest.mark.parametrize("name", HONEST)
def test_a_hospital_whose_patients_differ_a_little_is_not_remarked(name):
    """Its numbers are a quarter larger or smaller."""
    rng, (mean, deviation) = np.random.default_rng(7), KEPT[name]
    for times in (1.25, 0.8):
        found = [remark(HONEST[name](rng, 300) * times, mean, deviation) for _ in range(100)]
        assert found == [None] * 100


@pytest.mark.parametrize("factor", [2.2, 10, 12, 18, 100, 1000])
@pytest.mark.parametrize(
    ("name", "rows"),
    [("haemoglobin", 20), ("glucose", 100), ("age", 200), ("bilirubin", 300), ("c-reactive protein", 400)],
)
def test_another_unit_is_remarked_in_both_directions(name, rows, factor):
    """Pounds and kilograms are near each other: the deviation must be small, or there must be many rows."""
    rng, (mean, deviation) = np.random.default_rng(3), KEPT[name]
    if factor < 10 and name in ("bilirubin", "c-reactive protein"):
        pytest.skip("2.2 times is within what patients of another hospital may be")
    for times in (factor, 1 / factor):
        found = [remark(HONEST[name](rng, rows) * times, mean, deviation) for _ in range(20)]
        said = [one for one in found if one is not None]
        assert len(said) >= 19 and all(one.larger == (times > 1) for one in said)
        most = [one.rows.mean() for one in said]
        assert factor < 10 or np.median(most) > 0.5


def test_single_rows_and_rows_without_a_value():
    assert remark(np.array([5.5, np.nan]), 100, 10).rows.tolist() == [True, False]
    assert remark(np.array([1700.0]), 1.7, 0.1).larger
    assert remark(np.array([np.nan, np.nan]), 1.7, 0.1) is None
    assert remark(np.array([1.69, 1.75, 170.0]), 1.7, 0.1).rows.tolist() == [False, False, True]


def test_half_of_the_rows_in_another_unit():
    rng = np.random.default_rng(2)
    x = HONEST["glucose"](rng, 60)
    x[::2] /= 18
    found = remark(x, *KEPT["glucose"])
    assert not found.larger and 15 < found.factor < 22 and found.rows[::2].all() and found.rows[1::2].sum() <= 2


@pytest.fixture(scope="module")
def result():
    def rows(seed):
        rng = np.random.default_rng(seed)
        table = pd.DataFrame({"glucose": HONEST["glucose"](rng, 200), "age": HONEST["age"](rng, 200)})
        return table.assign(ill=(table["glucose"] + rng.normal(0, 20, 200) > 100).astype(int))

    nodes = {k: rows(k) for k in (1, 2, 3)}
    return train("v6_fedavg", nodes, rounds=2, lr=0.5, preprocess=["clip:0.01", "impute", "standardize"])


@pytest.mark.parametrize(
    ("times", "says"),
    [
        (18.0, "glucose: 40 of 40 rows are about 17 times larger than those that the model was trained on"),
        (1 / 18, "glucose: 40 of 40 rows are about 19 times smaller than those that the model was trained on"),
        (1.0, ""),
    ],
)
def test_predict_remarks_a_table_in_another_unit(times, says, result):
    """Also after a step that clips: the numbers are compared as the table has them."""
    rng = np.random.default_rng(11)
    new = pd.DataFrame({"glucose": HONEST["glucose"](rng, 40) * times, "age": HONEST["age"](rng, 40)})
    found = prediction.warnings_about(result, Source(table=new))
    assert found == ([f"{says}; check the unit of this column"] if says else [])
