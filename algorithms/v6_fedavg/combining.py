"""What the server makes of the nodes' models: their mean, a robust mean, or the last model of a chain."""

from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from v6_federated import Answers, Federation, LocalSGD, Number

AggregateName = Annotated[
    Literal["mean", "median", "trimmed", "geometric"],
    Field(description="the nodes' mean by rows, or a robust one (aggregation=plain)"),
]
Trim = Annotated[
    float,
    Field(ge=0, lt=0.5, description="share of the nodes whose numbers are left out at each end, for aggregate=trimmed"),
    Number,
]
ScheduleName = Annotated[
    Literal["parallel", "cyclic"],
    Field(description="nodes train at once, or one after the other (aggregation=plain)"),
]
SMOOTHING = 1e-6  # nu of the smoothed Weiszfeld algorithm
STEPS = 100  # of it at most
SETTLED = 1e-10  # relative change of the sum of distances at which it ends


def combined(answers: Answers, aggregate: str, trim: float) -> np.ndarray:
    """Combine the nodes' models.

    Args:
        answers: the answers, with ``weights`` (d,).
        aggregate: "mean", weighted by rows; "median" or "trimmed" mean of each number, every node counting the same
            (Yin et al. 2018); "geometric" median, weighted by rows (Pillutla et al. 2022).
        trim: share of the nodes that the trimmed mean leaves out at each end.

    Returns:
        The new model (d,), float32.

    Raises:
        SafeError: central sees sums only, and they are not enough.
    """
    if aggregate == "mean":
        return answers.weighted_mean("weights")  # sum over S_t of n_k / m_t w_k
    W = np.array([a["weights"] for a in answers.each()], np.float64)
    if aggregate == "geometric":
        return geometric_median(W, np.array([a.n for a in answers.each()])).astype(np.float32)
    b = (len(W) - 1) // 2 if aggregate == "median" else int(trim * len(W) + 1e-9)
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


def passed_on(
    federation: Federation, order: Sequence[int], w: np.ndarray, local: LocalSGD
) -> tuple[np.ndarray, Answers]:
    """Cyclic weight transfer (Chang et al. 2018): each node trains the model of the one before.

    A node that gives no answer is passed over, as far as the job's settings allow it.

    Args:
        federation: the nodes.
        order: ids of those that take part in the round, in their order.
        w: the model (d,).
        local: local training.

    Returns:
        The last node's model (d,), and all answers.

    Raises:
        CollectResultsError: fewer answered than the job needs.
    """
    answers = Answers([])
    for k in order:
        answer = federation.ask("client_update", [k], weights=w, local=local, quorum_of=0)
        if len(answer):
            w = answer.weighted_mean("weights")
        answers += answer
    federation.require(answers, order)
    return w, answers
