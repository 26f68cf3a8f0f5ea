"""The server of SCAFFOLD."""

from typing import Any

import numpy as np

from v6_federated import functions
from v6_federated.federation import Federation, combine, mean
from v6_federated.settings import BatchSize, Epochs, Fraction, GlobalLr, LearningRate, LrDecayRound, LrDecayStep, Rounds


@functions.central
def central(
    federation: Federation,
    *,
    rounds: Rounds,
    fraction: Fraction = 1.0,
    epochs: Epochs = 1,
    batch_size: BatchSize = None,
    lr: LearningRate = 0.1,
    global_lr: GlobalLr = 1.0,
    lr_decay_round: LrDecayRound = 1.0,
    lr_decay_step: LrDecayStep = 0.0,
) -> dict[str, Any]:
    """SCAFFOLD: Karimireddy et al. 2020, Algorithm 1, with option II for c_k.

    Symbols: N nodes, S the nodes of a round, x (d,) the model, c (d,) the server's control variate, y_k (d,) and c_k
    (d,) node k's model and control variate, eta_l = lr, eta_g = global_lr. All c start at zero. What leaves a node:
    y_k - x, steps eta_l, n_k, its mean training loss and drift, and counts of how x does on its held-out rows. Neither
    c_k, the node's mean gradient, nor its change is sent. Bytes a round: 32/3 d down and 16/3 d up for each node of S.
    """
    x = federation.initial_weights()
    c = np.zeros_like(x)
    N = len(federation.organizations)
    federation.keep_state()  # c_k
    known: dict[str, int] = {}  # the round in which a node kept its c_k
    for t in federation.rounds(rounds):
        S = federation.sample(fraction)
        answers = federation.ask(
            "client_update",
            S,
            weights=x,
            c=c,
            known=known,
            epochs=epochs,
            batch_size=batch_size,
            lr=lr,
            lr_decay_round=lr_decay_round,
            lr_decay_step=lr_decay_step,
        )
        x = x + np.float32(global_lr) * mean(answers, "dy")  # every node alike, as the paper has it
        # c_k+ - c_k = -c + (x - y_k) / (steps eta_l): known from y_k - x, so nodes need not send it as the paper's do
        if lr:  # with a rate of zero no c_k changes
            dc = -c - combine(answers, "dy", lambda a: 1 / (a.values["travelled"] or np.inf)) / np.float32(len(S))
            c = c + np.float32(len(S) / N) * dc
        known |= dict.fromkeys(map(str, S), t)
        federation.record(answers)
    return federation.result(x)
