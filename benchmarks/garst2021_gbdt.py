"""Garst et al. 2021: boosted trees on 2-class MNIST (Table D.3) and on Fashion-MNIST (Table D.5) over 10 nodes.

The file given decides which table: fashion_mnist.npz or mnist.npz. Centralized is LightGBM's own training on all
rows, with its own bins; one node of this method equals it on the same bins (tests/test_gbdt.py). The document tells
neither rounds nor settings of its trees: this method's defaults here, and others. In its class-imbalanced Fashion-
MNIST every node has about half of the classes; that is ``classes:5``, and ``class`` is the milder imbalance of its
other data.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import lightgbm
import numpy as np
from sklearn.metrics import log_loss, roc_auc_score

from benchmarks import runs, tables
from benchmarks.garst2021 import DIGITS, SEEDS, subset
from v6_federated.data import as_features
from v6_federated.datasets import Dataset
from v6_federated.experiments import Experiment, OnRound

DOCUMENT = "garst2021_gbdt"
# name, nodes, partition, learning rate and lambda, the document's accuracy and AUC
ROWS: dict[str, list[tuple[str, int, str, float, float, float | None, float | None]]] = {
    "mnist": [("IID", 10, "iid", 0.1, 1, 0.956, 0.947), ("central", 1, "iid", 0.1, 1, 0.965, 0.955)],
    "fashion_mnist": [
        ("IID", 10, "iid", 0.1, 1, 0.839, 0.817),
        ("IID", 10, "iid", 0.3, 1, None, None),
        ("IID", 10, "iid", 0.3, 0, None, None),
        ("CI, 5 of 10 classes a node", 10, "classes:5", 0.1, 1, 0.229, 0.275),
        ("CI, 5 of 10 classes a node", 10, "classes:5", 0.3, 1, 0.229, 0.275),
        ("CI, 5 of 10 classes a node", 10, "classes:5", 0.3, 0, 0.229, 0.275),
        ("2 of 10 classes a node", 10, "classes:2", 0.1, 1, None, None),
        ("1 of 10 classes a node", 10, "classes:1", 0.1, 1, None, None),
        ("shares rising and falling", 10, "class", 0.1, 1, None, None),
        ("central", 1, "iid", 0.1, 1, 0.867, 0.833),
        ("central", 1, "iid", 0.3, 0, None, None),
    ],
}
ROUNDS = {"mnist": 200, "fashion_mnist": 100}
REDUCED_ROUNDS = 40
RATE = 0.1  # this method's default
REDUCED = 6000  # rows, and a third of it test rows


def first(dataset: Dataset, rows: int) -> Dataset:
    """The first rows only, in the order of the file, which is that of no class."""
    assert isinstance(dataset.rows, tuple) and isinstance(dataset.test, tuple)
    (X, y), (X_test, y_test) = dataset.rows, dataset.test
    test = rows // 3
    return Dataset(f"{dataset.name}-first-{rows}", (X[:rows], y[:rows]), (X_test[:test], y_test[:test]))


def seeds(data: str, printed: bool, lr: float, full: bool) -> tuple[int, ...]:
    """Four runs as in the document; of ten classes, ten times the trees, two, and one of rows that it does not have or
    that are here with another rate."""
    if not full or not printed or lr != RATE:
        return SEEDS[:1]
    return SEEDS if data == "mnist" else SEEDS[:2]


def centralized(dataset: Dataset, rounds: int, lr: float, l2: float) -> runs.Run:
    """LightGBM on all rows with this method's other settings, evaluated on the test rows every ten rounds."""
    assert isinstance(dataset.rows, tuple) and dataset.test is not None
    (X, y), (X_test, y_test) = (
        (as_features(a), np.unique(b, return_inverse=True)[1]) for a, b in (dataset.rows, dataset.test)
    )
    classes = int(y.max()) + 1
    settings: dict[str, Any] = {
        "objective": "binary" if classes == 2 else "multiclass", "num_class": 1 if classes == 2 else classes,
        "learning_rate": lr, "lambda_l2": l2, "num_leaves": 31, "min_data_in_leaf": 20, "max_bin": 64,
        "boost_from_average": False, "deterministic": True, "force_row_wise": True, "verbosity": -1,
    }  # fmt: skip

    def train(on_round: OnRound | None) -> Mapping[str, Any]:
        booster, history = lightgbm.Booster(settings, lightgbm.Dataset(X, y)), []
        for t in range(1, rounds + 1):
            booster.update()
            row: dict[str, Any] = {"round": t, "accuracy": None, "auc": None, "loss": None}
            if t % 10 == 0:
                p: Any = booster.predict(X_test)
                p = np.column_stack([1 - p, p]) if classes == 2 else p
                row["accuracy"] = float(np.mean(p.argmax(axis=1) == y_test))
                row["auc"] = float(roc_auc_score(y_test, p[:, 1] if classes == 2 else p, multi_class="ovr"))
                row["loss"] = float(log_loss(y_test, p))
            history.append(row)
            if on_round:
                on_round(row)
        return {"history": history}

    data = f"{dataset.name} {runs.digest(dataset)}"
    return runs.kept_as(DOCUMENT, {"method": "LightGBM", "data": data, "rounds": rounds, **settings}, train)


