"""The client of LoAdaBoost."""

from typing import Annotated

from pydantic import Field

from v6_federated import LocalSGD, Node, Number, Result, Role, Vector, partial
from v6_loadaboost.central import UNTIL, Retrain

Median = Annotated[
    float | None, Field(allow_inf_nan=False, description="of the nodes' losses in the round before"), Number, Role.OTHER
]


@partial(single_answers=UNTIL)
def client_update(node: Node, weights: Vector, *, median: Median, local: LocalSGD, retrain: Retrain) -> Result:
    """E/2 epochs, and more while the loss is on the wrong side of the last round's median; 3E/2 at most.

    Halves are rounded down, to one epoch at least: epochs are whole.
    """
    E, w = local.epochs, weights + 0
    half, most = max(E // 2, 1), max(3 * E // 2, 1)
    step = node.optimizer(local, w_t=weights)  # a round counts as E epochs to the rate's decay, whatever was used

    def unsatisfied(loss: float) -> bool:
        if median is None:
            return False
        return loss > median if retrain == "above" else loss < median

    train_loss = node.train(w, local, step, epochs=half)
    used, trial, L_k = half, 1, node.loss(w)
    while unsatisfied(L_k) and used < most:
        more = min(max(half - trial, 1), most - used)  # the poster's last trial may pass 3E/2
        train_loss = node.train(w, local, step, epochs=more)
        used, trial, L_k = used + more, trial + 1, node.loss(w)
    return {"weights": w, "train_loss": train_loss, "local_loss": L_k, "epochs": used}
