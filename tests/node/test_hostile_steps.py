"""Fitted steps that no nodes have made, and statistics that would single out rows: a node refuses them.

Numpy would broadcast an array with a number for each row, and a sum over rows would become a row.
"""

import numpy as np
import pytest
from helpers import hospital, train

from v6_federated import codec
from v6_workbench.simulation.mock import MockNetwork

ROWS, COLUMNS = 60, 8  # of clinic 1; after onehot
ZEROS = {"mean": np.zeros(COLUMNS), "mean_rest": np.zeros(COLUMNS), "scale": np.ones(COLUMNS)}
LEVELS = {"step": "onehot", "fitted": {"levels": {"sex": ["f", "m", "x"]}}}


@pytest.fixture(scope="module")
def network():
    """Three clinics without missing values, and what a job says of their data."""
    nodes = {k: hospital(n, k, list("fmx")).fillna({"x1": 0.0, "sex": "f"}) for k, n in {1: ROWS, 2: 50, 3: 70}.items()}
    data = train("v6_fedavg", nodes, rounds=1, preprocess=["onehot"])["data"]
    with MockNetwork("v6_fedavg", nodes) as network:
        yield network, data


def refusal(network, data, **request) -> str:
    """The log of a task of organization 1 that fits a step; "" if it was done."""
    job = {
        "method": "fedavg",
        "key": "0" * 32,
        "seed": 0,
        "participants": [1, 2, 3],
        "evaluators": [],
        "rounds": 1,
        "model": None,
        "minimum_rows": None,
        "precision": "float32",
        "data": {**data, "holdout": 0.0},
    }
    client = network.client()
    task = client.task.create({"method": "fit_step", "kwargs": {"job": job, "round": 0, **request}}, [1])
    client.wait_for_results(task["id"])
    run = client.run.from_task(task["id"])[0]
    return "" if run["status"] == "completed" else run["log"]


def step(name, **arrays):
    """A step after onehot, with arrays in place of those that its nodes would have made."""
    return [LEVELS, {"step": name, "fitted": codec.encode({**ZEROS, **arrays}, "float64")}]


def of_column(name, part, value, column="x0"):
    return [{"step": name, "fitted": {part: {column: value}}}, LEVELS]


FORGED = [
    (step("pca", components=np.ones((99, COLUMNS))), "more components than there"),
    (step("pca", components=np.eye(COLUMNS)[None]), "the array components has shape (1, 8, 8)"),
    (step("pca", components=np.eye(COLUMNS), scale=np.ones((ROWS, COLUMNS))), "the array scale has shape (60, 8)"),
    (step("standardize", mean=np.zeros((ROWS, COLUMNS))), "the array mean has shape (60, 8)"),
    (step("standardize", scale=np.ones((ROWS, COLUMNS))), "the array scale has shape (60, 8)"),
    (
        [LEVELS, {"step": "standardize", "fitted": codec.encode({"mean": np.zeros(COLUMNS)})}],
        "the array mean_rest is missing",
    ),
    (
        of_column("onehot", "levels", [str(i) for i in range(10_001)], "sex")[:1],
        "the levels of a fitted step are malformed",
    ),
    (of_column("onehot", "levels", [["m"] * ROWS], "sex")[:1], "the levels of a fitted step are malformed"),
    (of_column("onehot", "levels", ["m", "m"], "sex")[:1], "the levels of a fitted step are malformed"),
    (of_column("impute", "values", [0.0] * ROWS), "the values of a fitted step are malformed"),
    (of_column("impute", "values", float("nan")), "the values of a fitted step are malformed"),
    (of_column("impute", "values", 1e308), "the values of a fitted step are malformed"),
    (of_column("impute", "values", "0"), "impute cannot fill the column x0 like this"),
    (of_column("clip", "bounds", [[0.0] * ROWS, None]), "the bounds of a fitted step are malformed"),
    (of_column("clip", "bounds", [0.0]), "the bounds of a fitted step are malformed"),
    ([{"step": "clip", "fitted": ["x0"]}, LEVELS], "the bounds of a fitted step are malformed"),
]


@pytest.mark.parametrize("request_", [{"statistic": "moments"}, {"statistic": "levels", "columns": ["x0"]}])
@pytest.mark.parametrize(("forged", "says"), FORGED, ids=[says for _, says in FORGED])
def test_a_forged_step_is_refused(network, forged, says, request_):
    mock, data = network
    assert says in refusal(mock, {**data, "preprocess": forged}, **request_)


def test_steps_that_nodes_have_made_are_accepted(network):
    mock, data = network
    for steps in (step("standardize"), step("pca", components=np.eye(COLUMNS)), data["preprocess"]):
        assert refusal(mock, {**data, "preprocess": steps}, statistic="moments") == ""


@pytest.mark.parametrize("more", [{"statistic": "covariance"}, {"statistic": "product", "draw": 2}])
@pytest.mark.parametrize(
    ("mean", "scale"),
    [((ROWS, COLUMNS), (COLUMNS,)), ((COLUMNS,), (ROWS, COLUMNS)), ((), (COLUMNS,)), ((COLUMNS,), (1,)), (None, None)],
)
def test_a_statistic_about_other_means_than_one_a_column_is_refused(network, more, mean, scale):
    mock, data = network
    arrays = {} if mean is None else {"arrays": codec.encode({"mean": np.zeros(mean), "scale": np.ones(scale)})}
    assert "of another shape" in refusal(mock, data, **more, **arrays)
    right = codec.encode({"mean": np.zeros(COLUMNS), "scale": np.ones(COLUMNS)})
    assert refusal(mock, data, **more, arrays=right) == ""


def test_counts_below_other_bounds_than_one_a_column_are_refused(network):
    mock, data = network
    bounds = codec.encode({"lower": np.zeros(2), "upper": np.ones(2)})
    request = {"statistic": "below", "arrays": bounds}
    assert "of another shape" in refusal(mock, data, **request, columns=["x0"])
    assert refusal(mock, data, **request, columns=["x0", "x1"]) == ""


PROJECTED = {"mean": np.zeros(2), "mean_rest": np.zeros(2), "scale": np.ones(2), "components": np.array([[0.0, 1.0]])}
CLIPPED = {"step": "clip", "fitted": {"bounds": {"code": [0, 5]}}}


@pytest.mark.parametrize(
    ("step_", "column", "most", "says"),
    [
        (CLIPPED, "code", "7", "the column code has more than 7 values"),
        ({"step": "pca", "fitted": codec.encode(PROJECTED)}, "pc1", "100", "made by a step and have no levels"),
        (CLIPPED, "code", "100", ""),
    ],
)
def test_levels_of_a_column_of_many_values_are_not_named_part_by_part(clinics, step_, column, most, says):
    """Clipped to narrow bounds, a column of numbers would have few values at a time."""
    rows = {k: table.dropna().drop(columns="sex") for k, table in clinics.items()}
    rows = {k: table.assign(code=np.arange(len(table)) // 3) for k, table in rows.items()}
    data = train("v6_fedavg", rows, rounds=1, features=["x0", "code"], label="label")["data"]
    with MockNetwork("v6_fedavg", rows, environment={"V6_FEDERATED_MAXIMUM_CLASSES": most}) as mock:
        request = {"statistic": "levels", "columns": [column], "counts": True}
        found = refusal(mock, {**data, "preprocess": [step_]}, **request)
    assert (says in found) if says else found == ""
