"""Nilsson et al. 2018, Tables 3 and 4: FedAvg, FSVRG and CO-OP with the 2NN on MNIST with the same number of uploads,
100 a node, and what waiting for slow nodes costs."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks import pictures, runs, tables
from benchmarks.comparisons import Comparison
from v6_workbench.simulation.datasets import Dataset
from v6_workbench.simulation.experiments import Experiment

DOCUMENT = "nilsson2018"
FEDAVG = {"fraction": 0.1, "epochs": 10, "batch_size": 20, "lr": 0.088, "lr_decay_step": 3.2e-6, "rounds": 1000}
SEARCH = {"fraction": 0.1, "epochs": 5, "batch_size": 20, "lr": 0.11, "lr_decay_step": 2.2e-7, "rounds": 1200}
FSVRG = {"stepsize": 4.0, "batch_size": 1, "rounds": 50}
COOP = {
    "age_lower": 16,
    "age_upper": 51,
    "epochs": 1,
    "batch_size": 20,
    "lr": 0.11,
    "lr_decay_step": 2.2e-7,
    "rounds": 100,
}
NAMES = {"fedavg": "FedAvg", "fsvrg": "FSVRG", "coop": "CO-OP"}
UPLOADS = {"fsvrg": 200, "fedavg": 10, "coop": 100}  # of a round; one of CO-OP is 100 merges

Row = tuple[str, str, dict[str, Any], float | None, float | None, str]
# method, partition, settings, the paper's max(acc) and avg(acc), what the row is
ROWS: list[Row] = [
    ("fsvrg", "shards", FSVRG, None, None, "h = 4, 50 rounds"),
    ("fsvrg", "iid", FSVRG, None, None, "h = 4, 50 rounds"),
    ("fedavg", "shards", SEARCH, 0.9792, 0.9658, "Table 3, eta 0.11, E = 5, 1,200 rounds"),
    ("fedavg", "shards", FEDAVG, None, None, "eta 0.088, E = 10, 1,000 rounds"),
    ("fedavg", "iid", FEDAVG, None, None, "eta 0.088, E = 10, 1,000 rounds"),
    ("coop", "shards", COOP, None, None, "b_l 16, b_u 51, E = 1, eta 0.11; 10,000 merges"),
    ("coop", "iid", COOP, None, None, "b_l 16, b_u 51, E = 1, eta 0.11; 10,000 merges"),
]
EXTENDED: list[Row] = [
    ("fsvrg", "shards", {**FSVRG, "rounds": 500}, 0.9816, 0.9135, "Table 4, h = 4, 500 rounds"),
    ("coop", "shards", {**COOP, "rounds": 500}, None, None, "b_l 16, b_u 51, E = 1, eta 0.11; 50,000 merges"),
]
# Table 3: eta, lambda, max(acc) and avg(acc), besides the row above
RATES = [
    (0.05, 1.6e-6, 0.9767, 0.9582),
    (0.068, 2.8e-7, 0.978, 0.96),
    (0.088, 3.2e-6, 0.9788, 0.9638),
    (0.098, 2.4e-8, 0.979, 0.9562),
    (0.14, 7.8e-4, 0.6962, 0.09896),
]
# when most nodes' rows fit, one node's update can be thirteen times the median: at ten, a job ends
LARGE_RATES = {eta: {"maximum_norm_ratio": 1e6} for eta in (0.098, 0.14)}
SEARCHED: list[Row] = [
    (
        "fedavg",
        "shards",
        {**SEARCH, "lr": eta, "lr_decay_step": decay, **LARGE_RATES.get(eta, {})},
        best,
        average,
        f"Table 3, eta {eta:g}",
    )
    for eta, decay, best, average in RATES
]
# Table 4: h, max(acc) and avg(acc) after rounds that the paper does not print; ours are fewer
STEPSIZES = [(1.0, 0.975, 0.9314), (2.0, 0.9799, 0.9159), (3.0, 0.9801, 0.9157), (5.0, 0.9811, 0.9081)]
SEARCHED += [
    ("fsvrg", "shards", {**FSVRG, "stepsize": h}, best, average, f"Table 4, h = {h:g}, 50 rounds")
    for h, best, average in STEPSIZES
]
FEWER = "these are 50 rounds, and the paper does not print how many its Table 4 has"
BY_ROUNDS = (50, 100, 200, 300, 400, 500)
SLOW = {"epochs": 1, "batch_size": 20, "lr": 0.11, "lr_decay_step": 2.2e-7}
SLOW_FEDAVG = {**SLOW, "fraction": 0.1, "rounds": 200}
RACE: list[tuple[str, str, dict[str, Any]]] = [
    ("CO-OP", "coop", {**SLOW, "age_lower": 16, "age_upper": 51, "rounds": 20}),
    ("FedAvg, C = 0.1", "fedavg", SLOW_FEDAVG),
    ("FedAvg, C = 0.1, round timeout 7 s", "fedavg", {**SLOW_FEDAVG, "round_timeout": 7.0, "min_responses": 0.1}),
]
TARGETS = (0.8, 0.9, 0.93)
FITTED = "the paper does not print the rounds of Table 4; 500 were chosen because they fit"
COLUMNS = "method", "rows", "setting", "uploads", "max(acc) paper", "ours", "avg(acc) paper", "ours", "last"


def compared(row: Row, found: Sequence[float] | None, not_counted: str = "") -> Iterator[Comparison]:
    """The best and the mean accuracy of a row beside the paper's, if it has them."""
    method, partition, _, best, average, what = row
    for name, theirs, ours in (("best", best, max), ("mean", average, np.mean)):
        if theirs is not None:
            number = None if found is None else round(float(ours(found)), 4)
            table, setting = what.split(", ")[:2]
            cell = f"{NAMES[method]}, {partition}, {setting}, {name} accuracy"
            yield Comparison(table, cell, (theirs,), number, "accuracy", 1, "", not_counted)


