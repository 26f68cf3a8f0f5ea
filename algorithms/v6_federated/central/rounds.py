"""A job's tasks: what is sent to whom, who is not worth asking, and whether enough answers came."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from v6_federated.base import vantage6_api
from v6_federated.central.dispatch import (
    Answer,
    Call,
    Collector,
    Expected,
    PendingCalls,
    Tolerance,
    Unusable,
    by_organization,
    reasons,
)
from v6_federated.central.history import History
from v6_federated.data import preprocessing
from v6_federated.messages import codec
from v6_federated.messages.codec import Shape
from v6_federated.messages.job import Job
from v6_federated.messages.settings import LARGE, Record

GLOBAL_MODEL = "weights"  # the name of the array, among arguments, that nodes evaluate
DRAIN_SECONDS = 60.0  # for those that were given up to end before state is removed


def parted(arguments: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Settings, records as their fields, and arrays, which travel as payload."""
    arrays = {name: value for name, value in arguments.items() if isinstance(value, np.ndarray)}
    settings = {name: value for name, value in arguments.items() if name not in arrays}
    return {
        name: value.model_dump() if isinstance(value, Record) else value for name, value in settings.items()
    }, arrays


@dataclass(frozen=True)
class Group:
    """Organizations that are asked the same."""

    function: str
    organizations: list[int]
    job: Job
    settings: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    expected: Expected = field(default_factory=Expected)
    evaluate: str | None = None


