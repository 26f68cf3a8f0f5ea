"""The federation as a central function sees it: whom to ask, asking, going on after an interruption."""

import contextlib
import functools
import math
import platform
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

import v6_federated
from v6_federated import checkpoint, codec, models, preparation, preprocess, resuming, training, vantage
from v6_federated.checkpoint import Checkpoint
from v6_federated.codec import Shape
from v6_federated.collection import (
    Answer,
    Call,
    Collector,
    Expected,
    Flight,
    Tolerance,
    Unusable,
    by_organization,
    combine,
    mean,
    told,
    weighted_mean,
)
from v6_federated.data import Spec
from v6_federated.errors import SafeError
from v6_federated.guards import Policy
from v6_federated.history import History
from v6_federated.node import Job
from v6_federated.preparation import Group
from v6_federated.randomness import generator
from v6_federated.settings import LARGE, Common
from v6_federated.vantage import UserInputError

__all__ = ["Answer", "Federation", "combine", "mean", "weighted_mean"]

LANDING_SECONDS = 60.0  # for those that were given up to end before state is removed
GLOBAL_MODEL = "weights"  # the name of the array, among arguments, that nodes evaluate


class Federation:
    """The organizations of a job, and what happened in its rounds.

    Attributes:
        organizations: ids of those that train, ascending.
        model: the model; known once prepared, where the method is supervised.
        features: names of the features after preprocessing, of arrays their indices; unknown where a result is resumed.
    """

    def __init__(self, client: Any, method: str, settings: Any, supervised: bool = True) -> None:
        common: Common = settings
        self.organizations, self.evaluators = _parties(common, vantage.organizations(client))
        Policy.of_node().check_participants(len(self.organizations))
        regression = getattr(settings, "objective", None) == "regression"
        early = getattr(settings, "early_stopping", None)
        if early is not None and (not (common.holdout or self.evaluators) or common.evaluate_every > early + 1):
            raise SafeError(
                f"early_stopping={early} needs losses on held-out rows; expected a holdout above 0 or evaluators, and "
                f"evaluate_every of at most {early + 1}"
            )
        for name, value in (("classes", common.classes), ("target", common.target)):
            if regression and value is not None:
                raise SafeError(f"{name}={value} is of no use to objective=regression; leave it out")
        self._client, self._method, self._settings, self._common = client, method, settings, common
        least = Policy.of_node().minimum_organizations
        self._collector = Collector(
            client,
            Tolerance(
                common.deadline, common.enough, common.retries, common.leave_out, common.patience, at_least=least
            ),
        )
        self._checkpoint = Checkpoint(
            vantage.own_job_folder(), f"{method}-{client.organization_id}", durable=vantage.on_a_node(client)
        )
        self._job = Job(
            method=method,
            key=uuid.uuid4().hex,
            seed=common.seed,
            participants=self.organizations,
            evaluators=self.evaluators,
            rounds=getattr(settings, "rounds", None),
            model=None,
            data=Spec(
                common.label,
                common.features,
                common.classes if supervised else None,
                common.holdout if supervised else 0.0,  # nothing is evaluated on rows held out
                [],
                supervised=supervised,
                regression=regression,
            ),
            minimum_rows=common.minimum_rows,
            precision=common.precision,
        )
        training.check_settings(settings)
        self.model: models.Model
        self.features: Sequence[str] = ()
        self._history = History(self.evaluators, regression, functools.partial(vantage.progress, client))
        self._round = 0
        self._stateful = False
        self._large: Sequence[dict[str, Any]] = []  # fitted steps that nodes are to keep
        self._named: Sequence[dict[str, Any]] = []  # all steps, as they are told to those that keep the large ones
        self._keepers: set[int] = set()
        self._generators: dict[tuple[str, int], np.random.Generator] = {}
        self._started = vantage.now(client)
        self._flight = Flight(self._collector)
        self._failed: dict[int, int] = {}  # organization: the last round in which it gave no good answer
        self._restored: dict[str, Any] | None = None
        self._state = SimpleNamespace()
        self._carries: list[str] = []
        self._last_snapshot: dict[str, Any] | None = None
        self._finished = 0  # rounds, of which that is the model

    # ---- what a method calls, in the order in which it does

    def prepare(self) -> None:
        """Settle columns, classes and preprocessing with all nodes; build the model. Round 0.

        A job that was interrupted goes on from its checkpoint; one that resumes an earlier result, from that.
        """
        if not self._restore():
            self._job, self.features = preparation.prepare(
                self._job, self._common.preprocess, self._common.model, self.organizations, self._ask_in_preparation
            )
            self._history.prepared()
            self._save()  # nodes are to keep steps under the job's key
            if self._job.model is not None:
                self.model = models.build(self._job.model)
        if not self._job.data.supervised:  # what nodes keep would go at the end, with the rows on the components
            return
        steps = self._job.data.preprocess
        self._large = preprocess.large(steps)
        self._named = [preprocess.reference(step) if step in self._large else step for step in steps]
        everyone = [*self.organizations, *self.evaluators]
        absent = self._absent(everyone)
        self._hand_over([k for k in everyone if k not in absent])  # who fails is asked again once it is needed

    def _ask_in_preparation(self, group: Group) -> list[Answer]:
        answers = self._ask([group], of=len(self.organizations))
        self.count_preparation(answers)
        return answers

    def _hand_over(self, organizations: Sequence[int]) -> dict[int, Unusable]:
        """Send large fitted steps to those that do not keep them yet; their later tasks only name them. Returns who
        failed, and why."""
        lacking = [k for k in organizations if k not in self._keepers]
        if not self._large or not lacking:
            return {}
        self.keep_state()
        calls = []
        for job in (self._job, self._evaluators_job()):
            who = [k for k in lacking if (k in self.evaluators) == (job is not self._job)]
            bare = replace(job, data=replace(job.data, preprocess=self._large))
            calls += self._calls(Group("keep_steps", who, bare, expected=Expected({})))
        answers, failed = self._collector.gather(calls)
        self.count_preparation(answers)
        self._keepers |= {a.organization_id for a in answers}
        return failed

    def statistic(
        self, name: str, precision: str = "float64", organizations: Sequence[int] | None = None, **arguments: Any
    ) -> list[Answer]:
        """A statistic of all nodes' rows, see ``statistics.statistic``, in a precision of its own."""
        who = self.organizations if organizations is None else organizations
        group = preparation.statistic(self._job, who, len(self.features), name, precision, **arguments)
        return self._ask([group], of=len(self.organizations))

    def start(self, **initial: Any) -> SimpleNamespace:
        """What the method carries from round to round, the model first: kept after each round, and brought back when
        the job goes on after an interruption.

        ``initial`` names the parts: arrays, numbers, lists, dictionaries, or functions without arguments that compute
        them, called where the job begins.
        """
        self._carries = list(initial)
        if self._restored is None or self._restored["weights"] is None:
            values = {name: value() if callable(value) else value for name, value in initial.items()}
        else:
            weights = codec.decode(self._restored["weights"])["weights"]
            kept = {self._carries[0]: weights, **checkpoint.from_json(self._restored["state"])}
            values = {name: kept[name] for name in initial if name in kept}
            size: int | None = self.model.size  # None: it grows
            if len(values) < len(initial) or (size is not None and weights.shape != (size,)):
                raise UserInputError(f"the job cannot go on from that result: it is not one of {self._method} as here")
        self._state = SimpleNamespace(**values)
        return self._state

    @property
    def history(self) -> Sequence[Mapping[str, Any]]:
        """A row a round so far, as the result has it."""
        return self._history.rounds

    @property
    def resumed(self) -> bool:
        """Whether the job goes on from the result of another: nodes keep nothing of that one."""
        return self._restored is not None and self._restored is self._common.resume

    def initial_weights(self) -> np.ndarray:
        """w_0 (d,), from the job's seed."""
        return self.model.init(generator(self._job.seed, "init"))

    def rounds(self, rounds: int) -> Iterator[int]:
        """t = 1, 2, ... until ``rounds``, or until an evaluation has reached the target."""
        self._round = len(self.history)
        self._save()  # nodes keep state under the job's key
        for t in range(len(self.history) + 1, rounds + 1):
            accuracies = [row["accuracy"] for row in self.history]
            if self._common.target and any(a is not None and a >= self._common.target for a in accuracies):
                return
            self._round = t
            self._started = vantage.now(self._client)
            yield t
            self._save()

    def sample(self, fraction: float) -> list[int]:
        """S_t: a random set of m = max(floor(C K), 1) organizations, ascending."""
        K = len(self.organizations)
        m = max(math.floor(fraction * K + 1e-9), 1)  # 0.29 * 100 is a little less than 29
        if m == K:
            return list(self.organizations)
        absent = self._absent(self.organizations)
        present = [k for k in self.organizations if k not in absent]
        rng = generator(self._job.seed, "sample", 0, self._round)
        drawn = rng.choice(present, min(m, len(present)), replace=False).tolist()
        return sorted([*drawn, *absent][:m])  # where too few are there, the history names who is missing

    def ask(self, function: str, organizations: Sequence[int], **arguments: Any) -> list[Answer]:
        """Call a partial function at ``organizations``; return their answers by ascending id. See ``ask_groups``."""
        options = {name: arguments.pop(name) for name in ("returns", "optional", "numbers", "of") if name in arguments}
        return self.ask_groups(function, [(organizations, arguments)], **options)

    def ask_groups(
        self,
        function: str,
        groups: Sequence[tuple[Sequence[int], dict[str, Any]]],
        *,
        returns: Sequence[str] | Mapping[str, Shape] = ("weights",),
        optional: Sequence[str] = (),
        numbers: Sequence[str] = (),
        of: int | None = None,
    ) -> list[Answer]:
        """Call a partial function at groups of organizations, each with arguments of its own, all at once.

        Arrays among the arguments travel as payload. An array named ``weights`` is the global model: as the nodes have
        it in hand, they evaluate it in passing, which makes up the history's row of the round before.

        ``returns`` names the arrays of an answer, each as long as the model where no shapes are given, ``optional``
        those that need not be there, ``numbers`` what else it must hold. An answer that is otherwise, or does not come,
        is one of those that the job's settings (``enough``, ``deadline``, ``retries``) allow to be missing, or else
        raises CollectResultsError that names every organization that gave no good answer, and why. ``of``: how many
        organizations the answers must be enough of, where it is not those that are asked; 0 where none need come.
        """
        expected = self._expected(returns, optional, numbers)
        sent: list[Group] = []
        for organizations, arguments in groups:
            arrays = {k: v for k, v in arguments.items() if isinstance(v, np.ndarray)}
            settings = {k: v for k, v in arguments.items() if k not in arrays}
            sent.append(Group(function, list(organizations), self._job, settings, arrays, expected))
        evaluate = len(sent) == 1 and GLOBAL_MODEL in sent[0].arrays and self._due()
        if not evaluate:
            return self._ask(sent, of=of)
        weights, asked = sent[0].arrays[GLOBAL_MODEL], set(sent[0].organizations)
        evaluations = []
        if self.evaluators:
            evaluations = [self._evaluation(weights)]
        else:
            sent[0] = replace(sent[0], evaluate="held_out")
            if rest := sorted(set(self.organizations) - asked):
                # a curve of whoever happens to be asked would jump from round to round
                evaluations = [replace(self._evaluation(weights), organizations=rest)]
        answers = self._ask(sent, evaluations, of)
        if not self.evaluators:
            self._history.unevaluated |= {k: self._history.missing[k] for k in asked if k in self._history.missing}
        self._history.evaluated(self._round - 1, answers, self._unanswered(evaluations=True))
        return [a for a in answers if a.function == function and a.organization_id in asked]

    # ---- asynchronous methods: one call at a time to each node

    def send(self, function: str, organization: int, round_: int, **arguments: Any) -> None:
        """Call a partial function at one organization and go on; ``next_answer`` brings its answer.

        ``round_`` counts this organization's calls, from which its random numbers and its state follow. The answer may
        hold ``weights``, as long as the model.
        """
        arrays = {k: v for k, v in arguments.items() if isinstance(v, np.ndarray)}
        settings = {k: v for k, v in arguments.items() if k not in arrays}
        group = Group(function, [organization], self._job, settings, arrays, self._expected(optional=[GLOBAL_MODEL]))
        self._flight.launch(self._calls(group, round_)[0])

    def next_answer(self) -> Answer | None:
        """The answer that comes next; None where an organization has failed: it is asked no more in this round.

        Raises CollectResultsError when fewer organizations are left than the job's settings need.
        """
        missing = self._history.missing
        while True:
            if not self._flight:
                raise vantage.CollectResultsError(f"round {self._round}: nobody is at work; {told(missing)}")
            for call, outcome in self._flight.next():
                if isinstance(outcome, Answer):
                    return outcome
                self._failed[call.organization] = self._round
                missing[call.organization] = outcome
                self._keepers.discard(call.organization)
                K = len(self.organizations)
                if K - len(missing) < self._collector.tolerance.needed(K):
                    raise vantage.CollectResultsError(f"round {self._round}, {call.function}: {told(missing)}")
                return None

    def at_work(self) -> list[int]:
        """The organizations that a call is under way to."""
        return sorted({call.organization for call, _, _ in self._flight.tasks.values()})

    def idle(self) -> list[int]:
        """The organizations that are not at work and are worth asking: at the start, and again after a failure."""
        rest = [k for k in self.organizations if k not in self.at_work()]
        K = len(self.organizations)
        absent = self._absent(rest, self._collector.tolerance.needed(K) - (K - len(rest)))
        self._history.missing |= absent
        return [k for k in rest if k not in absent]

    def evaluate(self, weights: np.ndarray) -> None:
        """Evaluate the model of the round before at all nodes, where no ``ask`` has done so in passing."""
        if self._due():
            answers = self._ask([], [self._evaluation(weights)])
            self._history.evaluated(self._round - 1, answers, self._unanswered(evaluations=True))

    def generator(self, purpose: str) -> np.random.Generator:
        """Random numbers for one purpose of central; one stream a round, kept as it goes on within the round."""
        key = (purpose, self._round)
        if key not in self._generators:
            self._generators = {key: generator(self._job.seed, purpose, 0, self._round)}
        return self._generators[key]

    def record(self, answers: Sequence[Answer], model: np.ndarray | None = None, **columns: Any) -> None:
        """Keep the round, of which ``answers`` are all: one row of history with ``columns``, one row a node.

        With the round's new ``model`` (d,), a node's row holds the distance from it of the weights that the node sent.
        """
        seconds = vantage.now(self._client) - self._started
        self._history.record(self._round, seconds, answers, self._unanswered(), model, columns)
        if not self._job.data.supervised:  # no evaluation is to come
            self._history.show(self._round)

    def result(self, weights: np.ndarray) -> dict[str, Any]:
        """Evaluate the last model at all nodes and return the job's result."""
        self._round = last = len(self.history)  # one more might be more than a node allows
        answers = self._ask([], [self._evaluation(weights)])
        final = self._history.evaluated(last, answers, self._unanswered(evaluations=True))
        return self.finished(final, weights=codec.encode({"weights": weights}))

    def stopped(self, reason: str) -> dict[str, Any] | None:
        """The result of a job that cannot go on: the model of its last finished round; None where there is none.

        Nodes' state is removed; the result can be resumed.
        """
        if not self._finished or self._last_snapshot is None:
            self.give_up()
            return None
        self._round = len(self.history) + 1
        rows = self._history.up_to(self._finished)
        return {**self._ended(None, {**self._last_snapshot, **rows}), "stopped": reason}

    def give_up(self) -> None:
        """Remove what nodes and this one keep for the job; the error that is under way is the one to tell."""
        with contextlib.suppress(Exception):
            self.forget()
        with contextlib.suppress(OSError):
            self._checkpoint.remove()

    def finished(self, final: dict[str, Any] | None, **learned: Any) -> dict[str, Any]:
        """The job's result, with the last evaluation and what was learned: ``weights``, a payload, and ``model``."""
        return self._ended(final, {**self._snapshot(), **learned})

    def _ended(self, final: dict[str, Any] | None, learned: Mapping[str, Any]) -> dict[str, Any]:
        try:
            self.forget()
            left = None
        except vantage.CollectResultsError as error:  # a finished model is not lost for it
            left = str(error)
        with contextlib.suppress(OSError):  # nor for a disk that is full or gone
            self._checkpoint.remove()
        return {
            "method": self._method,
            "settings": self._settings.model_dump(mode="json", exclude={"resume"}),
            "organizations": self.organizations,
            **learned,
            "final": final,
            **({"state_left": left} if left else {}),
            "versions": {
                "v6-federated": v6_federated.__version__,
                "numpy": np.__version__,
                "python": platform.python_version(),
            },
        }

    def job(self) -> dict[str, Any]:
        """What every task of the job tells the nodes, for a task that a researcher sends later with the result."""
        return self._job.to_json()

    def count_preparation(self, answers: Sequence[Answer]) -> None:
        """Add what a method asked before its first round to the bytes of the preparation."""
        self._history.count_preparation(answers, self._unanswered() if self._round == 0 else 0)

    def keep_state(self) -> None:
        """From now on nodes keep state between rounds; it is removed when the job ends, well or not."""
        self._stateful = True

    def forget(self) -> None:
        """Have the nodes remove what they keep for this job."""
        if self._stateful:
            self._stateful = False
            # a node that is at work would keep its state after it was removed
            self._flight.land()
            self._collector.land(LANDING_SECONDS)
            everyone = sorted([*self.organizations, *self.evaluators])
            job = replace(self._job, data=replace(self._job.data, preprocess=[]))
            calls = self._calls(Group("forget", everyone, job, expected=Expected(minimum_rows=0)))
            _, missing = self._collector.gather(calls)
            missing |= {k: Unusable("is still at work and may keep state") for k in self._collector.given_up.values()}
            if missing:
                raise vantage.CollectResultsError(f"round {self._round}, forget: {told(missing)}")

    # ---- tasks and answers

    def _unanswered(self, evaluations: bool = False) -> int:
        """Bytes that were sent since this was last asked and brought no answer that could be used."""
        unanswered = self._collector.unanswered
        return sum(unanswered.pop(name) for name in [*unanswered] if (name == "evaluate") == evaluations)

    def _due(self) -> bool:
        """Whether the model before this round is still to be evaluated (the initial model is not)."""
        t = self._round - 1
        return t > self._history.last_evaluated and t % self._common.evaluate_every == 0

    def _evaluation(self, weights: np.ndarray) -> Group:
        expected = replace(self._expected(), minimum_rows=1)
        if self.evaluators:
            job = self._evaluators_job()
            return Group("evaluate", self.evaluators, job, {}, {GLOBAL_MODEL: weights}, expected, "all")
        return Group("evaluate", self.organizations, self._job, {}, {GLOBAL_MODEL: weights}, expected, "held_out")

    def _evaluators_job(self) -> Job:
        return replace(self._job, data=replace(self._job.data, holdout=0.0))

    def _calls(self, group: Group, round_: int | None = None) -> list[Call]:
        number = self._round if round_ is None else round_
        arguments: dict[str, Any] = {"round": number, **group.settings}
        if group.evaluate:
            arguments |= {"evaluate": group.evaluate, "scale": self._history.scale, "centers": self._history.centers}
        if group.arrays:
            arguments["arrays"] = codec.encode(group.arrays, group.job.precision)
        name = f"{self._method} {group.function}, round {number}"
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

    def _expected(
        self,
        returns: Sequence[str] | Mapping[str, Shape] = (),
        optional: Sequence[str] = (),
        numbers: Sequence[str] = (),
    ) -> Expected:
        """Arrays as long as the model or of the shapes given, and numbers, about as many rows as the job requires."""
        shapes: dict[str, Shape] = {name: (self.model.size,) for name in [*returns, *optional]}
        if isinstance(returns, Mapping):
            shapes |= returns
        rows, classes = self._common.minimum_rows or 1, self._job.data.classes
        return Expected(shapes, frozenset(optional), tuple(numbers), rows, None if classes is None else len(classes))

    def _absent(self, organizations: Sequence[int], needed: int = 0) -> dict[int, Unusable]:
        """Those that are not worth asking in this round, and why.

        Where fewer than ``needed`` would be left, those that were to be left out are asked after all; where these are
        not enough, those whose node is offline as well, which are then awaited as long as patience lasts.
        """
        if self._collector.tolerance.strict:
            return {}
        offline = {k: Unusable("its node is offline") for k in self._collector.offline(organizations)}
        left_out = {}
        for k in organizations:
            since = self._round - self._failed.get(k, self._round)
            if k not in offline and 0 < since <= self._collector.tolerance.leave_out:
                left_out[k] = Unusable(f"left out after it failed in round {self._failed[k]}")
        for spare in (left_out, offline):
            if len(organizations) >= needed > len(organizations) - len(left_out) - len(offline):
                spare.clear()
        return {**left_out, **offline}

    def _ask(self, groups: Sequence[Group], evaluations: Sequence[Group] = (), of: int | None = None) -> list[Answer]:
        """Send the groups' calls, wait, and see that enough answers came; ascending ids.

        ``of`` is of how many organizations the answers must be enough, where others have dropped out already.
        """
        tolerance = self._collector.tolerance
        wanted = [k for group in groups for k in group.organizations]
        others = [k for group in evaluations for k in group.organizations]
        here, needed = set(wanted), tolerance.needed(len(wanted) if of is None else of)
        # an evaluation by itself needs somebody too
        missing = self._absent(wanted, needed) | self._absent(others, 0 if wanted else 1)
        failed = self._hand_over([k for k in [*wanted, *others] if k not in missing])
        # a benchmark's test set takes longest: first
        calls = [c for group in [*evaluations, *groups] for c in self._calls(group)]
        answers, more = self._collector.gather([c for c in calls if c.organization not in missing | failed])
        failed |= more
        missing |= failed
        self._keepers -= {*failed}  # they may have lost what they keep
        for k, error in missing.items():
            if k in failed:
                self._failed[k] = self._round
            (self._history.missing if k in here else self._history.unevaluated)[k] = error
        came = [a for a in answers if a.organization_id in here]
        asked_for = groups[0].function if groups else "evaluate"
        if (tolerance.strict and missing) or len(came) < needed:
            few = "" if tolerance.strict else f"; {len(came)} of {of or len(wanted)} answered, {needed} are needed"
            raise vantage.CollectResultsError(f"round {self._round}, {asked_for}: {told(missing)}{few}")
        return sorted(answers, key=by_organization)

    # ---- going on after an interruption

    def _save(self) -> None:
        """Keep a checkpoint; a method that carries nothing from round to round begins its rounds anew."""
        if self.history and not self._carries:
            return
        snapshot = self._snapshot()
        if self._carries:
            self._last_snapshot, self._finished = snapshot, len(self.history)
        self._checkpoint.save({**snapshot, **self._own_snapshot()})

    def _snapshot(self) -> dict[str, Any]:
        """What a result and a checkpoint have in common: the model, the method's state and the history."""
        carried = dict(vars(self._state))
        weights = codec.encode({"weights": carried.pop(self._carries[0])}) if self._carries else None
        return {
            "weights": weights,
            "state": checkpoint.to_json(carried),
            "model": self._job.model,
            "data": self._job.to_json()["data"],
            **self._history.snapshot(),
        }

    def _own_snapshot(self) -> dict[str, Any]:
        """What only a checkpoint holds: it belongs to this very job."""
        return {
            "settings": self._settings.model_dump(mode="json", exclude={"resume"}),
            "round": self._round,
            "key": self._job.key,
            "features": [*self.features],
            "stateful": self._stateful,
            "keepers": sorted(self._keepers),
            "contacts": [*self._collector.contacts.items()],
            "failed": [*self._failed.items()],
            "last_evaluated": self._history.last_evaluated,
            "flight": [
                [task, call.function, call.organization, call.round, call.size]
                for task, (call, _, _) in self._flight.tasks.items()
            ],
        }

    def _restore(self) -> bool:
        """Go on from this job's checkpoint, else from the result that the researcher sent; False without either."""
        kept = self._checkpoint.load()
        if kept is not None and kept["settings"] == self._settings.model_dump(mode="json", exclude={"resume"}):
            self._job = replace(self._job, key=kept["key"])
            self.features, self._stateful, self._keepers = kept["features"], kept["stateful"], {*kept["keepers"]}
            self._collector.contacts = {k: task for k, task in kept["contacts"]}
            self._failed = {k: t for k, t in kept["failed"]}
            last_evaluated = shown = kept["last_evaluated"]
        elif self._common.resume is not None:
            kept = self._common.resume
            if not self._job.data.supervised:
                raise UserInputError(f"resume: {self._method} has nothing to go on from; expected a new job")
            resuming.check(kept, self._method, self._common, self.organizations, self._job.rounds)
            last_evaluated = max((r["round"] for r in kept["history"] if r["loss"] is not None), default=0)
            shown = len(kept["history"])
        else:
            return False
        self._restored = kept
        self._history.restore(kept, last_evaluated, shown)
        self._job = replace(self._job, data=Spec(**kept["data"]), model=kept["model"])
        if self._job.model is not None:
            self.model = models.build(self._job.model)
        if not self.resumed:
            self._take_over(kept["flight"])
        return True

    def _take_over(self, flight: Sequence[Sequence[Any]]) -> None:
        """Wait for the answers of calls that were under way at the checkpoint; the server has kept them."""
        deadline = self._common.deadline
        until = math.inf if deadline is None else vantage.now(self._client) + deadline
        for task, function, organization, round_, size in flight:
            call = Call(function, organization, round_, {}, size, "", self._expected(optional=[GLOBAL_MODEL]))
            self._flight.tasks[task] = call, LARGE, until  # what was sent is not kept: there is no second attempt


def _parties(common: Common, present: Sequence[int]) -> tuple[list[int], list[int]]:
    """Ids of those that train and of those that evaluate, ascending. Raises SafeError."""
    evaluators = sorted(common.evaluators or [])
    organizations = sorted(common.organizations or [o for o in present if o not in evaluators])
    for name, asked in (("organizations", organizations), ("evaluators", evaluators)):
        unknown = sorted(set(asked) - set(present))
        if unknown:
            raise SafeError(f"{name}={unknown}: not in the collaboration; expected some of {present}")
        if len(set(asked)) < len(asked):
            raise SafeError(f"{name}={asked} names an organization twice")
    if set(organizations) & set(evaluators):
        raise SafeError(f"evaluators={evaluators} train as well; expected other organizations")
    if not organizations:
        raise SafeError("no organization is left to train; expected at least one that is not an evaluator")
    return organizations, evaluators
