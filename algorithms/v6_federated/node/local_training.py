"""Local training: minibatches, learning-rate schedules, optimisers. Each is one step of the paper's inner loop."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from pydantic import BaseModel

from v6_federated import models
from v6_federated.base.errors import SafeError
from v6_federated.messages.common import Common
from v6_federated.messages.local_sgd import LocalSGD, PlainSGD
from v6_federated.messages.settings import Role, with_role

Rates = Callable[[int], float]  # eta of local step i = 0, 1, ...
Step = Callable[[Any, Any], None]  # step(w, g) changes w (d,) in place; it may overwrite g (d,)
MOST_FORGOTTEN = 0.5


def batches(
    rng: np.random.Generator, n: int, epochs: int, batch_size: int | None, least: int = 1
) -> Iterator[np.ndarray | slice]:
    """Row indices of each minibatch: the rows shuffled again each epoch, or all rows if B is unset.

    If fewer than ``least`` rows are left for the last minibatch, they join the one before it.
    """
    steps = steps_per_epoch(n, batch_size, least)
    for _ in range(epochs):
        if batch_size is None or steps == 1:
            yield slice(None)
        else:
            order = rng.permutation(n)  # shuffled each epoch; McMahan's box splits the rows once a round
            ends = [batch_size * i for i in range(1, steps)] + [n]
            yield from (order[i:j] for i, j in zip([0, *ends], ends, strict=False))


def steps_per_epoch(n: int, batch_size: int | None, least: int = 1) -> int:
    """Minibatches of one epoch, as ``batches`` makes them."""
    if batch_size is None:
        return 1
    whole, rest = divmod(n, batch_size)
    return max(whole + (rest >= least and rest > 0), 1)


def largest(n: int, batch_size: int, least: int = 1) -> int:
    """Rows of the largest minibatch, as ``batches`` makes them: leftover rows may join the last."""
    return max(min(batch_size, n), n - batch_size * (steps_per_epoch(n, batch_size, least) - 1))


def check_pull(rate: float, pull: float) -> None:
    """Reject steps w <- w - rate (g + pull (w - w_0)) that forget more than half of the steps before them: the answer
    would be little more than the last minibatch's gradient, which for a linear model is a multiple of its rows."""
    if abs(rate * pull) > MOST_FORGOTTEN * (1 + 1e-6):  # a model's penalty is in float32
        raise SafeError(
            f"a step of {rate:g} with a penalty of {pull:g} (proximal_mu and l2 together) is refused: it forgets the "
            f"steps before it, and the last rows would stand alone; expected a product up to {MOST_FORGOTTEN:g}"
        )


def check_steps(checked: BaseModel, penalty: float, share: float | None = None) -> None:
    """Reject steps that forget, by the roles of the settings.

    Args:
        checked: the settings of a partial function, or of a job.
        penalty: the model's l2.
        share: the share of a node's rows that its largest minibatch has, if known.
    """
    if "adam" in with_role(checked, Role.OPTIMIZER):
        return  # its steps are not as long as their gradient
    pull = sum(with_role(checked, Role.PULL)) + penalty
    longer = 1 / (1 - max(with_role(checked, Role.MOMENTUM), default=0.0))  # the sum of a gradient's steps
    for rate in with_role(checked, Role.RATE):
        check_pull(rate * longer, pull)
    for rate in with_role(checked, Role.ROW_RATE) if share else ():
        check_pull(rate * share * longer, pull)


def check_settings(checked: Common) -> None:
    """Reject a model or a rate that nodes would reject, before any is asked. Unless B is unset, steps are on some of a
    node's rows."""
    penalty = models.parse(checked.model).get("l2", 0)
    if any(with_role(checked, Role.BATCH)):
        check_steps(checked, penalty)
    if getattr(checked, "optimizer", "sgd") != "sgd" and (momentum := getattr(checked, "momentum", 0.0)):
        raise SafeError(f"momentum={momentum} changes nothing with optimizer=adam, which has its own; leave it out")


def schedule(local: PlainSGD, round_: int, steps_before: int) -> Rates:
    """The learning rate of local step i = 0, 1, ... of round t = 1, 2, ..., after ``steps_before`` steps in others.

    ``lr_decay_round`` multiplies it each round; ``lr_decay_step`` is Keras's lr / (1 + decay * steps). Nodes keep no
    state, so the steps before are counted as if the node had taken part in every round.
    """
    start = local.lr * local.lr_decay_round ** (round_ - 1)
    return lambda i: start / (1 + local.lr_decay_step * (steps_before + i))


def optimizer(local: LocalSGD, rates: Rates, w_t: Any) -> Step:
    """The optimiser that ``local`` names, as a function that takes one step in place: ``step(w, g)``.

    It counts its steps, and Adam and momentum remember the ones before: one optimiser for one round of one node.

    Args:
        local: optimiser, momentum, and mu of FedProx.
        rates: eta of step i = 0, 1, ...
        w_t: the model (d,) that FedProx pulls towards.
    """
    step = _adam(rates) if local.optimizer == "adam" else _sgd(rates, local.momentum)
    if not local.proximal_mu:
        return step

    def proximal(w: Any, g: Any) -> None:
        g += local.proximal_mu * (w - w_t)  # FedProx (Li et al. 2020)
        step(w, g)

    return proximal


def _sgd(rates: Rates, beta: float) -> Step:
    taken = 0
    v: Any = None

    def step(w: Any, g: Any) -> None:
        nonlocal taken, v
        if beta:
            v = g + 0 if v is None else beta * v + g
            w -= rates(taken) * v
        else:
            g *= rates(taken)
            w -= g
        taken += 1

    return step


def _adam(rates: Rates, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-7) -> Step:
    """Kingma and Ba 2015, Algorithm 1, with Keras's epsilon (Reddy used Keras)."""
    taken = 0
    moments: list[Any] = []

    def step(w: Any, g: Any) -> None:
        nonlocal taken, moments
        m, v = moments or (0 * g, 0 * g)
        rate, taken = rates(taken), taken + 1
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        moments = [m, v]
        w -= rate * (m / (1 - beta1**taken)) / ((v / (1 - beta2**taken)) ** 0.5 + eps)

    return step
