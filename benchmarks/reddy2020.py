"""Reddy 2020: packets, communication rate, accuracy and generalisation gap of FedAvg and three dynamic averagings.

MNIST (and Fashion-MNIST by --data), logistic regression and the one-layer network, B = 128, SGD 0.01 or Adam 0.001.
A round is one local pass; FedAvg rho communicates every rho passes.
"""

from collections.abc import Iterator
from typing import Any

import matplotlib
import numpy as np

from benchmarks import runs, tables
from v6_federated.datasets import Dataset
from v6_federated.experiments import Experiment
from v6_federated.report import COLOURS

matplotlib.use("Agg")
from matplotlib import pyplot as plt

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


def lines(dataset: Dataset, full: bool) -> Iterator[str]:
    found: dict[tuple[str, str, int], dict[str, float]] = {}
    for model in PASSES if full else ("logreg",):
        for optimizer, (lr, _) in OPTIMIZERS.items():
            if not full and optimizer == "adam":
                continue
            yield ""
            yield f"**{dataset.name}, {model}, {optimizer}**"
            yield ""
            yield from tables.head(
                "rows",
                "K",
                "protocol",
                "MB of packets",
                "times fewer than rho = 1",
                "communication rate",
                "accuracy",
                "gap",
            )
            for partition in PARTITIONS if full else PARTITIONS[:1]:
                for K in NODES if full else NODES[:1]:
                    first = None
                    for name, method, own in protocols(model, optimizer):
                        values = {"model": model, "lr": lr, "optimizer": optimizer, "batch_size": 128, **own}
                        values["evaluate_every"] = own["rounds"]
                        run = runs.kept(DOCUMENT, method, Experiment(dataset, K, partition, 1, 1), values)
                        packets = sum(r["bytes_up"] + r["bytes_down"] for r in run.history) / 1e6
                        first = first or packets
                        last = run.history[-1]
                        J = [r["train_loss"] for r in run.history if r["train_loss"] is not None][-1]
                        gap = (last["loss"] - J) / (last["loss"] + J)
                        sent = np.mean([r["uploads"] if r["uploads"] is not None else K for r in run.history])
                        rate = sent / K * len(run.history) / PASSES[model]
                        found[partition, name, K] = {"packets": packets}
                        yield tables.row(
                            partition, K, name, f"{packets:.1f}", f"{first / packets:.1f}", f"{rate:.2f}",
                            f"{last['accuracy']:.4f}", f"{gap:+.3f}",
                        )  # fmt: skip
            if full:
                yield ""
                yield f"![packets]({_picture(dataset.name, model, optimizer, found)})"


def _picture(data: str, model: str, optimizer: str, found: dict[tuple[str, str, int], dict[str, float]]) -> str:
    """Accumulated packets by number of nodes, one panel a partition (figures like 4.3)."""
    figure, axes = plt.subplots(2, 2, figsize=(9, 6.5), sharex=True, constrained_layout=True)
    names = [name for name, _, _ in protocols(model, optimizer)]
    for axis, partition in zip(axes.flat, PARTITIONS, strict=True):
        for i, name in enumerate(names):
            axis.plot(
                NODES, [found[partition, name, K]["packets"] for K in NODES], "os^Dv<>"[i], linestyle="-",
                color=COLOURS[i % len(COLOURS)], label=name, markersize=5,
            )  # fmt: skip
        axis.set(title=partition, yscale="log", xlabel="nodes K", ylabel="packets, MB (log scale)", xticks=NODES)
        axis.grid(alpha=0.3)
    figure.legend(
        *axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False, fontsize=8
    )
    file = f"{DOCUMENT}-{data}-{model}-{optimizer}.png"
    figure.savefig(runs.RESULTS / file, dpi=110)
    plt.close(figure)
    return file


def main(dataset: Dataset, full: bool) -> None:
    """Print and keep the tables and figures."""
    about = "Seed 1. Packets are all bytes sent, both ways; gap is (J_test - J_train) / (J_test + J_train)."
    tables.page(DOCUMENT, f"Reddy 2020 on {dataset.name}", full, lines(dataset, full), about, dataset.name)
