"""Fully connected networks in numpy, with gradients by hand.

A round of small minibatches takes about as long as with torch's autograd, or less (`python -m benchmarks cost` prints
the ratio), and a task that needs no torch does not import it.
"""

from collections.abc import Iterable, Iterator
from itertools import islice, pairwise
from typing import Literal

import numpy as np

from v6_federated.models.linear import column_sums, predicted

BLOCK = 64  # rows of an SVRG pass after which the first layer is written
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

    def _forward(self, w: np.ndarray, X: np.ndarray, first: np.ndarray | None = None) -> list[np.ndarray]:
        """The input of each layer, and the decision values. ``first``: the first layer's x W, where it is known."""
        outputs = [X]
        for i, (W, b) in enumerate(self.layers(w), start=2):
            z = outputs[-1] @ W if i > 2 or first is None else first
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
        layers = zip(inputs, self._signals(w, inputs, delta), self.layers(self._gradient), strict=True)
        for h, signal, (dW, db) in layers:
            np.matmul(h.T, signal, out=dW)
            db[:] = column_sums(signal)
        return loss, self._gradient

    def _signals(self, w: np.ndarray, inputs: list[np.ndarray], delta: np.ndarray) -> list[np.ndarray]:
        """From the loss's slope at the decision values, (n, classes), its slope at each layer's sums, (n, out)."""
        signals = [delta]
        for h, (W, _) in zip(inputs[:0:-1], list(self.layers(w))[:0:-1], strict=True):
            delta = delta @ W.T
            delta *= (h > 0) if self.activation == "relu" else h * (1 - h)
            signals.append(delta)
        return signals[::-1]

    def _factors(
        self, w: np.ndarray, X: np.ndarray, y: np.ndarray, first: np.ndarray | None = None
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Inputs (n, in) and signals (n, out) of each layer: a row's gradient of W is their outer product."""
        *inputs, z = self._forward(w, X, first)
        z -= z.max(axis=1, keepdims=True)
        np.exp(z, out=z)
        z /= z.sum(axis=1, keepdims=True)
        z[np.arange(len(y)), y] -= 1
        return inputs, self._signals(w, inputs, z)

    def svrg_pass(
        self,
        w: np.ndarray,
        w_t: np.ndarray,
        X: np.ndarray,
        y: np.ndarray,
        full: np.ndarray,
        step: float,
        order: Iterable[int],
    ) -> None:
        """w <- w - step (grad f_i(w) - grad f_i(w_t) + full) for each row i of ``order``, in place.

        The same as with ``loss_and_gradient`` row by row, faster: w_t's signals are computed for all rows at once, a
        row's gradients are not written out, and the first layer's W, the largest, is written once a block of rows.
        Within the block its sums follow from those at the block's begin: each step has taken full's own sums from
        them, and from W an outer product of a row, x_j m_j, so from the sums of row i (x_i . x_j) m_j.
        """
        before, signals_before = self._factors(w_t, X, y)
        drift, h_k = np.float32(step) * full, np.float32(step)
        (W_1, b_1), *others = self.layers(w)
        drift_1 = next(self.layers(drift))[0]
        rest, drift_rest = w[W_1.size :], drift[W_1.size :]
        rows_left = iter(order)
        while block := list(islice(rows_left, BLOCK)):
            x = X[block]
            sums, drifts, products = x @ W_1, x @ drift_1, x @ x.T
            m = np.empty_like(sums)
            for t, i in enumerate(block):
                first = sums[t] - np.float32(t) * drifts[t] - products[t, :t] @ m[:t]
                inputs, signals = self._factors(w, X[i : i + 1], y[i : i + 1], first[None])
                rest -= drift_rest
                m[t] = h_k * (signals[0][0] - signals_before[0][i])
                b_1 -= m[t]
                for layer, (W, b) in enumerate(others, start=1):
                    d, d_t = h_k * signals[layer][0], h_k * signals_before[layer][i]
                    b -= d - d_t
                    W -= np.stack([inputs[layer][0], before[layer][i]], axis=1) @ np.stack([d, -d_t])
            W_1 -= x.T @ m
            W_1 -= np.float32(len(block)) * drift_1

    def predict(self, w: np.ndarray, X: np.ndarray) -> np.ndarray:
        return predicted(self.scores(w, X))
