"""Jobs of the method under check on mock nodes, and what goes to and fro in them."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import orjson

from v6_federated.base.errors import SafeError
from v6_federated.base.vantage6_api import CollectResultsError, UserInputError
from v6_federated.messages import codec
from v6_federated.messages.job import SHARED_FUNCTIONS
from v6_workbench.conformance.case import MethodCase, Result
from v6_workbench.conformance.outcome import CheckFailed
from v6_workbench.conformance.tables import Nodes
from v6_workbench.simulation.call_outcomes import CallOutcome
from v6_workbench.simulation.mock import TRUSTING, MockNetwork

OPEN = {**TRUSTING, "V6_FEDERATED_MINIMUM_ORGANIZATIONS": "1"}  # jobs of one node
FORESEEN = (CollectResultsError, SafeError, UserInputError)
AT_CENTRAL = "at the coordinator, in "  # in the reason of a job that an error nobody foresaw has stopped
COMMON = ("organization_id", "round", "n", "arrays", "evaluation")  # what answers of every method may hold


@dataclass
class Call:
    """One call of a partial function, and the answer once central has taken it.

    Attributes:
        function: its name.
        organization: whose node is called.
        round: the round that the node is told; 0 before training.
        message: the task's input, as vantage6 sends it.
        answer: what the node answered; None unless central has read it.
    """

    function: str
    organization: int
    round: int
    message: dict[str, Any] = field(repr=False)
    answer: dict[str, Any] | None = field(default=None, repr=False)

    @property
    def arguments(self) -> dict[str, Any]:
        """What the function is sent, except for the job and the round."""
        return {name: value for name, value in self.message["kwargs"].items() if name not in ("job", "round")}

    @property
    def own(self) -> bool:
        """Whether the function is the method's own."""
        return self.function not in SHARED_FUNCTIONS


@dataclass
class Wave:
    """Calls that are sent together: one request of a round."""

    function: str
    round: int
    organizations: list[int]


class Tape:
    """Notes the calls of a job, as the mock network's ``outcomes``.

    Args:
        plan: what becomes of each call; None: it succeeds at once.

    Attributes:
        calls: in the order in which they were sent.
    """

    def __init__(self, plan: Callable[[Call], CallOutcome] | None = None) -> None:
        self.calls: list[Call] = []
        self._plan = plan or (lambda call: CallOutcome())

    def __call__(self, organization: int, message: dict[str, Any]) -> CallOutcome:
        """Note a call, and say what becomes of it."""
        sent = orjson.loads(orjson.dumps(message))  # central may change what it has sent
        call = Call(message["method"], organization, message["kwargs"]["round"], sent)
        self.calls.append(call)
        planned = self._plan(call)

        def alter(answer: dict[str, Any]) -> Any:
            call.answer = answer
            return answer if planned.alter is None else planned.alter(answer)

        return replace(planned, alter=alter)

    def own(self) -> list[Call]:
        """The calls of the method's own partial functions."""
        return [call for call in self.calls if call.own]

    def waves(self) -> list[Wave]:
        """The requests, in order: consecutive calls of the same function in the same round."""
        waves: list[Wave] = []
        for call in self.calls:
            if not waves or (waves[-1].function, waves[-1].round) != (call.function, call.round):
                waves.append(Wave(call.function, call.round, []))
            waves[-1].organizations.append(call.organization)
        return waves


@dataclass(frozen=True)
class Ended:
    """How a job ended.

    Attributes:
        result: the result, if there is one.
        problem: why the job failed, or stopped after its first round; empty if it did neither.
        unforeseen: whether that was an error that nobody foresaw.
    """

    result: Result | None
    problem: str = ""
    unforeseen: bool = False


def attempt(case: MethodCase, nodes: Nodes, environment: Mapping[str, str] | None = None, **options: Any) -> Ended:
    """Run a job on mock nodes, however it ends.

    Args:
        case: the method.
        nodes: a table for each organization.
        environment: of every node.
        options: of the mock network (``processes``, ``environments``, ``outcomes``, ``online``, ``study``), and
            settings.
    """
    of_network = ("processes", "environments", "outcomes", "online", "study")
    network_options = {k: options.pop(k) for k in of_network if k in options}
    network = MockNetwork(
        case.package, nodes, environment=OPEN | {**(environment or {})}, on_round=lambda row: None, **network_options
    )
    with network:
        return run_on(network, **options)


def run_on(network: MockNetwork, **settings: Any) -> Ended:
    """Run a job on a mock network, however it ends."""
    try:
        result = network.run(**settings)
    except FORESEEN as error:
        return Ended(None, str(error))
    except Exception as error:
        return Ended(None, f"{type(error).__name__}: {error}", unforeseen=True)
    problem = result.get("stopped", "")
    return Ended(result, problem, unforeseen=AT_CENTRAL in problem)


def run(case: MethodCase, nodes: Nodes, environment: Mapping[str, str] | None = None, **options: Any) -> Result:
    """The result of a job that must come to its end; see ``attempt``. Raises CheckFailed if it does not."""
    return finished(attempt(case, nodes, environment, **options))


def finished(ended: Ended) -> Result:
    """The result of a job that must have come to its end. Raises CheckFailed if it has not."""
    if ended.problem or ended.result is None:
        raise CheckFailed(f"the job {'stopped' if ended.result else 'failed'}: {ended.problem}")
    return ended.result


# ---- results and messages


def learned(result: Result) -> dict[str, np.ndarray]:
    """The arrays that a job has learned, by name."""
    return codec.decode(result["weights"])


def without_times(result: Result) -> Result:
    """A result without what differs from job to job: times, and the job's key."""
    history = [{k: v for k, v in row.items() if k != "seconds"} for row in result["history"]]
    job = {"job": {**result["job"], "key": None}} if "job" in result else {}
    return {**result, "history": history, **job}


def difference(one: Result, other: Result) -> str:
    """The names of the parts in which two results differ, apart from times and keys; empty if there are none."""
    a, b = without_times(one), without_times(other)
    return ", ".join(name for name in sorted({*a} | {*b}) if a.get(name) != b.get(name))


def size(message: Any) -> int:
    """Bytes of a message as vantage6 sends it."""
    return len(json.dumps(message).encode())


def told_by(calls: Iterable[Call]) -> dict[str, set[str]]:
    """The names of the numbers, words and arrays that nodes answered, by function, without those of every method."""
    told: dict[str, set[str]] = {}
    for call in calls:
        answer = call.answer or {}
        names = {*answer} - {*COMMON} | {*answer.get("arrays", {}).get("shapes", {})}
        told[call.function] = told.get(call.function, set()) | names
    return told
