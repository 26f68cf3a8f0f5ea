"""The client of Co-Learning."""

from typing import Any

from v6_federated import functions, training
from v6_federated.node import Node
from v6_federated.settings import (
    BatchSize,
    Epochs,
    EpochsBefore,
    LearningRate,
    LrCycle,
    LrDecayRound,
    LrDecayStep,
    OptimizerName,
)


@functions.partial
def client_update(
    node: Node,
    weights: Any,
    *,
    epochs: Epochs,
    epochs_before: EpochsBefore,
    batch_size: BatchSize,
    lr: LearningRate,
    lr_decay_round: LrDecayRound,
    lr_decay_step: LrDecayStep,
    optimizer: OptimizerName,
    lr_cycle: LrCycle,
) -> dict[str, Any]:
    """E_t epochs from w_t (d,); in epoch e = 0, 1, ... the rate is eta_0 * lambda^(e / E_t)."""
    w = weights + 0
    steps = node.steps_per_epoch(batch_size)
    eta_0 = training.schedule(lr, lr_decay_round, lr_decay_step, node.round, epochs_before * steps)
    step = training.optimizer(optimizer, lambda i: eta_0(i) * lr_cycle ** (i // steps / epochs))
    loss = node.train(w, step, epochs, batch_size)
    return {"weights": w, "train_loss": loss}
