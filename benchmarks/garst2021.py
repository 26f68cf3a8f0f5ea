"""S.J.F. Garst's thesis of 2021, Tables D.1 to D.5: linear models and small networks on 2-class and 4-class MNIST and
on Fashion-MNIST, federated over 10 nodes and centralized; four seeds.

The thesis does not say what a round of its linear models is, where they start, all rates, the digits, or what its "AUC"
is. The author's scripts and curves do (github.com/swiergarst/FedvsCent, read for facts): the digits are 2, 4, 8 and 9;
a round is one pass of scikit-learn's ``SGDClassifier``, which takes a step a row, with a penalty of 1e-4, one class
against the rest, from a start uniform in (0, 1); federated networks start from standard normal parameters; and the AUC
is the area under the accuracy by round.
"""

import contextlib
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks import pictures, runs, starts, tables
from benchmarks.comparisons import Comparison
from v6_federated import models
from v6_federated.models.linear import LinearModel
from v6_workbench.reporting.pictures import distances, write
from v6_workbench.simulation.datasets import Dataset
from v6_workbench.simulation.experiments import Experiment

DOCUMENT = "garst2021"
SEEDS = (1, 2, 3, 4)
NODES = 10
STARTS = {"uniform": "uniform in (0, 1)", "normal": "standard normal", "torch": "PyTorch's"}
WAYS = {
    ("fedavg", "iid"): "IID",
    ("fedavg", "class"): "CI",
    ("fedavg", "shards:10"): "CI",
    ("fedavg", "size"): "SI",
    ("fedavg", "powerlaw"): "CI",
    ("scaffold", "class"): "CI, SCAFFOLD",
    ("centralized", "iid"): "centralized",
}


MEAN = "the accuracy is a mean over rounds, which the area counts already"
ROUNDS_CHOSEN = "the thesis does not print the rounds; they were chosen because these cells then fit"
START_CHOSEN = "the start of a centralized network, which the author's curves suggest"