def lines(dataset: Dataset, data: str, full: bool) -> Iterator[str]:
    marks, rounds = (10, 20, 40, 100, 200), ROUNDS[data] if full else REDUCED_ROUNDS
    yield from tables.head(
        "rows",
        "lr",
        "lambda",
        "accuracy Garst",
        "ours",
        "AUC Garst",
        "ours",
        "loss",
        *(f"accuracy, round {t}" for t in marks),
    )
    for name, nodes, partition, lr, l2, accuracy, auc in ROWS[data]:
        histories: list[Sequence[Mapping[str, Any]]] = []
        if name == "central":
            histories.append(centralized(dataset, rounds, lr, l2).history)
        for seed in seeds(data, accuracy is not None, lr, full) if name != "central" else ():
            experiment = Experiment(dataset, nodes, partition, seed, seed)
            values = {"rounds": rounds, "evaluate_every": 10, "lr": lr, "lambda_l2": l2}
            histories.append(runs.kept(DOCUMENT, "gbdt", experiment, values).history)
        ours = [f"{np.mean([h[-1][key] for h in histories]):.3f}" for key in ("accuracy", "auc", "loss")]
        way = [f"{np.mean([h[t - 1]['accuracy'] for h in histories]):.3f}" if t <= rounds else None for t in marks]
        yield tables.row(name, lr, l2, accuracy, ours[0], auc, ours[1], ours[2], *way)


def main(dataset: Dataset, full: bool) -> None:
    """Print and keep the table."""
    data = "fashion_mnist" if "fashion" in dataset.name else "mnist"
    rows = dataset if data == "fashion_mnist" else subset(dataset, DIGITS["2 classes"])
    rows = rows if full else first(rows, REDUCED)
    about = (
        f"Mean over {len(seeds(data, True, RATE, full))} run(s), of rows that the document does not have or "
        f"of other rates one run, of {ROUNDS[data] if full else REDUCED_ROUNDS} rounds, one tree a class in each"
        + ("" if full else f", on the first {REDUCED} rows and {REDUCED // 3} test rows")
        + "; evaluated on the test rows."
    )
    title = "Garst et al. 2021, boosted trees on " + (
        "Fashion-MNIST" if data == "fashion_mnist" else "4 against 9 of MNIST"
    )
    most = sum(
        1 if name == "central" else len(seeds(data, accuracy is not None, lr, full))
        for name, _, _, lr, _, accuracy, _ in ROWS[data]
    )
    tables.page(DOCUMENT, title, full, lines(rows, data, full), about, most, data)
