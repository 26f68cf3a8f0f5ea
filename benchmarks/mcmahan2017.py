"""McMahan et al. 2017: rounds of the 2NN to 97% and of the CNN to 99% on MNIST, and Figure 1.

Every number of the paper is the best of a grid of learning rates, and so is ours, on a smaller grid of 10^(1/3). The
first seed searches the grid; the row's other seeds use the rate that it found. The first rows have three seeds, the
others one. CNN rows that take a core half an hour to 100 minutes a rate have one rate; rows that take longer run on a
GPU only (V6_FEDERATED_DEVICE=cuda).
"""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

from benchmarks import pictures, runs, starts, tables
from benchmarks.comparisons import RULES, Comparison
from v6_federated import LocalSGD, models
from v6_federated.base.randomness import generator
from v6_federated.data.reading import as_features
from v6_federated.node import local_training
from v6_workbench.reporting.pictures import COLOURS, STYLES
from v6_workbench.simulation import partitions
from v6_workbench.simulation.datasets import Dataset
from v6_workbench.simulation.experiments import Experiment

matplotlib.use("Agg")
from matplotlib import pyplot as plt

DOCUMENT = "mcmahan2017"
Setting = tuple[str, str, float, int, int | None]  # model, partition, C, E, B
GRID = (0.1, 0.215, 0.464, 0.0464)
FULL_BATCH_GRID = (0.464, 1.0, 0.215)
CNN_GRID = (0.1, 0.215)
ONE_RATE: dict[Setting, float] = {
    ("cnn_mcmahan", "shards", 0.1, 1, None): 0.1,
    ("cnn_mcmahan", "shards", 0.0, 5, None): 0.1,
    ("cnn_mcmahan", "iid", 0.1, 20, 50): 0.1,
    ("cnn_mcmahan", "shards", 0.0, 5, 10): 0.1,  # with 0.215 the accuracy is still 0.10 after 28 rounds
}
HALF_AN_HOUR, LONGEST = 1800.0, 6000.0  # seconds
SEEDS = (1, 2, 3)
TARGET = {"2nn": 0.97, "cnn_mcmahan": 0.99}


@dataclass(frozen=True)
class Row:
    """A setting of the paper.

    Attributes:
        setting: model, partition, C, E and B.
        paper: the paper's rounds by table; some settings are in two tables, with two numbers.
        most: rounds after which ours stops.
        grid: learning rates.
        seeds: the first searches the grid.
        reduced: whether it is run without --full.
        hours: whether a rate takes a core more than 100 minutes.
        start: where the network starts, a key of ``STARTS``.
    """

    setting: Setting
    paper: dict[str, int]
    most: int
    grid: Sequence[float] = GRID
    seeds: Sequence[int] = SEEDS
    reduced: bool = False
    hours: bool = False
    start: str = "torch"

    @property
    def tried(self) -> bool:
        """Whether it is run on this machine if it is not kept."""
        return not self.hours or runs.on_gpu()

    @property
    def target(self) -> float:
        """The accuracy to reach."""
        return TARGET[self.setting[0]]

    @property
    def cells(self) -> tuple[object, ...]:
        """Its tables and its setting, as a table shows them."""
        model, partition, C, E, B = self.setting
        return " and ".join(self.paper), model, partition, f"{C:g}", E, B or "all"


# Table 1: C, and the paper's rounds IID with B all and 10, on shards with B all and 10
TABLE_1: dict[str, dict[float, tuple[int | None, ...]]] = {
    "2nn": {
        0.0: (1455, 316, 4278, 3275),
        0.1: (1474, 87, 1796, 664),
        0.2: (1658, 77, 1528, 619),
        0.5: (None, 75, None, 443),
        1.0: (None, 70, None, 380),
    },
    "cnn_mcmahan": {
        0.0: (387, 50, 1181, 956),
        0.1: (339, 18, 1100, 206),
        0.2: (337, 18, 978, 200),
        0.5: (164, 18, 1067, 261),
        1.0: (246, 16, None, 97),
    },
}
# Tables 2 (CNN) and 4 (2NN), C = 0.1: E, B and the paper's rounds IID and on shards
TABLES_2_4: dict[str, list[tuple[int, int | None, int, int]]] = {
    "cnn_mcmahan": [
        (1, None, 626, 483),
        (5, None, 179, 1000),
        (1, 50, 65, 600),
        (20, None, 234, 672),
        (1, 10, 34, 350),
        (5, 50, 29, 334),
        (20, 50, 32, 426),
        (5, 10, 20, 229),
        (20, 10, 18, 173),
    ],
    "2nn": [
        (1, None, 1468, 1817),
        (10, None, 156, 1100),
        (1, 50, 144, 1183),
        (20, None, 92, 957),
        (1, 10, 92, 831),
        (10, 50, 45, 881),
        (20, 50, 39, 835),
        (10, 10, 34, 497),
        (20, 10, 32, 738),
    ],
}
# settings with several seeds or a grid of their own, the first that a stopped benchmark has done
FIRST: dict[Setting, dict[str, Any]] = {
    ("2nn", "iid", 0.1, 1, 10): {"most": 300, "reduced": True},
    ("2nn", "shards", 0.1, 1, 10): {"most": 600},
    ("2nn", "iid", 0.1, 10, 10): {"most": 100},
    ("2nn", "iid", 0.0, 1, 10): {"most": 600},
    ("2nn", "iid", 0.2, 1, 10): {"most": 200},
    ("2nn", "iid", 0.5, 1, 10): {"most": 150},
    ("2nn", "iid", 1.0, 1, 10): {"most": 120},
    ("2nn", "iid", 0.1, 1, None): {"most": 3000, "grid": FULL_BATCH_GRID},
    ("cnn_mcmahan", "iid", 0.1, 5, 10): {"most": 60, "grid": CNN_GRID, "seeds": (1,)},
}


