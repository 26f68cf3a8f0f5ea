"""Exact sums of float64 numbers, as whole numbers of a unit so fine that nothing is rounded.

A sum in float64 is rounded at its own last place, which tells of the total of one hospital if central can choose the
place, for example by a large number that it has subtracted from every row. An exact sum is additive in rows: what
hospitals add up to is what one hospital with all rows would have.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from v6_federated.base.arrays import Array
from v6_federated.privacy.secagg import encoding
from v6_federated.privacy.secagg.masks import WORDS

FINEST = -1200  # below the last bit of the smallest float64, 2^-1074, in the form 2^53 times a power of two
HALF = 26  # bits of a part of a number: its square is exact in float64
SPLIT = 2.0 ** (HALF + 1) + 1


@dataclass(frozen=True)
class Exact:
    """Numbers without any rounding.

    Attributes:
        numbers: whole numbers of the unit.
        exponent: the unit is 2^exponent.
    """

    numbers: tuple[int, ...]
    exponent: int = FINEST

    def __add__(self, other: "Exact") -> "Exact":
        """Add numbers in the same unit."""
        assert self.exponent == other.exponent
        return Exact(tuple(a + b for a, b in zip(self.numbers, other.numbers, strict=True)), self.exponent)

    def times(self, factors: "Exact | Sequence[int]") -> "Exact":
        """Multiply by other numbers, one by one."""
        of = factors.numbers if isinstance(factors, Exact) else tuple(factors)
        exponent = self.exponent + (factors.exponent if isinstance(factors, Exact) else 0)
        return Exact(tuple(a * b for a, b in zip(self.numbers, of, strict=True)), exponent)

    def at(self, exponent: int) -> "Exact":
        """The same numbers in a finer unit."""
        return Exact(tuple(a << (self.exponent - exponent) for a in self.numbers), exponent)

    def floats(self) -> Array:
        """The nearest float64 of each."""
        return np.array([number / (1 << -self.exponent) for number in self.numbers])

    def encode(self, term: encoding.Term, dither: Array | None = None) -> Array:
        """Encode the numbers as ``encoding.encode`` does, rounded once.

        Args:
            term: what they are; no count.
            dither: what is added before rounding, in units; None adds nothing.

        Returns:
            The words.
        """
        assert term.exponent is not None and term.shape == (len(self.numbers),)
        step = 1 << (term.exponent - encoding.FRACTION[term.bits] - self.exponent)
        added = np.zeros(term.size) if dither is None else dither
        words = []
        for number, d in zip(self.numbers, added.tolist(), strict=True):
            whole, rest = divmod(number, step)
            words.append((whole + round(rest / step + d)) % 2**term.bits)
        return np.array(words, WORDS[term.bits])


def total(X: Array) -> Exact:
    """Add up rows.

    Args:
        X: finite numbers (n, c), fewer than 2^26 rows.

    Returns:
        The sum of each column.
    """
    return Exact(tuple(_sum(column) for column in np.asarray(X, np.float64).T))


def total_of_squares(X: Array) -> Exact:
    """Add up the squares of rows.

    Args:
        X: numbers (n, c) whose squares are finite. What squares have below 2^-1074 is lost.

    Returns:
        The sum of each column's squares.
    """
    X = np.asarray(X, np.float64)
    large = SPLIT * X
    h = large - (large - X)  # Dekker 1971: the upper half of the digits
    rest = X - h
    return total(h * h) + total(2 * h * rest) + total(rest * rest)


def _sum(x: Array) -> int:
    mantissa, power = np.frexp(x)
    whole = np.ldexp(mantissa, 53).astype(np.int64)
    least = int(power.min(initial=0))
    place = power - least
    upper = np.bincount(place, whole >> HALF)  # sums of whole numbers below 2^53
    lower = np.bincount(place, whole & (2**HALF - 1))
    first = least - 53 - FINEST
    return sum(((int(a) << HALF) + int(b)) << (first + k) for k, (a, b) in enumerate(zip(upper, lower, strict=True)))
