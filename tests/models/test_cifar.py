"""McMahan's network for CIFAR-10: its layers in plain numpy, and what training draws at random."""

import numpy as np
import pytest

from v6_federated import models
from v6_federated.base.errors import SafeError

torch = pytest.importorskip("torch")
images = pytest.importorskip("v6_federated.models.images", reason="it needs torch")
Distortions, LocalResponseNorm, whitened = images.Distortions, images.LocalResponseNorm, images.whitened


def small(crop=8, side=12, channels=3, classes=4):
    spec = {"name": "cnn_cifar", "features": side * side * channels, "classes": classes, "crop": crop}
    model = models.build(spec)
    rng = np.random.default_rng(0)
    return model, model.init(rng), rng.random((5, spec["features"]), dtype=np.float32), np.array([0, 1, 2, 3, 1])


def test_it_has_the_tutorials_number_of_parameters():
    """The tutorial prints no number; the paper says about 10^6. Two pools leave 6 x 6 pixels of 24 x 24."""
    spec = {"name": "cnn_cifar", "features": 3072, "classes": 10}
    convolutions = 5 * 5 * 3 * 64 + 64 + 5 * 5 * 64 * 64 + 64
    dense = 6 * 6 * 64 * 384 + 384 + 384 * 192 + 192 + 192 * 10 + 10
    model = models.build(spec)
    assert models.parameters(spec) == model.size == convolutions + dense == 1_068_298
    assert model.module(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


@pytest.mark.parametrize(("crop", "side", "channels"), [(8, 8, 1), (9, 12, 3), (11, 16, 1), (14, 15, 3)])
def test_parameters_are_known_for_other_crops(crop, side, channels):
    spec = {"name": "cnn_cifar", "features": side * side * channels, "classes": 3, "crop": crop}
    assert models.parameters(spec) == models.build(spec).size
    assert models.build(spec).module(torch.zeros(2, channels, side, side)).shape == (2, 3)


def convolved(x, W, b):
    """Convolution with zeros around the image: x (height, width, in), W (out, in, 5, 5)."""
    padded = np.pad(x, ((2, 2), (2, 2), (0, 0)))
    patches = np.lib.stride_tricks.sliding_window_view(padded, (5, 5), axis=(0, 1))  # (height, width, in, 5, 5)
    return np.einsum("hwcij,ocij->hwo", patches, W) + b


def pooled(x):
    """Max over 3 x 3 pixels, stride 2. TensorFlow's SAME pads an even side at its end only."""
    side = len(x) // 2
    return np.array(
        [[x[2 * i : 2 * i + 3, 2 * j : 2 * j + 3].max(axis=(0, 1)) for j in range(side)] for i in range(side)]
    )


def normed(x):
    """tf.nn.lrn(x, 4, bias=1.0, alpha=0.001 / 9.0, beta=0.75)."""
    sums = [np.square(x[..., max(0, c - 4) : c + 5]).sum(axis=-1) for c in range(x.shape[-1])]
    return x / (1 + 0.001 / 9 * np.stack(sums, axis=-1)) ** 0.75


def test_evaluation_is_that_of_the_tutorial_in_numpy():
    """The crop in the middle, whitened, through all layers."""
    model, w, X, _ = small()
    w = 3 * w  # so that norms matter
    parts, start = {}, 0
    for name, shape in model.shapes.items():
        parts[name] = w[start : start + np.prod(shape)].reshape(shape).astype(np.float64)
        start += np.prod(shape)
    (W1, b1), (W2, b2), *dense = zip([*parts.values()][::2], [*parts.values()][1::2], strict=True)
    for row, found in zip(X, model.scores(w, X), strict=True):
        x = 255 * row.reshape(12, 12, 3)[2:10, 2:10].astype(np.float64)
        x = (x - x.mean()) / max(x.std(), 1 / np.sqrt(x.size))
        x = normed(pooled(np.maximum(convolved(x, W1, b1), 0)))
        x = pooled(normed(np.maximum(convolved(x, W2, b2), 0)))
        x = x.transpose(2, 0, 1).ravel()
        for i, (W, b) in enumerate(dense):
            x = W @ x + b if i == 2 else np.maximum(W @ x + b, 0)
        np.testing.assert_allclose(found, x, rtol=1e-4, atol=1e-4 * np.abs(x).max())


def test_the_local_response_norm_is_torchs():
    """torch's alpha is of the mean over the channels. Its layer is not used for its gradient on a GPU."""
    x = 3 * torch.randn(4, 20, 5, 6, generator=torch.Generator().manual_seed(0))
    weights = torch.randn(x.shape, generator=torch.Generator().manual_seed(1))
    found = []
    for norm in (LocalResponseNorm(), torch.nn.LocalResponseNorm(9, alpha=0.001, beta=0.75, k=1)):
        leaf = x.clone().requires_grad_()
        y = norm(leaf)
        (y * weights).sum().backward()
        found.append((y.detach().numpy(), leaf.grad.numpy()))
    for mine, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-6)


def images(n=400, height=12, width=10, channels=3):
    return torch.from_numpy(np.random.default_rng(1).random((n, channels, height, width), dtype=np.float32))