def paper() -> dict[Setting, dict[str, int]]:
    """The paper's rounds by setting and table."""
    found: dict[Setting, dict[str, int]] = {}
    for model, by_share in TABLE_1.items():
        for C, counts in by_share.items():
            for (partition, B), rounds in zip(
                (("iid", None), ("iid", 10), ("shards", None), ("shards", 10)), counts, strict=True
            ):
                if rounds is not None:
                    found[model, partition, C, 1 if model == "2nn" else 5, B] = {"1": rounds}
    for model, rows in TABLES_2_4.items():
        for E, B, *both in rows:
            for partition, rounds in zip(("iid", "shards"), both, strict=True):
                found.setdefault((model, partition, 0.1, E, B), {})["4" if model == "2nn" else "2"] = rounds
    return found


def effort(row: Row) -> float:
    """About the seconds that a rate takes a core, to the paper's rounds."""
    model, _, C, E, B = row.setting
    epoch = 0.9 if model == "cnn_mcmahan" else 0.005 if B is None else 0.21 / B  # of 600 rows
    return min(row.paper.values()) * (max(1, 100 * C) * E * epoch + 0.06)


def row(setting: Setting, paper: dict[str, int]) -> Row:
    """A setting with one seed, to half as many rounds again as the paper's."""
    model, *_, B = setting
    grid: Sequence[float] = (0.464, 0.215) if B is None else (0.215, 0.1)  # which were best in the first rows
    plain = Row(setting, paper, round(1.5 * min(paper.values())), grid, (1,))
    if model == "2nn":
        return plain
    seconds = effort(plain)
    one = HALF_AN_HOUR < seconds <= LONGEST
    # the larger rate was mostly the better
    grid = (ONE_RATE.get(setting, max(CNN_GRID)),) if one else CNN_GRID
    return replace(plain, grid=grid, hours=seconds > LONGEST)


FIRST_ROWS = [Row(setting, paper()[setting], **own) for setting, own in FIRST.items()]
OTHERS = [row(setting, rounds) for setting, rounds in paper().items() if setting not in FIRST]
ROWS = [*FIRST_ROWS, *sorted(OTHERS, key=lambda row: (row.hours, effort(row)))]  # what takes longest comes last


# by where networks start, the rates that are tried in a setting
STARTS = {"torch": starts.STARTS["torch"], "keras": starts.STARTS["keras"], "tutorial": "of TensorFlow's tutorial"}
OTHER_STARTS: dict[Setting, dict[str, Sequence[float]]] = {
    ("2nn", "iid", 0.1, 1, 10): dict.fromkeys(STARTS, GRID),
    ("2nn", "shards", 0.1, 1, 10): dict.fromkeys(STARTS, (0.1, 0.215)),
    # with 0.1 the CNN learns nothing from the tutorial's start
    ("cnn_mcmahan", "iid", 0.0, 5, 10): {"torch": CNN_GRID, "keras": CNN_GRID, "tutorial": (0.0215, 0.0464)},
    ("cnn_mcmahan", "iid", 0.1, 1, 50): {"torch": (0.215,), "keras": (0.215,), "tutorial": (0.0464,)},
}
# unbalanced nodes, the smallest of which still has more rows than a node's limits ask for
UNBALANCED = {"iid": "size:0.66", "shards": "sorted-unbalanced"}
UNBALANCED_ROWS = [
    Row(("2nn", partition, 0.1, E, 10), {}, most, (0.215,), seeds)
    for partition, E, most, seeds in (
        ("iid", 1, 300, SEEDS),
        ("shards", 1, 600, SEEDS),
        ("iid", 10, 100, SEEDS),
        ("shards", 10, 746, (1,)),
    )
]
# best loss of a parent and loss of the average, as the paper's Figure 1 shows them, about
FIGURE_1 = {"independent initialization": ((1, 2), 0.45, 1.2), "common initialization": ((1, 1), 0.46, 0.39)}


