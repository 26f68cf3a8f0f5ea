"""Structures of trees, drawn or from sums by bin, and outputs of leaves from sums over all nodes."""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from v6_gbdt.growth import Growth
from v6_gbdt.trees import EVERY, FEATURE, GAIN, LEAF, VALUE, ends

MINIMUM_HESSIAN = 1e-3  # of a leaf; LightGBM's own default


def drawn(rng: np.random.Generator, edges: Sequence[np.ndarray], depth: int, trees: int) -> np.ndarray:
    """Draw trees without looking at rows: Maddock et al. 2022.

    Each split is at a random edge of a random column, among those that can still part the box of its leaf; missing
    values go to a random side.

    Args:
        rng: random numbers.
        edges: the agreed edges of each column.
        depth: splits above a leaf.
        trees: how many.

    Returns:
        The trees (m, 3), as ``Trees`` describes them, with outputs and gains of 0.
    """
    return np.concatenate([_drawn(rng, edges, depth) for _ in range(trees)])


def _drawn(rng: np.random.Generator, edges: Sequence[np.ndarray], depth: int) -> np.ndarray:
    """One tree (m, 3), level by level: a leaf's box lies between two edges of each column."""
    lengths: np.ndarray = np.array([len(e) for e in edges])
    starts, values = np.cumsum(lengths) - lengths, np.concatenate(edges)
    found, there = np.zeros((2 ** (depth + 1) - 1, 3), np.float32), np.zeros(2 ** (depth + 1) - 1, bool)
    place: np.ndarray = np.zeros(1, np.intp)
    low: np.ndarray = np.zeros((1, len(edges)), np.intp)
    high = lengths[None]
    for level in range(depth + 1):
        there[place], found[place, FEATURE] = True, LEAF
        free = low < high
        parted = np.flatnonzero(free.any(axis=1))
        if level == depth or not len(parted):
            break
        place, low, high = place[parted], low[parted], high[parted]
        j = np.where(free[parted], rng.random(low.shape), -1).argmax(axis=1)
        box = np.arange(len(j))
        k = rng.integers(low[box, j], high[box, j])
        found[place] = np.column_stack([j, values[starts[j] + k], np.where(rng.random(len(j)) < 0.5, 0.0, -0.0)])
        lower, upper = high.copy(), low.copy()
        lower[box, j], upper[box, j] = k, k + 1
        # a split is before its left subtree, which is before the right one
        place = np.concatenate([place + 1, place + 2 ** (depth - level)])
        low, high = np.concatenate([low, upper]), np.concatenate([lower, high])
    return found[there]


@dataclass(frozen=True)
class Split:
    """The best split of a leaf.

    Attributes:
        feature: the column.
        edge: the number of the edge; the number of edges for a split of missing values from all others.
        missing_left: whether rows without a value go left.
        gain: how much it lowers the loss, to second order, twice.
    """

    feature: int
    edge: int
    missing_left: bool
    gain: float


def best_splits(sums: np.ndarray, edges: Sequence[np.ndarray], growth: Growth, few: int = 0) -> list[Split | None]:
    """Find the split of each leaf with the largest gain: the sum of G^2 / (H + lambda) of its sides, less the leaf's.

    With the criterion ``variance`` the sum is of G^2 / rows.

    Of edges that split alike the first is taken: bins that seem empty may have rows, which nodes count with the next
    ones because they are few. Where no row of a leaf lacks a value, missing values go with most rows.

    Args:
        sums: of first and second derivatives, and numbers of rows (3, leaves, d, b + 1), see ``leaves.sums_of_bins``.
        edges: the agreed edges of each column.
        growth: the rows that each side must have, the criterion and lambda.
        few: rows without a value go with most of the others if they are fewer than this.

    Returns:
        The splits; None for a leaf without one.
    """
    lengths = np.array([len(e) for e in edges])
    gone = sums[..., -1:]
    below = np.cumsum(sums[..., :-1], axis=-1)
    total = below[..., -1:] + gone
    most_left = 2 * below[2] >= below[2, ..., -1:]
    left = np.stack([below, below + gone], axis=-2)  # (3, leaves, d, 2, b): rows without a value go right, or left
    total, right = total[..., None], total[..., None] - left

    def score(side: np.ndarray) -> np.ndarray:
        if growth.criterion == "variance":
            return np.square(side[0]) / np.maximum(side[2], 1)
        return np.square(side[0]) / np.maximum(side[1] + growth.lambda_l2, MINIMUM_HESSIAN)

    gain = score(left) + score(right) - score(total)
    allowed = np.arange(below.shape[-1]) <= lengths[:, None, None]
    allowed = allowed & ((gone[2, ..., None] >= few) | (np.stack([~most_left, most_left], axis=-2)))
    for side in (left, right):
        allowed = allowed & (side[1] >= MINIMUM_HESSIAN) & (side[2] >= growth.min_rows_leaf - 0.5)
    gain = np.where(allowed, gain, 0.0)
    found: list[Split | None] = []
    for leaf, of_leaf in enumerate(gain):
        at = int(np.argmax(of_leaf))
        j, goes_left, k = (int(i) for i in np.unravel_index(at, of_leaf.shape))
        if not of_leaf[j, goes_left, k] > 0:
            found.append(None)
            continue
        rows = left[2, leaf, j, goes_left]
        missing_left = bool(goes_left) if gone[2, leaf, j, 0] else bool(2 * rows[k] >= total[2, leaf, j, 0, 0])
        found.append(Split(j, k, missing_left, float(of_leaf[j, goes_left, k])))
    return found


