"""Local training: minibatches, learning-rate schedules, optimisers. Each is one step of the paper's inner loop."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from pydantic import BaseModel

from v6_federated import models
from v6_federated.errors import SafeError
from v6_federated.settings import Common, Role, with_role

Step = Callable[[Any, Any], None]
MOST_FORGOTTEN = 0.5


def batches(
    rng: np.random.Generator, n: int, epochs: int, batch_size: int | None, least: int = 1
) -> Iterator[np.ndarray | slice]:
    """Row indices of each minibatch: the rows shuffled anew each epoch, or all rows where B is unset.

    What is left for the last minibatch joins the one before it where it is fewer than ``least`` rows.
    """
    steps = steps_per_epoch(n, batch_size, least)
    for _ in range(epochs):
        if batch_size is None or steps == 1:
            yield slice(None)
        else:
            order = rng.permutation(n)  # anew each epoch; McMahan's box splits the rows once a round
            ends = [batch_size * i for i in range(1, steps)] + [n]
            yield from (order[i:j] for i, j in zip([0, *ends], ends, strict=False))


def steps_per_epoch(n: int, batch_size: int | None, least: int = 1) -> int:
    """Minibatches of one epoch, as ``batches`` makes them."""
    if batch_size is None:
        return 1
    whole, rest = divmod(n, batch_size)
    return max(whole + (rest >= least and rest > 0), 1)


def largest(n: int, batch_size: int, least: int = 1) -> int:
    """Rows of the largest minibatch, as ``batches`` makes them: the last may be joined by what is left."""
    return max(min(batch_size, n), n - batch_size * (steps_per_epoch(n, batch_size, least) - 1))


def check_pull(rate: float, pull: float) -> None:
    """Refuse steps w <- w - rate (g + pull (w - w_0)) that forget more than half of the steps before them: what is sent
    would be little more than the last minibatch's gradient, of a linear model a multiple of its rows."""
    if abs(rate * pull) > MOST_FORGOTTEN * (1 + 1e-6):  # a model's penalty is in float32
        raise SafeError(
            f"a step of {rate:g} with a penalty of {pull:g} (proximal_mu and l2 together) is refused: it forgets the "
            f"steps before it, and the last rows would stand alone; expected a product up to {MOST_FORGOTTEN:g}"
        )


def schedule(lr: float, decay_round: float, decay_step: float, round_: int, before: int) -> Callable[[int], float]:
    """The learning rate of local step i = 0, 1, ... of round t = 1, 2, ..., after ``before`` steps in others.

    ``decay_round`` multiplies it each round; ``decay_step`` is Keras's lr / (1 + decay * steps). Nodes keep no state,
    so the steps before are counted as if the node had taken part in every round.
    """
    start = lr * decay_round ** (round_ - 1)
    return lambda i: start / (1 + decay_step * (before + i))


def check_steps(checked: BaseModel, penalty: float, share: float | None = None) -> None:
    """Refuse steps that forget, by the roles of the settings; ``share``: of a node's rows that are in the largest
    minibatch, if known."""
    if "adam" in with_role(checked, Role.OPTIMIZER):
        return  # whose steps are not as long as their gradient
    pull = sum(with_role(checked, Role.PULL)) + penalty
    for rate in with_role(checked, Role.RATE):
        check_pull(rate, pull)
    for rate in with_role(checked, Role.ROW_RATE) if share else ():
        check_pull(rate * share, pull)


def check_settings(checked: Common) -> None:
    """Refuse a model or a rate that nodes would refuse, before any is asked; minibatches may hold all their rows only
    where their size is left out."""
    penalty = models.parse(checked.model).get("l2", 0)
    if any(with_role(checked, Role.BATCH)):
        check_steps(checked, penalty)


def optimizer(name: str, lr: Callable[[int], float]) -> Step:
    """A function that takes one step in place: ``step(w, g)``. It may overwrite g."""
    taken = 0

    def sgd(w: Any, g: Any) -> None:
        nonlocal taken
        g *= lr(taken)
        w -= g
        taken += 1

    moments: list[Any] = []

    def adam(w: Any, g: Any, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-7) -> None:
        # Kingma and Ba 2015, Algorithm 1, with Keras's epsilon (Reddy used Keras)
        nonlocal taken, moments
        m, v = moments or (0 * g, 0 * g)
        rate, taken = lr(taken), taken + 1
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        moments = [m, v]
        w -= rate * (m / (1 - beta1**taken)) / ((v / (1 - beta2**taken)) ** 0.5 + eps)

    step: Step = sgd if name == "sgd" else adam
    return step
