"""The client of FederatedAveraging."""

from v6_federated import LocalSGD, Node, Result, Vector, partial


@partial
def client_update(node: Node, weights: Vector, *, local: LocalSGD) -> Result:
    """ClientUpdate(k, w) of McMahan et al. 2017, Algorithm 1: E epochs of minibatch SGD from w_t (d,)."""
    w = weights + 0
    loss = node.train(w, local)  # w <- w - eta g for each batch of B rows, E times over
    return {"weights": w, "train_loss": loss}


@partial(weights="one")
def noisy_gradient(node: Node, weights: Vector) -> Result:
    """The sum of clipped gradients at w_t (d,) of a sample of rows, with the node's share of the block's noise."""
    return {"gradient": node.noisy_gradient(weights)}