class Branch:
    """A leaf of a growing tree, or its split with the branches below.

    Attributes:
        is_open: whether a split is sought.
        split: the split; None if it is a leaf.
        below: the left and the right branch.
    """

    def __init__(self) -> None:
        self.is_open = True
        self.split: Split | None = None
        self.below: tuple[Branch, ...] = ()

    def leaves(self) -> "Iterator[Branch]":
        """The leaves, from the left."""
        if not self.below:
            yield self
        for branch in self.below:
            yield from branch.leaves()

    def grow(self, split: Split | None) -> None:
        """Divide the leaf, or close it.

        Args:
            split: its best split; None if it has none.
        """
        self.is_open, self.split = False, split
        self.below = () if split is None else (Branch(), Branch())

    def prune(self, max_leaves: int) -> None:
        """Keep the splits that growing leaf by leaf, the largest gain first, would have made.

        Args:
            max_leaves: leaves to keep at most.
        """
        kept, waiting, number = set[int](), list[tuple[float, int, Branch]](), 0
        branches: tuple[Branch, ...] = (self,)
        while len(kept) < max_leaves - 1:
            for branch in branches:
                if branch.split is not None:
                    number += 1
                    heapq.heappush(waiting, (-branch.split.gain, number, branch))
            if not waiting:
                break
            _, _, best = heapq.heappop(waiting)
            kept.add(id(best))
            branches = best.below
        self._keep(kept)

    def _keep(self, kept: set[int]) -> None:
        if id(self) not in kept:
            self.is_open, self.split, self.below = False, None, ()
        for branch in self.below:
            branch._keep(kept)

    def rows(self, edges: Sequence[np.ndarray]) -> list[tuple[float, float, float]]:
        """The rows of an ensemble; an open leaf has the output 1, another one 0.

        Args:
            edges: the agreed edges of each column.
        """
        if self.split is None:
            return [(LEAF, float(self.is_open), 0.0)]
        j, k = self.split.feature, self.split.edge
        value = edges[j][k] if k < len(edges[j]) else EVERY
        own = (j, float(value), 0.0 if self.split.missing_left else -0.0)
        return [own, *(row for branch in self.below for row in branch.rows(edges))]


def of_branches(trees: Sequence[Branch], edges: Sequence[np.ndarray]) -> np.ndarray:
    """Write growing trees as rows of an ensemble.

    Args:
        trees: the trees.
        edges: the agreed edges of each column.

    Returns:
        The rows (m, 3), see ``Branch.rows``.
    """
    return np.array([row for tree in trees for row in tree.rows(edges)], np.float32)


def filled(structure: np.ndarray, G: np.ndarray, H: np.ndarray, lr: float, lambda_l2: float) -> np.ndarray:
    """Give leaves their outputs -lr G / (H + lambda), and splits the gains of these.

    A leaf without rows has the output of the smallest subtree around it that has some.

    Args:
        structure: trees (m, 3).
        G: sums of first derivatives over the rows of each leaf, in the order of the leaves.
        H: sums of second derivatives.
        lr: what outputs are multiplied by.
        lambda_l2: lambda.

    Returns:
        The trees (m, 3), float32.
    """
    trees, m = structure.astype(np.float64), len(structure)
    is_leaf = trees[:, FEATURE] == LEAF
    split, behind = np.flatnonzero(~is_leaf), ends(structure)
    own = np.zeros((m + 1, 2))
    own[:m][is_leaf] = np.column_stack([G, H])
    g, h = np.add.reduceat(own, np.column_stack([np.arange(m), behind]).ravel())[::2].T  # of subtrees
    known = h >= MINIMUM_HESSIAN
    score = np.where(known, g * g / (h + lambda_l2 + ~known), 0.0)
    left, right = split + 1, behind[split + 1]
    gain = np.maximum(score[left] + score[right] - score[split], 0.0)
    trees[split, GAIN] = np.copysign([float(f"{x:.1e}") for x in gain], trees[split, GAIN])
    above, source = np.full(m, -1), np.arange(m)
    above[left] = above[right] = split
    while len(unknown := np.flatnonzero((source >= 0) & ~known[source])):
        source[unknown] = above[source[unknown]]
    output = np.where(source >= 0, -g[source] / (h[source] + lambda_l2 + ~known[source]), 0.0)
    trees[is_leaf, VALUE] = lr * output[is_leaf]
    return trees.astype(np.float32)
