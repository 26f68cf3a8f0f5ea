"""The server of SCAFFOLD."""

import functools
from typing import Any

import numpy as np

from v6_federated import functions
from v6_federated.federation import Answer, Federation, combine, mean
from v6_federated.settings import BatchSize, Epochs, Fraction, GlobalLr, LearningRate, LrDecayRound, LrDecayStep, Rounds

STEEPEST = 1e30  # a gradient that c can hold, the mean of many, in float32


@functools.partial(functions.central, told_in_full=True)
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
    N = len(federation.organizations)
    federation.keep_state()  # c_k
    # known: the round in which a node kept the c_k that c counts
    s = federation.start(x=federation.initial_weights, c=lambda: np.zeros(federation.model.size, np.float32), known={})
    for t in federation.rounds(rounds):
        asked = federation.sample(fraction)
        answers = federation.ask(
            "client_update",
            asked,
            weights=s.x,
            c=s.c,
            known=s.known,
            epochs=epochs,
            batch_size=batch_size,
            lr=lr,
            lr_decay_round=lr_decay_round,
            lr_decay_step=lr_decay_step,
            returns=["dy"],
            numbers=["travelled"],
            wrong=_wrong,
        )
        x, s.x = s.x, s.x + np.float32(global_lr) * mean(answers, "dy")  # every node alike, as the paper has it
        # c_k+ - c_k = -c + (x - y_k) / (steps eta_l): known from y_k - x, so nodes need not send it as the paper's do
        if lr:  # with a rate of zero no c_k changes
            dc = -s.c - combine(answers, "dy", lambda a: 1 / (a.values["travelled"] or np.inf)) / np.float32(
                len(answers)
            )
            s.c = s.c + np.float32(len(answers) / N) * dc
        s.known |= {str(a.organization_id): t for a in answers}
        if any(a.values.get("state_lost") for a in answers):
            # c is no longer the mean of the c_k, and would bias every step from now on: all begin anew from zero
            s.c, s.known = np.zeros_like(s.c), {}
        federation.record(answers, s.x, own=functools.partial(_own, x))
    return federation.result(s.x)


def _wrong(answer: Answer) -> str | None:
    """What is wrong with a change and the way it took: one that makes no mean gradient would end the job."""
    travelled = answer.values["travelled"]
    if travelled and float(np.abs(answer["dy"]).max(initial=0)) > STEEPEST * travelled:
        return "sends dy and travelled that make no gradient; expected the sum of the rates of its steps"
    return None


def _own(x: np.ndarray, answer: Answer) -> np.ndarray:
    """y_k (d,), the node's model after its steps from x (d,)."""
    return x + answer["dy"]
