"""Nilsson et al. 2018, Table 1 and Figure 3: FedAvg, CO-OP, FSVRG and centralized training of the 2NN by 5-fold
cross-validation over all 70,000 rows of MNIST, with the same number of uploads, and the Bayesian correlated t-test of
each pair."""

import functools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from benchmarks import nilsson2018, runs, tables
from benchmarks.comparisons import Comparison
from v6_workbench.reporting import pictures, summary
from v6_workbench.simulation import model_comparison
from v6_workbench.simulation.datasets import Dataset
from v6_workbench.simulation.experiments import Experiment

DOCUMENT = "nilsson2018_cv"
ITERATIONS = 1  # the paper has three
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "FedAvg": ("fedavg", nilsson2018.FEDAVG),
    "CO-OP": ("coop", nilsson2018.COOP),
    "FSVRG": ("fsvrg", nilsson2018.FSVRG),
    # enough rounds to converge
    "centralized": ("fedavg", {"lr": 0.0703, "lr_decay_step": 3.77e-6, "batch_size": 10, "epochs": 1, "rounds": 30}),
}
# rounds after which a long run is kept and evaluated; not for CO-OP, whose nodes keep a state
SEGMENT = {"FedAvg": 100, "FSVRG": 5}
# row against column, as the paper prints them; it has no row for centralized training, which mirrors its column
TABLE_1 = {
    "iid": {"FedAvg": " ++=", "CO-OP": "- =-", "FSVRG": "-= -", "centralized": "=++ "},
    "shards": {"FedAvg": " ++-", "CO-OP": "- +-", "FSVRG": "-- -", "centralized": "+++ "},
}
SPEEDS = (1.0, 3.0, 10.0)  # how many times longer than the fastest node the slowest takes
OPPOSITE = {"+": "-", "-": "+"}


def train(one: Experiment, name: str, full: bool, slowest: float = 1.0) -> runs.Run:
    """A method on one fold. CO-OP's slowest node takes ``slowest`` times as long as its fastest, and the time of each
    call varies by about a fifth."""
    method, settings = METHODS[name]
    rounds = settings["rounds"] if full else max(2, settings["rounds"] // 50)
    values = {"model": "2nn", **settings, "rounds": rounds, "evaluate_every": rounds}
    experiment = replace(one, slowest=slowest) if method == "coop" else one
    segment = SEGMENT.get(name)
    return runs.kept(DOCUMENT, method, experiment, values, centralized=name == "centralized", segment=segment)


def score(run: runs.Run) -> float:
    """Accuracy of the last model."""
    return run.history[-1]["accuracy"]


def scores(dataset: Dataset, partition: str, full: bool) -> dict[str, list[float]]:
    """Accuracy of each method's last model on each fold."""
    found: dict[str, list[float]] = {name: [] for name in METHODS}
    for one in model_comparison.experiments_of(Experiment(dataset, 100, partition, 1, 1), ITERATIONS):
        for name in METHODS:
            found[name].append(score(train(one, name, full)))
    return found


def lines(dataset: Dataset, full: bool) -> Iterator[tables.Line]:
    for partition, printed in TABLE_1.items():
        accuracies = scores(dataset, partition, full)
        found = model_comparison.verdicts(accuracies, ITERATIONS)
        yield ""
        yield f"**{partition}**: accuracy by fold, and row against column, the paper's sign / ours: better (+), worse"
        yield "(-), equivalent (=), or undecided (?)."
        yield ""
        yield from tables.head("", *(f"fold {f + 1}" for f in range(model_comparison.FOLDS * ITERATIONS)), *METHODS)
        for name, own in accuracies.items():
            cells: list[str | None] = []
            for other, theirs in zip(METHODS, printed[name], strict=True):
                if other == name:
                    cells.append(None)
                    continue
                pair = found.get((name, other))
                reverse = found[other, name].sign if pair is None else ""
                ours = OPPOSITE.get(reverse, reverse) if pair is None else pair.sign
                if pair is not None:  # its mirror is no other comparison
                    yield Comparison("Table 1", f"{partition}: {name} against {other}", (theirs,), ours, "sign")
                cells.append(f"{theirs} / {ours}")
            yield tables.row(name, *(f"{a:.4f}" for a in own), *cells)
        picture = f"{DOCUMENT}-{partition}{'' if full else '-reduced'}.png"
        pictures.write(pictures.posteriors(found, model_comparison.ROPE), runs.RESULTS / picture)
        yield ""
        yield f"![posterior differences in accuracy]({picture})"
    yield from speeds(dataset, full)
    if full:
        yield from earlier(dataset)


def speeds(dataset: Dataset, full: bool) -> Iterator[str]:
    """What CO-OP loses if nodes differ in speed."""
    one = next(model_comparison.experiments_of(Experiment(dataset, 100, "iid", 1, 1), ITERATIONS))
    yield ""
    yield from tables.head("slowest node, times the fastest's time", "accuracy of CO-OP, IID, fold 1")
    for slowest in SPEEDS:
        yield tables.trained([f"{slowest:g}"], functools.partial(at_speed, one, full, slowest), 1)


def earlier(dataset: Dataset) -> Iterator[str]:
    """Whether the sign of FedAvg against centralized training, on shards, depends on FedAvg's last rounds."""
    folds = list(model_comparison.experiments_of(Experiment(dataset, 100, "shards", 1, 1), ITERATIONS))
    centralized = [score(train(one, "centralized", True)) for one in folds]
    fedavg = [{row["round"]: row["accuracy"] for row in train(one, "FedAvg", True).history} for one in folds]
    yield ""
    yield from tables.head("rounds of FedAvg, shards", "less centralized", "better", "equal", "worse")
    for t in range(600, 1001, 100):
        scores_ = {"FedAvg": [accuracy[t] for accuracy in fedavg], "centralized": centralized}
        found = model_comparison.verdicts(scores_, ITERATIONS)["FedAvg", "centralized"]
        yield tables.row(
            t, f"{found.difference:+.4f}", f"{found.better:.1%}", f"{found.equal:.1%}", f"{found.worse:.1%}"
        )


def at_speed(one: Experiment, full: bool, slowest: float) -> list[str]:
    """Accuracy of CO-OP on one fold."""
    return [f"{score(train(one, 'CO-OP', full, slowest)):.4f}"]


def main(dataset: Dataset, full: bool) -> None:
    """Print and keep the tables and pictures."""
    dataset = dataset if full else runs.first(dataset)
    about = (
        f"{ITERATIONS} x {model_comparison.FOLDS}-fold cross-validation (the paper: 3 x {model_comparison.FOLDS}), 100 "
        f"nodes, seed 1. A difference within {model_comparison.ROPE:.0%} is equivalent; a pair has a sign if its "
        f"probability is {summary.CERTAIN:.0%} or more. Each pair counts once, since its two signs mirror each other."
        + ("" if full else f" A fiftieth of the rounds, {runs.FIRST}.")
    )
    most = 2 * ITERATIONS * model_comparison.FOLDS * len(METHODS) + len(SPEEDS)
    title = "Nilsson et al. 2018, cross-validation on MNIST"
    tables.page(tables.Page(DOCUMENT, title, full, about), lines(dataset, full), most)
