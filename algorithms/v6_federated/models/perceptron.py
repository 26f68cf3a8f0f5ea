"""Fully connected networks in numpy, with gradients by hand.

On minibatches of ten rows these take less than half the time of torch's autograd (benchmarks/cost.py), and an image
or a task that needs no torch starts seconds sooner.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Literal

import numpy as np

from v6_federated.models.linear import predicted

CHUNK = 500  # rows evaluated at once: activations stay in the cache


class Perceptron:
    """Layers x W + b, with ``activation`` between them and cross-entropy of the softmax at the end.

    Args:
        widths: features, hidden widths, classes; W of a layer is (in, out), b is (out,).
        activation: of the hidden layers.
    """

    def __init__(self, widths: list[int], activation: Literal["relu", "sigmoid"]) -> None:
        self.widths, self.activation = widths, activation
        self.shapes: dict[str, tuple[int, ...]] = {}
        for i, (a, b) in enumerate(pairwise(widths), start=1):
            self.shapes[f"layer{i}.weight"], self.shapes[f"layer{i}.bias"] = (a, b), (b,)
        self.size = sum(a * b + b for a, b in pairwise(widths))
        self._gradient = np.empty(self.size, np.float32)

    def layers(self, w: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """(W, b) of each layer as views into w."""
        start = 0
        for a, b in pairwise(self.widths):
            middle, end = start + a * b, start + a * b + b
            yield w[start:middle].reshape(a, b), w[middle:end]
            start = end

    def init(self, rng: np.random.Generator) -> np.ndarray:
        """W and b uniform in +-1/sqrt(in), the habit of torch; McMahan does not say which was used."""
        w = np.empty(self.size, np.float32)
        for W, b in self.layers(w):
            bound = 1 / np.sqrt(len(W))
            W[:] = rng.uniform(-bound, bound, W.shape)
            b[:] = rng.uniform(-bound, bound, b.shape)
        return w

    def asarray(self, array: np.ndarray) -> np.ndarray:
        return array

    def seed(self, rng: np.random.Generator) -> None:
        """Nothing inside is random."""

    def _forward(self, w: np.ndarray, X: np.ndarray) -> list[np.ndarray]:
        """The input of each layer, and the decision values."""
        outputs = [X]
        for i, (W, b) in enumerate(self.layers(w), start=2):
            z = outputs[-1] @ W
            z += b
            if i < len(self.widths):
                if self.activation == "relu":
                    np.maximum(z, 0, out=z)
                else:
                    np.tanh(z * np.float32(0.5), out=z)  # sigmoid(z) = (1 + tanh(z / 2)) / 2 cannot overflow
                    z += 1
                    z *= np.float32(0.5)
            outputs.append(z)
        return outputs

    def scores(self, w: np.ndarray, X: np.ndarray) -> np.ndarray:
        if len(X) == 0:
            return np.empty((0, self.widths[-1]), np.float32)
        return np.concatenate([self._forward(w, X[i : i + CHUNK])[-1] for i in range(0, len(X), CHUNK)])

    def loss(self, scores: np.ndarray, y: np.ndarray) -> float:
        shifted = scores - scores.max(axis=1, keepdims=True)
        return float(np.mean(np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(len(y)), y]))

    def loss_and_gradient(self, w: np.ndarray, X: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray]:
        *inputs, z = self._forward(w, X)
        n, rows = len(y), np.arange(len(y))
        z -= z.max(axis=1, keepdims=True)
        own = z[rows, y]
        np.exp(z, out=z)
        total = z.sum(axis=1, keepdims=True)
        loss = float(np.mean(np.log(total[:, 0]) - own))
        delta = z
        delta /= total
        delta[rows, y] -= 1
        delta /= np.float32(n)
        layers = list(zip(inputs, self.layers(w), self.layers(self._gradient), strict=True))
        for i, (h, (W, _), (dW, db)) in reversed(list(enumerate(layers))):
            np.matmul(h.T, delta, out=dW)
            delta.sum(axis=0, out=db)
            if i:
                delta = delta @ W.T
                delta *= (h > 0) if self.activation == "relu" else h * (1 - h)
        return loss, self._gradient

    def predict(self, w: np.ndarray, X: np.ndarray) -> np.ndarray:
        return predicted(self.scores(w, X))
