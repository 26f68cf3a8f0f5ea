"""What all runs of Reddy 2020 have in common: models, optimizers, protocols, partitions."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks import runs

DOCUMENT = "reddy2020"
PASSES = {"logreg": 100, "nn_reddy": 50}
OPTIMIZERS = {"sgd": (0.01, (0.3, 0.8)), "adam": (0.001, (2.2, 2.8))}
PARTITIONS = ("balanced", "unbalanced", "sorted-balanced", "sorted-unbalanced")
NODES = (7, 31)


def protocols(model: str, optimizer: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Name, method and settings of each protocol."""
    E = PASSES[model]
    for rho in (1, 10, 50):
        yield f"FedAvg rho = {rho}", "fedavg", {"epochs": rho, "rounds": E // rho}
    for delta in OPTIMIZERS[optimizer][1]:
        yield f"DynAvg Delta = {delta}", "dynavg", {"protocol": "divergence", "delta": delta, "rounds": E}
    for name in ("svd", "loss"):
        yield f"DynAvg {name}", "dynavg", {"protocol": name, "rounds": E}


def settings_of(model: str, optimizer: str, batch_size: int = 128) -> dict[str, Any]:
    return {"model": model, "lr": OPTIMIZERS[optimizer][0], "optimizer": optimizer, "batch_size": batch_size}


def sent(run: runs.Run, K: int) -> float:
    """The communication rate of a run by passes: how many of the K nodes communicate after one, on average."""
    return float(np.mean([r["uploads"] for r in run.history])) / K