def shown(found: Sequence[float]) -> list[str]:
    """The best, the mean and the last of the accuracies of a run's rounds."""
    return [f"{number:.4f}" for number in (max(found), float(np.mean(found)), found[-1])]


def lines(dataset: Dataset, full: bool) -> Iterator[tables.Line]:
    yield from tables.head(*COLUMNS)
    curves: dict[str, dict[str, pictures.Line]] = {"iid": {}, "shards": {}}
    for row in ROWS:
        method, partition, settings, best, average, what = row
        share = 1.0 if full else {"fedavg": 0.02, "fsvrg": 0.1, "coop": 0.05}[method]
        values = {"model": "2nn", **settings, "rounds": max(2, round(settings["rounds"] * share))}
        experiment = Experiment(dataset, 100, partition, 1, 1, slowest=1.0 if method == "coop" else None)
        run = runs.kept(DOCUMENT, method, experiment, values)
        found = tables.accuracies(run)
        uploads = [UPLOADS[method] * (t + 1) for t in range(len(found))]
        if settings in (FEDAVG, FSVRG, COOP):
            curves[partition][NAMES[method]] = uploads, [found]
        yield from compared(row, found)
        top, mean, last = shown(found)
        yield tables.row(method, partition, what, uploads[-1], best, top, average, mean, last)
    picture, names = f"{DOCUMENT}{'' if full else '-reduced'}.png", list(NAMES.values())
    pictures.curves(curves, runs.RESULTS / picture, xlabel="uploads of a model or gradient", bottom=0.4, names=names)
    yield ""
    yield f"![accuracy by uploads]({picture})"
    yield from race(dataset, full)
    if full:
        yield from searched(dataset)
        yield from extended(dataset, curves["shards"]["FedAvg"])


def searched(dataset: Dataset) -> Iterator[tables.Line]:
    """The other rates and stepsizes of the paper's searches."""
    yield ""
    yield "The other rows of the paper's searches (Tables 3 and 4), on shards:"
    yield ""
    yield from tables.head(*COLUMNS)
    for row in SEARCHED:
        yield from _beside(dataset, row, FEWER if row[0] == "fsvrg" else "")[1]


