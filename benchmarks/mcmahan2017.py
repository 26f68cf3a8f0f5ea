"""McMahan et al. 2017: rounds of the 2NN to 97% and of the CNN to 99% on MNIST, and Figure 1.

Every number of the paper is the best of a grid of learning rates; so is ours, on a grid of 10^(1/3). The grid is
searched with the first seed; the row's other seeds use the rate found. The first rows have three seeds, the others one.
Of the CNN's rows those that take a core half an hour to 100 minutes a rate have one rate; those that take longer are
tried on a GPU only (V6_FEDERATED_DEVICE=cuda).
"""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

from benchmarks import pictures, runs, starts, tables
from v6_federated import LocalSGD, models
from v6_federated.base.randomness import generator
from v6_federated.data.source import as_features
from v6_federated.node import local_training
from v6_workbench.reporting.report import COLOURS, STYLES
from v6_workbench.simulation.datasets import Dataset
from v6_workbench.simulation.experiments import Experiment

matplotlib.use("Agg")
from matplotlib import pyplot as plt

DOCUMENT = "mcmahan2017"
GRID = (0.1, 0.215, 0.464, 0.0464)
FULL_BATCH_GRID = (0.464, 1.0, 0.215)
CNN_GRID = (0.1, 0.215)
ONE_RATE = {  # by rows, C, E and B
    ("shards", 0.1, 1, None): 0.1,
    ("shards", 0.0, 5, None): 0.1,
    ("iid", 0.1, 20, 50): 0.1,
    ("shards", 0.0, 5, 10): 0.1,  # with 0.215 still at 0.10 after 28 rounds
}
HALF_AN_HOUR, LONGEST = 1800.0, 6000.0  # seconds
SEEDS = (1, 2, 3)
TARGET = {"2nn": 0.97, "cnn_mcmahan": 0.99}
# rows, E and B that Tables 1 and 2 both have for the CNN, and the smaller count: one setting is run once
IN_TWO_TABLES = {("iid", 5, None): 179, ("shards", 5, 10): 206, ("shards", 5, None): 1000}


@dataclass(frozen=True)
class Row:
    """One cell of the paper: its setting, the paper's rounds, how far ours may go, and whether it takes hours."""

    table: str
    model: str
    partition: str
    C: float
    E: int
    B: int | None
    paper: int
    most: int
    grid: Sequence[float] = GRID
    seeds: Sequence[int] = SEEDS
    reduced: bool = False
    hours: bool = False
    start: str = "torch"

    @property
    def tried(self) -> bool:
        """Whether it is run here, where it is not kept."""
        return not self.hours or runs.on_gpu()


def effort(model: str, C: float, E: int, B: int | None, rounds: int) -> float:
    """About the seconds that a rate takes a core."""
    epoch = 0.9 if model == "cnn_mcmahan" else 0.005 if B is None else 0.21 / B  # of 600 rows
    return rounds * (max(1, 100 * C) * E * epoch + 0.06)


def row(table: str, model: str, partition: str, C: float, E: int, B: int | None, paper: int) -> Row:
    """A cell with one seed, to as many rounds as the paper's and a little more."""
    if model == "cnn_mcmahan":
        count = IN_TWO_TABLES.get((partition, E, B), paper) if C == 0.1 else paper
        seconds = effort(model, C, E, B, paper)
        one = HALF_AN_HOUR < seconds <= LONGEST
        # the larger was mostly the better
        grid = (ONE_RATE.get((partition, C, E, B), max(CNN_GRID)),) if one else CNN_GRID
        return Row(table, model, partition, C, E, B, paper, round(1.5 * count), grid, (1,), hours=seconds > LONGEST)
    grid = (0.464, 0.215) if B is None else (0.215, 0.1)  # which were best in the first rows
    return Row(table, model, partition, C, E, B, paper, round(1.5 * paper), grid, (1,))


