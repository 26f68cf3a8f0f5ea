"""Pfitzner and Arnrich's poster: rounds of a CNN on MNIST to 97% with FedAvg, Co-Learning and LoAdaBoost.

The poster does not say which CNN it uses; ours is McMahan's (1,663,370 parameters), whose paper it follows. It does not
say what the rate's decay of 0.001 counts either: here it counts rounds, lr * 0.999^(t - 1). If it counted local steps,
the rate would fall to a fifth within the poster's 12 rounds.
"""

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks import pictures, runs, tables
from benchmarks.comparisons import Comparison
from benchmarks.starts import STARTS, register, weights
from v6_federated import models
from v6_federated.base.randomness import generator
from v6_federated.data.reading import as_features
from v6_workbench.simulation.datasets import Dataset
from v6_workbench.simulation.experiments import Experiment, OnRound

DOCUMENT = "pfitzner_arnrich"
DECAY = 0.999  # of the rate, a round
COMMON: dict[str, Any] = {"model": "cnn_mcmahan", "lr": 0.01, "lr_decay_round": DECAY, "target": 0.97}
ACCURACIES = (0.90, 0.95, 0.96, 0.97)
METHODS: list[tuple[str, str, dict[str, Any]]] = [
    ("FedAvg", "fedavg", {}),
    ("Co-Learning", "colearning", {"tolerance": 0.01}),
    ("LoAdaBoost, above", "loadaboost", {"retrain": "above"}),
    ("LoAdaBoost, below", "loadaboost", {"retrain": "below"}),
]
# (C, B, E): the poster's rounds of FedAvg, Co-Learning, LoAdaBoost; in brackets the best accuracy if not reached
POSTER: dict[tuple[float, int | None, int], tuple[str | None, str | None, str]] = {
    (0.1, 10, 5): ("12", "13", "134"),
    (0.1, 10, 10): ("11", "12", "233"),
    (0.5, 10, 5): ("11", "22", "21"),
    (0.5, 10, 10): ("8", "12", "17"),
    (0.1, None, 5): ("528", "63", "(90.96)"),
    (0.1, None, 10): ("237", "87", "(94.26)"),
    (0.5, None, 5): ("497", "81", "(96.60)"),
    (0.5, None, 10): ("232", "57", "357"),
    (1.0, None, 5): ("522", "81", "(96.83)"),
    (1.0, None, 10): ("221", "88", "498"),
    (1.0, 10, 5): (None, None, "27"),
    (1.0, 10, 10): (None, None, "20"),
}
FROM_KERAS = {"model": register("cnn_mcmahan", "keras")}
# the rate's decay counted in local steps over all rounds, as if a node took part in each
LOCAL_DECAY = {"lr_decay_round": 1.0, "lr_decay_step": 0.001, "rounds": 180}
# method, its name, the reading, E, its settings, whether the same ten nodes take part in every round
READINGS: list[tuple[str, str, str, int, dict[str, Any], bool]] = [
    ("fedavg", "FedAvg", "Keras's start", 10, FROM_KERAS, False),
    ("fedavg", "FedAvg", "another CNN, `cnn_reddy`", 10, {"model": "cnn_reddy"}, False),
    ("colearning", "Co-Learning", "lambda = 1", 5, {"tolerance": 0.01, "lr_cycle": 1.0}, False),
    ("colearning", "Co-Learning", "lambda = 1", 10, {"tolerance": 0.01, "lr_cycle": 1.0}, False),
    ("loadaboost", "LoAdaBoost, above", "the same ten nodes every round", 10, {"retrain": "above"}, True),
    (
        "fedavg",
        "LoAdaBoost",
        "E/2 passes at every node, a decay of local steps",
        5,
        {"epochs": 2, **LOCAL_DECAY},
        False,
    ),
]
LOSSES = (2.0, 1.0, 0.5, 0.4)
CHOSEN = "the decay counts rounds, the reading that fits the poster's own rows best"
ABOVE = "these are LoAdaBoost by its source's condition (above); the poster's own (below) is compared"
NO_COUNT = "the poster prints an accuracy instead of rounds"


def rounds(B: int | None) -> int:
    """The most rounds of a row, by the rows of a batch."""
    return 60 if B else 600


def hours(C: float, B: int | None) -> bool:
    """Whether two cores take hours: such a row runs on a GPU only (V6_FEDERATED_DEVICE=cuda)."""
    return C == 1 or B is None


def tried(C: float, B: int | None) -> bool:
    """Whether a row is run on this machine if it is not kept."""
    return not hours(C, B) or runs.on_gpu()


