"""Reddy 2020: packets, communication rate, accuracy and generalisation gap of FedAvg and three dynamic averagings.

MNIST (and Fashion-MNIST by --data), logistic regression and the one-layer network, B = 128, SGD 0.01 or Adam 0.001.
A round is one local pass; FedAvg rho communicates every rho passes.
"""

import functools
import importlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest import mock

import matplotlib
import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks import runs, tables
from benchmarks.starts import STARTS, weights
from v6_federated import codec, models
from v6_federated.data import as_features
from v6_federated.datasets import Dataset
from v6_federated.experiments import Experiment, OnRound
from v6_federated.randomness import generator
from v6_federated.report import COLOURS, STYLES

matplotlib.use("Agg")
from matplotlib import pyplot as plt

DOCUMENT = "reddy2020"
dynavg = importlib.import_module("v6_dynavg.central")  # the module: its package has the function under this name
PASSES = {"logreg": 100, "nn_reddy": 50}
OPTIMIZERS = {"sgd": (0.01, (0.3, 0.8)), "adam": (0.001, (2.2, 2.8))}
PARTITIONS = ("balanced", "unbalanced", "sorted-balanced", "sorted-unbalanced")
NODES = (7, 31)
STEPS = {"800: 50 passes of a node, K = 31": 800, "3,350: K = 7": 3350, "23,450: of all rows": 23450}
CUTS = (1, 2, 3, 4, 5)
# B with which a node of 31 takes the 67 steps a pass that one of 7 takes with B = 128
SAME_STEPS = 29
# where the document's Delta sends about what the SVD does or more, and ours with B = 128 less
MORE_STEPS = {"mnist": ("sgd", "sorted-unbalanced"), "fashion_mnist": ("adam", "unbalanced")}


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
                        values = {**settings_of(model, optimizer), **own}
                        values["evaluate_every"] = own["rounds"]
                        run = runs.kept(DOCUMENT, method, Experiment(dataset, K, partition, 1, 1), values)
                        packets = sum(r["bytes_up"] + r["bytes_down"] for r in run.history) / 1e6
                        first = first or packets
                        last = run.history[-1]
                        J = [r["train_loss"] for r in run.history if r["train_loss"] is not None][-1]
                        gap = (last["loss"] - J) / (last["loss"] + J)
                        sent = np.mean([r["uploads"] if r["uploads"] is not None else K for r in run.history])
                        rate = sent / K * len(run.history) / PASSES[model]
                        found[partition, name, K] = {
                            "packets": packets, "rate": rate, "accuracy": last["accuracy"], "gap": gap
                        }  # fmt: skip
                        yield tables.row(
                            partition, K, name, f"{packets:.1f}", f"{first / packets:.1f}", f"{rate:.2f}",
                            f"{last['accuracy']:.4f}", f"{gap:+.3f}",
                        )  # fmt: skip
            if full:
                yield ""
                picture = _picture(dataset.name, model, optimizer, found)
                yield f"![packets, communication rate, accuracy and gap by number of nodes]({picture})"
    if full:
        if dataset.name == "mnist":
            yield from readings(dataset)
            yield from same_steps(dataset)
        if dataset.name in MORE_STEPS:
            yield from more_steps(dataset)
        yield from cuts(dataset)
        yield from starts(dataset)
        yield from gaps(dataset)
        yield from svd_seconds(dataset)


def _picture(data: str, model: str, optimizer: str, found: dict[tuple[str, str, int], dict[str, float]]) -> str:
    """Packets, communication rate, accuracy and gap by number of nodes, a column a partition (figures like 4.3, 4.4 and
    4.30)."""
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
                    NODES, [found[partition, name, K][measure] for K in NODES], "os^Dv<>"[i],
                    linestyle=STYLES[i % len(STYLES)], color=COLOURS[i % len(COLOURS)], label=name, markersize=5,
                )  # fmt: skip
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


def settings_of(model: str, optimizer: str, batch_size: int = 128) -> dict[str, Any]:
    return {"model": model, "lr": OPTIMIZERS[optimizer][0], "optimizer": optimizer, "batch_size": batch_size}


