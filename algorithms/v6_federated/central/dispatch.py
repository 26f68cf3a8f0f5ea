"""Sending calls to nodes, waiting for their answers, and giving up on those that do not come."""

import math
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from v6_federated.base import logs, vantage6_api
from v6_federated.base.text import shortened
from v6_federated.base.vantage6_api import CollectResultsError
from v6_federated.central.answer import Answer, Call, Unusable, usable
from v6_federated.central.bounds import Bounds
from v6_federated.central.tolerance import Tolerance


class Dispatcher:
    """Sends calls and collects the answers.

    Each organization gets a task of its own: in a task of several, the failure of one run ends those that have not
    begun.

    Attributes:
        client: vantage6's client.
        tolerance: which missing answers are tolerated.
        bounds: what each node may send.
        contacts: a task of each organization, by which the server can be asked whether its node is online.
        unanswered: bytes that were sent and brought no usable answer, by function, until somebody takes them.
        given_up: organizations that may still be at work, by the task that was given up.
    """

    def __init__(self, client: Any, tolerance: Tolerance, bounds: Bounds) -> None:
        """Begin without tasks."""
        self.client, self.tolerance, self.bounds = client, tolerance, bounds
        self.contacts: dict[int, int] = {}
        self.unanswered: Counter[str] = Counter()
        self.given_up: dict[int, int] = {}

    def send(self, call: Call) -> int:
        """Send a call."""
        try:
            task = vantage6_api.create_task(self.client, call.input_, [call.organization], call.name)
        except vantage6_api.ServerAway:
            raise
        except CollectResultsError as error:
            raise Unusable(str(error)) from None
        self.contacts.setdefault(call.organization, task)
        return task

    def gather(self, calls: Sequence[Call]) -> tuple[list[Answer], dict[int, Unusable]]:
        """Send calls and wait until each has an answer, has failed for good, or is out of time."""
        pending = PendingCalls(self)
        found: dict[int, Answer] = {}  # by the index in calls
        missing: dict[int, Unusable] = {}
        for call in calls:
            pending.launch(call)
        place = {id(call): i for i, call in enumerate(calls)}
        while pending:
            for call, outcome in pending.next():
                if isinstance(outcome, Unusable):
                    missing[call.organization] = outcome
                else:
                    found[place[id(call)]] = outcome
        return [found[i] for i in sorted(found)], dict(sorted(missing.items()))

    def drain(self, seconds: float) -> None:
        """Wait for tasks that were given up to end."""
        until = vantage6_api.now(self.client) + min(seconds, self.tolerance.offline_timeout)
        while self.given_up and vantage6_api.now(self.client) < until:
            for task in vantage6_api.wait_for_any(self.client, self.given_up, until):
                del self.given_up[task]

    def offline(self, organizations: Iterable[int]) -> list[int]:
        """Find nodes that are offline.

        The server reports the status of nodes that have been called before. For up to a minute after a node was
        restarted, it may report it as offline. The node where central runs is online: all messages go through it.
        """
        others = [k for k in organizations if k in self.contacts and k != self.client.organization_id]
        return [k for k in others if not vantage6_api.online(self.client, self.contacts[k])]

    def take(self, task: int, call: Call) -> Answer:
        """Fetch and check the answer of a task that has ended."""
        results = list(vantage6_api.results(self.client, task))
        if not results:
            status, line = vantage6_api.failure(self.client, task)
            words = line.removeprefix(f"organization {call.organization}: ")
            said = logs.said_no(line)
            raise Unusable(words or f"run {status}", refused=said)
        if len(results) > 1:
            raise Unusable(f"sent {len(results)} answers to one call; expected one")
        answer = usable(results[0], call)
        if problem := self.bounds.what_is_wrong(answer):
            raise Unusable(problem)
        return answer