def test_training_sees_a_random_crop_flip_and_contrast():
    """Each image seen is one of the few that can be seen, and all of them are."""
    x, crop = images(), Distortions(8)
    torch.manual_seed(0)
    drawn = {"top": set(), "left": set(), "flipped": set()}
    factors = []
    for image, seen in zip(x.numpy().astype(np.float64), crop._distorted(x).numpy(), strict=True):
        fits = []
        for top in range(5):
            for left in range(3):
                for flipped in (False, True):
                    part = image[:, top : top + 8, left : left + 8]
                    part = part[:, :, ::-1] if flipped else part
                    apart, away = (a - a.mean(axis=(1, 2), keepdims=True) for a in (part, seen))
                    factor = (apart * away).sum() / (apart * apart).sum()
                    if np.allclose(seen, part.mean(axis=(1, 2), keepdims=True) + factor * apart, atol=1e-5):
                        fits.append((top, left, flipped, factor))
        ((top, left, flipped, factor),) = fits
        for name, value in zip(drawn, (top, left, flipped), strict=True):
            drawn[name].add(value)
        factors.append(factor)
    assert drawn == {"top": {*range(5)}, "left": {*range(3)}, "flipped": {False, True}}
    assert 0.2 <= min(factors) < 0.25 and 1.75 < max(factors) <= 1.8 and np.mean(factors) == pytest.approx(1, abs=0.1)


def test_brightness_would_change_nothing():
    """Whitening takes away what the tutorial adds to all values of an image."""
    crop, x = Distortions(8), images(20)
    torch.manual_seed(0)
    plain = crop(x)
    torch.manual_seed(0)
    np.testing.assert_allclose(crop(x + 63 / 255).numpy(), plain.numpy(), atol=1e-5)


def test_whitening_leaves_an_image_of_one_colour_at_zero():
    x = torch.full((2, 3, 8, 8), 0.5)
    x[1] = images(1, 8, 8)[0]
    found = whitened(x).numpy()
    assert np.isfinite(found).all() and np.abs(found[0]).max() < 0.01
    assert found[1].mean() == pytest.approx(0, abs=1e-6) and found[1].std() == pytest.approx(1, abs=1e-5)
    assert whitened(x[:0]).shape == (0, 3, 8, 8)


def test_only_training_is_random_and_a_seed_decides_it():
    model, w, X, y = small()

    def gradient(seed):
        model.seed(np.random.default_rng(seed))
        return model.loss_and_gradient(w, X, y)[1].numpy().copy()

    first = gradient(1)
    np.testing.assert_array_equal(first, gradient(1))
    assert (first != gradient(2)).any()
    following = model.loss_and_gradient(w, X, y)[1].numpy().copy()
    assert (following != gradient(2)).any()
    scores = model.scores(w, X)
    model.seed(np.random.default_rng(3))
    np.testing.assert_array_equal(scores, model.scores(w, X))
    before = torch.get_rng_state()
    model.scores(w, X)
    assert torch.equal(before, torch.get_rng_state())


def test_chunks_of_rows_do_not_change_what_is_drawn():
    model, w, X, y = small()
    found = []
    for model.chunk in (100, 2):
        model.seed(np.random.default_rng(1))
        found.append(model.loss_and_gradient(w, X, y)[1].numpy().copy())
    np.testing.assert_allclose(*found, atol=1e-6)


def test_the_gradient_is_that_of_the_loss():
    """With the same draws; an image of the crop's size can only be flipped and have another contrast."""
    model, w, X, y = small(crop=12)
    model.seed(np.random.default_rng(1))
    gradient = model.loss_and_gradient(w, X, y)[1].numpy().copy()
    rng = np.random.default_rng(2)
    for _ in range(3):
        direction = rng.standard_normal(model.size)
        direction /= np.linalg.norm(direction)
        losses = []
        for s in (1, -1):
            model.seed(np.random.default_rng(1))
            losses.append(model.loss_and_gradient((w + s * 2e-2 * direction).astype(np.float32), X, y)[0])
        assert (losses[0] - losses[1]) / 4e-2 == pytest.approx(float(gradient @ direction), rel=0.05, abs=2e-3)


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ({"name": "cnn_cifar", "features": 400, "classes": 2}, "images of 20 x 20 pixels are smaller than crops of 24"),
        (
            {"name": "cnn_cifar", "features": 600, "classes": 2, "width": 20, "channels": 3, "crop": 11},
            "images of 10 x 20 pixels are smaller than crops of 11 x 11; set the option crop to 10 or less",
        ),
        ("cnn_cifar:crop=7", "crop=7 of the model cnn_cifar is refused: it should be a whole number from 8 to 10000"),
        ("cnn:crop=8", "the model cnn does not take the option crop; its options are channels, width"),
        ({"name": "cnn_cifar", "features": 50, "classes": 2}, "50 features are not a square image of 1 or 3 channels"),
    ],
)
def test_wrong_images_and_crops_are_refused(model, says):
    with pytest.raises(SafeError) as error:
        models.build(models.parse(model))
    assert str(error.value).startswith(says) and "\n" not in str(error.value)
