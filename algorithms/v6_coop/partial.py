"""The client of CO-OP."""

from typing import Any

from v6_federated import functions, training
from v6_federated.node import Node
from v6_federated.settings import BatchSize, Epochs, LearningRate, LrDecayRound, LrDecayStep, OptimizerName


@functions.partial
def client_update(
    node: Node,
    weights: Any = None,
    *,
    epochs: Epochs,
    batch_size: BatchSize,
    lr: LearningRate,
    lr_decay_round: LrDecayRound,
    lr_decay_step: LrDecayStep,
    optimizer: OptimizerName,
) -> dict[str, Any]:
    """E epochs from ``weights`` (d,), or where none came, from the node's own model: it was overactive and trains on.
    Nilsson et al. 2018, Algorithm 3, lines 18 to 27.

    ``node.round`` counts this node's calls. The model travels with the answer: asking for the age first, as the paper's
    nodes do, would cost a container. A node that has lost its model trains nothing and says so.
    """
    kept = node.state.load(node.round - 1)
    if weights is None and kept is None:
        return {"state_lost": True, "train_loss": None}
    w = node.model.asarray(kept["w"]) if weights is None and kept is not None else weights + 0
    steps = epochs * node.steps_per_epoch(batch_size)
    eta = training.schedule(lr, lr_decay_round, lr_decay_step, node.round, (node.round - 1) * steps)
    loss = node.train(w, training.optimizer(optimizer, eta), epochs, batch_size)
    node.state.save({"w": w})
    return {"weights": w, "train_loss": loss}
