"""The recurrent networks on text."""

import numpy as np
import pytest

from v6_federated import models
from v6_federated.base.errors import SafeError

NAMES = ["lstm_char", "lstm_word"]


def text(name, n=7, length=5, classes=4, hidden=3):
    """A small model of text, its parameters, rows and labels."""
    rng = np.random.default_rng(6)
    model = models.build({"name": name, "features": length, "classes": classes, "hidden": hidden})
    X = rng.integers(0, classes, (n, length)).astype(np.float32)
    return model, model.init(rng), X, rng.integers(0, classes, n)


def test_the_network_has_the_layers_of_mcmahans():
    model = models.build({"name": "lstm_char", "features": 80, "classes": 71})
    gates = 4 * 256
    layers = gates * (8 + 256) + 2 * gates + gates * (256 + 256) + 2 * gates
    assert model.size == 71 * 8 + layers + 257 * 71 == 817_535  # McMahan section 3: 866,578, of more characters


def test_the_network_on_words_has_mcmahans_parameters_but_for_what_torchs_lstm_lacks():
    """McMahan section 3: 4,950,544. TensorFlow's LSTM has one bias and peepholes, torch's has two biases and none."""
    spec = {"name": "lstm_word", "features": 10, "classes": 10_000}
    gates = 4 * 256
    embedding, softmax, weights = 10_000 * 192, (256 + 1) * 10_000, gates * (192 + 256)
    bias, peepholes = gates, 3 * 256
    assert embedding + softmax + weights + bias + peepholes == 4_950_544
    assert models.parameters(spec) == embedding + softmax + weights + 2 * bias == 4_950_800
    assert models.build(spec).size == 4_950_800


@pytest.mark.parametrize("name", NAMES)
def test_an_lstm_computed_by_hand_has_the_same_scores(name):
    """Gates i, f, g, o in torch's order: c = f c + i g, h = o tanh(c)."""
    model, w, X, _ = text(name)
    parts, start = {}, 0
    for part, shape in model.shapes.items():
        parts[part] = w[start : start + np.prod(shape)].reshape(shape).astype(np.float64)
        start += np.prod(shape)

    def sigmoid(z):
        return 1 / (1 + np.exp(-z))

    for row, found in zip(X.astype(int), model.scores(w, X), strict=True):
        read = parts["embedding.weight"][row]
        for k in range({"lstm_char": 2, "lstm_word": 1}[name]):
            W, U, b, b2 = (parts[f"lstm.{part}_l{k}"] for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
            h = c = np.zeros(3)
            out = []
            for x in read:
                i, f, g, o = np.split(W @ x + b + U @ h + b2, 4)
                c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
                h = sigmoid(o) * np.tanh(c)
                out.append(h)
            read = np.array(out)
        np.testing.assert_allclose(found, parts["next.weight"] @ read[-1] + parts["next.bias"], atol=1e-6)


def test_scores_keep_no_memory_of_the_words_before_the_last():
    """Of 10,000 words, those would be 400 kB a row."""
    model, w, X, _ = text("lstm_word")
    assert model.decided(model.module(model.inputs(X))).untyped_storage().nbytes() == 7 * 4 * 4


@pytest.mark.parametrize("name", NAMES)
def test_text_is_learned_from_every_code_given_those_before(name):
    """The loss is the mean over a row's beginnings of that of the next code. Scores are of the last one only."""
    model, w, X, y = text(name)
    codes = np.column_stack([X, y]).astype(int)
    losses = []
    for length in range(1, 6):
        beginning = models.build({"name": name, "features": length, "classes": 4, "hidden": 3})
        scores = beginning.scores(w, X[:, :length])
        losses.append(beginning.loss(scores, codes[:, length]))
    loss, _ = model.loss_and_gradient(w, X, y)
    assert loss == pytest.approx(np.mean(losses), rel=1e-6)
    assert model.scores(w, X) == pytest.approx(scores) and scores.shape == (7, 4)
    assert model.scores(w, X[:0]).shape == (0, 4)


@pytest.mark.parametrize("name", NAMES)
def test_the_gradient_of_text_is_that_of_the_loss_whole_and_in_chunks(name):
    model, w, X, y = text(name)
    gradient = model.loss_and_gradient(w, X, y)[1].numpy().copy()
    for i in range(0, model.size, 5):
        step = np.zeros_like(w)
        step[i] = 1e-2
        up, down = (model.loss_and_gradient(w + s, X, y)[0] for s in (step, -step))
        assert gradient[i] == pytest.approx((up - down) / 2e-2, abs=1e-4)
    model.chunk = 3
    assert model.loss_and_gradient(w, X, y)[1].numpy() == pytest.approx(gradient, abs=1e-6)


@pytest.mark.parametrize("wrong", [0.5, -1, 4])
@pytest.mark.parametrize(("name", "codes"), zip(NAMES, ["characters", "words"], strict=True))
def test_features_that_are_not_codes_are_refused(name, codes, wrong):
    model, w, X, y = text(name)
    X[2, 3] = wrong
    with pytest.raises(SafeError, match=f"not codes of {codes}; they must be whole numbers from 0 to 3"):
        model.loss_and_gradient(w, X, y)
