"""Kept runs: each finished run is one small file, so a benchmark that was stopped continues where it was.

Progress and an estimate of the time left go to standard error.
"""

import functools
import hashlib
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from v6_federated import models
from v6_federated.base.errors import SafeError
from v6_federated.base.files import write_whole
from v6_federated.base.text import DIVERGED
from v6_workbench.reporting.summary import summary, to_target
from v6_workbench.simulation.datasets import Dataset
from v6_workbench.simulation.experiments import Experiment, OnRound

RESULTS = Path(__file__).parent / "results"
REDUCED = 4000, 1500  # rows and test rows of a benchmark in minutes
FIRST = "on the first {} rows and {} test rows".format(*REDUCED)
STATEFUL = ("scaffold", "dynavg", "coop")
KEPT = ("round", "loss", "accuracy", "auc", "train_loss", "bytes_up", "bytes_down", "seconds", "uploads")


@dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
        settings: what it was run with; they name its file.
        history: a row a round, with the columns of ``KEPT``.
        machine, date: where and when it ran.
    """

    settings: Mapping[str, Any]
    history: Sequence[Mapping[str, Any]]
    machine: str
    date: str

    def reached(self, target: float) -> float | None:
        """Rounds to ``target``, as McMahan counts them."""
        return to_target({"history": self.history}, target)


def machine(model: str = "") -> str:
    """The processor, Python and numpy, and the GPU if it trains ``model``.

    Raises:
        SafeError: nodes are to use a GPU that this machine does not have.
    """
    cpu = next((line.split(":")[1].strip() for line in _cpuinfo() if line.startswith("model name")), platform.machine())
    known = f"{cpu}, {os.cpu_count()} cores, Python {platform.python_version()}, numpy {np.__version__}"
    return f"{known}, {_gpu()}" if on_gpu() and model.partition(":")[0] in models.ON_TORCH else known


def on_gpu() -> bool:
    """Whether the nodes of these runs train convolutions and LSTMs on a GPU."""
    return os.environ.get("V6_FEDERATED_DEVICE", "").startswith("cuda")


def _gpu() -> str:
    import torch  # takes seconds, and most benchmarks do not need it

    from v6_federated.models.torch_base import device

    return f"torch {torch.__version__} on {torch.cuda.get_device_name(device())}"


def _cpuinfo() -> list[str]:
    file = Path("/proc/cpuinfo")
    return file.read_text(encoding="utf-8").splitlines() if file.exists() else []


class Watch:
    """Shows how many runs of a benchmark are done, and how long the rest may take, from the mean of those so far.

    Args:
        document: the benchmark.
        total: the most runs that it can have.
    """

    def __init__(self, document: str, total: int) -> None:
        self.document, self.total, self.seconds = document, total, list[float]()
        self.console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed} of {task.total} rounds"))
        self.progress = Progress(*columns, console=self.console, disable=not self.console.is_terminal)

    def __enter__(self) -> "Watch":
        used.clear()
        if self.console.is_terminal:
            self.progress.start()
        self.task = self.progress.add_task(self.document, total=None, visible=False)
        return self

    def __exit__(self, *exception: object) -> None:
        if self.console.is_terminal:
            self.progress.stop()

    def begin(self, rounds: int | None) -> None:
        """A run begins."""
        text = f"{self.document}, run {len(self.seconds) + 1} of at most {self.total}{self._left()}"
        self.progress.reset(self.task, total=rounds, description=text, visible=True)

    def on_round(self, row: Mapping[str, Any]) -> None:
        """A round of it is done."""
        self.progress.advance(self.task)

    def end(self, seconds: float, new: bool) -> None:
        """A run is done, now (``new``) or earlier."""
        self.seconds.append(seconds)
        if new and not self.console.is_terminal:
            text = f"{self.document}: run {len(self.seconds)} of at most {self.total} done in {seconds:.0f} s"
            print(text + self._left(), file=sys.stderr, flush=True)

    def _left(self) -> str:
        if not self.seconds:
            return ""
        minutes = max(0, self.total - len(self.seconds)) * float(np.mean(self.seconds)) / 60
        return f", at most about {minutes:.0f} min left"


watch: Watch | None = None  # of the benchmark that runs
used: dict[Path, Run] = {}  # by its page, so far
most_seeds: int | None = None  # --seeds
only_kept = False  # --kept


class NotRun(SafeError):
    """A run is not kept and must not be run now."""


def places() -> Sequence[str]:
    """The machines that the runs of a page used, with their number, seeds and dates; the most runs first."""
    by_machine: dict[str, list[Run]] = {}
    for run in used.values():
        by_machine.setdefault(run.machine, []).append(run)
    lines = []
    for machine, found in sorted(by_machine.items(), key=lambda item: -len(item[1])):
        seeds = {run.settings["seed"] for run in found if "seed" in run.settings}
        parts = [
            f"{len(found)} run{'s' if len(found) > 1 else ''}",
            f"seed{'s' if len(seeds) > 1 else ''} {_span(seeds)}" if seeds else "",
            _span({run.date for run in found}),
        ]
        lines.append(f"{machine}: {', '.join(filter(None, parts))}")
    return lines


def _span(values: set[Any]) -> str:
    first, last = min(values), max(values)
    return f"{first}" if first == last else f"{first} to {last}"


def seeds(every: Sequence[int]) -> Sequence[int]:
    """The seeds of a row, or the first ``--seeds`` of them."""
    return every[:most_seeds]


def first(dataset: Dataset) -> Dataset:
    """The first rows only. The file's order is by no class."""
    assert isinstance(dataset.rows, tuple) and isinstance(dataset.test, tuple)
    (X, y), (X_test, y_test) = dataset.rows, dataset.test
    rows, test = REDUCED
    return Dataset(f"{dataset.name}-first-{rows}", (X[:rows], y[:rows]), (X_test[:test], y_test[:test]))


