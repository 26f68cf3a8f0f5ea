"""Exact sums of float64 numbers, as whole numbers of a unit so fine that nothing is rounded.

A sum in float64 is rounded at its own last place, which tells of the total of one hospital if central can choose the
place, for example by a large number that it has subtracted from every row. An exact sum is additive in rows: what
hospitals add up to is what one hospital with all rows would have, if what each row contributes follows from this row
alone. ``Adding`` holds the three operations of which sums over rows are made, in float64 and exactly.

Products of columns are as exact as sums, at the speed of matrix products: each number is cut into slices of few digits,
so that products of slices, and their sums over ``ROWS`` rows, are whole numbers below 2^53, which float64 adds up
without rounding in any order (Ozaki, Ogita, Oishi and Rump 2012). The slices begin at a column's largest number, which
is the hospital's own; as the sum is exact, it does not depend on where they begin.
"""

import itertools
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from v6_federated.base.arrays import Array
from v6_federated.base.errors import SafeError
from v6_federated.masks import encoding
from v6_federated.masks.keystreams import WORDS

FINEST = -1200  # below the last bit of the smallest float64, 2^-1074, in the form 2^53 times a power of two
LEAST = -900  # slices begin here in columns of smaller numbers: 2^900 times 2^OF_SUMS is still a float64
# rows whose slices are added up at a time, few enough for the processor's cache, and bits of a slice: 2 * 21 + 11 and
# 39 + 11 are at most 53
ROWS, OF_PRODUCTS = 2**11, 21
ROWS_OF_SUMS, OF_SUMS = 2**11, 39
TOGETHER = 32  # so many of these sums, of all pairs of slices of one size, are below 2^63
SLICES = 5  # room for those of most columns: 53 bits, and the powers of two by which their numbers differ
# of what a row contributes, so that the sums of a hundred nodes are below 2^267, where a sum of any size would wrap.
# Whether a sum is too large would tell of all rows of a node. What is lost of small numbers is far below every unit.
MOST = 2.0**234

NOT_FINITE = (
    "what the rows add to a sum is not finite, or beyond 1e70; bring columns to one scale (--preprocess standardize), "
    "or lower lr"
)


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
        """Add numbers."""
        finest = min(self.exponent, other.exponent)
        a, b = self.at(finest).numbers, other.at(finest).numbers
        return Exact(tuple(itertools.starmap(operator.add, zip(a, b, strict=True))), finest)

    def times(self, factors: "Exact | Sequence[int]") -> "Exact":
        """Multiply by other numbers, one by one."""
        of = factors.numbers if isinstance(factors, Exact) else tuple(factors)
        exponent = self.exponent + (factors.exponent if isinstance(factors, Exact) else 0)
        return Exact(tuple(itertools.starmap(operator.mul, zip(self.numbers, of, strict=True))), exponent)

    def at(self, exponent: int) -> "Exact":
        """The same numbers in a finer unit."""
        return (
            self
            if exponent == self.exponent
            else Exact(tuple(a << (self.exponent - exponent) for a in self.numbers), exponent)
        )

    def floats(self) -> Array:
        """The nearest float64 of each."""
        over, under = 1 << max(self.exponent, 0), 1 << max(-self.exponent, 0)
        return np.array([number * over / under for number in self.numbers])

    def __neg__(self) -> "Exact":
        """The same numbers with the other sign."""
        return Exact(tuple(-a for a in self.numbers), self.exponent)

    def take(self, places: Sequence[int] | Array) -> "Exact":
        """Choose numbers.

        Args:
            places: where they are.

        Returns:
            These numbers.
        """
        return Exact(tuple(map(self.numbers.__getitem__, np.asarray(places).tolist())), self.exponent)

    def scaled(self, factor: float) -> "Exact":
        """Multiply by a public number.

        Args:
            factor: any finite number.

        Returns:
            The products.
        """
        over, under = factor.as_integer_ratio()
        return Exact(tuple(a * over for a in self.numbers), self.exponent - (under.bit_length() - 1))

    def encode(self, term: encoding.Term, dither: Array | None = None) -> Array:
        """Encode the numbers as ``encoding.encode`` does, rounded once.

        Args:
            term: what they are; no count.
            dither: what is added before rounding, in units; None adds nothing.

        Returns:
            The words.
        """
        assert term.exponent is not None and term.size == len(self.numbers)
        shift = term.exponent - encoding.FRACTION[term.bits] - self.exponent
        numbers = np.fromiter(self.numbers, object, len(self.numbers)) << (max(-shift, 0) + 1)
        digits = max(shift, 0) + 1  # below the unit
        whole, half = numbers >> digits, 1 << (digits - 1)
        if dither is None and max(map(abs, self.numbers), default=0).bit_length() < digits - 2:
            return np.zeros(len(numbers), WORDS[term.bits])
        if dither is None:
            whole = (numbers + (half - 1 + (whole & 1))) >> digits
        else:
            rest = (numbers & (2 * half - 1)) / (2 * half)
            whole += np.rint(rest.astype(np.float64) + dither).astype(np.int64).astype(object)
        return np.asarray(whole & (2**term.bits - 1), WORDS[term.bits])


