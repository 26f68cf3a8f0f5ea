"""Trees that a node grows on its own rows and the agreed bins, the split with the largest gain first."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from v6_gbdt import bins, leaves, structures
from v6_gbdt.growth import Growth
from v6_gbdt.structures import Branch, Split


@dataclass(frozen=True)
class Leaf:
    """A leaf that may be split.

    Attributes:
        branch: its place in the tree.
        rows: indices of its rows.
        sums: of first and second derivatives, and numbers of rows, by column and bin (3, 1, d, b + 1).
        depth: splits above it.
    """

    branch: Branch
    rows: np.ndarray
    sums: np.ndarray
    depth: int


class Grower:
    """Grows trees on the rows of one node, as LightGBM does, but counts the rows of a leaf, which LightGBM estimates.

    Args:
        X: the node's rows (n, d).
        edges: the agreed edges of each column. Every threshold is one of them.
        growth: how trees are grown.
        minimum_rows: the node's own. Fewer rows without a value go with most of the others: their side would tell
            which leaf suits them.
    """

    def __init__(self, X: np.ndarray, edges: Sequence[np.ndarray], growth: Growth, minimum_rows: int) -> None:
        self._edges, self._binned = bins.assign(edges, X)
        self._growth, self._minimum_rows = growth, minimum_rows
        (n, d), most = X.shape, leaves.bins_of(self._edges)
        place = np.where(np.isnan(self._binned), most, self._binned) + (most + 1) * np.arange(d)
        ones, ends = np.ones(n * d), np.arange(0, n * d + 1, d)
        # a row's one in each column: a product with this matrix sums up by column and bin
        self._cells = sparse.csr_matrix((ones, place.astype(np.int32).ravel(), ends), shape=(n, d * (most + 1)))

    def grow(self, g: np.ndarray, h: np.ndarray) -> np.ndarray:
        """Grow the next trees.

        Args:
            g: first derivatives of each row's loss by its scores, (n, columns).
            h: second derivatives, (n, columns).

        Returns:
            One tree for each column of the scores, (m, 3) in all, their outputs shrunk by the learning rate.
        """
        return np.concatenate([self._tree(g[:, [c]], h[:, [c]]) for c in range(g.shape[1])])

    def _tree(self, g: np.ndarray, h: np.ndarray) -> np.ndarray:
        """One tree (m, 3) from derivatives (n, 1)."""
        derivatives, growth = np.column_stack([g, h, np.ones_like(h)]), self._growth
        everything, waiting = np.arange(len(g)), list[tuple[float, int, Leaf, Split]]()
        root = Branch()
        found = [Leaf(root, everything, self._sums(derivatives, everything), 0)]
        for number in range(growth.max_leaves):
            for side, leaf in enumerate(found):
                if split := self._best(leaf):
                    heapq.heappush(waiting, (-split.gain, 2 * number + side, leaf, split))
            if not waiting or number == growth.max_leaves - 1:
                break
            *_, leaf, split = heapq.heappop(waiting)
            found = self._parted(leaf, split, derivatives)
        structure = structures.of_branches([root], self._edges)
        G, H, _ = np.split(leaves.sums_of_leaves([structure], self._edges, self._binned, g, h, 1), 3)
        return structures.filled(structure, G, H, growth.lr, growth.lambda_l2)

    def _sums(self, derivatives: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Sums of derivatives (n, 3) over some rows, by column and bin: (3, 1, d, b + 1)."""
        sums = self._cells[rows].T @ derivatives[rows]
        return sums.T.reshape(3, 1, len(self._edges), -1)

    def _best(self, leaf: Leaf) -> Split | None:
        """The split with the largest gain among all that leave rows enough on both sides."""
        growth = self._growth
        if len(leaf.rows) < 2 * growth.min_rows_leaf or leaf.depth == growth.max_depth:
            return None
        (split,) = structures.best_splits(leaf.sums, self._edges, growth, self._minimum_rows)
        return split

    def _parted(self, leaf: Leaf, split: Split, derivatives: np.ndarray) -> list[Leaf]:
        """Divide a leaf; returns its two sides."""
        x = self._binned[leaf.rows, split.feature]
        left, right = x <= split.edge, x > split.edge
        if left.any() and right.any():
            # of the edges that part the rows alike the one in the middle, so that no row is known to lie close to it
            split = replace(split, edge=int(x[left].max() + x[right].min()) // 2)
            left |= np.isnan(x) & split.missing_left
        else:  # missing values from all others
            split = replace(split, edge=len(self._edges[split.feature]), missing_left=False)
            left = ~np.isnan(x)
        leaf.branch.grow(split)
        rows = leaf.rows[left], leaf.rows[~left]
        few = int(len(rows[1]) < len(rows[0]))
        sums = self._sums(derivatives, rows[few])
        both = (leaf.sums - sums, sums) if few else (sums, leaf.sums - sums)
        return [Leaf(*side, leaf.depth + 1) for side in zip(leaf.branch.below, rows, both, strict=True)]
