"""Tables on Reddy 2020 that test how much a number depends on which rows each node is dealt."""

import functools
from collections.abc import Iterator, Mapping
from typing import Any
from unittest import mock

from benchmarks import runs, tables
from benchmarks.reddy2020_differences import CONTIGUOUS, STEPS_A_PASS, with_steps
from benchmarks.reddy2020_setup import (
    DOCUMENT,
    NODES,
    OPTIMIZERS,
    PARTITIONS,
    PASSES,
    read_as,
    sent,
    settings_of,
    told,
)
from v6_dynavg import schedule
from v6_workbench.simulation import partitions
from v6_workbench.simulation.datasets import Dataset
from v6_workbench.simulation.experiments import Experiment

PLANS = schedule.plans
CUTS = (1, 2, 3, 4, 5)
# in the fifth unbalanced deal to 31 nodes one node has too few rows of a class to take part
UNBALANCED_CUTS = CUTS[:4]
SIZES = (7, 15, 23, 31)
# rows and K for which the SVD's uploads are counted: whether they reach a plateau, and on which rows there are more
COUNTED = (
    *(("balanced", K) for K in SIZES),
    *((partition, K) for partition in ("unbalanced", "sorted-unbalanced") for K in NODES),
    *((partition, 7) for partition in CONTIGUOUS),
)
# rows and deals for which the network is trained with Delta under SGD
NETWORKS = (("sorted-balanced", 1), *(("sorted-unbalanced", cut) for cut in CUTS[:3]))
# optimizer, rows, K and deal for which the document compares the SVD's accuracy with those of Delta and rho = 1
COMPARED = (
    *(("sgd", "sorted-balanced", 7, cut) for cut in CUTS),
    *(("sgd", "sorted-balanced", K, 1) for K in SIZES[1:]),
    *(("sgd", "balanced", K, 1) for K in NODES),
    *(("adam", "sorted-balanced", 7, cut) for cut in CUTS),
    ("adam", "sorted-balanced", 31, 1),
)


def lines(dataset: Dataset) -> Iterator[str]:
    yield from cuts(dataset)
    yield from svd_uploads(dataset)
    yield from loss_uploads(dataset)
    yield from compared(dataset)
    yield from networks(dataset)
    yield from one_shot(dataset)


def runs_of() -> int:
    """How many runs ``lines`` reads or makes."""
    return len(CUTS) * (4 + len(COUNTED)) + 2 * len(UNBALANCED_CUTS) + 6 * len(COMPARED) + 4 * len(NETWORKS) + 16


