"""The client of CO-OP."""

from v6_coop.central import MOVES
from v6_federated import LocalSGD, Node, Result, Vector, partial


@partial(single_answers=MOVES)
def client_update(node: Node, weights: Vector = None, *, local: LocalSGD) -> Result:
    """Line 5 of Nilsson et al. 2018, Algorithm 3: E epochs from ``weights`` (d,).

    A node that is sent none was overactive, and trains on from its own model.
    ``node.round`` counts this node's calls. The model is sent with the answer: the paper's nodes ask for the age first,
    which would cost another container here. A node that has lost its model trains nothing and says so.
    """
    kept = node.state.load(node.round - 1)
    if weights is None and kept is None:
        return {"state_lost": True, "train_loss": None}
    w = node.model.asarray(kept["w"]) if weights is None and kept is not None else weights + 0
    loss = node.train(w, local)
    node.state.save({"w": w})
    return {"weights": w, "train_loss": loss}
