"""The server of FederatedAveraging."""

from typing import Annotated

import numpy as np
from pydantic import Field

from v6_federated import Answers, Federation, Fraction, LocalSGD, Result, Rounds, central

ServerMomentum = Annotated[
    float, Field(ge=0, lt=1, description="beta of FedAvgM's v <- beta v + (w_t - w), w_t+1 = w_t - v, at the server")
]


@central(recoverable=True, private=True, known_as={"fedprox": "--set proximal_mu=0.1", "fedsgd": ""})
def central(
    federation: Federation,
    *,
    rounds: Rounds,
    fraction: Fraction = 1.0,
    local: LocalSGD = LocalSGD(),
    server_momentum: ServerMomentum = 0.0,
) -> Result:
    """FederatedAveraging: McMahan et al. 2017, Algorithm 1. FedSGD is E = 1 and B unset, the defaults.

    Symbols: K nodes, C = fraction, S_t the m nodes asked in round t, n_k rows of node k, m_t the rows of S_t,
    w (d,) the model, v (d,) the momentum of FedAvgM (Hsu et al. 2019), beta = server_momentum. What leaves a node: its
    w after local training, n_k, its mean training loss, and counts of how w_t does on its held-out rows. Bytes a round:
    16/3 d down and up for each of the m nodes, and a little JSON.
    """
    # v is central's alone: with momentum a job cannot go on from what nodes were sent
    s = federation.start(w=federation.initial_weights, **({"v": 0.0} if server_momentum else {}))
    for t in federation.rounds(rounds):
        S_t = federation.sample(fraction)  # m <- max(floor(C K), 1)
        if federation.one_noisy_sum:  # FedSGD with noise
            w, answers = noisy_step(federation, S_t, s.w, local, t)
        else:
            answers = federation.ask("client_update", S_t, weights=s.w, local=local)
            w = answers.weighted_mean("weights")  # sum over S_t of n_k / m_t w_k
        if server_momentum:
            s.v = np.float32(server_momentum) * s.v + (s.w - w)
            w = s.w - s.v
        s.w = w
        federation.record(answers, s.w)
    return federation.result(s.w)


def noisy_step(
    federation: Federation, S_t: list[int], w: np.ndarray, local: LocalSGD, t: int
) -> tuple[np.ndarray, Answers]:
    """A step w <- w - eta g (d,), for the mean g of clipped gradients with noise that the nodes of a block share."""
    means = {"gradient": ["count"]}
    answers = federation.ask("noisy_gradient", S_t, weights=w, returns=["gradient"], means=means)
    eta = local.lr * local.lr_decay_round ** (t - 1) / (1 + local.lr_decay_step * (t - 1))
    return w - np.float32(eta) * federation.mean_gradient(answers, w), answers
