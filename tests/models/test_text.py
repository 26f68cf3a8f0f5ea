"""The recurrent network on text."""

import numpy as np
import pytest

from v6_federated import models
from v6_federated.base.errors import SafeError


def characters(n=7, length=5, classes=4, hidden=3):
    """A small model of text, its parameters, rows and labels."""
    rng = np.random.default_rng(6)
    model = models.build({"name": "lstm_char", "features": length, "classes": classes, "hidden": hidden})
    X = rng.integers(0, classes, (n, length)).astype(np.float32)
    return model, model.init(rng), X, rng.integers(0, classes, n)


def test_the_network_has_the_layers_of_mcmahans():
    model = models.build({"name": "lstm_char", "features": 80, "classes": 71})
    gates = 4 * 256
    layers = gates * (8 + 256) + 2 * gates + gates * (256 + 256) + 2 * gates
    assert model.size == 71 * 8 + layers + 257 * 71 == 817_535  # McMahan section 3: 866,578, of more characters


def test_text_is_learned_from_every_character_given_those_before():
    """The loss is the mean over a row's beginnings of that of the next character. Scores are of the last one only."""
    model, w, X, y = characters()
    codes = np.column_stack([X, y]).astype(int)
    losses = []
    for length in range(1, 6):
        beginning = models.build({"name": "lstm_char", "features": length, "classes": 4, "hidden": 3})
        scores = beginning.scores(w, X[:, :length])
        losses.append(beginning.loss(scores, codes[:, length]))
    loss, _ = model.loss_and_gradient(w, X, y)
    assert loss == pytest.approx(np.mean(losses), rel=1e-6)
    assert model.scores(w, X) == pytest.approx(scores) and scores.shape == (7, 4)
    assert model.scores(w, X[:0]).shape == (0, 4)


def test_the_gradient_of_text_is_that_of_the_loss_whole_and_in_chunks():
    model, w, X, y = characters()
    gradient = model.loss_and_gradient(w, X, y)[1].numpy().copy()
    for i in range(0, model.size, 5):
        step = np.zeros_like(w)
        step[i] = 1e-2
        up, down = (model.loss_and_gradient(w + s, X, y)[0] for s in (step, -step))
        assert gradient[i] == pytest.approx((up - down) / 2e-2, abs=1e-4)
    model.chunk = 3
    assert model.loss_and_gradient(w, X, y)[1].numpy() == pytest.approx(gradient, abs=1e-6)


@pytest.mark.parametrize("wrong", [0.5, -1, 4])
def test_features_that_are_not_codes_of_characters_are_refused(wrong):
    model, w, X, y = characters()
    X[2, 3] = wrong
    with pytest.raises(SafeError, match="not codes of characters; they must be whole numbers from 0 to 3"):
        model.loss_and_gradient(w, X, y)
