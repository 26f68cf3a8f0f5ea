"""The tasks of a round: what is sent to which node, which nodes are not asked, and whether enough answers came."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from v6_federated.base import vantage6_api
from v6_federated.base.arrays import Array
from v6_federated.base.errors import SafeError
from v6_federated.central.answer import Answer, Call, Expected, Unusable, by_organization, refusal
from v6_federated.central.bounds import Bounds, Measures, norms
from v6_federated.central.dispatch import Dispatcher, PendingCalls, reasons
from v6_federated.central.history import History
from v6_federated.central.masking import Masks, TooLarge
from v6_federated.central.tolerance import Tolerance
from v6_federated.data import preprocessing
from v6_federated.masks.summands import Declaration, Layout, not_in_rows
from v6_federated.messages import codec, serialization
from v6_federated.messages.codec import Shape
from v6_federated.messages.job import HIDDEN, Job
from v6_federated.messages.settings import LARGE, Record
from v6_federated.models import layouts
from v6_federated.models.layouts import Asked

GLOBAL_MODEL = "weights"  # the name of the array that nodes evaluate
DRAIN_SECONDS = 60.0  # in which tasks that were given up may end, before nodes remove their state


def parted(arguments: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Array]]:
    """Split arguments into settings and arrays.

    Args:
        arguments: a partial function's arguments.

    Returns:
        Settings, with records as dictionaries of their fields; and arrays, which are sent as a payload.
    """
    arrays = {name: value for name, value in arguments.items() if isinstance(value, np.ndarray)}
    settings = {name: value for name, value in arguments.items() if name not in arrays}
    return {
        name: value.model_dump() if isinstance(value, Record) else value for name, value in settings.items()
    }, arrays


def with_bytes(answer: Answer, earlier: Sequence[Answer]) -> Answer:
    """Count the bytes of earlier answers to the same question too.

    Args:
        answer: an answer.
        earlier: others of the same organization.

    Returns:
        The answer, with the bytes of all.
    """
    up, down = sum(a.bytes_up for a in earlier), sum(a.bytes_down for a in earlier)
    return replace(answer, bytes_up=answer.bytes_up + up, bytes_down=answer.bytes_down + down)


@dataclass(frozen=True)
class Group:
    """Organizations that are sent the same.

    Attributes:
        function: the partial function.
        organizations: their ids.
        job: what they are told about the job.
        settings: the function's settings.
        arrays: the function's arrays.
        expected: what their answers must hold.
        evaluate: whether they evaluate ``weights`` first: "held_out", "all" or None.
        exponent: e of masked sums whose unit follows from public values that the function's caller knows.
        often: why nodes often cannot compute their part of a masked sum, and what to do.
    """

    function: str
    organizations: Collection[int]
    job: Job
    settings: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, Array] = field(default_factory=dict)
    expected: Expected = field(default_factory=Expected)
    evaluate: str | None = None
    exponent: int | None = None
    often: str = ""


class RoundTasks:
    """The tasks of a job's rounds.

    Attributes:
        job: what the next task tells the nodes.
        round: the round that it belongs to; 0 is the preparation.
        size: length of the model, and of the arrays in answers; None means any length.
        newest: the global model that was sent last. A model that a node trained from its own is an update of it.
        stateful: whether nodes keep something for the job, which must be removed in the end.
        masks: the blocks of nodes of which central learns sums only; None if it sees single answers.
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
        """Begin without tasks.

        Args:
            client: vantage6's client.
            tolerance: which missing answers a round tolerates.
            bounds: what each node may send.
            job: what the first task tells the nodes.
            history: records which answers are missing, and the bytes of the preparation.
            declared: what a partial function's answer is a sum of; None if it answers alone.
            instead: what serves in place of a partial function where only sums over rows are answered.
        """
        self.declared, self._instead = declared, instead
        self.job, self.round, self.stateful = job, 0, False
        self.size: int | None = None
        self.newest: Array | None = None
        self.masks: Masks | None = None
        self._client, self._tolerance, self._bounds, self._history = client, tolerance, bounds, history
        self._dispatcher = Dispatcher(client, tolerance, bounds)
        self._pending = PendingCalls(self._dispatcher)
        if job.aggregation == "pinned":
            self._in_a_study()
        self._failed: dict[int, int] = {}  # organization: the last round in which it gave no good answer
        self._large: Sequence[dict[str, Any]] = []  # fitted steps that nodes keep
        self._named: Sequence[dict[str, Any]] = []  # all steps, as they are sent to nodes that keep the large ones
        self._keepers: set[int] = set()

    # ---- one round: all calls at once

    def ask(
        self, groups: Sequence[Group], evaluations: Sequence[Group] = (), quorum_of: int | None = None
    ) -> list[Answer]:
        """Send calls, wait, and check that enough answers came.

        Args:
            groups: what is sent to which organizations.
            evaluations: evaluations by other organizations, on which the round does not depend. Without ``groups``,
                their own answers are counted.
            quorum_of: number of organizations that ``min_responses`` is a share of; None means those that are counted.

        Returns:
            The answers, by ascending id.

        Raises:
            CollectResultsError: too few answers came; it names each organization without one, and why.
                Its attribute ``refused`` is True if some have refused.
        """
        uncounted = self._uncounted(groups)
        wanted = [k for group in groups for k in group.organizations]
        others = [k for group in evaluations for k in group.organizations]
        here = set(wanted)
        counted = here if groups else set(others)
        of = len(counted) if quorum_of is None else quorum_of
        needed = self.needed(of)
        by_blocks = self.masks is not None and self._masked(groups or evaluations)
        if by_blocks:
            assert self.masks is not None
            of = len(self.masks.blocks if quorum_of == len(self.job.participants) else self.masks.whole(counted))
            needed = self._named_needed(0 if quorum_of == 0 else of)
        elif not groups and self.job.evaluators and quorum_of is None:
            needed = self._named_needed(of)
        if groups:
            missing = self.absent(wanted, needed, by_blocks) | self.absent(others, 0 if wanted else 1)
        else:  # an evaluation that need not succeed waits for one node at least
            missing = self.absent(others, max(needed, 1), by_blocks)
        missing |= uncounted
        failed = self._hand_over([k for k in [*wanted, *others] if k not in missing])
        missing |= self._in_broken_blocks([*evaluations, *groups], {*missing, *failed})
        # evaluations first: the test set of a benchmark takes longest
        calls = [c for group in [*evaluations, *groups] for c in self._calls(group)]
        sent = {k: self._sent(group) for group in groups for k in group.organizations}
        answers, more = self._dispatcher.gather([c for c in calls if c.organization not in missing | failed])
        if self.round == 0 and any(a.values.get("mode") == "pinned" for a in answers):
            self._in_a_study()
            needed = needed if by_blocks else self.needed(of)
        if by_blocks and self.job.aggregation == "pinned":
            answers, more = self._once_more(calls, answers, {*missing, *failed}, more, counted, needed)
        failed |= more
        missing |= failed
        self._keepers -= {*failed}  # they may have lost what they keep
        if self.masks is not None:
            answers, lost = self._opened([*evaluations, *groups], calls, answers)
            missing |= {k: error for k, error in lost.items() if k not in missing}
        for k, error in missing.items():
            if k in failed:
                self._failed[k] = self.round
            (self._history.missing if k in here else self._history.unevaluated)[k] = error
        came = [a for a in answers if a.organization_id in counted]
        asked_for = groups[0].function if groups else "evaluate"
        if (self._tolerance.strict and missing) or len(came) < needed:
            refused = any(error.refused for error in missing.values())
            alike = not came and all(error.refused for error in missing.values())  # how many are needed changes nothing
            few = "" if self._tolerance.strict or alike else f"; {len(came)} of {of} answered, {needed} are needed"
            why = reasons(missing) + few
            raise (refusal if refused else vantage6_api.CollectResultsError)(f"round {self.round}, {asked_for}: {why}")
        place = f"round {self.round}, {asked_for}"
        self._bounds.check_shares(place)
        if groups and self.round:
            single = [a for a in came if not a.members]
            measured = {
                a.organization_id: norms(a, sent[a.organization_id], groups[0].expected.measures) for a in single
            }
            self._bounds.check_norms(place, asked_for, measured)
        return sorted(answers, key=by_organization)

    def _in_a_study(self) -> None:
        """From now on, rounds do without some of the blocks, unless the job says otherwise."""
        self._tolerance = self._dispatcher.tolerance = self._tolerance.in_a_study()

    def _once_more(
        self,
        calls: Sequence[Call],
        answers: list[Answer],
        unasked: AbstractSet[int],
        failed: dict[int, Unusable],
        counted: AbstractSet[int],
        needed: int,
    ) -> tuple[list[Answer], dict[int, Unusable]]:
        """If too few blocks are whole, send the same requests to the others again: nodes repeat what they have said."""
        assert self.masks is not None
        blocks = [
            block for block in self.masks.whole(counted) if block[0] not in self.masks.lost and not unasked & {*block}
        ]
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

    # ---- sums over blocks

    def _masked(self, groups: Sequence[Group]) -> bool:
        return any(group.job.aggregation != "plain" and self.declared(group.function) is not None for group in groups)

    def layout(self, group: Group) -> Layout:
        """What the answers to a group's calls are a sum of, as nodes derive it too.

        Args:
            group: calls of a function that declares sums.

        Returns:
            The layout.
        """
        declaration = self.declared(group.function)
        assert declaration is not None
        asked = Asked(group.job, group.settings, group.arrays, bool(group.evaluate), self._bands(group))
        return layouts.layout(declaration, asked)

    def shapes(self, group: Group) -> Mapping[str, Shape]:
        """The shapes of the arrays in a node's own answer: those that its function declares as sums.

        Args:
            group: the calls.

        Returns:
            The shapes by name; of ``weights`` if the function declares no sums.
        """
        if self.declared(group.function) is None:
            return {GLOBAL_MODEL: (self.size,)}
        return {item.name: item.shape for item in self.layout(group).items if item.shape}

    def _not_in_rows(self, function: str, layout: Layout) -> str:
        return not_in_rows(function, layout, self._instead(function))

    def _bands(self, group: Group) -> int:
        """In how many bands an evaluation counts scores: as all nodes do, or in none."""
        counts = group.evaluate and self.masks is not None and not group.job.data.regression
        return (self.masks.bands or 0) if counts and self.masks is not None else 0

    def _uncounted(self, groups: Sequence[Group]) -> dict[int, Unusable]:
        """Learn the rows of blocks whose means are asked for, and say of which blocks that failed.

        They are not known if the block was missing when they were counted, or if an earlier result is resumed.
        """
        if self.masks is None or not self._masked(groups):
            return {}
        weighted = [g for g in groups if self._masked([g]) and any(i.weight == "share" for i in self.layout(g).items)]
        asked = [block for group in weighted for block in self.masks.whole(group.organizations)]
        blocks = [block for block in asked if block[0] not in self.masks.lost]
        if unknown := [k for block in blocks if block[0] not in self.masks.rows for k in block]:
            group = Group("count_rows", unknown, self.job, expected=self.expected())
            self.count_preparation(self.ask([group], quorum_of=0))
        lacking = [k for block in blocks if block[0] not in self.masks.rows for k in block]
        return {k: self._history.missing.get(k, Unusable("the rows of its block are not known")) for k in lacking}

    def _in_broken_blocks(self, groups: Sequence[Group], missing: AbstractSet[int]) -> dict[int, Unusable]:
        """The organizations that are not asked because another one of their block is missing."""
        if self.masks is None or not self._masked(groups):
            return {}
        found: dict[int, Unusable] = {}
        for block in self.masks.blocks:
            gone = sorted(missing & {*block})
            why = self.masks.lost.get(block[0]) or (f"organization {gone[0]} of its block is missing" if gone else "")
            if why:
                found |= {k: Unusable(why) for k in block if k not in gone}
        asked = {k for group in groups for k in group.organizations}
        return {k: error for k, error in found.items() if k in asked}

    def _opened(
        self, groups: Sequence[Group], calls: Sequence[Call], answers: Sequence[Answer]
    ) -> tuple[list[Answer], dict[int, Unusable]]:
        """Replace the masked answers of each whole block by their sum, and say whose block is not whole."""
        assert self.masks is not None
        by_organization = {(a.function, a.organization_id): a for a in answers}
        opened: list[Answer] = []
        lost: dict[int, Unusable] = {}
        for group in groups:
            if not self._masked([group]):
                opened += [
                    a for k in group.organizations if (a := by_organization.get((group.function, k))) is not None
                ]
                continue
            for block in self.masks.whole(group.organizations):
                found = [by_organization.get((group.function, k)) for k in block]
                came = [a for a in found if a is not None]
                if len(came) < len(block):
                    gone = next(k for k, a in zip(block, found, strict=True) if a is None)
                    here = f"organization {gone} of its block is missing, and a sum needs all"
                    lost |= {a.organization_id: Unusable(here) for a in came}
                    continue
                sums = next(
                    c.expected.sums for c in calls if c.organization == block[0] and c.function == group.function
                )
                assert sums is not None
                try:
                    event = group.job.data.event
                    about = group.function, block, sums, came, group.arrays, group.often, event
                    opened.append(self.masks.opened(*about))
                except TooLarge:  # once more, in 64 bits, which hold any number
                    again = replace(group, organizations=block)
                    calls_again = self._calls(again)
                    answers_again, missing = self._dispatcher.gather(calls_again)
                    more, lost_again = self._opened([again], calls_again, answers_again)
                    opened += [with_bytes(a, came) for a in more]
                    lost |= missing | lost_again
                except vantage6_api.CollectResultsError as error:  # it will not be otherwise in the next round
                    if self._tolerance.strict or len(self.masks.lost) + 1 == len(self.masks.blocks):
                        raise
                    self.masks.lose(block[0], str(error))
                    lost |= {k: Unusable(str(error), refused=True) for k in block}
        return opened, lost

    def _sent(self, group: Group) -> dict[str, Array]:
        """The arrays that answers to a group's calls may be updates of."""
        if GLOBAL_MODEL in group.arrays:
            self.newest = group.arrays[GLOBAL_MODEL]
        return group.arrays if self.newest is None else {GLOBAL_MODEL: self.newest, **group.arrays}

    def absent(self, organizations: Sequence[int], needed: int = 0, by_blocks: bool = False) -> dict[int, Unusable]:
        """Find the organizations that are not asked in this round: those that failed recently or are offline.

        If fewer than ``needed`` would be left, those that failed recently are asked after all; if these are not
        enough, so are those whose node is offline, which are then awaited until ``offline_timeout``.

        Args:
            organizations: the organizations to choose from.
            needed: number of answers that the round needs.
            by_blocks: whether whole blocks are counted, and not organizations.

        Returns:
            Why each of them is not asked.
        """

        def count(without: AbstractSet[int] = frozenset()) -> int:
            if not by_blocks or self.masks is None:
                return len({*organizations} - without)
            blocks = [block for block in self.masks.whole(organizations) if block[0] not in self.masks.lost]
            return sum(not without & {*block} for block in blocks)

        if self._tolerance.strict:
            return {}
        offline = {k: Unusable("its node is offline") for k in self._dispatcher.offline(organizations)}
        left_out = {}
        for k in organizations:
            since = self.round - self._failed.get(k, self.round)
            if k not in offline and 0 < since <= self._tolerance.cooldown_rounds:
                left_out[k] = Unusable(f"left out after it failed in round {self._failed[k]}")
        for spare in (left_out, offline):
            if count() >= needed > count(left_out.keys() | offline.keys()):
                spare.clear()
        return {**left_out, **offline}

    def needed(self, asked: int) -> int:
        """Count the answers that a round needs.

        Args:
            asked: number of nodes that are asked.

        Returns:
            How many of them must answer.
        """
        return self._tolerance.needed(asked)

    def _named_needed(self, asked: int) -> int:
        """The same without the operators' minimum, which is not one of blocks, or of evaluators named one by one."""
        return replace(self._tolerance, at_least=1).needed(asked)

    # ---- asynchronous methods: one call at a time to each node

    def launch(self, group: Group, round_: int) -> None:
        """Send a call and do not wait for its answer.

        Args:
            group: the call, to one organization.
            round_: the round that its node is told.
        """
        self._sent(group)
        self._pending.launch(self._calls(group, round_)[0])

    def next_answer(self) -> Answer | None:
        """Wait for the next answer.

        Returns:
            The answer; None if an organization has failed, which is then not asked any more in this round.

        Raises:
            CollectResultsError: fewer organizations are left than the job needs.
        """
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
            calls += self._calls(Group("keep_steps", who, bare, expected=self.expected()))
        answers, failed = self._dispatcher.gather(calls)
        self.count_preparation(answers)
        self._keepers |= {a.organization_id for a in answers}
        return failed

    def forget(self) -> None:
        """Have the nodes remove what they keep for this job.

        Raises:
            CollectResultsError: some may not have; it names them.
        """
        if not self.stateful:
            return
        self.stateful = False
        # a node that is still at work could write state after removing it
        self._pending.drain()
        self._dispatcher.drain(DRAIN_SECONDS)
        everyone = sorted([*self.job.participants, *self.job.evaluators])
        job = replace(self.job, data=replace(self.job.data, preprocess=[]))
        calls = self._calls(Group("forget", everyone, job, expected=Expected(minimum_rows=0)))
        _, missing = self._dispatcher.gather(calls)
        missing |= {k: Unusable("still at work, may keep state") for k in self._dispatcher.given_up.values()}
        if missing:
            raise vantage6_api.CollectResultsError(f"round {self.round}, forget: {reasons(missing)}")

    # ---- what a call says, and what its answer must be

    def evaluation(self, weights: Array, last: bool = False) -> Group:
        """Return the calls that evaluate a model.

        Args:
            weights: the model (d,).
            last: whether it is the job's last model, of which more is asked, see ``questions.evaluate``.

        Returns:
            Calls to the evaluators, on all of their rows; without evaluators, to all nodes on the rows held out.
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
        """Describe what the answers to a call must hold.

        Args:
            returns: names of arrays as long as the model, or shapes by name.
            optional: names of arrays as long as the model that may be missing.
            numbers: names of values that must be numbers from 0.
            values: names of further values that may be there.
            validate: says what else is wrong with an answer, or None.
            measures: what of an answer is compared with the other nodes' answers.

        Returns:
            The description.
        """
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

    def _calls(self, group: Group, round_: int | None = None) -> list[Call]:
        number = self.round if round_ is None else round_
        arguments: dict[str, Any] = {"round": number, **group.settings}
        if group.evaluate:
            arguments["evaluate"] = group.evaluate
        if group.arrays:
            arguments["arrays"] = codec.encode(group.arrays, group.job.precision)
        name = f"{group.job.method} {group.function}, round {number}"
        expected = replace(group.expected, evaluation=bool(group.evaluate))
        if self.masks is None or not self._masked([group]):
            return self._alike(group, group.organizations, arguments, number, name, expected)
        calls = []
        layout, arguments["bands"] = self.layout(group), self._bands(group)
        if self.masks.hospital_totals == HIDDEN and (reason := self._not_in_rows(group.function, layout)):
            raise SafeError(reason)  # as each node would say
        for block in self.masks.whole(group.organizations):
            sums = self.masks.request(group.function, block, layout, group.exponent)
            arguments["sums"] = sums.to_json()
            calls += self._alike(group, block, dict(arguments), number, name, replace(expected, sums=sums))
        return calls

    def _alike(
        self,
        group: Group,
        organizations: Collection[int],
        arguments: dict[str, Any],
        number: int,
        name: str,
        expected: Expected,
    ) -> list[Call]:
        """Calls of the same content, except that nodes which keep large steps are sent their names only."""
        calls = []
        for keep in (True, False):
            who = [k for k in organizations if (k in self._keepers) == keep]
            if not who:
                continue
            job = group.job
            if keep and job.data.preprocess:
                job = replace(job, data=replace(job.data, preprocess=self._named))
            input_ = {"method": group.function, "kwargs": {"job": job.to_json(), **arguments}}
            size = serialization.size(input_)
            calls += [Call(group.function, k, number, input_, size, f"{name}, organization {k}", expected) for k in who]
        return calls

    # ---- bytes

    def count_preparation(self, answers: Sequence[Answer]) -> None:
        """Count bytes as those of the preparation, in round 0 with requests that brought no answer.

        Args:
            answers: the answers.
        """
        self._history.count_preparation(answers, self.unanswered() if self.round == 0 else 0)

    def unanswered(self, evaluations: bool = False) -> int:
        """Take the number of bytes that brought no usable answer since it was last taken.

        Args:
            evaluations: whether to take those of evaluations or those of other calls.

        Returns:
            The number of bytes.
        """
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
            "masks": None if self.masks is None else self.masks.snapshot(),
            "pending": [
                [task, call.function, call.organization, call.round, call.size, sorted(call.expected.values)]
                for task, (call, _, _) in self._pending.tasks.items()
            ],
        }

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Restore what nodes keep and which have failed.

        Args:
            kept: a snapshot. Its round is read by others.
        """
        self.job = replace(self.job, key=kept["key"], aggregation=kept["aggregation"])
        self.stateful, self._keepers = kept["stateful"], {*kept["keepers"]}
        self._dispatcher.contacts = {k: task for k, task in kept["contacts"]}
        self._failed = {k: t for k, t in kept["failed"]}
        self._bounds.restore(kept["bounds"])
        if kept["masks"] is not None:
            self.masks = Masks.restored(kept["masks"])
            self.job = replace(self.job, hospital_totals=self.masks.hospital_totals)
        if self.job.aggregation == "pinned":
            self._in_a_study()

    def restore_rows(self, per_node: Sequence[Mapping[str, Any]]) -> None:
        """Restore how many rows each node has.

        Args:
            per_node: a row for each node and round of the earlier job that is resumed.
        """
        self._bounds.restore_rows(per_node)

    def take_over(self, pending: Sequence[Sequence[Any]]) -> None:
        """Wait again for calls that were pending at a snapshot: the server has kept their answers.

        Args:
            pending: the calls in the snapshot. The model's size must be known.
        """
        deadline = self._tolerance.round_timeout
        until = math.inf if deadline is None else vantage6_api.now(self._client) + deadline
        for task, function, organization, round_, size, values in pending:
            expected = self.expected(optional=[GLOBAL_MODEL], values=values)
            call = Call(function, organization, round_, {}, size, "", expected)
            self._pending.tasks[task] = call, LARGE, until  # no second attempt: the snapshot lacks what was sent
