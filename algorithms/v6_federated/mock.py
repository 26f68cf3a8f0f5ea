"""A network of mock nodes on this machine, with the interface of vantage6's algorithm client.

Central runs in the caller's process, partials in ``processes`` worker processes through joblib (whose back ends, Dask
and Ray among them, take it to other machines). Every message makes the round trip through JSON, as on a real network.
Each node has its own rows, environment and temporary folder. Rows are handed over once, as files that the workers map
into memory; a call carries nothing but its message.
"""

import functools
import importlib
import os
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import orjson
import pandas as pd

from v6_federated.data import Source, as_features


@dataclass(frozen=True)
class MockNode:
    """What a worker needs to know of a node: its folder holds ``database`` and ``tmp``."""

    organization_id: int
    folder: Path
    environment: Mapping[str, str]


class MockNetwork:
    """Nodes with their rows, and the method that their image holds.

    Args:
        package: the method's import package, for example ``v6_fedavg``.
        databases: rows of each organization by id: a DataFrame, or arrays (X, y).
        environment: environment variables of every node (its operator's policy).
        environments: those of single nodes, by organization id, on top.
        processes: worker processes; 1 runs the partials in this process. The bits are the same.
        on_round: called with each finished row of the history.

    Use as a context manager: its workers and its temporary folder go at the end.
    """

    def __init__(
        self,
        package: str,
        databases: Mapping[int, "pd.DataFrame | tuple[np.ndarray, np.ndarray]"],
        *,
        environment: Mapping[str, str] | None = None,
        environments: Mapping[int, Mapping[str, str]] | None = None,
        processes: int = 1,
        on_round: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        if processes < 1:
            raise ValueError(f"processes={processes} is refused: expected at least 1")
        self.package, self.on_round = package, on_round
        if not databases:
            raise ValueError("no databases; expected those of at least one organization")
        self._temporary = tempfile.TemporaryDirectory(prefix="v6-federated-", ignore_cleanup_errors=True)
        self.folder = Path(self._temporary.name)
        self.nodes: dict[int, MockNode] = {}
        try:
            for organization, database in databases.items():
                own = {**(environment or {}), **(environments or {}).get(organization, {})}
                self.nodes[organization] = self._hand_over(organization, database, own)
        except BaseException:
            self.close()
            raise
        self._pool = joblib.Parallel(
            n_jobs=processes, batch_size=1, pre_dispatch="all", return_as="generator_unordered", max_nbytes=None
        )

    def _hand_over(self, organization: int, database: Any, environment: Mapping[str, str]) -> MockNode:
        folder = self.folder / f"node-{organization}"
        (folder / "tmp").mkdir(parents=True)
        if isinstance(database, pd.DataFrame):
            source = Source(table=database)
        else:
            X, y = database
            source = Source(X=as_features(np.asarray(X)), y=np.asarray(y))
        joblib.dump(source, folder / "database")
        return MockNode(organization, folder, {**environment, "TEMPORARY_FOLDER": str(folder / "tmp")})

    def __enter__(self) -> "MockNetwork":
        self._pool.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._pool.__exit__(*exception)
        self.close()

    def close(self) -> None:
        """Remove the temporary folder."""
        _open.cache_clear()
        self._temporary.cleanup()

    def client(self) -> "MockClient":
        """A client as the container of a central function has it."""
        return MockClient(self)

    def run(self, **settings: Any) -> dict[str, Any]:
        """Run the method's central function at the first node and return its result, as JSON brings it."""
        central = importlib.import_module(self.package).central
        with _environment(next(iter(self.nodes.values())).environment):
            result = central(mock_client=self.client(), **orjson.loads(orjson.dumps(settings)))
        return orjson.loads(orjson.dumps(result))

    def work(self, calls: list[tuple[Path, int, int]]) -> Iterator[tuple[int, str, str]]:
        """Run calls (message, organization, number of the run); yield (number, status, log) as they finish."""
        yield from self._pool(
            joblib.delayed(_run)(self.package, self.nodes[organization], message, number)
            for message, organization, number in calls
        )


def _run(package: str, node: MockNode, message: Path, number: int) -> tuple[int, str, str]:
    """One run at one node, in a worker: the answer goes to a file, as in a container."""
    _forget_other_networks(node.folder.parent)
    request = _parse(message)
    function = getattr(importlib.import_module(package), request["method"])
    try:
        with _environment(node.environment):
            answer = function(
                mock_client=_Identity(node.organization_id), mock_data=[_open(node.folder)], **request["kwargs"]
            )
        (message.parent / f"answer-{number}.json").write_bytes(orjson.dumps(answer))
    except Exception as error:
        if os.environ.get("V6_FEDERATED_DEBUG") == "1":
            traceback.print_exc()
        return number, "crashed", f"Error encountered while calling {request['method']}: {error}"
    return number, "completed", ""


_network: list[Path] = []  # whose databases this process has open


def _forget_other_networks(folder: Path) -> None:
    """Workers outlive a network; its databases must not."""
    if _network != [folder]:
        _network[:] = [folder]
        _open.cache_clear()


@functools.lru_cache(maxsize=2)
def _parse(message: Path) -> dict[str, Any]:
    """A task's message, parsed once in each worker: it is the same for all nodes, and functions do not change it."""
    return orjson.loads(message.read_bytes())


@functools.cache
def _open(folder: Path) -> Source:
    """A node's database, mapped into memory once in each worker (read-only: no call can change it for the next)."""
    return joblib.load(folder / "database", mmap_mode="r")


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@dataclass(frozen=True)
class _Identity:
    """The client as a partial function sees it."""

    organization_id: int


class MockClient:
    """The part of vantage6's ``AlgorithmClient`` that algorithms use.

    A task waits until somebody asks for its status; then all that wait run together.
    """

    def __init__(self, network: MockNetwork) -> None:
        self.network = network
        self.organization_id = next(iter(network.nodes))
        self.task, self.run, self.result = _Tasks(self), _Runs(self), _Results(self)
        self.organization = _Organizations(self)
        if network.on_round is not None:
            self.on_round = network.on_round
        self.runs: dict[int, list[dict[str, Any]]] = {}
        self.waiting: list[tuple[Path, int, int]] = []

    def request(self, endpoint: str) -> dict[str, Any]:
        """``task/ID/status``, as the server answers it."""
        self.work()
        completed = all(run["status"] == "completed" for run in self.runs[int(endpoint.split("/")[1])])
        return {"status": "completed" if completed else "failed"}

    def wait_for_results(self, task_id: int, interval: float = 1) -> list[Any]:
        """The task's results, once its runs are over."""
        self.work()
        return list(self.result.from_task(task_id))

    def work(self) -> None:
        """Run all that waits."""
        calls, self.waiting = self.waiting, []
        runs = {run["id"]: run for runs in self.runs.values() for run in runs if run["status"] == "pending"}
        for number, status, log in self.network.work(calls) if calls else ():
            runs[number].update(status=status, log=log)
        for message in {message for message, _, _ in calls}:
            message.unlink()


@dataclass(frozen=True)
class _Tasks:
    client: MockClient

    def create(
        self, input_: dict[str, Any], organizations: list[int], name: str = "mock", description: str = "mock"
    ) -> dict[str, Any]:
        runs, folder = self.client.runs, self.client.network.folder
        unknown = sorted(set(organizations) - set(self.client.network.nodes))
        if unknown or not organizations:
            return {"msg": f"no node for organizations {unknown or organizations}"}
        task_id = len(runs) + 1
        message = folder / f"task-{task_id}.json"
        message.write_bytes(orjson.dumps(input_))
        first = sum(len(r) for r in runs.values()) + 1
        runs[task_id] = [
            {"id": first + i, "status": "pending", "log": None, "organization": {"id": o}, "task": {"id": task_id}}
            for i, o in enumerate(organizations)
        ]
        self.client.waiting += [(message, o, first + i) for i, o in enumerate(organizations)]
        return {"id": task_id, "name": name, "description": description, "job_id": 1}


@dataclass(frozen=True)
class _Runs:
    client: MockClient

    def from_task(self, task_id: int) -> list[dict[str, Any]]:
        return self.client.runs[task_id]


@dataclass(frozen=True)
class _Results:
    client: MockClient

    def from_task(self, task_id: int) -> Iterator[Any]:
        """The results of the runs that completed, one by one, so that a thousand need not lie in memory as text.

        Each can be taken once: its file is removed.
        """
        for run in self.client.runs[task_id]:
            file = self.client.network.folder / f"answer-{run['id']}.json"
            if run["status"] == "completed" and file.exists():
                answer = orjson.loads(file.read_bytes())
                file.unlink()
                yield answer


@dataclass(frozen=True)
class _Organizations:
    client: MockClient

    def list(self) -> "list[dict[str, Any]]":
        return [self.get(i) for i in self.client.network.nodes]

    def get(self, id_: int) -> dict[str, Any]:
        return {"id": id_, "name": f"mock-{id_}"}