def sent(run: runs.Run, K: int) -> float:
    """The communication rate of a run by passes: how many of the K nodes communicate after one, on average."""
    return float(np.mean([r["uploads"] for r in run.history])) / K


def of_all(renewed: bool) -> Callable[[Mapping[int, float], int, int], dict[int, Any]]:
    """Plans of Algorithm 4 by the last losses of all nodes, not only of S_t; for S_t or for all (``renewed``)."""
    last: dict[int, float] = {}

    def plans(q: Mapping[int, float], E: int, start: int) -> dict[int, Any]:
        last.update(q)
        every = ours(last, E, start)
        return every if renewed else {k: every[k] for k in q}

    ours = dynavg._plans
    return plans


def readings(dataset: Dataset) -> Iterator[str]:
    """Whose losses Algorithm 4 compares, and whose intervals it renews."""
    yield ""
    yield (
        "Readings of Algorithm 4: whose losses are normalized, and whose plans renewed. Logistic regression, SGD: "
        "times fewer uploads than rho = 1, and accuracy. The document: about 8 times, similar on all partitions."
    )
    yield ""
    names = ("S_t's, S_t's (ours)", "all K's last, S_t's", "all K's last, all K's")
    yield from tables.head("rows", "K", *names)
    values = {**settings_of("logreg", "sgd"), "protocol": "loss", "rounds": PASSES["logreg"]}
    values["evaluate_every"] = values["rounds"]
    for partition in PARTITIONS:
        for K in NODES:
            experiment = Experiment(dataset, K, partition, 1, 1)
            found = [runs.kept(DOCUMENT, "dynavg", experiment, values)]
            for name, renewed in zip(names[1:], (False, True), strict=True):
                settings = {
                    "method": "dynavg", "reading": name, "data": f"{dataset.name} {runs.digest(dataset)}", "nodes": K,
                    "partition": partition, "seed": 1, "partition_seed": 1, **values,
                }  # fmt: skip

                def train(on_round: OnRound | None, e: Experiment = experiment, r: bool = renewed) -> Mapping[str, Any]:
                    with mock.patch.object(dynavg, "_plans", of_all(r)):
                        return e.federated("dynavg", values, on_round)

                found.append(runs.kept_as(DOCUMENT, settings, train))
            cells = (f"{1 / sent(run, K):.1f}, {run.history[-1]['accuracy']:.3f}" for run in found)
            yield tables.row(partition, K, *cells)


def same_steps(dataset: Dataset) -> Iterator[str]:
    """Whether 31 nodes differ from seven by the number of their steps."""
    yield ""
    yield (
        f"Communication rate and accuracy where a node of 31 takes as many steps a pass as one of 7: B = {SAME_STEPS}, "
        "not 128."
    )
    yield ""
    sizes = {f"K = {K}, B = {B}": (K, B) for K, B in ((7, 128), (31, 128), (31, SAME_STEPS))}
    yield from tables.head("model", "optimizer", "rows", "protocol", *sizes)
    rows: list[tuple[str, str, str, float | None]] = [
        *(("logreg", "sgd", p, delta) for p in PARTITIONS for delta in OPTIMIZERS["sgd"][1]),
        *(("logreg", "adam", p, 2.2) for p in PARTITIONS),
        ("nn_reddy", "adam", "balanced", 2.2),
        *(("nn_reddy", "sgd", p, None) for p in PARTITIONS[:2]),
    ]
    for model, optimizer, partition, delta in rows:
        E = PASSES[model]
        method = "dynavg" if delta else "fedavg"
        own = {"protocol": "divergence", "delta": delta} if delta else {"epochs": 1}
        cells = []
        for K, B in sizes.values():
            values = {**settings_of(model, optimizer, B), **own, "rounds": E, "evaluate_every": E}
            run = runs.kept(DOCUMENT, method, Experiment(dataset, K, partition, 1, 1), values)
            rate = f"{sent(run, K):.2f}, " if delta else ""
            cells.append(f"{rate}{run.history[-1]['accuracy']:.3f}")
        yield tables.row(model, optimizer, partition, f"Delta = {delta}" if delta else "FedAvg rho = 1", *cells)


