"""Evaluations rounded to what the number of rows can justify, so that they tell little of any single row.

Nothing here is random: the same model on the same rows always gives the same answer, and asking again with weights that
differ a little brings no other rounding to average. What is rounded still leaks slowly: a count changes where it passes
a multiple of the step, so somebody who moves a threshold in many small steps finds the value of every ``step``-th row.
"""

import math
from dataclasses import dataclass

import numpy as np

from v6_federated.base.arrays import Array

GOLDEN = 2654435769  # 2^32 divided by the golden ratio: its multiples, modulo 2^32, are spread evenly


@dataclass(frozen=True)
class Rounding:
    """How one node rounds.

    Attributes:
        step: counts are 0 or at least this number, m.
        offset: u, from 0 to m - 1, the same for all answers of a node. Over the nodes offsets are spread evenly, so
            that counts are right in the mean over nodes: if all nodes rounded to the nearest multiple, errors that
            each node makes on few rows would vanish from the sum.
        means: whether means over rows are rounded too, see ``rounded_loss``. A sum of means that nodes have rounded
            jumps where one node's mean passes a step, by the node's rows times its step, which names the node.
    """

    step: int
    offset: int
    means: bool = True

    @classmethod
    def of(cls, step: int, identity: int, means: bool = True) -> "Rounding":
        """The rounding of a node."""
        return cls(step, step * (identity * GOLDEN % 2**32) >> 32, means)

    def counts(self, counts: Array) -> Array:
        """Round counts, so that they still add up to n.

        The sum C_j of the first j counts becomes m floor((C_j + u) / m): of the rows in the order of the cells, every
        m-th is counted m times. What is left of n, fewer than m rows, is added to the largest count; C_j is made
        smaller by its share of these before.

        Args:
            counts: counts of rows, in an order in which neighbours are alike (k,).

        Returns:
            The rounded counts (k,).
        """
        m, n = self.step, int(counts.sum())
        sums = (np.cumsum(counts) * (n - n % m) // max(n, 1) + self.offset) // m * m
        rounded = np.diff(sums, prepend=0)
        rounded[rounded.argmax()] += n % m
        return rounded

    def confusion(self, confusion: Array) -> Array:
        """Round a confusion matrix. The rows predicted rightly come first: their number is rounded only once.

        Args:
            confusion: counts (c, c), true class by predicted class.

        Returns:
            The rounded counts (c, c).
        """
        flat = confusion.ravel()
        right = np.arange(len(confusion)) * (len(confusion) + 1)
        order = np.concatenate([right, np.setdiff1d(np.arange(len(flat)), right)])
        rounded = np.empty_like(flat)
        rounded[order] = self.counts(flat[order])
        return rounded.reshape(confusion.shape)

    def loss(self, loss: float, n: int, unit: float = 1.0) -> float:
        """Round a mean over rows, if means are rounded."""
        return rounded_loss(loss, n, unit) if self.means else loss


def rounded_loss(loss: float, n: int, unit: float = 1.0) -> float:
    """Round a mean over rows to about its standard error: a relative 1 / sqrt(n)."""
    size = max(loss, unit / math.sqrt(n))
    if not 0 < size < math.inf:
        return loss
    return rounded_to(loss, size, n)


def rounded_to(value: float, size: float, n: int) -> float:
    """Round a number of a given order of magnitude, which a sum over n rows has led to."""
    step = step_of(size, n)
    return round(value / step) * step


def step_of(size: float, n: int) -> float:
    """Return what ``rounded_to`` rounds to multiples of, for the same order of magnitude and rows."""
    return math.ldexp(1.0, math.ceil(math.log2(size)) - math.ceil(math.log2(n) / 2))
