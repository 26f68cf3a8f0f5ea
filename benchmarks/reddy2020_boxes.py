"""Algorithms 3 and 4 of Reddy 2020 as the boxes print them: nodes do nothing except in their rounds."""

import functools
from collections.abc import Iterator
from typing import Any

from benchmarks import runs, tables
from benchmarks.reddy2020_differences import sum_over_all
from benchmarks.reddy2020_setup import DOCUMENT, NODES, OPTIMIZERS, PARTITIONS, PASSES, gap, read_as, settings_of, told
from v6_federated import Answers
from v6_workbench.simulation.datasets import Dataset
from v6_workbench.simulation.experiments import Experiment

# optimizer, rows and K
CHOSEN = (*(("sgd", partition, K) for partition in PARTITIONS for K in NODES), ("adam", "sorted-balanced", 7))


def runs_of() -> int:
    """How many runs ``lines`` reads or makes."""
    return (3 + 2 * 3) * len(CHOSEN)


def lines(dataset: Dataset) -> Iterator[str]:
    """Accuracy and gap by what nodes do between their rounds, and by whose models are summed."""
    yield ""
    yield (
        "Algorithms 3 and 4 as the boxes print them, logistic regression: accuracy and gap if a node trains on "
        "between its rounds (ours), if it trains in its rounds only, from the newest model "
        "(`train_from=newest_pass`), and if moreover the last models of all K are summed, as the boxes print, instead "
        "of those of S_t. For comparison rho = 1, rho = 50, and Delta (0.3 with SGD, 2.2 with Adam)."
    )
    yield ""
    yield from tables.head(
        "optimizer",
        "rows",
        "K",
        "rho = 1",
        "rho = 50",
        "Delta",
        "SVD: ours",
        "in its rounds",
        "of all K",
        "loss: ours",
        "in its rounds",
        "of all K",
    )
    E = PASSES["logreg"]
    for optimizer, partition, K in CHOSEN:
        experiment = Experiment(dataset, K, partition, 1, 1)
        common = settings_of("logreg", optimizer)
        found = []
        beside: tuple[tuple[str, dict[str, Any]], ...] = (
            ("fedavg", {"epochs": 1, "rounds": E}),
            ("fedavg", {"epochs": E // 2, "rounds": 2}),
            ("dynavg", {"protocol": "divergence", "delta": OPTIMIZERS[optimizer][1][0], "rounds": E}),
        )
        for method, own in beside:
            values = {**common, **own, "evaluate_every": own["rounds"]}
            found.append(runs.kept(DOCUMENT, method, experiment, values))
        for protocol in ("svd", "loss"):
            values = {**common, "protocol": protocol, "rounds": E, "evaluate_every": E}
            idle = {**values, "train_from": "newest_pass"}
            reading = told(experiment, "dynavg", idle, reading="models of all K")
            summed = functools.partial(read_as, experiment, idle, Answers, "weighted_mean", sum_over_all())
            found += [
                runs.kept(DOCUMENT, "dynavg", experiment, values),
                runs.kept(DOCUMENT, "dynavg", experiment, idle),
                runs.kept_as(DOCUMENT, reading, summed),
            ]
        yield tables.row(optimizer, partition, K, *map(accuracy_and_gap, found))


def accuracy_and_gap(run: runs.Run) -> str:
    return f"{run.history[-1]['accuracy']:.3f}, {gap(run):+.2f}"
