"""Steps and statistics that a malicious researcher could write."""

import json

import numpy as np
from helpers import train

from v6_federated.messages import codec
from v6_workbench.simulation.mock import MockNetwork

JOB = {
    "method": "fedavg",
    "key": "0" * 32,
    "seed": 0,
    "participants": [1, 2, 3],
    "evaluators": [],
    "rounds": 1,
    "minimum_rows": None,
    "precision": "float32",
}


def _forged_steps(steps, n):
    """Steps that no nodes have made, with what a node says to each. Numpy would broadcast those with a value for each
    of n rows, and a sum over rows would be a row."""
    pca, d = codec.decode(steps[1]["fitted"]), 8  # columns after onehot
    zeros = {"mean": np.zeros(d), "mean_rest": np.zeros(d), "scale": np.ones(d)}

    def with_arrays(name, **arrays):
        return [steps[0], {"step": name, "fitted": codec.encode({**zeros, **arrays}, "float64")}]

    def of_column(name, part, value):
        return [{"step": name, "fitted": {part: {"sex" if part == "levels" else "x0": value}}}, steps[0]]

    ones = np.ones((99, pca["components"].shape[1]), np.float32)
    yield [steps[0], {"step": "pca", "fitted": codec.encode({**pca, "components": ones})}], "more components than there"
    yield with_arrays("pca", components=np.eye(d)[None]), "components has shape (1, 8, 8); its shape must be (any, 8)"
    yield (
        with_arrays("pca", components=np.eye(d), scale=np.ones((n, d))),
        f"scale has shape ({n}, 8); its shape must be (8,)",
    )
    yield with_arrays("standardize", mean=np.zeros((n, d))), f"mean has shape ({n}, 8); its shape must be (8,)"
    yield with_arrays("standardize", scale=np.ones((n, d))), f"scale has shape ({n}, 8); its shape must be (8,)"
    yield (
        [steps[0], {"step": "standardize", "fitted": codec.encode({"mean": np.zeros(d)})}],
        "the array mean_rest is missing",
    )
    yield of_column("onehot", "levels", [str(i) for i in range(10_001)])[:1], "levels that nothing has been fitted to"
    yield of_column("onehot", "levels", [["m"] * n])[:1], "levels that nothing has been fitted to"
    yield of_column("onehot", "levels", ["m", "m"])[:1], "levels that nothing has been fitted to"
    yield of_column("impute", "values", [0.0] * n), "values that nothing has been fitted to"
    yield of_column("impute", "values", float("nan")), "values that nothing has been fitted to"
    yield of_column("impute", "values", 1e308), "values that nothing has been fitted to"
    yield of_column("impute", "values", "0"), "impute cannot fill the column x0 so"
    yield of_column("clip", "bounds", [[0.0] * n, None]), "bounds that nothing has been fitted to"
    yield of_column("clip", "bounds", [0.0]), "bounds that nothing has been fitted to"
    yield [{"step": "clip", "fitted": ["x0"]}, steps[0]], "bounds that nothing has been fitted to"


def test_fitted_steps_that_no_nodes_have_made_are_refused(clinics):
    complete = {k: rows.dropna() for k, rows in clinics.items()}
    result = train("v6_fedavg", complete, rounds=1, preprocess=["onehot", "pca:2"])
    steps = json.loads(json.dumps(result["data"]["preprocess"]))
    n = len(complete[1])
    with MockNetwork("v6_fedavg", complete) as network:
        for forged, says in _forged_steps(steps, n):
            job = {**JOB, "data": {**result["data"], "preprocess": forged, "holdout": 0.0}, "model": None}
            for statistic, more in (("moments", {}), ("levels", {"columns": ["x0"]})):
                kwargs = {"job": job, "round": 0, "statistic": statistic, **more}
                assert says in said(network, "fit_step", kwargs), (forged[0]["step"], says)


def said(network, method, kwargs):
    """The last words of a task of organization 1, "" where it has an answer."""
    client = network.client()
    task = client.task.create({"method": method, "kwargs": kwargs}, [1])
    client.wait_for_results(task["id"])
    run = client.run.from_task(task["id"])[0]
    return "" if run["status"] == "completed" else run["log"]


def test_statistics_are_not_asked_for_row_by_row(clinics):
    """A mean or a scale for each row in place of one for each column would make a sum over rows a row."""
    rows = {k: table.dropna().drop(columns="sex") for k, table in clinics.items()}
    spec = train("v6_fedavg", rows, rounds=1)["data"]
    n, d = len(rows[1]), 5
    job = {**JOB, "data": {**spec, "holdout": 0.0}, "model": None}
    with MockNetwork("v6_fedavg", rows) as network:
        for statistic, more in (("covariance", {}), ("product", {"draw": 2})):
            for mean, scale in (((n, d), (d,)), ((d,), (n, d)), ((), (d,)), ((d,), (1,))):
                arrays = codec.encode({"mean": np.zeros(mean), "scale": np.ones(scale)})
                kwargs = {"job": job, "round": 0, "statistic": statistic, "arrays": arrays, **more}
                assert "of another shape" in said(network, "fit_step", kwargs)
            assert "of another shape" in said(
                network, "fit_step", {"job": job, "round": 0, "statistic": statistic, **more}
            )
            fine = codec.encode({"mean": np.zeros(d), "scale": np.ones(d)})
            assert not said(network, "fit_step", {**kwargs, "arrays": fine})
        bounds = codec.encode({"lower": np.zeros(2), "upper": np.ones(2)})
        kwargs = {"job": job, "round": 0, "statistic": "below", "arrays": bounds}
        assert "of another shape" in said(network, "fit_step", {**kwargs, "columns": ["x0"]})
        assert not said(network, "fit_step", {**kwargs, "columns": ["x0", "x1"]})


def test_levels_of_a_column_of_many_values_are_not_named_part_by_part(clinics):
    """Clipped to narrow bounds, a column of numbers would have few values at a time."""
    rows = {
        k: table.dropna().drop(columns="sex").assign(code=np.arange(len(table.dropna())) // 3)
        for k, table in clinics.items()
    }
    spec = train("v6_fedavg", rows, rounds=1, features=["x0", "code"], label="label")["data"]
    clip = [{"step": "clip", "fitted": {"bounds": {"code": [0, 5]}}}]
    pca = {"mean": np.zeros(2), "mean_rest": np.zeros(2), "scale": np.ones(2), "components": np.array([[0.0, 1.0]])}
    made = [{"step": "pca", "fitted": codec.encode(pca)}]
    few = {"V6_FEDERATED_MAXIMUM_CLASSES": "7"}
    for steps, column, environment, says in (
        (clip, "code", few, "the column code has more than 7 values"),
        (made, "pc1", {}, "made by a step and have no levels"),
        (clip, "code", {}, ""),
    ):
        job = {**JOB, "data": {**spec, "preprocess": steps, "holdout": 0.0}, "model": None}
        with MockNetwork("v6_fedavg", rows, environment=environment) as network:
            kwargs = {"job": job, "round": 0, "statistic": "levels", "columns": [column], "counts": True}
            assert says in (words := said(network, "fit_step", kwargs)) and bool(words) == bool(says)
