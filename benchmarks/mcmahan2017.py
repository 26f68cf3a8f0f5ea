"""McMahan et al. 2017: rounds of the 2NN to 97% and of the CNN to 99% on MNIST, and Figure 1.

Every number of the paper is the best of a grid of learning rates; so is ours, on a grid of 10^(1/3). The grid is
searched with the first seed; the row's other seeds use the rate found. 2NN rows have three seeds, CNN rows one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np

from benchmarks import runs, tables
from v6_federated import models, training
from v6_federated.data import as_features
from v6_federated.datasets import Dataset
from v6_federated.experiments import Experiment
from v6_federated.randomness import generator

matplotlib.use("Agg")
from matplotlib import pyplot as plt

DOCUMENT = "mcmahan2017"
GRID = (0.1, 0.215, 0.464, 0.0464)
SEEDS = (1, 2, 3)
TARGET = {"2nn": 0.97, "cnn_mcmahan": 0.99}


@dataclass(frozen=True)
class Row:
    """One cell of the paper: its setting, the paper's rounds, and how far ours may go."""

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


ROWS = [
    Row("1", "2nn", "iid", 0.1, 1, 10, 87, 300, reduced=True),
    Row("1", "2nn", "shards", 0.1, 1, 10, 664, 600, reduced=True),
    Row("4", "2nn", "iid", 0.1, 10, 10, 34, 100),
    Row("1", "2nn", "iid", 0.0, 1, 10, 316, 600),
    Row("1", "2nn", "iid", 0.2, 1, 10, 77, 200),
    Row("1", "2nn", "iid", 0.5, 1, 10, 75, 150),
    Row("1", "2nn", "iid", 1.0, 1, 10, 70, 120),
    Row("4", "2nn", "iid", 0.1, 1, None, 1468, 3000, grid=(0.464, 1.0, 0.215)),
    Row("1", "cnn_mcmahan", "iid", 0.1, 5, 10, 18, 60, grid=(0.1, 0.215), seeds=(1,)),
]


def train(dataset: Dataset, row: Row, lr: float, rounds: int, seed: int) -> runs.Run:
    """One run, ended when the target is reached."""
    values = {
        "model": row.model, "rounds": rounds, "fraction": row.C, "epochs": row.E, "batch_size": row.B, "lr": lr,
        "target": TARGET[row.model],
    }  # fmt: skip
    return runs.kept(DOCUMENT, "fedavg", Experiment(dataset, 100, row.partition, seed, seed), values)


def table(dataset: Dataset, full: bool) -> Iterator[str]:
    """The Markdown table, a line as soon as it is known."""
    yield "| table | model | rows | C | E | B | paper's rounds | ours, by seed | rate |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    for row in ROWS:
        if not (full or row.reduced):
            continue
        target = TARGET[row.model]

        def first_seed(lr: float, rounds: int, row: Row = row) -> runs.Run:
            return train(dataset, row, lr, rounds, row.seeds[0])

        grid = list(row.grid)
        while found := runs.best_rate(grid, first_seed, target, row.most):
            lr, first = found
            others = [train(dataset, row, lr, row.most, seed) for seed in row.seeds[1:] if full]
            reached = [run.reached(target) for run in (first, *others)]
            if None not in reached:
                break
            grid.remove(lr)  # a rate with which another seed fails is no rate to recommend
        head = f"| {row.table} | {row.model} | {row.partition} | {row.C:g} | {row.E} | {row.B or 'all'} | {row.paper} |"
        if found is None:
            yield f"{head} not reached in {row.most} | {', '.join(map(str, row.grid))} |"
            continue
        ours = ", ".join(f"{r:.0f}" for r in reached)
        yield f"{head} {ours} | {lr:g} |"


def figure_1(dataset: Dataset, picture: Path) -> str:
    """Loss on all training rows of theta w + (1 - theta) w', from one seed and from two (the paper's Figure 1)."""
    assert isinstance(dataset.rows, tuple)
    X, y = as_features(dataset.rows[0]), np.asarray(dataset.rows[1], dtype=np.int64)
    model = models.build({"name": "2nn", "features": X.shape[1], "classes": 10})
    order = generator(1, "figure 1").permutation(len(y))
    own = [order[:600], order[600:1200]]
    thetas = np.linspace(-0.2, 1.2, 50)

    def parent(seed: int, k: int) -> np.ndarray:
        w = model.init(generator(seed, "figure 1 init"))
        step = training.optimizer("sgd", lambda i: 0.1)
        for batch in training.batches(generator(k, "figure 1 shuffle"), 600, 20, 50):
            _, g = model.loss_and_gradient(w, X[own[k]][batch], y[own[k]][batch])
            step(w, g)
        return w

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), constrained_layout=True)
    lines = []
    for axis, title, seeds in (
        (axes[0], "independent initialization", (1, 2)),
        (axes[1], "common initialization", (1, 1)),
    ):
        w, w2 = parent(seeds[0], 0), parent(seeds[1], 1)
        losses = [model.loss(model.scores((t * w + (1 - t) * w2).astype(np.float32), X), y) for t in thetas]
        ends = [model.loss(model.scores(v, X), y) for v in (w2, w)]
        middle = model.loss(model.scores(((w + w2) / 2).astype(np.float32), X), y)
        axis.plot(thetas, losses, color="#0072B2")
        axis.axhline(min(ends), color="0.5", linewidth=0.8)
        for theta in (0, 1):
            axis.axvline(theta, color="0.5", linewidth=0.8)
        axis.set(title=title, xlabel="mixing weight theta", ylabel="loss on all 60,000 training rows")
        lines.append(f"| {title} | {ends[1]:.3f} | {ends[0]:.3f} | {middle:.3f} |")
    figure.savefig(picture, dpi=120)
    plt.close(figure)
    return "\n".join(["| Figure 1 | w | w' | average |", "| --- | --- | --- | --- |", *lines])


def other_rates(dataset: Dataset) -> Iterator[str]:
    """How much the rate matters: rounds to the target for each rate of the grid, first row, first seed."""
    row = ROWS[0]
    yield from tables.head("rate", "rounds to 97%, IID, C = 0.1, E = 1, B = 10, seed 1")
    for lr in sorted(row.grid):
        reached = train(dataset, row, lr, row.most, row.seeds[0]).reached(TARGET[row.model])
        yield tables.row(lr, f"not in {row.most}" if reached is None else f"{reached:.0f}")


def main(dataset: Dataset, full: bool) -> None:
    """Print and keep the tables and the figure."""

    def lines() -> Iterator[str]:
        yield from table(dataset, full)
        yield ""
        yield from other_rates(dataset)
        yield ""
        yield figure_1(dataset, runs.RESULTS / f"{DOCUMENT}-figure1.png")
        yield ""
        yield f"![Figure 1]({DOCUMENT}-figure1.png)"

    about = "Rounds until the 2NN reaches 97% and the CNN 99% on the 10,000 test rows (best so far, interpolated)."
    chosen = [row for row in ROWS if full or row.reduced]
    most = sum(len(row.grid) + (len(row.seeds) - 1 if full else 0) for row in chosen) + len(ROWS[0].grid)
    tables.page(DOCUMENT, "McMahan et al. 2017 on MNIST", full, lines(), about, most)
