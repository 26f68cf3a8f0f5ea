"""The tasks of a round: what is sent to which node, which nodes are not asked, and whether enough answers came."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from v6_federated.base import vantage6_api
from v6_federated.base.arrays import Array
from v6_federated.base.errors import SafeError
from v6_federated.central.answer import Answer, Call, Expected, Unusable, by_organization, refusal
from v6_federated.central.blocks import SINGLE, Blocks, TooLarge, restored
from v6_federated.central.bounds import Bounds, Measures, norms
from v6_federated.central.calls import GLOBAL_MODEL, Group, Question
from v6_federated.central.dispatch import Dispatcher, PendingCalls, reasons
from v6_federated.central.history import History
from v6_federated.central.tolerance import Tolerance
from v6_federated.data import preprocessing
from v6_federated.masks.summands import Declaration, Layout, not_in_rows
from v6_federated.messages import serialization
from v6_federated.messages.codec import Shape
from v6_federated.messages.job import Job
from v6_federated.messages.settings import LARGE
from v6_federated.models import layouts
from v6_federated.models.layouts import Asked

DRAIN_SECONDS = 60.0  # in which tasks that were given up may end, before nodes remove their state


def with_bytes(answer: Answer, earlier: Sequence[Answer]) -> Answer:
    """Count the bytes of earlier answers to the same question too."""
    up, down = sum(a.bytes_up for a in earlier), sum(a.bytes_down for a in earlier)
    return replace(answer, bytes_up=answer.bytes_up + up, bytes_down=answer.bytes_down + down)


@dataclass
class Request:
    """One request of a round, on its way through four phases: who, send, open, judge.

    Attributes:
        groups: what is sent to which organizations.
        evaluations: evaluations by other organizations, on which the round does not depend. Without ``groups``, their
            own answers are counted.
        quorum_of: number of organizations that ``min_responses`` is a share of; None means those that are counted.
        blocks: the blocks in which those that are counted answer.
        missing: why there is no answer, by organization.
        failed: the same of those that have failed now, and were not left out.
        questions: what was asked.
        sent: the arrays that the answer of an organization may be an update of.
        answers: what came: at first of organizations, then of blocks.
    """

    groups: Sequence[Group]
    evaluations: Sequence[Group]
    quorum_of: int | None
    blocks: Blocks
    missing: dict[int, Unusable] = field(default_factory=dict)
    failed: dict[int, Unusable] = field(default_factory=dict)
    questions: list[Question] = field(default_factory=list)
    sent: dict[int, dict[str, Array]] = field(default_factory=dict)
    answers: list[Answer] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.wanted = [k for group in self.groups for k in group.organizations]
        self.others = [k for group in self.evaluations for k in group.organizations]
        self.counted = {*self.wanted} if self.groups else {*self.others}
        self.of = self.blocks.number(self.counted, self.quorum_of)
        self.function = self.groups[0].function if self.groups else "evaluate"

    @property
    def unasked(self) -> set[int]:
        """The organizations that get no call."""
        return {*self.missing, *self.failed}

    def needed(self, tolerance: Tolerance) -> int:
        """Count the answers that are needed; the operators' minimum is not one of blocks, or of evaluators."""
        trains = bool(self.groups) or not self.evaluations[0].job.evaluators
        return (tolerance if self.blocks.single and trains else replace(tolerance, at_least=1)).needed(self.of)