def train(dataset: Dataset, row: Row, lr: float, rounds: int, seed: int) -> runs.Run:
    """One run, ended when the target is reached."""
    name, partition, C, E, B = row.setting
    ours = row.start == "torch"
    model = name if ours else starts.register(name, row.start)
    values = {
        "model": model,
        "rounds": rounds,
        "fraction": C,
        "epochs": E,
        "batch_size": B,
        "lr": lr,
        "target": row.target,
    }
    processes = None if ours else 1  # the process in which that model is known
    experiment = Experiment(dataset, 100, partition, seed, seed, processes=processes)
    return runs.kept(DOCUMENT, "fedavg", experiment, values, segment=5 if name == "cnn_mcmahan" else 100, new=row.tried)


@dataclass(frozen=True)
class Found:
    """What a row came to: rounds by seed, the rate and the first seed's run; no rate if the target was not reached."""

    rounds: Sequence[float] = ()
    lr: float | None = None
    first: runs.Run | None = None


def search(dataset: Dataset, row: Row, full: bool) -> Found:
    """The rate that takes the fewest rounds with the first seed and reaches the target with all seeds."""
    grid = list(row.grid)

    def first_seed(lr: float, rounds: int) -> runs.Run:
        return train(dataset, row, lr, rounds, row.seeds[0])

    while best := runs.best_rate(grid, first_seed, row.target, row.most):
        lr, first = best
        others = [train(dataset, row, lr, row.most, seed) for seed in runs.seeds(row.seeds)[1:] if full]
        reached = [run.reached(row.target) for run in (first, *others)]
        rounds = [r for r in reached if r is not None]
        if len(rounds) == len(reached):
            return Found(rounds, lr, first)
        grid.remove(lr)  # another seed fails with this rate
    return Found()


def table(dataset: Dataset, full: bool) -> Iterator[tables.Line]:
    """Our rounds beside the paper's, and a picture of the curves."""
    panels: dict[str, dict[str, pictures.Line]] = {}
    yield from tables.head(
        "table", "model", "rows", "C", "E", "B", "paper's rounds", "ours, by seed", "ours / paper's", "verdict", "rate"
    )
    for row in ROWS:
        if not (full or row.reduced):
            continue
        ours: float | str | None = None
        try:
            found = search(dataset, row, full)
            ours = float(np.mean(found.rounds)) if found.rounds else f"not reached in {row.most}"
            shown = ", ".join(f"{r:.0f}" for r in found.rounds) or ours
            rate = ", ".join(map(str, row.grid)) if found.lr is None else f"{found.lr:g}"
        except runs.NotRun:
            found, shown, rate = Found(), tables.NOT_RUN_YET if row.tried else "not tried", None
        model, partition, C, E, B = row.setting
        where = f"Table {' and '.join(row.paper)}"
        name = f"{model}, {partition}, C = {C:g}, E = {E}, B = {B or 'all'}"
        comparison = Comparison(where, name, tuple(row.paper.values()), ours, "rounds", max(1, len(found.rounds)))
        yield comparison
        ratio = " and ".join(f"{ours / p:.2f}" for p in row.paper.values()) if isinstance(ours, float) else None
        printed = " and ".join(map(str, row.paper.values()))
        yield tables.row(*row.cells, printed, shown, ratio, comparison.verdict if ours else None, rate)
        if C == 0.1 and found.first:
            best = np.maximum.accumulate(tables.accuracies(found.first))
            lines = panels.setdefault(f"{model}, {partition}, C = 0.1", {})
            lines[f"E = {E}, B = {B or 'all'}"] = range(1, len(best) + 1), [best.tolist()]
    picture = runs.RESULTS / f"{DOCUMENT}{'' if full else '-reduced'}.png"
    names = [*dict.fromkeys(f"E = {E}, B = {B or 'all'}" for _, _, C, E, B in (r.setting for r in ROWS) if C == 0.1)]
    targets = {title: TARGET[title.partition(",")[0]] for title in panels}
    label = "best test accuracy so far"
    if pictures.curves(panels, picture, ylabel=label, bottom=0.8, target=targets, log=True, names=names):
        yield ""
        yield "Learning curves until the target, of the rows with C = 0.1 that reach it, first seed (the paper's"
        yield "Figures 2 and 7):"
        yield ""
        yield f"![best accuracy by round]({picture.name})"


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
        reached = train(dataset, row, lr, row.most, row.seeds[0]).reached(row.target)
        yield tables.row(lr, f"not in {row.most}" if reached is None else f"{reached:.0f}")


