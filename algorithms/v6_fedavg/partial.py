"""The client of FederatedAveraging."""

from typing import Any

from v6_federated import functions, training
from v6_federated.node import Node
from v6_federated.settings import BatchSize, Epochs, LearningRate, LrDecayRound, LrDecayStep, OptimizerName, ProximalMu


@functions.partial
def client_update(
    node: Node,
    weights: Any,
    *,
    epochs: Epochs,
    batch_size: BatchSize,
    lr: LearningRate,
    lr_decay_round: LrDecayRound,
    lr_decay_step: LrDecayStep,
    optimizer: OptimizerName,
    proximal_mu: ProximalMu,
) -> dict[str, Any]:
    """ClientUpdate(k, w) of McMahan et al. 2017, Algorithm 1: E epochs of minibatch SGD from w_t (d,)."""
    steps = epochs * node.steps_per_epoch(batch_size)
    step = training.optimizer(
        optimizer, training.schedule(lr, lr_decay_round, lr_decay_step, node.round, (node.round - 1) * steps)
    )
    w_t, w = weights, weights + 0

    def proximal(w: Any, g: Any) -> None:
        g += proximal_mu * (w - w_t)  # FedProx (Li et al. 2020), not in the paper; off by default
        step(w, g)

    loss = node.train(w, proximal if proximal_mu else step, epochs, batch_size)  # w <- w - eta g
    return {"weights": w, "train_loss": loss}
