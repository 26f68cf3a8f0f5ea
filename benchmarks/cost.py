"""What a call on the mock network costs beside vantage6's own mock client, and a round under the profile careful."""

import os
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks import tables
from v6_federated import models
from v6_federated.base import vantage6_api
from v6_federated.data.reading import as_features
from v6_federated.messages import codec
from v6_federated.messages.job import DataSpec, Job
from v6_federated.models.perceptron import Perceptron
from v6_fsvrg.perceptron import svrg_pass
from v6_workbench.simulation.datasets import Dataset
from v6_workbench.simulation.experiments import Experiment
from v6_workbench.simulation.mock import MockNetwork

SETTINGS = {"fraction": 0.1, "epochs": 1, "batch_size": 10, "lr": 0.1, "model": "2nn", "holdout": 0.0, "seed": 1}
TWO_NN = {"name": "2nn", "features": 784, "classes": 10}
ABOUT = "Times of one run on one machine. Compare the ratios; seconds differ from machine to machine."


def careful_ratio(dataset: Dataset, rounds: int) -> Iterator[str]:
    """A round of the 2NN under the profile careful and under trusting, in turn in blocks of rounds."""
    databases: Any = {**Experiment(dataset, 100, "iid", 1, 1).deal(), 101: dataset.test}
    seconds: dict[str, list[float]] = {"trusting": [], "careful": []}
    stamps: list[float] = []

    def on_round(row: dict[str, Any]) -> None:
        stamps.append(time.perf_counter())

    common: dict[str, Any] = {**SETTINGS, "organizations": list(databases)[:-1], "evaluators": [101]}
    with ExitStack() as networks:
        of = {
            profile: networks.enter_context(
                MockNetwork(
                    "v6_fedavg",
                    databases,
                    environment={"V6_FEDERATED_PROFILE": profile},
                    processes=2,
                    on_round=on_round,
                )
            )
            for profile in seconds
        }
        for network in of.values():
            network.run(rounds=3, **common)  # the workers start and read their rows
        for _block in range(8):
            for profile, network in of.items():
                stamps.clear()
                network.run(rounds=rounds + 1, **common)
                seconds[profile] += np.diff(stamps[:-1]).tolist()
    first = statistics.median(seconds["trusting"])
    yield from tables.head(
        "a round: 2NN, K = 100, C = 0.1, E = 1, B = 10", "median seconds", "fastest", "ratio of medians"
    )
    for profile, found in seconds.items():
        median = statistics.median(found)
        yield tables.row(f"the profile {profile}", f"{median:.3f}", f"{min(found):.3f}", f"{median / first:.2f}")


# ---- an empty call


def _request(nodes: list[int]) -> dict[str, Any]:
    w = models.build(TWO_NN).init(np.random.default_rng(0))
    job = Job(
        "echo", "0" * 32, 0, nodes, [], None, TWO_NN, DataSpec(classes=list(range(10)), holdout=0.0), None, "float32"
    )
    return {"method": "echo", "kwargs": {"job": job.to_json(), "round": 1, "arrays": codec.encode({"weights": w})}}


def _seconds_a_call(client: Any, nodes: list[int], repeats: int) -> float:
    found = []
    for _ in range(repeats):
        started = time.perf_counter()
        request = _request(nodes)  # one task a node, as methods send them
        tasks = [client.task.create(input_=request, organizations=[node])["id"] for node in nodes]
        answers = []
        for task in tasks:
            vantage6_api.wait_for_any(client, [task])
            answers += [codec.decode(answer["arrays"]) for answer in vantage6_api.results(client, task)]
        assert len(answers) == len(nodes)
        found.append((time.perf_counter() - started) / len(nodes))
    return min(found)


