"""FedAvg of the models that torch trains: images and text."""

import numpy as np
import pytest
from helpers import train

from v6_federated.base.errors import SafeError


@pytest.mark.parametrize("model", ["cnn_garst", "cnn_reddy", "cnn_mcmahan"])
def test_convolutions_train(model):
    rng = np.random.default_rng(0)
    y = np.arange(60) % 2
    X = np.zeros((60, 12, 12), np.uint8)
    X[y == 0, :6], X[y == 1, 6:] = 200, 200
    X += rng.integers(0, 50, X.shape, dtype=np.uint8)
    parts = {k: (X[k::3], y[k::3]) for k in (0, 1, 2)}
    first, again = (
        train("v6_fedavg", parts, rounds=3, model=model, lr=0.1, batch_size=5, epochs=2, holdout=0.3) for _ in range(2)
    )
    assert first["weights"] == again["weights"]
    assert first["final"]["accuracy"] > 0.9


@pytest.mark.long
def test_same_bits_of_a_convolution_in_one_process_and_two():
    """torch keeps to the node's one thread wherever it runs."""
    rng = np.random.default_rng(0)
    nodes = {k: (rng.random((64, 28, 28)), np.arange(64) % 3) for k in (1, 2)}
    for model in ("cnn_garst", "cnn_mcmahan"):
        one, two = (train("v6_fedavg", nodes, p, rounds=1, model=model, batch_size=32) for p in (1, 2))
        assert one["weights"] == two["weights"]


def test_distorted_images_are_learned_with_the_same_bits_in_one_process_and_two():
    """What training draws at random follows from the job's seed, wherever a node runs. Evaluation draws nothing."""
    rng = np.random.default_rng(0)
    y = np.arange(60) % 2
    X = rng.integers(0, 50, (60, 12, 12, 3), dtype=np.uint8)
    X[y == 0, :6], X[y == 1, 6:] = X[y == 0, :6] + 200, X[y == 1, 6:] + 200
    parts = {k: (X[k::2], y[k::2]) for k in (0, 1)}
    settings = {"model": "cnn_cifar:crop=10", "lr": 0.02, "batch_size": 10, "epochs": 3, "rounds": 3, "holdout": 0.3}
    one, two = (train("v6_fedavg", parts, p, **settings) for p in (1, 2))
    assert one["weights"] == two["weights"]
    assert one["final"]["accuracy"] > 0.9
    assert train("v6_fedavg", parts, seed=5, **settings)["weights"] != one["weights"]


@pytest.mark.parametrize("model", ["lstm_char:hidden=16", "lstm_word:hidden=16"])
def test_text_is_learned_with_the_same_bits_in_one_process_and_two(model):
    """A text that repeats itself: what follows is known. Every row counts once, whatever its length."""
    cycle = np.arange(200) % 5
    windows = np.array([cycle[i : i + 9] for i in range(0, 190, 3)])
    nodes = {k: (windows[k::2, :-1], windows[k::2, -1]) for k in (0, 1)}
    settings = {"model": model, "lr": 1.0, "batch_size": 4, "epochs": 5, "rounds": 4, "holdout": 0.2}
    one, two = (train("v6_fedavg", nodes, p, **settings) for p in (1, 2))
    assert one["weights"] == two["weights"]
    assert one["history"][-1]["accuracy"] == 1
    assert one["history"][-1]["evaluated"] == 20
    with pytest.raises(SafeError, match="must be the (characters|words)' codes 0, 1, ... without a"):
        train("v6_fedavg", {k: (X, np.where(y == 3, 7, y)) for k, (X, y) in nodes.items()}, **settings)
