"""Bin edges that all nodes agree on before the first tree, so that no threshold of a tree is a value of a row.

The range of a column is its mean over all rows plus and minus ``SPREAD`` standard deviations. It is cut into
``CELLS_A_BIN`` equal cells for each bin asked for, and every edge is a boundary of cells: half of them at even steps
of the range, half at quantiles of the rows counted by cell. The even ones separate values that few rows have.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from v6_federated import codec

SPREAD = 4.0
CELLS_A_BIN = 8
FINEST = 256  # values closer than this fraction of a node's own standard deviation count as one there


def boundaries(low: np.ndarray, high: np.ndarray, max_bin: int) -> np.ndarray:
    """Cut the range of each column into equal cells.

    Args:
        low: where the ranges begin (d,).
        high: where they end (d,).
        max_bin: bins of a column at most.

    Returns:
        The boundaries between cells (d, b), float32.
    """
    cells = CELLS_A_BIN * max_bin
    steps = np.arange(1, cells, dtype=np.float32) / np.float32(cells)
    return (low[:, None] + (high - low)[:, None] * steps).astype(np.float32)


def counts(X: np.ndarray, at: np.ndarray, step: int) -> np.ndarray:
    """Count the rows up to each boundary.

    A boundary is moved down to a multiple of the column's own deviation / ``FINEST``, so that boundaries crafted to lie
    close together reveal no value more finely.

    Args:
        X: rows (n, d).
        at: the boundaries (d, b).
        step: counts are rounded down to multiples of it; 1 in a study, where central's code rounds the sum. There no
            boundary is moved either: by how much, follows from one hospital's values.

    Returns:
        The counts (d, b), int64.
    """
    found = np.empty(at.shape, np.int64)
    for column, (x, b) in enumerate(zip(X.T, at, strict=True)):
        x = x[~np.isnan(x)]
        b = b if step == 1 else _snapped(b, _grain(x))
        found[column] = np.searchsorted(np.sort(x), b, side="right") // step * step
    return found


def edges(total: np.ndarray, at: np.ndarray, n: np.ndarray, max_bin: int) -> list[np.ndarray]:
    """Choose the edges of each column.

    Args:
        total: rows up to each boundary (d, b), summed over the nodes.
        at: the boundaries (d, b), from which edges are chosen.
        n: values of each column at all nodes (d,), or one number for all.
        max_bin: bins of a column at most.

    Returns:
        The edges of each column: fewer than ``max_bin``, ascending, float32.
    """
    half = max_bin // 2
    even = np.arange(1, half) * (at.shape[1] + 1) // half - 1
    shares = np.arange(1, max_bin - half + 1) / (max_bin - half + 1)
    chosen = []
    for c, b, values in zip(total, at, np.broadcast_to(n, len(total)), strict=True):
        quantiles = np.searchsorted(c, values * shares)
        e = np.unique(b[np.union1d(even, quantiles[quantiles < len(b)])])
        chosen.append(e if len(e) > 1 else e[:0])  # a constant column is never split
    return chosen


def even(indicators: Sequence[bool], max_bin: int) -> list[np.ndarray]:
    """Choose edges without looking at rows, for columns that the step ``scale`` has put between -1 and 1.

    Args:
        indicators: whether each column is 0 or 1, as the step ``onehot`` makes it.
        max_bin: bins of a column at most.

    Returns:
        The edges of each column: even steps, or one half for a column of 0 and 1; float32.
    """
    steps = np.linspace(-1, 1, max_bin + 1)[1:-1].astype(np.float32)
    return [np.array([0.5], np.float32) if of_words else steps for of_words in indicators]


def assign(edges: Sequence[np.ndarray], X: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
    """Sort a node's values into bins.

    Args:
        edges: the agreed edges of each column.
        X: the node's rows (n, d).

    Returns:
        The edges of each column that the node uses, and the indices of the values' bins (n, d), float32; NaN if
        missing.
    """
    used = [coarse(e, x) for e, x in zip(edges, X.T, strict=True)]
    binned = np.column_stack([np.searchsorted(e, x) for e, x in zip(used, X.T, strict=True)]).astype(np.float32)
    return used, np.where(np.isnan(X), np.float32(np.nan), binned)


def indices(edges: Sequence[np.ndarray], X: np.ndarray, exact: bool = False) -> np.ndarray:
    """Sort a node's values into the agreed bins; values between edges too close for the node, as ``assign`` does.

    Args:
        edges: the agreed edges of each column.
        X: the node's rows (n, d).
        exact: whether no edges are too close, as in a study: which are, follows from one hospital's values.

    Returns:
        How many agreed edges lie below each value (n, d), float32; NaN if missing.
    """
    if exact:
        found = np.column_stack([np.searchsorted(e, x) for e, x in zip(edges, X.T, strict=True)]).astype(np.float32)
        return np.where(np.isnan(X), np.float32(np.nan), found)
    used, binned = assign(edges, X)
    places = [np.append(np.searchsorted(e, u), len(e)) for e, u in zip(edges, used, strict=True)]
    gone = np.isnan(binned)
    at = np.where(gone, 0, binned).astype(np.intp)
    found = np.column_stack([place[k] for place, k in zip(places, at.T, strict=True)]).astype(np.float32)
    return np.where(gone, np.float32(np.nan), found)


def coarse(e: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Choose the edges that a node uses for a column: the first of any that are too close together for it.

    Args:
        e: the agreed edges, ascending.
        x: the node's values (n,).

    Returns:
        Some of the edges, ascending.
    """
    grain = _grain(x)
    return e[np.unique(np.floor(e / grain), return_index=True)[1]] if grain else e


def pack(columns: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    """Write edges as arrays that travel.

    Args:
        columns: the edges of each column.

    Returns:
        ``edges``, all in a row, and ``lengths`` (d,), how many each column has; float32.
    """
    return {"edges": np.concatenate(columns), "lengths": np.array([len(e) for e in columns], np.float32)}


def unpack(arrays: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Read what ``pack`` has written.

    Args:
        arrays: ``edges`` and ``lengths``.

    Returns:
        The edges of each column.
    """
    return np.split(arrays["edges"], np.cumsum(arrays["lengths"].astype(np.int64))[:-1])


def decoded(edges: Any, features: int) -> list[np.ndarray]:
    """Read edges from the payload in which they travel.

    Args:
        edges: the payload.
        features: number of columns.

    Returns:
        The edges of each column.

    Raises:
        SafeError: it holds no edges of so many columns.
    """
    return unpack(codec.decode(edges, {"edges": (None,), "lengths": (features,)}))


def _grain(x: np.ndarray) -> float:
    given = x[~np.isnan(x)]
    return float(np.std(given, dtype=np.float64)) / FINEST if len(given) else 0.0


def _snapped(b: np.ndarray, grain: float) -> np.ndarray:
    return np.floor(b / grain) * grain if grain else b