def other_starts(dataset: Dataset) -> Iterator[str]:
    """Whether networks that start elsewhere need the paper's rounds."""
    yield "Rounds to the target from other starts, by rate, seed 1; in brackets the best accuracy of a run that does"
    yield "not reach it."
    yield ""
    yield from tables.head("table", "model", "rows", "C", "E", "B", "paper's rounds", "start", "rounds here, by rate")
    for setting, rates in OTHER_STARTS.items():
        cell = next(r for r in ROWS if r.setting == setting)
        for start, grid in rates.items():
            known = *cell.cells, " and ".join(map(str, cell.paper.values())), STARTS[start]
            yield tables.trained(known, functools.partial(by_rate, dataset, replace(cell, start=start), grid), 1)


def by_rate(dataset: Dataset, cell: Row, rates: Sequence[float]) -> list[str]:
    """For each rate the rounds to the target, or the best accuracy; in one cell."""
    found = list[str]()
    for lr in sorted(rates):
        run = train(dataset, cell, lr, cell.most, cell.seeds[0])
        reached = run.reached(cell.target)
        found.append(f"{lr:g}: " + (f"({max(tables.accuracies(run)):.4f})" if reached is None else f"{reached:.0f}"))
    return ["; ".join(found)]


def unbalanced(dataset: Dataset) -> Iterator[str]:
    """Rounds of the 2NN where nodes have unlike numbers of rows, beside those where all have 600."""
    yield "In both of the paper's partitions of MNIST all nodes have as many rows; of Shakespeare it finds the"
    yield "unbalanced rows of roles easier. MNIST with unbalanced nodes, in rounds to 97% by seed: with `size:0.66`"
    yield "node k has a share of the shuffled rows that grows as k^0.66, and `sorted-unbalanced` gives each node two"
    yield "pieces of random sizes of the rows sorted by digit. C = 0.1, B = 10, rate 0.215."
    yield ""
    yield from tables.head(
        "balanced", "E", "rounds", "unbalanced", "rows of a node, median", "least and most", "rounds"
    )
    for row in UNBALANCED_ROWS:
        model, partition, C, E, B = row.setting
        other = replace(row, setting=(model, UNBALANCED[partition], C, E, B))
        sizes = [len(part) for part in partitions.partition(UNBALANCED[partition], labels_of(dataset), 100, SEEDS[0])]
        spread = f"{np.median(sizes):.0f}", f"{min(sizes)} and {max(sizes)}"
        cells = [rounds_by_seed(dataset, r) for r in (row, other)]
        yield tables.row(partition, E, cells[0], UNBALANCED[partition], *spread, cells[1])


def rounds_by_seed(dataset: Dataset, row: Row) -> str:
    """The rounds of each seed to the target with the row's one rate, in one cell."""
    found = list[str]()
    for seed in runs.seeds(row.seeds):
        try:
            reached = train(dataset, row, row.grid[0], row.most, seed).reached(row.target)
        except runs.NotRun:
            return tables.NOT_RUN_YET
        found.append(f"not in {row.most}" if reached is None else f"{reached:.0f}")
    return ", ".join(found)


def labels_of(dataset: Dataset) -> np.ndarray:
    """The training rows' labels."""
    assert isinstance(dataset.rows, tuple)
    return np.asarray(dataset.rows[1])


def main(dataset: Dataset, full: bool) -> None:
    """Print and keep the tables and the figure."""

    def lines() -> Iterator[tables.Line]:
        yield from table(dataset, full)
        yield ""
        yield from other_rates(dataset)
        if full:
            yield ""
            yield from other_starts(dataset)
            yield ""
            yield from unbalanced(dataset)
        yield ""
        yield from figure_1(dataset, runs.RESULTS / f"{DOCUMENT}-figure1.png", full)
        yield ""
        yield f"![Figure 1]({DOCUMENT}-figure1.png)"

    about = (
        "Rounds until the 2NN reaches 97% and the CNN 99% on the 10,000 test rows (best accuracy so far, interpolated, "
        f"as the paper counts). A row is near if ours are {RULES['rounds'].near}. The rate is the best of our grid, as "
        "the paper's is the best of its own. A row with one number by seed is a single run."
    )
    chosen = [row for row in ROWS if row.tried and (full or row.reduced)]
    most = sum(len(row.grid) + (len(row.seeds) - 1 if full else 0) for row in chosen) + len(ROWS[0].grid)
    most += len(FIGURE_1) * (len(STARTS) if full else 1)
    most += sum(len(grid) for rates in OTHER_STARTS.values() for grid in rates.values()) if full else 0
    most += sum(2 * len(runs.seeds(row.seeds)) for row in UNBALANCED_ROWS) if full else 0
    tables.page(tables.Page(DOCUMENT, "McMahan et al. 2017 on MNIST", full, about), lines(), most)