class PendingCalls:
    """Calls that were sent and whose answers have not been taken. It is true while there are any.

    Attributes:
        tasks: by the task's id, in the order of sending: the call, the number of the attempt, and when it is given up.
    """

    def __init__(self, dispatcher: Dispatcher) -> None:
        """Begin without calls."""
        self._dispatcher = dispatcher
        self.tasks: dict[int, tuple[Call, int, float]] = {}
        self._ended: deque[int] = deque()  # tasks, in the order in which their answers are to be taken
        self._looked = vantage6_api.now(dispatcher.client)
        self._offline_since: dict[int, float] = {}
        self._lost: list[tuple[Call, Unusable]] = []  # calls that could not be sent

    def __bool__(self) -> bool:
        """Whether an answer may still come."""
        return bool(self.tasks or self._lost)

    def launch(self, call: Call, attempt: int = 1, until: float | None = None) -> None:
        """Send a call."""
        if until is None:
            deadline = self._dispatcher.tolerance.round_timeout
            until = math.inf if deadline is None else vantage6_api.now(self._dispatcher.client) + deadline
        try:
            self.tasks[self._dispatcher.send(call)] = call, attempt, until
        except Unusable as error:
            self._lost.append((call, error))

    def next(self) -> list[tuple[Call, Answer | Unusable]]:
        """Wait for the next answer for a while."""
        if self._lost:
            return [self._lost.pop(0)]
        client, look = self._dispatcher.client, self._looked + self._dispatcher.tolerance.look
        if not self._ended:
            until = min(look, *(until for _, _, until in self.tasks.values()))
            self._ended.extend(vantage6_api.wait_for_any(client, self.tasks, until))
        if not self._ended or vantage6_api.now(client) >= look:  # also while others keep answering
            self._looked = vantage6_api.now(client)
            if given_up := self._given_up():
                return given_up
        if not self._ended:
            return []
        task = self._ended.popleft()
        call, attempt, until = self.tasks.pop(task)
        try:
            return [(call, self._dispatcher.take(task, call))]
        except Unusable as error:
            self._dispatcher.unanswered[call.function] += call.size
            in_time = vantage6_api.now(self._dispatcher.client) < until
            if error.refused or attempt > self._dispatcher.tolerance.retries or not in_time:
                return [(call, error)]
            self.launch(call, attempt + 1, until)
            return []

    def drain(self) -> None:
        """Wait until no node is at work any more, and drop the answers."""
        while self.tasks:
            until = min(until for _, _, until in self.tasks.values())
            look = vantage6_api.now(self._dispatcher.client) + self._dispatcher.tolerance.look
            for task in vantage6_api.wait_for_any(self._dispatcher.client, self.tasks, min(until, look)):
                del self.tasks[task]
            self._given_up()

    def _given_up(self) -> list[tuple[Call, Answer | Unusable]]:
        """The calls that are out of time, or whose node has been offline for too long."""
        tolerance, now = self._dispatcher.tolerance, vantage6_api.now(self._dispatcher.client)
        off = self._dispatcher.offline([call.organization for call, _, _ in self.tasks.values()])
        self._offline_since = {k: self._offline_since.get(k, now) for k in off}
        away = [k for k in off if now - self._offline_since[k] >= tolerance.offline_timeout]
        given_up: list[tuple[Call, Answer | Unusable]] = []
        ended = {*self._ended}
        for task, (call, _, until) in list(self.tasks.items()):
            if task in ended:
                continue
            if now >= until:
                given_up.append((call, Unusable(f"no answer within {tolerance.round_timeout:g} s (round_timeout)")))
            elif call.organization in away:
                given_up.append((call, Unusable(f"its node has been offline for {tolerance.offline_timeout:g} s")))
            else:
                continue
            del self.tasks[task]
            self._dispatcher.unanswered[call.function] += call.size
            self._dispatcher.given_up[task] = call.organization
        return given_up


def reasons(missing: Mapping[int, Unusable]) -> str:
    """Say in one line who is missing and why; each reason is named once."""
    reasons: dict[str, list[int]] = {}
    for organization, error in missing.items():
        reasons.setdefault(str(error), []).append(organization)
    parts = [f"{_named(who)}: {reason}" for reason, who in reasons.items()]
    more = f"; and {len(parts) - 3} other reasons" if len(parts) > 3 else ""
    return "; ".join(parts[:3]) + more


def _named(organizations: list[int]) -> str:
    return f"organization{'s' if len(organizations) > 1 else ''} {shortened(organizations)}"
