"""Garst et al. 2021: boosted trees on 2-class MNIST (Table D.3) and on Fashion-MNIST (Table D.5) over 10 nodes.

The file given decides which table: fashion_mnist.npz or mnist.npz. Centralized is LightGBM's own training on all
rows, with its own bins; one node of this method equals it on the same bins (tests/test_gbdt.py). The document tells
neither rounds nor settings of its trees; its author's scripts do (see garst2021.py): scikit-learn's defaults, which are
8 leaves, a rate of 0.1 and no penalty, 100 rounds, one node a round. In its class-imbalanced Fashion-MNIST a node has
ten of a hundred parts of the rows sorted by class, ``shards:10``; ``class`` is the milder imbalance of its other data.
"""

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import lightgbm
import numpy as np
from sklearn.metrics import log_loss, roc_auc_score

from benchmarks import garst2021, runs, tables
from benchmarks.garst2021 import DIGITS, SEEDS, subset
from v6_federated.data.source import as_features
from v6_workbench.simulation.datasets import Dataset
from v6_workbench.simulation.experiments import Experiment, OnRound

DOCUMENT = "garst2021_gbdt"
GARST: dict[str, Any] = {"lr": 0.1, "lambda_l2": 0, "max_leaves": 8, "max_depth": 3, "min_rows_leaf": 1}
# rows, partition (None: all at one place), settings, the document's accuracy and area under the accuracy by round
Setting = tuple[str, str | None, dict[str, Any], float | None, float | None]
ROWS: dict[str, list[Setting]] = {
    "mnist": [
        ("IID", "iid", GARST, 0.956, 0.947),
        ("central", None, GARST, 0.965, 0.955),
        ("IID", "iid", {}, None, None),
        ("central", None, {}, None, None),
    ],
    "fashion_mnist": [
        ("IID", "iid", GARST, 0.839, 0.817),
        ("CI", "shards:10", GARST, 0.229, 0.275),
        ("central", None, GARST, 0.867, 0.833),
        ("IID", "iid", {}, None, None),
        ("IID", "iid", {"lr": 0.3}, None, None),
        ("IID", "iid", {"lr": 0.3, "lambda_l2": 0}, None, None),
        ("CI", "shards:10", {}, None, None),
        ("CI", "shards:10", {"lr": 0.3, "lambda_l2": 0}, None, None),
        ("5 of 10 classes a node", "classes:5", {}, None, None),
        ("5 of 10 classes a node", "classes:5", {"lr": 0.3}, None, None),
        ("5 of 10 classes a node", "classes:5", {"lr": 0.3, "lambda_l2": 0}, None, None),
        ("2 of 10 classes a node", "classes:2", {}, None, None),
        ("1 of 10 classes a node", "classes:1", {}, None, None),
        ("shares rising and falling", "class", {}, None, None),
        ("central", None, {}, None, None),
        ("central", None, {"lr": 0.3, "lambda_l2": 0}, None, None),
    ],
}
DEFAULTS: dict[str, Any] = {"lr": 0.1, "lambda_l2": 1, "max_leaves": 31, "max_depth": None, "min_rows_leaf": 20}
ROUNDS, REDUCED_ROUNDS = 100, 20
MARKS = 10, 20, 40, 100  # rounds whose accuracy is told
EVERY = 10  # rounds between evaluations; each is evaluated where there is an area to compare


def seeds(data: str, setting: Setting, full: bool) -> Sequence[int]:
    """Four runs as in the document; of ten classes, ten times the trees, two, and one of rows that it does not have."""
    _, partition, _, printed, _ = setting
    if not full or printed is None or partition is None:
        return SEEDS[:1]
    return runs.seeds(SEEDS if data == "mnist" else SEEDS[:2])


