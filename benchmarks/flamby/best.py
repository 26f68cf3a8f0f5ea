"""All methods on heart disease within one preprocessing, each after a search inside the training rows."""

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import binomtest
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold

from benchmarks import runs, tables
from benchmarks.flamby import emulated
from benchmarks.flamby.data import HOSPITALS
from benchmarks.flamby.ours import LABEL, Hospitals, trained
from benchmarks.private_utility import heart
from v6_workbench.reporting import intervals
from v6_workbench.simulation.datasets import Dataset, pool

SEED, FOLDS, LEVEL = 42, 3, 0.05
RATES = (0.01, 0.03, 0.1)
COMMON: Mapping[str, Any] = {"preprocess": ["onehot", "standardize"], "label": LABEL, "holdout": 0.0, "classes": [0, 1]}
MINIBATCHES: Mapping[str, Any] = {"model": "logreg", "rounds": 20, "batch_size": 10}
ADAPTIVE: Mapping[str, Any] = {**MINIBATCHES, "lr": 0.03}
# the profile as it is, but for two limits that its operators would have to set: nodes name the classes of the job, of
# which one hospital has 3 rows, and methods that need single answers get them
CAREFUL = {
    "V6_FEDERATED_PROFILE": "careful",
    "V6_FEDERATED_CLASSES": "0,1",
    "V6_FEDERATED_AGGREGATION": "plain",
}
ALONE = {"V6_FEDERATED_MINIMUM_ORGANIZATIONS": "1"}  # baselines have one node


@dataclass(frozen=True)
class Method:
    """A method and its search.

    Attributes:
        package: the method's name.
        fixed: its settings, on top of the common ones.
        searched: the setting that is searched for.
        grid: its values.
        refused: what the profile ``careful`` refuses it for; empty if it does not.
    """

    package: str
    fixed: Mapping[str, Any]
    searched: str = "lr"
    grid: Sequence[float] = RATES
    refused: str = ""

    def values(self, found: float) -> dict[str, Any]:
        """The settings of a job; ``found`` is the searched one's value."""
        return {**COMMON, **self.fixed, self.searched: found, "evaluate_every": self.fixed["rounds"]}


METHODS: Mapping[str, Method] = {
    "FedSGD with momentum": Method(
        "fedavg", {"model": "logreg", "rounds": 50, "server_momentum": 0.9}, grid=(0.03, 0.1, 0.3)
    ),
    "FedAvg": Method("fedavg", MINIBATCHES),
    "FedProx": Method("fedavg", {**MINIBATCHES, "proximal_mu": 0.1}),
    "FedAdagrad": Method("fedavg", {**ADAPTIVE, "server_optimizer": "adagrad"}, "server_lr", (0.03, 0.1, 0.3)),
    "FedAdam": Method("fedavg", {**ADAPTIVE, "server_optimizer": "adam"}, "server_lr", (0.03, 0.1, 0.3)),
    "FedYogi": Method("fedavg", {**ADAPTIVE, "server_optimizer": "yogi"}, "server_lr", (0.03, 0.1, 0.3)),
    "cyclic": Method("fedavg", {**MINIBATCHES, "schedule": "cyclic"}, refused="aggregation"),
    "SCAFFOLD": Method("scaffold", MINIBATCHES),
    "FSVRG": Method("fsvrg", MINIBATCHES, "stepsize", (0.03, 0.1, 0.3)),
    "Co-Learning": Method("colearning", MINIBATCHES),
    "LoAdaBoost": Method("loadaboost", MINIBATCHES, refused="aggregation"),
    "dynamic averaging": Method("dynavg", MINIBATCHES, refused="aggregation"),
    "CO-OP": Method("coop", MINIBATCHES, refused="aggregation"),
    "boosted trees": Method("gbdt", {"model": "trees", "mode": "cyclic", "rounds": 20}, refused="aggregation"),
    "exact regression": Method("glm", {"family": "binomial", "rounds": 25}, "l2", (0.01, 0.1, 1.0), refused="rows"),
}
EXACT = "exact regression"
ABOUT = (
    "Ten columns of FLamby's rows, categories as columns of 0 and 1, standardized by the means and deviations over all "
    "hospitals. Rows without a value in these columns are left out, as FLamby does. One setting of each method is the "
    f"best log-loss of a grid in {FOLDS}-fold cross-validation within the training rows, in which the nodes train "
    "without a fold of their rows. No test row takes part. The mean of hospitals is FLamby's measure; accuracy "
    f"and AUC are of all 254 test rows, with 95% intervals for new rows of these hospitals: Wilson's, and Hanley and "
    f"McNeil's on the logit scale. One run each, seed {SEED}."
)