@functools.cache
def digest(dataset: Dataset) -> str:
    """Eight hexadecimal digits that distinguish tables of the same name."""
    arrays = dataset.rows if isinstance(dataset.rows, tuple) else (dataset.rows.to_numpy(),)
    return hashlib.sha256(b"".join(np.ascontiguousarray(a).tobytes() for a in arrays)).hexdigest()[:8]


def text_digest(dataset: Dataset) -> str:
    """Eight hexadecimal digits of a table as text. ``digest`` is of addresses where a table has words."""
    assert isinstance(dataset.rows, pd.DataFrame)
    return hashlib.sha256(dataset.rows.to_csv(index=False).encode()).hexdigest()[:8]


def kept(
    document: str,
    method: str,
    experiment: Experiment,
    values: Mapping[str, Any],
    centralized: bool = False,
    segment: int | None = None,
    distances: bool = False,
    new: bool = True,
) -> Run:
    """Run a method, or read what an earlier run with the same settings has left.

    Args:
        document: the benchmark.
        method: federated method.
        experiment: rows, nodes, partition and seeds.
        values: the method's settings.
        centralized: whether to train on the pooled rows.
        segment: rounds after which a long run is kept, so that it goes on from there if it is stopped. Not for methods
            whose nodes keep a state between rounds, which would be lost.
        distances: whether each round's row has the distances of the nodes' models from the global one.
        new: whether to run it if it is not kept.

    Raises:
        NotRun: it is not kept, and ``new`` is false or --kept was given.
    """
    settings = {
        "method": method,
        "data": f"{experiment.dataset.name} {digest(experiment.dataset)}",
        "nodes": experiment.nodes,
        "partition": experiment.partition,
        "seed": experiment.seed,
        "partition_seed": experiment.partition_seed,
        **({} if experiment.slowest is None else {"slowest": experiment.slowest}),
        **({} if experiment.holdout in (None, 0.2) else {"holdout": experiment.holdout}),
        **({"environment": dict(experiment.environment)} if experiment.environment else {}),
        **({"centralized": True} if centralized else {}),
        **({"distances": True} if distances else {}),
        **({} if experiment.fold is None else {"fold": list(experiment.fold)}),
        **values,
    }
    train = experiment.centralized if centralized else experiment.federated
    assert segment is None or method not in STATEFUL
    if distances:
        return kept_as(document, settings, lambda on_round: _with_distances(train(method, values, on_round)), new)
    if segment is None:
        return kept_as(document, settings, lambda on_round: train(method, values, on_round), new)
    part = RESULTS / document / f"{_key(settings)}.part.json"

    def in_segments(on_round: OnRound | None) -> Mapping[str, Any]:
        result, here, earlier, started = None, machine(settings.get("model", "")), 0.0, time.monotonic()
        if part.exists():
            stored = json.loads(part.read_text(encoding="utf-8"))
            result, before, earlier = stored["result"], stored["machine"], stored["seconds"]
            same = before.split(";")[0] == here  # another machine's numbers may differ in their last bits
            here = before if same else f"{here}; rounds 1 to {len(result['history'])}: {before}"
            if watch:
                watch.progress.advance(watch.task, len(result["history"]))
        while True:
            done = len(result["history"]) if result else 0
            rounds = min(done + segment, values["rounds"])
            result = train(method, {**values, "rounds": rounds, "resume": result}, on_round)
            _check_ended(document, result)
            if len(result["history"]) < rounds or rounds == values["rounds"]:  # the target is reached, or the end
                break
            seconds = earlier + time.monotonic() - started
            write_whole(part, json.dumps({"result": result, "machine": here, "seconds": seconds}))
        return {**result, "machine": here, "earlier_seconds": earlier}

    run = kept_as(document, settings, in_segments, new)
    part.unlink(missing_ok=True)
    return run


