"""The client of FederatedAveraging."""

from v6_fedavg.compression import Compression, compressed
from v6_fedavg.compression import Known as KnownErrors
from v6_fedavg.personal import Known, Personal, own_model, train_ditto
from v6_federated import (
    ONE_STEP,
    Count,
    LocalSGD,
    Loss,
    Mean,
    Node,
    Result,
    Truth,
    Vector,
    of_steps,
    of_the_model,
    partial,
)


@partial(sums={"weights": Mean(additive=of_steps), "train_loss": Loss(additive=of_steps)}, instead=ONE_STEP)
def client_update(node: Node, weights: Vector, *, local: LocalSGD) -> Result:
    """ClientUpdate(k, w) of McMahan et al. 2017, Algorithm 1: E epochs of minibatch SGD from w_t (d,)."""
    return trained(node, weights, local)


def trained(node: Node, weights: Vector, local: LocalSGD) -> Result:
    """What ClientUpdate returns: the model, or what all rows change in it if one step on all rows is taken."""
    if (one := node.one_step(weights, local)) is not None:  # of which all hospitals' rows add up to the last bit
        return {"weights": one[1], "train_loss": one[0]}
    w = weights + 0
    loss = node.train(w, local)  # w <- w - eta g for each batch of B rows, E times over
    return {"weights": w, "train_loss": loss}


@partial(sums={"update": Mean(), "train_loss": Loss(), "state_lost": Truth()}, instead=ONE_STEP)
def compressed_update(
    node: Node, weights: Vector, *, local: LocalSGD, compression: Compression, known: KnownErrors
) -> Result:
    """The same, and what is sent is the change w_k - w_t (d,) in fewer bytes."""
    w = weights + 0
    loss = node.train(w, local)
    update, lost = compressed(node, w - weights, compression, known)
    return {"update": update, "train_loss": loss, **({"state_lost": True} if lost else {})}


@partial(sums={"weights": Mean(), "train_loss": Loss(), "state_lost": Truth()}, instead=ONE_STEP)
def ditto_update(node: Node, weights: Vector, *, local: LocalSGD, personal: Personal, known: Known) -> Result:
    """The same, and a round of the node's own model v_k (Li et al. 2021, Algorithm 1), which stays at the node."""
    answer = trained(node, weights, local)
    lost = train_ditto(node, weights, local, personal, known)
    return answer | ({"state_lost": True} if lost else {})


@partial(sums={}, own_model=True)
def evaluate_own(
    node: Node, weights: Vector, *, local: LocalSGD = LocalSGD(), personal: Personal, known: Known
) -> Result:
    """The evaluation of the node's own model: Ditto's v_k, or w (d,) trained on for some epochs on the node's rows."""
    v, _ = own_model(node, weights, known)
    if personal.personalize == "finetune":
        node.train(v, local.replace(local_steps=None), epochs=personal.personal_epochs)
    node.keep_own_model(v)
    return {"own_results": node.policy.own_results}


@partial(sums={"gradient": Count(of_the_model)})
def noisy_gradient(node: Node, weights: Vector) -> Result:
    """The sum of clipped gradients at w_t (d,) of a sample of rows, with the node's share of the block's noise."""
    return {"gradient": node.noisy_gradient(weights)}
