"""What all tables on Reddy 2020 have in common: models, optimizers, protocols, partitions."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from unittest import mock

import numpy as np

from benchmarks import runs
from v6_workbench.simulation.experiments import Experiment, OnRound

DOCUMENT = "reddy2020"
PASSES = {"logreg": 100, "nn_reddy": 50}
OPTIMIZERS = {"sgd": (0.01, (0.3, 0.8)), "adam": (0.001, (2.2, 2.8))}
PARTITIONS = ("balanced", "unbalanced", "sorted-balanced", "sorted-unbalanced")
NODES = (7, 31)
MORE_NODES, MORE_RHOS = (15, 23), (20, 100)  # of logistic regression only


def protocols(
    model: str, optimizer: str, rhos: Sequence[int] = (1, 10, 50)
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Name, method and settings of each protocol, of FedAvg with each of ``rhos``."""
    E = PASSES[model]
    for rho in rhos:
        yield f"FedAvg rho = {rho}", "fedavg", {"epochs": rho, "rounds": E // rho}
    for delta in OPTIMIZERS[optimizer][1]:
        yield f"DynAvg Delta = {delta}", "dynavg", {"protocol": "divergence", "delta": delta, "rounds": E}
    for name in ("svd", "loss"):
        yield f"DynAvg {name}", "dynavg", {"protocol": name, "rounds": E}


def settings_of(model: str, optimizer: str, batch_size: int = 128) -> dict[str, Any]:
    return {"model": model, "lr": OPTIMIZERS[optimizer][0], "optimizer": optimizer, "batch_size": batch_size}


def sent(run: runs.Run, K: int) -> float:
    """The communication rate of a run: the share of the K nodes that communicate after a pass, on average."""
    return float(np.mean([r["uploads"] for r in run.history])) / K


def batches(run: runs.Run) -> list[float]:
    """The mean minibatch losses that nodes sent, by round, for the rounds in which they sent one."""
    return [row["train_loss"] for row in run.history if row["train_loss"] is not None]


def gap(run: runs.Run, J_train: float | None = None) -> float:
    """The generalisation gap at the end. J_test is the last model's loss; J_train, unless given, is the mean minibatch
    loss that nodes sent last."""
    J_train = batches(run)[-1] if J_train is None else J_train
    J_test = run.history[-1]["loss"]
    return float((J_test - J_train) / (J_test + J_train))


def read_as(
    experiment: Experiment, values: dict[str, Any], owner: Any, part: str, reading: Any, on_round: OnRound | None
) -> Mapping[str, Any]:
    """Dynamic averaging with another reading of a part of its central function: of the attribute ``part`` of ``owner``,
    a module or a class."""
    with mock.patch.object(owner, part, reading):
        return experiment.federated("dynavg", values, on_round)


def told(experiment: Experiment, method: str, values: Mapping[str, Any], **what: str) -> dict[str, Any]:
    """The settings by which a run is kept that is not the method as it is; ``what`` says how it differs."""
    dataset = experiment.dataset
    return {
        "method": method,
        **what,
        "data": f"{dataset.name} {runs.digest(dataset)}",
        "nodes": experiment.nodes,
        "partition": experiment.partition,
        "seed": experiment.seed,
        "partition_seed": experiment.partition_seed,
        **values,
    }
