"""Encoding: numbers as words, whose sum modulo 2^32 or 2^64 is the sum of the numbers.

A fixed-point term of exponent e has sums of at most 2^e. One unit of a word is 2^(e-30) in 32 bits and 2^(e-56) in 64
bits, so that a word of 2^30 or 2^56 units is 2^e.

What is guaranteed, if all N <= 100 hospitals of a block are honest:

- 32 bits: a hospital's values are clamped to ``share`` times 2^e, and the shares of a block add to at most 1 (in a
  weighted mean they are its weights p_k; in a sum of N equal parts 1/N each). So the sum of the words is below
  2^30 + 2N in magnitude and never wraps, whatever the values are.
- 64 bits: a hospital's values are clamped to 2^e; N times 2^56 is below 2^63, so that sums never wrap. Counts are below
  2^40, and their sums below 2^47.
- If no value was clamped, which the sum of the second header word shows, a decoded sum differs from the true one by at
  most N 2^(e-31) in 32 bits and N 2^(e-57) in 64 bits, besides float64's own rounding, and counts are exact.

Values that are too large or not finite are counted, never refused: a refusal would tell something of one hospital.
A dishonest hospital can shift or wrap any sum.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from v6_federated.base.arrays import Array
from v6_federated.base.errors import SafeError
from v6_federated.privacy.secagg.masks import WORDS

FRACTION = {32: 30, 64: 56}  # 2^e is 2^30 or 2^56 units
EXPONENTS = {32: range(-20, 21), 64: range(-64, 65)}  # which e are accepted
COUNT_BITS = 40  # counts are below 2^40
HEADER = 2  # words: 1, and how many values were clamped or not finite


@dataclass(frozen=True)
class Term:
    """An array of an answer, of which central learns the sum.

    Attributes:
        name: its name.
        bits: width of its words.
        shape: its shape.
        exponent: e, where sums are at most 2^e in magnitude; None for counts, which have 64 bits.
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


def encode(term: Term, values: Array, share: float | None = None) -> tuple[Array, int]:
    """Encode a hospital's values.

    Args:
        term: what they are.
        values: the values, in the term's shape.
        share: the hospital's part of the bound 2^e: its weight p_k if the values were multiplied by it, or 1 divided
            by the number of hospitals. More than 1 is taken as 1, and not refused, since a weight depends on rows.
            Needed with 32 bits, and not used with 64 bits.

    Returns:
        The words of the flattened values, uint32 or uint64; and how many values were clamped, were not finite (their
        word is 0), or were no whole number although the term is a count.

    Raises:
        SafeError: the values have another shape, or the share is missing or out of range.
    """
    numbers = np.asarray(values)
    if numbers.shape != term.shape:
        raise SafeError(f"the values of {term.name} have shape {numbers.shape}; expected {term.shape}")
    x: Array = numbers.astype(np.float64).reshape(-1)
    finite = np.isfinite(x)
    x = np.where(finite, x, 0.0)
    if term.exponent is None:
        least, most = 0.0, float(2**COUNT_BITS - 1)
        whole = np.rint(x)
        outside = (whole != x) | (x < least) | (x > most)
    else:
        if term.bits == 64:
            share = 1.0
        elif share is None or not share >= 0:
            raise SafeError(
                f"the values of {term.name} need the hospital's share of the bound, at least 0: its weight, or 1 "
                "divided by the number of hospitals"
            )
        most = float(math.ceil(math.ldexp(min(share, 1.0), FRACTION[term.bits])))
        least = -most
        with np.errstate(over="ignore"):  # an overflow to infinity is clamped
            whole = np.rint(np.ldexp(x, FRACTION[term.bits] - term.exponent))
        outside = np.abs(whole) > most
    words = np.clip(whole, least, most).astype(np.int64).astype(WORDS[term.bits])
    return words, int(np.count_nonzero(outside | ~finite))


