"""Boosted trees in all four modes, LightGBM on the pooled rows, and LightGBM at each hospital alone.

No document has these tables. ``heart_disease.csv`` makes the page of small tables, to which scikit-learn's digits and
diabetes belong; ``fashion_mnist.npz`` makes that of images, with as many of them as two processors train on in an hour.
"""

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
from sklearn.metrics import r2_score, roc_auc_score

from benchmarks import runs, tables
from v6_federated.data.reading import as_features
from v6_workbench.simulation import datasets
from v6_workbench.simulation.datasets import Dataset
from v6_workbench.simulation.experiments import Experiment, OnRound
from v6_workbench.simulation.mock_node import Database

DOCUMENT = "trees"
SEEDS, FOLDS = (1, 2, 3, 4, 5), 5  # a fold of five is to test on
IMAGES, TEST_IMAGES = 6000, 2000  # of Fashion-MNIST, drawn by the seed
FIRST, LATER = 10, 20  # requests within which all modes are compared
MODES: Mapping[str, Mapping[str, Any]] = {
    "random": {"mode": "random", "rounds": LATER, "evaluate_every": FIRST},
    "random, 20 trees a request": {
        "mode": "random",
        "rounds": FIRST,
        "trees": 20,
        "lr": 0.05,
        "max_depth": 6,
        "evaluate_every": FIRST,
    },
    "histogram": {"mode": "histogram", "rounds": 20, "lr": 0.3, "max_depth": 3, "max_bin": 32, "evaluate_every": 2},
    "bagging": {"mode": "bagging", "rounds": LATER, "evaluate_every": FIRST},
    "cyclic": {"mode": "cyclic", "rounds": 100, "evaluate_every": FIRST},
}
CENTRAL: Mapping[str, Any] = {  # the method's own defaults
    "num_iterations": 100,
    "learning_rate": 0.1,
    "num_leaves": 31,
    "min_data_in_leaf": 20,
    "lambda_l2": 1.0,
    "deterministic": True,
    "force_row_wise": True,
    "num_threads": 1,
    "verbosity": -1,
}
POOLED, ALONE = "LightGBM, pooled rows", "LightGBM, each hospital alone"
HEART, PULSE, FASHION, HOSPITAL = "heart disease", "thalach of heart disease", "Fashion-MNIST", "hospital"
CI = "classes at different shares (CI)"


@dataclass(frozen=True)
class Case:
    """Rows, and how they are dealt.

    Attributes:
        name: of the data.
        deal: of the rows, in words.
        partition: of the rows.
        nodes: how many.
    """

    name: str
    deal: str
    partition: str
    nodes: int

    @property
    def regression(self) -> bool:
        """Whether the label is a number."""
        return self.name in (PULSE, "diabetes")


SMALL = (
    Case(HEART, "its four hospitals", f"column:{HOSPITAL}", 4),
    Case(HEART, "IID", "iid", 4),
    Case(HEART, CI, "class", 4),
    Case("digits", "IID", "iid", 10),
    Case("digits", CI, "class", 10),
    Case("digits", "two classes a node", "classes:2", 10),
    Case(PULSE, "its four hospitals", f"column:{HOSPITAL}", 4),
    Case("diabetes", "IID", "iid", 4),
)
LARGE = (
    Case(FASHION, "IID", "iid", 10),
    Case(FASHION, CI, "shards:10", 10),
    Case(FASHION, "two classes a node", "classes:2", 10),
)


def experiment_of(case: Case, data: Dataset, seed: int) -> Experiment:
    """The rows of a case dealt to nodes; the seed chooses those to test on, and deals the others."""
    if case.name == FASHION:
        assert isinstance(data.rows, tuple) and data.test is not None
        rng = np.random.default_rng(seed)
        parts = [
            (as_features(X)[index], y[index])
            for (X, y), n in ((data.rows, IMAGES), (data.test, TEST_IMAGES))
            for index in [rng.permutation(len(y))[:n]]
        ]
        return Experiment(Dataset(case.name, parts[0], parts[1]), case.nodes, case.partition, seed, seed)
    rows = data.rows if case.name in (HEART, PULSE) else datasets.load(case.name).rows
    assert isinstance(rows, pd.DataFrame)
    rows = rows.drop(columns=["num", "ca"], errors="ignore")  # the diagnosis itself; known at one hospital only
    if case.name == PULSE:
        rows = rows.drop(columns="target").dropna(subset="thalach")
        rows["thalach"] = rows.pop("thalach")
    if HOSPITAL in rows and case.partition != f"column:{HOSPITAL}":
        rows = rows.drop(columns=HOSPITAL)
    return Experiment(Dataset(case.name, rows), case.nodes, case.partition, seed, seed, fold=(0, FOLDS))


def arrays(rows: Database) -> tuple[np.ndarray, np.ndarray]:
    """Features and labels."""
    if isinstance(rows, tuple):
        return rows
    return rows.iloc[:, :-1].to_numpy(np.float32), rows.iloc[:, -1].to_numpy()


