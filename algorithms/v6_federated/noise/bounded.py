"""Sums of rows that are at most 1 long, as whole numbers, of which one row changes no more than a proven amount."""

import math
from collections.abc import Callable

import numpy as np

from v6_federated.base.arrays import Array

ROW = 2**20  # whole numbers that a length of 1 is divided into
ROWS = 256  # that are summed at a time: what a row adds may be much longer than the row
SHORTER = 1 - 2.0**-29


def bounded_sum(of_rows: Callable[[Array, Array], Array], X: Array, y: Array, q: int, units: int = ROW) -> Array:
    """Add up what each row contributes, shortened to a length of 1 and rounded to whole numbers.

    Args:
        of_rows: returns the contributions (b, q) of rows X (b, d) with labels y (b,). That of a row must follow from
            this row and the shapes of the arrays alone. It must not raise errors that depend on rows.
        X: rows (n, d).
        y: their labels (n,).
        q: numbers that a row contributes.
        units: whole numbers that a length of 1 is divided into.

    Returns:
        The sum (q,) in units, int64. One row changes it by ``bounded_reach`` at most. A row whose contribution is not
        finite adds nothing.
    """
    total = np.zeros(q, np.int64)
    with np.errstate(all="ignore"):  # a warning would tell that there is a row which is not finite
        for start in range(0, len(y), ROWS):
            total += bounded_rows(of_rows(X[start : start + ROWS], y[start : start + ROWS]), units).sum(axis=0)
    return total


def bounded_rows(contributions: Array, units: int = ROW) -> Array:
    """Shorten what each row contributes to a length of 1, and round it to whole numbers.

    Args:
        contributions: of rows (b, q).
        units: whole numbers that a length of 1 is divided into.

    Returns:
        Whole numbers (b, q), int64, each row of a length of ``bounded_reach`` at most. A row that is not finite is 0.
    """
    Z = np.asarray(contributions, np.float64)
    Z = np.where(np.isfinite(Z).all(axis=1, keepdims=True), Z, 0.0)  # the same work whichever rows are not finite
    with np.errstate(all="ignore"):  # a warning would tell that there is a row which is not finite
        Z *= (units * SHORTER / np.maximum(np.sqrt(np.vecdot(Z, Z)), 1))[:, None]
    return np.rint(Z).astype(np.int64)


def bounded_reach(q: int, units: int = ROW) -> float:
    """Bound how far one row can move ``bounded_sum``.

    A contribution z becomes c = rint(units (1 - 2^-29) z / max(|z|, 1)). In float64 the length is off by a factor of at
    most 1 + (q + 2) 2^-53, and quotient and product by 3 roundings more: less than 2^-30 in all for q up to 2^22. So
    what is rounded is at most ``units`` long, and rounding moves each of q numbers by at most 1/2:
    |c| <= units + sqrt(q) / 2. Without the row, its place contributes 0, the others contribute the same, and whole
    numbers are added without error. (If |z| overflows, c is 0.)

    Args:
        q: numbers that a row contributes, at most 2^22.
        units: as in ``bounded_sum``.

    Returns:
        The bound on the L2 norm of the change, in units.
    """
    return units + math.sqrt(q) / 2
