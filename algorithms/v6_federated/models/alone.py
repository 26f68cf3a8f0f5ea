"""Models whose scores, losses and gradients are sums over rows to the last bit.

BLAS rounds a row in ways that depend on its place among the rows of a hospital. A sum that must not tell how rows are
dealt needs scores that follow from each row alone, and exact sums of what follows from these, see ``masks.exact``.
"""

from typing import Any, Protocol, cast

from v6_federated.base.arrays import Array
from v6_federated.masks.exact import Exact


class Alone(Protocol):
    """What such a model can do besides, see ``Model``. Vectors and rows are arrays of numpy."""

    def scores_alone(self, w: Array, X: Array) -> Array:
        """Compute decision values (n, classes), of each row as if it were alone."""

    def losses(self, scores: Array, y: Array) -> Array:
        """Compute the loss of each row (n,) from decision values."""


class Summing(Alone, Protocol):
    """What a model can do besides whose gradient is such a sum."""

    def sums(self, w: Array, X: Array, y: Array) -> tuple[Exact, Exact]:
        """Add up losses, with the penalty in each, and gradients (d,) over the rows."""


def alone(model: Any) -> Alone | None:
    """Return a model that computes with each row alone; None if it cannot.

    Args:
        model: the model. A class made of another one that has scores of its own cannot do what that one does.
    """
    for kind in type(model).__mro__:
        if "scores_alone" in vars(kind):
            return cast(Alone, model)
        if "scores" in vars(kind):
            return None
    return None


def summing(model: Any) -> Summing | None:
    """Return a model whose gradients are exact sums; None if they are not.

    Args:
        model: the model. A class made of another one that has gradients of its own cannot add up what that one does.
    """
    kind = next((kind for kind in type(model).__mro__ if {"sums", "loss_and_gradient"} & {*vars(kind)}), object)
    return cast(Summing, model) if alone(model) is not None and "sums" in vars(kind) else None
