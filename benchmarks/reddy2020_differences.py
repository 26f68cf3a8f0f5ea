"""Tables that test why our numbers differ from those of Reddy 2020: readings, steps, cuts, starts, gaps."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest import mock

import numpy as np

from benchmarks import runs, tables
from benchmarks.reddy2020_setup import (
    DOCUMENT,
    NODES,
    OPTIMIZERS,
    PARTITIONS,
    PASSES,
    batches,
    gap,
    protocols,
    read_as,
    sent,
    settings_of,
    told,
)
from benchmarks.starts import STARTS, weights
from v6_dynavg import schedule
from v6_federated import Answer, Answers, LocalSGD, models
from v6_federated.base.randomness import generator
from v6_federated.data.reading import as_features
from v6_federated.messages import codec
from v6_federated.node import local_training
from v6_federated.node.node import Node
from v6_workbench.simulation import partitions
from v6_workbench.simulation.datasets import Dataset
from v6_workbench.simulation.experiments import Experiment, OnRound

STEPS = {"800: 50 passes of a node, K = 31": 800, "3,350: K = 7": 3350, "23,450: of all rows": 23450}
# with this B one of 31 nodes takes the 67 steps a pass that one of 7 takes with B = 128
SAME_STEPS = 29
# the steps a pass of one of 7 nodes with balanced rows; model, rows and K for which all nodes take as many
STEPS_A_PASS = 67
MORE_STEPS_A_PASS, SMALL_BATCH = 4 * STEPS_A_PASS, 32
DEALS = (1, 2, 3)
ALIKE_STEPS = (
    *(("logreg", partition, (7, 23, 31)) for partition in PARTITIONS[1:]),
    *(("nn_reddy", partition, (7, 31)) for partition in PARTITIONS[2:]),
)
# where the document's Delta sends as much as the SVD or more, and ours sends less with B = 128
MORE_STEPS = {"mnist": ("sgd", "sorted-unbalanced"), "fashion_mnist": ("adam", "unbalanced")}
# similar rows, for which the document finds a small gap, and dissimilar ones
GAPS = ("balanced", "sorted-balanced")


def lines(dataset: Dataset) -> Iterator[str]:
    if dataset.name == "mnist":
        yield from readings(dataset)
        yield from same_steps(dataset)
        yield from alike_steps(dataset)
        yield from more_alike_steps(dataset)
        yield from readings_of_adam(dataset)
    if dataset.name in MORE_STEPS:
        yield from contiguous(dataset)
        yield from more_steps(dataset)
    yield from losses(dataset)
    yield from starts(dataset)
    yield from gaps(dataset)
    yield from gaps_of_rounds(dataset)


def runs_of(dataset: Dataset) -> int:
    """How many runs ``lines`` reads or makes."""
    kept = 4 * len(PASSES) * len(GAPS) * len([*protocols("logreg", "sgd")])  # both tables of gaps, two each
    most = 1 + len(STARTS) + len(PASSES) * len(GAPS) + kept + (12 + 4 * 4 if dataset.name in MORE_STEPS else 0)
    of_mnist = 5 * len(PARTITIONS) * len(NODES) + 3 * 15 + 2 * sum(len(sizes) for *_, sizes in ALIKE_STEPS)
    of_mnist += 3 * len(DEALS) + 4 * len(PARTITIONS)
    return most + (of_mnist if dataset.name == "mnist" else 0)


def of_all(renewed: bool) -> Callable[[Mapping[int, float], int, int], dict[int, Any]]:
    """Plans of Algorithm 4 from the last losses of all nodes, not only of S_t; for S_t, or for all (``renewed``)."""
    last: dict[int, float] = {}

    def plans(q: Mapping[int, float], E: int, start: int) -> dict[int, Any]:
        last.update(q)
        every = ours(last, E, start)
        return every if renewed else {k: every[k] for k in q}

    ours = schedule.plans
    return plans


def readings(dataset: Dataset) -> Iterator[str]:
    """Whose losses Algorithm 4 compares, whose plans it renews, whose models it sums, and from which model nodes
    train."""
    yield ""
    yield (
        "Readings of Algorithm 4: whose losses are normalised, whose plans are renewed, whose models are summed, and "
        "whether a node that is due trains from the newest model. S_t are the nodes that communicate in round t. "
        "Logistic regression, SGD: how many times fewer uploads than rho = 1, and accuracy. The document: about 8 "
        "times fewer, similar on all partitions."
    )
    yield ""
    yield from tables.head(
        "rows",
        "K",
        "all S_t's (ours)",
        "all K's last losses",
        "all K's last losses, all K's plans",
        "all K's last models",
        "from the newest model",
    )
    values = {**settings_of("logreg", "sgd"), "protocol": "loss", "rounds": PASSES["logreg"]}
    values["evaluate_every"] = values["rounds"]
    for partition in PARTITIONS:
        for K in NODES:
            experiment = Experiment(dataset, K, partition, 1, 1)
            found = [runs.kept(DOCUMENT, "dynavg", experiment, values)]
            for name, owner, part, reading in (
                ("all K's last, S_t's", schedule, "plans", of_all(False)),
                ("all K's last, all K's", schedule, "plans", of_all(True)),
                ("models of all K", Answers, "weighted_mean", sum_over_all()),
            ):
                train = functools.partial(read_as, experiment, values, owner, part, reading)
                found.append(runs.kept_as(DOCUMENT, told(experiment, "dynavg", values, reading=name), train))
            found.append(runs.kept(DOCUMENT, "dynavg", experiment, {**values, "train_from": "newest"}))
            cells = (f"{1 / sent(run, K):.1f}, {run.history[-1]['accuracy']:.3f}" for run in found)
            yield tables.row(partition, K, *cells)


def sum_over_all() -> Callable[..., np.ndarray]:
    """The boxes' mean over all K nodes: a node that did not communicate counts with the model that it sent last."""
    last: dict[int, Answer] = {}
    ours = Answers.weighted_mean

    def mean(answers: Answers, name: str = "weights") -> np.ndarray:
        last.update({a.organization_id: a for a in lasting(answers)})
        return ours(Answers([*last.values()]), name)

    return mean


