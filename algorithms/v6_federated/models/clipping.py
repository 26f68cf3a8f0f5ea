"""Sums of clipped gradients as whole numbers, of which one row changes no more than a proven amount.

Differentially private training adds noise to such a sum. The noise hides a row only if the bound on the row's influence
holds for the numbers that the machine really computes, so the sums are rounded to a grid and the bound, see
``sensitivity``, counts every rounding.
"""

from typing import Any, Protocol, runtime_checkable

import numpy as np

from v6_federated.base.arrays import Array
from v6_federated.base.errors import SafeError

CHUNK = 64  # rows at once: more of them gain little, and a convolution's gradients are written out
ACCEPTED = ("logreg", "svm", "fnn", "nn_reddy", "2nn", "cnn_garst", "cnn_reddy", "cnn_mcmahan")
LARGEST_SUM = 2**62  # units; int64 holds twice as many


@runtime_checkable
class RowGradients(Protocol):
    """What clipping needs of a model, beside ``Model``.

    Attributes:
        size: d, the number of parameters.
        inputs_first: whether a layer's W is (in, out); otherwise it is (out, in). The layer's b (out,) follows it.
    """

    size: int
    inputs_first: bool

    def row_gradients(self, w: Any, X: Any, y: Any) -> tuple[list[Array | None], list[Array]]:
        """Compute the gradient of each row's loss, without a penalty on the weights.

        What belongs to a row must follow from this row, the weights and the shapes of the arrays alone. In particular a
        row that is not finite must not change the others.

        Args:
            w: parameters (d,).
            X: rows (n, features).
            y: their classes (n,).

        Returns:
            Inputs (n, in) and signals (n, out) of each layer, in the order of ``w``: a row's gradient by W is the outer
            product of the two, that by b is its signal. If a layer's inputs are None, its signals are the rows'
            gradients by all of its parameters, written out (n, parameters).
        """


def check(model: Any) -> None:
    """Refuse models that do not give the gradient of each row.

    Args:
        model: a model.

    Raises:
        SafeError: the model is recurrent, or trees, or another that cannot be trained with clipped gradients.
    """
    if not isinstance(model, RowGradients):
        raise SafeError(
            "this model cannot be trained with clipped gradients, since it does not give the gradient of each row; "
            f"choose one of {', '.join(ACCEPTED)}"
        )


def penalty_gradient(model: Any, w: Array) -> Array | np.float32:
    """Compute the gradient of the penalty on the weights, which ``clipped_sum`` leaves out.

    The penalty depends on no row, so it is neither clipped nor hidden by noise: add it to the noisy mean.

    Args:
        model: a model that ``check`` accepts.
        w: parameters (d,).

    Returns:
        The gradient (d,); 0 for a model without a penalty.
    """
    gradient: Array | np.float32 = model.penalty_gradient(w) if hasattr(model, "penalty_gradient") else np.float32(0)
    return gradient


def clipped_sum(model: Any, w: Any, X: Any, y: Any, clip: float, units: int) -> Array:
    """Sum the gradients of rows, each clipped to a norm, and round the sum to whole numbers.

    A row's gradient g is multiplied by min(1, C / ||g||). Gradients are not written out if the model can do without:
    ||g||^2 is the sum of (||h||^2 + 1) ||s||^2 over the layers, with h a layer's input and s its signal, and the sum is
    a product of matrices. The model computes h and s in float32, as in every step; from there on everything is in
    float64. A row whose h or s is not finite contributes nothing. The penalty on the weights is left out, see
    ``penalty_gradient``.

    Memory: 16 d bytes, and what the model needs for 64 rows. Time: about one and a half steps without clipping, three
    for networks with convolutions.

    Args:
        model: a model that ``check`` accepts.
        w: parameters (d,).
        X: rows (n, features); there may be none.
        y: their classes (n,).
        clip: C, the largest norm of a row's gradient.
        units: whole numbers that C is divided into. It should be large, 2^20 for example, so that rounding is small.

    Returns:
        The sum (d,) in units of C / ``units``, int64. One row changes it by ``sensitivity`` at most.

    Raises:
        SafeError: the model is not accepted, or ``clip`` or ``units`` is out of range.
    """
    check(model)
    if not (np.isfinite(clip) and clip > 0):
        raise SafeError(f"gradients cannot be clipped to the norm {clip}; it must be a finite number above 0")
    if not (units >= 1 and units * max(len(y), 1) <= LARGEST_SUM):
        raise SafeError(
            f"{len(y)} rows of {units} units each are refused; expected 1 unit or more, 2^62 in all at most"
        )
    total, part = np.zeros(model.size, np.int64), np.empty(model.size)
    with np.errstate(all="ignore"):  # a warning would tell that there is a row which is not finite
        for i in range(0, len(y), CHUNK):
            _chunk_sum(model, w, X[i : i + CHUNK], y[i : i + CHUNK], clip, units, part)
            np.rint(part, out=part)
            total += part.astype(np.int64)
    return total


