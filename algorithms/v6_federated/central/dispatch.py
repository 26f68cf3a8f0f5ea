"""Sending calls to nodes, waiting for their answers, and what becomes of answers that do not come or cannot be used."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from v6_federated.base import vantage6_api
from v6_federated.base.errors import SafeError
from v6_federated.base.vantage6_api import CollectResultsError
from v6_federated.messages import codec
from v6_federated.messages.codec import Shape, fits
from v6_federated.models import metrics

SHARED = ("describe", "fit_step", "keep_steps", "evaluate", "forget")  # what all methods offer; none trains
MOST_LETTERS = 200  # of a text that a node tells of itself
MOST_REASON = 1000  # letters of why there is no answer
MOST_VALUES = 100  # that an answer holds beside its arrays
LOOK_SECONDS = 10.0  # at most, between looks whether the nodes that are waited for are still online


@dataclass(frozen=True)
class Answer:
    """One node's answer in one round.

    Attributes:
        organization_id: whose node answered.
        n: rows it used.
        arrays: what it sent, by name.
        values: everything else it said.
        bytes_up, bytes_down: of the answer and of the request, as sent.
        function: the partial function that was asked for.
    """

    organization_id: int
    n: int
    arrays: dict[str, np.ndarray]
    values: dict[str, Any]
    bytes_up: int
    bytes_down: int
    function: str

    def __getitem__(self, name: str) -> np.ndarray:
        return self.arrays[name]


@dataclass(frozen=True)
class Expected:
    """What a usable answer holds.

    Attributes:
        arrays: shapes by name; those of other names are refused. None: whatever the function sends.
        optional: arrays that may be missing.
        numbers: names of finite numbers.
        minimum_rows: rows that it must be about.
        classes: that an evaluation counts; None: one of a regression.
        validate: says what is wrong with an answer that has all these, or nothing.
    """

    arrays: Mapping[str, Shape] | None = None
    optional: frozenset[str] = frozenset()
    numbers: tuple[str, ...] = ()
    minimum_rows: int = 1
    classes: int | None = None
    validate: Callable[[Answer], str | None] | None = None


@dataclass(frozen=True)
class Call:
    """One partial function to be called at one organization; ``input_`` is shared by all that are sent the same."""

    function: str
    organization: int
    round: int
    input_: dict[str, Any] = field(repr=False)
    size: int
    name: str
    expected: Expected


class Unusable(Exception):
    """An answer that did not come or cannot be used; ``refused``: the node said no, and would say it again."""

    def __init__(self, reason: str, refused: bool = False) -> None:
        super().__init__(reason[:MOST_REASON])
        self.refused = refused


@dataclass(frozen=True)
class Tolerance:
    """What a round does without: see ``settings.Common`` for the meaning of each.

    ``at_least``: answers below which nothing is averaged, whatever ``min_responses`` says: the operators' minimum.
    """

    round_timeout: float | None
    min_responses: float
    retries: int
    cooldown_rounds: int
    offline_timeout: float
    at_least: int = 1

    @property
    def strict(self) -> bool:
        """Whether every node that is asked must answer."""
        return self.min_responses == 1

    @property
    def look(self) -> float:
        """Seconds from one look at who is online to the next."""
        return min(LOOK_SECONDS, max(1.0, self.offline_timeout / 3))

    def needed(self, asked: int) -> int:
        """How many of ``asked`` nodes must answer."""
        wanted = math.ceil(self.min_responses * asked - 1e-9) if self.min_responses <= 1 else int(self.min_responses)
        return min(asked, max(wanted, self.at_least, 1))


class Collector:
    """Sends calls and brings what came of them. Each organization gets a task of its own: in a task of several, the
    failure of one run ends those that have not begun.

    Attributes:
        tolerance: what is done about answers that do not come.
        contacts: a task of each organization with a short message, from which the server tells its node's status.
        unanswered: bytes sent that brought no answer that could be used, by function, since somebody took them.
    """

    def __init__(self, client: Any, tolerance: Tolerance) -> None:
        self.client, self.tolerance = client, tolerance
        self.contacts: dict[int, int] = {}
        self.unanswered: Counter[str] = Counter()
        self.given_up: dict[int, int] = {}  # organizations, by the task that they may still be at work on

    def send(self, call: Call) -> int:
        """Create the task of a call; returns its id. Raises Unusable with the server's reason."""
        try:
            task = vantage6_api.create_task(self.client, call.input_, [call.organization], call.name)
        except CollectResultsError as error:
            raise Unusable(str(error)) from None
        self.contacts.setdefault(call.organization, task)
        return task

    def gather(self, calls: Sequence[Call]) -> tuple[list[Answer], dict[int, Unusable]]:
        """Send all calls and wait until each has an answer, has failed for good, or is out of time.

        Returns the answers in the order of ``calls``, and why an organization gave none.
        """
        pending = PendingCalls(self)
        found: dict[int, Answer] = {}  # by the place in calls
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
        """Wait for those that were given up, for so long; a short while if their nodes are away for good."""
        until = vantage6_api.now(self.client) + min(seconds, self.tolerance.offline_timeout)
        while self.given_up and vantage6_api.now(self.client) < until:
            for task in vantage6_api.wait_for_any(self.client, self.given_up, until):
                del self.given_up[task]

    def offline(self, organizations: Iterable[int]) -> list[int]:
        """Those whose node the server knows to be offline; of an organization not yet called it tells nothing.

        For up to a minute after a node was restarted the server may take it for offline, when the old connection ends.
        The own node is there: what it is asked and what it answers go through it.
        """
        others = [k for k in organizations if k in self.contacts and k != self.client.organization_id]
        return [k for k in others if not vantage6_api.online(self.client, self.contacts[k])]

    def take(self, task: int, call: Call) -> Answer:
        """The answer of an ended task. Raises Unusable with the reason, without the organization's name."""
        results = list(vantage6_api.results(self.client, task))
        if not results:
            status, line = vantage6_api.failure(self.client, task)
            words = line.removeprefix(f"organization {call.organization}: ")
            said = vantage6_api.said_no(line)
            raise Unusable(words or f"run {status}", refused=said)
        if len(results) > 1:
            raise Unusable(f"{len(results)} answers to one call; expected one")
        try:
            return _usable(results[0], call)
        # one node's nonsense ends no job
        except (ValueError, TypeError, ArithmeticError, LookupError, RecursionError) as error:
            raise Unusable(f"sends what cannot be read: {type(error).__name__}") from None


