"""Every partial function of every method keeps to the limits."""

import importlib

import numpy as np
import pytest
from helpers import crafted, train

from v6_federated.messages import codec
from v6_workbench import registry

STEP = {"local": {}}
W = {"weights": np.zeros(5)}
UNLABELLED = {"model": None, "data": {"classes": None, "holdout": 0.0, "preprocess": [], "supervised": False}}
TREES = {"model": {"name": "trees", "features": 4, "classes": 2}}
REGRESSION = {
    "model": {"name": "trees", "features": 4, "classes": 1},
    "data": {"classes": None, "holdout": 0.0, "preprocess": [], "regression": True},
}
GROW = {"trees": 1, "lr": 0.1, "max_leaves": 4, "min_rows_leaf": 10, "max_depth": None, "lambda_l2": 0.0}
EDGES = codec.encode({"edges": np.zeros(4), "lengths": np.ones(4)})
# every partial function of every method, as central calls it
PARTIALS = [
    ("v6_fedavg", "client_update", {}, None, {}),
    ("v6_scaffold", "client_update", {**STEP, "known": {}}, {**W, "c": np.zeros(5)}, {}),
    ("v6_fsvrg", "gradient", {}, W, {}),
    ("v6_fsvrg", "client_update", {"stepsize": 1.0, "batch_size": None}, {**W, "full_gradient": np.zeros(5)}, {}),
    (
        "v6_loadaboost",
        "client_update",
        {**STEP, "median": None, "retrain": "above"},
        W,
        {},
    ),
    (
        "v6_colearning",
        "client_update",
        {**STEP, "epochs": 1, "epochs_before": 0, "lr_cycle": 0.25},
        W,
        {},
    ),
    (
        "v6_dynavg",
        "local_update",
        {**STEP, "is_reference": True, "delta": 0.0},
        W,
        {},
    ),
    ("v6_dynavg", "singular_index", {}, None, {}),
    ("v6_dynavg", "train", {**STEP, "since": 0}, W, {}),
    ("v6_dynavg", "send_model", {}, None, {}),
    ("v6_coop", "client_update", STEP, W, {}),
    ("v6_gbdt", "average", {}, None, REGRESSION),
    ("v6_gbdt", "count", {"max_bin": 8}, {"low": np.zeros(4), "high": np.ones(4)}, TREES),
    ("v6_gbdt", "grow", {"growth": GROW, "edges": EDGES}, {"weights": np.zeros((0, 3))}, TREES),
    (
        "v6_pca",
        "transform",
        {},
        {"mean": np.zeros(4), "scale": np.ones(4), "components": np.eye(4)},
        UNLABELLED,
    ),
]
SHARED = {"central", "describe", "evaluate", "fit_step", "forget", "keep_steps"}


def test_no_partial_function_is_left_out():
    exported = {f"v6_{method}": importlib.import_module(f"v6_{method}").__all__ for method in registry.names()}
    assert {(p, f) for p, f, *_ in PARTIALS} == {(p, f) for p, every in exported.items() for f in {*every} - SHARED}
    assert all(SHARED - {*every} <= {"evaluate", "keep_steps"} for every in exported.values())


@pytest.mark.parametrize(("package", "function", "settings", "arrays", "job"), PARTIALS)
def test_every_partial_function_keeps_to_the_limits(hospitals, package, function, settings, arrays, job):
    """Called by itself, as whoever may send tasks can."""
    if arrays:
        settings = {**settings, "arrays": codec.encode(arrays)}
    assert crafted(hospitals, function, job, package, **settings) == ("completed", "")
    for name, limit, says in (
        ("MINIMUM_ROWS", "1000", "1000 rows"),
        ("MINIMUM_ORGANIZATIONS", "4", "4"),
        ("MAXIMUM_ROUNDS", "1", "round"),
    ):
        asked = {"round": 2} if name == "MAXIMUM_ROUNDS" else {}
        environment = {f"V6_FEDERATED_{name}": limit}
        status, log = crafted(hospitals, function, job, package, environment, **settings, **asked)
        assert status != "completed" and says in log, log


@pytest.mark.parametrize(
    ("package", "function", "settings", "arrays", "job", "name"),
    [
        (package, function, settings, arrays or W, job, name)
        for package, function, settings, arrays, job in PARTIALS
        for name in (arrays or W)
        if (package, name) != ("v6_gbdt", "weights")  # an ensemble, whose form has a test of its own
    ],
)
def test_no_array_of_a_task_may_have_a_number_a_row(hospitals, package, function, settings, arrays, job, name):
    """Numpy would broadcast it, and a sum over rows would be a row."""
    n, size = len(hospitals[3]), len(arrays[name])
    for shape in ((n, size), (size + n, 1), (size, 1), (1, size), (size, n), (1, size, size), ()):
        odd = codec.encode({**arrays, name: np.zeros(shape)})
        status, log = crafted(hospitals, function, job, package, **settings, arrays=odd)
        if (name, len(shape)) == ("components", 2) and shape[1] == size:
            continue  # of PCA there may be any number of them
        assert status == "crashed" and ("expected" in log or "features" in log), (shape, log)


@pytest.mark.parametrize(
    "package", ["v6_fedavg", "v6_scaffold", "v6_fsvrg", "v6_loadaboost", "v6_colearning", "v6_dynavg", "v6_gbdt"]
)
def test_as_many_rounds_as_a_node_allows(hospitals, package):
    """The last model is evaluated too."""
    result = train(package, hospitals, environment={"V6_FEDERATED_MAXIMUM_ROUNDS": "2"}, rounds=2)
    assert len(result["history"]) == 2 and "stopped" not in result and result["final"]["evaluated"]
