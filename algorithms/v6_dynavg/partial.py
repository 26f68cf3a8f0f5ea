"""The nodes of dynamic averaging."""

from typing import Annotated

import numpy as np
from pydantic import Field

from v6_dynavg.central import WHO, Delta
from v6_federated import LARGE, LocalSGD, Node, Number, Result, Role, SafeError, Vector, partial

IsReference = Annotated[bool, Field(description="whether the weights are the new reference too"), Role.OTHER]
Since = Annotated[int, Field(ge=0, le=LARGE, description="the last round whose passes are done"), Number, Role.OTHER]

LOST = {"state_lost": True, "violation": False, "train_loss": None}


@partial(single_answers=WHO)
def local_update(
    node: Node, weights: Vector = None, *, is_reference: IsReference = False, delta: Delta, local: LocalSGD
) -> Result:
    """Round t at node k. Reddy 2020, Algorithm 1 (Kamp et al. 2018).

    The node trains its model f_k (d,) and checks |f_k - r|^2 > Delta against the reference r (d,). It sends f_k only if
    that is so. ``weights`` (d,) is the mean that it takes for f_k, if it took part in the last one; ``is_reference``
    says that it is the new reference too. A node that has lost its model trains nothing and says so: central then sends
    it the reference.
    """
    kept = node.state.load(node.round - 1)  # central asks all nodes in every round: older models are stale
    if is_reference and weights is None:
        raise SafeError("the task lacks the new reference; send it as weights")
    if is_reference:
        f, r = weights + 0, weights
    elif kept is None:
        return dict(LOST)
    else:
        f, r = node.model.asarray(kept["f"]) if weights is None else weights + 0, node.model.asarray(kept["r"])
    loss = node.train(f, local)
    squared = float(((f - r) ** 2).sum())
    node.state.save({"f": f, "r": r})
    # central sees whether a node decides to send, so the decision must say no more than the rounded distance does
    answer = {
        "train_loss": loss,
        "from_reference": node.rounded(squared**0.5),
        "violation": node.rounded(squared) > delta,
    }
    return {**answer, "weights": f} if answer["violation"] else answer


@partial(single_answers=WHO)
def send_model(node: Node) -> Result:
    """The node's own model f_k (d,), which central asks for to augment the violators."""
    kept = node.state.load(node.round)
    return {"weights": node.model.asarray(kept["f"])} if kept else dict(LOST)


@partial(single_answers=WHO)
def singular_index(node: Node) -> Result:
    """q_k, the first index at which the singular values of the node's X add up to 95% of their sum.

    Reddy 2020, equations 3.3 to 3.6: sums of sigma, as printed, not of sigma^2. Only q_k leaves the node.
    """
    sigma = np.linalg.svd(node.rows.X.astype(np.float64), compute_uv=False)
    r = np.cumsum(sigma) / sigma.sum() if sigma.sum() else np.ones_like(sigma)
    return {"q": int(np.argmax(r >= 0.95))}


@partial(single_answers=WHO)
def train(node: Node, weights: Vector, *, since: Since, local: LocalSGD) -> Result:
    """ClientUpdate of Reddy 2020, Algorithms 3 and 4: all passes of the rounds after ``since``, from ``weights`` (d,).

    Each pass has the learning rates of the round in which it was due. The answer holds the model (d,) and its loss.
    """
    if since >= node.round:
        raise SafeError(f"since={since} is refused; expected an earlier round than {node.round}")
    steps = local.epochs * node.steps_per_epoch(local.batch_size)  # of one round
    passes = (node.round - since) * local.epochs

    def eta(i: int) -> float:
        t = since + 1 + i // steps
        return node.rates(local, round_=t, steps_before=since * steps)(i)

    w = weights + 0
    loss = node.train(w, local, node.optimizer(local, weights, eta), epochs=passes)
    return {"weights": w, "train_loss": loss, "local_loss": node.loss(w), "passes": passes}
