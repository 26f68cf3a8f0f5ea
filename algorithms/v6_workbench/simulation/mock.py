"""A network of mock nodes on this machine, with the interface of vantage6's algorithm client.

Central runs in the caller's process, partials in ``processes`` worker processes through joblib (whose back ends, Dask
and Ray among them, take it to other machines). Every message makes the round trip through JSON, as on a real network.
Each node has its own rows, environment and temporary folder. Rows are handed over once, as files that the workers map
into memory; a call carries nothing but its message.
"""

import functools
import heapq
import importlib
import math
import os
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import orjson
import pandas as pd

from v6_federated.base.errors import Interrupted
from v6_federated.base.randomness import generator
from v6_federated.data.source import Source, as_features
from v6_federated.messages.job import SHARED_FUNCTIONS


@dataclass(frozen=True)
class CallOutcome:
    """What becomes of one call of a partial function.

    Attributes:
        seconds: of simulated time until it ends; infinite for an answer that never comes.
        status: of the run in vantage6's words: "completed", or how it failed.
        worked: whether a run that failed had done its work (and kept its state) before.
        alter: makes of the answer what the server brings instead.
        times: how often the server brings it.
    """

    seconds: float = 0.0
    status: str = "completed"
    worked: bool = False
    alter: Callable[[dict[str, Any]], Any] | None = None
    times: int = 1


CallOutcomes = Callable[[int, dict[str, Any]], CallOutcome]  # of an organization and the task's input


def node_speeds(organizations: Sequence[int], slowest: float, spread: float = 0.2, seed: int = 0) -> CallOutcomes:
    """Nodes of different speeds: a call takes 1 second at the fastest and ``slowest`` at the slowest, in even ratios.

    The pace is dealt to the organizations by ``seed``; each call's time varies by a log-normal factor of ``spread``.
    A call of ``evaluate`` takes no time, so that looking at the model changes nothing.
    """
    rng = generator(seed, "paces")
    seconds = dict(
        zip(rng.permutation(organizations).tolist(), np.geomspace(1, slowest, len(organizations)), strict=True)
    )
    calls = {k: generator(seed, "pace", k) for k in organizations}

    def outcome(organization: int, input_: dict[str, Any]) -> CallOutcome:
        if organization not in calls or input_["method"] in SHARED_FUNCTIONS:  # whose time is not simulated
            return CallOutcome()
        return CallOutcome(float(seconds[organization] * np.exp(spread * calls[organization].standard_normal())))

    return outcome


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
        outcomes: what becomes of each call. With it, time is simulated: it passes as calls end.
        online: whether an organization's node is online at a (simulated) time.
        keep: whether answers stay on disk once they were taken, for a central function that is started again.

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
        outcomes: CallOutcomes | None = None,
        online: Callable[[int, float], bool] | None = None,
        keep: bool = False,
    ) -> None:
        if processes < 1:
            raise ValueError(f"processes={processes} is refused: expected at least 1")
        self.package, self.on_round, self.outcomes, self.online, self.keep = package, on_round, outcomes, online, keep
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

    @functools.cached_property
    def _client(self) -> "MockClient":
        return MockClient(self)

    def client(self) -> "MockClient":
        """The client as the container of a central function has it: always the same, as the server behind it is."""
        return self._client

    def run(self, **settings: Any) -> dict[str, Any]:
        """Run the method's central function at the first node and return its result, as JSON brings it."""
        central = importlib.import_module(self.package).central
        with _environment(next(iter(self.nodes.values())).environment):
            try:
                result = central(mock_client=self.client(), **orjson.loads(orjson.dumps(settings)))
            except Interrupted as error:
                raise Interrupted(orjson.loads(orjson.dumps(error.result))) from None
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
    module = importlib.import_module(package)
    if not hasattr(module, request["method"]):
        raise AttributeError(f"{package}/__init__.py exports no {request['method']}; expected it there")
    function = getattr(module, request["method"])
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


@dataclass
class _Run:
    """One call at one organization."""

    id: int
    task_id: int
    organization: int
    message: Path
    outcome: CallOutcome
    ends: float  # on the simulated clock
    status: str = "pending"
    log: str | None = None


