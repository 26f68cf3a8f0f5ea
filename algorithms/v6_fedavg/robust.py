"""What the server makes of the nodes' models: their mean by rows, or a robust one, which needs the single models."""

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from v6_federated import Answers, Excludes, Needs, Number, Record

AggregateName = Annotated[
    Literal["mean", "median", "trimmed", "geometric"],
    Field(description="the nodes' mean by rows, or a robust one (aggregation=plain)"),
    Excludes(schedule="cyclic", because="there is one model at a time"),
]
Trim = Annotated[
    float,
    Field(ge=0, lt=0.5, description="share of the nodes whose numbers are left out at each end"),
    Number,
    Needs(aggregate="trimmed"),
]
SMOOTHING = 1e-6  # nu of the smoothed Weiszfeld algorithm
STEPS = 100  # of it at most
SETTLED = 1e-10  # relative change of the sum of distances at which it ends


class Aggregate(Record):
    """How the server combines the nodes' models.

    Attributes:
        aggregate: "mean", weighted by rows; "median" or "trimmed" mean of each number, every node counting the same
            (Yin et al. 2018); "geometric" median, weighted by rows (Pillutla et al. 2022).
        trim: share of the nodes that the trimmed mean leaves out at each end.
    """

    aggregate: AggregateName = "mean"
    trim: Trim = 0.1

    def of(self, answers: Answers) -> np.ndarray:
        """Combine the nodes' models.

        Args:
            answers: the answers, with ``weights`` (d,).

        Returns:
            The new model (d,), float32.

        Raises:
            SafeError: central sees sums only, and they are not enough.
        """
        if self.aggregate == "mean":
            return answers.weighted_mean("weights")  # sum over S_t of n_k / m_t w_k
        W = np.array([a["weights"] for a in answers.each()], np.float64)
        if self.aggregate == "geometric":
            return geometric_median(W, np.array([a.n for a in answers.each()])).astype(np.float32)
        b = (len(W) - 1) // 2 if self.aggregate == "median" else int(self.trim * len(W) + 1e-9)
        return np.sort(W, axis=0)[b : len(W) - b].mean(axis=0).astype(np.float32)


def geometric_median(W: np.ndarray, n: np.ndarray) -> np.ndarray:
    """Find the point whose weighted sum of distances is smallest: Pillutla et al. 2022, smoothed Weiszfeld.

    Args:
        W: the points (m, d).
        n: their weights (m,).

    Returns:
        The point (d,).
    """
    z, before = np.average(W, axis=0, weights=n), np.inf
    for _ in range(STEPS):
        distance = np.linalg.norm(W - z, axis=1)
        if before - (total := n @ distance) <= SETTLED * total:
            break
        z, before = np.average(W, axis=0, weights=n / np.maximum(distance, SMOOTHING)), total
    return z
