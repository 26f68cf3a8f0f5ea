"""Garst et al. 2021: boosted trees on 2-class MNIST (Table D.3) and on Fashion-MNIST (Table D.5) over 10 nodes.

The file given decides which table: fashion_mnist.npz or mnist.npz. Centralized is the same method on one node, which
equals LightGBM's own training on the same rows and bins (tests/test_gbdt.py). The document tells neither rounds nor
settings of its trees: this method's defaults here, and others. In its class-imbalanced Fashion-MNIST every node has
about half of the classes; that is ``classes:5``, and ``class`` is the milder imbalance of its other data.
"""

from collections.abc import Iterator

import numpy as np

from benchmarks import runs, tables
from benchmarks.garst2021 import DIGITS, SEEDS, subset
from v6_federated.datasets import Dataset
from v6_federated.experiments import Experiment

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
        histories = []
        for seed in seeds(data, accuracy is not None, lr, full):
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
    most = sum(len(seeds(data, accuracy is not None, lr, full)) for _, _, _, lr, _, accuracy, _ in ROWS[data])
    tables.page(DOCUMENT, title, full, lines(rows, data, full), about, most, data)
