"""Sums of clipped gradients as whole numbers, of which one row changes no more than a proven amount.

Differentially private training adds noise to such a sum. The noise hides a row only if the bound on the row's influence
holds for the numbers that the machine really computes, so the sums are rounded to a grid and the bound, see
``sensitivity``, counts every rounding.
"""

from typing import Any, Protocol

import numpy as np

from v6_federated.base.arrays import Array
from v6_federated.base.errors import SafeError

CHUNK = 64  # rows that are summed in float32; the margin of `sensitivity` grows as its square
ACCEPTED = ("logreg", "svm", "fnn", "nn_reddy", "2nn", "mlp", "cnn_garst", "cnn_reddy", "cnn_mcmahan")
MOST_UNITS = 2**24  # float32 has no more digits, and a chunk's sum fits int32
CLIPS = (1e-30, 1e30)
ALL_BITS = np.uint32(2**32 - 1)


class RowGradients(Protocol):
    """What clipping needs of a model, beside ``Model``.

    Attributes:
        size: d, the number of parameters.
        inputs_first: whether a layer's W is (in, out); otherwise it is (out, in). The layer's b (out,) follows it.
        block: rows whose inputs and signals fit memory well, a multiple of 64.
    """

    size: int
    inputs_first: bool
    block: int

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
    """Refuse models that do not give the gradient of each row."""
    if getattr(model, "outcome", None) is not None:
        raise SafeError("a model of numbers cannot be trained with clipped gradients; choose a label of classes")
    if not hasattr(model, "row_gradients"):
        raise SafeError(
            "this model cannot be trained with clipped gradients, since it does not give the gradient of each row; "
            f"choose one of {', '.join(ACCEPTED)}, the mlp without dropout and norm"
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
    a product of matrices. Norms and factors are computed in float64, products in float32 for at most 64 rows at once;
    their sums are rounded and then added as whole numbers. The penalty on the weights is left out, see
    ``penalty_gradient``.

    A row contributes nothing if a number of its h or s is not finite.

    Memory: 16 d bytes, and what the model needs for a block of rows. Time: up to one and a half steps without clipping,
    three for networks with convolutions.

    Args:
        model: a model that ``check`` accepts.
        w: parameters (d,).
        X: rows (n, features); there may be none.
        y: their classes (n,).
        clip: C, the largest norm of a row's gradient.
        units: whole numbers that C is divided into. It should be large, 2^20 for example, so that rounding is small.

    Returns:
        The sum (d,) in units of C / ``units``, int64. One row changes it by ``sensitivity`` at most.
    """
    check(model)
    if not CLIPS[0] <= clip <= CLIPS[1]:
        raise SafeError(
            f"gradients cannot be clipped to the norm {clip}; it must be a number from {CLIPS[0]} to {CLIPS[1]}"
        )
    if not 1 <= units <= MOST_UNITS:
        raise SafeError(f"a clipped gradient of {units} units is refused; expected 1 to {MOST_UNITS}")
    total, part = np.zeros(model.size, np.int64), np.empty(model.size, np.float32)
    with np.errstate(all="ignore"):  # a warning would tell that there is a row which is not finite
        for i in range(0, len(y), model.block):
            inputs, signals = model.row_gradients(w, X[i : i + model.block], y[i : i + model.block])
            layers = _weighted(inputs, signals, clip, units)
            for j in range(0, min(model.block, len(y) - i), CHUNK):
                chunk = slice(j, j + CHUNK)
                _add_up([(h[chunk], signal[chunk]) for h, signal in layers], inputs, model.inputs_first, part)
                np.rint(part, out=part)
                total += part.astype(np.int32)
    return total


def _weighted(inputs: list[Array | None], signals: list[Array], clip: float, units: int) -> list[tuple[Array, Array]]:
    """Each layer's inputs and signals in float32, the second times units / max(||g||, C).

    Of a layer that is written out the factors (n, 1) take the place of the inputs, and the signals stay as they are.
    """
    hs = [None if h is None else h.astype(np.float32, copy=False) for h in inputs]
    signals = [signal.astype(np.float32, copy=False) for signal in signals]
    squares = np.zeros(len(signals[0]))
    for h, signal in zip(hs, signals, strict=True):
        squares += _squares(signal) if h is None else (_squares(h) + 1) * _squares(signal)
    kept = np.where(np.isfinite(squares), ALL_BITS, np.uint32(0))[:, None]
    factors = (units / np.maximum(np.sqrt(squares), clip))[:, None]
    layers = [
        (factors.astype(np.float32), signal) if h is None else (h, (signal * factors).astype(np.float32))
        for h, signal in zip(hs, signals, strict=True)
    ]
    # a factor of 0 would not do, since 0 times infinity is not a number; and a copy if some row is refused, or work on
    # such rows alone, would tell by the time it takes that there is one
    return [(_zeroed(h, kept), _zeroed(signal, kept)) for h, signal in layers]


def _zeroed(a: Array, kept: Array) -> Array:
    """``a`` (n, m) float32 with all bits of a row, or none, ``kept`` (n, 1): the same work whichever rows they are."""
    zeroed: Array = (a.view(np.uint32) & kept).view(np.float32)
    return zeroed


def _add_up(layers: list[tuple[Array, Array]], inputs: list[Array | None], inputs_first: bool, out: Array) -> None:
    """Write the sum of a chunk's clipped gradients, in units and not yet rounded, into ``out`` (d,)."""
    ones = np.ones(len(layers[0][0]), np.float32)
    end = 0
    for (h, signal), written in zip(layers, (h is None for h in inputs), strict=True):
        start, end = end, end + signal.shape[1] * (1 if written else h.shape[1] + 1)
        if written:
            np.matmul(h[:, 0], signal, out=out[start:end])
            continue
        middle = end - signal.shape[1]
        if inputs_first:
            np.matmul(h.T, signal, out=out[start:middle].reshape(h.shape[1], signal.shape[1]))
        else:
            np.matmul(signal.T, h, out=out[start:middle].reshape(signal.shape[1], h.shape[1]))
        np.matmul(ones, signal, out=out[middle:end])


def _squares(a: Array) -> Array:
    """The squared norm of each row, (n,), in float64, where squares of float32 neither overflow nor underflow."""
    a = a.astype(np.float64)
    return np.asarray(np.vecdot(a, a))


def sensitivity(d: int, units: int) -> float:
    """Bound how far one row can move the sum of clipped gradients.

    The bound holds for any row, weights, other rows, C and number of rows. The row is zeroed out: it keeps its place in
    its chunk of m = 64 rows or fewer, and contributes nothing. Then only the sum of its chunk changes.

    Proof. u = 2^-53 and v = 2^-24 are the unit roundoffs of float64 and float32; gamma(a) = a / (1 - a), that is
    1 + gamma(a) = 1 / (1 - a). What is off by k roundings has a factor 1 + theta with |theta| <= gamma(k u), or
    gamma(k v) (Higham 2002, section 3.1: a quotient counts its divisor's roundings twice). A sum of k products is off
    by such a factor in each term, in whatever order it is added up, with fused operations or without. Further,
    (1 + gamma(a)) (1 + gamma(b)) <= 1 + gamma(a + b), and k gamma(a) <= gamma(k a).

    1. Norms are in float64, of numbers that float32 holds, so that nothing overflows or underflows. A layer's
       (||h||^2 + 1) ||s||^2 is off by in + out + 2 <= d + 2 roundings, since all terms are positive; of a layer that is
       written out, ||g||^2 is off by at most d. At most d layers are added, and the root is taken: the computed N is
       off from ||g|| by at most 2d + 3.
    2. The factor r = units / max(N, C) is at most units / N and a rounding, so units / ||g|| and 4d + 7 roundings; if C
       is larger than N, r is smaller. r s takes another one, and one in float32. So the row's contribution
       c = h (r s)^T, exact in the numbers as they are stored, has a norm of at most
       units (1 + gamma((4d + 8) u + v)) =: B.
    3. Each entry of the chunk's sum is a sum of at most m products in float32, so it is the sum of c_j (1 + theta) over
       the rows j, with |theta| <= gamma(m v). Without row i the other c_j are the same, since a model computes each row
       by itself, but their thetas may differ. The sum therefore moves by at most
       B (1 + gamma(m v)) + 2 (m - 1) B gamma(m v) <= B (1 + gamma(2 m^2 v)).
    4. Products in float32 do not overflow, since all are hardly more than B. Where r s underflows in float32, its error
       is 2^-150 instead, so that of c at most sqrt(d) 2^-22, since h is below 2^128; on a processor that takes 0
       instead of what underflows, c is shorter. Where products and their sums underflow, they add at most 4 m 2^-126
       to each entry of the difference. Numbers that are taken as 0 from the beginning are so in step 1 as well.
    5. Rounding to whole numbers moves each entry of each of the two sums by at most 1/2, so their difference by at most
       1 in each of d entries, sqrt(d) in all. Whole numbers are added without error.

    Together: units / (1 - a) + sqrt(d) with a = (4d + 8) u + (2 m^2 + 1) v. The code takes 2 m^2 + 8 for its own
    arithmetic, and sqrt(d) (1 + 2^-20) for step 4. With 2^20 units and d = 200,000, the
    first adds 0.05% of units and the second 0.04%.
    """
    a = (4 * d + 8) * 2.0**-53 + (2 * CHUNK**2 + 8) * 2.0**-24
    return float(units / (1 - a) + np.sqrt(d) * (1 + 2.0**-20))