def lasting(answers: Answers) -> list[Answer]:
    """The answers with models that outlast their round, after which a job drops them."""
    return [dataclasses.replace(a, arrays=dict(a.arrays)) for a in answers.each()]


def same_steps(dataset: Dataset) -> Iterator[str]:
    """Whether 31 nodes differ from seven because they take fewer steps."""
    yield ""
    yield (
        f"Communication rate and accuracy if one of 31 nodes takes as many steps a pass as one of 7: B = {SAME_STEPS} "
        "instead of 128."
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


def alike_steps(dataset: Dataset) -> Iterator[str]:
    """Whether Delta sends most with many nodes on sorted-unbalanced rows if small nodes take as many steps."""
    yield ""
    yield (
        f"Communication rate and accuracy if every node takes {STEPS_A_PASS} steps of B = 128 a pass, however many "
        "rows it has (it goes through them again and again), SGD. The document's Delta sends most with 23 and 31 "
        "nodes on sorted-unbalanced rows."
    )
    yield ""
    yield from tables.head("model", "rows", "protocol", "K = 7", "K = 23", "K = 31")
    for model, partition, sizes in ALIKE_STEPS:
        E = PASSES[model]
        for delta in OPTIMIZERS["sgd"][1]:
            cells = dict.fromkeys((7, 23, 31), "-")
            for K in sizes:
                # one process, so that its nodes read what is patched here
                experiment = Experiment(dataset, K, partition, 1, 1, processes=1)
                values = {**settings_of(model, "sgd"), "protocol": "divergence", "delta": delta, "rounds": E}
                values["evaluate_every"] = E
                cells[K] = "{:.2f}, {:.3f}".format(*with_steps(experiment, values, STEPS_A_PASS))
            yield tables.row(model, partition, f"Delta = {delta}", *cells.values())


def more_alike_steps(dataset: Dataset) -> Iterator[str]:
    """Whether Delta = 0.8 sends as much as the SVD with 31 nodes that take more steps, by deal."""
    yield ""
    yield (
        f"Communication rate by deal of Delta = 0.8 with 31 nodes that each take {MORE_STEPS_A_PASS} steps of B = "
        f"{SMALL_BATCH} a pass, and of the SVD: logistic regression, SGD."
    )
    yield ""
    yield from tables.head("rows", "protocol", *(f"deal {cut}" for cut in DEALS))
    E = PASSES["logreg"]
    values = {**settings_of("logreg", "sgd", SMALL_BATCH), "protocol": "divergence", "delta": 0.8, "rounds": E}
    values["evaluate_every"] = E
    for partition in PARTITIONS[2:]:
        experiments = [Experiment(dataset, 31, partition, 1, cut, processes=1) for cut in DEALS]
        found = [with_steps(experiment, values, MORE_STEPS_A_PASS)[0] for experiment in experiments]
        yield tables.row(partition, "Delta = 0.8", *(f"{rate:.2f}" for rate in found))
    partition = "sorted-unbalanced"
    # one step a pass, as in "Uploads by SVD": its rate is that of the rows
    values = {**settings_of("logreg", "sgd"), "batch_size": None, "protocol": "svd", "rounds": E, "evaluate_every": E}
    found = [
        sent(runs.kept(DOCUMENT, "dynavg", Experiment(dataset, 31, partition, 1, cut), values), 31) for cut in DEALS
    ]
    yield tables.row(partition, "SVD", *(f"{rate:.2f}" for rate in found))


def with_steps(experiment: Experiment, values: dict[str, Any], steps: int) -> tuple[float, float]:
    """Communication rate and accuracy if a pass of every node is ``steps`` minibatches."""
    settings = told(experiment, "dynavg", values, reading=f"{steps} steps a pass at every node")
    run = runs.kept_as(DOCUMENT, settings, functools.partial(in_a_circle, experiment, values, steps))
    assert isinstance(experiment.nodes, int)
    return sent(run, experiment.nodes), run.history[-1]["accuracy"]


def in_a_circle(
    experiment: Experiment, values: dict[str, Any], steps: int, on_round: OnRound | None
) -> Mapping[str, Any]:
    """Dynamic averaging in which a pass is ``steps`` minibatches; rows are shuffled and used again as needed."""

    def batches(rng: np.random.Generator, n: int, epochs: int, batch_size: int, least: int = 1) -> Iterator[np.ndarray]:
        rows = steps * batch_size
        for _ in range(epochs):
            order = np.concatenate([rng.permutation(n) for _ in range(-(-rows // n))])[:rows]
            yield from order.reshape(steps, batch_size)

    with mock.patch.object(local_training, "batches", batches):
        return experiment.federated("dynavg", values, on_round)


def readings_of_adam(dataset: Dataset) -> Iterator[str]:
    """Whether Delta under Adam comes nearer to rho = 1 by another reading of the box."""
    yield ""
    yield (
        "Readings of Algorithm 1 under Adam, logistic regression, Delta = 2.2, K = 7: Adam's moments start from zero "
        "in each pass or are kept, the mean is weighted by rows or plain, and a node takes the steps of its rows or "
        f"{STEPS_A_PASS}. Communication rate and accuracy. The document: on balanced rows like the SVD, on the others "
        "more like rho = 1."
    )
    yield ""
    yield from tables.head("rows", "ours", "moments kept", "plain mean", f"{STEPS_A_PASS} steps")
    E = PASSES["logreg"]
    values = {**settings_of("logreg", "adam"), "protocol": "divergence", "delta": 2.2, "rounds": E, "evaluate_every": E}
    for partition in PARTITIONS:
        # one process, so that its nodes read what is patched here
        experiment = Experiment(dataset, 7, partition, 1, 1, processes=1)
        found = [runs.kept(DOCUMENT, "dynavg", experiment, values)]
        for name, train in (
            ("Adam's moments kept", functools.partial(with_moments_kept, experiment, values)),
            ("plain mean", functools.partial(read_as, experiment, values, Answers, "weighted_mean", Answers.mean)),
        ):
            found.append(runs.kept_as(DOCUMENT, told(experiment, "dynavg", values, reading=name), train))
        cells = [f"{sent(run, 7):.2f}, {run.history[-1]['accuracy']:.3f}" for run in found]
        steps = "{:.2f}, {:.3f}".format(*with_steps(experiment, values, STEPS_A_PASS))
        yield tables.row(partition, *cells, steps)


def with_moments_kept(experiment: Experiment, values: dict[str, Any], on_round: OnRound | None) -> Mapping[str, Any]:
    """Dynamic averaging in which a node's optimizer keeps its moments from pass to pass."""
    steps: dict[int, local_training.Step] = {}
    ours = Node.train

    def train(self: Node, w: Any, local: LocalSGD) -> float | None:
        step = steps.setdefault(self.organization_id, self.optimizer(local, w))
        return ours(self, w, local, step)

    with mock.patch.object(Node, "train", train):
        return experiment.federated("dynavg", values, on_round)


def contiguous(dataset: Dataset) -> Iterator[str]:
    """Whether the number of labels a node explains the difference: sorted rows cut into one part a node."""
    yield ""
    yield (
        "Communication rate and accuracy if sorted rows are cut into one contiguous part a node instead of two, so "
        "that some nodes have one label: logistic regression, SGD. The document ensures two labels by a rule that it "
        "does not print."
    )
    yield ""
    chosen = [p for p in protocols("logreg", "sgd") if p[0] in ("FedAvg rho = 1", "DynAvg svd") or "Delta" in p[0]]
    yield from tables.head("rows", "K", "labels a node", *(name for name, *_ in chosen))
    E = PASSES["logreg"]
    with mock.patch.dict(partitions.PARTITIONS, CONTIGUOUS):
        for partition in CONTIGUOUS:
            for K in NODES:
                experiment = Experiment(dataset, K, partition, 1, 1)
                dealt: list[Any] = [*experiment.deal().values()]
                cells = []
                for _, method, own in chosen:
                    values = {**settings_of("logreg", "sgd"), **own, "evaluate_every": E}
                    run = runs.kept(DOCUMENT, method, experiment, values)
                    rate = f"{sent(run, K):.2f}, " if method == "dynavg" else ""
                    cells.append(f"{rate}{run.history[-1]['accuracy']:.3f}")
                yield tables.row(partition, K, f"{np.mean([len(np.unique(y)) for _, y in dealt]):.1f}", *cells)


def _random_parts(y: np.ndarray, nodes: int, rng: np.random.Generator) -> partitions.Parts:
    while True:
        parts = partitions.random_cuts(np.argsort(y, kind="stable"), nodes, rng)
        if min(map(len, parts)) >= 10:
            return parts


CONTIGUOUS = {
    "contiguous-balanced": lambda y, nodes, rng: np.array_split(np.argsort(y, kind="stable"), nodes),
    "contiguous-unbalanced": _random_parts,
}


def more_steps(dataset: Dataset) -> Iterator[str]:
    """Whether Delta sends as much as the SVD if nodes take more steps."""
    optimizer, partition = MORE_STEPS[dataset.name]
    yield ""
    yield f"Communication rates with four times the steps: logistic regression, {optimizer}, {partition}."
    yield ""
    sizes = [(K, B) for K in NODES for B in (128, 32)]
    yield from tables.head("protocol", *(f"K = {K}, B = {B}" for K, B in sizes))
    E = PASSES["logreg"]
    protocols_: dict[str, dict[str, Any]] = {
        **{f"Delta = {delta}": {"protocol": "divergence", "delta": delta} for delta in OPTIMIZERS[optimizer][1]},
        "SVD": {"protocol": "svd"},
    }
    for name, own in protocols_.items():
        cells = []
        for K, B in sizes:
            B = B if "delta" in own else 128  # the SVD's rate depends on the rows alone
            values = {**settings_of("logreg", optimizer, B), **own, "rounds": E, "evaluate_every": E}
            run = runs.kept(DOCUMENT, "dynavg", Experiment(dataset, K, partition, 1, 1), values)
            cells.append(f"{sent(run, K):.2f}")
        yield tables.row(name, *cells)


def losses(dataset: Dataset) -> Iterator[str]:
    """Why fewer of the network's nodes communicate by loss on sorted rows: their losses after the first pass."""
    yield ""
    yield (
        "Losses of 31 nodes after the first pass, SGD: the least, the largest, the median scaled so that these are 0 "
        "and 1, and how many nodes are due again by round 4 because of their loss."
    )
    yield ""
    yield from tables.head("model", "rows", "least", "largest", "median of 0 to 1", "due again")
    for model, E in PASSES.items():
        for partition in GAPS:
            experiment = Experiment(dataset, 31, partition, 1, 1)
            values = {**settings_of(model, "sgd"), "protocol": "loss", "rounds": 1}
            settings = told(experiment, "dynavg", values, measured="loss of each node after the first pass")
            run = runs.kept_as(DOCUMENT, settings, functools.partial(after_one_pass, experiment, values))
            J = {row["round"]: row["train_loss"] for row in run.history}  # by node
            least, largest = min(J.values()), max(J.values())
            median = (float(np.median([*J.values()])) - least) / (largest - least)
            due = sum(plan.rho <= 3 for plan in schedule.plans(J, E - 1, 1).values())
            yield tables.row(model, partition, f"{least:.3f}", f"{largest:.3f}", f"{median:.2f}", due)


def after_one_pass(experiment: Experiment, values: dict[str, Any], on_round: OnRound | None) -> dict[str, Any]:
    """A history with a row a node, whose ``train_loss`` is the node's loss after its first pass."""
    nodes = experiment.federated("dynavg", values, on_round)["per_node"]
    return {"history": [{"round": row["organization_id"], "train_loss": row["local_loss"]} for row in nodes]}


def starts(dataset: Dataset) -> Iterator[str]:
    """How much the start and the number of steps matter to the network under SGD."""
    yield ""
    yield "SGD on all rows, B = 128, rate 0.01: test accuracy after as many steps as a node takes."
    yield ""
    yield from tables.head("model", "start", *STEPS)
    for model, start in (("logreg", "torch"), *(("nn_reddy", start) for start in STARTS)):
        settings = {
            "method": "sgd",
            "start": start,
            "model": model,
            "data": f"{dataset.name} {runs.digest(dataset)}",
            "batch_size": 128,
            "rounds": max(STEPS.values()),
            "seed": 1,
        }
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
    """The gap by what J_train is: the loss of minibatches, of the nodes' own models, or of the last global model."""
    yield ""
    yield (
        "The generalisation gap by what J_train is, SGD, K = 7: the mean loss of the nodes' minibatches since they "
        "last communicated (as above), of their own models on their own rows before the last average, or of the last "
        "global model on all rows."
    )
    yield ""
    yield from tables.head("model", "rows", "protocol", "batches", "nodes' own", "global")
    for model in PASSES:
        for partition in GAPS:
            experiment = Experiment(dataset, 7, partition, 1, 1)
            for name, method, own in protocols(model, "sgd"):
                values = {**settings_of(model, "sgd"), **own, "evaluate_every": own["rounds"]}
                run = runs.kept(DOCUMENT, method, experiment, values)
                measured = "loss of the nodes' own models, then of the global one on all rows"
                settings = told(experiment, method, values, measured=measured)
                train = functools.partial(at_the_end, experiment, method, values)
                ends = [row["train_loss"] for row in runs.kept_as(DOCUMENT, settings, train).history]
                yield tables.row(model, partition, name, *(f"{gap(run, J):+.3f}" for J in (None, *ends)))


def gaps_of_rounds(dataset: Dataset) -> Iterator[str]:
    """The gap if J_train is the mean of the losses that nodes sent in all rounds."""
    yield ""
    yield "The generalisation gap if J_train is the mean of the minibatches' losses that nodes sent in all rounds, SGD."
    yield ""
    yield from tables.head("model", "rows", "protocol", *(f"K = {K}" for K in NODES))
    for model in PASSES:
        for partition in GAPS:
            for name, method, own in protocols(model, "sgd"):
                values = {**settings_of(model, "sgd"), **own, "evaluate_every": own["rounds"]}
                cells = []
                for K in NODES:
                    run = runs.kept(DOCUMENT, method, Experiment(dataset, K, partition, 1, 1), values)
                    cells.append(f"{gap(run, float(np.mean(batches(run)))):+.3f}")
                yield tables.row(model, partition, name, *cells)


def at_the_end(experiment: Experiment, method: str, values: dict[str, Any], on_round: OnRound | None) -> dict[str, Any]:
    """A history with two rows. Their ``train_loss`` is the loss of the models that were averaged last, each on its
    node's rows, and the loss of the last global model on all rows."""
    averaged: list[Answer] = []
    ours = Answers.weighted_mean

    def remembered(answers: Answers, name: str = "weights") -> np.ndarray:
        averaged[:] = lasting(answers)
        return ours(answers, name)

    with mock.patch.object(Answers, "weighted_mean", remembered):
        result = experiment.federated(method, values, on_round)
    model = models.build(result["model"])

    def J(w: np.ndarray, X: Any, y: Any) -> float:
        return model.loss(model.scores(w, as_features(X)), np.asarray(y, np.int64))

    dealt: dict[int, Any] = experiment.deal()
    assert isinstance(experiment.dataset.rows, tuple)
    own = np.average(
        [J(a.arrays["weights"], *dealt[a.organization_id]) for a in averaged], weights=[a.n for a in averaged]
    )
    whole = J(codec.decode(result["weights"])["weights"], *experiment.dataset.rows)
    return {"history": [{**result["history"][-1], "train_loss": loss} for loss in (float(own), whole)]}
