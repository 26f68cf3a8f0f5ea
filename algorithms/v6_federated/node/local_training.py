"""Local training: minibatches, learning rates and optimisers."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from v6_federated.base.arrays import Array
from v6_federated.messages.local_sgd import LocalSGD, PlainSGD

Rates = Callable[[int], float]  # eta of local step i = 0, 1, ...
Step = Callable[[Any, Any], None]  # step(w, g) changes w (d,) in place; it may overwrite g (d,)


class Descent:
    """The step of plain SGD, w <- w - eta g. A model may take such steps by itself, see ``Perceptron.descend``.

    Args:
        rates: eta of step i = 0, 1, ...
    """

    def __init__(self, rates: Rates) -> None:
        self._rates, self._taken = rates, 0

    def rate(self) -> float:
        """Return eta of the next step, and count it as taken."""
        self._taken += 1
        return self._rates(self._taken - 1)

    def __call__(self, w: Any, g: Any) -> None:
        """Take a step from ``w`` (d,) in place; overwrite ``g`` (d,)."""
        g *= self.rate()
        w -= g


class Proximal:
    """A step after FedProx's pull to the model that the node was sent (Li et al. 2020).

    Args:
        step: the step.
        mu: the strength of the pull.
        w_t: the model (d,) that it pulls to.
    """

    def __init__(self, step: Step, mu: float, w_t: Any) -> None:
        self.step, self._mu, self._w_t = step, mu, w_t

    def pull(self, w: Any, g: Any) -> None:
        """Add the pull at ``w`` (d,) to ``g`` (d,), in place."""
        g += self._mu * (w - self._w_t)

    def __call__(self, w: Any, g: Any) -> None:
        """Take a step from ``w`` (d,) in place; overwrite ``g`` (d,)."""
        self.pull(w, g)
        self.step(w, g)


class Carried:
    """The change u of a model, apart from what it started from: w = start + u is formed to evaluate gradients only.

    In w <- w - eta g, float32 rounds at the last place of the w that central has sent: a large one would round each
    hospital's change to whole numbers of central's choosing.

    Attributes:
        start: the model (d,) before the first step.
        u: its change since (d,).

    Args:
        w: the model.
    """

    def __init__(self, w: Any) -> None:
        self.start, self.u = w + 0, 0 * w

    def take(self, step: Step, w: Any, g: Any) -> None:
        """Take a step."""
        if isinstance(step, Proximal):
            step.pull(w, g)
            step = step.step
        step(self.u, g)
        w[...] = self.start + self.u


def batches(
    rng: np.random.Generator, n: int, epochs: int, batch_size: int | None, least: int = 1
) -> Iterator[Array | slice]:
    """Deal the rows into minibatches, shuffled again in each epoch."""
    steps = steps_per_epoch(n, batch_size, least)
    for _ in range(epochs):
        if batch_size is None or steps == 1:
            yield slice(None)
        else:
            order = rng.permutation(n)  # departs from McMahan's box, which splits the rows once a round
            ends = [batch_size * i for i in range(1, steps)] + [n]
            yield from (order[i:j] for i, j in zip([0, *ends], ends, strict=False))


def steps_per_epoch(n: int, batch_size: int | None, least: int = 1) -> int:
    """Count the minibatches of one epoch of ``batches``."""
    if batch_size is None:
        return 1
    whole, rest = divmod(n, batch_size)
    return max(whole + (rest >= least and rest > 0), 1)


def largest(n: int, batch_size: int, least: int = 1) -> int:
    """Count the rows of the largest minibatch of ``batches``: the last one may have taken in leftover rows."""
    return max(min(batch_size, n), n - batch_size * (steps_per_epoch(n, batch_size, least) - 1))


def schedule(local: PlainSGD, round_: int, steps_before: int) -> Rates:
    """Return the learning rates of a round.

    ``lr_decay_round`` multiplies the rate in each round; ``lr_decay_step`` is Keras's lr / (1 + decay * steps). Nodes
    keep no state, so steps are counted as if the node had taken part in every round.
    """
    start = local.lr * local.lr_decay_round ** (round_ - 1)
    return lambda i: start / (1 + local.lr_decay_step * (steps_before + i))


def optimizer(local: LocalSGD, rates: Rates, w_t: Any) -> Step:
    """Return the optimiser that ``local`` names, for one round of one node.

    It counts its steps; Adam and momentum remember the gradients before.

    Args:
        local: optimiser, momentum, and mu of FedProx.
        rates: eta of step i = 0, 1, ...
        w_t: the model (d,) that FedProx pulls towards.

    Returns:
        A function ``step(w, g)`` that takes a step from ``w`` (d,) in place, and may overwrite ``g`` (d,).
    """
    step: Step
    if local.optimizer == "adam":
        step = _adam(rates)
    else:
        step = _with_momentum(rates, local.momentum) if local.momentum else Descent(rates)
    return Proximal(step, local.proximal_mu, w_t) if local.proximal_mu else step


def _with_momentum(rates: Rates, beta: float) -> Step:
    taken = 0
    v: Any = None

    def step(w: Any, g: Any) -> None:
        nonlocal taken, v
        v = g + 0 if v is None else beta * v + g
        w -= rates(taken) * v
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