def decode(term: Term, words: Array) -> Array:
    """Decode a sum.

    Args:
        term: what was summed.
        words: the sum of all hospitals' words, modulo 2^32 or 2^64, in which the masks have cancelled.

    Returns:
        float64 in the term's shape; int64 for counts.

    Raises:
        SafeError: the words have another type or number.
    """
    if words.dtype != WORDS[term.bits] or words.size != term.size:
        raise SafeError(
            f"the sum of {term.name} has {words.size} words of type {words.dtype}; expected {term.size} words of "
            f"{term.bits} bits"
        )
    whole = words.view(f"<i{term.bits // 8}").reshape(term.shape)
    if term.exponent is None:
        return whole.astype(np.int64)
    return np.ldexp(whole.astype(np.float64), term.exponent - FRACTION[term.bits])


def header(clamped: int) -> Array:
    """The first words of each 64-bit vector.

    Args:
        clamped: how many values were clamped or not finite; always 0 under the profile ``private``.

    Returns:
        [1, clamped], uint64.
    """
    return np.array([1, clamped], WORDS[64])


def pack(
    terms: Sequence[Term],
    arrays: Mapping[str, Array],
    share: float | Mapping[str, float] | None = None,
    count: bool = True,
) -> tuple[Array, Array]:
    """Encode an answer: all its terms, in the order of the layout, in one vector for each width.

    Args:
        terms: the layout.
        arrays: the values by name.
        share: as for ``encode``; if terms differ in it, by name.
        count: whether to say how many values were clamped; False under the profile ``private``.

    Returns:
        The 32-bit words, which may be none, and the 64-bit words, beginning with the header.

    Raises:
        SafeError: an array is missing or unexpected, two terms have one name, or as for ``encode``.
    """
    names = [term.name for term in terms]
    if len(set(names)) < len(names) or set(names) != set(arrays):
        raise SafeError(f"an answer must have the arrays {', '.join(names)}, each once, and nothing else")
    vectors: dict[int, list[Array]] = {32: [np.empty(0, WORDS[32])], 64: []}
    clamped = 0
    for term in terms:
        words, more = encode(term, arrays[term.name], share.get(term.name) if isinstance(share, Mapping) else share)
        vectors[term.bits].append(words)
        clamped += more
    return np.concatenate(vectors[32]), np.concatenate([header(clamped if count else 0), *vectors[64]])


def split(words: Array, terms: Sequence[Term]) -> dict[str, Array]:
    """Decode the sum of one of the two vectors of ``pack``.

    Args:
        words: the sum: uint32, or uint64 with its header.
        terms: the layout; terms of the other width are passed over.

    Returns:
        The decoded sums by name.

    Raises:
        SafeError: the number of words is not that of the layout.
    """
    bits = words.dtype.itemsize * 8
    here = [term for term in terms if term.bits == bits]
    start = HEADER if bits == 64 else 0
    expected = start + sum(term.size for term in here)
    if words.size != expected:
        raise SafeError(f"the sum of {bits}-bit values has {words.size} words; the layout has {expected}")
    sums = {}
    for term in here:
        sums[term.name] = decode(term, words[start : start + term.size])
        start += term.size
    return sums


def check_header(words: Array, hospitals: int) -> int:
    """Check the header of a sum.

    Args:
        words: the sum of the 64-bit vectors.
        hospitals: how many hospitals the block has.

    Returns:
        How many values were clamped or not finite, at all hospitals together.

    Raises:
        SafeError: the first word is not the number of hospitals: masks have not cancelled, or an answer is wrong.
    """
    if words.size < HEADER or int(words[0]) != hospitals:
        raise SafeError(
            f"the answers of the block do not add up to {hospitals} hospitals: one of them is wrong or was changed, "
            "and the masks hide which; run the job again, and ask all hospitals for the same image"
        )
    return int(words[1])


def layout_json(terms: Sequence[Term]) -> list[dict[str, Any]]:
    """The layout as JSON, for the transcript.

    Args:
        terms: the layout.

    Returns:
        For each term: name, bits, shape and exponent.
    """
    return [{"name": t.name, "bits": t.bits, "shape": list(t.shape), "exponent": t.exponent} for t in terms]
