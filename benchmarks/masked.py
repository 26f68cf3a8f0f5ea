"""Does secure aggregation cost rounds? The 2NN of McMahan et al. in a study of ten blocks, beside plain sums."""

import math
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

import numpy as np

from benchmarks import tables
from v6_federated import Federation, codec
from v6_federated.base.randomness import generator
from v6_workbench.simulation.datasets import Dataset
from v6_workbench.simulation.experiments import Experiment
from v6_workbench.simulation.mock import MockNetwork
from v6_workbench.simulation.studies import StudyPlan

SEEDS = (1, 2, 3)
HOSPITALS, BLOCK = 100, 10
TEST = HOSPITALS + 1  # the organization that holds the test set
TARGET = 0.97
SETTINGS = {"fraction": 0.1, "epochs": 1, "batch_size": 10, "lr": 0.215, "model": "2nn", "holdout": 0.0}
ABOUT = (
    "100 hospitals of 600 images, IID, in ten blocks of ten; B = 10, E = 1, one block a round. The plain job asks the "
    "same block in each round, and central sees each hospital's answer. Accuracy on the 10,000 test images. Later "
    "rounds differ by more, and so do those of a plain job whose first model was changed in its seventh digit: a unit "
    "of ReLU that is almost zero at one row is then on the other side."
)


def _job(dataset: Dataset, seed: int, rounds: int, blocks: Sequence[Sequence[int]] | None) -> dict[str, Any]:
    """A pinned job; with ``blocks`` a plain one that asks the same blocks."""
    databases: Any = Experiment(dataset, HOSPITALS, "iid", seed, seed).deal()
    plan = StudyPlan(BLOCK, names={k: f"hospital-{k}" for k in databases})
    common: dict[str, Any] = {**SETTINGS, "seed": seed, "organizations": [*databases], "evaluators": [TEST]}

    def same_block(federation: Federation, fraction: float) -> list[int]:
        assert blocks is not None
        rng = generator(seed, "sample", 0, len(federation.history) + 1)
        drawn = rng.choice(len(blocks), math.floor(fraction * len(blocks) + 1e-9), replace=False)
        return sorted(k for i in drawn.tolist() for k in blocks[i])

    nodes = {**databases, TEST: dataset.test}
    with MockNetwork("v6_fedavg", nodes, processes=2, study=plan, on_round=lambda row: None) as network:
        common |= {"rounds": rounds, "target": TARGET}
        if blocks is None:
            return network.run(aggregation="pinned", **common)
        with mock.patch.object(Federation, "sample", same_block):
            return network.run(aggregation="plain", **common)


def _both(dataset: Dataset, seed: int, rounds: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The plain job and the pinned one."""
    pinned = _job(dataset, seed, rounds, None)
    return _job(dataset, seed, rounds, pinned["privacy"]["blocks"]), pinned


def _reached(result: dict[str, Any]) -> int | None:
    """The first round whose model has reached the target."""
    return next((row["round"] for row in result["history"] if (row["accuracy"] or 0) >= TARGET), None)


def _lines(dataset: Dataset, full: bool) -> Iterator[str]:
    yield from tables.head("seed", "rounds to 97%, plain", "rounds to 97%, pinned", "models differ after 1 round by")
    for seed in SEEDS if full else SEEDS[:1]:
        reached = [_reached(result) for result in _both(dataset, seed, 300)]
        a, b = (codec.decode(result["weights"])["weights"] for result in _both(dataset, seed, 1))
        yield tables.row(seed, *reached, f"{np.linalg.norm(a - b) / np.linalg.norm(a):.1e}")


def main(dataset: Dataset, full: bool) -> None:
    """Print and keep the table."""
    page = tables.Page("masked", "Does secure aggregation cost rounds?", full, ABOUT, timed=True)
    tables.page(page, _lines(dataset, full))
