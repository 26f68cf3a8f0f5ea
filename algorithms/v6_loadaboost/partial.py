"""The client of LoAdaBoost."""

from typing import Any

from v6_federated import functions, training
from v6_federated.node import Node
from v6_federated.settings import (
    BatchSize,
    Epochs,
    LearningRate,
    LrDecayRound,
    LrDecayStep,
    Median,
    OptimizerName,
    Retrain,
)


@functions.partial
def client_update(
    node: Node,
    weights: Any,
    *,
    median: Median,
    epochs: Epochs,
    batch_size: BatchSize,
    lr: LearningRate,
    lr_decay_round: LrDecayRound,
    lr_decay_step: LrDecayStep,
    optimizer: OptimizerName,
    retrain: Retrain,
) -> dict[str, Any]:
    """E/2 epochs, and more while the loss is on the wrong side of the last round's median; 3E/2 at most.

    Halves are rounded down, to one epoch at least: epochs are whole.
    """
    E, w = epochs, weights + 0
    half, most = max(E // 2, 1), max(3 * E // 2, 1)
    steps = E * node.steps_per_epoch(batch_size)  # a round counts as E epochs to the rate's decay, whatever was used
    step = training.optimizer(
        optimizer, training.schedule(lr, lr_decay_round, lr_decay_step, node.round, (node.round - 1) * steps)
    )

    def unsatisfied(loss: float) -> bool:
        if median is None:
            return False
        return loss > median if retrain == "above" else loss < median

    train_loss = node.train(w, step, half, batch_size)
    used, trial, L_k = half, 1, node.loss(w)
    while unsatisfied(L_k) and used < most:
        more = min(max(half - trial, 1), most - used)  # the poster's last trial may pass 3E/2
        train_loss = node.train(w, step, more, batch_size)
        used, trial, L_k = used + more, trial + 1, node.loss(w)
    return {"weights": w, "train_loss": train_loss, "local_loss": L_k, "epochs": used}
