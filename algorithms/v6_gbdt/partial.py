"""The clients of boosted trees."""

from collections.abc import Callable
from typing import Any

import numpy as np

from v6_federated import Asked, Count, Loss, Mean, Node, Result, Rows, SafeError, Sum, Vector, codec, exact, partial
from v6_gbdt import bins, leaves
from v6_gbdt.central import MaxBin
from v6_gbdt.grower import Grower
from v6_gbdt.growth import Growth
from v6_gbdt.trees import FEATURE, LEAF, VALUE, Trees


def cells(asked: Asked) -> int:
    """How many boundaries between cells there are, see ``bins.boundaries``."""
    return len(asked.array("low")) * (bins.CELLS_A_BIN * int(asked.settings["max_bin"]) - 1)


def two_a_leaf(asked: Asked) -> int:
    """How many derivatives there are by leaf."""
    return 2 * int(np.count_nonzero(asked.array("structure", 2)[:, FEATURE] == LEAF))


def sums_of_leaves(asked: Asked) -> dict[str, Sum | Count | Loss]:
    """What sums by leaf are sums of. Outside a study, leaves of few of a node's rows are joined with others."""
    found, size = _derivatives(asked, two_a_leaf(asked)), two_a_leaf(asked) // 2
    return {**found, "rows": Count(size)} if asked.only_in_a_study == "row" else found


def sums_of_bins(asked: Asked) -> dict[str, Sum | Count | Loss]:
    """What sums by open leaf, column and bin are sums of. Outside a study, nodes join bins of few of their rows."""
    lengths = codec.decode(asked.settings["edges"])["lengths"]
    structure = asked.array("structure", 2)
    is_open = (structure[:, FEATURE] == LEAF) & (structure[:, VALUE] > 0)
    return _derivatives(asked, 3 * int(is_open.sum()) * len(lengths) * (int(lengths.max()) + 2))


def _derivatives(asked: Asked, length: int) -> dict[str, Sum | Count | Loss]:
    """Of a classification they travel as whole numbers; those of a regression can have any size."""
    sums = (Sum if asked.regression else Count)(length, asked.only_in_a_study)
    return {"sums": sums, "train_loss": Loss(additive="row")}


@partial(sums={"mean": Mean(1, additive="row")})
def average(node: Node) -> Result:
    """The mean of the node's labels, (1,): where a regression starts."""
    y = node.rows.y
    return {"mean": np.array([y.mean()], np.float32) if node.adding is exact.FLOATS else exact.sums(y)}


def rows_by_cell(asked: Asked) -> dict[str, Count]:
    """What ``count`` is a sum of. Outside a study, nodes round their own counts."""
    return {"counts": Count(cells, asked.only_in_a_study)}


@partial(sums=rows_by_cell)
def count(node: Node, low: Vector, high: Vector, *, max_bin: MaxBin) -> Result:
    """Rows up to each boundary between cells, (d boundaries,), in multiples of the node's minimum of rows.

    In a study they are exact, and central's code rounds their sum.
    The cells of each column lie between ``low`` and ``high``, (d,) each.
    """
    d = node.rows.X.shape[1]
    if any(a is None or a.shape != (d,) for a in (low, high)):
        raise SafeError("low and high do not fit the columns; expected one number each for every column")
    node.policy.check_size(d * bins.CELLS_A_BIN * max_bin, f"the counts of {d} columns")
    # not the request's: many requests with other steps would reveal exact counts
    step = 1 if node.pinned else node.policy.minimum_rows
    return {"counts": bins.counts(node.rows.X, bins.boundaries(low, high, max_bin), step).ravel()}


@partial(single_answers="each tree is one node's own")
def grow(node: Node, weights: Vector, *, edges: dict[str, Any], growth: Growth) -> Result:
    """The node's new trees under the ensemble W^g (m, 3). Garst 2021, Algorithm 2, lines 6 to 8.

    ``edges`` holds the agreed edges of each column's bins: every threshold is one of them.
    """
    minimum_rows = node.policy.check_leaf(growth.min_rows_leaf, node.job.minimum_rows)
    ensemble, X, y = node.model, node.rows.X, node.rows.y
    assert isinstance(ensemble, Trees)
    trees = growth.of("cyclic").trees * ensemble.columns
    node.policy.check_size(weights.size + 3 * trees * (2 * growth.max_leaves - 1), "the ensemble with the new trees")
    agreed = bins.decoded(edges, X.shape[1])
    grower = Grower(X, agreed, growth, minimum_rows)
    f = ensemble.sums(weights, X)
    loss = ensemble.loss(f, y)  # calculate loss on local training set
    grown = []
    for _ in range(growth.trees or 1):
        node.check_time()
        tree = grower.grow(*ensemble.gradient(f, y))  # create new tree using calculated loss to boost; one a class
        grown.append(tree)  # add tree to W^g
        f = f + ensemble.sums(tree, X)
    return {"trees": np.concatenate(grown), "train_loss": loss}


