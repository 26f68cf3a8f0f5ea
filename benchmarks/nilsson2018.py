"""Nilsson et al. 2018: FedAvg and FSVRG with the 2NN on MNIST at equal uploads, 100 a node (Tables 3 and 4)."""

from collections.abc import Iterator

import numpy as np

from benchmarks import runs, tables
from v6_federated.datasets import Dataset
from v6_federated.experiments import Experiment

DOCUMENT = "nilsson2018"
FEDAVG = {"fraction": 0.1, "epochs": 10, "batch_size": 20, "lr": 0.088, "lr_decay_step": 3.2e-6, "rounds": 1000}
SEARCH = {"fraction": 0.1, "epochs": 5, "batch_size": 20, "lr": 0.11, "lr_decay_step": 2.2e-7, "rounds": 1200}
FSVRG = {"stepsize": 4.0, "batch_size": 1, "rounds": 50}

# method, partition, settings, the paper's max(acc) and avg(acc), what the row is
ROWS = [
    ("fsvrg", "shards", FSVRG, 0.9816, 0.9135, "Table 4, h = 4"),
    ("fsvrg", "iid", FSVRG, None, None, "h = 4, 50 rounds"),
    ("fedavg", "shards", SEARCH, 0.9792, 0.9658, "Table 3, eta 0.11, E = 5, 1,200 rounds"),
    ("fedavg", "shards", FEDAVG, None, None, "eta 0.088, E = 10, 1,000 rounds"),
    ("fedavg", "iid", FEDAVG, None, None, "eta 0.088, E = 10, 1,000 rounds"),
]


def lines(dataset: Dataset, full: bool) -> Iterator[str]:
    yield from tables.head(
        "method", "rows", "setting", "uploads", "max(acc) paper", "ours", "avg(acc) paper", "ours", "last"
    )
    for method, partition, settings, best, average, what in ROWS:
        share = 1.0 if full else 0.02 if method == "fedavg" else 0.1
        values = {"model": "2nn", **settings, "rounds": max(2, round(settings["rounds"] * share))}
        run = runs.kept(DOCUMENT, method, Experiment(dataset, 100, partition, 1, 1), values)
        found = tables.accuracies(run)
        uploads = len(run.history) * (200 if method == "fsvrg" else 10)
        yield tables.row(
            method,
            partition,
            what,
            uploads,
            best,
            f"{max(found):.4f}",
            average,
            f"{np.mean(found):.4f}",
            f"{found[-1]:.4f}",
        )


def main(dataset: Dataset, full: bool) -> None:
    """Print and keep the table."""
    about = "Single runs, seed 1: the best accuracy of any round, the mean over rounds, and the last round's."
    tables.page(DOCUMENT, "Nilsson et al. 2018 on MNIST", full, lines(dataset, full), about)