def centralized(dataset: Dataset, rounds: int, own: Mapping[str, Any], every: int) -> runs.Run:
    """LightGBM on all rows with this method's other settings, evaluated on the test rows."""
    assert isinstance(dataset.rows, tuple) and dataset.test is not None
    (X, y), (X_test, y_test) = (
        (as_features(a), np.unique(b, return_inverse=True)[1]) for a, b in (dataset.rows, dataset.test)
    )
    classes = int(y.max()) + 1
    settings: dict[str, Any] = {
        "objective": "binary" if classes == 2 else "multiclass",
        "num_class": 1 if classes == 2 else classes,
        "learning_rate": own["lr"],
        "lambda_l2": own["lambda_l2"],
        "num_leaves": own["max_leaves"],
        "min_data_in_leaf": own["min_rows_leaf"],
        "max_bin": 64,
        "boost_from_average": False,
        "deterministic": True,
        "force_row_wise": True,
        "verbosity": -1,
        **({"max_depth": own["max_depth"]} if own["max_depth"] else {}),
    }

    def train(on_round: OnRound | None) -> Mapping[str, Any]:
        booster, history = lightgbm.Booster(settings, lightgbm.Dataset(X, y)), []
        for t in range(1, rounds + 1):
            booster.update()
            row: dict[str, Any] = {"round": t, "accuracy": None, "auc": None, "loss": None}
            if t % every == 0:
                p: Any = booster.predict(X_test)
                p = np.column_stack([1 - p, p]) if classes == 2 else p
                row["accuracy"] = float(np.mean(p.argmax(axis=1) == y_test))
                row["auc"] = float(roc_auc_score(y_test, p[:, 1] if classes == 2 else p, multi_class="ovr"))
                row["loss"] = float(log_loss(y_test, p))
            history.append(row)
            if on_round:
                on_round(row)
        return {"history": history}

    data, often = f"{dataset.name} {runs.digest(dataset)}", {} if every == EVERY else {"evaluate_every": every}
    return runs.kept_as(DOCUMENT, {"method": "LightGBM", "data": data, "rounds": rounds, **often, **settings}, train)


def lines(dataset: Dataset, data: str, full: bool) -> Iterator[str]:
    rounds = ROUNDS if full else REDUCED_ROUNDS
    yield from tables.head(
        "rows",
        "lr",
        "lambda",
        "leaves",
        "accuracy of",
        "accuracy Garst",
        "accuracy",
        "area Garst",
        "area",
        "AUC of the ROC",
        "loss",
        *(f"accuracy, round {t}" for t in MARKS),
    )
    for setting in ROWS[data]:
        name, _, changed, accuracy, area = setting
        own = {**DEFAULTS, **changed}
        last = area is None or data != "mnist"  # Table D.3 has a run's mean over rounds, see garst2021.py
        known = (
            name,
            own["lr"],
            own["lambda_l2"],
            own["max_leaves"],
            "the last round" if last else "all rounds, mean",
            accuracy,
        )
        make = functools.partial(cells, dataset, setting, seeds(data, setting, full), rounds, last)
        yield tables.trained(known, make, 5 + len(MARKS))


def cells(
    dataset: Dataset, setting: Setting, seeds: Sequence[int], rounds: int, last: bool
) -> Sequence[str | float | None]:
    """What the runs of a setting have come to: at the end (``last``), by round, and at the marks."""
    _, partition, changed, _, area = setting
    own = {**DEFAULTS, **changed}
    every = EVERY if area is None else 1
    if partition is None:
        found = [centralized(dataset, rounds, own, every)]
    else:
        few = {"V6_FEDERATED_MINIMUM_ROWS": "1"} if own["min_rows_leaf"] == 1 else {}
        values = {"rounds": rounds, "evaluate_every": every, "lr": own["lr"], "lambda_l2": own["lambda_l2"]}
        found = [
            runs.kept(
                DOCUMENT,
                "gbdt",
                Experiment(dataset, 10, partition, seed, seed, environment=few),
                {**values, **changed},
            )
            for seed in seeds
        ]
    histories = [run.history for run in found]
    ours = {key: np.mean([h[-1][key] for h in histories]) for key in ("accuracy", "auc", "loss")}
    if not last:
        ours["accuracy"] = np.mean([tables.accuracies(run) for run in found])
    way = [f"{np.mean([h[t - 1]['accuracy'] for h in histories]):.3f}" if t <= rounds else None for t in MARKS]
    own_area = None if area is None else f"{np.mean([garst2021.area(run) for run in found]):.3f}"
    return f"{ours['accuracy']:.3f}", area, own_area, f"{ours['auc']:.3f}", f"{ours['loss']:.3f}", *way


def main(dataset: Dataset, full: bool) -> None:
    """Print and keep the table."""
    data = "fashion_mnist" if "fashion" in dataset.name else "mnist"
    rows = dataset if data == "fashion_mnist" else subset(dataset, DIGITS["2 classes"])
    rows = rows if full else runs.first(rows)
    about = (
        f"Mean over {len(seeds(data, ROWS[data][0], full))} run(s), of rows that the document does not have one run, "
        f"of {ROUNDS if full else REDUCED_ROUNDS} rounds, one tree a class in each"
        + ("" if full else f", {runs.FIRST}")
        + "; evaluated on the test rows."
    )
    title = "Garst et al. 2021, boosted trees on " + (
        "Fashion-MNIST" if data == "fashion_mnist" else "4 against 9 of MNIST"
    )
    most = sum(len(seeds(data, setting, full)) for setting in ROWS[data])
    tables.page(DOCUMENT, title, full, lines(rows, data, full), about, most, data)
