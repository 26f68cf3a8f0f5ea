"""The client of federated SVRG."""

from v6_federated import (
    ONE_STEP,
    RISK_SETS,
    BatchSize,
    Loss,
    Mean,
    Node,
    Result,
    Vector,
    models,
    of_gradients,
    partial,
)
from v6_fsvrg.central import Stepsize
from v6_fsvrg.perceptron import svrg_pass


@partial(sums={"gradient": Mean(additive=of_gradients), "train_loss": Loss(additive=of_gradients)}, instead=RISK_SETS)
def gradient(node: Node, weights: Vector) -> Result:
    """Compute grad F_k(w_t) (d,), the mean gradient over the node's rows."""
    loss, g = node.summed(weights)
    return {"gradient": g, "train_loss": loss}


@partial(sums={"weights": Mean()}, instead=ONE_STEP)
def client_update(
    node: Node, weights: Vector, full_gradient: Vector, *, stepsize: Stepsize, batch_size: BatchSize
) -> Result:
    """One pass over a permutation of the node's rows. Nilsson et al. 2018, Algorithm 2, lines 7 to 11.

    ``batch_size`` B = 1 is the paper; a step on B rows is as long as B steps on one.
    """

    def step(w: Vector, theta: Vector) -> None:
        w -= theta

    w_t, w = weights, weights + 0
    h_k = stepsize / len(node.rows)
    if batch_size == 1 and isinstance(node.model, models.Perceptron):  # the same steps, several times as fast
        order = node.permutation()
        svrg_pass(node.model, w, w_t, node.rows.X, node.rows.y, full_gradient, h_k, order, node.apart(w))
        return {"weights": w}
    for X, y in node.batches(1, batch_size):
        # the model overwrites a gradient with the next one
        theta = full_gradient - node.model.loss_and_gradient(w_t, X, y)[1]
        theta += node.model.loss_and_gradient(w, X, y)[1]
        theta *= h_k * len(y)
        node.take(step, w, theta)
    return {"weights": w}
