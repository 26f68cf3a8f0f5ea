"""A pass of federated SVRG over a fully connected network, several times as fast as row by row."""

from collections.abc import Iterable
from itertools import islice

import numpy as np

from v6_federated import models

BLOCK = 64  # rows after which the first layer is written


def svrg_pass(
    model: models.Perceptron,
    w: np.ndarray,
    w_t: np.ndarray,
    X: np.ndarray,
    y: np.ndarray,
    full: np.ndarray,
    step: float,
    order: Iterable[int],
    apart: tuple[np.ndarray, np.ndarray] | None = None,
) -> None:
    """Step w <- w - step (grad f_i(w) - grad f_i(w_t) + full) for each row i of ``order``, in place.

    The same as with ``loss_and_gradient`` row by row, faster: w_t's signals are computed for all rows at once, a
    row's gradients are not written out, and the first layer's W, the largest, is written once a block of rows.
    Within the block its sums follow from those at the block's begin: each step has taken full's own sums from
    them, and from W an outer product of a row, x_j m_j, so from the sums of row i (x_i . x_j) m_j.

    Args:
        model: the network.
        w: its parameters (d,), changed in place.
        w_t: those at the beginning of the round (d,).
        X: the node's rows (n, features).
        y: their classes (n,).
        full: the full gradient at w_t (d,).
        step: h / n_k.
        order: indices of rows, one for each step.
        apart: what w started from, and its change since, (d,) each, if the change is carried apart: it is changed in
            place, and w is their sum.
    """
    before, signals_before = model.row_gradients(w_t, X, y)
    drift, h_k = np.float32(step) * full, np.float32(step)
    start, u = (w, w) if apart is None else apart
    (W_1, _), *_ = model.layers(w)
    (U_1, b_1), *others = model.layers(u)
    S_1, drift_1 = (next(model.layers(each))[0] for each in (start, drift))
    rest, start_rest, u_rest, drift_rest = (each[W_1.size :] for each in (w, start, u, drift))
    rows_left = iter(order)
    while block := list(islice(rows_left, BLOCK)):
        x = X[block]
        sums, drifts, products = x @ W_1, x @ drift_1, x @ x.T
        m = np.empty_like(sums)
        for t, i in enumerate(block):
            first = sums[t] - np.float32(t) * drifts[t] - products[t, :t] @ m[:t]
            inputs, signals = model.row_gradients(w, X[i : i + 1], y[i : i + 1], first[None])
            u_rest -= drift_rest
            m[t] = h_k * (signals[0][0] - signals_before[0][i])
            b_1 -= m[t]
            for layer, (W, b) in enumerate(others, start=1):
                d, d_t = h_k * signals[layer][0], h_k * signals_before[layer][i]
                b -= d - d_t
                W -= np.stack([inputs[layer][0], before[layer][i]], axis=1) @ np.stack([d, -d_t])
            if apart is not None:
                np.add(start_rest, u_rest, out=rest)
        U_1 -= x.T @ m
        U_1 -= np.float32(len(block)) * drift_1
        if apart is not None:
            np.add(S_1, U_1, out=W_1)
