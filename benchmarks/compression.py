"""FedAvg with compressed updates: bytes and accuracy beside updates in full.

No document has this table.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks import pictures, runs, tables
from v6_workbench.simulation.datasets import Dataset
from v6_workbench.simulation.experiments import Experiment

DOCUMENT = "compression"
SEEDS = (1, 2, 3)
LOCAL: Mapping[str, Any] = {"model": "2nn", "fraction": 0.1, "epochs": 1, "batch_size": 10, "lr": 0.1}
FORMS: Mapping[str, Mapping[str, Any]] = {
    "float32": {},
    "float16": {"precision": "float16"},
    "8bit": {"compression": "8bit"},
    "topk, a tenth": {"compression": "topk", "topk_fraction": 0.1},
    "topk, a hundredth": {"compression": "topk", "topk_fraction": 0.01},
    "topk, a thousandth": {"compression": "topk", "topk_fraction": 0.001},
}
PARTITIONS = {"iid": "IID", "shards": "shards"}
TARGET = 0.95


def lines(dataset: Dataset, full: bool) -> Iterator[str]:
    """A row for each form, and a picture of the curves."""
    rounds, nodes = (100, 100) if full else (10, 20)
    marks = [t for t in (10, 50, 100) if t <= rounds]
    yield from tables.head(
        "rows", "updates as", "seeds", "MB up a round", *(f"round {t}" for t in marks), f"rounds to {TARGET:.0%}"
    )
    curves: dict[str, Any] = {}
    for partition, title in PARTITIONS.items():
        for form, values in FORMS.items():
            found: list[runs.Run] = []
            for seed in runs.seeds(SEEDS) if full else SEEDS[:1]:
                experiment = Experiment(dataset, nodes, partition, seed, seed)
                try:
                    found.append(runs.kept(DOCUMENT, "fedavg", experiment, {**LOCAL, **values, "rounds": rounds}))
                except runs.NotRun:
                    continue
            if not found:
                yield tables.row(title, form, tables.NOT_RUN_YET, *[None] * (2 + len(marks)))
                continue
            accuracy: Sequence[Sequence[float]] = [tables.accuracies(run) for run in found]
            megabytes = np.mean([row["bytes_up"] for run in found for row in run.history]) / 1e6
            reached = [run.reached(TARGET) for run in found]
            yield tables.row(
                title,
                form,
                len(found),
                f"{megabytes:.2f}",
                *(_mean([line[t - 1] for line in accuracy]) for t in marks),
                f"{np.mean([r for r in reached if r is not None]):.0f}" if None not in reached else "-",
            )
            curves.setdefault(title, {})[form] = (range(1, rounds + 1), accuracy)
    picture = f"{DOCUMENT}{'' if full else '-reduced'}.png"
    if pictures.curves(curves, runs.RESULTS / picture):
        yield ""
        yield f"![accuracy by round]({picture})"


def _mean(numbers: Sequence[float]) -> str:
    spread = f" ({np.std(numbers, ddof=1):.3f})" if len(numbers) > 1 else ""
    return f"{np.mean(numbers):.3f}{spread}"


def main(dataset: Dataset, full: bool) -> None:
    """Print and keep the table."""
    dataset = dataset if full else runs.first(dataset)
    about = (
        "The 2NN, C = 0.1, E = 1, B = 10, lr 0.1: accuracy on the test rows, mean and standard deviation over seeds. "
        "Bytes are those of the answers, as JSON. The model that is sent down has float32, or float16 in its row."
        f"{'' if full else f' Reduced: {runs.FIRST}.'}"
    )
    most = len(FORMS) * len(PARTITIONS) * (len(runs.seeds(SEEDS)) if full else 1)
    tables.page(tables.Page(DOCUMENT, "FedAvg with compressed updates", full, about), lines(dataset, full), most)