def cuts(dataset: Dataset) -> Iterator[str]:
    """How much the rates of the SVD and of Delta under Adam depend on the deal."""
    yield ""
    yield (
        f"Communication rates by deal of the rows (seeds {CUTS[0]} to {CUTS[-1]}; the tables above have {CUTS[0]}), "
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


def svd_uploads(dataset: Dataset) -> Iterator[str]:
    """Whether the SVD's packets reach a plateau as nodes are added, and on which rows it sends more."""
    yield ""
    yield (
        "Uploads by SVD in 100 passes by number of nodes and deal; rho = 1 has 100 K. They depend on the rows alone, "
        "not on what is trained (here with one step a pass)."
    )
    yield ""
    yield from tables.head("rows", "K", *(f"deal {cut}" for cut in CUTS))
    E = PASSES["logreg"]
    values = {**settings_of("logreg", "sgd"), "batch_size": None, "protocol": "svd", "rounds": E, "evaluate_every": E}
    for partition, K in COUNTED:
        chosen = CUTS if partition == "balanced" else UNBALANCED_CUTS
        with mock.patch.dict(partitions.PARTITIONS, CONTIGUOUS):
            found = [runs.kept(DOCUMENT, "dynavg", Experiment(dataset, K, partition, 1, cut), values) for cut in chosen]
        absent = [None] * (len(CUTS) - len(chosen))
        yield tables.row(partition, K, *(f"{sent(run, K) * K * E:,.0f}" for run in found), *absent)


def loss_uploads(dataset: Dataset) -> Iterator[str]:
    """Whether dynamic averaging by loss sends more on unbalanced rows."""
    yield ""
    yield "Uploads by loss in 100 passes, logistic regression, SGD, K = 31, by deal; rho = 1 has 3,100."
    yield ""
    yield from tables.head("rows", *(f"deal {cut}" for cut in UNBALANCED_CUTS), "mean")
    E = PASSES["logreg"]
    values = {**settings_of("logreg", "sgd"), "protocol": "loss", "rounds": E, "evaluate_every": E}
    for partition in PARTITIONS[:2]:
        experiments = [Experiment(dataset, 31, partition, 1, cut) for cut in UNBALANCED_CUTS]
        counts = [sent(runs.kept(DOCUMENT, "dynavg", one, values), 31) * 31 * E for one in experiments]
        yield tables.row(partition, *(f"{n:.0f}" for n in counts), f"{sum(counts) / len(counts):.0f}")


def compared(dataset: Dataset) -> Iterator[str]:
    """Whether the SVD is as accurate as Delta and rho = 1: by deal, number of nodes, the model from which a node that
    is due trains, and how often the node with the least index communicates."""
    yield ""
    yield (
        "Accuracy of the SVD, of rho = 1 and of Delta (0.3 with SGD, 2.2 with Adam), logistic regression, by number "
        "of nodes and deal. A node that is due has trained on from the model it was last sent (ours), does all its "
        "passes from the newest model, or only those of its rounds (`newest_pass`). The node with the least index "
        "communicates once, in the last round (equation 3.9, ours), or in each round (the sentence before equation "
        "3.8)."
    )
    yield ""
    yield from tables.head(
        "optimizer",
        "rows",
        "K",
        "deal",
        "rho = 1",
        "Delta",
        "SVD (ours): rate, accuracy",
        "from the newest model",
        "in its rounds",
        "the least in each round: rate, accuracy",
    )
    E = PASSES["logreg"]
    for optimizer, partition, K, cut in COMPARED:
        experiment = Experiment(dataset, K, partition, 1, cut)
        values = {**settings_of("logreg", optimizer), "rounds": E, "evaluate_every": E}
        divergence = {**values, "protocol": "divergence", "delta": OPTIMIZERS[optimizer][1][0]}
        svd = {**values, "protocol": "svd"}
        reading = told(experiment, "dynavg", svd, reading="the least in each round")
        one, delta, ours, newest, idle, each = (
            runs.kept(DOCUMENT, "fedavg", experiment, {**values, "epochs": 1}),
            runs.kept(DOCUMENT, "dynavg", experiment, divergence),
            runs.kept(DOCUMENT, "dynavg", experiment, svd),
            runs.kept(DOCUMENT, "dynavg", experiment, {**svd, "train_from": "newest"}),
            runs.kept(DOCUMENT, "dynavg", experiment, {**svd, "train_from": "newest_pass"}),
            runs.kept_as(
                DOCUMENT, reading, functools.partial(read_as, experiment, svd, schedule, "plans", least_in_each_round)
            ),
        )
        yield tables.row(
            optimizer,
            partition,
            K,
            cut,
            accuracy(one),
            accuracy(delta),
            f"{sent(ours, K):.2f}, {accuracy(ours)}",
            accuracy(newest),
            accuracy(idle),
            f"{sent(each, K):.2f}, {accuracy(each)}",
        )


def networks(dataset: Dataset) -> Iterator[str]:
    """How much Delta's rate and accuracy with the network depend on the deal."""
    yield ""
    yield (
        "The network by deal, SGD, K = 7: the accuracy of rho = 1, and Delta's rate and accuracy; in the last column "
        f"its rate if every node takes {STEPS_A_PASS} steps a pass."
    )
    yield ""
    yield from tables.head(
        "rows",
        "deal",
        "rho = 1",
        *(f"Delta = {delta}" for delta in OPTIMIZERS["sgd"][1]),
        f"Delta = 0.8, {STEPS_A_PASS} steps",
    )
    E = PASSES["nn_reddy"]
    values = {**settings_of("nn_reddy", "sgd"), "rounds": E, "evaluate_every": E}
    for partition, cut in NETWORKS:
        experiment = Experiment(dataset, 7, partition, 1, cut, processes=1)
        cells = [accuracy(runs.kept(DOCUMENT, "fedavg", experiment, {**values, "epochs": 1}))]
        for delta in OPTIMIZERS["sgd"][1]:
            run = runs.kept(DOCUMENT, "dynavg", experiment, {**values, "protocol": "divergence", "delta": delta})
            cells.append(f"{sent(run, 7):.2f}, {accuracy(run)}")
        rate, _ = with_steps(experiment, {**values, "protocol": "divergence", "delta": 0.8}, STEPS_A_PASS)
        yield tables.row(partition, cut, *cells, f"{rate:.2f}")


def one_shot(dataset: Dataset) -> Iterator[str]:
    """Whether a single average at the end costs accuracy if nodes have similar rows."""
    yield ""
    yield "One-shot averaging (rho = 100) of logistic regression, and rho = 1: accuracy."
    yield ""
    yield from tables.head("optimizer", "rows", *(f"K = {K}, rho = {rho}" for K in NODES for rho in (1, 100)))
    E = PASSES["logreg"]
    for optimizer in OPTIMIZERS:
        for partition in PARTITIONS[:2]:
            cells = []
            for K in NODES:
                for rho in (1, E):
                    values = {**settings_of("logreg", optimizer), "epochs": rho, "rounds": E // rho}
                    values["evaluate_every"] = values["rounds"]
                    run = runs.kept(DOCUMENT, "fedavg", Experiment(dataset, K, partition, 1, 1), values)
                    cells.append(accuracy(run))
            yield tables.row(optimizer, partition, *cells)


def accuracy(run: runs.Run) -> str:
    return f"{run.history[-1]['accuracy']:.3f}"


def least_in_each_round(q: Mapping[int, float], E: int, start: int) -> dict[int, Any]:
    """Plans in which q'_k = 0 gives rho_k = 1, as the sentence before equation 3.8 says."""
    low = min(q.values())
    return {k: schedule.Plan(1, 1) if q[k] == low else plan for k, plan in PLANS(q, E, start).items()}
