"""The server of SCAFFOLD."""

import functools
from typing import Annotated

import numpy as np
from pydantic import Field

from v6_federated import ONE_STEP, Answer, Answers, Federation, Fraction, Number, PlainSGD, Result, Rounds, central

STEEPEST = 1e30  # a gradient that c can hold, the mean of many, in float32

GlobalLr = Annotated[float, Field(ge=0, allow_inf_nan=False, description="eta_g, the server's step"), Number]


@central(
    recoverable=True,
    private=True,
    of_hospitals=lambda settings: f"each hospital counts the same, whatever its rows; {ONE_STEP}",
)
def central(
    federation: Federation,
    *,
    rounds: Rounds,
    fraction: Fraction = 1.0,
    local: PlainSGD = PlainSGD(),
    global_lr: GlobalLr = 1.0,
) -> Result:
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
        S = federation.sample(fraction)
        answers = federation.ask(
            "client_update",
            S,
            weights=s.x,
            c=s.c,
            known=s.known,
            local=local,
            numbers=["travelled"],
            values=["drift", "state_lost"],
            validate=_validate,
            measures={"dy / travelled": _mean_gradient},
        )
        x = s.x
        s.x = x + np.float32(global_lr) * answers.mean("dy")  # every node counts the same, as in the paper
        if local.lr:  # with a rate of zero no c_k changes
            s.c = s.c + np.float32(len(answers) / N) * mean_change(answers, s.c)
        s.known |= dict.fromkeys(answers.keys(), t)
        if answers.any("state_lost"):
            # c is no longer the mean of the c_k, and would bias every later step: all start again from zero
            s.c, s.known = np.zeros_like(s.c), {}
        federation.record(answers, s.x, local_model=functools.partial(_local_model, x))
    return federation.result(s.x)


def mean_change(answers: Answers, c: np.ndarray) -> np.ndarray:
    """Compute the mean change of the control variates, option II: c_k+ - c_k = -c + (x - y_k) / (steps eta_l).

    It follows from y_k - x, so nodes need not send it as the paper's nodes do.

    Args:
        answers: of the nodes of S, with ``dy`` (d,), which is y_k - x, and ``travelled``, which is steps eta_l.
        c: the server's control variate (d,).

    Returns:
        The mean over S (d,).
    """
    sum_of_gradients = answers.sum("dy", per="travelled")
    return -c - sum_of_gradients / np.float32(len(answers))


def _validate(answer: Answer) -> str | None:
    """Reject a change that is too large for the rates of its steps: no mean gradient could follow from it."""
    travelled = answer.values["travelled"]
    if travelled and float(np.abs(answer["dy"]).max(initial=0)) > STEEPEST * travelled:
        return "sends dy and travelled that make no gradient; expected the sum of the rates of its steps"
    return None


def _mean_gradient(answer: Answer) -> np.ndarray:
    """(x - y_k) / (steps eta_l) (d,), from which c follows; with its sign turned."""
    return answer["dy"] / np.float32(answer.values["travelled"] or np.inf)


def _local_model(x: np.ndarray, answer: Answer) -> np.ndarray:
    """y_k (d,), the node's model after its steps from x (d,)."""
    return x + answer["dy"]
