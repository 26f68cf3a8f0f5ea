"""Networks for images of any size: what they see, how they start, and that they learn."""

import numpy as np
import pytest

from v6_federated import models

torch = pytest.importorskip("torch")
from v6_federated.models.fully_connected import mlp  # noqa: E402


def made(name, features, classes=3):
    return models.build({**models.parse(name), "features": features, "classes": classes})


@pytest.mark.parametrize(
    ("name", "features", "image"),
    [
        ("cnn", 64, (1, 8, 8)),
        ("cnn", 3 * 32 * 32, (3, 32, 32)),
        ("cnn:width=20", 200, (1, 10, 20)),
        ("cnn:width=20,channels=3", 600, (3, 10, 20)),
        ("resnet18", 784, (1, 28, 28)),
        ("resnet18", 3 * 65 * 65, (3, 65, 65)),
    ],
)
def test_rows_are_images_with_channels_last(name, features, image):
    model = made(name, features)
    channels, height, width = image
    X = np.arange(2 * features, dtype=np.float32).reshape(2, features) / features
    seen = model.inputs(X).numpy()
    assert seen.shape == (2, *image) == (2, *model.image)
    np.testing.assert_array_equal(seen[1].transpose(1, 2, 0), X[1].reshape(height, width, channels))
    assert model.scores(model.init(np.random.default_rng(0)), X).shape == (2, 3)


def test_resnet18_has_torchvisions_shapes():
    """torchvision's resnet18 has 11,689,512 parameters: 1,000 classes, 3 channels, a stem of 7 x 7."""
    spec = {"name": "resnet18", "features": 3 * 224 * 224, "classes": 1000}
    assert models.parameters(spec) == 11_689_512


@pytest.mark.parametrize("name", ["cnn", "resnet18", "mlp:norm=layer"])
def test_norms_start_as_one_and_zero(name):
    model = made(name, 64)
    w = model.init(np.random.default_rng(0))
    start = 0
    for layer, shape in model.shapes.items():
        part = w[start : start + int(np.prod(shape))]
        start += part.size
        if isinstance(model.module.get_submodule(layer.rpartition(".")[0]), torch.nn.GroupNorm | torch.nn.LayerNorm):
            assert (part == float(layer.endswith("weight"))).all()
        else:
            assert len(part) < 3 or part.std() > 0


@pytest.mark.parametrize("name", ["cnn", "resnet18", "mlp:hidden=16,8,activation=tanh,norm=layer"])
def test_gradients_are_those_of_differences(name):
    model, rng = made(name, 64), np.random.default_rng(1)
    X, y = rng.standard_normal((5, 64)).astype(np.float32), np.array([0, 1, 2, 1, 0])
    w = model.init(rng)
    gradient = model.loss_and_gradient(w, X, y)[1].numpy() + 0
    for _ in range(3):
        direction = rng.standard_normal(model.size)
        direction /= np.linalg.norm(direction)
        up, down = ((w + s * 2e-2 * direction).astype(np.float32) for s in (1, -1))
        slope = (model.loss(model.scores(up, X), y) - model.loss(model.scores(down, X), y)) / 4e-2
        assert slope == pytest.approx(float(gradient @ direction), rel=0.05, abs=2e-3)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(
    ("name", "lr"), [("cnn", 0.05), ("mlp:hidden=32,16,activation=gelu,norm=layer,dropout=0.2", 0.5)]
)
def test_they_learn_digits(name, lr, seed):
    """Over 12 seeds .90 to .94 and .76 to .87 of the digits are right, .1 by chance."""
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    X = (X / 16).astype(np.float32)
    model = made(name, 64, 10)
    model.seed(np.random.default_rng([2, seed]))
    w = model.asarray(model.init(np.random.default_rng([0, seed])))
    rng = np.random.default_rng([3, seed])
    for _ in range(100):
        batch = rng.choice(1400, 100, replace=False)
        w = w - lr * model.loss_and_gradient(w, X[batch], y[batch])[1]
    assert (model.predict(w, X[1400:]) == y[1400:]).mean() > 0.6


def test_a_plain_mlp_is_the_numpy_network_and_the_torch_one_agrees():
    numpy, with_torch = made("mlp:hidden=7,5", 6), made("mlp:hidden=7,5,activation=tanh", 6)
    assert isinstance(numpy, models.Perceptron) and not isinstance(with_torch, models.Perceptron)
    rng = np.random.default_rng(0)
    w, X = numpy.init(rng), rng.standard_normal((9, 6)).astype(np.float32)
    turned = np.concatenate([np.concatenate([W.T.ravel(), b]) for W, b in numpy.layers(w)])
    relu = mlp(6, 3, [7, 5], "relu", 0, "none")
    np.testing.assert_allclose(relu.scores(turned, X), numpy.scores(w, X), atol=1e-6)
