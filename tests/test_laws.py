"""Laws that hold for every method. A new method adds a line to METHODS."""

import importlib

import numpy as np
import pytest
from helpers import OPEN, table, train
from vantage6.algorithm.tools.exceptions import UserInputError
from vantage6.algorithm.tools.mock_client import MockAlgorithmClient

from v6_federated import models
from v6_federated.base.errors import SafeError
from v6_federated.base.randomness import generator
from v6_federated.data import source
from v6_federated.messages import codec

# package, and settings under which a round of one node is one step of gradient descent on all its rows
METHODS = [
    ("v6_fedavg", {"lr": 0.3}),
    ("v6_scaffold", {"lr": 0.3}),
    ("v6_fsvrg", {"stepsize": 0.3, "batch_size": None}),
    ("v6_loadaboost", {"lr": 0.3}),
    ("v6_colearning", {"lr": 0.3, "epsilon": 0.0}),
    ("v6_dynavg", {"lr": 0.3, "protocol": "divergence", "delta": 0.0}),
    ("v6_dynavg", {"lr": 0.3, "protocol": "divergence", "delta": 0.2}),  # some nodes are silent
    ("v6_dynavg", {"lr": 0.3, "protocol": "svd"}),
    ("v6_dynavg", {"lr": 0.3, "protocol": "loss"}),
    ("v6_dynavg", {"lr": 0.3, "protocol": "loss", "train_from": "newest"}),
    ("v6_dynavg", {"lr": 0.3, "protocol": "loss", "train_from": "newest_pass"}),
    ("v6_coop", {"lr": 0.3}),
]
METHODS_AND_MODELS = [(p, {**s, "model": m}) for p, s in METHODS for m in ("logreg", "svm", "fnn:hidden=5")]
PARAMETERS = ("package", "settings")


def rate(settings):
    return settings["stepsize" if "stepsize" in settings else "lr"]


def weights(result):
    return codec.decode(result["weights"])["weights"]


@pytest.mark.parametrize(PARAMETERS, METHODS_AND_MODELS)
@pytest.mark.parametrize("classes", [2, 3])
def test_one_node_equals_centralized_training(package, settings, classes):
    rows = table(40, classes=classes)
    result = train(package, {1: rows}, rounds=6, holdout=0, seed=4, **settings)
    model = models.build(result["model"])
    X, y = rows.iloc[:, :-1].to_numpy(np.float32), rows["label"].to_numpy()
    w = model.init(generator(4, "init"))
    for _ in range(6):
        w = w - np.float32(rate(settings)) * model.loss_and_gradient(w, X, y)[1]
    np.testing.assert_allclose(weights(result), w, atol=2e-6)


@pytest.mark.parametrize(PARAMETERS, METHODS_AND_MODELS)
def test_order_of_nodes_changes_nothing(package, settings, hospitals):
    results = [
        train(package, {i: hospitals[i] for i in order}, rounds=3, seed=1, **settings)
        for order in ([3, 5, 8], [8, 3, 5])
    ]
    assert results[0]["weights"] == results[1]["weights"]


@pytest.mark.parametrize(PARAMETERS, [(p, s) for p, s in METHODS_AND_MODELS if p != "v6_coop"])  # merges in turn
def test_equal_nodes_equal_one(package, settings):
    one = train(package, {1: table()}, rounds=4, holdout=0, **settings)
    three = train(package, {i: table() for i in (1, 2, 3)}, rounds=4, holdout=0, **settings)
    np.testing.assert_allclose(weights(one), weights(three), atol=1e-6)


@pytest.mark.parametrize(PARAMETERS, METHODS_AND_MODELS)
def test_rate_zero_changes_nothing(package, settings, hospitals):
    result = train(
        package, hospitals, rounds=2, seed=7, **{**settings, "stepsize" if "stepsize" in settings else "lr": 0.0}
    )
    np.testing.assert_array_equal(weights(result), models.build(result["model"]).init(generator(7, "init")))


@pytest.mark.parametrize(PARAMETERS, METHODS_AND_MODELS)
def test_same_bits_everywhere(package, settings, hospitals, monkeypatch):
    """The mock network with one and two processes, and vantage6's own mock client."""
    for name, value in OPEN.items():
        monkeypatch.setenv(name, value)
    settings = {**settings, "rounds": 3, "seed": 5, "preprocess": ["standardize"]}
    if "batch_size" in importlib.import_module(package).central.settings.model_fields:
        settings["batch_size"] = 7
    one, two = (train(package, hospitals, processes=p, **settings) for p in (1, 2))
    client = MockAlgorithmClient(
        [[{"database": rows, "db_type": "csv"}] for rows in hospitals.values()],
        package,
        organization_ids=list(hospitals),
    )
    theirs = importlib.import_module(package).central(mock_client=client, **settings)
    assert one["weights"] == two["weights"] == theirs["weights"]
    assert without_times(one) == without_times(two) == without_times(theirs)


def test_same_bits_of_a_convolution_in_one_process_and_two():
    """torch keeps to the node's one thread wherever it runs."""
    rng = np.random.default_rng(0)
    nodes = {k: (rng.random((64, 28, 28)), np.arange(64) % 3) for k in (1, 2)}
    for model in ("cnn_garst", "cnn_mcmahan"):
        one, two = (train("v6_fedavg", nodes, p, rounds=1, model=model, batch_size=32) for p in (1, 2))
        assert one["weights"] == two["weights"]