def _chunk_sum(model: RowGradients, w: Any, X: Any, y: Any, clip: float, units: int, out: Array) -> None:
    """Write the sum of a chunk's clipped gradients, in units and not yet rounded, into ``out`` (d,)."""
    inputs, signals = model.row_gradients(w, X, y)
    # copies, so that zeroing a row below never writes into the node's table; squares and products of float32's numbers
    # neither overflow nor underflow in float64, of which the proof in `sensitivity` makes use
    layers = [(None if h is None else _widened(h), _widened(signal)) for h, signal in zip(inputs, signals, strict=True)]
    squares = np.zeros(len(y))
    for h, signal in layers:
        squares += _squares(signal) if h is None else (_squares(h) + 1) * _squares(signal)
    infinite = ~np.isfinite(squares)
    if infinite.any():
        squares[infinite] = 0
        for array in (array for layer in layers for array in layer if array is not None):
            array[infinite] = 0  # a factor of 0 would not do: 0 times infinity is not a number
    factors = units / np.maximum(np.sqrt(squares), clip)
    end = 0
    for h, signal in layers:
        start, end = end, end + signal.shape[1] * (1 if h is None else h.shape[1] + 1)
        if h is None:
            np.matmul(factors, signal, out=out[start:end])
            continue
        signal *= factors[:, None]
        W, b = out[start : end - signal.shape[1]], out[end - signal.shape[1] : end]
        if model.inputs_first:
            np.matmul(h.T, signal, out=W.reshape(h.shape[1], signal.shape[1]))
        else:
            np.matmul(signal.T, h, out=W.reshape(signal.shape[1], h.shape[1]))
        np.matmul(np.ones(len(y)), signal, out=b)


def _widened(array: Any) -> Array:
    return np.asarray(array).astype(np.float32, copy=False).astype(np.float64)


def _squares(a: Array) -> Array:
    """The squared norm of each row, (n,)."""
    return np.asarray(np.vecdot(a, a))


def sensitivity(d: int, units: int) -> float:
    """Bound how far one row can move the sum of clipped gradients.

    The bound holds for any row, weights, other rows, C and number of rows. The row is zeroed out: it keeps its place in
    its chunk of m = 64 rows or fewer, and contributes nothing. Then only the sum of its chunk changes.

    Proof. u = 2^-53 is float64's unit roundoff, gamma_k = k u / (1 - k u), and theta_k stands for any number with
    |theta_k| <= gamma_k (Higham 2002, lemmas 3.1 and 3.3): (1 + theta_j) (1 + theta_k) = 1 + theta_(j+k), and
    (1 + theta_j) / (1 + theta_k) = 1 + theta_(j+2k). A sum of k products is off by theta_k in each term, in whatever
    order it is summed, with fused operations or without. Nothing overflows or underflows: h and s are float32.

    1. A layer's (||h||^2 + 1) ||s||^2 is off by the factor 1 + theta_(in+out+2), since all terms are positive, and
       in + out <= d. A layer that is written out has ||g||^2 with 1 + theta_d. At most d layers are added, and the root
       is taken: the computed N is ||g|| (1 + theta_(2d+3)).
    2. The factor r = units / max(N, C) is at most units / N (1 + theta_1) = units / ||g|| (1 + theta_(4d+7)). (If the
       largest is C, r is smaller.) With the rounding of r s, the row's contribution v = r h s^T has the norm
       ||v|| <= units (1 + gamma_(4d+8)) =: B, in exact arithmetic on the numbers as they are stored.
    3. Each entry of the chunk's sum is the sum of at most m products, so it is the sum of v_j (1 + theta_m) over the
       rows j. Without row i the other rows' v_j are the same, since the model computes each row by itself, but their
       theta may differ. The sum therefore moves by at most
       B (1 + gamma_m) + 2 (m - 1) B gamma_m <= B (1 + gamma_(2 m^2)) <= units (1 + gamma_(4d+8+2m^2)).
    4. Rounding to whole numbers moves each entry of each of the two sums by at most 1/2, so their difference by at most
       1 in each of d entries, sqrt(d) in all. Whole numbers are added without error.

    The sum is units (1 + gamma_(4d+8+2m^2)) + sqrt(d). The code takes 4d + 16 + 2m^2, to cover its own arithmetic. For
    d = 200,000 and 2^20 units the margin gamma is 10^-10 and sqrt(d) adds 0.04%.

    Args:
        d: number of parameters.
        units: as in ``clipped_sum``.

    Returns:
        The bound on the L2 norm of the change, in units.
    """
    u = 2.0**-53
    k = 4 * d + 16 + 2 * CHUNK**2
    return float(units * (1 + k * u / (1 - k * u)) + np.sqrt(d))