class PendingCalls:
    """Calls that have been sent and whose answer has not been taken: true while there are any.

    Attributes:
        tasks: call, attempt and the time at which it is given up, by the task's id; in the order of sending.
    """

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self.tasks: dict[int, tuple[Call, int, float]] = {}
        self._ended: list[int] = []  # of the tasks, in the order in which they are to be taken
        self._silence = vantage6_api.Silence()
        self._looked = vantage6_api.now(collector.client)
        self._offline_since: dict[int, float] = {}  # as far as it was looked at
        self._lost: list[tuple[Call, Unusable]] = []  # could not even be sent

    def __bool__(self) -> bool:
        return bool(self.tasks or self._lost)

    def launch(self, call: Call, attempt: int = 1, until: float | None = None) -> None:
        """Send a call."""
        if until is None:
            deadline = self._collector.tolerance.round_timeout
            until = math.inf if deadline is None else vantage6_api.now(self._collector.client) + deadline
        try:
            self.tasks[self._collector.send(call)] = call, attempt, until
        except Unusable as error:
            self._lost.append((call, error))

    def next(self) -> list[tuple[Call, Answer | Unusable]]:
        """What has become of the call whose answer comes next; nothing where it is still open after a while, or where
        the call has been sent again."""
        if self._lost:
            return [self._lost.pop(0)]
        client, look = self._collector.client, self._looked + self._collector.tolerance.look
        if not self._ended:
            until = min(look, *(until for _, _, until in self.tasks.values()))
            self._ended = vantage6_api.wait_for_any(client, self.tasks, until, self._silence)
        if not self._ended or vantage6_api.now(client) >= look:  # others may answer all the time
            self._looked = vantage6_api.now(client)
            if given_up := self._given_up():
                return given_up
        if not self._ended:
            return []
        task = self._ended.pop(0)
        call, attempt, until = self.tasks.pop(task)
        try:
            return [(call, self._collector.take(task, call))]
        except Unusable as error:
            self._collector.unanswered[call.function] += call.size
            in_time = vantage6_api.now(self._collector.client) < until
            if error.refused or attempt > self._collector.tolerance.retries or not in_time:
                return [(call, error)]
            self.launch(call, attempt + 1, until)
            return []

    def drain(self) -> None:
        """Wait until nobody is at work any more; what comes is not needed."""
        while self.tasks:
            until = min(until for _, _, until in self.tasks.values())
            look = vantage6_api.now(self._collector.client) + self._collector.tolerance.look
            for task in vantage6_api.wait_for_any(self._collector.client, self.tasks, min(until, look), self._silence):
                del self.tasks[task]
            self._given_up()

    def _given_up(self) -> list[tuple[Call, Answer | Unusable]]:
        """The calls that are out of time, or whose node has been away for too long."""
        tolerance, now = self._collector.tolerance, vantage6_api.now(self._collector.client)
        off = self._collector.offline([call.organization for call, _, _ in self.tasks.values()])
        self._offline_since = {k: self._offline_since.get(k, now) for k in off}
        away = [k for k in off if now - self._offline_since[k] >= tolerance.offline_timeout]
        given_up: list[tuple[Call, Answer | Unusable]] = []
        for task, (call, _, until) in list(self.tasks.items()):
            if task in self._ended:
                continue
            if now >= until:
                given_up.append((call, Unusable(f"no answer within {tolerance.round_timeout:g} s")))
            elif call.organization in away:
                given_up.append((call, Unusable(f"its node has been offline for {tolerance.offline_timeout:g} s")))
            else:
                continue
            del self.tasks[task]
            self._collector.unanswered[call.function] += call.size
            self._collector.given_up[task] = call.organization
        return given_up


