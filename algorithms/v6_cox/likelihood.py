"""The partial likelihood of Cox's model, and the model itself."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from v6_federated import SafeError, models

FURTHEST = models.outcomes.FURTHEST


class Cox(models.LinearModel):
    """Cox's proportional hazards: the hazard is h(t) exp(X W^T). Its parameters w (d + 1,) are W and a 0.

    The scores are log hazard ratios against a row of zeros. Only the method ``cox`` trains it.

    Args:
        features: number of features, d.
        classes: 1, as the label is a time.
    """

    traits = models.Traits(regression=True)

    def __init__(self, features: int, classes: int) -> None:
        super().__init__("logistic", features, 2)
        if classes != 1:
            raise SafeError("the label of cox is a time, and the job has classes; choose glm or fedavg for classes")

    def loss_and_gradient(self, w: np.ndarray, X: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray]:
        """Refuse training by gradients: they would be those of logistic regression.

        Raises:
            SafeError: always.
        """
        raise SafeError("the model cox is fitted by the method cox only; choose logreg for other methods")

    def loss(self, scores: np.ndarray, y: np.ndarray) -> float:
        """Refuse evaluation: a log hazard ratio is no prediction of a time.

        Raises:
            SafeError: always.
        """
        raise SafeError("the model cox predicts no times to evaluate; leave holdout and evaluators out")

    def predict(self, w: np.ndarray, X: np.ndarray) -> np.ndarray:
        """Compute the log hazard ratio of each row (n,)."""
        return self.scores(w, X)[:, 0]


models.register("cox", Cox)


@dataclass(frozen=True)
class AtRisk:
    """Sums of exp(eta) (1, x) at each of B times with events.

    Attributes:
        events: number of events d (B,).
        zeroth: of rows at risk (B,).
        first: the same with x (B, p).
        tied_zeroth: of rows with an event at this time (B,).
        tied_first: the same with x (B, p).
    """

    events: np.ndarray
    zeroth: np.ndarray
    first: np.ndarray
    tied_zeroth: np.ndarray
    tied_first: np.ndarray


@dataclass(frozen=True)
class Terms:
    """What the partial likelihood takes from sums at each time.

    Attributes:
        means: sum over events of the mean x at risk (p,).
        products: sum over events of these means' outer products (p, p).
        log_risk: sum over events of the logarithm of the risk.
        per_risk: by how much a unit of risk counts at each time (B,): increments of the cumulative hazard.
        per_tied: how much of it a row with an event at this time does not count (B,).
    """

    means: np.ndarray
    products: np.ndarray
    log_risk: float
    per_risk: np.ndarray
    per_tied: np.ndarray


def terms(at: AtRisk, ties: str) -> Terms:
    """Compute the terms of the partial likelihood, with ties as Breslow 1974 or Efron 1977 treat them.

    Args:
        at: sums at each time.
        ties: ``breslow``: all events of one time have the same risk; ``efron``: of d events at one time, the l-th one's
            risk lacks (l - 1) / d of the risk of these d rows.

    Returns:
        The terms.
    """
    if ties == "breslow":
        which, count = np.flatnonzero(at.events), at.events[at.events > 0].astype(np.float64)
        lacking = np.zeros(len(which))
    else:
        which, count = np.repeat(np.arange(len(at.events)), at.events.astype(np.int64)), np.ones(1)
        first = np.concatenate([[0], np.cumsum(at.events)[:-1]])
        lacking = (np.arange(len(which)) - first[which]) / at.events[which]
    risk = at.zeroth[which] - lacking * at.tied_zeroth[which]
    mean = (at.first[which] - lacking[:, None] * at.tied_first[which]) / risk[:, None]
    B, weight = len(at.events), np.broadcast_to(count, len(which))
    return Terms(
        means=weight @ mean,
        products=mean.T @ (weight[:, None] * mean),
        log_risk=float(weight @ np.log(risk)),
        per_risk=np.bincount(which, weight / risk, B),
        per_tied=np.bincount(which, weight * lacking / risk, B),
    )


def of_stratum(X: np.ndarray, time: np.ndarray, event: np.ndarray, beta: np.ndarray, ties: str) -> dict[str, Any]:
    """Sum up what a step of Newton's method needs of the rows of one stratum.

    Args:
        X: columns (n, p).
        time: of the event, or of censoring (n,). Rows that are censored when an event happens are still at risk.
        event: 1 for an event, 0 for censoring (n,).
        beta: coefficients (p,).
        ties: see ``terms``.

    Returns:
        ``gradient`` (p,) and ``hessian`` (p, p) of minus the second derivatives of the log partial likelihood,
        ``log_likelihood``, and ``working`` (n,), the expected number of events of each row.
    """
    X = X - X.mean(axis=0)
    X[:, np.ptp(X, axis=0) <= np.finfo(np.float64).eps * np.abs(X).max(axis=0, initial=0.0)] = 0.0
    eta = X @ beta
    eta = np.maximum(eta - eta.max(), -FURTHEST)
    w, happened = np.exp(eta), event > 0
    order = np.argsort(time, kind="stable")
    times, tied = np.unique(time[happened], return_inverse=True)
    begin, B = np.searchsorted(time[order], times), len(times)

    def from_here_on(values: np.ndarray) -> np.ndarray:
        return np.cumsum(values[order][::-1], axis=0)[::-1][begin]

    tied_first = np.zeros((B, len(beta)))
    np.add.at(tied_first, tied, (w[:, None] * X)[happened])
    at = AtRisk(
        events=np.bincount(tied, minlength=B),
        zeroth=from_here_on(w),
        first=from_here_on(w[:, None] * X),
        tied_zeroth=np.bincount(tied, w[happened], B),
        tied_first=tied_first,
    )
    found = terms(at, ties)
    hazard = np.concatenate([[0.0], np.cumsum(found.per_risk)])[np.searchsorted(times, time, side="right")]
    hazard[happened] -= found.per_tied[tied]
    working = w * hazard
    return {
        "gradient": X[happened].sum(axis=0) - found.means,
        "hessian": X.T @ (working[:, None] * X) - found.products,
        "log_likelihood": float(eta[happened].sum()) - found.log_risk,
        "working": working,
    }
