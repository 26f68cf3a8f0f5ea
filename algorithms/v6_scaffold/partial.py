"""The client of SCAFFOLD."""

from typing import Annotated

import numpy as np
from pydantic import Field

from v6_federated import ONE_STEP, Loss, Mean, Node, PlainSGD, Result, Role, Truth, Vector, partial

Known = Annotated[
    dict[str, int],
    Field(description="the round in which each node (or block) kept its state"),
    Role.KEPT,
]


@partial(
    sums={
        "dy": (Mean(weight="equal"), Mean(weight="equal", per="travelled")),
        "train_loss": Loss(),
        "state_lost": Truth(),
    },
    instead=ONE_STEP,
)
def client_update(node: Node, weights: Vector, c: Vector, *, known: Known, local: PlainSGD) -> Result:
    """Local steps from x (d,), each corrected by c - c_k (d,). Karimireddy et al. 2020, Algorithm 1, lines 6 to 14.

    A node that has lost its c_k starts again from zero and says so. Garst's equations 2.8 and 2.9 lose eta and a
    bracket and turn signs round; this is the original.
    """
    x, y = weights, weights + 0
    last = known.get(node.key)  # the round in which this node kept its c_k; None before its first
    kept = None if last is None else node.state.load(last)
    c_k = 0 * x if kept is None else node.model.asarray(kept["c_k"])
    eta = node.rates(local)
    taken, travelled = 0, 0.0

    def step(y: Vector, g: Vector) -> None:
        nonlocal taken, travelled
        y -= eta(taken) * (g - c_k + c)
        travelled += eta(taken)  # steps times eta_l, if eta_l is constant
        taken += 1

    loss = node.train(y, local, step)
    dy = node.change(y, x)  # y - x
    # option II; with a rate of zero the mean gradient cannot be read off the steps, and c_k stays
    c_k_new = c_k - c - dy / travelled if travelled else c_k
    node.state.save({"c_k": c_k_new})
    answer = {"dy": dy, "travelled": travelled, "train_loss": loss, "drift": float(np.sqrt(float((dy * dy).sum())))}
    if kept is None and last is not None:
        answer["state_lost"] = True
    return answer
