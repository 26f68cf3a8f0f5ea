"""The client of a mock network: the part of vantage6's ``AlgorithmClient`` that algorithms use."""

import heapq
import math
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import orjson

from v6_workbench.simulation.call_outcomes import CallOutcome, CallOutcomes
from v6_workbench.simulation.mock_node import Ended


class Network(Protocol):
    """What the client needs of its network; see ``mock.MockNetwork``."""

    folder: Path
    on_round: Callable[[dict[str, Any]], None] | None
    outcomes: CallOutcomes | None
    online: Callable[[int, float], bool] | None
    keep: bool

    @property
    def nodes(self) -> Collection[int]:
        """Ids of the organizations."""

    def work(self, calls: list[tuple[Path, int, int]]) -> Iterable[Ended]:
        """Run calls (message, organization, number of the run); yield how each ended, as they finish."""


SUCCESS = CallOutcome()


@dataclass(slots=True)
class _Run:
    """One call at one organization."""

    id: int
    organization: int
    message: Path
    outcome: CallOutcome
    ends: float  # on the simulated clock
    status: str = "pending"
    log: str | None = None
    answer: bytes | Path | None = None  # until it is taken


class MockClient:
    """A client with the interface of vantage6's ``AlgorithmClient``.

    Calls wait until the status of a call that must have ended is requested; then all waiting calls begin. Those that
    must have ended are "completed" from then on, and a result is waited for when it is fetched: workers go on while
    central reads the results of others.

    Of a call whose answer was taken, it keeps only the organization: a job of a thousand rounds with a thousand nodes
    makes millions of calls.

    Args:
        network: the network whose nodes it calls.

    Attributes:
        organization_id: the first organization, where central runs.
        time: seconds on the simulated clock.
        task, run, result, organization: the parts of vantage6's client, by their names.
    """

    def __init__(self, network: Network) -> None:
        self.network = network
        self.organization_id = next(iter(network.nodes))
        self.task, self.run, self.result = _Tasks(self), _Runs(self), _Results(self)
        self.organization = _Organizations(self)
        if network.on_round is not None:
            self.on_round = network.on_round
        self.time = 0.0
        if network.outcomes is not None:
            self.clock, self.pause = self._clock, self._pause
        self._organizations = array("q")  # of all runs, which are numbered from 1
        self._last = array("q", [0])  # number of the last run of each task; none before the first
        self._runs: dict[int, _Run] = {}  # those whose answers were not taken
        self._waiting: dict[int, _Run] = {}
        self._begun: dict[int, _Run] = {}
        self._working: Iterator[Ended] = iter(())  # how those that have begun end
        self._ends: list[float] = []  # of calls that take simulated time: a heap

    @property
    def calls(self) -> int:
        """How many calls were made."""
        return len(self._organizations)

    def request(self, endpoint: str) -> dict[str, Any]:
        """Answer ``task/ID/status`` as the server does; a run that fails at the node is found when it is fetched."""
        for run in self._not_taken(int(endpoint.split("/")[1])):
            if run.ends > self.time:
                return {"status": "active"}
            if run.id in self._waiting:
                self._begin()
            if run.status not in ("pending", "completed"):
                return {"status": "failed"}
        return {"status": "completed"}

    def wait_for_results(self, task_id: int, interval: float = 1) -> list[Any]:
        """Return the task's results once its runs have ended."""
        return list(self.result.from_task(task_id))

    def finish(self) -> None:
        """Wait until all calls that have begun have ended."""
        for ended in self._working:
            self._end(ended)
        for message in {run.message for run in self._begun.values()}:
            message.unlink(missing_ok=True)
        self._begun = {}

    def abandon(self) -> None:
        """Drop all calls that have not ended: nobody will ask for them."""
        self._working = iter(())  # the workers' iterator ends them when it goes
        dropped = {**self._begun, **self._waiting}
        self._begun, self._waiting = {}, {}
        for run in dropped.values():
            run.message.unlink(missing_ok=True)
            if run.status == "pending":
                run.status, run.log = "crashed", ""

    def _send(self, input_: dict[str, Any], organizations: Collection[int], message: Path) -> None:
        """Make the next task."""
        decide = self.network.outcomes or (lambda organization, input_: SUCCESS)
        for organization, outcome in [(k, decide(k, input_)) for k in organizations]:
            self._organizations.append(organization)
            run = _Run(self.calls, organization, message, outcome, self.time + outcome.seconds)
            self._runs[run.id] = self._waiting[run.id] = run
            if self.time < run.ends < math.inf:
                heapq.heappush(self._ends, run.ends)
        self._last.append(self.calls)

    def _numbers(self, task_id: int) -> range:
        """The numbers of a task's runs."""
        return range(self._last[task_id - 1] + 1, self._last[task_id] + 1)

    def _not_taken(self, task_id: int) -> Iterator[_Run]:
        """A task's runs without those whose answers were taken, and which have thus completed."""
        return (self._runs[number] for number in self._numbers(task_id) if number in self._runs)

    def _status(self, run: _Run) -> str:
        """The status of a run at the simulated time."""
        if run.ends > self.time:
            return "active"
        if run.id in self._waiting:
            self._begin()
        while run.status == "pending":
            self._end(next(self._working))
        return run.status

    def _begin(self) -> None:
        """Begin all waiting calls. Those before must have ended: a node's call finds what the last one has kept."""
        self.finish()
        for run in self._waiting.values():
            if run.outcome.status != "completed":
                run.status, run.log = run.outcome.status, ""
        self._begun, self._waiting = self._waiting, {}
        self.task.sent = None  # a message goes when these calls have ended
        working = [run for run in self._begun.values() if run.status == "pending" or run.outcome.worked]
        calls = [(run.message, run.organization, run.id) for run in working]
        self._working = iter(self.network.work(calls) if calls else ())

    def _end(self, ended: Ended) -> None:
        run = self._begun[ended.number]
        if run.status == "pending":
            run.status, run.log, run.answer = ended.status, ended.log, ended.answer

    def _clock(self) -> float:
        return self.time

    def _pause(self, until: float) -> None:
        """Let simulated time pass until the next call ends, at most until ``until``."""
        while self._ends and self._ends[0] <= self.time:
            heapq.heappop(self._ends)
        self.time = min([until, *self._ends[:1]])
        if self.time == math.inf:
            raise ValueError(
                "no call on the mock network will ever end, so the job would wait forever; set round_timeout"
            )


