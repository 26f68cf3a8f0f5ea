"""The server of FederatedAveraging."""

import numpy as np

from v6_federated import Answers, Federation, Fraction, LocalSGD, Result, Rounds, central


@central(recoverable=True, private=True)
def central(
    federation: Federation, *, rounds: Rounds, fraction: Fraction = 1.0, local: LocalSGD = LocalSGD()
) -> Result:
    """FederatedAveraging: McMahan et al. 2017, Algorithm 1. FedSGD is E = 1 and B unset, the defaults.

    Symbols: K nodes, C = fraction, S_t the m nodes asked in round t, n_k rows of node k, m_t the rows of S_t,
    w (d,) the model. What leaves a node: its w after local training, n_k, its mean training loss, and counts of how w_t
    does on its held-out rows. Bytes a round: 16/3 d down and up for each of the m nodes, and a little JSON.
    """
    s = federation.start(w=federation.initial_weights)
    for t in federation.rounds(rounds):
        S_t = federation.sample(fraction)  # m <- max(floor(C K), 1)
        if federation.one_noisy_sum:  # FedSGD with noise
            s.w, answers = noisy_step(federation, S_t, s.w, local, t)
            federation.record(answers, s.w)
            continue
        answers = federation.ask("client_update", S_t, weights=s.w, local=local)
        s.w = answers.weighted_mean("weights")  # sum over S_t of n_k / m_t w_k
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