class MockClient:
    """The part of vantage6's ``AlgorithmClient`` that algorithms use.

    Calls wait until somebody asks for the status of one that must have ended; then all that wait run together.
    """

    def __init__(self, network: MockNetwork) -> None:
        self.network = network
        self.organization_id = next(iter(network.nodes))
        self.task, self.run, self.result = _Tasks(self), _Runs(self), _Results(self)
        self.organization = _Organizations(self)
        if network.on_round is not None:
            self.on_round = network.on_round
        self.time = 0.0
        if network.outcomes is not None:
            self.clock, self.pause = self._clock, self._pause
        self.runs: dict[int, list[_Run]] = {}
        self.waiting: list[_Run] = []
        self.ends: list[float] = []  # a heap
        self.count = 0

    def request(self, endpoint: str) -> dict[str, Any]:
        """``task/ID/status``, as the server answers it."""
        statuses = [self.status(run) for run in self.runs[int(endpoint.split("/")[1])]]
        for status in statuses:
            if status != "completed":
                return {"status": "active" if status == "active" else "failed"}
        return {"status": "completed"}

    def wait_for_results(self, task_id: int, interval: float = 1) -> list[Any]:
        """The task's results, once its runs are over."""
        self.work()
        return list(self.result.from_task(task_id))

    def status(self, run: _Run) -> str:
        """Of a run, at the simulated time."""
        if run.ends > self.time:
            return "active"
        if run.status == "pending":
            self.work()
        return run.status

    def work(self) -> None:
        """Run all that waits."""
        waiting, self.waiting = self.waiting, []
        for run in waiting:
            if run.outcome.status != "completed":
                run.status, run.log = run.outcome.status, ""
        runs = {run.id: run for run in waiting if run.status == "pending" or run.outcome.worked}
        calls = [(run.message, run.organization, run.id) for run in runs.values()]
        for number, status, log in self.network.work(calls) if calls else ():
            if runs[number].status == "pending":
                runs[number].status, runs[number].log = status, log
        for message in {run.message for run in waiting}:
            message.unlink(missing_ok=True)

    def _clock(self) -> float:
        return self.time

    def _pause(self, until: float) -> None:
        """Let simulated time pass until the next call ends, at most until ``until``."""
        while self.ends and self.ends[0] <= self.time:
            heapq.heappop(self.ends)
        self.time = min([until, *self.ends[:1]])
        if self.time == math.inf:
            raise ValueError("nothing will happen any more on the mock network; expected a deadline")


@dataclass
class _Tasks:
    client: MockClient
    _sent: tuple[dict[str, Any], Path] | None = None

    def create(
        self, input_: dict[str, Any], organizations: list[int], name: str = "mock", description: str = "mock"
    ) -> dict[str, Any]:
        client = self.client
        unknown = sorted(set(organizations) - set(client.network.nodes))
        if unknown or not organizations:
            return {"msg": f"no node for organizations {unknown or organizations}"}
        task_id = len(client.runs) + 1
        message = self._message(input_, task_id)
        runs = client.runs[task_id] = []
        for organization in organizations:
            client.count += 1
            outcome = client.network.outcomes(organization, input_) if client.network.outcomes else CallOutcome()
            runs.append(_Run(client.count, task_id, organization, message, outcome, client.time + outcome.seconds))
            heapq.heappush(client.ends, runs[-1].ends)
        client.waiting += runs
        return {"id": task_id, "name": name, "description": description, "job_id": 1}

    def _message(self, input_: dict[str, Any], task_id: int) -> Path:
        """The file that the nodes read: one for all tasks with the same input that wait together."""
        if self._sent is None or self._sent[0] is not input_ or not self._sent[1].exists():
            message = self.client.network.folder / f"task-{task_id}.json"
            message.write_bytes(orjson.dumps(input_))
            self._sent = input_, message
        return self._sent[1]


@dataclass(frozen=True)
class _Runs:
    client: MockClient

    def from_task(self, task_id: int) -> list[dict[str, Any]]:
        def node(organization: int) -> dict[str, str]:
            online = self.client.network.online
            return {"status": "online" if online is None or online(organization, self.client.time) else "offline"}

        return [
            {
                "id": run.id,
                "status": self.client.status(run),
                "log": run.log,
                "task": {"id": task_id},
                "organization": {"id": run.organization},
                "node": node(run.organization),
            }
            for run in self.client.runs[task_id]
        ]


@dataclass(frozen=True)
class _Results:
    client: MockClient

    def from_task(self, task_id: int) -> Iterator[Any]:
        """The results of the runs that completed, one by one, so that a thousand need not lie in memory as text.

        Each can be taken once, unless the network keeps them: its file is removed.
        """
        for run in self.client.runs[task_id]:
            file = self.client.network.folder / f"answer-{run.id}.json"
            if self.client.status(run) == "completed" and file.exists():
                answer = orjson.loads(file.read_bytes())
                if not self.client.network.keep:
                    file.unlink()
                for _ in range(run.outcome.times):
                    yield answer if run.outcome.alter is None else run.outcome.alter(answer)


@dataclass(frozen=True)
class _Organizations:
    client: MockClient

    def list(self) -> "list[dict[str, Any]]":
        return [self.get(i) for i in self.client.network.nodes]

    def get(self, id_: int) -> dict[str, Any]:
        return {"id": id_, "name": f"mock-{id_}"}
