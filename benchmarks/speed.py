"""A round of FedAvg on the mock network, by a plain loop, by pfl-research and by Flower, side by side in one run."""

import cProfile
import json
import math
import multiprocessing
import os
import pstats
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks import tables
from benchmarks.peers import networks
from v6_federated.base.errors import SafeError
from v6_federated.data.reading import as_features
from v6_workbench.simulation.datasets import Dataset
from v6_workbench.simulation.experiments import Experiment
from v6_workbench.simulation.mock import MockNetwork

ROOT = Path(__file__).parents[1]
PEERS = ROOT / "benchmarks" / "peers"
CLIENTS = 100
SETTINGS = {
    "fraction": networks.CLIENTS / CLIENTS,
    "epochs": 1,
    "batch_size": networks.BATCH,
    "lr": networks.LR,
    "holdout": 0.0,
    "seed": 1,
}
MODELS = {"2nn": ("McMahan's 2NN", 20, 8), "logreg": ("logistic regression", 20, 8), "cnn_mcmahan": ("its CNN", 3, 1)}
BLOCKS = 3
WARM = 2  # first rounds of each block, in which processes start and read their rows
OURS, PLAIN = "the whole mock network", "plain loop, torch with autograd"
PRODUCTS = "the matrix products alone, without anything else"
ABOUT = (
    "A round: MNIST's 60,000 rows, IID over 100 clients, 10 of which train (E = 1, B = 10), and the accuracy of the "
    "new model on the 10,000 test rows. All have the same rows and two worker processes of one thread each, if "
    "nothing else is said; ours and Flower have a server beside them. They take turns in blocks of rounds, so that "
    "what else the machine does meets all of them. The first rounds of a block, in which processes start and read "
    "their rows, are not counted. Compare the ratios: seconds differ from machine to machine. The accuracies, after a"
    " block of rounds, only show that all have trained alike."
)

Timed = Callable[[int], tuple[list[float], float]]  # seconds of each of so many rounds, and the last accuracy


def _ours(network: MockNetwork, stamps: list[float], common: dict[str, Any]) -> Timed:
    def rounds(count: int) -> tuple[list[float], float]:
        stamps.clear()
        # a round has no begin of its own, and the last one waits for its evaluation
        result = network.run(rounds=count + 2, **common)
        return np.diff(stamps[:-1]).tolist(), result["history"][count - 1]["accuracy"]

    return rounds


def _plain(rows: Any, test: Any, model: str) -> Timed:
    from benchmarks.plain_loop import plain_rounds

    def rounds(count: int) -> tuple[list[float], float]:
        with closing(plain_rounds(rows, test, networks.LR, model)) as generator:
            found = [next(generator) for _ in range(count + 1)]  # a round has the accuracy of the model before it
        return [seconds for seconds, _ in found[:count]], found[count][1]

    return rounds