class Tasks:
    """The tasks of one job.

    Args:
        client: of vantage6.
        tolerance: which answers a round does without.
        job: what the first task tells the nodes.
        history: told who was missing, and why, and what the preparation sent.

    Attributes:
        job: what the next task tells the nodes.
        round: the round that it belongs to; 0 is the preparation.
        size: of the model, of which answers are as long; None: of any length.
        stateful: whether nodes keep something for the job, to be removed in the end.
    """

    def __init__(self, client: Any, tolerance: Tolerance, job: Job, history: History) -> None:
        self.job, self.round, self.stateful = job, 0, False
        self.size: int | None = None
        self._client, self._tolerance, self._history = client, tolerance, history
        self._collector = Collector(client, tolerance)
        self._pending = PendingCalls(self._collector)
        self._failed: dict[int, int] = {}  # organization: the last round in which it gave no good answer
        self._large: Sequence[dict[str, Any]] = []  # fitted steps that nodes are to keep
        self._named: Sequence[dict[str, Any]] = []  # all steps, as they are told to those that keep the large ones
        self._keepers: set[int] = set()

    # ---- one round: all at once

    def ask(
        self, groups: Sequence[Group], evaluations: Sequence[Group] = (), quorum_of: int | None = None
    ) -> list[Answer]:
        """Send the groups' calls, wait, and see that enough answers came; ascending ids.

        ``quorum_of``: how many organizations the answers must be enough of, if others have dropped out already.
        Raises CollectResultsError that names every organization that gave no good answer, and why.
        """
        wanted = [k for group in groups for k in group.organizations]
        others = [k for group in evaluations for k in group.organizations]
        here, needed = set(wanted), self.needed(len(wanted) if quorum_of is None else quorum_of)
        # an evaluation by itself needs somebody too
        missing = self.absent(wanted, needed) | self.absent(others, 0 if wanted else 1)
        failed = self._hand_over([k for k in [*wanted, *others] if k not in missing])
        # a benchmark's test set takes longest: first
        calls = [c for group in [*evaluations, *groups] for c in self._calls(group)]
        answers, more = self._collector.gather([c for c in calls if c.organization not in missing | failed])
        failed |= more
        missing |= failed
        self._keepers -= {*failed}  # they may have lost what they keep
        for k, error in missing.items():
            if k in failed:
                self._failed[k] = self.round
            (self._history.missing if k in here else self._history.unevaluated)[k] = error
        came = [a for a in answers if a.organization_id in here]
        asked_for = groups[0].function if groups else "evaluate"
        if (self._tolerance.strict and missing) or len(came) < needed:
            few = f"; {len(came)} of {quorum_of or len(wanted)} answered, {needed} are needed"
            why = reasons(missing) + ("" if self._tolerance.strict else few)
            raise vantage6_api.CollectResultsError(f"round {self.round}, {asked_for}: {why}")
        return sorted(answers, key=by_organization)

    def absent(self, organizations: Sequence[int], needed: int = 0) -> dict[int, Unusable]:
        """Those that are not worth asking in this round, and why.

        Where fewer than ``needed`` would be left, those that were to be left out are asked after all; where these are
        not enough, those whose node is offline as well, which are then awaited until ``offline_timeout``.
        """
        if self._tolerance.strict:
            return {}
        offline = {k: Unusable("its node is offline") for k in self._collector.offline(organizations)}
        left_out = {}
        for k in organizations:
            since = self.round - self._failed.get(k, self.round)
            if k not in offline and 0 < since <= self._tolerance.cooldown_rounds:
                left_out[k] = Unusable(f"left out after it failed in round {self._failed[k]}")
        for spare in (left_out, offline):
            if len(organizations) >= needed > len(organizations) - len(left_out) - len(offline):
                spare.clear()
        return {**left_out, **offline}

    def needed(self, asked: int) -> int:
        """How many of ``asked`` nodes must answer."""
        return self._tolerance.needed(asked)

    # ---- asynchronous methods: one call at a time to each node

    def launch(self, group: Group, round_: int) -> None:
        """Send the call of a group of one and go on; its node is told ``round_``."""
        self._pending.launch(self._calls(group, round_)[0])

    def next_answer(self) -> Answer | None:
        """The answer that comes next; None where an organization has failed: it is asked no more in this round.

        Raises CollectResultsError when fewer organizations are left than the job needs.
        """
        missing = self._history.missing
        while True:
            if not self._pending:
                raise vantage6_api.CollectResultsError(f"round {self.round}: nobody is at work; {reasons(missing)}")
            outcomes = self._pending.next()
            for call, outcome in outcomes:  # one answer, or all that have failed at once
                if isinstance(outcome, Answer):
                    return outcome
                self._failed[call.organization] = self.round
                missing[call.organization] = outcome
                self._keepers.discard(call.organization)
            if outcomes:
                K = len(self.job.participants)
                if K - len(missing) < self.needed(K):
                    raise vantage6_api.CollectResultsError(f"round {self.round}, {call.function}: {reasons(missing)}")
                return None

    def at_work(self) -> list[int]:
        """The organizations that a call is under way to."""
        return sorted({call.organization for call, _, _ in self._pending.tasks.values()})

    # ---- what nodes keep for the job

    def keep_steps(self) -> None:
        """Have the nodes that are there keep the large fitted steps; from now on tasks only name these."""
        steps = self.job.data.preprocess
        self._large = preprocessing.large(steps)
        self._named = [preprocessing.reference(step) if step in self._large else step for step in steps]
        everyone = [*self.job.participants, *self.job.evaluators]
        absent = self.absent(everyone)
        self._hand_over([k for k in everyone if k not in absent])  # who fails is asked again once it is needed

    def _hand_over(self, organizations: Sequence[int]) -> dict[int, Unusable]:
        """Send large fitted steps to those that do not keep them yet. Returns who failed, and why."""
        lacking = [k for k in organizations if k not in self._keepers]
        if not self._large or not lacking:
            return {}
        self.stateful = True
        calls = []
        for job in (self.job, self._evaluators_job()):
            who = [k for k in lacking if (k in self.job.evaluators) == (job is not self.job)]
            bare = replace(job, data=replace(job.data, preprocess=self._large))
            calls += self._calls(Group("keep_steps", who, bare, expected=Expected({})))
        answers, failed = self._collector.gather(calls)
        self.count_preparation(answers)
        self._keepers |= {a.organization_id for a in answers}
        return failed

    def forget(self) -> None:
        """Have the nodes remove what they keep for this job. Raises CollectResultsError that names who may not have."""
        if not self.stateful:
            return
        self.stateful = False
        # a node that is at work would keep its state after it was removed
        self._pending.drain()
        self._collector.drain(DRAIN_SECONDS)
        everyone = sorted([*self.job.participants, *self.job.evaluators])
        job = replace(self.job, data=replace(self.job.data, preprocess=[]))
        calls = self._calls(Group("forget", everyone, job, expected=Expected(minimum_rows=0)))
        _, missing = self._collector.gather(calls)
        missing |= {k: Unusable("is still at work and may keep state") for k in self._collector.given_up.values()}
        if missing:
            raise vantage6_api.CollectResultsError(f"round {self.round}, forget: {reasons(missing)}")

    # ---- what a call says, and what its answer must be

    def evaluation(self, weights: np.ndarray) -> Group:
        """The evaluation of a model by the evaluators, or else by everybody on the rows held out."""
        expected, arrays = replace(self.expected(), minimum_rows=1), {GLOBAL_MODEL: weights}
        if self.job.evaluators:
            return Group("evaluate", self.job.evaluators, self._evaluators_job(), {}, arrays, expected, "all")
        return Group("evaluate", self.job.participants, self.job, {}, arrays, expected, "held_out")

    def _evaluators_job(self) -> Job:
        """The job as evaluators are told it: they hold no rows out."""
        return replace(self.job, data=replace(self.job.data, holdout=0.0))

    def expected(
        self,
        returns: Sequence[str] | Mapping[str, Shape] = (),
        optional: Sequence[str] = (),
        numbers: Sequence[str] = (),
        validate: Callable[[Answer], str | None] | None = None,
    ) -> Expected:
        """Arrays as long as the model or of the shapes given, and numbers, about as many rows as the job requires."""
        shapes: dict[str, Shape] = {name: (self.size,) for name in [*returns, *optional]}
        if isinstance(returns, Mapping):
            shapes |= returns
        rows, classes = self.job.minimum_rows or 1, self.job.data.classes
        counted = None if classes is None else len(classes)
        return Expected(shapes, frozenset(optional), tuple(numbers), rows, counted, validate)

    def _calls(self, group: Group, round_: int | None = None) -> list[Call]:
        number = self.round if round_ is None else round_
        arguments: dict[str, Any] = {"round": number, **group.settings}
        if group.evaluate:
            arguments["evaluate"] = group.evaluate
        if group.arrays:
            arguments["arrays"] = codec.encode(group.arrays, group.job.precision)
        name = f"{group.job.method} {group.function}, round {number}"
        calls = []
        for keep in (True, False):
            who = [k for k in group.organizations if (k in self._keepers) == keep]
            if not who:
                continue
            job = group.job
            if keep and job.data.preprocess:
                job = replace(job, data=replace(job.data, preprocess=self._named))
            input_ = {"method": group.function, "kwargs": {"job": job.to_json(), **arguments}}
            size = codec.size(input_)
            calls += [Call(group.function, k, number, input_, size, name, group.expected) for k in who]
        return calls

    # ---- bytes

    def count_preparation(self, answers: Sequence[Answer]) -> None:
        """Add the bytes of answers, and in round 0 of what brought none, to those of the preparation."""
        self._history.count_preparation(answers, self.unanswered() if self.round == 0 else 0)

    def unanswered(self, evaluations: bool = False) -> int:
        """Bytes that were sent since this was last asked and brought no answer that could be used."""
        unanswered = self._collector.unanswered
        return sum(unanswered.pop(name) for name in [*unanswered] if (name == "evaluate") == evaluations)

    # ---- going on after an interruption

    def snapshot(self) -> dict[str, Any]:
        """What a checkpoint holds of the tasks."""
        return {
            "round": self.round,
            "key": self.job.key,
            "stateful": self.stateful,
            "keepers": sorted(self._keepers),
            "contacts": [*self._collector.contacts.items()],
            "failed": [*self._failed.items()],
            "pending": [
                [task, call.function, call.organization, call.round, call.size]
                for task, (call, _, _) in self._pending.tasks.items()
            ],
        }

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Know again, from a snapshot, what nodes keep and who failed; its round is the checkpoint's to read."""
        self.job = replace(self.job, key=kept["key"])
        self.stateful, self._keepers = kept["stateful"], {*kept["keepers"]}
        self._collector.contacts = {k: task for k, task in kept["contacts"]}
        self._failed = {k: t for k, t in kept["failed"]}

    def take_over(self, pending: Sequence[Sequence[Any]]) -> None:
        """Wait for the answers of calls that were under way at a snapshot, once the model's size is known; the server
        has kept them."""
        deadline = self._tolerance.round_timeout
        until = math.inf if deadline is None else vantage6_api.now(self._client) + deadline
        for task, function, organization, round_, size in pending:
            call = Call(function, organization, round_, {}, size, "", self.expected(optional=[GLOBAL_MODEL]))
            self._pending.tasks[task] = call, LARGE, until  # what was sent is not kept: there is no second attempt
