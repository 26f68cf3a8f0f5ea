"""Gradients against finite differences, autograd and scikit-learn."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from v6_federated import models
from v6_federated.models import outcomes


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("name", ["logreg", "logreg:l2=0.1", "svm", "nn_reddy:hidden=4"])
def test_the_gradient_is_that_of_the_loss(name, classes):
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
def test_gradients_written_by_hand_equal_autograd(name, activation):
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


@pytest.mark.parametrize("name", ["logreg", "fnn", "svm"])
def test_the_gradient_of_many_rows_is_their_mean(name):
    """Added row by row in float32, the last of half a million rows would hardly count."""
    rng = np.random.default_rng(0)
    model = models.build({"name": name, "features": 3, "classes": 3})
    X, y = rng.normal(size=(500, 3)).astype(np.float32), rng.integers(0, 3, 500)
    w = rng.normal(size=model.size).astype(np.float32)
    few = model.loss_and_gradient(w, X, y)[1].copy()
    many = model.loss_and_gradient(w, np.tile(X, (1000, 1)), np.tile(y, 1000))[1]
    last = model.shapes[[*model.shapes][-1]][0]  # of the last layer's biases
    np.testing.assert_allclose(many[-last:], few[-last:], rtol=5e-6, atol=2e-7)


@pytest.mark.parametrize("sizes", [[1] * 400, [10] * 35 + [7], [3] * 30, [150, 130, 40]])
@pytest.mark.parametrize("spec", ["2nn:hidden=6", "nn_reddy:hidden=8", "squared", "weights"])
def test_descending_in_blocks_is_a_step_for_each_minibatch(spec, sizes):
    """The first layer is written once in a block, so its sums within the block must follow from the rows' products."""
    rng = np.random.default_rng(4)
    named = {
        "squared": {"name": "mlp", "hidden": [6, 5], "loss": outcomes.Number(mean=0.0, scale=2.0).to_json()},
        "weights": models.parse("2nn"),
    }
    sized = {**named.get(spec, {}), "features": 20, "classes": 1 if spec == "squared" else 3}
    if spec == "weights":
        sized["weights"] = [0.5, 1.0, 3.0]
    model = models.build(sized if spec in named else {**models.parse(spec), **sized})
    X = rng.normal(size=(400, 20)).astype(np.float32)
    y = X[:, 0] - X[:, 1] if spec == "squared" else rng.integers(0, 3, 400)
    order, ends = rng.permutation(400), np.cumsum(sizes)
    batches = [order[end - size : end] for size, end in zip(sizes, ends, strict=True)]
    rates = [0.1 / (1 + 0.01 * i) for i in range(len(batches))]
    w = model.init(rng)
    expected, loss = w.copy(), 0.0
    for batch, eta in zip(batches, rates, strict=True):
        mean, g = model.loss_and_gradient(expected, X[batch], y[batch])
        loss += len(batch) * mean
        expected -= np.float32(eta) * g
    found = w.copy()
    left = iter(rates)
    total, n = model.descend(found, X, y, batches, lambda: next(left))
    assert n == sum(sizes)
    assert total == pytest.approx(loss, rel=1e-6)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert np.abs(found - w).max() > 0.01
    start, u, again, left = w.copy(), np.zeros_like(w), w.copy(), iter(rates)
    model.descend(again, X, y, batches, lambda: next(left), (start, u))  # the change apart from what it started from
    np.testing.assert_allclose(u, expected - w, atol=1e-6)
    assert (again == start + u).all() and (start == w).all()


@pytest.mark.parametrize(
    ("spec", "features", "batch_size", "expected"),
    [("2nn", 784, 10, True), ("2nn", 784, 50, False), ("2nn", 13, 10, False), ("fnn:hidden=4", 20_000, 1, False)],
)
def test_it_descends_in_blocks_where_that_is_faster(spec, features, batch_size, expected):
    assert models.build({**models.parse(spec), "features": features, "classes": 10}).descends(batch_size) == expected


def test_a_class_made_of_a_perceptron_keeps_its_own_gradient():
    class Penalised(models.Perceptron):
        pass

    assert not Penalised([784, 200, 10], "relu").descends(10)