def joined(parts: Sequence["Exact | float"]) -> Exact:
    """Put numbers together.

    Args:
        parts: numbers in any units.

    Returns:
        All of them, in the finest of their units.
    """
    exacts = [part if isinstance(part, Exact) else Exact((1,), 0).scaled(part) for part in parts]
    finest = min(part.exponent for part in exacts)
    return Exact(tuple(itertools.chain.from_iterable(part.at(finest).numbers for part in exacts)), finest)


def total(X: Array) -> Exact:
    """Add up rows of any size.

    Args:
        X: finite numbers (n, c).

    Returns:
        The sum of each column, in units of 2^FINEST.
    """
    return _of_any_size(X, OF_SUMS, lambda part: _added(part, math.inf)).at(FINEST)


def total_of_squares(X: Array) -> Exact:
    """Add up the squares of rows of any size.

    Args:
        X: finite numbers (n, c).

    Returns:
        The sum of each column's squares.
    """
    return _of_any_size(X, OF_PRODUCTS, _squares)


def _of_any_size(X: Array, digits: int, add: Callable[[Array], Exact]) -> Exact:
    """Add up large and small numbers apart: slices of small ones that begin at a large one would be no float64."""
    large = np.abs(X) >= 2.0**digits
    return add(np.where(large, X, 0)) + add(np.where(large, 0, X)) if large.any() else add(X)


def _squares(X: Array) -> Exact:
    cut = _Cut(np.asarray(X).T, OF_PRODUCTS, ROWS, math.inf)
    found = _Sum((1, len(cut.first)), OF_PRODUCTS)
    for parts in cut.slices():
        of_column = parts.swapaxes(0, 1)
        found.add((of_column @ of_column.swapaxes(1, 2)).transpose(1, 2, 0)[:, None])
    return found.exact(2 * cut.first[None] - 2 * OF_PRODUCTS)


class NotFinite(SafeError):
    """What some row contributes is not finite, or too large to be added up."""

    def __init__(self, message: str = NOT_FINITE) -> None:
        super().__init__(message)


class Adding(Protocol):
    """The operations of which sums over rows are made."""

    def linear(self, X: Array, w: Array) -> Array:
        """Compute X w for rows (n, d) and one or more vectors (d,) or (d, c)."""

    def totals(self, of: Mapping[str, tuple[Array, Array]]) -> dict[str, Any]:
        """Add up numbers (n,) times their weights (n,), for each name."""

    def quadratic(self, X: Array, W: Array, s: Array) -> tuple[Any, Any]:
        """Add up the outer products of rows (n, d) times ``W`` (n,), from 0, and the rows times ``s``: (d, d), (d,)."""


class Floats:
    """Sums in float64, as BLAS rounds them."""

    def linear(self, X: Array, w: Array) -> Array:
        """Compute X w."""
        return np.asarray(X @ w)

    def totals(self, of: Mapping[str, tuple[Array, Array]]) -> dict[str, Any]:
        """The sums, as numbers."""
        return {name: float(weights @ values) for name, (values, weights) in of.items()}

    def quadratic(self, X: Array, W: Array, s: Array) -> tuple[Any, Any]:
        """X^T diag(W) X and X^T s."""
        return X.T @ (W[:, None] * X), X.T @ s