def _usable(result: Any, call: Call) -> Answer:
    """The answer, checked against what the call expects. Raises Unusable."""
    expected = call.expected
    if isinstance(result, dict) and (len(result) > MOST_VALUES or max(map(len, result), default=0) > MOST_LETTERS):
        raise Unusable(f"sends more than {MOST_VALUES} values, or one with a long name; expected those asked for")
    if not isinstance(result, dict) or result.get("organization_id") != call.organization:
        told = result.get("organization_id") if isinstance(result, dict) else None
        raise Unusable(f"answers as organization {told!r}; expected its own id")
    if result.get("round") != call.round:
        raise Unusable(f"answers for round {result.get('round')!r}; expected round {call.round}")
    n = result.get("n")
    if type(n) is not int or not expected.minimum_rows <= n <= metrics.MOST_ROWS:
        raise Unusable(f"answers n={n!r}; expected the rows it used, at least {expected.minimum_rows}")
    try:
        arrays = codec.decode(result["arrays"]) if "arrays" in result else {}
    except SafeError as error:
        raise Unusable(f"sends what cannot be used: {error}", refused=True) from None
    if expected.arrays is not None:
        _check_arrays(arrays, expected.arrays, expected.optional)
    values = {k: v for k, v in result.items() if k not in ("organization_id", "n", "arrays", "round")}
    for name in expected.numbers:
        if not _is_number(values.get(name)):
            raise Unusable(f"answers no proper {name}; expected a number from 0")
    if values.get("train_loss") is not None and not metrics.is_loss(values["train_loss"]):
        raise Unusable("answers no proper train_loss; expected a number from 0, or none")
    if "evaluation" in values and not metrics.is_evaluation(values["evaluation"], expected.classes):
        raise Unusable("answers an evaluation that is none; expected n, loss and counts")
    answer = Answer(call.organization, n, arrays, values, codec.size(result), call.size, call.function)
    if expected.validate is not None and (problem := expected.validate(answer)):
        raise Unusable(problem)
    return answer


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < metrics.MOST_ROWS


def _check_arrays(arrays: Mapping[str, np.ndarray], shapes: Mapping[str, Shape], optional: frozenset[str]) -> None:
    names = sorted(arrays)
    if set(names) - set(shapes) or set(shapes) - set(names) - optional:
        raise Unusable(f"sends {names or 'no arrays'}; expected {sorted(shapes)}")
    for name, array in arrays.items():
        if not fits(array, shapes[name]):
            raise Unusable(f"sends {name} of shape {array.shape}; expected {shapes[name]}")


def reasons(missing: Mapping[int, Unusable]) -> str:
    """Who is missing and why, in one line; the same reason is said once."""
    reasons: dict[str, list[int]] = {}
    for organization, error in missing.items():
        reasons.setdefault(str(error), []).append(organization)
    parts = [f"{_named(who)}: {reason}" for reason, who in reasons.items()]
    more = f"; and {len(parts) - 3} other reasons" if len(parts) > 3 else ""
    return "; ".join(parts[:3]) + more


def _named(organizations: list[int]) -> str:
    shown = ", ".join(map(str, organizations[:10])) + (", ..." if len(organizations) > 10 else "")
    return f"organization{'s' if len(organizations) > 1 else ''} {shown}"


def by_organization(answer: Answer) -> int:
    """Sorts answers."""
    return answer.organization_id
