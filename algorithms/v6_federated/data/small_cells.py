"""Small cells in products of columns of levels: central's code changes them before anything is computed from them.

The covariance of two columns of 0 and 1 is a number of rows: how many have both levels. With all principal components
of such columns a result holds the whole matrix, and so each cell of each table of two columns, also of one patient.
What central writes must hold no cell of a few rows, nor must a cell follow from the margins, which means tell. So rows
are moved within a table such that its margins stay as they are: its cells are then those of a table of as many rows
that has no small cell.
"""

from collections.abc import Sequence

import numpy as np

from v6_federated.base.arrays import Array

SAME = 1e-6  # of a variance, relative: that of 0 and 1 is p (1 - p)


def zeros_and_ones(n: int, sums: Array, squares: Array, a: Array, s: Array) -> tuple[Array, Array]:
    """Find columns that are made of one of 0 and 1: its variance is p (1 - p).

    Args:
        n: number of rows.
        sums: of each column (d,).
        squares: of each column about its mean (d,).
        a: column i is a_i + s_i x_i (d,).
        s: see ``a``; 0 for a column that is not made of one other (d,).

    Returns:
        How many rows have x_i = 1 (d,), and which columns are such (d,).
    """
    x = (sums - n * a) / np.where(s == 0, 1.0, s)
    p = x / n
    fits = np.abs(squares - n * s**2 * p * (1 - p)) <= SAME * (squares + s**2)
    return np.rint(x), (s != 0) & fits & (squares > 0)


def changed(
    products: Array, n: int, sums: Array, squares: Array, a: Array, s: Array, own: Sequence[str], least: int
) -> Array:
    """Say by how much the sums of products of columns of 0 and 1 change so that no cell is small.

    Args:
        products: sums over n rows of the products of two columns (d, d), of which the upper triangle is read.
        n: number of rows.
        sums: of each column (d,).
        squares: of each column about its mean (d,).
        a: column i is a_i + s_i x_i (d,).
        s: see ``a``; 0 for a column that is not made of one other (d,).
        own: a name for x, the same for levels of one column.
        least: rows that a cell must have, unless it has none.

    Returns:
        The change (d, d), symmetric; 0 but for products of two columns of 0 and 1.
    """
    found = np.zeros_like(products)
    x, binary = zeros_and_ones(n, sums, squares, a, s)
    at = np.flatnonzero(binary)
    names = [*dict.fromkeys(own[i] for i in at)]
    of_group = np.array([[own[i] == name for name in names] for i in at], np.float64).reshape(len(at), len(names))
    aa, ss, total, x = a[at], s[at], sums[at], x[at]
    upper = np.triu(products)[np.ix_(at, at)]
    upper = upper + np.triu(upper, 1).T
    cells = upper - np.outer(total, aa) - np.outer(aa, total) + n * np.outer(aa, aa)
    counts = np.rint(cells / np.outer(ss, ss))
    for k, m in zip(*np.nonzero(np.triu(_with_small(counts, x, n, of_group, least), 1)), strict=True):
        one, other = np.flatnonzero(of_group[:, k]), np.flatnonzero(of_group[:, m])
        true = counts[np.ix_(one, other)]
        table = np.zeros((len(one) + 1, len(other) + 1))
        table[:-1, :-1] = true
        table[:-1, -1] = x[one] - true.sum(axis=1)
        table[-1, :-1] = x[other] - true.sum(axis=0)
        table[-1, -1] = n - table.sum()
        change = (without_small(table, least)[:-1, :-1] - true) * np.outer(ss[one], ss[other])
        found[np.ix_(at[one], at[other])] = change
        found[np.ix_(at[other], at[one])] = change.T
    return found


def _with_small(counts: Array, x: Array, n: int, of_group: Array, least: int) -> Array:
    """Which pairs of groups have a table with a small cell (g, g): of two levels, of one and none, or of no level."""

    def small(cells: Array) -> Array:
        return np.where((cells > 0.5) & (cells < least), 1.0, 0.0)

    rest = of_group.T @ small(x[:, None] - counts @ of_group)
    margins = of_group.T @ x
    none = n - margins[:, None] - margins + of_group.T @ counts @ of_group
    found: Array = (of_group.T @ small(counts) @ of_group + rest + rest.T + small(none)) > 0
    return found


def without_small(table: Array, least: int) -> Array:
    """Move rows within a table so that no cell has a few, and all margins stay as they are.

    A small cell becomes 0 or ``least``, whichever is nearer, where the other cells of its row and column can take the
    rest. If no such moves are found, all cells become what the margins let expect.

    Args:
        table: numbers of rows (p, q).
        least: rows that a cell must have, unless it has none.

    Returns:
        The table (p, q).
    """
    found = table.astype(np.float64)
    for _ in range(found.size):
        small = (found > 0.5) & (found < least)
        if not small.any():
            return found
        i, j = (int(k) for k in np.unravel_index(np.where(small, found, np.inf).argmin(), found.shape))
        t = found[i, j]
        moves = [-t, least - t] if 2 * t < least else [least - t, -t]
        move = next((best for by in moves if (best := _switched(found, i, j, by, least)) is not None), None)
        if move is None:
            break
        found = move
    small = (found > 0.5) & (found < least)
    if not small.any():
        return found
    rows = table.sum(axis=1, keepdims=True)
    expected: Array = rows * table.sum(axis=0, keepdims=True) / max(float(rows.sum()), 1.0)
    return expected


def _switched(table: Array, i: int, j: int, by: float, least: int) -> Array | None:
    """The table with ``by`` rows more in a cell, which three others take such that none of these is small; or None."""
    others = np.ix_(np.delete(np.arange(len(table)), i), np.delete(np.arange(table.shape[1]), j))
    row, column, rest = table[i, others[1][0]] - by, table[others[0][:, 0], j] - by, table[others] + by
    smallest = np.minimum(np.minimum(rest, row[None, :]), column[:, None])
    fine = ((rest >= least) | (np.abs(rest) < 0.5)) & ((row >= least) | (np.abs(row) < 0.5))[None, :]
    fine = fine & ((column >= least) | (np.abs(column) < 0.5))[:, None]
    if not fine.any():
        return None
    r, c = np.unravel_index(np.where(fine, smallest, -np.inf).argmax(), fine.shape)
    k, m = int(others[0][r, 0]), int(others[1][0, c])
    found = table.copy()
    found[i, j] += by
    found[k, m] += by
    found[i, m] -= by
    found[k, j] -= by
    return found