def lines(dataset: Dataset, full: bool) -> Iterator[tables.Line]:
    panels: dict[str, dict[str, pictures.Line]] = {}
    yield from tables.head(
        "method", "C", "B", "E", "poster", "ours", "ours / poster", "verdict", "best accuracy", "MB up"
    )
    for (C, B, E), printed in POSTER.items():
        if not full and (C, B, E) != (0.1, 10, 5):
            continue
        for name, method, own in METHODS:
            poster = printed[("fedavg", "colearning", "loadaboost").index(method)]
            if poster is None:
                continue
            values = {**COMMON, "fraction": C, "batch_size": B, "epochs": E, "rounds": rounds(B) if full else 3, **own}
            panel = panels.setdefault(f"C = {C:g}, B = {B or 'all'}, E = {E}", {})
            yield from compared(dataset, method, values, poster, panel, name)
    picture, names = runs.RESULTS / f"{DOCUMENT}{'' if full else '-reduced'}.png", [name for name, _, _ in METHODS]
    if pictures.curves(panels, picture, bottom=0.85 if full else None, target=0.97, names=names):
        yield ""
        yield f"![accuracy by round]({picture.name})"
    if full:
        yield from other_readings(dataset)
        yield from full_batches(dataset)
        yield from local_decay()
        yield from starts(dataset)


def compared(
    dataset: Dataset, method: str, values: dict[str, Any], poster: str, panel: dict[str, pictures.Line], name: str
) -> Iterator[tables.Line]:
    """A row of the poster, and how ours compares; its curve goes into ``panel``."""
    C, B, E = values["fraction"], values["batch_size"], values["epochs"]
    ours: float | str | None = None
    try:
        run = train(dataset, method, values)
        reached, shown, *others = cells(run)
        ours = shown if reached is None else round(reached, 2)
        panel[name] = range(1, len(run.history) + 1), [tables.accuracies(run)]
    except runs.NotRun:
        shown, others = tables.NOT_RUN_YET if tried(C, B) else "not run: hours", ["-", "-"]
    printed = () if poster.startswith("(") else (float(poster),)
    why = ABOVE if name.endswith("above") else "" if printed else NO_COUNT
    comparison = Comparison(
        "the poster's table", f"{name}, C = {C:g}, B = {B or 'all'}, E = {E}", printed, ours, "rounds", 1, CHOSEN, why
    )
    yield comparison
    ratio = f"{ours / printed[0]:.2f}" if printed and isinstance(ours, float) else None
    verdict = comparison.verdict if comparison.counted else None
    yield tables.row(name, C, B or "all", E, poster, shown, ratio, verdict, *others)


def other_readings(dataset: Dataset) -> Iterator[str]:
    """Rounds to 97% by other readings of what the poster leaves open."""
    yield ""
    yield "Other readings of what the poster leaves open, for rows with C = 0.1 and B = 10:"
    yield ""
    yield from tables.head("method", "reading", "E", "poster's rounds", "ours", "best accuracy", "MB up")
    for method, name, reading, E, own, one_group in READINGS:
        poster = POSTER[0.1, 10, E][("FedAvg", "Co-Learning", "LoAdaBoost").index(name.split(",")[0])]
        values = {**COMMON, "fraction": 0.1, "batch_size": 10, "epochs": E, "rounds": rounds(10), **own}
        found = functools.partial(reading_of, dataset, method, values, one_group)
        yield tables.trained((name, reading, E, poster), found, 3)


def full_batches(dataset: Dataset) -> Iterator[str]:
    """Passes that FedAvg's rows with one batch a pass need."""
    yield ""
    yield "FedAvg, B = all: passes to an accuracy. A pass counts as much as its rate is of eta: E (1 + 0.999 + ...)."
    yield ""
    yield from tables.head("C", "E", *(f"{target:.0%}, ours" for target in ACCURACIES), "97%, poster", "rounds * E")
    for (C, B, E), (poster, *_) in POSTER.items():
        if B is None and poster is not None:
            values = {**COMMON, "fraction": C, "batch_size": B, "epochs": E, "rounds": rounds(B)}
            try:
                run = train(dataset, "fedavg", values)
                reached = [run.reached(target) for target in ACCURACIES]
            except runs.NotRun:
                reached = [None] * len(ACCURACIES)
            ours = [None if r is None else f"{passes(r, E):.0f}" for r in reached]
            yield tables.row(f"{C:g}", E, *ours, f"{passes(float(poster), E):.0f}", int(poster) * E)


