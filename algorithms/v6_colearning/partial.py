"""The client of Co-Learning."""

from typing import Annotated

from pydantic import Field

from v6_colearning.central import LrCycle
from v6_federated import LARGE, ONE_STEP, Epochs, LocalSGD, Node, Number, Result, Role, Vector, partial

EpochsBefore = Annotated[int, Field(ge=0, le=LARGE, description="epochs of the rounds before"), Number, Role.OTHER]


@partial(instead=ONE_STEP)
def client_update(
    node: Node, weights: Vector, *, epochs: Epochs, epochs_before: EpochsBefore, local: LocalSGD, lr_cycle: LrCycle
) -> Result:
    """E_t epochs from w_t (d,); in epoch e = 0, 1, ... the rate is eta_0 * lambda^(e / E_t)."""
    E_t, w = epochs, weights + 0
    steps = node.steps_per_epoch(local.batch_size)
    eta_0 = node.rates(local, steps_before=epochs_before * steps)
    step = node.optimizer(local, w_t=weights, rates=lambda i: eta_0(i) * lr_cycle ** (i // steps / E_t))
    loss = node.train(w, local, step, epochs=E_t)
    return {"weights": w, "train_loss": loss}
