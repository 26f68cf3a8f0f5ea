"""One baseline hazard for all hospitals, constant within agreed bins of time: the piecewise exponential model.

Its likelihood is a sum over rows and bins, so hospitals' sums add up. In each bin the best hazard follows from them:
events over the sum of exp(eta) times time at risk.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from v6_federated import exact, times


@dataclass(frozen=True)
class Baseline:
    """The hazards of the bins, at some coefficients and near them.

    Attributes:
        b: the coefficients (p,).
        events: in each bin (B,).
        hazard: of each bin (B,), of a row at the center of the columns.
        means: mean of the columns at risk in each bin (B, p), about the center.
    """

    b: np.ndarray
    events: np.ndarray
    hazard: np.ndarray
    means: np.ndarray

    def at(self, b: np.ndarray) -> np.ndarray:
        """The hazards (B,) at other coefficients (p,), to first order: what Newton's method predicts."""
        return np.asarray(self.hazard * np.exp(-self.means @ (b - self.b)))


def of_rows(X: np.ndarray, followed: times.Followed, beta: np.ndarray, hazard: np.ndarray) -> dict[str, np.ndarray]:
    """Sum up what a step of Newton's method needs of some rows.

    Args:
        X: columns (n, p).
        followed: the rows' times.
        beta: coefficients (p,).
        hazard: of each bin (B,).

    Returns:
        ``events`` in each bin (B,); ``risk`` (B, 1 + p), sums over rows of exp(eta) times time at risk, and of this
        times the columns; ``happened`` (p,), the columns' sums over rows with an event; ``hessian`` (p, p), sums of
        their products, each row weighted by its expected number of events; ``weights`` (n, B), what a row weighs in
        each bin.
    """
    weights = followed.spent() * np.exp(X @ beta)[:, None]
    return {
        "events": followed.events(),
        "risk": weights.T @ np.column_stack([np.ones(len(X)), X]),
        "happened": followed.event @ X,
        "hessian": X.T @ ((weights @ hazard)[:, None] * X),
        "weights": weights,
    }


def exact_sums(X: np.ndarray, followed: times.Followed, eta: np.ndarray, hazard: np.ndarray) -> dict[str, Any]:
    """Sum up the same without rounding, of rows that no bin is joined for.

    A row is at risk for the whole width of each bin before the one in which it leaves. So the sums for a bin are its
    width times the sums of exp(eta) (1, x) over the rows that leave later, and what those add that leave in it.

    Args:
        X: columns (n, p).
        followed: the rows' times, with ``least`` 0.
        eta: log hazard ratios (n,), each of which follows from its row alone.
        hazard: of each bin (B,).

    Returns:
        ``events``, ``risk``, ``happened`` and ``hessian`` as ``of_rows`` has them; ``at_risk`` and ``expected`` (n,),
        what a row weighs in the sums over bins, and in those times the hazards.
    """
    begins, B = np.concatenate([[0.0], followed.ends]), len(hazard)
    widths, bins = np.diff(begins), followed.bins
    spent, ratio = followed.time - begins[bins], np.exp(eta)  # in the bin in which a row leaves
    columns, c = np.ascontiguousarray(X.T), X.shape[1] + 1
    each = np.empty((2 * c, len(X)))
    each[0] = ratio
    np.multiply(ratio, columns, out=each[1:c])
    np.multiply(spent, each[:c], out=each[c:])
    found = exact.sums(each.T, bins, B)
    places = np.arange(B * 2 * c).reshape(B, 2, c)
    leaving, within = (found.take(places[:, i].ravel()) for i in (0, 1))
    of_bins = np.fromiter(leaving.numbers, object, B * c).reshape(B, c)
    later = np.cumsum(of_bins[:0:-1], axis=0)[::-1]  # leaving after each bin but the last
    wide = exact.joined(widths.tolist()).take(np.repeat(np.arange(B - 1), c))
    before = exact.Exact(tuple(later.ravel().tolist()), leaving.exponent).times(wide)
    expected = ratio * (np.append(0.0, np.cumsum(hazard[:-1] * widths))[bins] + spent * hazard[bins])
    return {
        "events": followed.events(),
        "risk": exact.joined([before, *[0.0] * c]) + within,
        "happened": exact.sums((followed.event * columns).T),
        "hessian": exact.EXACTLY.quadratic(columns.T, expected, np.zeros(len(X)))[0],
        "at_risk": ratio * followed.time,
        "expected": expected,
    }


def of_sums(
    events: np.ndarray,
    risk: np.ndarray,
    happened: np.ndarray,
    hessian: np.ndarray,
    beta: np.ndarray,
    hazard: np.ndarray,
) -> dict[str, Any]:
    """Compute the derivatives of the log-likelihood by the coefficients, the hazards being the best ones.

    Args:
        events: see ``of_rows`` (B,), over all rows.
        risk: the same (B, 1 + p).
        happened: the same (p,).
        hessian: the same (p, p).
        beta: the coefficients (p,).
        hazard: those of the Hessian (B,), near the best ones.

    Returns:
        ``gradient`` (p,); ``hessian`` (p, p), minus the second derivatives, at those hazards; ``log_likelihood``;
        ``baseline``, the best hazards.
    """
    there = risk[:, 0] > 0
    means = risk[:, 1:] / np.where(there, risk[:, 0], 1.0)[:, None]
    best = np.where(there, events / np.where(there, risk[:, 0], 1.0), 0.0)
    some = best > 0
    d = events[some]
    return {
        "gradient": happened - events @ means,
        "hessian": hessian - means.T @ ((hazard * risk[:, 0])[:, None] * means),
        "log_likelihood": float(happened @ beta + d @ np.log(best[some]) - d.sum()),
        "baseline": Baseline(beta, events, best, means),
    }