def local_decay() -> Iterator[str]:
    """How many passes LoAdaBoost's rows would be if the decay counted a node's local steps over all rounds."""
    yield ""
    yield (
        "LoAdaBoost, the poster's rounds (600 where it prints an accuracy) as passes at the full rate eta, if the rate "
        "is eta / (1 + 0.001 i) after i local steps, counted as if a node took part in each round:"
    )
    yield ""
    yield from tables.head("C", "B", "E", "poster", "E passes a round", "E/2 passes a round")
    for (C, B, E), (*_, poster) in POSTER.items():
        took = 600 if poster.startswith("(") else int(poster)
        steps = 600 // (B or 600)  # a pass
        full = (np.log1p(0.001 * steps * took * a_round) / (0.001 * steps) for a_round in (E, E // 2))
        yield tables.row(f"{C:g}", B or "all", E, poster, *(f"{passes_:.0f}" for passes_ in full))


def starts(dataset: Dataset) -> Iterator[str]:
    """How much the start matters for passes of one batch."""
    yield ""
    yield "Gradient descent on 600 rows, eta = 0.01: passes to a training loss, by the CNN's start."
    yield ""
    yield from tables.head("start", *map(str, LOSSES))
    for start, name in STARTS.items():
        settings = {"method": "gradient descent", "start": start, "model": COMMON["model"], "rounds": 500, "seed": 1}
        run = runs.kept_as(DOCUMENT, settings, functools.partial(descent, dataset, start, settings["rounds"]))
        losses = [row["train_loss"] for row in run.history]
        yield tables.row(name, *(next((i for i, loss in enumerate(losses) if loss <= least), None) for least in LOSSES))


def descent(dataset: Dataset, start: str, most: int, on_round: OnRound | None) -> dict[str, Any]:
    """One batch a pass over the first 600 rows; the loss of round i is the loss after i - 1 passes."""
    assert isinstance(dataset.rows, tuple)
    X, y = as_features(dataset.rows[0][:600]), np.asarray(dataset.rows[1][:600], dtype=np.int64)
    model = models.build({"name": COMMON["model"], "features": X.shape[1], "classes": 10})
    w, history = weights(start, model, generator(1, "start")), []
    for t in range(1, most + 1):
        loss, g = model.loss_and_gradient(w, X, y)
        w = w - np.float32(COMMON["lr"]) * np.asarray(g)
        history.append({"round": t, "train_loss": loss})
        if on_round:
            on_round(history[-1])
    return {"history": history}


def passes(rounds: float, E: int) -> float:
    """How many passes at the rate eta are as long together as ``rounds`` rounds of E passes at their decaying rates."""
    return E * (1 - DECAY**rounds) / (1 - DECAY)


def train(dataset: Dataset, method: str, values: dict[str, Any], one_group: bool = False) -> runs.Run:
    """One run; with ``one_group`` the same ten nodes take part in every round."""
    B, C = values["batch_size"], values["fraction"]
    experiment = Experiment(dataset, 100, "iid", 1, 1, processes=1 if values["model"] in FROM_KERAS.values() else None)
    if one_group:
        few = Dataset(f"{dataset.name}-first-6000", dataset.take(np.arange(6000)), dataset.test)
        experiment, values = Experiment(few, 10, "iid", 1, 1), {**values, "fraction": 1.0}
    return runs.kept(DOCUMENT, method, experiment, values, segment=2 if B else 20, new=tried(C, B))


def reading_of(dataset: Dataset, method: str, values: dict[str, Any], one_group: bool) -> Sequence[str]:
    """The cells of one run of another reading."""
    _, *shown = cells(train(dataset, method, values, one_group))
    return shown


def cells(run: runs.Run) -> tuple[float | None, str, str, str]:
    """Rounds to 97%, as a number and as a text, the best accuracy, and the megabytes that the nodes sent."""
    reached = run.reached(0.97)
    sent = sum(row["bytes_up"] for row in run.history) / 1e6
    ours = f"{reached:.1f}" if reached is not None else f"not in {len(run.history)}"
    return reached, ours, f"{max(tables.accuracies(run)):.4f}", f"{sent:.0f}"


def main(dataset: Dataset, full: bool) -> None:
    """Print and keep the table."""
    dataset = dataset if full else runs.first(dataset)
    about = "Rounds to 97%; IID, K = 100, n_k = 600, eta = 0.01, decay = 0.001, epsilon = 0.01; one run each, seed 1."
    about += "" if full else f" Three rounds, {runs.FIRST}."
    most = len(METHODS) * (sum(tried(C, B) for C, B, _ in POSTER) if full else 1)
    most += len(READINGS) + len(STARTS) if full else 0
    page = tables.Page(DOCUMENT, "Pfitzner and Arnrich's poster on MNIST", full, about)
    tables.page(page, lines(dataset, full), most)
