"""Linear models in numpy, with scikit-learn's shapes: logistic regression, support vector machine, and of numbers."""

from typing import Any, Literal

import numpy as np

from v6_federated.base.arrays import Array
from v6_federated.masks import exact
from v6_federated.masks.exact import EXACTLY, Exact
from v6_federated.models.outcomes import Outcome
from v6_federated.models.traits import Traits

BLOCK = 1024  # rows


class LinearModel:
    """Decision values X W^T + b, with W (rows, features) and b (rows,); two classes need only one row.

    The loss is the mean over the rows of X of
      logistic: log(1 + exp(-s f)) for two classes, s = +-1 (Garst eq. B.2), the softmax's cross-entropy for more;
      hinge: max(0, 1 - s f) (Garst eq. B.3), summed over one-against-the-rest problems for more than two classes;
    plus l2/2 |W|^2; or that of its ``outcome``, if it has one. Methods without a docstring are explained in ``Model``.

    Args:
        loss: "logistic" or "hinge"; "linear" if an outcome says it.
        features: number of features.
        classes: number of classes; 1 if the model has an outcome.
        l2: strength of the penalty.
    """

    inputs_first, block = False, 512  # for clipping, as row_gradients
    class_weights: Array | None = None  # (classes,), by which training multiplies the losses of rows
    traits = Traits()
    outcome: Outcome | None = None  # what the decision value stands for, if the label is a number

    def __init__(
        self, loss: Literal["logistic", "hinge", "linear"], features: int, classes: int, l2: float = 0.0
    ) -> None:
        self.kind, self.l2 = loss, np.float32(l2)
        self.features, self.classes = features, classes
        self.rows = 1 if classes == 2 else classes
        self.shapes = {"coef": (self.rows, features), "intercept": (self.rows,)}
        self.size = self.rows * (features + 1)
        self._gradient = np.empty(self.size, np.float32)

    def split(self, w: Array) -> tuple[Array, Array]:
        """Find W and b in a vector.

        Args:
            w: parameters or a gradient (d,).

        Returns:
            W (rows, features) and b (rows,), views into ``w``.
        """
        cut = self.rows * self.features
        return w[:cut].reshape(self.rows, self.features), w[cut:]

    def init(self, rng: np.random.Generator) -> Array:
        return np.zeros(self.size, np.float32)

    def asarray(self, array: Array) -> Array:
        return array

    def seed(self, rng: np.random.Generator) -> None:
        """Nothing to seed: the model draws no random numbers."""

    def scores(self, w: Array, X: Array) -> Array:
        z = self._decisions(w, X)
        return z if self.outcome is None else self.outcome.predictions(z)

    def _decisions(self, w: Array, X: Array) -> Array:
        W, b = self.split(w)
        return np.asarray(X @ W.T + b)

    def loss(self, scores: Array, y: Array) -> float:
        if self.outcome is not None:
            return float(self.outcome.losses(scores[:, 0], y).mean())
        return float(self.losses_and_slopes(scores, y)[0].sum()) / len(y)

    def scores_alone(self, w: Array, X: Array) -> Array:
        z = self._decisions_alone(w, X)
        return z if self.outcome is None else self.outcome.predictions(z)

    def _decisions_alone(self, w: Array, X: Array) -> Array:
        W, b = self.split(w)
        return EXACTLY.linear(X, W.T) + b

    def losses(self, scores: Array, y: Array) -> Array:
        return self.losses_and_slopes(scores, y)[0] if self.outcome is None else self.outcome.losses(scores[:, 0], y)

    def sums(self, w: Array, X: Array, y: Array) -> tuple[Exact, Exact]:
        losses, slopes = self._weighted(w, X, y, self._decisions_alone(w, X))
        of_b = np.zeros_like(slopes) if self.outcome is not None and self.outcome.relative else slopes
        gradient = exact.joined([exact.products(slopes, X), exact.sums(of_b)])
        loss = exact.sums(losses)
        if self.l2:
            n, W = len(y), self.split(w)[0].astype(np.float64)
            unit = 1.0 if self.outcome is None else self.outcome.unit
            loss += exact.total(np.array([[0.5 * float(self.l2) * float(np.square(W).sum()) * unit]])).times([n])
            gradient += exact.total(self.penalty_gradient(w)[None]).times([n] * self.size)
        return loss, gradient

    def losses_and_slopes(self, scores: Array, y: Array) -> tuple[Array, Array]:
        """Compute the loss of each row, without the penalty. A subclass with another loss overrides this.

        Args:
            scores: decision values (n, rows).
            y: indices of classes (n,).

        Returns:
            Each row's loss (n,), and its derivative by the decision values (n, rows).
        """
        if self.kind == "logistic" and self.rows > 1:
            own, top = (np.arange(len(y)), y), scores.max(axis=1, keepdims=True)
            exponentials = np.exp(scores - top)
            total = exponentials.sum(axis=1, keepdims=True)
            losses = (np.log(total) + top)[:, 0] - scores[own]
            exponentials /= total
            exponentials[own] -= 1
            return losses, exponentials
        signs = self.signs(y)
        margins = signs * scores
        if self.kind == "logistic":  # the derivative is -s sigmoid(-s f), written so that it cannot overflow
            return np.logaddexp(0, -margins)[:, 0], -signs * np.exp(-np.logaddexp(0, margins))
        return np.maximum(0, 1 - margins).sum(axis=1), -signs * (margins < 1)

    def _weighted(self, w: Array, X: Array, y: Array, decisions: Array | None = None) -> tuple[Array, Array]:
        """Losses and derivatives as training takes them, times the weight of each row's class."""
        if self.outcome is not None:
            z = self._decisions(w, X) if decisions is None else decisions
            losses, slopes = self.outcome.losses_and_slopes(z[:, 0], y)
            return losses, slopes[:, None]
        losses, slopes = self.losses_and_slopes(self.scores(w, X) if decisions is None else decisions, y)
        if self.class_weights is None:
            return losses, slopes
        weights = self.class_weights[y]
        return losses * weights, slopes * weights[:, None]

    def loss_and_gradient(self, w: Array, X: Array, y: Array) -> tuple[float, Array]:
        n = len(y)
        losses, slopes = self._weighted(w, X, y)
        loss = float(losses.sum()) / n
        slopes = (slopes / np.float32(n)).astype(np.float32, copy=False)
        dW, db = self.split(self._gradient)
        np.matmul(slopes.T, X, out=dW)
        db[:] = 0 if self.outcome is not None and self.outcome.relative else column_sums(slopes)
        if self.l2:
            W, _ = self.split(w)
            dW += self.l2 * W
            loss += 0.5 * float(self.l2) * float(np.vdot(W, W)) * (1.0 if self.outcome is None else self.outcome.unit)
        return loss, self._gradient

    def row_gradients(self, w: Array, X: Array, y: Array) -> tuple[list[Array], list[Array]]:
        """Compute the gradient of each row's loss, without the penalty, see ``clipping.RowGradients``.

        Args:
            w: parameters (d,).
            X: rows (n, features).
            y: their classes (n,).

        Returns:
            Inputs, X itself, and signals (n, rows).
        """
        return [X], [self._weighted(w, X, y)[1]]

    def penalty_gradient(self, w: Array) -> Array:
        """Compute the gradient of the penalty, which depends on no row.

        Args:
            w: parameters (d,).

        Returns:
            The gradient (d,).
        """
        gradient = self.l2 * w
        self.split(gradient)[1][:] = 0
        return np.asarray(gradient)

    def predict(self, w: Array, X: Array) -> Array:
        scores = self.scores(w, X)
        return predicted(scores) if self.outcome is None else scores[:, 0]

    def signs(self, y: Array) -> Array:
        """Code the classes as signs.

        Args:
            y: indices of classes (n,).

        Returns:
            +1 for each row's class and -1 for the others, (n, rows) float32.
        """
        if self.rows == 1:
            return (2 * y[:, None] - 1).astype(np.float32)
        signs = np.full((len(y), self.rows), -1, np.float32)
        signs[np.arange(len(y)), y] = 1
        return signs


def column_sums(a: Array) -> Array:
    """Sum over rows.

    numpy adds row by row in float32, so the last of a million rows would hardly count. This adds blocks, in which BLAS
    is exact enough, and faster.

    Args:
        a: (n, d), float32.

    Returns:
        The sums (d,).
    """
    blocks = [np.ones(len(b), np.float32) @ b for b in (a[i : i + BLOCK] for i in range(0, len(a), BLOCK))]
    return np.asarray(blocks[0] if len(blocks) == 1 else np.sum(blocks, axis=0, dtype=np.float64))


def predicted(scores: Any) -> Array:
    """The most likely class of each row.

    Args:
        scores: decision values (n, classes), or (n, 1) for two classes, of which class 1 has positive values.

    Returns:
        Indices of classes (n,).
    """
    likeliest: Array = (scores[:, 0] > 0).astype(np.int64) if scores.shape[1] == 1 else scores.argmax(axis=1)
    return likeliest
