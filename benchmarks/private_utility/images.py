"""MNIST and Fashion-MNIST at ten hospitals: accuracy by epsilon, with noise shared in a study and each node's own."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks import runs, tables
from benchmarks.private_utility import jobs
from benchmarks.private_utility.jobs import DELTA, NAMES, NODES, OWN, SHARED, Local, Task
from v6_federated.noise import accountant
from v6_workbench.simulation.datasets import Dataset

ABOUT = (
    f"Training rows at {NODES} hospitals, IID; FedAvg as FedSGD: one noisy sum of clipped gradients a round; delta "
    f"{DELTA:g}. Shared: the hospitals are one block of a study, which assumes that one of them works with the server. "
    "Own: `aggregation=masked`, without a study. A job is a whole one on mock nodes; pooled rows are the same steps "
    "without nodes, with the noise of all nodes together, where a job takes long. Accuracy on the 10,000 test rows, in "
    "percent, by this benchmark and without noise: that is no part of a job. z is the noise of a sum over what a row "
    "can change. Clip C, learning rate and momentum (`server_momentum`) are the best of a small grid, in the tables of "
    "the search: the same steps on all but the last 10,000 training rows, evaluated on these. The search itself is not "
    "paid for, and reads no test rows. Seeds deal the rows to hospitals. Noise of jobs has no seed: they cannot be "
    "repeated to the last bit."
)


def _grid(*settings: tuple[float, float, float]) -> tuple[Local, ...]:
    return tuple({"clip": C, "lr": lr, "server_momentum": beta} for C, lr, beta in settings)


@dataclass(frozen=True)
class Cell:
    """A row of a table.

    Attributes:
        aggregation: whether nodes share noise.
        epsilon: of the job.
        anchor: what somebody else has reached, in percent.
        target: what was to be reached, in percent, set before anything was run.
        pooled: whether the same steps are computed on pooled rows, without nodes, which takes less time.
    """

    aggregation: str
    epsilon: float
    anchor: float | None = None
    target: float | None = None
    pooled: bool = False


@dataclass(frozen=True)
class Section:
    """A table.

    Attributes:
        title: its heading.
        task: what is trained.
        cells: its rows.
        grid: settings of the search.
        seeds: seeds of rows that have a target; the others have the first.
        like: a table with fewer rounds, whose settings this one takes without a search, with lr as much smaller.
    """

    title: str
    task: Task
    cells: Sequence[Cell]
    grid: Sequence[Local]
    seeds: Sequence[int]
    like: "Section | None" = None


def _cells(
    aggregation: str, anchors: Mapping[float, float], targets: Mapping[float, float], jobs: Sequence[float] = (1, 3, 8)
) -> list[Cell]:
    return [
        Cell(aggregation, epsilon, anchor, targets.get(epsilon), epsilon not in jobs)
        for epsilon, anchor in anchors.items()
    ]


LINEAR_SHARED = _cells(SHARED, {1: 91.5, 3: 91.9, 8: 92.0}, {1: 91.0, 3: 91.5, 8: 91.5})
LINEAR_OWN = [Cell(OWN, epsilon) for epsilon in (1, 3, 8)]
LINEAR = Section(
    "Linear model, 100 rounds",
    Task("logreg", 100),
    [*LINEAR_SHARED, *LINEAR_OWN],
    _grid((2, 6.0, 0), (2, 0.6, 0.9), (2, 1.6, 0.9), (4, 0.8, 0.9), (1, 1.6, 0.9)),
    (1, 2, 3),
)
LONGER = Section(
    "Linear model, 300 rounds",
    Task("logreg", 300),
    [*(Cell(SHARED, epsilon) for epsilon in (1, 3, 8)), *_cells(OWN, {1: 88.3, 3: 90.9, 8: 91.5}, {})],
    (),
    (1,),
    like=LINEAR,
)
TWO_LAYERS = Section(
    "2NN, 500 rounds on samples of 3.4% of the rows",
    Task("2nn", 500, 0.034),
    [
        *_cells(SHARED, {1: 92.5, 3: 93.5, 8: 93.7}, {1: 91.5, 3: 92.5, 8: 92.7}, [3]),
        Cell(SHARED, 3, 93.5, 92.5, pooled=True),
        *_cells(OWN, {1: 89.7, 3: 91.9, 8: 92.2}, {1: 88.7, 3: 90.9, 8: 91.2}, []),
    ],
    _grid((1, 1.0, 0), (1, 2.0, 0), (1, 4.0, 0)),
    (1,),
)
CNN = Section(
    "CNN of Opacus's example, 500 rounds on samples of 3.4% of the rows",
    Task("cnn_opacus", 500, 0.034),
    # at most 5.43, 2.30 and 0.83 by privacy loss distributions
    _cells(SHARED, {6.05: 97.1, 2.52: 96.8, 0.911: 94.6}, {6.05: 96.1, 2.52: 95.8, 0.911: 93.6}, []),
    _grid((1, 2.0, 0)),  # Opacus has lr 0.25 for 240 rows a step; 8.5 times as many rows, 8.5 times the rate
    (1,),
)
SCATTERED = {
    name: Section(
        "Linear model on scattering features, 600 rounds on samples of 6.8% of the rows",
        Task("logreg", 600, 4096 / 60_000, scattered=True),
        _cells(SHARED, {3: anchor}, {3: target}, []),
        _grid((0.1, 4.0, 0.9), (0.1, 8.0, 0.9)),
        (1,),
    )
    for name, anchor, target in (("mnist", 98.7, 98.0), ("fashion_mnist", 89.7, 88.5))
}
PLAIN: tuple[Local, ...] = tuple(
    {"lr": lr, "server_momentum": beta} for lr, beta in ((0.5, 0), (1.0, 0), (1.5, 0), (0.2, 0.9), (0.4, 0.9))
)  # without noise and clip


def sections(name: str) -> Sequence[Section]:
    """The tables of a page."""
    return [LINEAR, LONGER, TWO_LAYERS, SCATTERED[name], CNN] if name == "mnist" else [SCATTERED[name]]


def lines(dataset: Dataset, full: bool) -> Iterator[str]:
    """The lines of a page."""
    small = dataset if full else runs.first(dataset)
    for section in sections(dataset.name):
        if full or section is LINEAR:
            yield from _section(dataset, section, full)
        elif section.task.scattered:
            yield from _section(small, section, full)
    if dataset.name == "mnist":
        yield from _without_noise(dataset, full)


def _section(dataset: Dataset, section: Section, full: bool) -> Iterator[str]:
    yield ""
    yield f"## {section.title}"
    yield ""
    cells = [cell for cell in section.cells if full or cell.epsilon == 3]
    how = "noise", "run as", "epsilon", "by PLD", "z", "C", "lr", "momentum"
    yield from tables.head(*how, "accuracy by seed", "reference", "required")
    for cell in cells:
        try:
            local = _settings_of(dataset, section, cell)
        except runs.NotRun:
            known = NAMES[cell.aggregation], None, cell.epsilon, *[None] * 5
            yield tables.row(*known, tables.NOT_RUN_YET, cell.anchor, cell.target)
        else:
            yield _row(dataset, section, cell, local, full)
    if len(section.grid) < 2:
        return
    yield ""
    yield "Accuracy of the search, in percent, one run a cell:"
    yield ""
    yield from tables.head("noise", "epsilon", *map(_shown, section.grid))
    for aggregation, epsilon in dict.fromkeys((cell.aggregation, cell.epsilon) for cell in cells):
        search = functools.partial(jobs.found_by_search, dataset, section.task, aggregation, epsilon, section.grid)
        known = NAMES[aggregation], f"{epsilon:g}"
        yield tables.trained(known, functools.partial(_rounded, search), len(section.grid))


def _rounded(search: Callable[[], Sequence[float]]) -> list[str]:
    return [f"{a:.1f}" for a in search()]


def _settings_of(dataset: Dataset, section: Section, cell: Cell) -> Local:
    """The best of the search for a row of a table, or that of a table with fewer rounds."""
    if section.like is not None:
        local = _settings_of(dataset, section.like, cell)
        return {**local, "lr": round(local["lr"] * section.like.task.rounds / section.task.rounds, 3)}
    if len(section.grid) == 1:
        return section.grid[0]
    found = jobs.found_by_search(dataset, section.task, cell.aggregation, cell.epsilon, section.grid)
    return _best(found, section.grid)


def _row(dataset: Dataset, section: Section, cell: Cell, local: Local, full: bool) -> str:
    values = jobs.settings(section.task, cell.aggregation, cell.epsilon, local)
    plan = jobs.plan_of(values)
    assert plan is not None
    bounds = accountant.epsilon([plan], DELTA), accountant.epsilon_pld(plan, DELTA)
    way = "pooled rows" if cell.pooled else "job"
    known = (NAMES[cell.aggregation], way, *(f"{bound:.3f}" for bound in bounds), f"{plan.noise:.2f}", *local.values())
    run = functools.partial(jobs.pooled if cell.pooled else jobs.trained, dataset, section.task, values)
    found = functools.partial(_measured, run, _seeds(section, cell, full), cell.anchor, cell.target)
    return tables.trained(known, found, 3)


def _seeds(section: Section, cell: Cell, full: bool) -> Sequence[int]:
    return section.seeds if full and cell.target is not None else section.seeds[:1]


def _without_noise(dataset: Dataset, full: bool) -> Iterator[str]:
    """What the linear model reaches without noise and clipping."""
    yield ""
    yield "## Linear model without noise and not clipped, 100 rounds"
    yield ""
    yield from tables.head("lr", "momentum", "accuracy by seed")
    seeds = LINEAR.seeds if full else LINEAR.seeds[:1]
    for grid in (PLAIN[:3], PLAIN[3:]):
        try:
            local = _best(jobs.found_by_search(dataset, LINEAR.task, OWN, None, grid), grid)
        except runs.NotRun:
            yield tables.row(tables.NOT_RUN_YET, None, None)
            continue
        run = functools.partial(jobs.trained, dataset, LINEAR.task, jobs.settings(LINEAR.task, OWN, None, local))
        yield tables.trained([*local.values()], functools.partial(_measured, run, seeds), 1)


def _measured(run: Callable[[int], runs.Run], seeds: Sequence[int], *known: float | None) -> tuple[object, ...]:
    return jobs.by_seed(run, seeds), *known


def _best(found: Sequence[float], grid: Sequence[Local]) -> Local:
    return max(zip(found, grid, strict=True), key=lambda pair: pair[0])[1]


def _shown(local: Local) -> str:
    return f"C {local['clip']:g}, lr {local['lr']:g}, momentum {local['server_momentum']:g}"


def most(dataset: Dataset, full: bool) -> int:
    """The most runs of a page."""
    found = 0
    for section in sections(dataset.name):
        cells = [cell for cell in section.cells if full or cell.epsilon == 3]
        at = {(cell.aggregation, cell.epsilon) for cell in cells}
        found += len(at) * len(section.grid) + sum(len(_seeds(section, cell, full)) for cell in cells)
    return found + len(PLAIN) + 2 * len(LINEAR.seeds)