def extended(dataset: Dataset, fedavg: pictures.Line) -> Iterator[tables.Line]:
    """More uploads (Appendix A.5), and a picture of them with FedAvg's line."""
    panel, run_of = {NAMES["fedavg"]: fedavg}, dict[str, Sequence[float]]()
    yield ""
    yield "More uploads. In the paper FSVRG reaches FedAvg with ten times as many, and CO-OP does not with five times"
    yield "as many."
    yield ""
    yield from tables.head(*COLUMNS)
    for row in EXTENDED:
        method = row[0]
        found, own = _beside(dataset, row, FITTED)
        if found is not None:
            run_of[method] = found
            panel[NAMES[method]] = [UPLOADS[method] * (t + 1) for t in range(len(found))], [found]
        yield from own
    title, names = "shards, more uploads", list(NAMES.values())
    picture, xlabel = f"{DOCUMENT}-more.png", "uploads of a model or gradient"
    pictures.curves({title: panel}, runs.RESULTS / picture, xlabel=xlabel, bottom=0.4, log=True, names=names)
    yield ""
    yield f"![accuracy by uploads, more of them]({picture})"
    yield ""
    yield "FSVRG's run of this table by its rounds:"
    yield ""
    yield from tables.head("rounds", "uploads", "max(acc)", "avg(acc)", "last")
    for rounds in BY_ROUNDS if "fsvrg" in run_of else ():
        yield tables.row(rounds, UPLOADS["fsvrg"] * rounds, *shown(run_of["fsvrg"][:rounds]))


def _beside(dataset: Dataset, row: Row, not_counted: str) -> tuple[Sequence[float] | None, list[tables.Line]]:
    """The accuracies of a row's rounds, if it has run, and its lines beside the paper's numbers."""
    method, partition, settings, best, average, what = row
    try:
        found = _accuracies(dataset, method, partition, settings)
    except runs.NotRun:
        found = None
    ours = shown(found) if found is not None else [tables.NOT_RUN_YET, "-", "-"]
    uploads = UPLOADS[method] * settings["rounds"]
    cells = tables.row(method, partition, what, uploads, best, ours[0], average, *ours[1:])
    return found, [*compared(row, found, not_counted), cells]


def _accuracies(dataset: Dataset, method: str, partition: str, settings: dict[str, Any]) -> Sequence[float]:
    """The accuracies of the rounds of a run that is long enough to be kept in parts."""
    experiment = Experiment(dataset, 100, partition, 1, 1, slowest=1.0 if method == "coop" else None)
    values = {"model": "2nn", **settings}
    run = runs.kept(DOCUMENT, method, experiment, values, segment={"fsvrg": 50, "fedavg": 100}.get(method))
    return tables.accuracies(run)


def race(dataset: Dataset, full: bool) -> Iterator[str]:
    """Simulated seconds to an accuracy if the slowest node is ten times slower than the fastest."""
    yield ""
    yield "A race in which the slowest node is ten times slower than the fastest: simulated seconds to an accuracy (an"
    yield "epoch of the fastest node takes one second). The paper has none."
    yield ""
    yield from tables.head("rows", "method", *(f"{target:.0%}" for target in TARGETS), "uploads", "seconds in all")
    for partition in ("iid", "shards"):
        for name, method, own in RACE:
            values = {"model": "2nn", **own, "rounds": own["rounds"] if full else max(2, own["rounds"] // 20)}
            run = runs.kept(DOCUMENT, method, Experiment(dataset, 100, partition, 1, 1, slowest=10.0), values)
            seconds = np.cumsum([row["seconds"] for row in run.history])
            found = tables.accuracies(run)
            when = [next((f"{s:.0f}" for s, a in zip(seconds, found, strict=True) if a >= t), "-") for t in TARGETS]
            uploads = sum(row["uploads"] or UPLOADS[method] for row in run.history)
            yield tables.row(partition, name, *when, uploads, f"{seconds[-1]:.0f}")


def main(dataset: Dataset, full: bool) -> None:
    """Print and keep the tables."""
    dataset = dataset if full else runs.first(dataset)
    about = "The best accuracy of any round, the mean over rounds, and the last round's; one run each, seed 1."
    about += "" if full else f" A few of the rounds, {runs.FIRST}."
    most = len(ROWS) + (len(SEARCHED) + len(EXTENDED) if full else 0) + 2 * len(RACE)
    tables.page(tables.Page(DOCUMENT, "Nilsson et al. 2018 on MNIST", full, about), lines(dataset, full), most)
