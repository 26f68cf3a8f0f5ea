"""FLamby's published results beside the same strategies trained here, seed by seed."""

import functools
import time
from collections.abc import Iterator, Sequence

import numpy as np

from benchmarks import runs, tables
from benchmarks.comparisons import Comparison
from benchmarks.flamby import theirs
from benchmarks.flamby.data import Task, Tensor
from benchmarks.flamby.theirs import AS_THE_PAPERS_SAY, LOCAL, POOLED, SEEDS
from v6_workbench.simulation.datasets import Dataset

DOCUMENT = "flamby"
PARTLY = ("local 2", "FedAvg", "Cyclic")  # a reduced page's
MEANS = "they are the means of the hospitals' numbers, which are counted"


def about(task: Task) -> str:
    """What the page shows."""
    training, test = (", ".join(str(len(rows)) for rows in X) for X in _features(task))
    return (
        f"A linear model. Means over hospitals of each one's {task.measure} on its own test rows, then mean (and "
        f"standard deviation) over seeds. Training rows: {training}; test rows: {test}. A round is {theirs.UPDATES} "
        f"minibatches of {task.batch_size} rows at every hospital; {task.rounds} rounds. Pooled and local training: "
        f"Adam, {task.epochs} epochs."
    )


def _features(task: Task) -> Sequence[Sequence[Tensor]]:
    return [site.X for site in task.sites], [site.X_test for site in task.sites]


def strategies(task: Task, full: bool) -> Sequence[str]:
    """FLamby's rows, in its order."""
    alone = [POOLED, *(LOCAL.format(k) for k in range(len(task.sites)))]
    return [name for name in (*alone, *theirs.RATES[task.key]) if full or name in PARTLY]


def others(task: Task, full: bool) -> Sequence[str]:
    """What the papers say where FLamby's code differs; the pooled rows of TCGA are not scaled."""
    return [name for name in AS_THE_PAPERS_SAY if full and (task.key == "heart" or not name.startswith(POOLED))]


def seeds(full: bool) -> Sequence[int]:
    """The seeds of a page."""
    return runs.seeds(SEEDS if full else SEEDS[:1])


def most(task: Task, full: bool) -> int:
    """The most runs of these tables."""
    return len(seeds(full)) * (len(strategies(task, full)) + len(others(task, full)))


def found(dataset: Dataset, task: Task, strategy: str, seed: int) -> runs.Run:
    """One training; its history has a row for each hospital, whose ``accuracy`` is the task's metric; kept."""
    settings = {
        "method": strategy,
        "data": f"{dataset.name} {runs.text_digest(dataset)}",
        "rounds": task.rounds,
        "seed": seed,
    }

    def train(_: object) -> dict[str, object]:
        started = time.monotonic()
        w = theirs.trained(task, strategy, seed)
        seconds = time.monotonic() - started
        return {"history": [{"round": task.rounds, "accuracy": m, "seconds": seconds} for m in task.metrics(w)]}

    return runs.kept_as(DOCUMENT, settings, train)


def lines(dataset: Dataset, task: Task, full: bool) -> Iterator[tables.Line]:
    """The tables of the page."""
    here = seeds(full)
    yield "## As FLamby's code does"
    yield ""
    yield from tables.head(
        "strategy", "FLamby", "here", "equal numbers", "verdict", "s a run", *(f"{n}: FLamby, here" for n in task.names)
    )
    for strategy in strategies(task, full):
        published = theirs.published(task.key, strategy)
        try:
            trained = [found(dataset, task, strategy, seed) for seed in here]
        except runs.NotRun:
            yield tables.row(strategy, spread(published.mean(1)), tables.NOT_RUN_YET)
            continue
        ours = np.array([tables.accuracies(run) for run in trained])
        sites, mean = compared(task, strategy, published, ours)
        yield from sites
        yield mean
        equal = int(np.isclose(ours, published[: len(here)], rtol=0, atol=1e-6).sum())
        yield tables.row(
            strategy,
            spread(published.mean(1)),
            spread(ours.mean(1)),
            f"{equal} of {ours.size}",
            mean.verdict,
            f"{np.mean([run.history[0]['seconds'] for run in trained]):.1f}",
            *pairs(published, ours),
        )
    if full:
        yield from as_the_papers_say(dataset, task)


def compared(
    task: Task, strategy: str, published: np.ndarray, ours: np.ndarray, by: str = "its code", why: str = ""
) -> tuple[Sequence[Comparison], Comparison]:
    """Each hospital's mean over seeds beside FLamby's, and the mean of hospitals; arrays are seeds by hospitals."""
    n, table, strategy = len(ours), "FLamby's results", f"{task.key}, {strategy} by {by}"

    def one(cell: str, theirs: np.ndarray, ours: np.ndarray, why: str) -> Comparison:
        tolerance = 2 * float(theirs.std(ddof=1)) * np.sqrt(1 / len(theirs) + 1 / n)
        numbers = (round(float(theirs.mean()), 5),), round(float(ours.mean()), 5)
        return Comparison(table, cell, *numbers, "spread", n, not_counted=why, tolerance=round(tolerance, 5))

    names = enumerate(task.names)
    sites = [one(f"{strategy}, {name}", published[:, k], ours[:, k], why) for k, name in names]
    return sites, one(strategy, published.mean(1), ours.mean(1), why or MEANS)


def pairs(published: np.ndarray, ours: np.ndarray) -> Iterator[str]:
    """Each hospital's mean over seeds, FLamby's and ours."""
    for theirs_, ours_ in zip(published.mean(0), ours.mean(0), strict=True):
        yield f"{theirs_:.3f}, {ours_:.3f}".replace("0.", ".")


def as_the_papers_say(dataset: Dataset, task: Task) -> Iterator[str]:
    """Where FLamby's code does something else than the papers."""
    yield ""
    yield "## As the papers say"
    yield ""
    yield from tables.head("strategy", "what differs from FLamby's code", "here", "FLamby's code")
    for strategy in others(task, True):
        cells = functools.partial(_beside_the_code, dataset, task, strategy)
        yield tables.trained((strategy, AS_THE_PAPERS_SAY[strategy]), cells, 2)


def _beside_the_code(dataset: Dataset, task: Task, strategy: str) -> Sequence[str]:
    trained = [found(dataset, task, strategy, seed) for seed in seeds(True)]
    code = theirs.published(task.key, strategy.split(", ")[0]).mean(1)
    return spread([float(np.mean(tables.accuracies(run))) for run in trained]), spread(code)


def spread(values: Sequence[float] | np.ndarray) -> str:
    """A mean and, of several, the standard deviation."""
    shown = f"{np.mean(values):.4f}" + (f" ({np.std(values, ddof=1):.4f})" if len(values) > 1 else "")
    return shown.replace("0.", ".")