def hospitals(dataset: Dataset) -> Hospitals:
    """FLamby's rows with words for codes, each hospital's a table."""
    assert isinstance(dataset.rows, pd.DataFrame)
    rows = heart.split(dataset.rows)
    return Hospitals("tables", [*rows.training.values()], [*rows.test.values()])


def fold(of: Hospitals, f: int) -> Hospitals:
    """A fold of the training rows to test on, the others to train on."""
    training, test = [], []
    for rows in of.training:
        assert isinstance(rows, pd.DataFrame)
        splits = [*StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(rows, rows[LABEL])]
        known, unseen = splits[f]
        training.append(rows.iloc[known].reset_index(drop=True))
        test.append(rows.iloc[unseen].reset_index(drop=True))
    return Hospitals(f"fold {f} of {FOLDS}", training, test)


def loss(dataset: Dataset, of: Hospitals, method: Method, value: float) -> float:
    """The log-loss of all left-out rows."""
    found = []
    for f in range(FOLDS):
        part = fold(of, f)
        run = trained(dataset, part, method.package, method.values(value), 0)
        sizes = [len(y) for y in part.labels]
        found.append(float(np.average([row["loss"] for row in run.history], weights=sizes)))
    return float(np.mean(found))


def best(dataset: Dataset, of: Hospitals, method: Method) -> float:
    """The grid's value with the smallest log-loss."""
    return min(method.grid, key=functools.partial(loss, dataset, of, method))


@dataclass(frozen=True)
class Found:
    """What is known of test rows.

    Attributes:
        right: whether each was classified right (n,).
        cells: of the table.
    """

    right: np.ndarray
    cells: Sequence[str]


def measured(run: runs.Run, of: Hospitals) -> Found:
    """The cells of a row, from a run with a row for each test row."""
    y, right = np.concatenate(of.labels), np.array(tables.accuracies(run))
    losses = np.array([row["loss"] for row in run.history])
    hospital = np.repeat(np.arange(len(of.labels)), [len(labels) for labels in of.labels])
    mean = float(np.mean(np.bincount(hospital, right) / np.bincount(hospital)))
    p, accuracy, n1 = np.exp(-losses), float(right.mean()), int(y.sum())
    auc = float(roc_auc_score(y, np.where(y == 1, p, 1 - p)))
    area = intervals.on_logit_scale(auc, intervals.hanley_mcneil(auc, len(y) - n1, n1))
    shown = _with(accuracy, intervals.wilson(accuracy, len(y))), _with(auc, area)
    return Found(right, [emulated.spread([mean]), *shown, f"{losses.mean():.3f}".removeprefix("0")])


def _with(value: float, interval: Sequence[float]) -> str:
    return f"{value:.3f} [{interval[0]:.3f}, {interval[1]:.3f}]".replace("0.", ".")


def finished(
    dataset: Dataset, of: Hospitals, method: Method, value: float, environment: Mapping[str, str] | None = None
) -> Found:
    """Train with a setting and measure on the test rows."""
    run = trained(dataset, of, method.package, method.values(value), SEED, environment, each=True, rows="each")
    return measured(run, of)