class Exactly:
    """Exact sums of what each row contributes, which follows from this row alone: a float64."""

    def linear(self, X: Array, w: Array) -> Array:
        """Compute X w, each row by itself.

        BLAS rounds a row in ways that depend on its place. Here all columns are added one after the other.

        Args:
            X: rows (n, d).
            w: (d,) or (d, c).

        Returns:
            (n,) or (n, c), float64.
        """
        columns, by = np.ascontiguousarray(X.T, np.float64), np.asarray(w, np.float64).reshape(len(w), -1)
        found = np.zeros((by.shape[1], len(X)))
        rows = max(ROWS // by.shape[1], 1) * 8
        room = np.empty((by.shape[1], min(rows, len(X))))
        for start in range(0, len(X), rows):
            part = found[:, start : start + rows]
            product = room[:, : part.shape[1]]
            for column, factors in zip(columns[:, start : start + rows], by, strict=True):
                part += np.multiply(factors[:, None], column, out=product)
        return found[0] if w.ndim == 1 else found.T

    def totals(self, of: Mapping[str, tuple[Array, Array]]) -> dict[str, Any]:
        """The sums."""
        found = sums(np.array([values * weights for values, weights in of.values()]).T)
        return {name: found.take([i]) for i, name in enumerate(of)}

    def quadratic(self, X: Array, W: Array, s: Array) -> tuple[Any, Any]:
        """The sums of products of columns of sqrt(W) (X, s / W): a row without a weight has none in s either."""
        if (d := X.shape[1]) == 1:
            found = sums(np.array([W * np.square(X[:, 0]), s * X[:, 0]]).T)
            return found.take([0]), found.take([1])
        root = np.sqrt(W)
        each = np.empty((d + 1, len(X)))
        np.multiply(X.T, root, out=each[:d])
        np.divide(s, np.where(root == 0, np.inf, root), out=each[d])
        found, places = products(each.T), np.arange(d)
        return found.take((places[:, None] * (d + 1) + places).ravel()), found.take(places * (d + 1) + d)


FLOATS: Adding = Floats()
EXACTLY: Adding = Exactly()


def sums(X: Array, places: Array | None = None, size: int = 1) -> Exact:
    """Add up rows.

    Args:
        X: finite numbers (n,) or (n, c). What they have below 2^-800 is lost.
        places: to which of several sums each row belongs (n,); None if there is only one.
        size: how many sums there are.

    Returns:
        The sums (size, c), one after the other.

    Raises:
        NotFinite: numbers are not finite, or beyond ``MOST``.
    """
    return _added(X, MOST, places, size)


def _added(X: Array, most: float, places: Array | None = None, size: int = 1) -> Exact:
    columns = np.atleast_2d(np.asarray(X, np.float64).T)
    if places is not None:
        order = np.argsort(places.astype(np.min_scalar_type(size)), kind="stable")  # fast for few bits
        columns, places = columns.take(order, axis=1), places[order]
    cut = _Cut(columns, OF_SUMS, ROWS_OF_SUMS, most)
    first, found = cut.first - OF_SUMS, _Sum((size, len(cut.first)), OF_SUMS)
    for i, parts in enumerate(cut.slices()):
        if places is None:
            found.add(parts.sum(axis=2)[:, None, None])
            continue
        here = places[i * ROWS_OF_SUMS :][: parts.shape[2]]
        begins = np.flatnonzero(np.diff(here, prepend=-1))
        each = np.zeros((len(parts), size, 1, len(first)))
        each[:, here[begins], 0] = np.add.reduceat(parts, begins, axis=2).swapaxes(1, 2)
        found.add(each)
    return found.exact(np.broadcast_to(first, (size, len(first))))


def products(X: Array, Y: Array | None = None) -> Exact:
    """Add up the products of columns over rows.

    Args:
        X: finite numbers (n, c). What they have below 2^-800 is lost.
        Y: more of the same rows (n, c'); None means X.

    Returns:
        X^T Y (c, c'), row by row.

    Raises:
        NotFinite: numbers are not finite, or beyond the root of ``MOST``.
    """
    most = math.sqrt(MOST)
    left = _Cut(np.asarray(X).T, OF_PRODUCTS, ROWS, most)
    right = left if Y is None else _Cut(np.asarray(Y).T, OF_PRODUCTS, ROWS, most)
    found = _Sum((len(left.first), len(right.first)), OF_PRODUCTS)
    for U, V in ((U, U) for U in left.slices()) if Y is None else zip(left.slices(), right.slices(), strict=True):
        u = U.reshape(-1, U.shape[2])
        v = u if V is U else V.reshape(-1, V.shape[2])
        found.add((u @ v.T).reshape(*U.shape[:2], *V.shape[:2]))
    return found.exact(left.first[:, None] + right.first - 2 * OF_PRODUCTS)


class _Sum:
    """Sums (a, b) of whole numbers by slice, each of which has ``digits`` bits less than the one before."""

    def __init__(self, shape: tuple[int, int], digits: int) -> None:
        self._digits, self._added = digits, 0
        self._now: dict[tuple[int, int], Array] = {}  # by the slices of both factors: (k, a, l, b), below 2^63
        self._total: Any = np.zeros(shape, object)  # in units of the last of ``_slices`` slices
        self._slices = 1

    def add(self, each: Array) -> None:
        """Add whole numbers (k, a, l, b): slice i of one factor times slice j of the other is slice i + j."""
        key = each.shape[0], each.shape[2]
        now = self._now.setdefault(key, np.zeros(each.shape, np.int64))
        now += each.astype(np.int64)
        self._added += 1
        if self._added % TOGETHER == 0:
            self._settle()

    def _settle(self) -> None:
        for (k, l), each in self._now.items():
            for m in range(k + l - 1):
                part: Any = sum(each[i, :, m - i] for i in range(max(0, m - l + 1), min(k, m + 1)))
                if m >= self._slices:
                    self._total = self._total << (self._digits * (m + 1 - self._slices))
                    self._slices = m + 1
                self._total = self._total + (part.astype(object) << (self._digits * (self._slices - 1 - m)))
        self._now.clear()

    def exact(self, first: Array) -> Exact:
        """All of it; the unit of a number's first slice is 2^first."""
        self._settle()
        units = first.astype(object) - self._digits * (self._slices - 1)
        finest = min(units.ravel().tolist(), default=0)
        return Exact(tuple((self._total << (units - finest)).ravel().tolist()), int(finest))


class _Cut:
    """Numbers (c, n) in slices: whole numbers of ``digits`` bits, the largest first, until nothing is left.

    Attributes:
        first: the power of two that all numbers of each column are below (c,).
    """

    def __init__(self, columns: Array, digits: int, rows: int, most_of_all: float) -> None:
        self._columns, self._digits, self._rows = np.ascontiguousarray(columns, np.float64), digits, rows
        most = np.maximum(self._columns.max(axis=1, initial=0.0), -self._columns.min(axis=1, initial=0.0))
        if not (most < most_of_all).all():  # NaN is not
            raise NotFinite()
        self.first = np.maximum(np.frexp(most)[1], LEAST).astype(np.int64)

    def slices(self) -> Iterator[Array]:
        """The slices of some rows after the other (k, c, rows); the next ones overwrite them."""
        c, n = self._columns.shape
        room = np.empty((c, min(n, self._rows)))
        by = np.repeat(np.ldexp(1.0, self._digits - self.first), room.shape[1]).reshape(room.shape)
        at: Array = np.empty((SLICES, *room.shape))
        least = 2  # as many as the rows before have had
        for start in range(0, n, self._rows):
            columns = self._columns[:, start : start + self._rows]
            rows = columns.shape[1]
            rest, k = np.multiply(columns, by[:, :rows], out=room[:, :rows]), 0
            while k < least or (rest != 0).any():  # several times as fast as rest.any()
                if k == len(at):
                    at = np.concatenate([at, np.empty_like(at)])
                if k:
                    rest *= 2.0**self._digits
                rest -= np.rint(rest, out=at[k, :, :rows])
                k += 1
            least = k
            yield at[:k, :, :rows]