@dataclass
class _Tasks:
    client: MockClient
    sent: tuple[dict[str, Any], Path] | None = None

    def create(
        self,
        input_: dict[str, Any] | None = None,
        organizations: Collection[int] = (),
        name: str = "mock",
        description: str = "mock",
        *,
        method: str = "",
        arguments: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Create a task as a client of vantage6 4 (``input_``) or 5 (``method`` and ``arguments``) does."""
        client = self.client
        input_ = input_ or {"method": method, "kwargs": arguments or {}}
        unknown = sorted(k for k in organizations if k not in client.network.nodes)
        if unknown or not organizations:
            return {"msg": f"no node for organizations {unknown or organizations}"}
        task_id = len(client._last)
        client._send(input_, organizations, self._message(input_, task_id))
        return {"id": task_id, "name": name, "description": description, "job_id": 1}

    def _message(self, input_: dict[str, Any], task_id: int) -> Path:
        """The file that the nodes read: one for all tasks with the same input that wait together."""
        sent = self.sent
        same = sent is not None and sent[0]["kwargs"] is input_["kwargs"] and sent[0]["method"] == input_["method"]
        if sent is None or not same or not sent[1].exists():
            message = self.client.network.folder / f"task-{task_id}.json"
            message.write_bytes(orjson.dumps(input_))
            self.sent = sent = input_, message
        return sent[1]


@dataclass(frozen=True)
class _Runs:
    client: MockClient

    def from_task(self, task_id: int) -> list[dict[str, Any]]:
        def node(organization: int) -> dict[str, str]:
            online = self.client.network.online
            return {"status": "online" if online is None or online(organization, self.client.time) else "offline"}

        found = []
        for number in self.client._numbers(task_id):
            run, organization = self.client._runs.get(number), self.client._organizations[number - 1]
            found.append(
                {
                    "id": number,
                    "status": "completed" if run is None else self.client._status(run),
                    "log": "" if run is None else run.log,
                    "task": {"id": task_id},
                    "organization": {"id": organization},
                    "node": node(organization),
                }
            )
        return found


@dataclass(frozen=True)
class _Results:
    client: MockClient

    def from_task(self, task_id: int) -> Iterator[Any]:
        """The results of the runs that completed, one by one, so that a thousand need not lie in memory as text.

        Each can be taken once, unless the network keeps them.
        """
        for run in self.client._not_taken(task_id):
            if self.client._status(run) == "completed" and run.answer is not None:
                text = run.answer if isinstance(run.answer, bytes) else run.answer.read_bytes()
                if not self.client.network.keep:
                    if isinstance(run.answer, Path):
                        run.answer.unlink()
                    run.answer = None  # the run itself stays until all that began with it have ended
                    del self.client._runs[run.id]
                answer = orjson.loads(text)
                for _ in range(run.outcome.times):
                    yield answer if run.outcome.alter is None else run.outcome.alter(answer)


@dataclass(frozen=True)
class _Organizations:
    client: MockClient

    def list(self) -> "list[dict[str, Any]]":
        return [self.get(i) for i in self.client.network.nodes]

    def get(self, id_: int) -> dict[str, Any]:
        return {"id": id_, "name": f"mock-{id_}"}
