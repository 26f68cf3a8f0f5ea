"""Quantiles from rounded counts."""

import numpy as np
import pytest
from helpers import OPEN, fitted, pooled, table

from v6_federated.messages import codec
from v6_workbench.simulation.mock import CallOutcome, MockNetwork


@pytest.mark.parametrize("spread", ["normal", "skewed"])
def test_quantiles_are_near_those_of_pooled_rows(spread):
    """They differ by the width of a bin and by the nodes' rounding."""
    rng = np.random.default_rng(0)
    draw = rng.normal if spread == "normal" else rng.exponential
    nodes = {k: table(400, seed=k).assign(x0=draw(size=400) + k) for k in (1, 2, 3)}
    x = pooled(nodes)["x0"]
    (median,) = fitted(nodes, "impute:median,columns=x0")
    assert median["values"]["x0"] == pytest.approx(x.median(), abs=0.03 * x.std())
    (clip,) = fitted(nodes, {"step": "clip", "quantile": 0.05, "columns": ["x0"]})
    assert clip["bounds"]["x0"] == pytest.approx(x.quantile([0.05, 0.95]).tolist(), abs=0.12 * x.std())


@pytest.mark.parametrize(("q", "rows"), [(0.01, 50), (0.001, 700), (0.01, 52)])
def test_the_upper_bound_is_found_if_counts_are_rounded_down(q, rows):
    """The rounded counts of a node may never reach all of its rows; clip is there for a value far out."""
    rng = np.random.default_rng(0)
    nodes = {k: table(rows, seed=k).assign(x0=rng.normal(size=rows)) for k in range(1, 6)}
    nodes[1].loc[0, "x0"] = 30.0
    (clip,) = fitted(nodes, {"step": "clip", "quantile": q, "columns": ["x0"]})
    lower, upper = clip["bounds"]["x0"]
    assert -4.5 < lower < -1 and 1 < upper < 4.5


def test_the_median_equals_one_computed_by_hand():
    """200 bins from mean - deviation to mean + deviation; each node counts the rows below each edge, in threes."""
    nodes = {k: table(30, seed=k) for k in (1, 2)}
    x = pooled(nodes)["x0"].to_numpy()
    edges = np.linspace(x.mean() - x.std(), x.mean() + x.std(), 201)
    below = sum(3 * np.round((rows["x0"].to_numpy()[:, None] <= edges).sum(axis=0) / 3) for rows in nodes.values())
    first, last = np.searchsorted(below, 30), np.searchsorted(below, 30, side="right") - 1
    assert below[first] == 30 and last > first, "30 of 60 lie below several edges: the median is in their middle"
    expected = (edges[first] + edges[last]) / 2
    assert fitted(nodes, "impute:median,columns=x0")[0]["values"]["x0"] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("least", [3, 10, 25])
@pytest.mark.parametrize("step", ["clip:0.02", "impute:median"])
def test_a_quantile_is_never_the_value_of_a_row(step, least):
    """Counts are multiples of the node's minimum; finer bins would find the row at which the rounding jumps."""
    rng = np.random.default_rng(7)
    nodes = {k: table(200, seed=k).assign(x0=rng.normal(size=200) * 3 + 2)[["x0", "label"]] for k in (1, 2, 3)}
    limits = {"V6_FEDERATED_MINIMUM_ROWS_A_CLASS": str(least)}
    # labels have nothing to do with x0: the models move by chance, one of them much further than the others
    (found,) = fitted(nodes, step, environment=limits, maximum_norm_ratio=100)
    quantiles = found["bounds"]["x0"] if "bounds" in found else [found["values"]["x0"]]
    values = pooled(nodes)["x0"].to_numpy()
    for quantile in quantiles:
        assert np.abs(values - quantile).min() > 1e-6


@pytest.mark.parametrize("outlier", [50.0, 999_999.0, -1e9, 1e15])
def test_a_few_outliers_do_not_move_quantiles(outlier):
    """Three of 1,200 rows hold a sentinel or a typing error: the deviation is large, and the first bins are wide."""
    rng = np.random.default_rng(0)
    nodes = {k: table(400, seed=k).assign(x0=rng.gamma(2, 10, 400), x1=rng.integers(20, 90, 400)) for k in (1, 2, 3)}
    for rows in nodes.values():
        rows.loc[0, "x0"] = outlier
    whole = pooled(nodes)
    bounds = fitted(nodes, "clip:0.01")[0]["bounds"]
    values = fitted(nodes, "impute:median")[0]["values"]
    for column, places in (
        ("x0", 0.004),
        ("x1", 0.02),
    ):  # rounding at 3 nodes allows no more; years are whole
        for value, q in ((bounds[column][0], 0.01), (bounds[column][1], 0.99), (values[column], 0.5)):
            low, high = whole[column].quantile([q - places if q > places else 0, min(q + places, 1)])
            assert low - 1e-6 <= value <= high + 1e-6, (column, q)


