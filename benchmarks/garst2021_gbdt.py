"""Garst 2021: boosted trees on 2-class MNIST (Table D.3) and on Fashion-MNIST (Table D.5) over 10 nodes.

The file given decides which table: fashion_mnist.npz or mnist.npz. Centralized is LightGBM's own training on all
rows, with its own bins; one node of this method equals it on the same bins (tests/methods/test_gbdt.py). The thesis
gives neither the rounds nor the settings of its trees; the author's scripts do (see garst2021.py): scikit-learn's
defaults, which are 8 leaves, a rate of 0.1 and no penalty, and 100 rounds, one node a round. In its class-imbalanced
Fashion-MNIST a node has ten of a hundred parts of the rows sorted by class, ``shards:10``; ``class`` is the milder
imbalance of its other data.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import lightgbm
import numpy as np
from sklearn.metrics import log_loss, roc_auc_score

from benchmarks import garst2021, runs, tables
from benchmarks.comparisons import Comparison
from benchmarks.garst2021 import DIGITS, MEAN, SEEDS, printed, subset
from v6_federated.data.reading import as_features
from v6_workbench.simulation.datasets import Dataset
from v6_workbench.simulation.experiments import Experiment, OnRound

DOCUMENT = "garst2021_gbdt"
GARST: dict[str, Any] = {
    "lr": 0.1,
    "lambda_l2": 0,
    "max_leaves": 8,
    "max_depth": 3,
    "min_rows_leaf": 1,
    "maximum_norm_ratio": 1000,  # without a penalty, a leaf of one row that is wrong has a very large output
}
NO_PENALTY: dict[str, Any] = {"lr": 0.3, "lambda_l2": 0, "maximum_norm_ratio": 1000}
# rows, partition (None: all rows at one place), settings, the thesis's accuracy and area under the accuracy by round
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
        ("IID", "iid", {**NO_PENALTY, "criterion": "newton"}, None, None),
        ("IID, splits by variance", "iid", {**NO_PENALTY, "criterion": "variance"}, None, None),
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
MARKS = 10, 20, 40, 100  # rounds whose accuracy the table shows
EVERY = 10  # rounds between evaluations; every round is evaluated if there is an area to compare


def seeds(data: str, setting: Setting, full: bool) -> Sequence[int]:
    """Four runs as in the thesis; two with ten classes, which have ten times the trees; one of rows that are not in the
    thesis."""
    _, partition, _, accuracy, _ = setting
    if not full or accuracy is None or partition is None:
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


def lines(dataset: Dataset, data: str, full: bool) -> Iterator[tables.Line]:
    rounds = ROUNDS if full else REDUCED_ROUNDS
    compared = (cell for what in ("accuracy", "area") for cell in (f"{what} Garst", what, "verdict"))
    marks = (f"accuracy, round {t}" for t in MARKS)
    yield from tables.head("rows", "lr", "lambda", "leaves", "accuracy of", *compared, "AUC of the ROC", "loss", *marks)
    for setting in ROWS[data]:
        name, _, changed, *theirs = setting
        own = {**DEFAULTS, **changed}
        last = theirs[1] is None or data != "mnist"  # Table D.3 has a run's mean over rounds, see garst2021.py
        few = seeds(data, setting, full)
        try:
            accuracy, area, *others = numbers(dataset, setting, few, rounds, last)
        except runs.NotRun:
            accuracy, area, others = None, None, [None] * (2 + len(MARKS))
        cells = list[object]()
        for what, number, ours in zip(("accuracy", "area"), theirs, (accuracy, area), strict=True):
            verdict = None
            if number is not None:
                table = "Table D.3" if data == "mnist" else "Table D.5"
                why = MEAN if what == "accuracy" and not last else ""
                rounded = None if ours is None else round(ours, 3)
                comparison = Comparison(table, f"GBDT, {name}", (number,), rounded, what, len(few), "", why)
                yield comparison
                verdict = None if why else comparison.verdict
            cells += printed(number), tables.NOT_RUN_YET if accuracy is None else printed(ours), verdict
        known = name, own["lr"], own["lambda_l2"], own["max_leaves"], "the last round" if last else "all rounds, mean"
        yield tables.row(*known, *cells, *map(printed, others))


def numbers(
    dataset: Dataset, setting: Setting, seeds: Sequence[int], rounds: int, last: bool
) -> Sequence[float | None]:
    """Accuracy at the end (``last``) or on average, area, AUC of the ROC, loss, and the accuracy at the marks."""
    _, partition, changed, _, area = setting
    own = {**DEFAULTS, **changed}
    every = EVERY if area is None else 1
    if partition is None:
        found = [centralized(dataset, rounds, own, every)]
    else:
        few = {"V6_FEDERATED_MINIMUM_ROWS": "1"} if own["min_rows_leaf"] == 1 else {}
        common = {"mode": "cyclic", "rounds": rounds, "evaluate_every": every}
        common |= {"lr": own["lr"], "lambda_l2": own["lambda_l2"]}
        found = [
            runs.kept(
                DOCUMENT,
                "gbdt",
                Experiment(dataset, 10, partition, seed, seed, environment=few),
                {**common, **changed},
            )
            for seed in seeds
        ]
    histories = [run.history for run in found]

    def mean(key: str, i: int) -> float:
        return float(np.mean([history[i][key] for history in histories]))

    average = float(np.mean([tables.accuracies(run) for run in found]))
    area_ = None if area is None else float(np.mean([garst2021.area(run) for run in found]))
    way = [mean("accuracy", t - 1) if t <= rounds else None for t in MARKS]
    return mean("accuracy", -1) if last else average, area_, mean("auc", -1), mean("loss", -1), *way


def main(dataset: Dataset, full: bool) -> None:
    """Print and keep the table."""
    data = "fashion_mnist" if "fashion" in dataset.name else "mnist"
    rows = dataset if data == "fashion_mnist" else subset(dataset, DIGITS["2 classes"])
    rows = rows if full else runs.first(rows)
    few = seeds(data, ROWS[data][0], full)
    about = (
        f"{ROUNDS if full else REDUCED_ROUNDS} rounds, one tree a class in each{'' if full else f', {runs.FIRST}'}; "
        f"evaluated on the test rows. {'One seed' if len(few) == 1 else f'Mean of {len(few)} seeds'}; one for rows "
        "that are not in the thesis."
    )
    title = f"Garst 2021, boosted trees on {'Fashion-MNIST' if data == 'fashion_mnist' else '4 against 9 of MNIST'}"
    most = sum(len(seeds(data, setting, full)) for setting in ROWS[data])
    tables.page(tables.Page(DOCUMENT, title, full, about, data), lines(rows, data, full), most)
