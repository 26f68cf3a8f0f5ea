"""Reading ensembles of trees, for the tests of boosted trees."""

import lightgbm
import numpy as np
import pandas as pd

from v6_federated.messages import codec
from v6_gbdt import bins
from v6_gbdt.trees import Trees
from v6_workbench.reporting import export

# without a minimum of rows, which LightGBM only estimates, and with few large leaves: small ones can be cut in several
# ways of equal gain, of which LightGBM may take another. And a small penalty: below a split, LightGBM does not try
# columns again that brought no gain above it
SHARED = {"mode": "cyclic", "min_rows_leaf": 1, "max_leaves": 5, "lr": 0.3, "lambda_l2": 0.5}
RANDOM = {"mode": "random", "trees": 3, "max_depth": 3}
HISTOGRAM = {"mode": "histogram", "max_depth": 2, "min_rows_leaf": 10, "max_bin": 8}
SMALL = {"mode": "cyclic", "min_rows_leaf": 10, "max_leaves": 4}


def ensemble(result):
    model = Trees(result["model"]["features"], result["model"]["classes"])
    return model, codec.decode(result["weights"])["weights"]


def edges_of(result):
    return bins.unpack(codec.decode(result["bins"]))


def features(rows):
    return rows.iloc[:, :-1].to_numpy(np.float32)


def exported(result, tmp_path):
    export.save(result, tmp_path / "model.txt")
    return lightgbm.Booster(model_file=str(tmp_path / "model.txt"))


def by_lightgbm(indices, y, rounds, **own):
    """LightGBM's own training on bins (n, d), with the settings ``SHARED`` of the method."""
    parameters = {
        "min_data_in_leaf": 0,
        "num_leaves": SHARED["max_leaves"],
        "learning_rate": SHARED["lr"],
        "lambda_l2": SHARED["lambda_l2"],
        "min_data_in_bin": 1,
        "max_bin": 300,
        "num_threads": 1,
        "deterministic": True,
        "verbosity": -1,
    }
    return lightgbm.train({**parameters, **own}, lightgbm.Dataset(indices.astype(float), y), rounds)


def splits(tree):
    """(feature, threshold) of each split, a node before its left subtree, that before its right one."""
    todo, found = [tree["tree_structure"]], []
    while todo:
        node = todo.pop()
        if "split_feature" in node:
            found.append((node["split_feature"], node["threshold"]))
            todo += [node["right_child"], node["left_child"]]
    return found


def rows_of_leaves(tree, X):
    """The number of rows (n, d) that come to each leaf of a tree (m, 3)."""
    found, todo = [], [np.arange(len(X))]
    for feature, threshold, gain in tree:
        rows = todo.pop()
        if feature < 0:
            found.append(len(rows))
        else:
            x = X[rows, int(feature)]
            left = np.where(np.isnan(x), not np.signbit(gain), x <= threshold)
            todo += [rows[~left], rows[left]]
    return found


def numbers(n=200, d=4, seed=0):
    """A label that is a number, far from zero."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = 120 + 15 * X[:, 0] + 10 * np.sin(2 * X[:, 1]) + 2 * rng.normal(size=n)
    return pd.DataFrame(X, columns=[f"x{i}" for i in range(d)]).assign(pressure=y)
