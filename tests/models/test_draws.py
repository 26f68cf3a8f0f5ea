"""What networks draw while they train is the same on every processor."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from v6_federated import models
from v6_federated.models.torch_base import Dropout, Network

# prints the draws of each network that draws: the images or units that it leaves out, as a digest
PRINTED = """
import hashlib
import numpy as np
import torch
from v6_federated import models

def digest(array):
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:12]

for name, features in (("cnn_reddy", 784), ("mlp:hidden=64,32,dropout=0.3,norm=layer", 20), ("cnn_cifar", 3072)):
    model = models.build({**models.parse(name), "features": features, "classes": 10})
    print(name, "starts as", digest(model.init(np.random.default_rng(1))))
    model.seed(np.random.default_rng(2))
    for layer in model.module.modules():
        if type(layer).__name__ == "Dropout":
            print(name, "drops", digest((layer(torch.ones(60, 128)) == 0).numpy()))
        if type(layer).__name__ == "Distortions":
            whole = torch.arange(3072.0).view(1, 3, 32, 32).expand(60, -1, -1, -1)
            print(name, "crops", digest(layer._distorted(whole).mean(dim=(2, 3)).argsort(0).numpy()))
"""


def uniform(seed, n):
    """What torch.rand is to be: the 24 lower bits of each word of a Mersenne Twister, as a share of 2^24."""
    words = np.frombuffer(np.random.RandomState(seed).bytes(4 * n), "<u4")
    return (words % 2**24 / 2**24).astype(np.float32)


@pytest.mark.parametrize("p", [0.2, 0.5, 1.0])
def test_dropout_drops_the_units_that_a_mersenne_twister_says(p):
    """Derived here without torch, whose own masks are others, and others on Intel's processors than on AMD's."""
    network = Network(nn.Sequential(nn.Dropout(p), nn.Linear(128, 2)))
    layer = network.module[0]
    network.seed(np.random.default_rng(7))
    seed = int(np.random.default_rng(7).integers(2**31))
    for first in (0, 1):  # a batch, and the next one
        kept = uniform(seed, 2 * 60 * 128)[first * 60 * 128 :][: 60 * 128].reshape(60, 128) >= np.float32(p)
        np.testing.assert_allclose(layer(torch.ones(60, 128)).numpy(), kept / (1 - p) if p < 1 else 0 * kept, rtol=1e-6)
    assert abs(kept.mean() - (1 - p)) < 4 * np.sqrt(p * (1 - p) / kept.size) + 1e-9
    assert (layer.eval()(torch.ones(3, 128)) == 1).all(), "an evaluation drops nothing"


def test_a_module_of_ones_own_has_the_same_dropout_in_its_place():
    """Also inside of layers that torch puts together; a class that is derived from nn.Dropout stays what it is."""

    class Mine(nn.Dropout):
        pass

    inner = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    network = Network(nn.Sequential(nn.Dropout(0.3), inner, Mine(0.3), nn.Linear(8, 2)))
    layers = [type(layer) for layer in network.module.modules() if isinstance(layer, nn.Dropout)]
    assert layers == [*[Dropout] * 4, Mine]
    assert "dropout" in dict(inner.named_modules()), "under its own name"


def test_gradients_with_dropout_are_those_of_differences():
    """The units that are dropped are the same in the forward and in the backward pass."""
    model = models.build({**models.parse("mlp:hidden=16,activation=tanh,dropout=0.4"), "features": 6, "classes": 3})
    rng = np.random.default_rng(1)
    X, y, w = rng.standard_normal((30, 6)).astype(np.float32), np.arange(30) % 3, model.init(rng)

    def at(w):
        model.seed(np.random.default_rng(5))
        loss, gradient = model.loss_and_gradient(w, X, y)
        return loss, gradient.numpy() + 0

    gradient = at(w)[1]
    for _ in range(3):
        direction = rng.standard_normal(model.size)
        direction /= np.linalg.norm(direction)
        up, down = (at((w + s * 2e-2 * direction).astype(np.float32))[0] for s in (1, -1))
        assert (up - down) / 4e-2 == pytest.approx(float(gradient @ direction), rel=0.05, abs=2e-3)


def test_draws_are_the_same_whatever_instructions_the_processor_has():
    printed = {
        name: subprocess.run(
            [sys.executable, "-c", PRINTED],
            env={**os.environ, "ATEN_CPU_CAPABILITY": name},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for name in ("default", "avx2", "avx512")  # a processor that lacks one takes the best that it has
    }
    assert printed["default"].count("drops") == 3 and printed["default"].count("crops") == 1
    assert printed["default"] == printed["avx2"] == printed["avx512"]