# Table 1: C, and the paper's rounds IID with B all and 10, on shards with B all and 10
TABLE_1: dict[str, dict[float, tuple[int | None, ...]]] = {
    "2nn": {
        0.0: (1455, None, 4278, 3275),
        0.1: (None, None, 1796, None),
        0.2: (1658, None, 1528, 619),
        0.5: (None, None, None, 443),
        1.0: (None, None, None, 380),
    },
    "cnn_mcmahan": {
        0.0: (387, 50, 1181, 956),
        0.1: (339, None, 1100, 206),
        0.2: (337, 18, 978, 200),
        0.5: (164, 18, 1067, 261),
        1.0: (246, 16, None, 97),
    },
}
# Tables 2 (CNN) and 4 (2NN), C = 0.1: E, B and the paper's rounds IID and on shards
TABLES_2_4: dict[str, list[tuple[int, int | None, int | None, int | None]]] = {
    "cnn_mcmahan": [
        (1, None, 626, 483),
        (5, None, 179, 1000),
        (1, 50, 65, 600),
        (20, None, 234, 672),
        (1, 10, 34, 350),
        (5, 50, 29, 334),
        (20, 50, 32, 426),
        (5, 10, None, 229),
        (20, 10, 18, 173),
    ],
    "2nn": [
        (10, None, 156, 1100),
        (1, 50, 144, 1183),
        (20, None, 92, 957),
        (1, 10, None, None),
        (10, 50, 45, 881),
        (20, 50, 39, 835),
        (10, 10, None, 497),
        (20, 10, 32, 738),
    ],
}
CELLS = (("iid", None), ("iid", 10), ("shards", None), ("shards", 10))
FIRST_ROWS = [
    Row("1", "2nn", "iid", 0.1, 1, 10, 87, 300, reduced=True),
    Row("1", "2nn", "shards", 0.1, 1, 10, 664, 600),
    Row("4", "2nn", "iid", 0.1, 10, 10, 34, 100),
    Row("1", "2nn", "iid", 0.0, 1, 10, 316, 600),
    Row("1", "2nn", "iid", 0.2, 1, 10, 77, 200),
    Row("1", "2nn", "iid", 0.5, 1, 10, 75, 150),
    Row("1", "2nn", "iid", 1.0, 1, 10, 70, 120),
    Row("4", "2nn", "iid", 0.1, 1, None, 1468, 3000, grid=FULL_BATCH_GRID),
    # settings that the paper has in two tables, with two counts
    Row("1", "2nn", "iid", 0.1, 1, None, 1474, 3000, grid=FULL_BATCH_GRID),
    Row("4", "2nn", "iid", 0.1, 1, 10, 92, 300),
    Row("4", "2nn", "shards", 0.1, 1, 10, 831, 600),
    Row("1", "cnn_mcmahan", "iid", 0.1, 5, 10, 18, 60, grid=CNN_GRID, seeds=(1,)),
    Row("2", "cnn_mcmahan", "iid", 0.1, 5, 10, 20, 60, grid=CNN_GRID, seeds=(1,)),
]
OTHERS = [
    Row("4", "2nn", "shards", 0.1, 1, None, 1817, round(1.5 * 1796), (0.464, 0.215), (1,)),
    *(
        row("4" if model == "2nn" else "2", model, partition, 0.1, E, B, paper)
        for model in ("2nn", "cnn_mcmahan")
        for E, B, *cells in TABLES_2_4[model]
        for partition, paper in zip(("iid", "shards"), cells, strict=True)
        if paper is not None
    ),
    *(
        row("1", model, partition, C, 1 if model == "2nn" else 5, B, paper)
        for model, by_share in TABLE_1.items()
        for C, cells in by_share.items()
        for (partition, B), paper in zip(CELLS, cells, strict=True)
        if paper is not None
    ),
]


# what a night does not finish is what takes longest
ROWS = [*FIRST_ROWS, *sorted(OTHERS, key=lambda r: (r.hours, effort(r.model, r.C, r.E, r.B, r.paper)))]


# by where networks start, the rates that are tried in cells: model, rows, C, E, B
STARTS = {"torch": starts.STARTS["torch"], "keras": starts.STARTS["keras"], "tutorial": "of TensorFlow's tutorial"}
OTHER_STARTS: dict[tuple[str, str, float, int, int | None], dict[str, Sequence[float]]] = {
    ("2nn", "iid", 0.1, 1, 10): dict.fromkeys(STARTS, GRID),
    ("2nn", "shards", 0.1, 1, 10): dict.fromkeys(STARTS, (0.1, 0.215)),
    # with 0.1 the CNN learns nothing from the tutorial's start
    ("cnn_mcmahan", "iid", 0.0, 5, 10): {"torch": CNN_GRID, "keras": CNN_GRID, "tutorial": (0.0215, 0.0464)},
    ("cnn_mcmahan", "iid", 0.1, 1, 50): {"torch": (0.215,), "keras": (0.215,), "tutorial": (0.0464,)},
}
# best loss of a parent and loss of the average, as the paper's Figure 1 shows them, about
FIGURE_1 = {"independent initialization": ((1, 2), 0.45, 1.2), "common initialization": ((1, 1), 0.46, 0.39)}


