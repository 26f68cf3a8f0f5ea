"""Sums over a node's rows, by leaves of trees and by bins: every number is about no row, or about enough of them.

Where a part of the rows is smaller than the node's minimum, the few follow the many: rows that a split would part from
the others as too few go with these, and so do rows of a bin that are too few. So all that a node tells are sums over
sets of rows that are large enough, or 0, and the limit needs no answer from other nodes.

In a study no node does so: a sum over a block would tell where one hospital's rows are too few. Sums are exact there,
of rows whose derivatives are rounded one by one, and central's code joins what is small over all hospitals.
"""

from collections.abc import Callable, Sequence

import numpy as np

from v6_federated import ROW, bounded_reach, bounded_rows
from v6_gbdt.trees import EVERY, FEATURE, GAIN, LEAF, VALUE, ends, on_the_way, outputs_of, paths

MOST_PAIRS = 1 << 16  # of a row and a tree, that are worked on at a time
STEEPER = 3.0  # times second derivatives, in such sums: of two classes, |(g, 3 h)| is still 1 at most, with less noise
UNIT = 2.0**-30  # of sums of derivatives of a classification's loss, which travel as whole numbers


def cells(tree: np.ndarray, edges: Sequence[np.ndarray], binned: np.ndarray, minimum: int) -> np.ndarray:
    """Sort rows into the leaves of a tree, with no leaf of few rows.

    Args:
        tree: the tree (m, 3), as ``Trees`` describes it.
        edges: the agreed edges of each column.
        binned: indices of the rows' bins (n, d), see ``bins.indices``.
        minimum: rows that a leaf has at least, unless it has none.

    Returns:
        The number of each row's leaf (n,), counted from the left.
    """
    numbers = np.cumsum(tree[:, FEATURE] == LEAF) - 1
    return numbers[_leaves(tree, np.zeros(1, np.intp), edges, binned, minimum)[0]]


def _leaves(
    trees: np.ndarray, roots: np.ndarray, edges: Sequence[np.ndarray], binned: np.ndarray, minimum: int
) -> np.ndarray:
    """The leaf, a row of the trees (m, 3), to which each row comes in each tree: (trees, n)."""
    is_leaf, column, left, right, depth = paths(trees)
    edge, missing_left = np.zeros(len(trees)), ~np.signbit(trees[:, GAIN])
    for j in np.unique(column[~is_leaf]):
        here = ~is_leaf & (column == j)
        value = trees[here, VALUE]
        edge[here] = np.where(value == EVERY, len(edges[j]), np.searchsorted(edges[j], value))
    n = len(binned)
    at = np.repeat(roots, n)
    todo = np.arange(len(at))  # pairs of a tree and a row
    row, here = todo % n, at
    for _ in range(depth):
        x = binned[row, column[here]]
        goes_left = (x <= edge[here]) | (np.isnan(x) & missing_left[here])
        rows, lefts = (np.bincount(h, minlength=len(trees)) for h in (here, here[goes_left]))
        few = np.minimum(lefts, rows - lefts) < minimum
        goes_left = np.where(few[here], (2 * lefts >= rows)[here], goes_left)
        here = at[todo] = np.where(goes_left, left[here], right[here])
        going = on_the_way(is_leaf[here])
        todo, row, here = todo[going], row[going], here[going]
    return at.reshape(len(roots), n)