def lines(dataset: Dataset, full: bool) -> Iterator[str]:
    """Each method's best, pooled rows and each hospital alone, and what the profile ``careful`` leaves of it."""
    of = hospitals(dataset)
    yield ""
    yield "## All methods within one preprocessing"
    yield ""
    yield ABOUT
    yield ""
    yield from tables.head("method", "found", "mean of hospitals", "accuracy", "AUC", "log-loss")
    methods = {name: method for name, method in METHODS.items() if full or name == EXACT}
    found: dict[str, Found] = {}
    values: dict[str, float] = {}
    for name, method in methods.items():
        try:
            values[name] = best(dataset, of, method)
            found[name] = finished(dataset, of, method, values[name])
        except runs.NotRun:
            yield tables.row(name, tables.NOT_RUN_YET, *[None] * 4)
            continue
        yield tables.row(name, f"{method.searched} {values[name]:g}", *found[name].cells)
    for name, rows in baselines(of).items() if EXACT in values else ():
        one_class = all(part[LABEL].nunique() == 1 for part in rows.training if isinstance(part, pd.DataFrame))
        cells = [None] * 4 if one_class else finished(dataset, rows, METHODS[EXACT], values[EXACT], ALONE).cells
        yield tables.row(f"{name}, {EXACT}", "training rows of one class" if one_class else None, *cells)
    yield ""
    yield significance({name: one.right for name, one in found.items()})
    if full:
        yield from careful(dataset, of, values)


def baselines(of: Hospitals) -> Mapping[str, Hospitals]:
    """All rows at one node, and each hospital's rows alone; tested on all hospitals."""
    every = Hospitals("pooled", [pool(of.training)], of.test)
    names = HOSPITALS.values()
    alone = {f"{n} alone": Hospitals(f"{n} alone", [rows], of.test) for n, rows in zip(names, of.training, strict=True)}
    return {"pooled rows": every, **alone}


def significance(right: Mapping[str, np.ndarray]) -> str:
    """The sentence on whether methods differ: McNemar's exact test of each pair, by Holm's procedure.

    Args:
        right: whether each test row was classified right, by each method.

    Returns:
        The sentence.
    """
    found = []
    for a, b in itertools.combinations(right, 2):
        wins, losses = int((right[a] > right[b]).sum()), int((right[a] < right[b]).sum())
        found.append((binomtest(wins, wins + losses).pvalue if wins + losses else 1.0, a, b))
    found.sort()
    if not found:
        return ""
    least = next((i for i, (p, _, _) in enumerate(found) if p > LEVEL / (len(found) - i)), len(found))
    p, a, b = found[0]
    by = f"Of {len(found)} pairs, by McNemar's exact test on the same test rows and Holm's procedure at {LEVEL}, "
    if least:
        return f"{by}{least} differ: {', '.join(f'{a} and {b} (p = {p:.4f})' for p, a, b in found[:least])}."
    return (
        f"{by}no two methods differ; the smallest p of a single pair is {p:.3f} ({a}, {b}). No ranking is significant."
    )


def careful(dataset: Dataset, of: Hospitals, values: Mapping[str, float]) -> Iterator[str]:
    """The same settings where every node has the profile ``careful``."""
    yield ""
    yield "## Under the profile careful"
    yield ""
    yield (
        "The same settings. Operators have to name the classes (`V6_FEDERATED_CLASSES=0,1`), since Switzerland's "
        "training rows are all of one. `aggregation`: the method needs single answers, so operators would have to set "
        "`V6_FEDERATED_AGGREGATION=plain`; its numbers are with that. `rows`: exact regression needs 2 rows a column, "
        "and Switzerland has 30 for 19. FLamby's own settings are refused: batches of 4 rows, where 10 are the least."
    )
    yield ""
    yield from tables.head("method", "careful itself", "mean of hospitals", "accuracy", "AUC", "log-loss")
    for name, value in values.items():
        method = METHODS[name]
        refused = f"refused: {method.refused}" if method.refused else "permitted"
        if method.refused == "rows":
            yield tables.row(name, refused, *[None] * 4)
            continue

        def cells(method: Method = method, value: float = value) -> Sequence[str]:
            return finished(dataset, of, method, value, CAREFUL).cells

        yield tables.trained((name, refused), cells, 4)
    yield ""
    yield (
        "Under `private`, with a budget of epsilon: [What a privacy budget costs, heart disease]"
        "(private_utility-heart_disease.md), on the same rows."
    )


def most(full: bool) -> int:
    """The most runs of these tables."""
    return (len(METHODS) if full else 1) * (3 * FOLDS + 1 + full) + 5