class RoundTasks:
    """The tasks of a job's rounds.

    Attributes:
        job: what the next task tells the nodes.
        round: the round that it belongs to; 0 is the preparation.
        size: length of the model, and of the arrays in answers; None means any length.
        newest: the global model that was sent last. A model that a node trained from its own is an update of it.
        stateful: whether nodes keep something for the job, which must be removed in the end.
        blocks: the blocks in which nodes answer what is declared as sums.
    """

    def __init__(
        self,
        client: Any,
        tolerance: Tolerance,
        bounds: Bounds,
        job: Job,
        history: History,
        declared: Callable[[str], Declaration | None] = lambda function: None,
        instead: Callable[[str], str] = lambda function: "",
    ) -> None:
        """Begin without tasks."""
        self.declared, self._instead = declared, instead
        self.job, self.round, self.stateful = job, 0, False
        self.size: int | None = None
        self.newest: Array | None = None
        self.blocks = SINGLE
        self._client, self._bounds, self._history = client, bounds, history
        self._tolerance = tolerance.in_mode(job.aggregation)
        self._dispatcher = Dispatcher(client, tolerance, bounds)
        self._pending = PendingCalls(self._dispatcher)
        self._failed: dict[int, int] = {}  # organization: the last round in which it gave no good answer
        self._large: Sequence[dict[str, Any]] = []  # fitted steps that nodes keep
        self._named: Sequence[dict[str, Any]] = []  # all steps, as they are sent to nodes that keep the large ones
        self._keepers: set[int] = set()

    # ---- one round: all calls at once

    def ask(
        self, groups: Sequence[Group], evaluations: Sequence[Group] = (), quorum_of: int | None = None
    ) -> list[Answer]:
        """Send calls, wait, and check that enough answers came."""
        request = Request(groups, evaluations, quorum_of, self.blocks_of([*groups, *evaluations][0]))
        self._who(request)
        self._send(request)
        self._open(request)
        self._judge(request)
        return sorted(request.answers, key=by_organization)

    # -- who

    def _who(self, request: Request) -> None:
        """Leave out who is absent, whom steps cannot be handed to, and who is in a block with one of these."""
        uncounted = self._uncounted(request.groups)  # a request of its own
        needed, blocks = request.needed(self._tolerance), request.blocks
        if request.groups:
            missing = self.absent(request.wanted, needed, blocks)
            missing |= self.absent(request.others, 0 if request.wanted else 1)
        else:  # an evaluation that need not succeed waits for one node at least
            missing = self.absent(request.others, max(needed, 1), blocks)
        request.missing = {**missing, **uncounted}
        everyone = [*request.wanted, *request.others]
        request.failed = self._hand_over([k for k in everyone if k not in request.missing])
        request.missing |= blocks.broken({*everyone}, request.unasked)

    def _uncounted(self, groups: Sequence[Group]) -> dict[int, Unusable]:
        """Learn the rows of blocks whose means are asked for, and say of which blocks that failed.

        They are not known if the block was missing when they were counted, or if an earlier result is resumed.
        """

        def unknown() -> list[int]:
            found = [(group, self.blocks_of(group).uncounted(group.organizations)) for group in groups]
            return [k for group, who in found if who and self._weighs_rows(group) for k in who]

        if who := unknown():
            counting = Group("count_rows", who, self.job, expected=self.expected())
            self.count_preparation(self.ask([counting], quorum_of=0))
        reason = Unusable("the rows of its block are not known")
        return {k: self._history.missing.get(k, reason) for k in unknown()}

    def _weighs_rows(self, group: Group) -> bool:
        return any(item.weight == "share" for item in self.layout(group).items)

    def absent(self, organizations: Sequence[int], needed: int = 0, blocks: Blocks = SINGLE) -> dict[int, Unusable]:
        """Find the organizations that are not asked in this round: those that failed recently or are offline.

        If fewer than ``needed`` would be left, those that failed recently are asked after all; if these are not
        enough, so are those whose node is offline, which are then awaited until ``offline_timeout``.
        """
        if self._tolerance.strict:
            return {}
        offline = {k: Unusable("its node is offline") for k in self._dispatcher.offline(organizations)}
        left_out = {}
        for k in organizations:
            since = self.round - self._failed.get(k, self.round)
            if k not in offline and 0 < since <= self._tolerance.cooldown_rounds:
                left_out[k] = Unusable(f"left out after it failed in round {self._failed[k]}")
        for spare in (left_out, offline):
            without = left_out.keys() | offline.keys()
            if len(blocks.standing(organizations)) >= needed > len(blocks.standing(organizations, without)):
                spare.clear()
        return {**left_out, **offline}

    def needed(self, asked: int) -> int:
        """Count how many of some nodes that are asked must answer."""
        return self._tolerance.needed(asked)

    # -- send

    def _send(self, request: Request) -> None:
        """Send the calls and wait until each has an answer or has failed for good."""
        groups = [*request.evaluations, *request.groups]  # evaluations first: the test set of a benchmark takes longest
        request.questions = [q for group in groups for q in self._questions(group)]
        calls = [c for question in request.questions for c in self._calls(question)]
        request.sent = {k: self._sent(group) for group in request.groups for k in group.organizations}
        unasked = request.unasked
        answers, failed = self._dispatcher.gather([c for c in calls if c.organization not in unasked])
        for a in answers:  # a node's description says whether the job is in a study
            self._tolerance = self._tolerance.in_mode(a.values.get("mode"))
        if request.blocks.in_a_study:
            answers, failed = self._once_more(request, calls, answers, failed)
        request.answers = answers
        request.failed |= failed
        request.missing |= request.failed
        self._keepers -= {*request.failed}  # they may have lost what they keep

    def _once_more(
        self, request: Request, calls: Sequence[Call], answers: list[Answer], failed: dict[int, Unusable]
    ) -> tuple[list[Answer], dict[int, Unusable]]:
        """If too few blocks are whole, send the same requests to the others again: nodes repeat what they have said."""
        needed = request.needed(self._tolerance)
        blocks = request.blocks.standing(request.counted, request.unasked)
        for _ in range(self._tolerance.retries):
            broken = [block for block in blocks if failed.keys() & {*block}]
            refused = [block for block in broken if any(k in failed and failed[k].refused for k in block)]
            if len(blocks) - len(broken) >= needed or len(blocks) - len(refused) < needed:
                break
            who = {k for block in broken if block not in refused for k in block}
            again, still = self._dispatcher.gather([call for call in calls if call.organization in who])
            answers = [*(a for a in answers if a.organization_id not in who), *again]
            failed = {k: error for k, error in failed.items() if k not in who} | still
        return answers, failed

    def _sent(self, group: Group) -> dict[str, Array]:
        """The arrays that answers to a group's calls may be updates of."""
        self.newest = group.arrays.get(GLOBAL_MODEL, self.newest)
        return group.arrays if self.newest is None else {GLOBAL_MODEL: self.newest, **group.arrays}

    # -- open

    def _open(self, request: Request) -> None:
        """Replace the answers of each whole block by the block's."""
        request.answers, lost = self._opened(request.questions, request.answers)
        request.missing |= {k: error for k, error in lost.items() if k not in request.missing}

    def _opened(
        self, questions: Sequence[Question], answers: Sequence[Answer]
    ) -> tuple[list[Answer], dict[int, Unusable]]:
        """The answers of whole blocks. For the other blocks, the reason why there is no answer, by organization."""
        came = {(a.function, a.organization_id): a for a in answers}
        opened: list[Answer] = []
        lost: dict[int, Unusable] = {}
        for question in questions:
            for block in question.blocks:
                found = [came[at] for k in block if (at := (question.group.function, k)) in came]
                if len(found) == len(block):
                    more, closed = self._opened_one(question, block, found)
                    opened += more
                    lost |= closed
                elif found:
                    here = {a.organization_id for a in found}
                    gone = next(k for k in block if k not in here)
                    why = f"organization {gone} of its block is missing, and a sum needs all"
                    lost |= {k: Unusable(why) for k in block if k in here}
        return opened, lost

    def _opened_one(
        self, question: Question, block: list[int], answers: Sequence[Answer]
    ) -> tuple[list[Answer], dict[int, Unusable]]:
        blocks = self.blocks_of(question.group)
        try:
            return [blocks.open(question, block, answers)], {}
        except TooLarge:  # once more, in 64 bits, which hold any number
            again = [*self._questions(replace(question.group, organizations=block))]
            came, missing = self._dispatcher.gather([call for q in again for call in self._calls(q)])
            opened, lost = self._opened(again, came)
            return [with_bytes(a, answers) for a in opened], missing | lost
        except vantage6_api.CollectResultsError as error:  # it will not be otherwise in the next round
            if self._tolerance.strict:
                raise
            blocks.lose(block, error)
            return [], {k: Unusable(str(error), refused=True) for k in block}

    # -- judge

    def _judge(self, request: Request) -> None:
        """Note who is missing, and check that enough came and that nobody sent what the others make implausible."""
        missing, place = request.missing, f"round {self.round}, {request.function}"
        self._failed |= dict.fromkeys(request.failed, self.round)
        wanted = {*request.wanted}
        self._history.missing |= {k: error for k, error in missing.items() if k in wanted}
        self._history.unevaluated |= {k: error for k, error in missing.items() if k not in wanted}
        came = [a for a in request.answers if a.organization_id in request.counted]
        needed = request.needed(self._tolerance)
        if (self._tolerance.strict and missing) or len(came) < needed:
            refused = any(error.refused for error in missing.values())
            alike = not came and all(error.refused for error in missing.values())  # how many are needed changes nothing
            few = f"; {len(came)} of {request.of} answered, {needed} are needed"
            why = reasons(missing) + ("" if self._tolerance.strict or alike else few)
            raise (refusal if refused else vantage6_api.CollectResultsError)(f"{place}: {why}")
        self._bounds.check_shares(place)
        if request.groups and self.round:
            measures = request.groups[0].expected.measures
            single = [a for a in came if not a.members]
            measured = {a.organization_id: norms(a, request.sent[a.organization_id], measures) for a in single}
            self._bounds.check_norms(place, request.function, measured)

    # ---- blocks

    def blocks_of(self, group: Group) -> Blocks:
        """The blocks in which the organizations of a group answer."""
        summed = group.job.aggregation != "plain" and self.declared(group.function) is not None
        return self.blocks if summed else SINGLE

    def layout(self, group: Group) -> Layout:
        """What the answers to a group's calls are a sum of, as nodes derive it too; the function declares sums."""
        declaration = self.declared(group.function)
        assert declaration is not None
        bands = self.blocks_of(group).bands(group)
        found = layouts.layout(declaration, Asked(group.job, group.settings, group.arrays, bool(group.evaluate), bands))
        if group.job.hides_totals and (why := not_in_rows(group.function, found, self._instead(group.function))):
            raise SafeError(why)  # as each node would say
        return found

    def shapes(self, group: Group) -> Mapping[str, Shape]:
        """The shapes of the arrays in a node's own answer: those declared as sums, or of ``weights`` if none are."""
        if self.declared(group.function) is None:
            return {GLOBAL_MODEL: (self.size,)}
        return {item.name: item.shape for item in self.layout(group).items if item.shape}

    # ---- asynchronous methods: one call at a time to each node

    def launch(self, group: Group, round_: int) -> None:
        """Send a call to one organization, with a round of its own, and do not wait for its answer."""
        self._sent(group)
        self._pending.launch(self._calls_of(group, round_)[0])

    def next_answer(self) -> Answer | None:
        """Wait for the next answer."""
        missing = self._history.missing
        while True:
            if not self._pending:
                raise vantage6_api.CollectResultsError(f"round {self.round}: no node is at work; {reasons(missing)}")
            outcomes = self._pending.next()
            for call, outcome in outcomes:  # one answer, or all calls that failed together
                if isinstance(outcome, Answer):
                    place = f"round {self.round}, {call.function}"
                    self._bounds.check_shares(place)
                    sent = {} if self.newest is None else {GLOBAL_MODEL: self.newest}
                    measured = norms(outcome, sent, call.expected.measures)
                    self._bounds.check_norms(place, call.function, {call.organization: measured})
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
        """Return the organizations that are working on a call."""
        return sorted({call.organization for call, _, _ in self._pending.tasks.values()})

    # ---- what nodes keep for the job

    def keep_steps(self) -> None:
        """Have all nodes that are online keep the large fitted steps; from now on, tasks only name these."""
        steps = self.job.data.preprocess
        self._large = preprocessing.large(steps)
        self._named = [preprocessing.reference(step) if step in self._large else step for step in steps]
        everyone = [*self.job.participants, *self.job.evaluators]
        absent = self.absent(everyone)
        self._hand_over([k for k in everyone if k not in absent])  # others get them when they are next asked

    def _hand_over(self, organizations: Sequence[int]) -> dict[int, Unusable]:
        """Send large fitted steps to nodes that do not keep them yet; return which failed, and why."""
        lacking = [k for k in organizations if k not in self._keepers]
        if not self._large or not lacking:
            return {}
        self.stateful = True
        calls = []
        for job in (self.job, self._evaluators_job()):
            who = [k for k in lacking if (k in self.job.evaluators) == (job is not self.job)]
            bare = replace(job, data=replace(job.data, preprocess=self._large))
            calls += self._calls_of(Group("keep_steps", who, bare, expected=self.expected()))
        answers, failed = self._dispatcher.gather(calls)
        self.count_preparation(answers)
        self._keepers |= {a.organization_id for a in answers}
        return failed

    def forget(self) -> None:
        """Have the nodes remove what they keep for this job."""
        if not self.stateful:
            return
        self.stateful = False
        # a node that is still at work could write state after removing it
        self._pending.drain()
        self._dispatcher.drain(DRAIN_SECONDS)
        everyone = sorted([*self.job.participants, *self.job.evaluators])
        job = replace(self.job, data=replace(self.job.data, preprocess=[]))
        calls = self._calls_of(Group("forget", everyone, job, expected=Expected(minimum_rows=0)))
        _, missing = self._dispatcher.gather(calls)
        missing |= {k: Unusable("still at work, may keep state") for k in self._dispatcher.given_up.values()}
        if missing:
            raise vantage6_api.CollectResultsError(f"round {self.round}, forget: {reasons(missing)}")

    # ---- what a call says, and what its answer must be

    def evaluation(self, weights: Array, last: bool = False) -> Group:
        """Return the calls that evaluate a model: evaluators, on all their rows, or else all nodes, on rows held out.

        Of a job's last model more is asked, see ``questions.evaluate``.
        """
        expected, arrays, settings = self.expected(), {GLOBAL_MODEL: weights}, {"last": True} if last else {}
        if last and self.job.privacy is None:
            expected = replace(expected, parts=frozenset({"details"}), values=frozenset({"own_results"}))
        if self.job.evaluators:
            return Group("evaluate", self.job.evaluators, self._evaluators_job(), settings, arrays, expected, "all")
        who, job = self.job.participants, self.job
        return Group("evaluate", who, job, settings, arrays, expected, "held_out")

    def _evaluators_job(self) -> Job:
        """The job for evaluators, which hold no rows out. They are in no block: central sees their evaluations."""
        data = replace(self.job.data, holdout=0.0)
        return replace(self.job, data=data, aggregation="plain", hospital_totals="")

    def expected(
        self,
        returns: Sequence[str] | Mapping[str, Shape] = (),
        optional: Sequence[str] = (),
        numbers: Sequence[str] = (),
        values: Sequence[str] = (),
        validate: Callable[[Answer], str | None] | None = None,
        measures: Measures = MappingProxyType({}),
    ) -> Expected:
        """Describe what the answers to a call must hold; arrays without a shape are as long as the model."""
        shapes: dict[str, Shape] = {name: (self.size,) for name in [*returns, *optional]}
        if isinstance(returns, Mapping):
            shapes |= returns
        rows, classes = self.job.minimum_rows or 1, self.job.data.classes
        counted = None if classes is None else len(classes)
        return Expected(
            shapes,
            frozenset(optional),
            tuple(numbers),
            frozenset(values),
            minimum_rows=rows,
            classes=counted,
            loss=self.job.loss,
            noisy=self.job.privacy is not None,
            validate=validate,
            measures=measures,
        )

    def _questions(self, group: Group) -> Iterator[Question]:
        return self.blocks_of(group).questions(group, self.layout)

    def _calls(self, question: Question, round_: int | None = None) -> list[Call]:
        """Calls of the same content, except that nodes which keep large steps are sent their names only."""
        group, number = question.group, self.round if round_ is None else round_
        arguments: dict[str, Any] = {"round": number, **group.settings}
        if group.evaluate:
            arguments["evaluate"] = group.evaluate
        if group.arrays:
            arguments["arrays"] = group.payload
        arguments |= question.more
        expected = replace(question.expected, evaluation=bool(group.evaluate))
        calls = []
        for keep in (True, False):
            who = [k for block in question.blocks for k in block if (k in self._keepers) == keep]
            if not who:
                continue
            job = group.job
            if keep and job.data.preprocess:
                job = replace(job, data=replace(job.data, preprocess=self._named))
            input_ = {"method": group.function, "kwargs": {"job": job.to_json(), **arguments}}
            size, name = serialization.size(input_), f"{job.method} {group.function}, round {number}"
            calls += [Call(group.function, k, number, input_, size, f"{name}, organization {k}", expected) for k in who]
        return calls

    def _calls_of(self, group: Group, round_: int | None = None) -> list[Call]:
        return [call for question in self._questions(group) for call in self._calls(question, round_)]

    # ---- bytes

    def count_preparation(self, answers: Sequence[Answer]) -> None:
        """Count bytes as those of the preparation, in round 0 with requests that brought no answer."""
        self._history.count_preparation(answers, self.unanswered() if self.round == 0 else 0)

    def unanswered(self, evaluations: bool = False) -> int:
        """Take the number of bytes that brought no usable answer since it was last taken."""
        unanswered = self._dispatcher.unanswered
        return sum(unanswered.pop(name) for name in [*unanswered] if (name == "evaluate") == evaluations)

    # ---- going on after an interruption

    def snapshot(self) -> dict[str, Any]:
        """Return what a checkpoint needs of the tasks, as JSON."""
        return {
            "round": self.round,
            "key": self.job.key,
            "aggregation": self.job.aggregation,
            "stateful": self.stateful,
            "keepers": sorted(self._keepers),
            "contacts": [*self._dispatcher.contacts.items()],
            "failed": [*self._failed.items()],
            "bounds": self._bounds.snapshot(),
            "blocks": self.blocks.snapshot(),
            "pending": [
                [task, call.function, call.organization, call.round, call.size, sorted(call.expected.values)]
                for task, (call, _, _) in self._pending.tasks.items()
            ],
        }

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Restore what nodes keep and which have failed."""
        self.blocks = restored(kept["blocks"], again=kept["weights"] is None)
        said = {"aggregation": kept["aggregation"], "hospital_totals": self.blocks.hospital_totals}
        self.job = replace(self.job, key=kept["key"], **said)
        self._tolerance = self._tolerance.in_mode(self.job.aggregation)
        self.stateful, self._keepers = kept["stateful"], {*kept["keepers"]}
        self._dispatcher.contacts = {k: task for k, task in kept["contacts"]}
        self._failed = {k: t for k, t in kept["failed"]}
        self._bounds.restore(kept["bounds"])

    def restore_rows(self, per_node: Sequence[Mapping[str, Any]]) -> None:
        """Restore how many rows each node has."""
        self._bounds.restore_rows(per_node)

    def take_over(self, pending: Sequence[Sequence[Any]]) -> None:
        """Wait again for calls that were pending at a snapshot: the server has kept their answers."""
        deadline = self._tolerance.round_timeout
        until = math.inf if deadline is None else vantage6_api.now(self._client) + deadline
        for task, function, organization, round_, size, values in pending:
            expected = self.expected(optional=[GLOBAL_MODEL], values=values)
            call = Call(function, organization, round_, {}, size, "", expected)
            self._pending.tasks[task] = call, LARGE, until  # no second attempt: the snapshot lacks what was sent