def kept_as(
    document: str,
    settings: Mapping[str, Any],
    train: Callable[[OnRound | None], Mapping[str, Any]],
    new: bool = True,
) -> Run:
    """Run ``train``, or read what an earlier run with the same settings has left.

    Args:
        document: the benchmark.
        settings: what distinguishes the run from all others of the benchmark.
        train: gives a result with a ``history``, and calls its argument after each round.
        new: whether to run it if it is not kept.

    Raises:
        NotRun: it is not kept, and ``new`` is false or --kept was given.
    """
    file = RESULTS / document / f"{_key(settings)}.json"
    absent = not file.exists()
    if absent and (only_kept or not new):
        raise NotRun(f"{document}: a run of {settings['method']} is missing; run the command without --kept")
    if absent:
        here = machine(settings.get("model", ""))  # raises, before any training, where the GPU asked for is absent
        if watch:
            watch.begin(settings.get("rounds"))
        started = time.monotonic()
        result = train(watch.on_round if watch else None)
        _check_ended(document, result)
        columns = [*KEPT, *(["distances"] if "distances" in result["history"][0] else [])]
        history = [{name: row.get(name) for name in columns} for row in result["history"]]
        write_whole(
            file,
            json.dumps(
                {
                    "settings": settings,
                    "machine": result.get("machine", here),
                    "date": date.today().isoformat(),
                    "wall_seconds": round(result.get("earlier_seconds", 0.0) + time.monotonic() - started, 1),
                    "summary": summary(result) if "settings" in result else None,
                    "history": [[_short(row[name]) for name in columns] for row in history],
                    "columns": columns,
                }
            ),
        )
    stored = json.loads(file.read_text(encoding="utf-8"))
    if watch:
        watch.end(stored["wall_seconds"], absent)
    rows = [dict(zip(stored["columns"], row, strict=True)) for row in stored["history"]]
    used[file] = Run(stored["settings"], rows, stored["machine"], stored["date"])
    return used[file]


def _check_ended(document: str, result: Mapping[str, Any]) -> None:
    """Raise SafeError for a run that has ended because of this machine, not because of the method."""
    stopped = result.get("stopped", "")
    if stopped and DIVERGED not in stopped:
        raise SafeError(f"{document}: a run ended after round {len(result['history'])}: {stopped}")


def _key(settings: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]


def _with_distances(result: Mapping[str, Any]) -> Mapping[str, Any]:
    """The result with the distances of the nodes' models, by ascending id, in the rows of the history."""
    rows = [
        {**row, "distances": [node["distance"] for node in result["per_node"] if node["round"] == row["round"]]}
        for row in result["history"]
    ]
    return {**result, "history": rows}


def _short(value: Any) -> Any:
    if isinstance(value, list):
        return [_short(part) for part in value]
    return round(value, 5) if isinstance(value, float) else value


def best_rate(
    rates: Sequence[float], train: Callable[[float, int], Run], target: float, rounds: int
) -> tuple[float, Run] | None:
    """The learning rate of a grid that reaches ``target`` in the fewest rounds.

    A rate that has not reached it by the rounds of the best so far is not trained further.
    """
    best: tuple[float, Run] | None = None
    for lr in rates:
        run = train(lr, rounds)
        reached = run.reached(target)
        if reached is not None and (best is None or reached < (best[1].reached(target) or rounds)):
            best, rounds = (lr, run), int(reached) + 1
    return best