def train(dataset: Dataset, row: Row, lr: float, rounds: int, seed: int) -> runs.Run:
    """One run, ended when the target is reached."""
    ours = row.start == "torch"
    model = row.model if ours else starts.register(row.model, row.start)
    values = {
        "model": model,
        "rounds": rounds,
        "fraction": row.C,
        "epochs": row.E,
        "batch_size": row.B,
        "lr": lr,
        "target": TARGET[row.model],
    }
    processes = None if ours else 1  # in which that model is known
    experiment = Experiment(dataset, 100, row.partition, seed, seed, processes=processes)
    segment = 5 if row.model == "cnn_mcmahan" else 100
    return runs.kept(DOCUMENT, "fedavg", experiment, values, segment=segment, new=row.tried)


def table(dataset: Dataset, full: bool) -> Iterator[str]:
    """The Markdown table, a line as soon as it is known."""
    panels: dict[str, dict[str, pictures.Line]] = {}
    yield from tables.head("table", "model", "rows", "C", "E", "B", "paper's rounds", "ours, by seed", "rate")
    for row in ROWS:
        if not (full or row.reduced):
            continue
        known = row.table, row.model, row.partition, f"{row.C:g}", row.E, row.B or "all", row.paper
        lines = panels.setdefault(f"{row.model}, {row.partition}, C = 0.1", {}) if row.C == 0.1 else {}
        found = functools.partial(cells, dataset, row, full, lines)
        yield tables.trained(known, found, 2, tables.NOT_RUN_YET if row.tried else "not tried")
    picture = runs.RESULTS / f"{DOCUMENT}{'' if full else '-reduced'}.png"
    names = [*dict.fromkeys(f"E = {row.E}, B = {row.B or 'all'}" for row in ROWS if row.C == 0.1)]
    targets = {title: TARGET[title.partition(",")[0]] for title in panels}
    label = "best test accuracy so far"
    if pictures.curves(panels, picture, ylabel=label, bottom=0.8, target=targets, log=True, names=names):
        yield ""
        yield "Learning curves of the rows with C = 0.1 that reach the target, first seed, until then, as the paper's"
        yield "Figures 2 and 7:"
        yield ""
        yield f"![best accuracy by round]({picture.name})"


def cells(dataset: Dataset, row: Row, full: bool, lines: dict[str, pictures.Line]) -> tuple[str, str | None]:
    """Rounds to the target by seed, and the rate that takes the fewest; the first seed's curve goes into ``lines``."""
    target, grid = TARGET[row.model], list(row.grid)

    def first_seed(lr: float, rounds: int) -> runs.Run:
        return train(dataset, row, lr, rounds, row.seeds[0])

    while found := runs.best_rate(grid, first_seed, target, row.most):
        lr, first = found
        others = [train(dataset, row, lr, row.most, seed) for seed in runs.seeds(row.seeds)[1:] if full]
        reached = [run.reached(target) for run in (first, *others)]
        if None not in reached:
            best = np.maximum.accumulate(tables.accuracies(first))
            lines[f"E = {row.E}, B = {row.B or 'all'}"] = range(1, len(best) + 1), [best.tolist()]
            return ", ".join(f"{r:.0f}" for r in reached), f"{lr:g}"
        grid.remove(lr)  # a rate with which another seed fails is no rate to recommend
    return f"not reached in {row.most}", ", ".join(map(str, row.grid))


def figure_1(dataset: Dataset, picture: Path, full: bool = True) -> Iterator[str]:
    """Loss on all training rows of theta w + (1 - theta) w', from one seed and from two (the paper's Figure 1)."""
    thetas = np.linspace(-0.2, 1.2, 50).tolist()
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), constrained_layout=True)
    yield from tables.head("Figure 1", "start", "w", "w'", "average", "paper's better parent, about", "average, about")
    for axis, (title, (seeds, parent, average)) in zip(axes, FIGURE_1.items(), strict=True):
        for i, (start, name) in enumerate([*STARTS.items()][: None if full else 1]):
            settings = {
                "method": "figure 1",
                "data": f"{dataset.name} {runs.digest(dataset)}",
                "model": "2nn",
                "seeds": seeds,
                "thetas": [*thetas, 1, 0, 0.5],
                **({} if start == "torch" else {"start": start}),
            }
            trained = functools.partial(mixed, dataset, start, seeds, settings["thetas"])
            *losses, w, w2, middle = [row["loss"] for row in runs.kept_as(DOCUMENT, settings, trained).history]
            axis.plot(thetas, losses, STYLES[i], color=COLOURS[i], label=name)
            yield tables.row(title, name, f"{w:.3f}", f"{w2:.3f}", f"{middle:.3f}", parent, average)
        for theta in (0, 1):
            axis.axvline(theta, color="0.5", linewidth=0.8)
        axis.set(title=title, xlabel="mixing weight theta", ylabel="loss on all 60,000 training rows")
    axes[1].legend(frameon=False, title="start")
    figure.savefig(picture, dpi=120)
    plt.close(figure)


