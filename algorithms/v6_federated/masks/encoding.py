"""Encoding: numbers as words, whose sum modulo 2^32 or 2^64 is the sum of the numbers.

One unit of a fixed-point term of exponent e is 2^(e-30) in 32 bits and 2^(e-56) in 64 bits: words of 2^30 or 2^56 units
are 2^e. A value is rounded to units and taken modulo 2^32 or 2^64, whatever its size. So a sum is a linear function of
the values, except for their rounding, and tells nothing of one hospital that the sum of the values does not: a value
that was clamped, or counted because it is too large, would be compared with a bound that central has chosen, and some
thirty bounds would find it.

What is guaranteed, if all N <= 100 hospitals of a block are honest:

- If the true sum is below 2^(e+1) in 32 bits, or 2^(e+7) in 64 bits, the decoded one differs from it by at most N / 2
  units, or 18 N with dither (2 sqrt(N) as a rule), besides float64's own rounding. Counts are exact below 2^63.
- A larger sum wraps. A check of a term, the sum of its values times factors that nobody can foresee, is sent in 64 bits
  and shows it, but for one time in 65,536. It is sent in several units, each 2^40 coarser: a number of 2^117 units or
  more, in float64, is a multiple of 2^64 units, and would vanish.

A dishonest hospital can shift any sum.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from v6_federated.base.arrays import Array
from v6_federated.base.errors import SafeError
from v6_federated.masks.keystreams import WORDS, mask
from v6_federated.masks.notation import enc, expand

FRACTION = {32: 30, 64: 56}  # 2^e is 2^30 or 2^56 units
EXPONENTS = {32: range(-60, 61), 64: range(-64, 281)}  # which e are accepted
HEADER = 2  # words: 1, and 0, which is noise if the node could not compute its part
SIGMA = 2.0  # units of dither, its standard deviation
MOST_DITHER = 18  # units by which dither and rounding move a value at most
CHECKS = (32, 72, 112, 152, 192, 232)  # e of checks is larger by so much: they are sums of many values


@dataclass(frozen=True)
class Term:
    """An array of an answer, of which central learns the sum.

    Attributes:
        name: its name.
        bits: width of its words.
        shape: its shape.
        exponent: e of its unit; None for counts, which have 64 bits and the unit 1.
    """

    name: str
    bits: Literal[32, 64]
    shape: tuple[int, ...]
    exponent: int | None

    def __post_init__(self) -> None:
        if self.bits not in FRACTION:
            raise SafeError(f"the term {self.name} has {self.bits} bits; expected 32 or 64")
        if any(type(length) is not int or length < 0 for length in self.shape):
            raise SafeError(f"the term {self.name} has a shape that no array can have")
        if self.exponent is None:
            if self.bits != 64:
                raise SafeError(f"the term {self.name} is a count, which needs 64 bits")
        elif type(self.exponent) is not int or self.exponent not in EXPONENTS[self.bits]:
            accepted = EXPONENTS[self.bits]
            raise SafeError(
                f"the exponent of {self.name} must be a whole number from {accepted[0]} to {accepted[-1]} with "
                f"{self.bits} bits"
            )

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return math.prod(self.shape)


def dither(secret: bytes, T: bytes, key: str, size: int) -> Array:
    """Draw what a hospital adds to its values before it rounds them, in units: Gaussian, of ``SIGMA`` units.

    Central chooses the unit, and without dither, one so coarse that rounding counts the hospitals above a threshold.
    With it, the rounded number y of a value x has the characteristic function, by Poisson's summation,

        E exp(i t y) = sum over whole m of exp(i (t + 2 pi m) x) phi(t + 2 pi m) sin(t / 2 + pi m) / (t / 2 + pi m),

    for the one phi of the dither. The term m = 0 is that of x + dither + a uniform number: of a sum over hospitals, it
    depends on the sum of their x alone. All others are below phi(2 pi) = exp(-2 pi^2 SIGMA^2) = 5e-35 near t = 0, and
    so is what each moment tells of x besides. The sum of two uniform numbers, used before, has phi(2 pi) = 0 with its
    first derivative only: the third cumulant was x / 4 - x^3 (Lipshitz, Wannamaker and Vanderkooy 1992).

    Box and Muller's formula in float64 makes the numbers from words of 53 bits, so that none is above 8.6 SIGMA; its
    rounding moves phi by less than 2^-40.

    Returns:
        Numbers, float64 (size,).
    """
    half = -(-size // 2)
    words = mask(expand(secret, enc("dither", T, key)), T, 64, 2 * half) >> np.uint64(11)
    v, w = np.split(words.view(np.int64).astype(np.float64), 2)
    length = SIGMA * np.sqrt(-2 * np.log((v + 1) * 2.0**-53))
    w *= 2 * np.pi * 2.0**-53
    drawn: Array = np.concatenate([length * np.cos(w), length * np.sin(w)])[:size]
    return drawn


def encode(term: Term, values: Array, dither: Array | None = None) -> Array:
    """Encode a hospital's values.

    Args:
        term: what they are.
        values: the values, in the term's shape.
        dither: what is added before rounding, in units (size,); None adds nothing. Counts are never rounded.
    """
    if np.shape(values) != term.shape:
        raise SafeError(f"the values of {term.name} have shape {np.shape(values)}; expected {term.shape}")
    if term.exponent is None:
        if values.dtype.kind not in "iu":
            raise SafeError(f"the values of {term.name} are {values.dtype.name}; counts are whole numbers")
        counts: Array = values.reshape(-1).astype(np.int64).astype(WORDS[64])
        return counts
    numbers = np.asarray(values, dtype=np.float64)
    unit = term.exponent - FRACTION[term.bits]
    with np.errstate(over="ignore", invalid="ignore"):
        x: Array = numbers.reshape(-1) * 2.0**-unit  # exact
        if dither is not None:
            x += dither
        np.rint(x, out=x)
    largest = np.abs(x).max(initial=0.0)  # NaN if any is
    if not largest < math.inf:
        units = f" in units of 2^{unit}" if np.isfinite(numbers).all() else ""
        raise SafeError(f"values of {term.name} are not finite{units}")
    half = 2.0 ** (term.bits - 1)
    if largest >= half:  # exact, as are the next two
        x = np.fmod(x, 2 * half)
        x = np.where(x >= half, x - 2 * half, x)
        x = np.where(x < -half, x + 2 * half, x)
    words: Array = x.astype(np.int64).astype(WORDS[term.bits])
    return words


def factors(T: bytes, size: int) -> Array:
    """The factors of a check, which follow from the transcript and which nobody can foresee.

    With 1 and -1 as factors, two numbers that have wrapped would cancel every other time.

    Returns:
        Odd numbers from -2^16 to 2^16, float64 (size,).
    """
    halves: Array = mask(T, enc("factors"), 32, -(-size // 2)).view("<i2")[:size]
    return 2.0 * halves + 1.0


def checks(exponent: int) -> list[Term]:
    """The checks of a term."""
    return [Term("check", 64, (), exponent + more) for more in CHECKS if exponent + more in EXPONENTS[64]]


def has_wrapped(exponent: int, total: float, told: Sequence[float]) -> bool:
    """Say whether a decoded sum differs from what its checks say."""
    for check, value in zip(checks(exponent), told, strict=True):
        assert check.exponent is not None
        off = math.remainder(total - value, 2.0 ** (check.exponent + 64 - FRACTION[64]))  # the check may wrap as well
        if abs(off) > max(2.0 ** (exponent + 1), 2.0 ** (check.exponent + 9 - FRACTION[64])):
            return True
    return False


def decode(term: Term, words: Array) -> Array:
    """Decode a sum."""
    if words.dtype != WORDS[term.bits] or words.size != term.size:
        raise SafeError(
            f"the sum of {term.name} has {words.size} words of type {words.dtype}; expected {term.size} words of "
            f"{term.bits} bits"
        )
    whole = words.view(f"<i{term.bits // 8}").reshape(term.shape)
    if term.exponent is None:
        return whole.astype(np.int64)
    return np.ldexp(whole.astype(np.float64), term.exponent - FRACTION[term.bits])
