"""By how much the AUC from score bands differs from the exact AUC of the same scores.

Jobs of all methods that predict classes, on made and on embedded data, with standardized columns and with columns in
their own units. The model of each round is evaluated by all nodes; the table compares what central computes from the
nodes' counts with the AUC of all nodes' scores together.
"""

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score

from v6_federated import CollectResultsError
from v6_federated.models import metrics
from v6_federated.rules.policy import Policy
from v6_workbench.simulation import datasets
from v6_workbench.simulation.mock import MockNetwork

BANDS = (64, 128, Policy.of("trusting").score_bands)
NODES = 4
OPEN = {f"V6_FEDERATED_MINIMUM_{limit}": "1" for limit in ("ORGANIZATIONS", "ROWS", "ROWS_A_CLASS")}
SAME_SCALE, OTHER_SCALES = "of one scale, or standardized", "in their own units"
STANDARDIZED, AS_THEY_ARE = ["standardize"], list[str]()
JOBS: dict[str, list[dict[str, Any]]] = {
    "fedavg": [
        {},
        {"lr": 0.001},
        {"model": "svm"},
        {"model": "fnn", "batch_size": 20},
        {"model": "2nn", "batch_size": 20, "epochs": 2},
        {"batch_size": 10, "epochs": 5},
        {"optimizer": "adam", "lr": 0.01, "batch_size": 32},
    ],
    "scaffold": [{}, {"epochs": 2, "batch_size": 20}],
    "fsvrg": [{}],
    "loadaboost": [{"model": "fnn", "batch_size": 20}],
    "colearning": [{"batch_size": 20}],
    "dynavg": [{}, {"batch_size": 20}, {"lr": 0.02}, {"model": "fnn", "batch_size": 20}],
    "coop": [{"rounds": 20}],
    "gbdt": [{"mode": "cyclic"}, {"mode": "cyclic", "rounds": 30}],
}


def main() -> str:
    """Run the jobs.

    Returns:
        A Markdown table of the differences.
    """
    found: dict[tuple[str, int], list[float]] = {}
    for method, settings in JOBS.items():
        for one in settings:
            for kind, steps, table in _tables():
                for bands, difference in _differences(method, {"preprocess": steps, **one}, table):
                    found.setdefault((kind, bands), []).append(difference)
    lines = ["| columns | bands | models | median | 95% below | 99% below | worst |", "| --- | " + "---: | " * 6]
    for (kind, bands), d in sorted(found.items()):
        quantiles = " | ".join(f"{q:.4f}" for q in np.quantile(d, [0.5, 0.95, 0.99, 1]))
        lines.append(f"| {kind} | {bands} | {len(d)} | {quantiles} |")
    return "\n".join(lines)


def _differences(method: str, settings: dict[str, Any], table: pd.DataFrame) -> Iterator[tuple[int, float]]:
    """For each model of a job and each number of bands the absolute difference."""
    seen: list[tuple[dict[int, Any], np.ndarray, np.ndarray]] = []
    evaluate = metrics.evaluate

    def observed(model: Any, w: Any, rows: Any, classes: int, bands: int, rounding: Any) -> dict[str, Any]:
        counts = {b: evaluate(model, w, rows, classes, b) for b in BANDS}
        seen.append((counts, metrics.log_odds(model.scores(w, rows.X)), rows.y))
        return counts[BANDS[-1]]

    parts = np.array_split(np.random.default_rng(1).permutation(len(table)), NODES)
    nodes = {k: table.iloc[part] for k, part in enumerate(parts, 1)}
    with (
        contextlib.suppress(CollectResultsError),  # 2NN on columns in their own units diverges in round 1
        mock.patch.object(metrics, "evaluate", observed),
        MockNetwork(f"v6_{method}", nodes, environment=OPEN, processes=1, on_round=lambda row: None) as network,
    ):
        network.run(**{"rounds": 10, **settings})
    for i in range(0, len(seen), NODES):  # each node evaluates each model once
        counts, odds, labels = zip(*seen[i : i + NODES], strict=True)
        z, y = np.concatenate(odds), np.concatenate(labels)
        classes = [1] if z.shape[1] == 1 else range(z.shape[1])
        exact = [roc_auc_score(y == c, z[:, j]) for j, c in enumerate(classes) if 0 < np.sum(y == c) < len(y)]
        for bands in BANDS:
            if exact:
                yield bands, abs(metrics.combine([c[bands] for c in counts])["auc"] - float(np.mean(exact)))


def _tables() -> Iterator[tuple[str, list[str], pd.DataFrame]]:
    """The kind of the columns, the steps of the job, and the rows, with the label last."""
    for name in ("breast-cancer", "digits", "wine"):
        rows = datasets.load(name).rows
        assert isinstance(rows, pd.DataFrame)
        yield SAME_SCALE, STANDARDIZED, rows
        yield SAME_SCALE if name == "digits" else OTHER_SCALES, AS_THEY_ARE, rows
    rng = np.random.default_rng(7)
    for n, prevalence in ((6000, 0.01), (6000, 0.03), (6000, 0.1), (4000, 0.5), (300, 0.3)):
        X, b = rng.normal(size=(n, 8)), rng.normal(size=8) / 2
        odds = X @ b + np.log(prevalence / (1 - prevalence))
        yield SAME_SCALE, STANDARDIZED, _table(X, odds + rng.logistic(size=n) > 0)
    X, B = rng.normal(size=(4000, 8)), rng.normal(size=(8, 3)) / 2
    three = np.argmax(X @ B + rng.gumbel(size=(4000, 3)) + [1.5, 0, -1.5], axis=1)
    yield SAME_SCALE, STANDARDIZED, _table(X, three)
    yes = (rng.random((4000, 5)) < 0.2) * np.c_[np.ones((4000, 4)), rng.exponential(size=4000)]  # many tied scores
    ill = yes @ [1, 0.5, -1, 0.8, 1] - 0.8 + rng.logistic(size=4000) > 0
    yield SAME_SCALE, AS_THEY_ARE, _table(yes, ill)
    yield SAME_SCALE, STANDARDIZED, _table(yes, ill)
    units = rng.normal([60, 130, 140, 0], [12, 20, 4, 1], (4000, 4))  # such as age, blood pressure and sodium
    units = np.c_[units, 20 * rng.lognormal(1, 1, 4000)]
    risk = units @ [0.05, 0.02, 0, 0, 0.01] - 6.6 + rng.logistic(size=4000)
    yield OTHER_SCALES, AS_THEY_ARE, _table(units, risk > 0)
    yield SAME_SCALE, STANDARDIZED, _table(units, risk > 0)


def _table(X: np.ndarray, y: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(X, columns=[f"x{i}" for i in range(X.shape[1])]).assign(label=y.astype(int))