def by_lightgbm(regression: bool, training: Sequence[Database], test: Database) -> list[dict[str, Any]]:
    """How LightGBM that is trained on each of some tables does on the test rows, in the form of a history."""
    X_test, y_test = arrays(test)
    classes = 1 if regression else len(np.unique(y_test))
    own = {1: {"objective": "regression"}, 2: {"objective": "binary"}}.get(
        classes, {"objective": "multiclass", "num_class": classes}
    )
    found = []
    for number, (X, y) in enumerate(map(arrays, training), start=1):
        p: Any = lightgbm.train({**CENTRAL, **own}, lightgbm.Dataset(X, y)).predict(X_test)
        row: dict[str, Any] = {"round": number, "auc": None}
        if regression:
            row["accuracy"] = float(r2_score(y_test, p))
        else:
            row["accuracy"] = float(np.mean((p > 0.5 if classes == 2 else p.argmax(axis=1)) == y_test))
            row["auc"] = float(roc_auc_score(y_test, p, multi_class="ovr"))
        found.append(row)
    return found


def trained(case: Case, data: Dataset, way: str, seed: int) -> runs.Run:
    """A run of a mode, or of LightGBM; kept. The accuracy of a regression is R squared."""
    experiment = experiment_of(case, data, seed)
    if way in MODES:
        objective = {"objective": "regression"} if case.regression else {}
        values = {**objective, **MODES[way]}
    else:
        values = dict(CENTRAL)
    digest = runs.text_digest if isinstance(experiment.dataset.rows, pd.DataFrame) else runs.digest
    known = {
        "method": "gbdt" if way in MODES else way,
        "data": f"{case.name} {digest(experiment.dataset)}",
        "partition": case.partition,
        "nodes": case.nodes,
        "seed": seed,
        **values,
    }

    def train(on_round: OnRound | None) -> Mapping[str, Any]:
        if way in MODES:
            result = experiment.federated("gbdt", values, on_round)
            score = "r2" if case.regression else "accuracy"
            return {**result, "history": [{**row, "accuracy": row.get(score)} for row in result["history"]]}
        own, test = [*experiment.deal().values()], experiment.test
        assert test is not None
        return {"history": by_lightgbm(case.regression, [datasets.pool(own)] if way == POOLED else own, test)}

    return runs.kept_as(DOCUMENT, known, train)


def requests(way: str) -> int:
    """Requests of a round."""
    return MODES[way]["max_depth"] + 1 if MODES[way]["mode"] == "histogram" else 1


def within(way: str, history: Sequence[Mapping[str, Any]], most: int) -> float:
    """The last score that takes so many requests at most."""
    return [row["accuracy"] for row in history[: most // requests(way)] if row["accuracy"] is not None][-1]


def measured(case: Case, data: Dataset, way: str, seeds: Sequence[int]) -> list[object]:
    """The cells of a line: seeds, requests, bytes and scores; with --kept, of the seeds that are kept."""
    found, pooled = list[Sequence[Mapping[str, Any]]](), list[float]()
    for seed in seeds:
        try:
            found.append(trained(case, data, way, seed).history)
        except runs.NotRun:
            continue
        pooled.append(trained(case, data, POOLED, seed).history[-1]["accuracy"])
    if not found:
        raise runs.NotRun(f"{DOCUMENT}: no run of {way} is kept")
    few: list[object] = [None] * 4
    if way in MODES:
        scores, aucs = ([history[-1][key] for history in found] for key in ("accuracy", "auc"))
        sent = [sum(row["bytes_up"] + row["bytes_down"] for row in history) / 1e6 for history in found]
        few = [len(found[0]) * requests(way), f"{np.mean(sent):.1f}"]
        few += [spread([within(way, history, t) for history in found]) for t in (FIRST, LATER)]
    else:
        scores = [float(np.mean([row["accuracy"] for row in history])) for history in found]
        aucs = [None if case.regression else float(np.mean([row["auc"] for row in history])) for history in found]
    away = None if way == POOLED else spread(100 * (np.array(scores) - pooled), "+.1f")
    return [len(found), *few, spread(scores), None if case.regression else spread(aucs), away]


def spread(values: Any, form: str = ".3f") -> str:
    """Mean and standard deviation."""
    mean = f"{np.mean(values):{form}}"
    return mean if len(values) == 1 else f"{mean} ({np.std(values, ddof=1):{form.strip('+')}})"


def lines(cases: Sequence[Case], data: Dataset, seeds: Sequence[int]) -> Iterator[str]:
    """A line for each case and way."""
    yield ""
    yield from tables.head(
        "data", "rows at", "nodes", "trained by", "seeds", "requests", "MB in all", f"within {FIRST} requests",
        f"within {LATER} requests", "at the end", "AUC", "points from pooled",
    )  # fmt: skip
    for case in cases:
        for way in (POOLED, *MODES, ALONE):
            known = case.name, case.deal, case.nodes, way
            yield tables.trained(known, functools.partial(measured, case, data, way, seeds), 8)


def main(data: Dataset, full: bool) -> None:
    """Print and keep the table."""
    images = data.test is not None
    cases, seeds = LARGE if images else SMALL, runs.seeds(SEEDS) if full else SEEDS[:1]
    of = f"{IMAGES:,} images and {TEST_IMAGES:,} test images, drawn by the seed" if images else "a fifth of all"
    about = (
        f"Accuracy, or R squared for {PULSE} and diabetes, on test rows: {of}. Mean and standard deviation over "
        "seeds, each of which splits and deals the rows again. Points from pooled: the difference from LightGBM on the "
        "pooled rows with the same seeds, at the end."
    )
    page = tables.Page(
        DOCUMENT,
        f"Boosted trees by mode{' on Fashion-MNIST' if images else ''}",
        full,
        about,
        data="fashion_mnist" if images else "small",
        file="fashion_mnist.npz" if images else "heart_disease.csv",
    )
    tables.page(page, lines(cases, data, seeds), len(cases) * (len(MODES) + 2) * len(seeds))