def call_overhead(dataset: Dataset) -> Iterator[str]:
    """Milliseconds of a call that does nothing, with the weights of the 2NN both ways, at nodes of 60 rows."""
    assert isinstance(dataset.rows, tuple)
    X, y = dataset.rows[0].reshape(len(dataset.rows[0]), -1), dataset.rows[1]
    from vantage6.algorithm.tools.mock_client import MockAlgorithmClient  # which vantage6 5 does not have

    yield from tables.head("nodes", "mock network, ms a call", "MockAlgorithmClient, ms a call", "ratio")
    for nodes in (10, 100, 1000):
        ids = list(range(1, nodes + 1))
        parts = {k: (X[(k - 1) * 60 : k * 60], y[(k - 1) * 60 : k * 60]) for k in ids}
        with MockNetwork("benchmarks.echo", parts, processes=2) as network:
            client = network.client()
            with PeakMemory() as memory:  # during the first repeat, which is not timed
                _seconds_a_call(client, ids, 1)
            ours = _seconds_a_call(client, ids, 3) * 1e3
        if nodes > 100:
            yield tables.row(nodes, f"{ours:.2f}", None, None)
            yield ""
            yield f"Peak memory at {nodes:,} nodes of 60 rows, all answers kept: {memory.bytes / 1e9:.2f} GB."
            continue
        frames = [[{"database": pd.DataFrame(a / 255).assign(label=b), "db_type": "csv"}] for a, b in parts.values()]
        theirs = _seconds_a_call(MockAlgorithmClient(frames, "benchmarks.echo", organization_ids=ids), ids, 1) * 1e3
        yield tables.row(nodes, f"{ours:.2f}", f"{theirs:.1f}", f"{theirs / ours:.0f}")


def fsvrg_pass(dataset: Dataset, repeats: int = 5) -> Iterator[str]:
    """A node's pass of FSVRG with B = 1 over its 600 rows: the paper's box row by row, and as a node does it."""
    assert isinstance(dataset.rows, tuple)
    X, y = as_features(dataset.rows[0][:600]), np.asarray(dataset.rows[1][:600], np.int64)
    model = models.build(TWO_NN)
    assert isinstance(model, Perceptron)
    w_t = model.init(np.random.default_rng(0))
    full = model.loss_and_gradient(w_t, X, y)[1].copy()
    order, h_k = np.random.default_rng(1).permutation(len(y)), 4 / len(y)

    def box(w: np.ndarray) -> None:
        for i in order:
            theta = full - model.loss_and_gradient(w_t, X[i : i + 1], y[i : i + 1])[1]
            theta += model.loss_and_gradient(w, X[i : i + 1], y[i : i + 1])[1]
            theta *= np.float32(h_k)
            w -= theta

    def ours(w: np.ndarray) -> None:
        svrg_pass(model, w, w_t, X, y, full, h_k, order)

    seconds: dict[str, list[float]] = {}
    for _ in range(repeats):
        for name, run in (("the box row by row", box), ("as a node does it", ours)):
            w, started = w_t.copy(), time.perf_counter()
            run(w)
            seconds.setdefault(name, []).append(time.perf_counter() - started)
    first = statistics.median(seconds["the box row by row"])
    yield from tables.head("a node's pass of FSVRG: 2NN, 600 rows, B = 1", "median seconds", "ratio")
    for name, found in seconds.items():
        yield tables.row(name, f"{statistics.median(found):.3f}", f"{statistics.median(found) / first:.2f}")


class PeakMemory:
    """The most memory that this process and its children hold together, in bytes; shared pages count once."""

    def __enter__(self) -> "PeakMemory":
        self.bytes, self._done = 0, threading.Event()
        self._watcher = threading.Thread(target=self._watch)
        self._watcher.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._done.set()
        self._watcher.join()

    def _watch(self) -> None:
        while not self._done.wait(0.1):
            self.bytes = max(self.bytes, _memory())


def _memory() -> int:
    """Proportional memory of this process and its children now, bytes (Linux)."""
    held, pids = 0, [os.getpid()]
    while pids:
        pid = pids.pop()
        try:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
            pids += [int(c) for t in Path(f"/proc/{pid}/task").iterdir() for c in (t / "children").read_text().split()]
        except OSError:  # the process has just ended
            continue
        held += sum(int(line.split()[1]) * 1024 for line in rollup.splitlines() if line.startswith("Pss:"))
    return held


def main(dataset: Dataset, full: bool) -> None:
    """Print and keep the ratios."""
    os.environ["V6_FEDERATED_MINIMUM_ORGANIZATIONS"] = "1"

    def lines() -> Iterator[str]:
        yield from call_overhead(dataset)
        yield ""
        yield from careful_ratio(dataset, 20 if full else 8)
        yield ""
        yield from fsvrg_pass(dataset)

    tables.page(tables.Page("cost", "What the mock network costs", full, ABOUT, timed=True), lines())
