"""FedAvg and SCAFFOLD if every node has a single label: where SCAFFOLD wins, and where its loss explodes.

No document has these tables.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks import pictures, runs, tables
from v6_workbench.simulation.datasets import Dataset
from v6_workbench.simulation.experiments import Experiment

DOCUMENT = "one_label"
METHODS = {"fedavg": "FedAvg", "scaffold": "SCAFFOLD"}
LOCAL: dict[str, Any] = {"lr": 0.1, "epochs": 10, "batch_size": 50}
LINEAR_MARKS, MARKS = (1, 5, 10, 20, 30), (10, 20, 40, 60, 80, 100)  # rounds that the tables show
SEEDS = (1, 2, 3, 4, 5)
GUESSING = math.log(10)  # the loss of a model that gives each of ten classes the same probability


def linear(dataset: Dataset, full: bool) -> Iterator[str]:
    """Logistic regression on two and on one label a node."""
    yield "Logistic regression on all rows, 10 nodes with two labels (`shards`) or one (`classes:1`), seed 1:"
    yield ""
    yield from tables.head("rows", "round", "FedAvg loss", "accuracy", "SCAFFOLD loss", "accuracy")
    values = {"model": "logreg", **LOCAL, "rounds": 30 if full else 6}
    for partition in ("shards", "classes:1"):
        experiment = Experiment(dataset, 10, partition, 1, 1)
        histories = [runs.kept(DOCUMENT, method, experiment, values).history for method in METHODS]
        for t in LINEAR_MARKS:
            if t <= values["rounds"]:
                rows = [history[t - 1] for history in histories]
                yield tables.row(partition, t, *(f"{row[key]:.3f}" for row in rows for key in ("loss", "accuracy")))


def deep(dataset: Dataset, full: bool) -> Iterator[str]:
    """The 2NN on one label a node, by seed."""
    few = Dataset(f"{dataset.name}-10000", dataset.take(np.arange(10_000)), dataset.test) if full else dataset
    values = {"model": "2nn", **LOCAL, "rounds": 100 if full else 5}
    lines: dict[str, list[Sequence[float]]] = {name: [] for name in METHODS.values()}
    yield ""
    yield (
        f"The 2NN on {len(few):,} rows, 10 nodes with one label each, by seed. The largest loss and its round, how "
        f"many rounds have a loss above that of guessing ({GUESSING:.2f}) and the last of them, and accuracy by round:"
    )
    yield ""
    marks = [t for t in MARKS if t <= values["rounds"]]
    above_guessing = "rounds above guessing", "the last of them"
    yield from tables.head(
        "method", "seed", "largest loss", "in round", *above_guessing, "last loss", *(f"round {t}" for t in marks)
    )
    for method, name in METHODS.items():
        for seed in runs.seeds(SEEDS) if full else SEEDS[:1]:
            try:
                history = runs.kept(DOCUMENT, method, Experiment(few, 10, "classes:1", seed, seed), values).history
            except runs.NotRun:
                yield tables.row(name, seed, tables.NOT_RUN_YET, *[None] * (4 + len(marks)))
                continue
            losses = [row["loss"] for row in history]
            lines[name].append(tables.accuracies(runs.Run(values, history, "", "")))
            largest = max(losses)
            above = [t for t, loss in enumerate(losses, start=1) if loss > GUESSING]
            accuracies = (f"{history[t - 1]['accuracy']:.3f}" for t in marks)
            explosion = f"{largest:.2f}", losses.index(largest) + 1, len(above), above[-1] if above else None
            yield tables.row(name, seed, *explosion, f"{losses[-1]:.2f}", *accuracies)
    picture = f"{DOCUMENT}{'' if full else '-reduced'}.png"
    panel = {name: (range(1, len(found[0]) + 1), found) for name, found in lines.items() if found}
    if pictures.curves({"2NN, one label a node": panel}, runs.RESULTS / picture):
        yield ""
        yield "Mean of the seeds, and shaded from the lowest to the highest:"
        yield ""
        yield f"![accuracy by round]({picture})"


def main(dataset: Dataset, full: bool) -> None:
    """Print and keep the tables."""
    dataset = dataset if full else runs.first(dataset)
    about = (
        "Ten local epochs of minibatches of 50 with a rate of 0.1; loss and accuracy on the test rows. No document has "
    )
    about += f"these tables.{'' if full else f' Reduced: {runs.FIRST}.'}"

    def lines() -> Iterator[str]:
        yield from linear(dataset, full)
        yield from deep(dataset, full)

    most = 2 * (2 + (len(runs.seeds(SEEDS)) if full else 1))
    tables.page(tables.Page(DOCUMENT, "One label a node", full, about), lines(), most)