def test_the_median_of_a_constant_column_is_its_value(clinics):
    median, *_ = fitted(clinics, "impute:median", "impute:most_frequent", "onehot")
    assert median["values"]["unit"] == 5.0


@pytest.mark.parametrize(("tied", "other"), [(0.0, 1.0), (1.0, 0.0), (37.5, 99.0), (-1e-3, 2e-3), (1 / 3, 5.0)])
def test_clip_bounds_are_equal_if_nearly_all_rows_share_a_value(tied, other):
    """If rounding parted the bounds, standardize would turn the gap into a deviation of 1."""
    nodes = {k: table(600, seed=k) for k in (1, 2, 3)}
    for k, rows in nodes.items():
        rows["x0"] = np.where(np.random.default_rng(k).random(600) < 0.005, other, tied)
    clip, standardize = fitted(nodes, "clip:0.01", "standardize")
    low, high = clip["bounds"]["x0"]
    assert low == high == pytest.approx(tied, rel=1e-12)
    assert codec.decode(standardize)["scale"][0] == 1, "a constant column"


def test_quantiles_of_dates_written_as_numbers_are_exact_to_a_day():
    """The deviation decides how narrow the bins get, not the size of the values."""
    nodes = {k: table(400, seed=k) for k in (1, 2)}
    for k, rows in nodes.items():
        rows["x0"] = 20240100.0 + np.random.default_rng(k).integers(1, 31, 400)
    low, high = fitted(nodes, "clip:0.1")[0]["bounds"]["x0"]
    assert (low, high) == pytest.approx(tuple(np.quantile(pooled(nodes)["x0"], [0.1, 0.9])), abs=1)


@pytest.mark.parametrize(
    ("first", "share", "sentinel"), [(40, 0.002, 1e25), (0, 0.002, 1e20), (1e9, 0.005, 0.0), (1e6, 0.01, 1e9)]
)
def test_values_of_another_order_do_not_move_quantiles(first, share, sentinel):
    """The first bins are so wide that all other rows share one."""
    rng = np.random.default_rng(0)
    nodes = {k: table(900, seed=k) for k in (1, 2, 3)}
    for rows in nodes.values():
        rows["x0"] = np.where(rng.random(900) < share, sentinel, first + rng.random(900))
    low, high = fitted(nodes, "clip:0.05")[0]["bounds"]["x0"]
    assert (low, high) == pytest.approx(tuple(np.quantile(pooled(nodes)["x0"], [0.05, 0.95])), abs=0.02)


@pytest.mark.parametrize(
    ("values", "most"),
    [
        ([0.0, 1.0], 1),  # 0 is an edge of the first histogram
        ([37.5, 37.5], 2),
        ([50.0, 999_999.0], 3),
        ([1 / 3, 5.0], 6),  # no short decimal: the bin is divided until it is one value
        ([0.25, 1e25], 13),
    ],
)
def test_few_histograms_are_asked_for(values, most):
    rng = np.random.default_rng(0)
    columns = [f"x{i}" for i in range(3)]
    nodes = {k: table(600, seed=k) for k in (1, 2, 3)}
    for rows in nodes.values():
        for column in columns:
            rows[column] = np.where(rng.random(600) < 0.005, values[1], values[0])
    asked = []

    def outcomes(organization, input_):
        if organization == 1 and input_["kwargs"].get("statistic") == "below":
            asked.append(input_["kwargs"]["columns"])
        return CallOutcome()

    steps = [{"step": "impute", "strategy": "median", "columns": columns}]
    with MockNetwork("v6_fedavg", nodes, environment=OPEN, outcomes=outcomes, on_round=lambda row: None) as network:
        (found,) = network.run(rounds=1, preprocess=steps)["data"]["preprocess"]
    assert [*found["fitted"]["values"].values()] == pytest.approx([values[0]] * 3, rel=1e-12)
    assert 0 < len(asked) <= most
