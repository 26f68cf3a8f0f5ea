"""Models: parameter counts of the documents, and gradients against finite differences and torch."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from v6_federated import models
from v6_federated.base.errors import SafeError


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("logreg", 7_850),  # Reddy Table 4.2
        ("svm", 7_850),
        ("fnn", 784 * 100 + 100 + 100 * 10 + 10),  # Garst Table B.1
        ("nn_reddy", 101_770),  # Reddy Table 4.3
        ("2nn", 199_210),  # McMahan section 3
        ("cnn_garst", 9 + 1 + 196 * 10 + 10),  # Garst Table B.2
        ("cnn_reddy", 693_962),  # Reddy Table 4.4
        ("cnn_mcmahan", 1_663_370),  # McMahan section 3
    ],
)
def test_parameter_counts(name, size):
    model = models.build({"name": name, "features": 784, "classes": 10})
    assert model.size == size == sum(int(np.prod(shape)) for shape in model.shapes.values())
    w = model.init(np.random.default_rng(0))
    assert w.shape == (size,) and w.dtype == np.float32


def test_linear_models_start_at_zero_and_have_one_row_when_binary():
    for name in ("logreg", "svm"):
        model = models.build({"name": name, "features": 3, "classes": 2})
        assert model.shapes == {"coef": (1, 3), "intercept": (1,)}
        assert not model.init(np.random.default_rng(0)).any()


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("name", ["logreg", "logreg:l2=0.1", "svm", "nn_reddy:hidden=4"])
def test_gradient_is_that_of_the_loss(name, classes):
    rng = np.random.default_rng(1)
    model = models.build({**models.parse(name), "features": 3, "classes": classes})
    X, y = rng.normal(size=(9, 3)).astype(np.float32), np.arange(9) % classes
    w = rng.normal(size=model.size).astype(np.float32) * 0.5
    _, gradient = model.loss_and_gradient(w, X, y)
    gradient = gradient.copy()
    for i in range(model.size):
        step = np.zeros_like(w)
        step[i] = 1e-2
        up, down = (model.loss_and_gradient(w + s, X, y)[0] for s in (step, -step))
        assert gradient[i] == pytest.approx((up - down) / 2e-2, abs=2e-2 if name == "svm" else 4e-3)


@pytest.mark.parametrize(("name", "activation"), [("2nn", torch.nn.ReLU), ("nn_reddy", torch.nn.Sigmoid)])
def test_gradients_by_hand_equal_autograd(name, activation):
    rng = np.random.default_rng(2)
    model = models.build({"name": name, "hidden": 6, "features": 5, "classes": 3})
    w = model.init(rng)
    X, y = rng.normal(size=(7, 5)).astype(np.float32), np.arange(7) % 3
    parameters = [torch.tensor(np.array(p), requires_grad=True) for layer in model.layers(w) for p in layer]
    h = torch.tensor(X)
    for i in range(0, len(parameters), 2):
        h = h @ parameters[i] + parameters[i + 1]
        h = activation()(h) if i < len(parameters) - 2 else h
    loss = torch.nn.functional.cross_entropy(h, torch.tensor(y))
    loss.backward()
    ours, gradient = model.loss_and_gradient(w, X, y)
    assert ours == pytest.approx(loss.item(), abs=1e-6)
    np.testing.assert_allclose(gradient, np.concatenate([p.grad.ravel() for p in parameters]), atol=1e-6)


def test_logistic_regression_finds_what_scikit_learn_finds():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(200, 3)).astype(np.float32)
    y = (X @ [1, -2, 0.5] + rng.logistic(size=200) > 0).astype(int)
    theirs = LogisticRegression(C=1 / (200 * 0.05), tol=1e-8).fit(X, y)  # l2 = 1 / (C n)
    model = models.build({"name": "logreg", "l2": 0.05, "features": 3, "classes": 2})
    w = model.init(rng)
    for _ in range(2000):
        w = w - np.float32(0.5) * model.loss_and_gradient(w, X, y)[1]
    np.testing.assert_allclose(model.split(w)[0], theirs.coef_, atol=1e-4)
    np.testing.assert_allclose(model.split(w)[1], theirs.intercept_, atol=1e-4)


def test_losses_do_not_overflow():
    for name in ("logreg", "svm", "fnn", "nn_reddy"):
        for classes in (2, 3):
            model = models.build({"name": name, "features": 2, "classes": classes})
            w = np.full(model.size, 100, np.float32)
            loss, gradient = model.loss_and_gradient(w, np.full((4, 2), 50, np.float32), np.arange(4) % classes)
            assert np.isfinite(loss) and np.isfinite(gradient).all()


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("resnet", "unknown model 'resnet'"),
        ("fnn:hidden", "expected NAME=NUMBER"),
        ("fnn:hidden=0", "expected a whole number from 1"),
        ("fnn:hidden=2.5", "expected a whole number from 1"),
        ("fnn:hidden=5,hidden=6", "given twice"),
        ("cnn_reddy:dropout=2", "expected a number from 0 to 0.5"),
        ("logreg:l2=-1", "expected a number from 0"),
        ("logreg:features=2", "comes from the data"),
        ({"name": ["fnn"]}, "unknown model ['fnn']"),
        ({"name": "fnn", "depth": 3, "features": 2, "classes": 2}, "does not take the option depth"),
        ({"name": "cnn_garst", "features": 30, "classes": 2}, "not a square image"),
    ],
)
def test_wrong_models_are_refused(model, says):
    with pytest.raises(SafeError) as error:
        models.build(models.parse(model))
    assert says in str(error.value)


def test_a_module_with_buffers_is_refused():
    from v6_federated.models.torch_base import Network

    with pytest.raises(SafeError, match="buffers"):
        Network(torch.nn.Sequential(torch.nn.BatchNorm2d(1)))


def characters(n=7, length=5, classes=4, hidden=3):
    """A small model of text, its parameters, rows and labels."""
    rng = np.random.default_rng(6)
    model = models.build({"name": "lstm_char", "features": length, "classes": classes, "hidden": hidden})
    X = rng.integers(0, classes, (n, length)).astype(np.float32)
    return model, model.init(rng), X, rng.integers(0, classes, n)


def test_mcmahans_lstm_has_his_layers():
    model = models.build({"name": "lstm_char", "features": 80, "classes": 71})
    gates = 4 * 256
    layers = gates * (8 + 256) + 2 * gates + gates * (256 + 256) + 2 * gates
    assert model.size == 71 * 8 + layers + 257 * 71 == 817_535  # McMahan section 3: 866,578, of more characters


def test_text_is_learned_from_every_character_given_those_before():
    """The mean over the beginnings of a row of the loss of the character that follows; counted is the last only."""
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


def test_the_gradient_of_text_is_that_of_the_loss_in_chunks_too():
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
def test_features_that_are_no_characters_are_refused(wrong):
    model, w, X, y = characters()
    X[2, 3] = wrong
    with pytest.raises(SafeError, match="no characters; expected their codes, whole numbers from 0 to 3"):
        model.loss_and_gradient(w, X, y)


def test_a_gpu_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv("V6_FEDERATED_DEVICE", "cuda")
    with pytest.raises(SafeError, match="V6_FEDERATED_DEVICE=cuda, but this node has no GPU .*; expected cpu"):
        models.build({"name": "cnn_garst", "features": 784, "classes": 10})


# there is nothing to compare without a GPU; dropout's chances differ between devices
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", ["cnn_garst", "cnn_reddy:dropout=0", "cnn_mcmahan", "lstm_char:hidden=16"])
def test_a_gpu_brings_the_same_bits_each_time_and_almost_those_of_a_processor(name, monkeypatch):
    rng = np.random.default_rng(0)
    text = name.startswith("lstm")
    X = rng.integers(0, 10, (40, 784)) if text else rng.random((40, 784), dtype=np.float32)
    y = rng.integers(0, 10, 40)

    def gradient(device):
        monkeypatch.setenv("V6_FEDERATED_DEVICE", device)
        model = models.build({**models.parse(name), "features": 784, "classes": 10})
        assert model.asarray(y).device.type == device
        w = model.asarray(model.init(np.random.default_rng(1)))
        return model.loss_and_gradient(w, model.asarray(X), model.asarray(y))[1].cpu().numpy().copy()

    first = gradient("cuda")
    np.testing.assert_array_equal(first, gradient("cuda"))
    np.testing.assert_allclose(first, gradient("cpu"), atol=1e-6)


@pytest.mark.parametrize("name", ["logreg", "fnn", "svm"])
def test_the_gradient_of_many_rows_is_their_mean(name):
    """In float32, row by row, half a million rows would lose digits: the last ones count for little beside the sum."""
    rng = np.random.default_rng(0)
    model = models.build({"name": name, "features": 3, "classes": 3})
    X, y = rng.normal(size=(500, 3)).astype(np.float32), rng.integers(0, 3, 500)
    w = rng.normal(size=model.size).astype(np.float32)
    few = model.loss_and_gradient(w, X, y)[1].copy()
    many = model.loss_and_gradient(w, np.tile(X, (1000, 1)), np.tile(y, 1000))[1]
    last = model.shapes[[*model.shapes][-1]][0]  # of the last layer's biases
    np.testing.assert_allclose(many[-last:], few[-last:], rtol=5e-6, atol=2e-7)
