"""Reddy 2020: packets, communication rate, accuracy and generalisation gap of FedAvg and of dynamic averaging.

On MNIST, or Fashion-MNIST by --data, with logistic regression and a network of one hidden layer, B = 128, and SGD with
a rate of 0.01 or Adam with 0.001. A round is one local pass; FedAvg with rho communicates every rho passes.
"""

import functools
import time
from collections.abc import Iterator
from typing import Any

import matplotlib
import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks import reddy2020_boxes as boxes
from benchmarks import reddy2020_deals as deals
from benchmarks import reddy2020_differences as differences
from benchmarks import runs, tables
from benchmarks.reddy2020_setup import (
    DOCUMENT,
    MORE_NODES,
    MORE_RHOS,
    NODES,
    OPTIMIZERS,
    PARTITIONS,
    PASSES,
    gap,
    protocols,
    settings_of,
    told,
)
from v6_federated.data.reading import as_features
from v6_workbench.reporting.pictures import COLOURS, STYLES
from v6_workbench.simulation.datasets import Dataset
from v6_workbench.simulation.experiments import Experiment

matplotlib.use("Agg")
from matplotlib import pyplot as plt


def lines(dataset: Dataset, full: bool) -> Iterator[str]:
    found: dict[tuple[str, str, int], dict[str, float]] = {}
    for model in PASSES if full else ("logreg",):
        for optimizer in OPTIMIZERS:
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
                        run = trained(dataset, model, optimizer, partition, K, method, own)
                        packets = megabytes(run)
                        first = first or packets
                        last = run.history[-1]
                        sent = np.mean([r["uploads"] if r["uploads"] is not None else K for r in run.history])
                        rate = sent / K * len(run.history) / PASSES[model]
                        found[partition, name, K] = {
                            "packets": packets,
                            "rate": rate,
                            "accuracy": last["accuracy"],
                            "gap": gap(run),
                        }
                        yield tables.row(
                            partition,
                            K,
                            name,
                            f"{packets:.1f}",
                            f"{first / packets:.1f}",
                            f"{rate:.2f}",
                            f"{last['accuracy']:.4f}",
                            f"{gap(run):+.3f}",
                        )
            if full:
                yield ""
                picture = _picture(dataset.name, model, optimizer, found)
                yield f"![packets, communication rate, accuracy and gap by number of nodes]({picture})"
    if full:
        yield from more_nodes(dataset)
        yield from differences.lines(dataset)
        yield from deals.lines(dataset)
        yield from boxes.lines(dataset)
        yield from svd_seconds(dataset)


def trained(
    dataset: Dataset, model: str, optimizer: str, partition: str, K: int, method: str, own: dict[str, Any]
) -> runs.Run:
    """One run, evaluated after its last round."""
    values = {**settings_of(model, optimizer), **own, "evaluate_every": own["rounds"]}
    return runs.kept(DOCUMENT, method, Experiment(dataset, K, partition, 1, 1), values)


def megabytes(run: runs.Run) -> float:
    """What a run has sent, both ways."""
    return sum(r["bytes_up"] + r["bytes_down"] for r in run.history) / 1e6


def more_nodes(dataset: Dataset) -> Iterator[str]:
    """Logistic regression with all of the document's numbers of nodes and of passes between two rounds."""
    rhos, absent = sorted({1, 10, 50, *MORE_RHOS}), False
    yield ""
    yield "**All numbers of nodes and of passes**, logistic regression: the accuracy, and in brackets how many times"
    yield "fewer bytes than with rho = 1."
    for optimizer in OPTIMIZERS:
        names = [name for name, _, _ in protocols("logreg", optimizer, rhos)]
        yield ""
        yield from tables.head(f"{dataset.name}, {optimizer}", "K", *names)
        for partition in PARTITIONS:
            for K in sorted((*NODES, *MORE_NODES)):
                cells, first = list[str | None](), 0.0
                for name, method, own in protocols("logreg", optimizer, rhos):
                    try:
                        run = trained(dataset, "logreg", optimizer, partition, K, method, own)
                    except runs.NotRun:
                        cells.append(None)
                        absent = True
                        continue
                    first = megabytes(run) if name == names[0] else first
                    fewer = f" ({first / megabytes(run):.3g})" if first else ""
                    cells.append(f"{run.history[-1]['accuracy']:.3f}{fewer}")
                yield tables.row(partition, K, *cells)
    if absent:
        yield ""
        yield f"A dash: {tables.NOT_RUN_YET}."