def _products(share: int) -> float:
    """Seconds of the matrix products of a round of the 2NN, or of a half of them: nothing else of it is computed."""
    rng = np.random.default_rng(1)
    sizes = ((784, 200), (200, 200), (200, 10))
    W = [rng.random(size, np.float32) for size in sizes]
    X, test = rng.random((600, 784), np.float32), rng.random((500, 784), np.float32)
    signals = [rng.random((600, width), np.float32) for _, width in sizes]
    hidden = rng.random((600, 200), np.float32)
    dW = [np.empty_like(W_i) for W_i in W]

    def clients(number: int) -> None:
        for _ in range(number):
            for i in range(0, 600, 120):  # as ``Perceptron.descend`` computes the first layer
                x = X[i : i + 120]
                x @ W[0]
                np.matmul(x.T, signals[0][i : i + 120], out=dW[0])
                x @ x.T
                for j in range(i, i + 120, networks.BATCH):
                    h = hidden[j : j + networks.BATCH]
                    for W_i, dW_i, signal in zip(W[1:], dW[1:], signals[1:], strict=True):
                        s = signal[j : j + networks.BATCH]
                        h @ W_i
                        s @ W_i.T
                        np.matmul(h.T, s, out=dW_i)

    with threadpool_limits(1):
        clients(1)
        started = time.perf_counter()
        clients(networks.CLIENTS // share)
        for _ in range(10_000 // len(test) // share):
            h = test
            for W_i in W:
                h = h @ W_i
        return time.perf_counter() - started


def _alone(count: int) -> tuple[list[float], float]:
    """The matrix products of rounds of the 2NN in two processes."""
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        return [max(pool.map(_products, (2, 2), chunksize=1)) for _ in range(count)], math.nan


def _peer(folder: Path, model: str, environment: str, command: list[str]) -> Timed:
    """A peer's script, in its own environment."""
    bin_ = ROOT / f".venv-{environment}" / "bin"
    if not bin_.exists():
        raise SafeError(f"{environment} is not installed in {bin_.parent.name}; run: make peers")

    def rounds(count: int) -> tuple[list[float], float]:
        run = subprocess.run(
            [bin_ / command[0], *command[1:], folder, model, str(count)],
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(PEERS)},
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
        if run.returncode:
            raise SafeError(f"{environment} ended with status {run.returncode}: {run.stderr.strip()[-500:]}")
        found = json.loads(next(line for line in run.stdout.splitlines() if line.startswith('{"seconds"')))
        return found["seconds"], found["accuracy"]

    return rounds


def compared(dataset: Dataset, folder: Path, model: str, count: int) -> dict[str, tuple[list[float], float]]:
    """Seconds of the rounds of all systems, and their accuracies after a block.

    Args:
        dataset: MNIST.
        folder: where the peers read the rows.
        model: the model's name.
        count: rounds of a block that count.

    Returns:
        By system.
    """
    databases: Any = Experiment(dataset, CLIENTS, "iid", 1, 1).deal()
    assert dataset.test is not None
    X_test, y_test = as_features(dataset.test[0]), np.asarray(dataset.test[1], np.int64)
    rows = {k: (as_features(X), np.asarray(y, np.int64)) for k, (X, y) in databases.items()}
    for name, array in (("X", [X for X, _ in rows.values()]), ("y", [y for _, y in rows.values()])):
        np.save(folder / f"{name}.npy", np.stack(array))
    np.save(folder / "X_test.npy", X_test)
    np.save(folder / "y_test.npy", y_test)
    stamps: list[float] = []
    common = {**SETTINGS, "model": model, "organizations": [*databases], "evaluators": [CLIENTS + 1]}
    found: dict[str, tuple[list[float], float]] = {}
    with MockNetwork(
        "v6_fedavg",
        {**databases, CLIENTS + 1: dataset.test},
        processes=2,
        on_round=lambda row: stamps.append(time.perf_counter()),
    ) as network:
        systems: dict[str, Timed] = {
            OURS: _ours(network, stamps, common),
            PLAIN: _plain(rows, (X_test, y_test), model),
            "pfl-research 0.6": _peer(
                folder, model, "pfl", ["torchrun", "--nproc-per-node", "2", str(PEERS / "pfl_rounds.py")]
            ),
            "pfl-research 0.6 in one process, its default": _peer(
                folder, model, "pfl", ["python", str(PEERS / "pfl_rounds.py")]
            ),
            "Flower 1.42": _peer(folder, model, "flower", ["python", str(PEERS / "flower_rounds.py")]),
        }
        if model == "2nn":
            systems[PRODUCTS] = _alone
        for block in range(BLOCKS):
            for system, rounds in systems.items():
                seconds, accuracy = rounds(WARM + count)
                before = found[system][0] if block else []
                found[system] = before + seconds[WARM:], accuracy
    return found


def side_by_side(dataset: Dataset, full: bool) -> Iterator[str]:
    """A table for each model."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").exists() else None) as folder:
        for model, (title, many, few) in MODELS.items():
            found = compared(dataset, Path(folder), model, many if full else few)
            ours = statistics.median(found[OURS][0])
            yield from tables.head(f"a round of {title}", "median seconds", "fastest", "ours takes", "accuracy")
            for system, (seconds, accuracy) in found.items():
                median = statistics.median(seconds)
                times = f"{ours / median:.2f} of it"
                yield tables.row(
                    system,
                    f"{median:.3f}",
                    f"{min(seconds):.3f}",
                    None if system == OURS else times,
                    None if math.isnan(accuracy) else f"{accuracy:.3f}",
                )
            yield ""


# the parts of a round: functions whose time counts, with all that they call
PARTS = {
    "local training: gradients by hand and steps": ("descend",),
    "evaluation of 10,000 test rows": ("evaluate in metrics.py",),
    "payloads: base64 and back": ("encode in codec.py", "decode in codec.py"),
    "messages: JSON and files": (
        "<built-in method orjson.dumps>",
        "<built-in method orjson.loads>",
        "write_bytes",
        "read_bytes",
    ),
    "weighted mean and distances": ("weighted_mean", "record in federation.py"),
}


def where_the_time_goes(dataset: Dataset, rounds: int = 20) -> Iterator[str]:
    """A profile of rounds of the 2NN through the mock network in one process."""
    databases: Any = Experiment(dataset, CLIENTS, "iid", 1, 1).deal()
    common: dict[str, Any] = {**SETTINGS, "model": "2nn", "organizations": [*databases], "evaluators": [CLIENTS + 1]}
    everything = {**databases, CLIENTS + 1: dataset.test}
    with MockNetwork("v6_fedavg", everything, on_round=lambda row: None) as network:
        network.run(rounds=1, **common)
        profile = cProfile.Profile()
        profile.runcall(network.run, rounds=rounds, **common)
    stats = pstats.Stats(profile)  # its types are not declared
    total, seen = stats.total_tt, 0.0  # type: ignore[attr-defined]
    yield from tables.head("where the time of a round of the 2NN goes (cProfile, one process)", "share")
    for part, names in PARTS.items():
        seconds = 0.0
        for (file, _, function), (_, _, _, cumulative, _) in stats.stats.items():  # type: ignore[attr-defined]
            if function in names or f"{function} in {Path(file).name}" in names:
                seconds += cumulative
        seen += seconds
        yield tables.row(part, f"{seconds / total:.1%}")
    yield tables.row("everything else", f"{1 - seen / total:.1%}")


def main(dataset: Dataset, full: bool) -> None:
    """Print and keep the tables."""
    os.environ["V6_FEDERATED_MINIMUM_ORGANIZATIONS"] = "1"

    def lines() -> Iterator[str]:
        yield from side_by_side(dataset, full)
        yield from where_the_time_goes(dataset)

    tables.page(tables.Page("speed", "A round beside other packages", full, ABOUT, timed=True), lines())