def more_steps(dataset: Dataset) -> Iterator[str]:
    """Whether Delta comes up to the SVD where nodes take more steps."""
    optimizer, partition = MORE_STEPS[dataset.name]
    yield ""
    yield f"Communication rates with four times the steps: logistic regression, {optimizer}, {partition}, K = 7."
    yield ""
    yield from tables.head("protocol", "B = 128", "B = 32")
    E = PASSES["logreg"]
    protocols_: dict[str, dict[str, Any]] = {
        **{f"Delta = {delta}": {"protocol": "divergence", "delta": delta} for delta in OPTIMIZERS[optimizer][1]},
        "SVD": {"protocol": "svd"},
    }
    for name, own in protocols_.items():
        cells = []
        for B in (128, 32) if "delta" in own else (128, 128):  # the SVD's rate is that of the rows, whatever B
            values = {**settings_of("logreg", optimizer, B), **own, "rounds": E, "evaluate_every": E}
            run = runs.kept(DOCUMENT, "dynavg", Experiment(dataset, 7, partition, 1, 1), values)
            cells.append(f"{sent(run, 7):.2f}")
        yield tables.row(name, *cells)


def cuts(dataset: Dataset) -> Iterator[str]:
    """How much the rates of the SVD and of Delta under Adam are those of one way to deal the rows."""
    yield ""
    yield (
        f"Communication rates of other deals of the rows (seeds {CUTS[0]} to {CUTS[-1]}; above it is {CUTS[0]}), "
        "logistic regression, K = 7, Adam."
    )
    yield ""
    yield from tables.head("rows", "protocol", *(f"deal {cut}" for cut in CUTS))
    E = PASSES["logreg"]
    for partition in PARTITIONS[:2]:
        for name, own in (("SVD", {"protocol": "svd"}), ("Delta = 2.2", {"protocol": "divergence", "delta": 2.2})):
            values = {**settings_of("logreg", "adam"), **own, "rounds": E, "evaluate_every": E}
            found = [runs.kept(DOCUMENT, "dynavg", Experiment(dataset, 7, partition, 1, cut), values) for cut in CUTS]
            yield tables.row(partition, name, *(f"{sent(run, 7):.2f}" for run in found))


def starts(dataset: Dataset) -> Iterator[str]:
    """What the start and the number of steps are worth to the network under SGD."""
    yield ""
    yield "SGD on all rows, B = 128, rate 0.01: test accuracy after the steps that a node takes."
    yield ""
    yield from tables.head("model", "start", *STEPS)
    for model, start in (("logreg", "torch"), *(("nn_reddy", start) for start in STARTS)):
        settings = {
            "method": "sgd", "start": start, "model": model, "data": f"{dataset.name} {runs.digest(dataset)}",
            "batch_size": 128, "rounds": max(STEPS.values()), "seed": 1,
        }  # fmt: skip
        run = runs.kept_as(DOCUMENT, settings, functools.partial(descent, dataset, model, start))
        found = {row["round"]: row["accuracy"] for row in run.history}
        name = "0" if model == "logreg" else STARTS[start]
        yield tables.row(model, name, *(f"{found[steps]:.4f}" for steps in STEPS.values()))


def descent(dataset: Dataset, model: str, start: str, on_round: OnRound | None) -> dict[str, Any]:
    """SGD on the rows of all nodes together; a row of history is a step of ``STEPS``."""
    assert isinstance(dataset.rows, tuple) and dataset.test is not None
    (X, y), (X_test, y_test) = (
        (as_features(X), np.asarray(y, dtype=np.int64)) for X, y in (dataset.rows, dataset.test)
    )
    network = models.build({"name": model, "features": X.shape[1], "classes": 10})
    w, history, rng = weights(start, network, generator(1, "start")), [], generator(1, "batches")
    for i in range(1, max(STEPS.values()) + 1):
        rows = rng.integers(0, len(y), 128)
        _, g = network.loss_and_gradient(w, X[rows], y[rows])
        w = w - np.float32(OPTIMIZERS["sgd"][0]) * g
        if i in STEPS.values():
            accuracy = float((network.scores(w, X_test).argmax(axis=1) == y_test).mean())
            history.append({"round": i, "accuracy": accuracy})
        if on_round:
            on_round({"round": i})
    return {"history": history}


