"""What secure aggregation costs: bytes a value, requests a job and seconds a round, beside plain answers.

Seconds are those of one process that computes for all nodes in turn, so the nodes' masks add up; on real nodes they are
made at the same time.
"""

import statistics
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks import tables
from v6_federated import models
from v6_federated.masks.answered import KEPT
from v6_workbench.simulation.datasets import Dataset
from v6_workbench.simulation.mock import MockNetwork, StudyPlan

FEATURES, CLASSES = 784, 10
HIDDEN = {"0.2 million": 250, "1.7 million": 2138}
BLOCK = 5
FEW: dict[str, Any] = {"lr": 0.01}  # one step on all rows
MINIBATCHES: dict[str, Any] = {"lr": 0.1, "epochs": 1, "batch_size": 10}  # as McMahan et al.
WORK = {"one step on 30 rows": (30, FEW), "E = 1, B = 10 on 600 rows": (600, MINIBATCHES)}
ABOUT = (
    "FedAvg of a network with one hidden layer on random rows. With one step a round, almost all of the time goes into "
    "messages and masks; 60 minibatches of ten rows are McMahan's. `masked`: all nodes are one block. `pinned`: blocks "
    "of five. One process computes for all nodes in turn. Bytes are those of base64, 4/3 of the raw ones."
)


def main(dataset: Dataset | None, full: bool) -> None:
    """Print and keep the table. The rows are random numbers."""
    tables.page(tables.Page("secagg_cost", "What masks cost", full, ABOUT, "", timed=True), _lines(full))


def _lines(full: bool) -> Iterator[str]:
    columns = ("seconds a round", "times plain", "bytes a value", "requests a node")
    for work, (rows, settings) in WORK.items():
        yield ""
        yield f"{work}:"
        yield ""
        yield from tables.head("parameters", "nodes", "aggregation", *columns)
        for size, hidden in HIDDEN.items():
            for nodes in (10, 50):
                if settings is MINIBATCHES and nodes > 10:
                    continue  # it only takes longer
                plain = 0.0
                for mode in ("plain", "masked", "pinned"):
                    seconds, volume, requests = _job(nodes, rows, hidden, mode, settings, 5 if full else 3)
                    plain = plain or seconds
                    ratio = f"{seconds / plain:.2f}"
                    yield tables.row(size, nodes, mode, f"{seconds:.2f}", ratio, f"{volume:.2f}", f"{requests:.0f}")


def _job(
    K: int, rows: int, hidden: int, mode: str, settings: dict[str, Any], rounds: int
) -> tuple[float, float, float]:
    """Median seconds a round, bytes of an answer's value as sent, and requests a node of a job of some rounds."""
    databases: Any = {
        k: (
            np.random.default_rng(k).normal(size=(rows, FEATURES)).astype(np.float32),
            np.arange(rows, dtype=np.int64) % CLASSES,
        )
        for k in range(1, K + 1)
    }
    spec = {"name": "fnn", "hidden": hidden, "features": FEATURES, "classes": CLASSES}
    size = models.build(spec).size
    assert size is not None
    stamps: list[float] = []
    with MockNetwork(
        "v6_fedavg",
        databases,
        on_round=lambda row: stamps.append(time.perf_counter()),
        study=StudyPlan(BLOCK) if mode == "pinned" else None,
    ) as network:
        result = network.run(
            aggregation=mode,
            rounds=KEPT + rounds + 1,
            **settings,
            model={"name": "fnn", "hidden": hidden},
            classes=[*range(CLASSES)],
            holdout=0.0,
        )
        requests = network.client().calls / K
    # a row is shown with the next round's answers; nodes keep the answers of the first rounds, in new memory
    seconds = statistics.median(np.diff(stamps[KEPT:-1]).tolist())
    volume = result["history"][-1]["bytes_up"] / K / size
    return seconds, volume, requests