@partial(sums=sums_of_leaves)
def leaf_sums(node: Node, weights: Vector, structure: Vector, *, edges: dict[str, Any]) -> Result:
    """Sums of the first and second derivatives of the rows' loss under the ensemble W^g (m, 3), by leaf: (2 leaves,).

    ``structure`` (m', 3) holds trees whose outputs are not known yet. Each sum is about no row, or about the node's
    minimum of rows at least, see ``leaves.cells``. In a study sums are exact, with ``rows``, the numbers of rows
    (leaves,), by which central's code joins leaves.
    """
    return _sums(node, weights, structure, edges, leaves.sums_of_leaves, 2)


@partial(sums={"sums": Count(two_a_leaf)})
def noisy_leaf_sums(node: Node, weights: Vector, structure: Vector) -> Result:
    """The same sums of clipped derivatives, with noise, for leaves of any number of rows: (2 leaves,) whole numbers."""
    ensemble, C = node.model, node.clip
    assert isinstance(ensemble, Trees)
    trees = ensemble.split(structure)
    if not trees:
        raise SafeError("the task sends no trees; expected one for each class at least")

    def summed(rows: Rows) -> np.ndarray:
        X = rows.X.astype(np.float32)
        g, h = ensemble.gradient(ensemble.sums(weights, X), rows.y)
        return leaves.clipped_sums(trees, X, g, h, C, node.check_time, rows.idle)

    size = 2 * int(np.count_nonzero(structure[:, FEATURE] == LEAF))
    return {"sums": node.noisy_sum(summed, size, leaves.reach(len(trees) // ensemble.columns, ensemble.columns))}


@partial(sums=sums_of_bins)
def bin_sums(node: Node, weights: Vector, structure: Vector, *, edges: dict[str, Any]) -> Result:
    """The same sums and numbers of rows by open leaf, column and bin: (3 open leaves d (b + 1),).

    A leaf of ``structure`` (m', 3) is open if its output is above 0; b is the number of bins of the column with most.
    """
    numbers = 3 * int((structure[:, VALUE] > 0).sum()) if structure.ndim == 2 and structure.shape[1] == 3 else 0
    agreed = bins.decoded(edges, node.rows.X.shape[1])
    node.policy.check_size(numbers * len(agreed) * (leaves.bins_of(agreed) + 1), "the sums by bin")
    return _sums(node, weights, structure, edges, leaves.sums_of_bins, 3)


def _sums(
    node: Node, weights: Vector, structure: Vector, edges: dict[str, Any], sums: Callable[..., Any], kinds: int
) -> Result:
    """Sums of derivatives of the node's rows, as they travel: the first of three kinds, the last is that of rows."""
    ensemble, X, y = node.model, node.rows.X, node.rows.y
    assert isinstance(ensemble, Trees)
    trees = ensemble.split(structure)
    node.policy.check_size(weights.size + structure.size, "the ensemble with the new trees")
    agreed = bins.decoded(edges, X.shape[1])
    f = ensemble.sums(weights, X)
    minimum = 0 if node.pinned else max(node.policy.minimum_rows, node.job.minimum_rows or 0)
    derivatives = ensemble.gradient(f, y)
    if node.pinned and not ensemble.regression:  # whole numbers of each row: their sums have no rounding of their own
        derivatives = tuple(np.rint(np.asarray(x, np.float64) / leaves.UNIT) for x in derivatives)
    found = sums(trees, agreed, bins.indices(agreed, X, node.pinned), *derivatives, minimum, node.check_time)
    each = found.reshape(3, -1)
    rows = each[2]
    loss: Any = ensemble.loss(f, y)
    if node.adding is exact.EXACTLY and not node.rounds_means:
        loss = exact.sums(ensemble.losses(f, y))
    if not node.pinned:
        travel = each[:kinds].ravel()
        return {
            "sums": travel.astype(np.float32) if ensemble.regression else leaves.whole(travel),
            "train_loss": loss,
        }
    if not ensemble.regression:
        each = np.array([*each[:2], rows / leaves.UNIT]).astype(np.int64)
    return {"sums": each[:kinds].ravel(), "rows": rows.astype(np.int64), "train_loss": loss}
