"""Networks with convolutions, in torch: on the node's GPU where its operator offers one, else on its processor."""

import math
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from v6_federated.errors import SafeError
from v6_federated.guards import number_of_threads
from v6_federated.models.linear import predicted

CHUNK, CHUNK_CPU = 5000, 100  # rows at once: memory is bounded, and on a processor activations stay in the cache
torch.set_num_threads(number_of_threads())  # torch comes after the node has limited the other libraries


def device() -> torch.device:
    """``V6_FEDERATED_DEVICE`` of the node, default cpu. Raises SafeError if the node offers no such device."""
    name = os.environ.get("V6_FEDERATED_DEVICE", "") or "cpu"
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise SafeError(f"V6_FEDERATED_DEVICE={name}, but this node has no GPU that torch can use; expected cpu")
    return torch.device(name)


class Convolution:
    """A torch module whose parameters, and gradients, are views into one flat float32 vector.

    The module must have no buffers: they would not be averaged (batch-norm statistics need a rule of their own).
    """

    def __init__(self, module: nn.Module, side: int) -> None:
        if next(module.buffers(), None) is not None:
            raise SafeError("a module with buffers (batch norm?) cannot be averaged; expected parameters only")
        self.device, self.side = device(), side
        self.chunk = CHUNK_CPU if self.device.type == "cpu" else CHUNK
        self.module = module.to(self.device)
        self.shapes = {name: tuple(p.shape) for name, p in module.named_parameters()}
        self.size = sum(math.prod(shape) for shape in self.shapes.values())
        self._gradient = torch.zeros(self.size, device=self.device)
        for p, g in zip(module.parameters(), self._views(self._gradient), strict=True):
            p.grad = g

    def _views(self, w: torch.Tensor) -> list[torch.Tensor]:
        sizes = [math.prod(shape) for shape in self.shapes.values()]
        return [part.view(shape) for part, shape in zip(w.split(sizes), self.shapes.values(), strict=True)]

    def _load(self, w: Any) -> None:
        for p, view in zip(self.module.parameters(), self._views(self.asarray(w)), strict=True):
            p.data = view

    def init(self, rng: np.random.Generator) -> np.ndarray:
        """W and b uniform in +-1/sqrt(in), as torch does, from numpy's generator."""
        parts, bound = [], 1.0
        for name, shape in self.shapes.items():
            if name.endswith("weight"):
                bound = 1 / math.sqrt(math.prod(shape[1:]))
            parts.append(rng.uniform(-bound, bound, math.prod(shape)))
        return np.concatenate(parts).astype(np.float32)

    def asarray(self, array: Any) -> torch.Tensor:
        if isinstance(array, np.ndarray) and not array.flags.writeable:
            array = array.copy()  # torch knows no read-only arrays
        return torch.as_tensor(array, device=self.device)

    def seed(self, rng: np.random.Generator) -> None:
        """Dropout draws from torch's own generator."""
        torch.manual_seed(int(rng.integers(2**31)))

    def loss_and_gradient(self, w: Any, X: Any, y: Any) -> tuple[float, torch.Tensor]:
        self._load(w)
        self._gradient.zero_()
        total = 0.0
        for i in range(0, len(y), self.chunk):
            z = self.module(self._image(X[i : i + self.chunk]))
            loss = functional.cross_entropy(z, self.asarray(y[i : i + self.chunk]), reduction="sum") / len(y)
            loss.backward()  # adds to the gradient
            total += float(loss.detach())
        return total, self._gradient

    def scores(self, w: Any, X: Any) -> np.ndarray:
        self._load(w)
        self.module.eval()
        with torch.no_grad():
            parts = [self.module(self._image(X[i : i + self.chunk])).cpu() for i in range(0, len(X), self.chunk)]
        self.module.train()
        return torch.cat(parts).numpy() if parts else np.empty((0, list(self.shapes.values())[-1][0]), np.float32)

    def loss(self, scores: np.ndarray, y: np.ndarray) -> float:
        return float(functional.cross_entropy(torch.from_numpy(scores), torch.as_tensor(np.asarray(y))))

    def predict(self, w: Any, X: Any) -> np.ndarray:
        return predicted(self.scores(w, X))

    def _image(self, X: Any) -> torch.Tensor:
        """(n, 1, side, side) with channels last in memory, in which pooling and convolutions are faster."""
        return self.asarray(X).view(-1, self.side, self.side, 1).permute(0, 3, 1, 2)


def _side(features: int) -> int:
    side = math.isqrt(features)
    if side * side != features or side < 4:
        raise SafeError(f"{features} features are not a square image; expected for example 784 = 28 x 28")
    return side


POOLED = (nn.MaxPool2d(2), nn.ReLU())  # the same numbers as in the other order, with a quarter of the ReLUs


def cnn_garst(features: int, classes: int) -> Convolution:
    """Garst Table B.2: convolution 3x3 to one channel, padding 1; max pool 2; linear."""
    side = _side(features)
    half = side // 2
    layers = [nn.Conv2d(1, 1, 3, padding=1), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(half * half, classes)]
    return Convolution(nn.Sequential(*layers), side)


def cnn_reddy(features: int, classes: int, dropout: float = 0.5) -> Convolution:
    """Reddy Table 4.4: convolution 3x3x32 valid, pool 2, dense 128, dropout (its rate is not printed), dense."""
    side = _side(features)
    half = (side - 2) // 2
    return Convolution(
        nn.Sequential(
            nn.Conv2d(1, 32, 3), *POOLED, nn.Flatten(),
            nn.Linear(32 * half * half, 128), nn.ReLU(), nn.Dropout(dropout), nn.Linear(128, classes),
        ),
        side,
    )  # fmt: skip


def cnn_mcmahan(features: int, classes: int) -> Convolution:
    """McMahan section 3: convolutions 5x5 to 32 and 64 channels, each with 2x2 max pooling, dense 512, softmax."""
    side = _side(features)
    quarter = side // 2 // 2
    return Convolution(
        nn.Sequential(
            nn.Conv2d(1, 32, 5, padding=2), *POOLED, nn.Conv2d(32, 64, 5, padding=2), *POOLED, nn.Flatten(),
            nn.Linear(64 * quarter * quarter, 512), nn.ReLU(), nn.Linear(512, classes),
        ),
        side,
    )  # fmt: skip


ARCHITECTURES: dict[str, Callable[..., Convolution]] = {
    "cnn_garst": cnn_garst, "cnn_reddy": cnn_reddy, "cnn_mcmahan": cnn_mcmahan
}  # fmt: skip
