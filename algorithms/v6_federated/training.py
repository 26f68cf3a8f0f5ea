"""Local training: minibatches, learning-rate schedules, optimisers. Each is one step of the paper's inner loop."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

Step = Callable[[Any, Any], None]


def batches(rng: np.random.Generator, n: int, epochs: int, batch_size: int | None) -> Iterator[np.ndarray | slice]:
    """Row indices of each minibatch: the rows shuffled anew each epoch, or all rows where B is unset."""
    for _ in range(epochs):
        if batch_size is None or batch_size >= n:
            yield slice(None)
        else:
            order = rng.permutation(n)  # anew each epoch; McMahan's box splits the rows once a round
            yield from (order[i : i + batch_size] for i in range(0, n, batch_size))


def steps_per_epoch(n: int, batch_size: int | None) -> int:
    """Minibatches of one epoch."""
    return 1 if batch_size is None else math.ceil(n / batch_size)


def schedule(lr: float, decay_round: float, decay_step: float, round_: int, before: int) -> Callable[[int], float]:
    """The learning rate of local step i = 0, 1, ... of round t = 1, 2, ..., after ``before`` steps in others.

    ``decay_round`` multiplies it each round; ``decay_step`` is Keras's lr / (1 + decay * steps). Nodes keep no state,
    so the steps before are counted as if the node had taken part in every round.
    """
    start = lr * decay_round ** (round_ - 1)
    return lambda i: start / (1 + decay_step * (before + i))


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