def gaps(dataset: Dataset) -> Iterator[str]:
    """The gap on sorted rows by whose J_train: the nodes' models before they are averaged, or the last global one."""
    yield ""
    yield (
        "The generalisation gap on sorted-balanced rows, logistic regression, SGD, K = 7, by whose J_train: the nodes' "
        "own models on their own rows (as above), or the last global model on all rows."
    )
    yield ""
    yield from tables.head("protocol", "nodes' own", "global")
    experiment = Experiment(dataset, 7, "sorted-balanced", 1, 1)
    for name, method, own in protocols("logreg", "sgd"):
        values = {**settings_of("logreg", "sgd"), **own, "evaluate_every": own["rounds"]}
        settings = {
            "method": method, "measured": "the last global model's loss on all rows", "nodes": 7, "seed": 1,
            "data": f"{dataset.name} {runs.digest(dataset)}", "partition": experiment.partition, "partition_seed": 1,
            **values,
        }  # fmt: skip
        last = runs.kept_as(DOCUMENT, settings, functools.partial(at_the_end, experiment, method, values)).history[-1]
        own_losses = [r["train_loss"] for r in runs.kept(DOCUMENT, method, experiment, values).history]
        J = [loss for loss in own_losses if loss is not None][-1]
        test = last["loss"]
        yield tables.row(name, *(f"{(test - j) / (test + j):+.3f}" for j in (J, last["train_loss"])))


def at_the_end(experiment: Experiment, method: str, values: dict[str, Any], on_round: OnRound | None) -> dict[str, Any]:
    """One row of history: the last global model's loss on the test rows, and on all others as ``train_loss``."""
    result = experiment.federated(method, values, on_round)
    assert isinstance(experiment.dataset.rows, tuple)
    X, y = experiment.dataset.rows
    model = models.build(result["model"])
    loss = model.loss(model.scores(codec.decode(result["weights"])["weights"], as_features(X)), np.asarray(y, np.int64))
    return {"history": [{**result["history"][-1], "train_loss": loss}]}


def svd_seconds(dataset: Dataset) -> Iterator[str]:
    """How long the node with the most rows takes for its singular values (Figure 4.28)."""
    yield ""
    yield (
        f"Seconds of the SVD at the node with the most rows, once a job, one thread ({runs.machine()}); the document: "
        "1.5 to 4.5 seconds on MNIST, 1.5 to 5 on Fashion-MNIST."
    )
    yield ""
    yield from tables.head("rows", "K", "most rows", "seconds")
    with threadpool_limits(1):
        for partition in PARTITIONS:
            for K in NODES:
                dealt: list[Any] = [*Experiment(dataset, K, partition, 1, 1).deal().values()]
                rows = as_features(max((X for X, _ in dealt), key=len)).astype(np.float64)
                started = time.perf_counter()
                np.linalg.svd(rows, compute_uv=False)
                yield tables.row(partition, K, f"{len(rows):,}", f"{time.perf_counter() - started:.1f}")


def main(dataset: Dataset, full: bool) -> None:
    """Print and keep the tables and figures."""
    about = "Seed 1. Packets are all bytes sent, both ways; gap is (J_test - J_train) / (J_test + J_train)."
    protocols_ = len([*protocols("logreg", "sgd")])
    most = protocols_ * (len(PASSES) * len(OPTIMIZERS) * len(PARTITIONS) * len(NODES) if full else 1)
    if full:
        most += 1 + len(STARTS) + 2 * protocols_ + 4 * len(CUTS) + (6 if dataset.name in MORE_STEPS else 0)
        most += 3 * len(PARTITIONS) * len(NODES) + 3 * 15 if dataset.name == "mnist" else 0
    tables.page(DOCUMENT, f"Reddy 2020 on {dataset.name}", full, lines(dataset, full), about, most, dataset.name)
