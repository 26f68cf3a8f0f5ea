"""The server of Co-Learning."""

import functools
from typing import Any

import numpy as np

from v6_federated import functions
from v6_federated.federation import Federation, weighted_mean
from v6_federated.settings import (
    BatchSize,
    Epochs,
    Epsilon,
    Fraction,
    LearningRate,
    LrCycle,
    LrDecayRound,
    LrDecayStep,
    MaximumEpochs,
    OptimizerName,
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
    epsilon: Epsilon = 0.01,
    lr_cycle: LrCycle = 0.25,
    maximum_epochs: MaximumEpochs = None,
) -> dict[str, Any]:
    """Co-Learning: Xu et al. 2018; Pfitzner and Arnrich's poster.

    Symbols: S_t the nodes of round t, w_t (d,) the model, E_t the local epochs of round t, E_0 = epochs, lambda =
    lr_cycle. What leaves a node: w after local training, n_k, its mean training loss, and counts of how w_t does on
    its held-out rows. Bytes a round: 16/3 d down and up for each node of S_t.
    """
    s = federation.start(w=federation.initial_weights, epochs=epochs, epochs_before=0)  # s.epochs is E_t
    for _t in federation.rounds(rounds):
        S_t = federation.sample(fraction)
        answers = federation.ask(
            "client_update",
            S_t,
            weights=s.w,
            epochs=s.epochs,
            epochs_before=s.epochs_before,
            batch_size=batch_size,
            lr=lr,
            lr_decay_round=lr_decay_round,
            lr_decay_step=lr_decay_step,
            optimizer=optimizer,
            lr_cycle=lr_cycle,
        )
        s.epochs_before += s.epochs
        before, s.w = s.w, weighted_mean(answers)
        size = float(np.linalg.norm(before))
        change = float(np.linalg.norm(s.w - before)) / size if size else None  # linear models start at zero
        federation.record(answers, s.w, epochs=s.epochs, relative_change=change)
        if change is not None and change <= epsilon:  # the cap is ours
            s.epochs = 2 * s.epochs if maximum_epochs is None else max(s.epochs, min(2 * s.epochs, maximum_epochs))
    return federation.result(s.w)
