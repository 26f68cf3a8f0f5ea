"""Trees grown by LightGBM from given gradients on agreed bins, as rows of an ensemble."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from v6_federated import number_of_threads
from v6_gbdt import bins
from v6_gbdt.growth import Growth
from v6_gbdt.trees import EVERY, LEAF

MINIMUM_HESSIAN = 1e-3  # of a leaf; LightGBM's own default


class Grower:
    """Grows trees on the rows of one node.

    LightGBM is given the indices of the agreed bins in place of values, so that no threshold can be anything other
    than an agreed edge, and gradients in place of labels: its own objectives leave out classes that a node lacks.
    """

    def __init__(
        self, X: np.ndarray, edges: Sequence[np.ndarray], growth: Growth, columns: int, minimum_rows: int
    ) -> None:
        """Sort the rows into bins.

        Args:
            X: the node's rows (n, d).
            edges: the agreed edges of each column.
            growth: how trees are grown.
            columns: trees grown at a time, one for each column of the scores.
            minimum_rows: rows that every leaf must have; LightGBM only estimates how many one has.
        """
        import lightgbm

        self._edges, self._binned = bins.assign(edges, X)
        self._growth, self._columns, self._minimum_rows = growth, columns, minimum_rows
        self._settings = {
            "objective": "none",
            "learning_rate": 1.0,
            "num_class": columns,
            "num_leaves": growth.max_leaves,
            "min_data_in_leaf": growth.min_rows_leaf,
            "min_sum_hessian_in_leaf": MINIMUM_HESSIAN,
            "max_depth": growth.max_depth or -1,
            "lambda_l2": growth.lambda_l2,
            # every index is a bin of its own, whichever rows there are
            "max_bin": max(map(len, self._edges)) + 2,
            "min_data_in_bin": 1,
            "bin_construct_sample_cnt": len(X),
            "feature_pre_filter": False,
            "use_missing": True,
            "num_threads": number_of_threads(),
            "deterministic": True,
            "force_row_wise": True,
            "verbosity": -1,
        }
        self._rows = lightgbm.Dataset(self._binned, params=self._settings, free_raw_data=False)
        low, high, gone = np.fmin.reduce(self._binned), np.fmax.reduce(self._binned), np.isnan(self._binned)
        # LightGBM fails if no column has two bins; missing values are one
        self._varied = bool(((low < high) | (gone.any(axis=0) & ~gone.all(axis=0))).any())

    def grow(self, g: np.ndarray, h: np.ndarray) -> np.ndarray:
        """Grow the next trees.

        Args:
            g: first derivatives of each row's loss by its scores, (n, columns).
            h: second derivatives, (n, columns).

        Returns:
            One tree for each column of the scores, (m, 3) in all, their outputs shrunk by the learning rate.
        """
        trees = [self._tree(structure, g[:, c], h[:, c]) for c, structure in enumerate(self._structures(g, h))]
        return np.concatenate(trees)

    def _tree(self, structure: Mapping[str, Any], g: np.ndarray, h: np.ndarray) -> np.ndarray:
        """One tree (m, 3) from its structure and derivatives, (n,) each."""

        def output(rows: np.ndarray) -> float:
            G, H = float(g[rows].sum()), float(h[rows].sum())
            return 0.0 if H < MINIMUM_HESSIAN else -G / (H + self._growth.lambda_l2)

        return as_rows(structure, self._binned, self._edges, self._growth.lr, self._minimum_rows, output)

    def _structures(self, g: np.ndarray, h: np.ndarray) -> list[dict[str, Any]]:
        """LightGBM's description of each tree; empty for a tree that is one leaf."""
        import lightgbm

        if not self._varied:
            return [{}] * self._columns
        derivatives = (g, h) if self._columns > 1 else (g[:, 0], h[:, 0])
        booster = lightgbm.Booster(self._settings, self._rows)
        booster.update(fobj=lambda scores, rows: derivatives)
        return [tree["tree_structure"] for tree in booster.dump_model()["tree_info"]]


def as_rows(
    structure: Mapping[str, Any],
    binned: np.ndarray,
    edges: Sequence[np.ndarray],
    lr: float,
    minimum_rows: int,
    output: Callable[[np.ndarray], float],
) -> np.ndarray:
    """Read a tree from LightGBM's ``tree_structure``.

    If a split leaves fewer than ``minimum_rows`` rows on one side, its larger side takes its place, for all its rows.
    A split at bins up to k becomes one at values up to edge k, for any value; of missing values from all others, one at
    ``EVERY``. Missing values go the way that LightGBM has chosen, or with most rows if fewer than ``minimum_rows`` rows
    lack the value.

    Args:
        structure: LightGBM's description; empty for a tree that is one leaf.
        binned: indices of bins (n, d) on which the tree was grown.
        edges: the edges of each column's bins.
        lr: what outputs are multiplied by.
        minimum_rows: rows that every leaf must have.
        output: the output of a leaf with some rows (their indices). Used where the rows of a leaf are not those that
            LightGBM gave it, and for a tree that is one leaf, whose output LightGBM leaves at 0.

    Returns:
        The tree (m, 3), in the form that ``Trees`` describes.
    """
    found = []
    todo = [(structure, np.arange(len(binned)), "split_feature" in structure)]
    while todo:
        node, rows, as_grown = todo.pop()
        while "split_feature" in node:
            feature = node["split_feature"]
            agreed, x = edges[feature], binned[rows, feature]
            k = int(min(node["threshold"], len(agreed)))  # LightGBM's own is larger where all values go left
            left, gone = x <= k, np.isnan(x)
            missing_left = bool(2 * left.sum() >= len(x) - gone.sum())
            if gone.sum() >= minimum_rows:  # the way of fewer rows would tell which leaf suits them
                missing_left = bool(node["default_left"])
            as_grown &= not gone.any() or missing_left == node["default_left"]
            left |= gone & missing_left
            if minimum_rows <= left.sum() <= len(rows) - minimum_rows:
                gain = float(f"{node['split_gain']:.1e}")
                value = agreed[k] if k < len(agreed) else EVERY
                found.append((feature, value, gain if missing_left else -gain))
                todo += [(node["right_child"], rows[~left], as_grown), (node["left_child"], rows[left], as_grown)]
                break
            node, as_grown = node["left_child" if 2 * left.sum() >= len(rows) else "right_child"], False
        else:
            found.append((LEAF, (node["leaf_value"] if as_grown else output(rows)) * lr, 0.0))
    return np.array(found, np.float32)
