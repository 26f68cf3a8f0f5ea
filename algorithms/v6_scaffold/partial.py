"""The client of SCAFFOLD."""

from typing import Any

import numpy as np

from v6_federated import functions, training
from v6_federated.node import Node
from v6_federated.settings import BatchSize, Epochs, Known, LearningRate, LrDecayRound, LrDecayStep


@functions.partial
def client_update(
    node: Node,
    weights: Any,
    c: Any,
    *,
    known: Known,
    epochs: Epochs,
    batch_size: BatchSize,
    lr: LearningRate,
    lr_decay_round: LrDecayRound,
    lr_decay_step: LrDecayStep,
) -> dict[str, Any]:
    """Local steps from x (d,), each corrected by c - c_k (d,). Karimireddy et al. 2020, Algorithm 1, lines 6 to 14.

    A node that has lost its c_k starts again from zero and says so. Garst's equations 2.8 and 2.9 lose eta and a
    bracket and turn signs round; this is the original.
    """
    x, y = weights, weights + 0
    last = known.get(str(node.organization_id))  # the round in which this node kept its c_k; None before its first
    kept = None if last is None else node.state.load(last)
    c_k = 0 * x if kept is None else node.model.asarray(kept["c_k"])
    steps = epochs * node.steps_per_epoch(batch_size)
    eta = training.schedule(lr, lr_decay_round, lr_decay_step, node.round, (node.round - 1) * steps)
    taken, travelled = 0, 0.0

    def step(y: Any, g: Any) -> None:
        nonlocal taken, travelled
        y -= eta(taken) * (g - c_k + c)
        travelled += eta(taken)  # steps times eta_l, where eta_l is constant
        taken += 1

    loss = node.train(y, step, epochs, batch_size)
    # option II; with a rate of zero the mean gradient cannot be read off the steps, and c_k stays
    c_k_new = c_k - c + (x - y) / travelled if travelled else c_k
    node.state.save({"c_k": c_k_new})
    dy = y - x
    answer = {"dy": dy, "travelled": travelled, "train_loss": loss, "drift": float(np.sqrt(float((dy * dy).sum())))}
    if kept is None and last is not None:
        answer["state_lost"] = True
    return answer