def _picture(data: str, model: str, optimizer: str, found: dict[tuple[str, str, int], dict[str, float]]) -> str:
    """Packets, communication rate, accuracy and gap by number of nodes, one column a partition, as in the document's
    figures 4.3, 4.4 and 4.30."""
    measures = {
        "packets": "packets, MB (log scale)",
        "rate": "communication rate",
        "accuracy": "accuracy on the test rows",
        "gap": "generalisation gap",
    }
    figure, axes = plt.subplots(4, 4, figsize=(11, 12), sharex=True, sharey="row", constrained_layout=True)
    names = [name for name, _, _ in protocols(model, optimizer)]
    for across, (measure, unit) in zip(axes, measures.items(), strict=True):
        for axis, partition in zip(across, PARTITIONS, strict=True):
            for i, name in enumerate(names):
                axis.plot(
                    NODES,
                    [found[partition, name, K][measure] for K in NODES],
                    "os^Dv<>"[i],
                    linestyle=STYLES[i % len(STYLES)],
                    color=COLOURS[i % len(COLOURS)],
                    label=name,
                    markersize=5,
                )
            axis.set(yscale="log" if measure == "packets" else "linear", xticks=NODES)
            axis.grid(alpha=0.3)
        across[0].set_ylabel(unit)
    for axis, partition in zip(axes[0], PARTITIONS, strict=True):
        axis.set_title(partition)
    for axis in axes[-1]:
        axis.set_xlabel("nodes K")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    file = f"{DOCUMENT}-{data}-{model}-{optimizer}.png"
    figure.savefig(runs.RESULTS / file, dpi=100)
    plt.close(figure)
    return file


def svd_seconds(dataset: Dataset) -> Iterator[str]:
    """How long the singular values take (Figure 4.28)."""
    lines, machines = list[str](), dict[str, None]()
    for partition in PARTITIONS:
        for K in NODES:
            experiment = Experiment(dataset, K, partition, 1, 1)
            dealt: dict[int, Any] = experiment.deal()
            settings = told(experiment, "singular values", {}, threads="1")
            run = runs.kept_as(DOCUMENT, settings, functools.partial(_svd, dealt))
            machines |= {f"{run.machine}, {run.date}": None}
            rows = [len(y) for _, y in dealt.values()]
            took = [row["seconds"] for row in run.history]
            most, seconds = max(zip(rows, took, strict=True))
            lines.append(tables.row(partition, K, f"{most:,}", f"{seconds:.1f}", f"{sum(took):.1f}"))
    yield ""
    yield (
        f"Seconds of the SVD, which a job does once, with one thread ({'; '.join(machines)}): of the node with the "
        "most rows, and of all nodes together. The document: 1.5 to 4.5 seconds on MNIST, 1.5 to 5 on Fashion-MNIST, "
        "for all K."
    )
    yield ""
    yield from tables.head("rows", "K", "most rows", "seconds", "all nodes together")
    yield from lines


def _svd(dealt: dict[int, Any], _: object) -> dict[str, Any]:
    """A history with a row a node: the seconds that its singular values take."""
    history = []
    with threadpool_limits(1):
        for k, (X, _y) in dealt.items():
            rows = as_features(X).astype(np.float64)
            started = time.perf_counter()
            np.linalg.svd(rows, compute_uv=False)
            history.append({"round": k, "seconds": time.perf_counter() - started})
    return {"history": history}


def main(dataset: Dataset, full: bool) -> None:
    """Print and keep the tables and figures."""
    about = (
        "One run each, seed 1. Packets are all bytes sent, both ways; the gap is (J_test - J_train) / (J_test + "
        "J_train). Nothing is counted as near: the document prints curves. The notes compare its claims one by one."
    )
    protocols_ = len([*protocols("logreg", "sgd")])
    most = protocols_ * (len(PASSES) * len(OPTIMIZERS) * len(PARTITIONS) * len(NODES) if full else 1)
    others = differences.runs_of(dataset) + deals.runs_of() + boxes.runs_of() + len(PARTITIONS) * len(NODES)
    more = len(MORE_NODES) * (protocols_ + len(MORE_RHOS)) + len(NODES) * len(MORE_RHOS)
    most += others + len(OPTIMIZERS) * len(PARTITIONS) * more if full else 0
    title = f"Reddy 2020 on {'Fashion-MNIST' if dataset.name == 'fashion_mnist' else 'MNIST'}"
    tables.page(tables.Page(DOCUMENT, title, full, about, dataset.name), lines(dataset, full), most)