def test_text_is_learned_with_the_same_bits_in_one_process_and_two():
    """A text that repeats itself: what follows is known. Every row counts once, whatever its length."""
    cycle = np.arange(200) % 5
    windows = np.array([cycle[i : i + 9] for i in range(0, 190, 3)])
    nodes = {k: (windows[k::2, :-1], windows[k::2, -1]) for k in (0, 1)}
    settings = {"model": "lstm_char:hidden=16", "lr": 1.0, "batch_size": 4, "epochs": 5, "rounds": 4, "holdout": 0.2}
    one, two = (train("v6_fedavg", nodes, p, **settings) for p in (1, 2))
    assert one["weights"] == two["weights"]
    assert one["history"][-1]["accuracy"] == 1
    assert one["history"][-1]["evaluated"] == 20
    with pytest.raises(SafeError, match="lstm_char must be the characters' codes 0, 1, ... without a"):
        train("v6_fedavg", {k: (X, np.where(y == 3, 7, y)) for k, (X, y) in nodes.items()}, **settings)


def without_times(result):
    history = [{k: v for k, v in row.items() if k != "seconds"} for row in result["history"]]
    return {**result, "history": history}


# vectors of d numbers that a node sends and gets in its first round
VECTORS = {"v6_scaffold": (1, 2), "v6_fsvrg": (2, 3)}


@pytest.mark.parametrize(("package", "settings"), [m for m in METHODS if not m[1].get("delta")])
def test_bytes_equal_the_formula(package, settings, hospitals):
    """16/3 bytes a number, and JSON that does not grow with the model."""
    overhead = []
    up, down = VECTORS.get(package, (1, 1))
    for hidden in (5, 50):
        result = train(package, hospitals, rounds=1, model=f"fnn:hidden={hidden}", **settings)
        numbers = models.build(result["model"]).size * 16 / 3
        for k in hospitals:
            rows = [row for row in result["per_node"] if row["organization_id"] == k]
            sent = sum(row["bytes_up"] for row in rows) - up * numbers
            overhead.append((sent, sum(row["bytes_down"] for row in rows) - down * numbers))
    assert np.max(overhead) < 1500
    assert np.ptp(overhead, axis=0).max() < 30, "numbers of other lengths only"


def test_a_silent_node_sends_no_model(hospitals):
    """Dynamic averaging: an answer has 16/3 d bytes where it is an upload, and else none that grow with the model."""
    result = train("v6_dynavg", hospitals, rounds=6, model="fnn:hidden=50", lr=0.3, delta=0.2)
    numbers = models.build(result["model"]).size * 16 / 3
    beyond = [row["bytes_up"] - numbers * (row["bytes_up"] > numbers) for row in result["per_node"]]
    assert max(beyond) < 1500
    uploads = [row["uploads"] for row in result["history"]]
    assert sum(row["bytes_up"] > numbers for row in result["per_node"]) == sum(uploads)
    assert {0, 3} < {*uploads}, "some rounds are silent, some whole, some neither"


@pytest.mark.parametrize(("package", "settings"), METHODS)
def test_half_precision_halves_the_bytes(package, settings, hospitals):
    full, half = (
        train(package, hospitals, rounds=1, model="fnn:hidden=200", precision=p, **settings)["history"][0]["bytes_up"]
        for p in ("float32", "float16")
    )
    assert 0.45 < half / full < 0.6


@pytest.mark.parametrize(("package", "settings"), METHODS)
def test_nodes_are_named_not_numbered(package, settings, hospitals):
    result = train(package, hospitals, rounds=1, **settings)
    assert {row["organization_id"] for row in result["per_node"]} == {3, 5, 8}
    assert result["history"][0]["participants"] == [3, 5, 8]


@pytest.mark.parametrize(("package", "settings"), METHODS)
def test_exports_only_callables(package, settings):
    module = importlib.import_module(package)
    public = [n for n in dir(module) if callable(getattr(module, n)) and not n.startswith("__")]
    assert sorted(public) == sorted(module.__all__)
    assert {"central", "describe", "fit_step", "keep_steps", "evaluate", "forget"} <= set(public)


def test_holdout_is_never_trained_on(hospitals):
    """Changing the held-out rows' features changes the evaluation, not the model."""
    spoiled = {}
    for organization, rows in hospitals.items():
        _, held = source.split(len(rows), 0.25, organization)
        spoiled[organization] = rows.copy()
        spoiled[organization].iloc[held, :-1] = 100.0
    settings = {"rounds": 2, "holdout": 0.25, "seed": 2, "lr": 0.3}
    good, bad = train("v6_fedavg", hospitals, **settings), train("v6_fedavg", spoiled, **settings)
    assert good["weights"] == bad["weights"]
    assert good["final"]["loss"] != bad["final"]["loss"]


@pytest.mark.parametrize(
    ("package", "settings", "says"),
    [
        ("v6_dynavg", {"train_from": "newest"}, "train_from has no effect with protocol=divergence"),
        ("v6_dynavg", {"protocol": "svd", "delta": 9.0}, "delta has no effect with protocol=svd"),
        ("v6_dynavg", {"protocol": "loss", "augmentation": "doubling"}, "augmentation has no effect with"),
        ("v6_pca", {"model": "fnn"}, "model has no effect on pca, which trains no model"),
        ("v6_pca", {"target": 0.9, "precision": "float16"}, "target, precision has no effect on pca"),
    ],
)
def test_a_setting_that_changes_nothing_is_refused(package, settings, says):
    """Two results would differ by it in nothing but what they say of themselves."""
    with pytest.raises(UserInputError, match=says):
        train(package, {k: table(40, seed=k) for k in (1, 2, 3)}, rounds=2, **settings)
