"""The server of FederatedAveraging."""

import functools
from typing import Any

from v6_federated import functions
from v6_federated.federation import Federation, weighted_mean
from v6_federated.settings import (
    BatchSize,
    Epochs,
    Fraction,
    LearningRate,
    LrDecayRound,
    LrDecayStep,
    OptimizerName,
    ProximalMu,
    Rounds,
)


@functools.partial(functions.central, told_in_full=True)
def central(
    federation: Federation,
    *,
    rounds: Rounds,
    fraction: Fraction = 1.0,
    epochs: Epochs = 1,
    batch_size: BatchSize = None,
    lr: LearningRate = 0.1,
    lr_decay_round: LrDecayRound = 1.0,
    lr_decay_step: LrDecayStep = 0.0,
    optimizer: OptimizerName = "sgd",
    proximal_mu: ProximalMu = 0.0,
) -> dict[str, Any]:
    """FederatedAveraging: McMahan et al. 2017, Algorithm 1. FedSGD is E = 1 and B unset, the defaults.

    Symbols: K nodes, C = fraction, S_t the m nodes asked in round t, n_k rows of node k, m_t the rows of S_t,
    w (d,) the model. What leaves a node: its w after local training, n_k, its mean training loss, and counts of how w_t
    does on its held-out rows. Bytes a round: 16/3 d down and up for each of the m nodes, and a little JSON.
    """
    s = federation.start(w=federation.initial_weights)
    for _t in federation.rounds(rounds):
        S_t = federation.sample(fraction)  # m <- max(floor(C K), 1)
        answers = federation.ask(
            "client_update",
            S_t,
            weights=s.w,
            epochs=epochs,
            batch_size=batch_size,
            lr=lr,
            lr_decay_round=lr_decay_round,
            lr_decay_step=lr_decay_step,
            optimizer=optimizer,
            proximal_mu=proximal_mu,
        )
        s.w = weighted_mean(answers)  # sum over S_t of n_k / m_t w_k
        federation.record(answers, s.w)
    return federation.result(s.w)
