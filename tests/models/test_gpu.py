"""Models on a GPU."""

import numpy as np
import pytest
import torch

from v6_federated import models
from v6_federated.base.errors import SafeError

TEXTS = ["lstm_char:hidden=16", "lstm_word:hidden=16"]


def test_a_gpu_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv("V6_FEDERATED_DEVICE", "cuda")
    with pytest.raises(SafeError, match="V6_FEDERATED_DEVICE=cuda, but this node has no GPU .*; set it to cpu"):
        models.build({"name": "cnn_garst", "features": 784, "classes": 10})


# there is nothing to compare without a GPU
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", ["cnn_garst", "cnn_reddy", "cnn_mcmahan", "cnn_cifar", *TEXTS])
def test_a_gpu_gives_the_same_bits_each_time_and_nearly_those_of_a_processor(name, monkeypatch):
    rng = np.random.default_rng(0)
    text = name.startswith("lstm")
    X = rng.integers(0, 10, (40, 784)) if text else rng.random((40, 784), dtype=np.float32)
    y = rng.integers(0, 10, 40)

    def gradient(device):
        monkeypatch.setenv("V6_FEDERATED_DEVICE", device)
        torch.manual_seed(2)
        model = models.build({**models.parse(name), "features": 784, "classes": 10})
        assert model.asarray(y).device.type == device
        w = model.asarray(model.init(np.random.default_rng(1)))
        return model.loss_and_gradient(w, model.asarray(X), model.asarray(y))[1].cpu().numpy().copy()

    first = gradient("cuda")
    np.testing.assert_array_equal(first, gradient("cuda"))
    np.testing.assert_allclose(first, gradient("cpu"), atol=1e-6)
