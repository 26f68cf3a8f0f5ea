"""The clients of boosted trees."""

from typing import Any

import numpy as np

from v6_federated import Node, Result, SafeError, Vector, codec, partial
from v6_gbdt import bins
from v6_gbdt.central import Growth, MaxBin
from v6_gbdt.lightgbm_tree import Grower
from v6_gbdt.trees import Trees


@partial
def average(node: Node) -> Result:
    """The mean of the node's labels, (1,): where a regression starts."""
    return {"mean": np.array([node.rows.y.mean()], np.float32)}


@partial
def count(node: Node, low: Vector, high: Vector, *, max_bin: MaxBin) -> Result:
    """Rows up to each boundary between cells, (d, boundaries), in multiples of the node's minimum of rows.

    The cells of each column lie between ``low`` and ``high``, (d,) each.
    """
    d = node.rows.X.shape[1]
    if any(a is None or a.shape != (d,) for a in (low, high)):
        raise SafeError("low and high do not fit the columns; expected one number each for every column")
    node.policy.check_size(d * bins.CELLS_A_BIN * max_bin, f"the counts of {d} columns")
    step = node.policy.minimum_rows  # not the request's: many requests with other steps would reveal exact counts
    return {"counts": bins.counts(node.rows.X, bins.boundaries(low, high, max_bin), step)}


@partial
def grow(node: Node, weights: Vector, *, edges: dict[str, Any], growth: Growth) -> Result:
    """The node's new trees under the ensemble W^g (m, 3). Garst 2021, Algorithm 2, lines 6 to 8.

    ``edges`` holds the agreed edges of each column's bins: every threshold is one of them.
    """
    minimum_rows = node.policy.check_leaf(growth.min_rows_leaf, node.job.minimum_rows)
    ensemble, X, y = node.model, node.rows.X, node.rows.y
    assert isinstance(ensemble, Trees)
    leaves = growth.trees * ensemble.columns * growth.max_leaves
    node.policy.check_size(weights.size + 3 * (2 * leaves - 1), "the ensemble with the new trees")
    agreed = bins.unpack(codec.decode(edges, {"edges": (None,), "lengths": (X.shape[1],)}))
    grower = Grower(X, agreed, growth, ensemble.columns, minimum_rows)
    f = ensemble.scores(weights, X)
    loss = ensemble.loss(f, y)  # calculate loss on local training set
    trees = []
    for _ in range(growth.trees):
        node.check_time()
        tree = grower.grow(*ensemble.gradient(f, y))  # create new tree using calculated loss to boost; one a class
        trees.append(tree)  # add tree to W^g
        f = f + ensemble.scores(tree, X)
    return {"trees": np.concatenate(trees), "train_loss": loss}
