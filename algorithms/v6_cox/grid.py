"""One baseline hazard for all hospitals, constant within agreed bins of time: the piecewise exponential model.

Its likelihood is a sum over rows and bins, so hospitals' sums add up. In each bin the best hazard follows from them:
events over the sum of exp(eta) times time at risk.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from v6_federated import times


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
