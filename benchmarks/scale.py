"""What many mock nodes cost: seconds and memory of 1,000, 10,000 and 100,000 nodes."""

import multiprocessing
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import orjson
import pandas as pd

from benchmarks import tables
from benchmarks.cost import PeakMemory
from v6_federated.messages.job import DataSpec, Job
from v6_workbench.simulation.datasets import Dataset
from v6_workbench.simulation.mock import MockNetwork

NODES = (1_000, 10_000, 100_000)
ASKED = 100  # nodes in a round
ROUNDS = 3
PIXELS, TABLE = "60 rows of 784 pixels", "a table of 20 rows and 6 columns"
ABOUT = (
    "FedAvg of logistic regression, rounds that ask 100 nodes, evaluated on 1,000 rows of one more node. Before the "
    "first round, all nodes describe their data. One process does everything. Peak memory is all that it holds, the "
    "rows of all nodes included, which are random numbers; the pixels of all nodes are views of the same 60,000 rows. "
    "Nodes read their rows from one file."
)


def main(dataset: Dataset | None, full: bool) -> None:
    """Print and keep the tables. The rows are random numbers."""
    about = tables.Page("scale", "What many mock nodes cost", full, ABOUT, "", timed=True)
    tables.page(about, _lines(NODES if full else NODES[:2]))


def _lines(counts: tuple[int, ...]) -> Iterator[str]:
    columns = ("set up, s", "file, GB", "describe, s", "a round, s", "peak memory, GB")
    for rows in (PIXELS, TABLE):
        yield ""
        yield from tables.head(f"nodes, each with {rows}", *columns)
        for nodes in counts:
            with multiprocessing.get_context("spawn").Pool(1) as alone:  # memory of an earlier one must not count
                set_up, size, described, seconds, peak = alone.apply(_measured, (nodes, rows))
            yield tables.row(
                f"{nodes:,}", f"{set_up:.2f}", f"{size:.2f}", f"{described:.0f}", f"{seconds:.2f}", f"{peak:.2f}"
            )
    yield ""
    yield from tables.head("nodes", "what a call says about its job, bytes", "with a list of all ids, bytes")
    for nodes in counts:
        message = _job([*range(1, nodes + 1)]).to_json()
        listed = {**message, "participants": [*range(1, nodes + 1)]}
        yield tables.row(f"{nodes:,}", *(f"{len(orjson.dumps(said)):,}" for said in (message, listed)))


def _measured(nodes: int, rows: str) -> tuple[float, float, float, float, float]:
    """Seconds to set up, GB of the file of rows, seconds to describe and of a round, and GB of memory at most."""
    stamps: list[float] = []

    def on_round(row: dict[str, Any]) -> None:
        stamps.append(time.perf_counter())

    with PeakMemory() as memory:
        databases = _pixels(nodes) if rows == PIXELS else _tables(nodes)
        started = time.perf_counter()
        with MockNetwork("v6_fedavg", databases, on_round=on_round) as network:
            set_up = time.perf_counter() - started
            size = (network.folder / "rows").stat().st_size
            settings: dict[str, Any] = {"evaluators": [nodes + 1], "holdout": 0.0, "model": "logreg", "batch_size": 10}
            started = time.perf_counter()
            network.run(rounds=ROUNDS, fraction=ASKED / nodes, seed=1, **settings)
            job = time.perf_counter() - started
    # a row is shown when the next round ends, which evaluates its model
    seconds = stamps[1] - stamps[0]
    return set_up, size / 1e9, job - ROUNDS * seconds, seconds, memory.bytes / 1e9


def _pixels(nodes: int) -> dict[int, Any]:
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 256, (60_000, 784), dtype=np.uint8), rng.integers(0, 10, 60_000)
    found: dict[int, Any] = {}
    for k in range(nodes):
        start = k * 60 % len(y)
        found[k + 1] = X[start : start + 60], y[start : start + 60]
    return {**found, nodes + 1: (X[:1000], y[:1000])}


def _tables(nodes: int) -> dict[int, Any]:
    whole = pd.DataFrame(np.random.default_rng(0).normal(size=(20 * nodes + 1000, 5)), columns=[*"abcde"])
    whole["label"] = (whole["a"] > 0).astype(int)
    parts: dict[int, Any] = {k + 1: whole.iloc[20 * k : 20 * k + 20].reset_index(drop=True) for k in range(nodes)}
    return {**parts, nodes + 1: whole.iloc[-1000:].reset_index(drop=True)}


def _job(nodes: list[int]) -> Job:
    return Job("fedavg", "0" * 32, 1, nodes, [], ROUNDS, None, DataSpec(), None, "float32")