class FromRandom(LinearModel):
    """A linear model as ``SGDClassifier(penalty="l2")`` trains it, from the author's start. It has one classifier a
    class, also with the logistic loss, for which ours is one softmax."""

    def __init__(self, loss: Any, features: int, classes: int) -> None:
        super().__init__(loss, features, classes, l2=1e-4)

    def init(self, rng: np.random.Generator) -> np.ndarray:
        return rng.uniform(0, 1, self.size).astype(np.float32)

    def losses_and_slopes(self, scores: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if self.kind == "hinge":
            return super().losses_and_slopes(scores, y)
        signs = self.signs(y)
        margins = signs * scores
        return np.logaddexp(0, -margins).sum(axis=1), -signs * np.exp(-np.logaddexp(0, margins))


for _network in ("fnn", "cnn_garst"):
    starts.register(_network, "normal")
models.register("lr_garst", lambda features, classes: FromRandom("logistic", features, classes))
models.register("svm_garst", lambda features, classes: FromRandom("hinge", features, classes))


@dataclass(frozen=True)
class Row:
    """A row of the thesis.

    Attributes:
        table: its table; "-" if the thesis does not have the row.
        model, data: network or linear model, and classes.
        method: "centralized" has all rows at one node.
        partition: how rows are dealt.
        lr: learning rate.
        accuracy, area: the thesis's final accuracy and area under the accuracy by round; None if it has none.
        batches: minibatches a round; None is a step a row.
        rounds: rounds of a run.
        area_rounds: the area is of the first rounds, at most so many.
        start: where the model starts, a key of ``STARTS``.
    """

    table: str
    model: str
    data: str
    method: str
    partition: str
    lr: float
    accuracy: float | None
    area: float | None
    batches: int | None = 1
    rounds: int = 100
    area_rounds: int = 500
    start: str = "uniform"

    @property
    def last(self) -> bool:
        """Whether the printed accuracy is the last round's. In Table D.3, and of the FNN in Table D.4, it is the mean
        over the rounds of one run: it equals that of the author's curves to three digits."""
        return self.table != "D.3" and self.model != "fnn"

    @property
    def run(self) -> tuple[object, ...]:
        """What distinguishes its runs. The FNN takes one step on all rows a round, so all ways to deal the rows, and
        centralized training from the same start, give the same models."""
        if self.model == "fnn":
            return self.model, self.data, self.start
        return self.model, self.data, self.method, self.partition, self.lr, self.start, self.rounds

    @property
    def not_counted(self) -> str:
        """Why the row is not counted, if so."""
        fitted = self.data == "10 classes" and self.built == "lr_garst"
        return ROUNDS_CHOSEN if fitted and (self.method, self.lr) != ("centralized", 5e-5) else ""

    @property
    def built(self) -> str:
        """The name of the model with its start."""
        return f"{self.model}_normal" if self.start == "normal" else self.model

    @property
    def panel(self) -> str:
        """The title of the panel of the picture that shows it."""
        model = "" if self.table == "D.3" else f"{self.model.removesuffix('_garst').upper()}, "
        return f"{'' if self.table == '-' else f'{self.table}, '}{model}{self.data}"

    @property
    def name(self) -> str:
        """The name of its line there."""
        model = f"{self.model.removesuffix('_garst').upper()} " if self.table == "D.3" else ""
        rate = f" {self.lr:g}" if self.table in ("D.1", "D.5") else ""
        return f"{model}{WAYS[self.method, self.partition]}{rate}"


def linear(
    table: str,
    model: str,
    data: str,
    method: str,
    partition: str,
    lr: float,
    accuracy: float | None,
    area: float | None,
    rounds: int = 100,
) -> Row:
    """A row of a linear model, which takes a step a row."""
    return Row(table, f"{model}_garst", data, method, partition, lr, accuracy, area, None, rounds, area_rounds=100)


def network(
    table: str,
    model: str,
    data: str,
    method: str,
    partition: str,
    lr: float,
    accuracy: float | None,
    area: float | None,
    batches: int = 1,
    rounds: int = 100,
) -> Row:
    """A row of a network. The author's scripts start federated ones with standard normal parameters. There is no script
    of centralized ones; by the first rounds of their curves the FNN of 2 classes starts so too, others as PyTorch."""
    normal = method != "centralized" or (model, data) == ("fnn", "2 classes")
    start = "normal" if normal else "torch"
    return Row(table, model, data, method, partition, lr, accuracy, area, batches, rounds, start=start)


def four_ways(
    data: str, table: str, model: str, lr: float, theirs: Sequence[tuple[float | None, float | None]]
) -> list[Row]:
    """IID, CI, SCAFFOLD, SI and centralized, with the thesis's accuracy and area of each."""
    ways = [("fedavg", "iid"), ("fedavg", "class"), ("scaffold", "class"), ("fedavg", "size"), ("centralized", "iid")]
    build = network if model == "fnn" else linear
    return [
        build(table, model, data, method, partition, lr, accuracy, area)
        for (method, partition), (accuracy, area) in zip(ways, theirs, strict=True)
    ]


MNIST: list[Row] = [
    linear("D.1", "lr", "2 classes", "fedavg", "iid", 5e-2, 0.971, 0.960),
    linear("D.1", "lr", "2 classes", "centralized", "iid", 5e-2, 0.969, 0.959),
    linear("D.1", "lr", "2 classes", "fedavg", "iid", 5e-3, 0.971, 0.956),
    linear("D.1", "lr", "2 classes", "centralized", "iid", 5e-3, 0.971, 0.961),
    linear("D.1", "lr", "2 classes", "fedavg", "iid", 5e-4, 0.958, 0.899),
    linear("D.1", "lr", "2 classes", "centralized", "iid", 5e-4, 0.971, 0.955),
    linear("D.1", "lr", "2 classes", "fedavg", "iid", 5e-5, 0.795, 0.630),
    linear("D.1", "lr", "2 classes", "centralized", "iid", 5e-5, 0.958, 0.899),
    *four_ways(
        "2 classes",
        "D.2",
        "svm",
        5e-4,
        [(0.959, 0.907), (0.959, 0.905), (0.958, 0.904), (0.960, 0.912), (0.968, 0.955)],
    ),
    linear("D.3", "lr", "2 classes", "fedavg", "iid", 5e-3, 0.965, 0.956),
    linear("D.3", "lr", "2 classes", "centralized", "iid", 5e-3, 0.970, 0.961),
    linear("D.3", "svm", "2 classes", "fedavg", "iid", 5e-4, 0.911, 0.907),
    linear("D.3", "svm", "2 classes", "centralized", "iid", 5e-4, 0.965, 0.955),
    network("D.3", "cnn_garst", "2 classes", "fedavg", "iid", 5e-2, 0.794, 0.815, 10),
    network("D.3", "cnn_garst", "2 classes", "centralized", "iid", 5e-2, 0.964, 0.946, 10),
    *four_ways(
        "2 classes", "D.4", "lr", 5e-3, [(0.971, 0.956), (0.970, 0.954), (0.971, 0.955), (0.970, 0.955), (0.971, 0.961)]
    ),
    *four_ways(
        "4 classes", "D.4", "lr", 5e-4, [(0.926, 0.897), (0.926, 0.897), (0.926, 0.897), (0.928, 0.900), (0.940, 0.926)]
    ),
    *four_ways("4 classes", "-", "svm", 5e-4, [(None, None)] * 5),
    *four_ways(
        "2 classes", "D.4", "fnn", 0.5, [(0.891, 0.870), (0.851, 0.867), (0.869, 0.862), (0.889, 0.870), (0.876, 0.863)]
    ),
    *four_ways(
        "4 classes", "D.4", "fnn", 0.5, [(0.806, 0.788), (0.806, 0.788), (0.806, 0.788), (0.806, 0.787), (0.855, 0.856)]
    ),
]
FASHION: list[Row] = [
    linear("D.5", "lr", "10 classes", "fedavg", "iid", 5e-5, 0.780, 0.651, rounds=200),
    linear("D.5", "lr", "10 classes", "fedavg", "shards:10", 5e-5, 0.740, 0.647),
    linear("D.5", "lr", "10 classes", "centralized", "iid", 5e-5, 0.842, 0.827, rounds=200),
    linear("D.5", "lr", "10 classes", "centralized", "iid", 5e-6, 0.742, 0.651),
    network("D.5", "cnn_garst", "10 classes", "fedavg", "iid", 5e-2, 0.740, 0.629, 10, 500),
    network("D.5", "cnn_garst", "10 classes", "centralized", "iid", 5e-2, 0.830, 0.812, 10, 500),
    network("D.5", "cnn_garst", "10 classes", "centralized", "iid", 5e-3, 0.813, 0.743, 10, 500),
]
AUTHORS_SHARES = linear("D.2", "svm", "2 classes", "fedavg", "powerlaw", 5e-4, 0.959, 0.905)
TEN_TIMES = linear("D.5", "lr", "10 classes", "centralized", "iid", 5e-4, 0.842, 0.827, rounds=200)
HEAT = linear("4.2", "lr", "2 classes", "fedavg", "iid", 5e-3, None, None)
DIGITS = {"2 classes": (4, 9), "4 classes": (2, 4, 8, 9)}


@functools.cache
def subset(dataset: Dataset, digits: tuple[int, ...]) -> Dataset:
    """The rows of some digits."""
    assert isinstance(dataset.rows, tuple) and dataset.test is not None

    def only(pair: tuple[Any, Any]) -> tuple[Any, Any]:
        chosen = np.isin(pair[1], digits)
        return pair[0][chosen], pair[1][chosen]

    return Dataset(f"{dataset.name}-{''.join(map(str, digits))}", only(dataset.rows), only(dataset.test))


def train(dataset: Dataset, row: Row, seed: int, rounds: int, distances: bool = False) -> runs.Run:
    """One run of a cell."""
    centralized = row.method == "centralized"
    nodes = 1 if centralized else NODES
    digits = DIGITS.get(row.data)
    experiment = Experiment(
        subset(dataset, digits) if digits else dataset,
        nodes,
        row.partition,
        seed,
        seed,
        processes=1,  # the models above are known in this one
    )
    assert isinstance(experiment.dataset.rows, tuple)
    n = len(experiment.dataset.rows[1]) // nodes
    values = {"model": row.built, "lr": row.lr, "rounds": rounds}
    if row.batches != 1:
        values["batch_size"] = 1 if row.batches is None else -(-n // row.batches)
    method = "fedavg" if centralized else row.method
    return runs.kept(DOCUMENT, method, experiment, values, distances=distances)


def area(run: runs.Run, rounds: int = 500) -> float:
    """The area under the accuracy by round, by trapezoids, over the number of rounds: what the thesis calls AUC."""
    accuracies = tables.accuracies(run)[:rounds]
    return float(np.trapezoid(accuracies)) / len(accuracies)


def lines(dataset: Dataset, full: bool) -> Iterator[tables.Line]:
    fashion = dataset.name == "fashion_mnist"
    rows, panels = FASHION if fashion else MNIST, dict[str, dict[str, pictures.Line]]()
    known = "table", "model", "start", "data", "method", "rows", "rate", "rounds"
    compared = (cell for what in ("accuracy", "area") for cell in (f"{what} Garst", what, "verdict"))
    yield from tables.head(*known, "accuracy of", *compared)
    seen = set[object]()
    for row in rows:
        rounds = row.rounds if full else 3
        seeds = runs.seeds(SEEDS) if full else SEEDS[:1]
        found: tuple[float | None, float | None] = None, None
        with contextlib.suppress(runs.NotRun):
            found = numbers(dataset, row, seeds, rounds, panels.setdefault(row.panel, {}))
        cells = list[object]()
        for name, ours in zip(("accuracy", "area"), found, strict=True):
            yield from (comparison := compare(rows, row, name, ours, len(seeds), seen))
            verdict = comparison[0].verdict if comparison and not comparison[0].not_counted else None
            cells += printed(getattr(row, name)), tables.NOT_RUN_YET if ours is None else printed(ours), verdict
        what = "the last round" if row.last else "all rounds, mean"
        model = row.model.removesuffix("_garst")
        rate = f"{row.lr:g}"
        yield tables.row(
            row.table, model, STARTS[row.start], row.data, row.method, row.partition, rate, rounds, what, *cells
        )
    picture = f"{DOCUMENT}{'-fashion_mnist' if fashion else ''}{'' if full else '-reduced'}.png"
    if pictures.curves(panels, runs.RESULTS / picture, bottom=0.5 if full else None):
        yield ""
        yield "Mean of the seeds, and shaded from the lowest to the highest (Garst's Figures 4.1, 4.3 and 4.4):"
        yield ""
        yield f"![accuracy by round]({picture})"


def compare(
    rows: Sequence[Row], row: Row, name: str, ours: float | None, seeds: int, seen: set[object]
) -> Sequence[Comparison]:
    """The accuracy or area of a row beside all that the thesis prints for its run; nothing if it stands above."""
    alike = [r for r in rows if r.run == row.run and getattr(r, name) is not None]
    if name == "accuracy":
        alike = [r for r in alike if r.last == row.last]
    key = name, row.run, name == "area" or row.last
    if row not in alike or key in seen:
        return []
    seen.add(key)
    centralized = row.method == "centralized" and row.model in ("fnn", "cnn_garst")
    return [
        Comparison(
            f"Table {' and '.join(dict.fromkeys(r.table for r in alike))}",
            f"{row.model.removesuffix('_garst')}, {row.data}, {row.method}, {row.partition}, rate {row.lr:g}",
            tuple(dict.fromkeys(getattr(r, name) for r in alike)),
            None if ours is None else round(ours, 3),
            name,
            seeds,
            START_CHOSEN if centralized else "",
            row.not_counted or (MEAN if name == "accuracy" and not row.last else ""),
        )
    ]


def numbers(
    dataset: Dataset, row: Row, seeds: Sequence[int], rounds: int, panel: dict[str, pictures.Line]
) -> tuple[float, float]:
    """Accuracy and area, the mean of one run a seed; the curves go into ``panel``."""
    found = [train(dataset, row, seed, rounds) for seed in seeds]
    accuracies = [tables.accuracies(run) for run in found]
    panel[row.name] = range(1, rounds + 1), accuracies
    accuracy = np.mean([a[-1] if row.last else np.mean(a) for a in accuracies])
    return float(accuracy), float(np.mean([area(run, row.area_rounds) for run in found]))


def both(dataset: Dataset, row: Row) -> Sequence[str | None]:
    """Accuracy, the thesis's area and the area, of a table beside the main one."""
    accuracy, area_ = numbers(dataset, row, runs.seeds(SEEDS), row.rounds, {})
    return printed(accuracy), printed(row.area), printed(area_)


def printed(number: float | None) -> str | None:
    """A number to three digits."""
    return None if number is None else f"{number:.3f}"


def other_starts(dataset: Dataset) -> Iterator[str]:
    """The federated networks from PyTorch's start."""
    yield ""
    yield "Federated networks on IID rows by start: mean over the rounds, by seed."
    yield ""
    yield from tables.head("table", "model", "data", "start", *(f"seed {seed}" for seed in SEEDS))
    for row in MNIST:
        if row.start == "normal" and (row.method, row.partition) == ("fedavg", "iid"):
            for start in ("normal", "torch"):
                found = [train(dataset, replace(row, start=start), seed, row.rounds) for seed in SEEDS]
                cells = (f"{np.mean(tables.accuracies(run)):.3f}" for run in found)
                yield tables.row(row.table, row.model.removesuffix("_garst"), row.data, STARTS[start], *cells)


def authors_shares(dataset: Dataset) -> Iterator[str]:
    """The row of the SVM on CI, whose area differs most, with the author's own partition."""
    row = AUTHORS_SHARES
    yield ""
    yield "The SVM on CI with the author's shares of the classes, a power law:"
    yield ""
    yield from tables.head("table", "rows", "accuracy Garst", "accuracy", "area Garst", "area")
    yield tables.trained((row.table, row.partition, printed(row.accuracy)), functools.partial(both, dataset, row), 3)


def ten_times_the_rate(dataset: Dataset) -> Iterator[str]:
    """The centralized model of Fashion-MNIST, which does not reach the printed accuracy with the printed rate."""
    yield ""
    yield "The centralized logistic regression of Table D.5 with ten times the printed rate:"
    yield ""
    yield from tables.head("table", "rate", "rounds", "accuracy Garst", "accuracy", "area Garst", "area")
    row = TEN_TIMES
    known = row.table, f"{row.lr:g}", row.rounds, printed(row.accuracy)
    yield tables.trained(known, functools.partial(both, dataset, row), 3)


def heat_maps(dataset: Dataset, full: bool) -> Iterator[str]:
    """Distances of the nodes' models from the global one by round, with IID rows and with unlike classes."""
    yield ""
    yield f"Logistic regression, 2 classes, rate {HEAT.lr:g}: distance of each node's model from the global one, as in"
    yield "Garst's Figure 4.2, with IID rows, and with unlike shares of the classes, ours and the author's."
    for partition in ("iid", "class", "powerlaw") if full else ("iid", "class"):
        row = replace(HEAT, partition=partition)
        run = train(dataset, row, SEEDS[0], row.rounds if full else 3, distances=True)
        nodes = [
            {"organization_id": k, "round": r["round"], "distance": d}
            for r in run.history
            for k, d in enumerate(r["distances"], start=1)
        ]
        picture = f"{DOCUMENT}-distances-{partition}{'' if full else '-reduced'}.png"
        drawn = distances({"method": f"FedAvg, {partition}", "per_node": nodes, "history": run.history})
        write(drawn, runs.RESULTS / picture)
        yield ""
        yield f"![distance of the nodes' models, {partition}]({picture})"


def main(dataset: Dataset, full: bool) -> None:
    """Print and keep the tables."""
    fashion = dataset.name == "fashion_mnist"
    seeds = runs.seeds(SEEDS)
    most = len(FASHION if fashion else MNIST) * (len(seeds) if full else 1) + (0 if fashion else 30 if full else 2)
    about = (
        f"Accuracy, and area under the accuracy by round (of linear models the first 100 rounds), {_seeds(seeds)}. A "
        "dash as verdict: the row repeats an earlier run, equals it by construction, or has no number of its own to "
        "compare."
        if full
        else "Seed 1, 3 rounds of 100 to 500."
    )

    def all_() -> Iterator[tables.Line]:
        yield from lines(dataset, full)
        if fashion and full:
            yield from ten_times_the_rate(dataset)
        if not fashion:
            if full:
                yield from other_starts(dataset)
                yield from authors_shares(dataset)
            yield from heat_maps(dataset, full)

    title = f"Garst 2021 on {'Fashion-MNIST' if fashion else 'MNIST'}"
    tables.page(tables.Page(DOCUMENT, title, full, about, dataset.name), all_(), most)


def _seeds(seeds: Sequence[int]) -> str:
    return f"the mean of seeds {seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else f"one run each, seed {seeds[0]}"
