"""Discrete Gaussian noise under a key: whole numbers with P(x) proportional to exp(-x^2 / (2 sigma^2)).

Tables are inverted, as Peikert (2010, "An Efficient and Parallel Gaussian Sampler for Lattices") does: U is uniform
below 2^128, and X is the smallest number whose distribution function F(X), rounded to a multiple of 2^-128, exceeds
U / 2^128. 64 bits of U decide nearly always, and the rest is drawn only where they do not. Above sigma = 1024 a table
would be too long, so X = X1 + k X2 is drawn from two narrower discrete Gaussians, sigma1^2 + k^2 sigma2^2 = sigma^2.

**How far this is from a discrete Gaussian.** Let s^2 = 1 / (k^2 / sigma1^2 + 1 / sigma2^2) and c = k s^2 / sigma1^2.
Completing the square in (x - k j)^2 / sigma1^2 + j^2 / sigma2^2, the probability of X1 + k X2 = x is
exp(-x^2 / (2 sigma^2)) times the sum over all whole j of exp(-(j - c x)^2 / (2 s^2)), times a constant. By Poisson's
summation formula the sum is s sqrt(2 pi) (1 + e) with |e| <= 2.01 exp(-2 pi^2 s^2), whatever x is (this is the
smoothing of Micciancio and Walter 2017, "Gaussian Sampling over the Integers"). Here sigma1 = 4 k and sigma2^2 >= 48,
so s^2 >= 12 and |e| < 2^-340: nothing beside the tables. A table has fewer than 2^15 numbers, whose probabilities are
wrong by at most 2^-127 each; it ends at 13.5 sigma, and P(|x| > 13.5 sigma) <= 2 exp(-13.5^2 / 2) < 2^-130
(Canonne, Kamath and Steinke 2020). So its total variation distance is below 2^-113, and that of X, from five tables at
most, below 2^-110 = 8e-34. A mechanism that is (epsilon, delta) private with exact noise is
(epsilon, delta + (1 + e^epsilon) 2^-110 m) private with m values of this noise: at epsilon 8, with a million values in
each of a thousand rounds, delta grows by less than 1e-20. The keystream counts as random.

No library was found for this: OpenDP draws from the operating system and cannot be keyed; diffprivlib takes a seed, but
of a generator that is not cryptographic, one value at a time; libprio's sampler is keyed and has no Python interface.
"""

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

from v6_federated.base.arrays import Array
from v6_federated.masks.notation import KEY_BYTES, enc, expand

SMALLEST, LARGEST = 4.0, 2.0**40  # sigma
MOST_SHIFT = 8  # of k = 2^shift: sigma1 = 4 k is 1024 at most
WIDTH = 27 / 2  # a table reaches this many sigma
PRECISION = 256  # bits of the numbers that a table is computed with
INDEX = 16  # bits of U by which most numbers are found
UNDECIDED = np.iinfo(np.int16).min  # a table reaches 13,825 at most
WORD = np.dtype("<u8")
NONCE = bytes(16)  # a counter and a nonce of zero: each derived key is used for one keystream
PART = 2**14  # values drawn at a time, so that they stay in the processor's cache
MOST_VALUES = 2**35  # then ChaCha20's counter of 64-byte blocks, 32 bits, is at its end


def discrete_gaussian(key: bytes, sigma: float, size: int) -> Array:
    """Draw discrete Gaussian noise.

    Returns:
        The numbers, int64 (size,). Time: 10 ns a value up to sigma 1024, 50 ns at 2^40, and once per sigma 30 ms at
        most for its table.
    """
    if len(key) != KEY_BYTES:
        raise ValueError(f"a key of {len(key)} bytes; expected {KEY_BYTES}")
    if not SMALLEST <= sigma <= LARGEST:
        raise ValueError(f"sigma = {sigma}; expected a number from {SMALLEST:.0f} to 2^40")
    if not 0 <= size <= MOST_VALUES:
        raise ValueError(f"{size} values; expected 0 to 2^35")
    result = np.zeros(size, np.int64)
    factor = 1
    for level, (variance, k) in enumerate(_levels(sigma)):
        table = _table(variance)
        label = enc("discrete Gaussian", float(sigma).hex(), level)
        start = 0
        for words in _words(expand(key, label), size):
            result[start : start + words.size] += factor * _invert(table, words, key, label, start)
            start += words.size
        factor *= k
    return result


