"""Pfitzner and Arnrich's poster: rounds of a CNN on MNIST to 97% with FedAvg, Co-Learning and LoAdaBoost.

The poster does not say which CNN; ours is McMahan's (1,663,370 parameters), whose paper it follows. Nor does it say
what the rate's decay of 0.001 counts: here rounds, lr * 0.999^(t - 1). Counted in local steps the rate would be a fifth
after its 12 rounds.
"""

import functools
from collections.abc import Iterator
from typing import Any

from benchmarks import pictures, runs, tables
from v6_federated.datasets import Dataset
from v6_federated.experiments import Experiment

DOCUMENT = "pfitzner_arnrich"
COMMON: dict[str, Any] = {"model": "cnn_mcmahan", "lr": 0.01, "lr_decay_round": 0.999, "target": 0.97}
METHODS: list[tuple[str, str, dict[str, Any]]] = [
    ("FedAvg", "fedavg", {}),
    ("Co-Learning", "colearning", {"epsilon": 0.01}),
    ("LoAdaBoost, above", "loadaboost", {"retrain": "above"}),
    ("LoAdaBoost, below", "loadaboost", {"retrain": "below"}),
]
# (C, B, E): the poster's rounds of FedAvg, Co-Learning, LoAdaBoost; in brackets the best accuracy where not reached
POSTER = {
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


def rounds(B: int | None) -> int:
    """The most rounds of a row, by its rows in a batch."""
    return 60 if B else 600


def hours(C: float, B: int | None) -> bool:
    """Whether two cores take hours: such a row is tried on a GPU only (V6_FEDERATED_DEVICE=cuda)."""
    return C == 1 or B is None


def tried(C: float, B: int | None) -> bool:
    """Whether a row is run here, where it is not kept."""
    return not hours(C, B) or runs.on_gpu()


def lines(dataset: Dataset, full: bool) -> Iterator[str]:
    panels: dict[str, dict[str, pictures.Line]] = {}
    yield from tables.head("method", "C", "B", "E", "poster", "ours", "best accuracy", "MB up")
    for (C, B, E), printed in POSTER.items():
        if not full and (C, B, E) != (0.1, 10, 5):
            continue
        for name, method, own in METHODS:
            poster = printed[("fedavg", "colearning", "loadaboost").index(method)]
            if poster is None:
                continue
            known = name, C, B or "all", E, poster
            values = {**COMMON, "fraction": C, "batch_size": B, "epochs": E, "rounds": rounds(B) if full else 3, **own}
            panel = panels.setdefault(f"C = {C:g}, B = {B or 'all'}, E = {E}", {})
            found = functools.partial(cells, dataset, method, values, panel, name)
            yield tables.trained(known, found, 3, tables.NOT_RUN_YET if tried(C, B) else "not run: hours")
    picture, names = runs.RESULTS / f"{DOCUMENT}{'' if full else '-reduced'}.png", [name for name, _, _ in METHODS]
    if pictures.curves(panels, picture, bottom=0.85 if full else None, target=0.97, names=names):
        yield ""
        yield f"![accuracy by round]({picture.name})"


def cells(
    dataset: Dataset, method: str, values: dict[str, Any], panel: dict[str, pictures.Line], name: str
) -> tuple[str, str, str]:
    """Rounds to 97%, the best accuracy and what the nodes have sent, of one run, whose line goes into ``panel``."""
    B, new = values["batch_size"], tried(values["fraction"], values["batch_size"])
    segment = 2 if B else 20
    run = runs.kept(DOCUMENT, method, Experiment(dataset, 100, "iid", 1, 1), values, segment=segment, new=new)
    panel[name] = range(1, len(run.history) + 1), [tables.accuracies(run)]
    reached = run.reached(0.97)
    sent = sum(row["bytes_up"] for row in run.history) / 1e6
    ours = f"{reached:.1f}" if reached is not None else f"not in {len(run.history)}"
    return ours, f"{max(tables.accuracies(run)):.4f}", f"{sent:.0f}"


def main(dataset: Dataset, full: bool) -> None:
    """Print and keep the table."""
    dataset = dataset if full else runs.first(dataset)
    about = "IID, K = 100, n_k = 600, eta = 0.01, decay = 0.001, epsilon = 0.01; seed 1; rounds to 97%."
    about += "" if full else f" Three rounds, {runs.FIRST}."
    most = len(METHODS) * (sum(tried(C, B) for C, B, _ in POSTER) if full else 1)
    tables.page(DOCUMENT, "Pfitzner and Arnrich's poster on MNIST", full, lines(dataset, full), about, most)