def mixed(dataset: Dataset, start: str, seeds: Sequence[int], thetas: Sequence[float], _: object) -> dict[str, Any]:
    """A history of a row a theta: the loss of theta w + (1 - theta) w', each trained on 600 rows of its own."""
    assert isinstance(dataset.rows, tuple)
    X, y = as_features(dataset.rows[0]), np.asarray(dataset.rows[1], dtype=np.int64)
    model = models.build({"name": "2nn", "features": X.shape[1], "classes": 10})
    order = generator(1, "figure 1").permutation(len(y))

    def parent(seed: int, k: int) -> np.ndarray:
        own = order[600 * k : 600 * (k + 1)]
        w = starts.weights(start, model, generator(seed, "figure 1 init"))
        step = local_training.optimizer(LocalSGD(), lambda i: 0.1, w)
        for batch in local_training.batches(generator(k, "figure 1 shuffle"), 600, 20, 50):
            _, g = model.loss_and_gradient(w, X[own[batch]], y[own[batch]])
            step(w, g)
        return w

    w, w2 = parent(seeds[0], 0), parent(seeds[1], 1)
    vectors = ((theta * w + (1 - theta) * w2).astype(np.float32) for theta in thetas)
    return {"history": [{"round": i, "loss": model.loss(model.scores(v, X), y)} for i, v in enumerate(vectors, 1)]}


def other_rates(dataset: Dataset) -> Iterator[str]:
    """How much the rate matters: rounds to the target for each rate of the grid, first row, first seed."""
    row = ROWS[0]
    yield from tables.head("rate", "rounds to 97%, IID, C = 0.1, E = 1, B = 10, seed 1")
    for lr in sorted(row.grid):
        reached = train(dataset, row, lr, row.most, row.seeds[0]).reached(TARGET[row.model])
        yield tables.row(lr, f"not in {row.most}" if reached is None else f"{reached:.0f}")


def other_starts(dataset: Dataset) -> Iterator[str]:
    """Whether networks come to the paper's rounds from another start."""
    yield "Rounds to the target from other starts, by rate, seed 1; in brackets the best accuracy of a run that does"
    yield "not come to it."
    yield ""
    yield from tables.head("model", "rows", "C", "E", "B", "paper's", "start", "rounds here, by rate")
    for setting, rates in OTHER_STARTS.items():
        cell = next(r for r in ROWS if (r.model, r.partition, r.C, r.E, r.B) == setting)
        for start, grid in rates.items():
            known = *setting[:2], f"{cell.C:g}", cell.E, cell.B, cell.paper, STARTS[start]
            yield tables.trained(known, functools.partial(by_rate, dataset, replace(cell, start=start), grid), 1)


def by_rate(dataset: Dataset, cell: Row, rates: Sequence[float]) -> list[str]:
    """Of each rate the rounds to the target, or the best accuracy; in one cell."""
    target, found = TARGET[cell.model], list[str]()
    for lr in sorted(rates):
        run = train(dataset, cell, lr, cell.most, cell.seeds[0])
        reached = run.reached(target)
        found.append(f"{lr:g}: " + (f"({max(tables.accuracies(run)):.4f})" if reached is None else f"{reached:.0f}"))
    return ["; ".join(found)]


def main(dataset: Dataset, full: bool) -> None:
    """Print and keep the tables and the figure."""

    def lines() -> Iterator[str]:
        yield from other_rates(dataset)
        yield ""
        yield from figure_1(dataset, runs.RESULTS / f"{DOCUMENT}-figure1.png", full)
        yield ""
        yield f"![Figure 1]({DOCUMENT}-figure1.png)"
        yield ""
        yield from table(dataset, full)
        if full:
            yield ""
            yield from other_starts(dataset)

    about = "Rounds until the 2NN reaches 97% and the CNN 99% on the 10,000 test rows (best so far, interpolated)."
    chosen = [row for row in ROWS if row.tried and (full or row.reduced)]
    most = sum(len(row.grid) + (len(row.seeds) - 1 if full else 0) for row in chosen) + len(ROWS[0].grid)
    most += len(FIGURE_1) * (len(STARTS) if full else 1)
    most += sum(len(grid) for rates in OTHER_STARTS.values() for grid in rates.values()) if full else 0
    tables.page(DOCUMENT, "McMahan et al. 2017 on MNIST", full, lines(), about, most)
