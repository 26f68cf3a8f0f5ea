"""Fully connected networks in numpy, with gradients written by hand.

A round of small minibatches takes less time than with torch's autograd (``python -m benchmarks speed`` prints the
ratio), and a task that does not need torch does not import it.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Literal

import numpy as np

from v6_federated.base.arrays import Array
from v6_federated.masks import exact
from v6_federated.masks.exact import EXACTLY, Exact
from v6_federated.models.linear import column_sums, predicted
from v6_federated.models.outcomes import Outcome
from v6_federated.models.traits import Traits

CHUNK = 500  # rows that are evaluated at once, so that activations stay in the cache
WRITTEN_AFTER = 120  # rows after which ``descend`` writes the first layer; more need more inner products of rows
LARGE_LAYER = 2**16  # numbers of a first layer that no longer fit well into a processor's nearest cache


class Perceptron:
    """Layers x W + b with an activation between them, and as loss the softmax's cross-entropy, or that of ``outcome``.

    Methods without a docstring are explained in ``Model``.

    Args:
        widths: number of features, widths of the hidden layers, number of classes. A layer has W (in, out), b (out,).
        activation: activation of the hidden layers.
    """

    inputs_first, block = True, 512  # for clipping, as row_gradients
    class_weights: Array | None = None  # (classes,), by which training multiplies the losses of rows
    traits = Traits(costly_sums=True)
    outcome: Outcome | None = None  # what the only output stands for, if the label is a number

    def __init__(self, widths: list[int], activation: Literal["relu", "sigmoid"]) -> None:
        self.widths, self.activation = widths, activation
        self.shapes: dict[str, tuple[int, ...]] = {}
        for i, (a, b) in enumerate(pairwise(widths), start=1):
            self.shapes[f"layer{i}.weight"], self.shapes[f"layer{i}.bias"] = (a, b), (b,)
        self.size = sum(a * b + b for a, b in pairwise(widths))
        self._gradient = np.empty(self.size, np.float32)

    def layers(self, w: Array) -> Iterator[tuple[Array, Array]]:
        """Find the layers in a vector.

        Args:
            w: parameters or a gradient (d,).

        Yields:
            W (in, out) and b (out,) of each layer, views into ``w``.
        """
        for W in self._with_bias(w):
            yield W[:-1], W[-1]

    def init(self, rng: np.random.Generator) -> Array:
        """Draw W and b uniformly from +-1/sqrt(in), as torch does; McMahan does not say how.

        Args:
            rng: where the random numbers come from.

        Returns:
            Parameters (d,), float32.
        """
        w = np.empty(self.size, np.float32)
        for W, b in self.layers(w):
            bound = 1 / np.sqrt(len(W))
            W[:] = rng.uniform(-bound, bound, W.shape)
            b[:] = rng.uniform(-bound, bound, b.shape)
        return w

    def asarray(self, array: Array) -> Array:
        return array

    def seed(self, rng: np.random.Generator) -> None:
        """Nothing to seed: the model draws no random numbers."""

    def _forward(self, w: Array, X: Array, first: Array | None = None) -> list[Array]:
        """The input of each layer, and the decision values. ``first`` is the first layer's x W, if it is known."""
        outputs = [X]
        for i, (W, b) in enumerate(self.layers(w), start=2):
            z = outputs[-1] @ W if i > 2 or first is None else first
            z += b
            if i < len(self.widths):
                self._activate(z, out=z)
            outputs.append(z)
        return outputs

    def _activate(self, z: Array, out: Array) -> None:
        """The outputs of a hidden layer from its sums z."""
        if self.activation == "relu":
            np.maximum(z, 0, out=out)
        else:
            np.tanh(z * np.float32(0.5), out=out)  # sigmoid(z) = (1 + tanh(z / 2)) / 2 cannot overflow
            out += 1
            out *= np.float32(0.5)

    def _slope(self, h: Array) -> Array:
        """The derivative of a hidden layer's outputs h by its sums."""
        return h > 0 if self.activation == "relu" else h * (1 - h)

    def scores(self, w: Array, X: Array) -> Array:
        if len(X) == 0:
            return np.empty((0, self.widths[-1]), np.float32)
        z = np.concatenate([self._forward(w, X[i : i + CHUNK])[-1] for i in range(0, len(X), CHUNK)])
        return z if self.outcome is None else self.outcome.predictions(z)

    def loss(self, scores: Array, y: Array) -> float:
        if self.outcome is not None:
            return float(self.outcome.losses(scores[:, 0], y).mean())
        return float(np.mean(self.losses(scores, y)))

    def losses(self, scores: Array, y: Array) -> Array:
        if self.outcome is not None:
            return self.outcome.losses(scores[:, 0], y)
        shifted = scores - scores.max(axis=1, keepdims=True)
        return np.asarray(np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(len(y)), y])

    def scores_alone(self, w: Array, X: Array) -> Array:
        z = self._forward_alone(w, X)[-1]
        return z if self.outcome is None else self.outcome.predictions(z)

    def _forward_alone(self, w: Array, X: Array) -> list[Array]:
        """The input of each layer, and the decision values, of each row as if it were alone."""
        outputs = [X]
        for i, (W, b) in enumerate(self.layers(w), start=2):
            with np.errstate(over="ignore"):  # as in ``_forward``: what is not finite is found later
                z = np.add(EXACTLY.linear(outputs[-1], W), b, order="C").astype(np.float32)
            if i < len(self.widths):
                self._activate(z, out=z)
            outputs.append(z)
        return outputs

    def sums(self, w: Array, X: Array, y: Array) -> tuple[Exact, Exact]:
        *inputs, z = self._forward_alone(w, X)
        losses, signal = self._losses_and_slopes(z, y)
        found: list[Exact] = []
        for h, (W, _) in zip(inputs[::-1], list(self.layers(w))[::-1], strict=True):
            found[:0] = exact.products(h, signal), exact.sums(signal)
            if h is not inputs[0]:
                signal = np.multiply(EXACTLY.linear(signal, W.T), self._slope(h), order="C")
        return exact.sums(losses), exact.joined(found)

    def loss_and_gradient(self, w: Array, X: Array, y: Array) -> tuple[float, Array]:
        *inputs, z = self._forward(w, X)
        losses, delta = self._losses_and_slopes(z, y)
        loss = float(np.mean(losses))
        delta /= np.float32(len(y))
        layers = zip(inputs, self._signals(w, inputs, delta), self.layers(self._gradient), strict=True)
        for h, signal, (dW, db) in layers:
            np.matmul(h.T, signal, out=dW)
            db[:] = column_sums(signal)
        return loss, self._gradient

    def descends(self, batch_size: int) -> bool:
        """Say whether ``descend`` is faster than step by step: for a large and wide first layer and small minibatches.

        Args:
            batch_size: rows of a minibatch.
        """
        features, width = self.widths[:2]
        own = type(self) is Perceptron  # the gradient of a class made of this one may have more terms
        return own and features * width >= LARGE_LAYER and 5 * batch_size <= width

    def descend(
        self,
        w: Array,
        X: Array,
        y: Array,
        batches: Iterable[Array],
        rate: Callable[[], float],
        apart: tuple[Array, Array] | None = None,
    ) -> tuple[float, int]:
        """Take a step w <- w - eta g for each minibatch, in place.

        The same as with ``loss_and_gradient`` step by step, up to rounding, with less work on the first layer's W, the
        largest: it is read and written once in a block of minibatches. Within the block its sums follow from those at
        the beginning. A step takes eta x_j s_j from W for each row j, s_j its signal, so it takes (x_i . x_j) eta s_j
        from the sums of row i. These products of rows must be finite in float32.

        Args:
            w: parameters (d,), changed in place.
            X: rows (n, features).
            y: their classes (n,), or numbers.
            batches: the indices of each minibatch's rows.
            rate: gives eta of each step, one after the other.
            apart: what w started from, and its change since, (d,) each, if the change is carried apart: it is changed
                in place, and w is their sum.

        Returns:
            The sum of the rows' losses, each before its step, and the number of rows.
        """
        start, u = (w, w) if apart is None else apart
        (W_1, b_1), *_ = self.layers(w)
        first, *layers = self._with_bias(w)
        S_1, *starts = self._with_bias(start)
        U_1, *changes = self._with_bias(u)
        _, *steps = self._with_bias(self._gradient)

        def move(W: Array, S: Array, U: Array, by: Array) -> None:
            U -= by
            if apart is not None:
                np.add(S, U, out=W)

        loss, n = 0.0, 0
        for block in _blocks(batches):
            order = np.concatenate(block)
            x, labels = X[order], y[order]
            sums = x @ W_1
            sums += b_1
            moved = np.empty_like(sums)  # eta s_j
            ends = np.cumsum([len(batch) for batch in block]).tolist()
            products = x[ends[0] :] @ x.T  # the first minibatch needs none
            products += 1  # of the bias's input with itself
            inputs = [np.ones((len(order), len(W)), np.float32) for W in layers]  # the last one is the bias's
            for i, j in zip([0, *ends], ends, strict=False):
                z = sums[i:j]
                if i:
                    z -= products[i - ends[0] : j - ends[0], :i] @ moved[:i]
                for h, W in zip(inputs, layers, strict=True):
                    self._activate(z, out=h[i:j, :-1])
                    z = h[i:j] @ W
                losses, signal = self._losses_and_slopes(z, labels[i:j])
                loss += float(losses.sum())
                signal *= np.float32(rate() / (j - i))
                backwards = (each[::-1] for each in (inputs, layers, starts, changes, steps))
                for h, W, S, U, step in zip(*backwards, strict=True):
                    before = signal @ W[:-1].T
                    before *= self._slope(h[i:j, :-1])
                    move(W, S, U, np.matmul(h[i:j].T, signal, out=step))
                    signal = before
                moved[i:j] = signal
            move(first[:-1], S_1[:-1], U_1[:-1], x.T @ moved)
            move(first[-1], S_1[-1], U_1[-1], column_sums(moved))
            n += len(order)
        return loss, n

    def _with_bias(self, w: Array) -> list[Array]:
        """W with b as its last row (in + 1, out) of each layer: b is the weight of an input that is always 1."""
        starts = np.cumsum([0, *((a + 1) * b for a, b in pairwise(self.widths))]).tolist()
        return [w[i:j].reshape(-1, b) for (i, j), b in zip(pairwise(starts), self.widths[1:], strict=True)]

    def _losses_and_slopes(self, z: Array, y: Array) -> tuple[Array, Array]:
        """Each row's loss (n,), and its derivative by the decision values z (n, classes), which it may overwrite."""
        if self.outcome is not None:
            losses, slopes = self.outcome.losses_and_slopes(z[:, 0], y)
            return losses, slopes[:, None].astype(np.float32)
        rows = np.arange(len(y))
        z -= z.max(axis=1, keepdims=True)
        own = z[rows, y]
        np.exp(z, out=z)
        total = z.sum(axis=1, keepdims=True)
        losses = np.log(total[:, 0]) - own
        delta = z
        delta /= total
        delta[rows, y] -= 1
        if self.class_weights is not None:
            weights = self.class_weights[y]
            losses *= weights
            delta *= weights[:, None]
        return losses, delta

    def _signals(self, w: Array, inputs: list[Array], delta: Array) -> list[Array]:
        """The loss's derivative by each layer's sums (n, out), from that by the decision values (n, classes)."""
        signals = [delta]
        for h, (W, _) in zip(inputs[:0:-1], list(self.layers(w))[:0:-1], strict=True):
            delta = delta @ W.T
            delta *= self._slope(h)
            signals.append(delta)
        return signals[::-1]

    def row_gradients(
        self, w: Array, X: Array, y: Array, first: Array | None = None
    ) -> tuple[list[Array], list[Array]]:
        """Compute each row's gradient without writing it out.

        A row's gradient by W is the outer product of its input and its signal; by b it is its signal.

        Args:
            w: parameters (d,).
            X: rows (n, features).
            y: their classes (n,).
            first: the first layer's X W (n, out), if it is known.

        Returns:
            Inputs (n, in) and signals (n, out) of each layer.
        """
        *inputs, z = self._forward(w, X, first)
        return inputs, self._signals(w, inputs, self._losses_and_slopes(z, y)[1])

    def predict(self, w: Array, X: Array) -> Array:
        scores = self.scores(w, X)
        return predicted(scores) if self.outcome is None else scores[:, 0]


def _blocks(batches: Iterable[Array]) -> Iterator[list[Array]]:
    """Minibatches one after the other, in blocks of ``WRITTEN_AFTER`` rows or more."""
    block: list[Array] = []
    for batch in batches:
        block.append(batch)
        if sum(map(len, block)) >= WRITTEN_AFTER:
            yield block
            block = []
    if block:
        yield block