def _levels(sigma: float) -> list[tuple[Fraction, int]]:
    """The variances of the tables from which X = X1 + k (X2 + k' (X3 + ...)) is drawn, and each one's k."""
    variance, found = Fraction(sigma) ** 2, []
    while variance > 16 * 4**MOST_SHIFT:
        # k is the largest power of two, up to 256, with sigma >= 8 k: then sigma2^2 = sigma^2 / k^2 - 16 >= 48
        k = 2 ** min(MOST_SHIFT, (math.isqrt(math.floor(variance)) // 8).bit_length() - 1)
        found.append((Fraction(16 * k * k), k))
        variance = variance / k**2 - 16
    return [*found, (variance, 1)]


@dataclass(frozen=True)
class _Table:
    """A discrete Gaussian's distribution function in multiples of 2^-128.

    Attributes:
        R: the table's numbers are -R to R.
        high: F(x) for x from -R to R - 1, its first 64 bits (2 R,).
        low: the other 64 bits.
        index: by the first bits of U, the number if they decide, or else ``UNDECIDED`` (2^INDEX,).
    """

    R: int
    high: Array
    low: Array
    index: Array


@functools.lru_cache(maxsize=32)
def _table(variance: Fraction) -> _Table:
    R = math.ceil(WIDTH * math.sqrt(variance))
    context = Context(prec=90)
    exponent = context.divide(Decimal(-variance.denominator), Decimal(2 * variance.numerator))
    ratio = int(context.multiply(context.exp(exponent), Decimal(2**PRECISION)))
    # weight(x + 1) = weight(x) * ratio^(2x + 1). Each product is rounded down by less than one unit of 2^-256; after R
    # of them, and summed, that is less than 2^44 units.
    squared, factor, weights = ratio * ratio >> PRECISION, ratio, [1 << PRECISION]
    for _ in range(R):
        weights.append(weights[-1] * factor >> PRECISION)
        factor = factor * squared >> PRECISION
    total, sum_, F = 2 * sum(weights) - weights[0], 0, []
    for x in range(-R, R):
        sum_ += weights[abs(x)]
        F.append((sum_ << 128) // total)
    high = np.array([f >> 64 for f in F], np.uint64)
    low = np.array([f & (2**64 - 1) for f in F], np.uint64)
    first = np.arange(2**INDEX, dtype=np.uint64) << np.uint64(64 - INDEX)
    last = first | np.uint64(2 ** (64 - INDEX) - 1)
    below = np.searchsorted(high, first)
    decided = below == np.searchsorted(high, last, side="right")
    return _Table(R, high, low, np.where(decided, below - R, UNDECIDED).astype(np.int16))


def _invert(table: _Table, words: Array, key: bytes, label: bytes, start: int) -> Array:
    """The numbers for the first 64 bits of U of the values from ``start`` on."""
    x: Array = table.index[words >> np.uint64(64 - INDEX)].astype(np.int64)
    at = np.flatnonzero(x == UNDECIDED)
    below = np.searchsorted(table.high, words[at])
    after = np.searchsorted(table.high, words[at], side="right")
    for i in np.flatnonzero(below != after):  # in one of 10^15 values: U and an F(x) agree in 64 bits
        low = int.from_bytes(expand(key, enc(label, start + int(at[i])), 8), "big")
        below[i] += sum(int(f) <= low for f in table.low[below[i] : after[i]])
    x[at] = below - table.R
    return x


def _words(key: bytes, size: int) -> Iterator[Array]:
    """The first words of a key's keystream, in parts; each part is overwritten by the next."""
    encryptor = Cipher(ChaCha20(key, NONCE), mode=None).encryptor()
    zeros, buffer = bytes(PART * WORD.itemsize), bytearray(PART * WORD.itemsize)
    for start in range(0, size, PART):
        length = min(PART, size - start) * WORD.itemsize
        encryptor.update_into(memoryview(zeros)[:length], buffer)
        yield np.frombuffer(buffer, WORD, length // WORD.itemsize)
