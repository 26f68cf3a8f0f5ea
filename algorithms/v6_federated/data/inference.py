"""What regressions by Newton's method say: whether coefficients are determined, and their standard errors and tests."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import special

from v6_federated.base.arrays import Array
from v6_federated.base.errors import SafeError
from v6_federated.base.text import shortened

ALIASED = 1e-9  # share of a column's information that is not in the columns before it
UNTOLD = 1e-8  # share of a column's information that counts as none when gradients are measured
ROUNDED = 1e-6  # share of what a step explains below which the rest is rounding
PULL = 0.3  # honest hospitals differ: no gradient counts as smaller
WEAK = 0.3  # the same, from which columns are suspected
NAMED = 5  # columns in an error, which must not hide the cure
SEPARATED = 1e-7  # share of the first step's information on some coefficient that is left


def symmetric(triangle: Array, p: int) -> Array:
    """Write a symmetric matrix in full.

    Args:
        triangle: its lower triangle, row by row.
        p: its size.

    Returns:
        The matrix (p, p).
    """
    H = np.zeros((p, p))
    H[np.tril_indices(p)] = triangle
    return H + np.tril(H, -1).T


def check_identified(
    H: Array, names: Sequence[str], constant: str = "in all rows, as the intercept has", penalty: bool = True
) -> None:
    """Reject columns that say nothing beyond the intercept and the columns before them.

    Args:
        H: the Hessian (p, p) of centred columns divided by their deviations; the last is the intercept.
        names: of the columns, without the intercept.
        constant: where a column without information has one value, for the error.
        penalty: whether the method has a setting ``l2``, for the error.

    Raises:
        SafeError: there are such columns; it names them.
    """
    p = len(H)
    order = [p - 1, *range(p - 1)]
    A = H[np.ix_(order, order)].copy()
    before, taken = np.diag(A).copy(), [0]
    for j in range(p):
        if j and A[j, j] <= ALIASED * max(before[j], before[0]):
            name = names[order[j]]
            if len(taken) > 1:
                own = H[np.ix_([order[i] for i in taken], [order[i] for i in taken])]
                with_it = np.linalg.solve(own, H[[order[i] for i in taken], order[j]])
                same = [names[order[i]] for i, b in zip(taken, with_it, strict=True) if i and abs(b) > 1e-6]
            else:
                same = []
            if not same:
                raise SafeError(f"the column {name} has one value {constant}; leave it out (--exclude)")
            levels = any("=" in c for c in (name, *same))
            onehot = ", or one level of each category (--preprocess onehot:drop=first)" if levels else ""
            raise SafeError(
                f"the column {name} follows from {shortened(same, NAMED)}, so that their coefficients are not "
                f"determined; leave one of them out (--exclude){onehot}{', or set l2' if penalty else ''}"
            )
        if A[j, j] > 0:
            taken += [j] if j else []
            A[j + 1 :, j + 1 :] -= np.outer(A[j + 1 :, j], A[j, j + 1 :]) / A[j, j]


def lost_direction(first: Array, H: Array, left: float = SEPARATED) -> Array | None:
    """Find coefficients of which the rows tell nothing any more, as they grow for ever.

    Args:
        first: the Hessian at the first coefficients (p, p).
        H: the Hessian now (p, p).
        left: the share of the first information that is nothing, next to the direction that has kept most.

    Returns:
        How much each coefficient grows (p,), from 0; None if there are none.
    """
    L = np.linalg.cholesky(first)
    values, vectors = np.linalg.eigh(np.linalg.solve(L, np.linalg.solve(L, H).T))
    return None if values[0] > left * values.max() else np.abs(np.linalg.solve(L.T, vectors[:, 0]))


def pull(g: Array, H: Array, unexplained: float) -> Array:
    """Measure how strongly rows pull coefficients their way, to compare hospitals with each other.

    A gradient itself says nothing: at coefficients that fit, honest ones are near 0, and some are ten times as near as
    others. In units of information, g^T H^-1 g is about what a step of the rows' own would explain.

    Args:
        g: the gradient of some rows (p,).
        H: the Hessian of the same rows (p, p). Where it tells nothing, honest gradients are 0.
        unexplained: what there is to explain: the deviance, or the number of events.

    Returns:
        The root of the share that a step of their own would explain (1,), and at least ``PULL``.
    """
    s = np.sqrt(np.diag(H).clip(0))
    s = np.where(s > 0, s, 1.0)
    step = np.linalg.lstsq(H / np.outer(s, s) + UNTOLD * np.eye(len(g)), g / s, rcond=None)[0]
    explained = max(float(step @ (g / s)), 0.0)
    share = explained / max(unexplained, ROUNDED * explained) if explained else 0.0
    return np.array([max(math.sqrt(share), PULL)])


def deviations(H: Array, n: float) -> Array:
    """Measure the Hessian of some rows, to compare hospitals with each other.

    Args:
        H: its lower triangle, row by row (p (p + 1) / 2,).
        n: the number of rows.

    Returns:
        The roots of what a row tells of each coefficient (p,): in linear models, the deviations of the columns.
    """
    p = math.isqrt(2 * len(H))
    i = np.arange(p)
    return np.asarray(np.sqrt(H[i * (i + 3) // 2].clip(0) / n))


def suspects(names: Sequence[str], first: Array, H: Array) -> str:
    """Name the columns that may predict outcomes with certainty, when nodes refuse and masks hide why.

    Args:
        names: of the columns, without the intercept.
        first: the Hessian at the first coefficients (p, p), of columns in comparable units.
        H: the Hessian at the latest coefficients (p, p).

    Returns:
        Their names in brackets; empty if the rows still tell enough of all coefficients.
    """
    direction = lost_direction(first, H, WEAK)
    return "" if direction is None else f" (above all {that_matter(names, direction[: len(names)])})"


def that_matter(names: Sequence[str], direction: Array) -> str:
    """Name the columns that a direction of coefficients is mostly about.

    Args:
        names: of the columns.
        direction: a number for each, from 0.

    Returns:
        Their names, by commas, ``NAMED`` at most.
    """
    found = [name for name, part in zip(names, direction, strict=False) if part > 0.1 * direction.max()]
    return shortened(found, NAMED)


def listed(value: Any) -> Any:
    """Turn arrays into lists, which JSON keeps in full precision.

    Args:
        value: dictionaries, arrays and anything else.

    Returns:
        The same with lists for arrays.
    """
    if isinstance(value, dict):
        return {name: listed(inner) for name, inner in value.items()}
    return value.tolist() if isinstance(value, np.ndarray) else value


def arrays(value: Any) -> Any:
    """Turn lists back into arrays.

    Args:
        value: what ``listed`` returned.

    Returns:
        The same with arrays for lists.
    """
    if isinstance(value, dict):
        return {name: arrays(inner) for name, inner in value.items()}
    return np.array(value) if isinstance(value, list) else value


def table(
    names: Sequence[str],
    estimates: Array,
    covariance: Array | None,
    ratio: str | None,
    confidence: float,
    degrees: float | None,
) -> list[dict[str, Any]]:
    """Make the rows of the coefficients.

    Args:
        names: of the coefficients (k,).
        estimates: the coefficients (k,).
        covariance: of them (k, k); None if it is not known.
        ratio: what the exponential of a coefficient is called; None if it has no meaning.
        confidence: of the intervals.
        degrees: of freedom of the t distribution; None: the normal distribution, as the dispersion is known.

    Returns:
        For each coefficient ``name``, ``estimate``, ``std_error``, ``z`` (t if the dispersion was estimated), ``p`` and
        the interval from ``lower`` to ``upper``; and the exponentials of estimate and interval, as ``odds_ratio``,
        ``odds_ratio_lower`` and ``odds_ratio_upper``, or under the other names that ``ratio`` may have.
    """
    found = []
    at = (1 + confidence) / 2
    quantile = float(special.ndtri(at) if degrees is None else special.stdtrit(degrees, at))
    for i, (name, value) in enumerate(zip(names, estimates.tolist(), strict=True)):
        row: dict[str, Any] = {"name": name, "estimate": value}
        row |= dict.fromkeys(("std_error", "z", "p", "lower", "upper"))
        if covariance is not None:
            error = math.sqrt(max(float(covariance[i, i]), 0.0))
            z = value / error if error else None
            p = None
            if z is not None:
                p = 2 * float(special.ndtr(-abs(z)) if degrees is None else special.stdtr(degrees, -abs(z)))
            low, high = value - quantile * error, value + quantile * error
            row |= {"std_error": error, "z": z, "p": p, "lower": low, "upper": high}
        if ratio is not None and name != "intercept":
            row[ratio] = _exp(value)
            row |= {f"{ratio}_{end}": None if row[end] is None else _exp(row[end]) for end in ("lower", "upper")}
        found.append(row)
    return found


def _exp(value: float) -> float | None:
    """The exponential; None if it is too large for JSON."""
    return math.exp(value) if value < 709 else None