def sums_of_leaves(
    trees: Sequence[np.ndarray],
    edges: Sequence[np.ndarray],
    binned: np.ndarray,
    g: np.ndarray,
    h: np.ndarray,
    minimum: int,
    pause: Callable[[], None] = lambda: None,
) -> np.ndarray:
    """Add up derivatives by leaf.

    Args:
        trees: of any structure; tree t is for column t mod c of the scores.
        edges: the agreed edges of each column of the rows.
        binned: indices of the rows' bins (n, d).
        g: first derivatives of each row's loss (n, c).
        h: second derivatives (n, c).
        minimum: rows that a leaf has at least, unless it has none.
        pause: is called now and then; it may end the task.

    Returns:
        The sums of ``g`` in all leaves of all trees, then those of ``h``, and the numbers of rows: (3 leaves,) float64.
    """
    first, second, rows = list[np.ndarray](), list[np.ndarray](), list[np.ndarray]()
    c = g.shape[1]
    several = max(1, MOST_PAIRS // max(1, len(binned)) // c) * c  # trees that are worked on at a time
    for begin in range(0, len(trees), several):
        pause()
        part = trees[begin : begin + several]
        roots, together = np.cumsum([0, *map(len, part[:-1])]), np.concatenate(part)
        leaf = _leaves(together, roots, edges, binned, minimum).ravel()
        is_leaf = together[:, FEATURE] == LEAF
        for sums, x in ((first, g), (second, h)):
            each = x.T[np.arange(len(part)) % c].ravel()
            sums.append(np.bincount(leaf, each, len(together))[is_leaf])
        rows.append(np.bincount(leaf, minlength=len(together))[is_leaf])
    return np.concatenate(first + second + rows)


def sums_of_bins(
    trees: Sequence[np.ndarray],
    edges: Sequence[np.ndarray],
    binned: np.ndarray,
    g: np.ndarray,
    h: np.ndarray,
    minimum: int,
    pause: Callable[[], None] = lambda: None,
) -> np.ndarray:
    """Add up derivatives by open leaf, column and bin. A leaf is open if its output is above 0.

    Args:
        trees: of any structure; tree t is for column t mod c of the scores.
        edges: the agreed edges of each of the d columns of the rows.
        binned: indices of the rows' bins (n, d).
        g: first derivatives of each row's loss (n, c).
        h: second derivatives (n, c).
        minimum: rows that a sum is about at least, unless it is about none.
        pause: is called before each tree; it may end the task.

    Returns:
        Sums of ``g``, of ``h``, and numbers of rows: (3, open leaves, d, b + 1) float64 for the b bins of the column
        with most, and last the rows without a value.
    """
    most, d = bins_of(edges), binned.shape[1]
    place = np.where(np.isnan(binned), most, binned).astype(np.intp) + (most + 1) * np.arange(d)
    found = []
    for t, tree in enumerate(trees):
        pause()
        c, is_open = t % g.shape[1], tree[tree[:, FEATURE] == LEAF, VALUE] > 0
        cell = cells(tree, edges, binned, minimum)
        rows = np.flatnonzero(is_open[cell])
        number = (np.cumsum(is_open) - 1)[cell[rows]]
        key = (number[:, None] * d * (most + 1) + place[rows]).ravel()
        shape = int(is_open.sum()), d, most + 1
        sums = [np.bincount(key, np.repeat(x[rows, c], d), np.prod(shape)) for x in (g, h, np.ones_like(h))]
        found.append(np.reshape(sums, (3, *shape)))
    return folded(np.concatenate(found, axis=1), minimum)


def clipped_sums(
    trees: Sequence[np.ndarray],
    X: np.ndarray,
    g: np.ndarray,
    h: np.ndarray,
    clip: float,
    pause: Callable[[], None],
    idle: np.ndarray | None = None,
) -> np.ndarray:
    """Add up clipped derivatives by leaf, as whole numbers of which one row changes no more than is proven.

    A row's (g, ``STEEPER`` h) / C, 2 c numbers, is shortened to a length of 1 and rounded, see ``bounded_rows``. The
    row adds it to one leaf in each of the T trees of each class, so that all it contributes is sqrt(T) times as long
    at most, see ``reach``. What a row adds follows from this row alone: no leaf is folded into another, however few
    rows it has.

    Args:
        trees: of any structure; tree t is for column t mod c of the scores.
        X: rows (n, d).
        g: first derivatives of each row's loss (n, c).
        h: second derivatives (n, c).
        clip: C, the largest norm of (g, ``STEEPER`` h).
        pause: is called now and then; it may end the task.
        idle: which rows add nothing (n,); None: all do. Having no values does not keep a row out of the leaves.

    Returns:
        The sums of the z of ``g`` in all leaves of all trees, and then those of ``h``: (2 leaves,) int64.
    """
    z = bounded_rows(np.hstack([g, STEEPER * h]) / clip)
    if idle is not None:
        z[idle] = 0
    found, c = list[np.ndarray](), g.shape[1]
    for t, tree in enumerate(trees):
        pause()
        is_leaf = tree[:, FEATURE] == LEAF
        numbered = tree.copy()
        numbered[is_leaf, VALUE] = np.arange(is_leaf.sum())
        (leaf,) = outputs_of([numbered], X)
        sums = np.zeros((2, int(is_leaf.sum())), np.int64)
        for total, x in zip(sums, (z[:, t % c], z[:, c + t % c]), strict=True):
            np.add.at(total, leaf.astype(np.intp), x)
        found.append(sums)
    return np.concatenate(found, axis=1).ravel()


def reach(trees: int, columns: int) -> float:
    """Bound how far one row can move ``clipped_sums``: the L2 norm, in its units.

    Args:
        trees: T, the trees of each class.
        columns: c, of the scores.
    """
    return float(np.sqrt(trees)) * bounded_reach(2 * columns)


def of_clipped(total: np.ndarray, clip: float) -> tuple[np.ndarray, np.ndarray]:
    """Read ``clipped_sums``.

    Args:
        total: the sum over nodes (2 leaves,), with noise.
        clip: C.

    Returns:
        Sums of first and of second derivatives, (leaves,) float64 each.
    """
    G, H = np.split(total * (clip / ROW), 2)
    return G, H / STEEPER


def bins_of(edges: Sequence[np.ndarray]) -> int:
    """Count the bins of the column that has most.

    Args:
        edges: the agreed edges of each column.

    Returns:
        Their number, without that of missing values.
    """
    return max(map(len, edges)) + 1


def folded(sums: np.ndarray, minimum: int) -> np.ndarray:
    """Add sums of bins with few rows to those of a neighbour.

    Bins are joined from the left until they have rows enough; a rest at the right, and few rows without a value, go
    with the last bins before them.

    Args:
        sums: (3, ..., b + 1), the last of three being numbers of rows, the last of b + 1 rows without a value.
        minimum: rows that a sum is about at least, unless it is about none.

    Returns:
        The sums, (3, ..., b + 1).
    """
    found, most = np.zeros_like(sums), sums.shape[-1] - 1
    rest, last = np.zeros_like(sums[..., 0]), np.full(sums.shape[1:-1], -1)
    for b in range(most):
        rest = rest + sums[..., b]
        full = rest[-1] >= minimum
        found[..., b] = np.where(full, rest, 0.0)
        rest, last = np.where(full, 0.0, rest), np.where(full, b, last)
    gone = sums[..., most]
    few = gone[-1] < minimum
    rest, found[..., most] = rest + np.where(few, gone, 0.0), np.where(few, 0.0, gone)
    # with few others, rows without a value may be enough; else the rest joins them, if no bin is full
    place = np.where(rest[-1] >= minimum, most - 1, np.where(last < 0, most, last))
    return found + np.where(np.arange(most + 1) == place[..., None], rest[..., None], 0.0)


def joined(structure: np.ndarray, G: np.ndarray, H: np.ndarray, rows: np.ndarray, least: int) -> list[np.ndarray]:
    """Let the few follow the many: the sums of leaves with few rows go to the fullest leaf of a subtree around them.

    It is the smallest subtree that has rows enough. A leaf that is left without rows has its subtree's output, see
    ``structures.filled``.

    Args:
        structure: trees (m, 3).
        G: sums of first derivatives over the rows of each leaf, in the order of the leaves (leaves,).
        H: sums of second derivatives (leaves,).
        rows: numbers of rows (leaves,).
        least: rows that a leaf has at least, unless it has none.

    Returns:
        The new ``G``, ``H`` and ``rows``.
    """
    sums = np.array([G, H, rows], np.float64)
    is_leaf = structure[:, FEATURE] == LEAF
    before = np.cumsum(np.append(0, is_leaf))  # leaves in front of a row of the structure
    behind = ends(structure)
    for i in np.flatnonzero(~is_leaf)[::-1]:  # subtrees before those around them
        own = slice(before[i], before[behind[i]])
        few = (sums[2, own] > 0) & (sums[2, own] < least)
        if not few.any() or sums[2, own].sum() < least:
            continue
        fullest = int(sums[2, own].argmax())
        few[fullest] = False
        sums[:, own.start + fullest] += (sums[:, own] * few).sum(axis=1)
        sums[:, own] *= ~few
    return [*sums]


def whole(sums: np.ndarray) -> np.ndarray:
    """Write sums as whole numbers of ``UNIT`` with 24 digits, so that they are the same in each kind of answer.

    Args:
        sums: any numbers.

    Returns:
        The whole numbers, int64.
    """
    return np.rint(sums / UNIT).astype(np.float32).astype(np.int64)
