"""What central sees of the nodes' answers: single ones, or sums over blocks of nodes. It is settled before round 1."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median_low
from typing import Any

from v6_federated.base.errors import SafeError
from v6_federated.base.vantage6_api import CollectResultsError
from v6_federated.central import noise_plan, preparation
from v6_federated.central.answer import Answer, Expected
from v6_federated.central.blocks import KINDS, Masked
from v6_federated.central.calls import Group
from v6_federated.central.description import describe
from v6_federated.central.method import Method
from v6_federated.central.rounds import RoundTasks
from v6_federated.central.sums_of_rows import SumsOfRows
from v6_federated.data import statistics
from v6_federated.masks.agreement import Entry
from v6_federated.messages.common import Common
from v6_federated.messages.job import MODES, Job
from v6_federated.noise.plan import Plan
from v6_federated.rules.policy import Policy


class Aggregation:
    """How the answers of one job's nodes are aggregated.

    Attributes:
        shared: whether a sum was asked for whose noise the nodes of a block share.
    """

    def __init__(self, method: Method, settings: Common, tasks: RoundTasks, plan: Plan | None) -> None:
        """Begin with nothing settled."""
        self.shared = False
        self._method, self._common, self._tasks, self._plan = method, settings, tasks, plan
        self._sums: SumsOfRows | None = None  # asks for statistics where no single node's may be seen

    @property
    def bounds(self) -> Mapping[str, Sequence[float]]:
        """The bounds of columns, if all operators have declared the same; known while the job is prepared."""
        return {} if self._sums is None else self._sums.bounds

    def ask(self, group: Group) -> list[Answer]:
        """Send a request to nodes; as many must answer as in a round of all."""
        return self._tasks.ask([group], quorum_of=len(self._tasks.job.participants))

    def ask_in_preparation(self, group: Group) -> list[Answer]:
        """Send a request to nodes whose bytes belong to no round."""
        return self._prepared([group], len(self._tasks.job.participants))

    def _prepared(self, groups: Sequence[Group], quorum_of: int) -> list[Answer]:
        answers = self._tasks.ask(groups, quorum_of=quorum_of)
        self._tasks.count_preparation(answers)
        return answers

    def settle(self, job: Job, answers: Sequence[Answer]) -> Job:
        """Settle what central sees: the strictest that a node requires, or what the researcher asked for."""
        modes = {a.organization_id: a.values.get("mode", "plain") for a in answers}
        mode = max(modes.values(), key=MODES.index) if job.aggregation == "auto" else job.aggregation
        if mode == "plain":
            if self._plan is not None:
                self._sums = self._sums_of_rows(answers)
            return replace(job, aggregation="plain")
        self._tasks.stateful = True  # nodes have made keys
        strict = [k for k, said in modes.items() if said != "plain"]
        if single := self._method.why_single(self._common):
            raise SafeError(
                f"{self._method.name} cannot be used with aggregation={mode}, which organizations {strict} require: "
                f"{single}; their operators would have to set V6_FEDERATED_AGGREGATION=plain"
            )
        self._method.check_mode(self._common, mode)
        job = replace(job, aggregation=mode, hospital_totals="")
        if any(said != mode for said in modes.values()):  # some nodes would be content with less
            raw = any("kinds" in a.values for a in answers)
            answers = describe(job, raw, self.ask_in_preparation)
        job, self._tasks.blocks = self._masked(job, answers)
        self._sums = self._sums_of_rows(answers)
        return job

    def _masked(self, job: Job, answers: Sequence[Answer]) -> tuple[Job, Masked]:
        """Put the nodes into blocks, and have each confirm the keys of its block."""
        hellos = {a.organization_id: a.values for a in answers}
        silent = [k for k in job.participants if k not in hellos]
        masked, rosters = KINDS[job.aggregation].of(hellos, Policy.of_node().minimum_organizations, silent)
        job = replace(job, hospital_totals=masked.hospital_totals)
        if job.hides_totals and (reason := self._method.of_hospitals(self._common)):
            raise SafeError(
                f"{self._method.name} cannot be used like this in a study that hides totals of single hospitals "
                f"(hospital_totals=hidden): {reason}"
            )
        if job.aggregation == "masked" and getattr(self._common, "fraction", 1) < 1:
            raise SafeError(
                "fraction below 1 is not possible with aggregation=masked: without a study, all organizations are one "
                "block; set fraction=1"
            )
        confirmed = self._confirmed(job, masked, hellos, rosters, len(job.participants))
        masked.noise = 0.0 if self._plan is None else self._plan.evaluation_noise
        # all say the same, unless one is dishonest: the study's digest is in the entry of each
        colluders = [a.values.get("colluders") or 0 for a in confirmed]
        masked.colluders = max(int(median_low(colluders or [0])), 0)
        of_a_person = [a.values.get("hospitals_a_person") or 1 for a in confirmed]
        masked.hospitals_a_person = max(int(median_low(of_a_person or [1])), 1)
        return job, masked

    def _confirmed(
        self,
        job: Job,
        masked: Masked,
        hellos: Mapping[int, Mapping[str, Any]],
        rosters: Mapping[int, Sequence[Any]],
        quorum_of: int,
    ) -> list[Answer]:
        """Have the nodes of whole blocks confirm their keys; blocks in which one does not are left out for now."""
        expected = Expected(
            parts=frozenset({"tags"}), values=frozenset({"colluders", "hospitals_a_person"}), without_rows=True
        )
        groups = [
            Group("confirm", masked.block_of(first), job, {"roster": roster}, expected=expected)
            for first, roster in rosters.items()
        ]
        confirmed = self._prepared(groups, quorum_of)
        for a in confirmed:
            own = Entry.from_json(hellos[a.organization_id]["entry"]).S.hex()
            masked.tags.setdefault(masked.block_of(a.organization_id)[0], {})[own] = a.values["tags"]
        for k in {k for roster in groups for k in roster.organizations} - {a.organization_id for a in confirmed}:
            masked.wait_for(k, f"organization {k} has not confirmed the keys of this block")
        return confirmed

    def let_join(self, round_: int) -> None:
        """Let blocks that were not whole when the job began take part from this round on, if all their nodes answer.

        They are asked after 1, 2, 4, ... rounds: one that is down for good must not hold up every round.
        """
        masked, job = self._tasks.blocks, self._tasks.job
        if not isinstance(masked, Masked) or not masked.absent or round_ < 2 or (round_ - 1) & (round_ - 2):
            return
        who = masked.waiting
        described = describe(job, bool(job.data.preprocess), lambda group: self._prepared([group], 0), who)
        hellos = {a.organization_id: a.values for a in described if a.values.get("mode") == masked.mode}
        try:
            least = Policy.of_node().minimum_organizations
            found, rosters = masked.of(hellos, least, [k for k in who if k not in hellos])
        except CollectResultsError:  # no block is whole yet
            return
        if found.hospital_totals == masked.hospital_totals:
            self._confirmed(job, found, hellos, rosters, 0)
            masked.joined(found, [first for first in rosters if first not in found.absent])

    def _sums_of_rows(self, answers: Sequence[Answer]) -> SumsOfRows:
        """What steps can be fitted to without a single node's statistics: sums, and what operators have declared."""
        levels: dict[str, set[str]] = {}
        for a in answers:
            for column, named in a.values.get("levels", {}).items():
                levels.setdefault(column, set()).update(named)
        ordered = {column: sorted(named) for column, named in levels.items()}
        bounds = answers[0].values.get("bounds") if answers else None
        if bounds and any(a.values.get("bounds") != bounds for a in answers):
            bounds = None  # step scale says so
        return SumsOfRows(self.ask_in_preparation, ordered, bounds or {}, self._tasks.blocks.in_a_study)

    def settle_again(self, raw: bool) -> None:
        """Settle it for a job that resumes an earlier result: its nodes have no keys of that job any more."""
        if self._tasks.job.aggregation != "plain":
            self._tasks.job = self.settle(self._tasks.job, describe(self._tasks.job, raw, self.ask))

    def count_rows(self) -> None:
        """Learn the rows of each block, if no statistic has returned them yet: they weight the first round."""
        job = self._tasks.job
        if job.data.supervised and self._tasks.blocks.uncounted(job.participants):
            self.ask_in_preparation(Group("count_rows", job.participants, job, expected=self._tasks.expected()))

    def measure(
        self, job: Job, organizations: Sequence[int], d: int, name: str, precision: str = "float64", **arguments: Any
    ) -> list[Answer]:
        """Ask for a statistic that a preprocessing step is fitted to, see ``data.statistics``, or for "bounds"."""
        if name == "bounds":
            if self._sums is None:
                raise SafeError("the step scale needs the bounds in the schema of a study; use standardize")
            return self._sums.declared(organizations, arguments["columns"])
        statistic = statistics.read(name, arguments, arguments)
        if self._sums is not None:
            return self._sums.of(job, organizations, d, statistic)
        return self.ask_in_preparation(preparation.question(job, organizations, d, statistic, precision))

    def measure_in_round(
        self, organizations: Sequence[int], d: int, name: str, precision: str = "float64", **arguments: Any
    ) -> list[Answer]:
        """Ask for a statistic in a round, see ``data.statistics``."""
        job, statistic = self._tasks.job, statistics.read(name, arguments, arguments)
        if not self._tasks.blocks.single:
            self._sums = self._sums or SumsOfRows(self.ask, {}, study=self._tasks.blocks.in_a_study)
            self._sums.ask = self.ask
            return self._sums.of(job, organizations, d, statistic)
        return self.ask(preparation.question(job, organizations, d, statistic, precision))

    def seen(self) -> dict[str, Any]:
        """What central has seen of the nodes' answers, as ``privacy`` in the result."""
        blocks = self._tasks.blocks
        if self._plan is None:
            return blocks.seen()
        of_a_person = blocks.hospitals_a_person
        shared = blocks.in_a_study and self.shared and (of_a_person == 1 or self._plan.rate == 1)
        return {**blocks.seen(), **noise_plan.described(self._plan, self._common, shared, of_a_person)}
