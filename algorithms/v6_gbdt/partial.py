"""The clients of boosted trees."""

import functools
from typing import Any

import numpy as np

from v6_federated import LearningRate, Node, Result, SafeError, Vector, codec, number_of_threads, partial
from v6_gbdt import bins
from v6_gbdt.central import LambdaL2, MaxBin, MaxDepth, MaxLeaves, MinRowsLeaf, TreesARound
from v6_gbdt.trees import Trees, tree

MINIMUM_HESSIAN = 1e-3  # of a leaf, LightGBM's own default


@partial
def average(node: Node) -> Result:
    """The mean of the labels, (1,)."""
    return {"mean": np.array([node.rows.y.mean()], np.float32)}


@partial
def count(node: Node, low: Vector, high: Vector, *, max_bin: MaxBin) -> Result:
    """Rows up to each boundary between cells, (d, boundaries), in multiples of the node's minimum of rows."""
    if any(a is None or a.shape != (node.rows.X.shape[1],) for a in (low, high)):
        raise SafeError("low and high are not of the columns; expected one number each for every column")
    step = node.policy.minimum_rows  # not the request's: requests with many of them would tell the counts in between
    return {"counts": bins.counts(node.rows.X, bins.boundaries(low, high, max_bin), step)}


@partial
def grow(
    node: Node,
    weights: Vector,
    *,
    edges: dict[str, Any],
    trees: TreesARound,
    lr: LearningRate,
    max_leaves: MaxLeaves,
    min_rows_leaf: MinRowsLeaf,
    max_depth: MaxDepth,
    lambda_l2: LambdaL2,
) -> Result:
    """The next trees on this node's rows, one a class (or one). Garst et al. 2021, Algorithm 2, lines 6 to 8.

    Trees are grown by LightGBM on the indices of agreed bins, from gradients under the ensemble W^g (m, 3) written
    out here: LightGBM's own objectives leave out classes that the node does not hold.
    """
    import lightgbm

    least = node.policy.check_leaf(min_rows_leaf, node.job.minimum_rows)
    model = node.model
    assert isinstance(model, Trees)
    X, y = node.rows.X, node.rows.y
    agreed = bins.unpack(codec.decode(edges, {"edges": (None,), "lengths": (X.shape[1],)}))
    columns = [bins.coarse(e, x) for e, x in zip(agreed, X.T, strict=True)]
    binned = np.column_stack([np.searchsorted(e, x) for e, x in zip(columns, X.T, strict=True)]).astype(np.float32)
    settings = {
        "objective": "none",
        "learning_rate": 1.0,
        "num_class": model.columns,
        "num_leaves": max_leaves,
        "min_data_in_leaf": min_rows_leaf,
        "min_sum_hessian_in_leaf": MINIMUM_HESSIAN,
        "max_depth": max_depth or -1,
        "lambda_l2": lambda_l2,
        # every index is a bin of its own, whatever rows there are
        "max_bin": max(map(len, columns)) + 2,
        "min_data_in_bin": 1,
        "bin_construct_sample_cnt": len(y),
        "feature_pre_filter": False,
        "use_missing": False,
        "num_threads": number_of_threads(),
        "deterministic": True,
        "force_row_wise": True,
        "verbosity": -1,
    }
    rows = lightgbm.Dataset(binned, params=settings, free_raw_data=False)
    f = model.scores(weights, X)
    loss = model.loss(f, y)
    varied = bool(np.ptp(binned, axis=0).any())
    grown = []
    for _ in range(trees):
        node.check_time()
        g, h = model.gradient(f, y)
        structures: list[dict[str, Any]] = [{}] * model.columns
        if varied:  # LightGBM fails where no column has two bins
            booster = lightgbm.Booster(settings, rows)
            booster.update(fobj=functools.partial(_derivatives, (g, h) if model.columns > 1 else (g[:, 0], h[:, 0])))
            structures = [t["tree_structure"] for t in booster.dump_model()["tree_info"]]
        new = []
        for c, structure in enumerate(structures):
            output = functools.partial(_output, g[:, c], h[:, c], lambda_l2)
            new.append(tree(structure, binned, columns, lr, least, output))
        grown += new
        f = f + model.scores(np.concatenate(new), X)
    return {"trees": np.concatenate(grown), "train_loss": loss}


def _output(g: np.ndarray, h: np.ndarray, lambda_l2: float, rows: np.ndarray) -> float:
    """Of a leaf with these rows."""
    G, H = float(g[rows].sum()), float(h[rows].sum())
    return 0.0 if H < MINIMUM_HESSIAN else -G / (H + lambda_l2)


def _derivatives(known: Any, _scores: Any, _rows: Any) -> Any:
    return known
