"""The server of LoAdaBoost."""

import functools
from typing import Any

import numpy as np

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
    Retrain,
    Rounds,
)


@functools.partial(functions.central, told_in_full=True)
def central(
    federation: Federation,
    *,
    rounds: Rounds,
    fraction: Fraction = 1.0,
    epochs: Epochs = 2,
    batch_size: BatchSize = None,
    lr: LearningRate = 0.1,
    lr_decay_round: LrDecayRound = 1.0,
    lr_decay_step: LrDecayStep = 0.0,
    optimizer: OptimizerName = "sgd",
    retrain: Retrain = "above",
) -> dict[str, Any]:
    """LoAdaBoost: Huang et al. 2020; Pfitzner and Arnrich's poster.

    Symbols: S_t the nodes of round t, L_k node k's loss after its local training, median their median in the last
    round, w (d,) the model, E = epochs. ``retrain`` is "above" after Huang; the poster prints the condition the other
    way round, which is "below". What leaves a node: w after local training, n_k, L_k, the epochs it used, and counts
    of how w_t does on its held-out rows. Bytes a round: 16/3 d down and up for each node of S_t.
    """
    s = federation.start(w=federation.initial_weights, median=None)  # round 1 has no median: E/2 epochs
    for _t in federation.rounds(rounds):
        S_t = federation.sample(fraction)
        answers = federation.ask(
            "client_update",
            S_t,
            weights=s.w,
            median=s.median,
            epochs=epochs,
            batch_size=batch_size,
            lr=lr,
            lr_decay_round=lr_decay_round,
            lr_decay_step=lr_decay_step,
            optimizer=optimizer,
            retrain=retrain,
            numbers=("local_loss", "epochs"),
        )
        s.w = weighted_mean(answers)
        s.median = float(np.median([a.values["local_loss"] for a in answers]))
        epochs_used = float(np.mean([a.values["epochs"] for a in answers]))
        federation.record(answers, s.w, median_loss=s.median, epochs=epochs_used)
    return federation.result(s.w)
