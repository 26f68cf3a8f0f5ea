"""The federation as a central function sees it: whom to ask, asking, going on after an interruption."""

import contextlib
import functools
import math
import platform
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from v6_federated import models
from v6_federated.base import vantage6_api
from v6_federated.base.errors import SafeError
from v6_federated.base.randomness import generator
from v6_federated.base.vantage6_api import UserInputError
from v6_federated.base.version import __version__
from v6_federated.central import checkpoint, preparation, resume
from v6_federated.central.answers import Answers
from v6_federated.central.checkpoint import Checkpoint
from v6_federated.central.dispatch import Answer, Tolerance
from v6_federated.central.history import History
from v6_federated.central.rounds import GLOBAL_MODEL, Group, Tasks, parted
from v6_federated.central.same_nodes import SameNodes, attempts
from v6_federated.messages import codec
from v6_federated.messages.codec import Shape
from v6_federated.messages.common import Common
from v6_federated.messages.job import DataSpec, Job
from v6_federated.privacy.policy import Policy


class Federation:
    """The organizations of a job, and what happened in its rounds.

    Attributes:
        organizations: ids of those that train, ascending.
        model: the model; known once prepared, where the method is supervised.
        features: names of the features after preprocessing, of arrays their indices; unknown where a result is resumed.
    """

    def __init__(self, client: Any, method: str, settings: Any, supervised: bool = True) -> None:
        common: Common = settings
        self.organizations, self.evaluators = _parties(common, vantage6_api.organizations(client))
        Policy.of_node().check_participants(len(self.organizations))
        regression = getattr(settings, "objective", None) == "regression"
        self._client, self._method, self._settings, self._common = client, method, settings, common
        self._checkpoint = Checkpoint(
            vantage6_api.own_job_folder(), f"{method}-{client.organization_id}", durable=vantage6_api.on_a_node(client)
        )
        job = Job(
            method=method,
            key=uuid.uuid4().hex,
            seed=common.seed,
            participants=self.organizations,
            evaluators=self.evaluators,
            rounds=getattr(settings, "rounds", None),
            model=None,
            data=DataSpec(
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
        self.model: models.Model
        self.features: Sequence[str] = ()
        self._history = History(self.evaluators, regression, functools.partial(vantage6_api.progress, client))
        least = Policy.of_node().minimum_organizations
        tolerance = Tolerance(
            common.round_timeout,
            common.min_responses,
            common.retries,
            common.cooldown_rounds,
            common.offline_timeout,
            at_least=least,
        )
        self._tasks = Tasks(client, tolerance, job, self._history)
        self._generators: dict[tuple[str, int], np.random.Generator] = {}
        self._started = vantage6_api.now(client)
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
            self._tasks.job, self.features = preparation.prepare(
                self._tasks.job, self._common.preprocess, self._common.model, self._ask_in_preparation
            )
            self._history.prepared()
            self._save()  # nodes are to keep steps under the job's key
            self._build_model()
        if self._tasks.job.data.supervised:  # else what nodes keep would go at the end, with the rows on the components
            self._tasks.keep_steps()

    def _build_model(self) -> None:
        if self._tasks.job.model is not None:
            self.model = models.build(self._tasks.job.model)
            self._tasks.size = self.model.size

    def _ask_in_preparation(self, group: Group) -> list[Answer]:
        answers = self._tasks.ask([group], quorum_of=len(self.organizations))
        self._tasks.count_preparation(answers)
        return answers

    def statistic(
        self, name: str, precision: str = "float64", organizations: Sequence[int] | None = None, **arguments: Any
    ) -> Answers:
        """A statistic of the nodes' training rows.

        Args:
            name: of the statistic, see ``data.aggregates.statistic``.
            precision: number format of what is sent for it, whatever the job's is.
            organizations: ids of those that are asked; None: all.
            arguments: what else the statistic needs.

        Returns:
            The answers.

        Raises:
            CollectResultsError: fewer answered than the job needs.
        """
        who = self.organizations if organizations is None else organizations
        group = preparation.statistic(self._tasks.job, who, len(self.features), name, precision, **arguments)
        return Answers(self._tasks.ask([group], quorum_of=len(self.organizations)))

    def same_nodes(self, rounds: int) -> Iterator[SameNodes]:
        """Compute something from several statistics that must all be about the rows of the same nodes.

        Each statistic is a round of its own:

            for nodes in federation.same_nodes(rounds):
                with nodes:
                    moments = nodes.ask("moments")
                    covariance = nodes.ask("covariance", mean=mean, scale=scale)

        If a node answers the first statistic and not a later one, the ``with`` block ends there, and the loop runs once
        more with the nodes that are left. The round of the last statistic stays open for further requests: ``record``
        it with ``nodes.answers``.

        Args:
            rounds: how many statistics can be asked for, in all runs of the loop together.

        Yields:
            The nodes; ``nodes.ask(name, **arguments)`` asks them for a statistic.

        Raises:
            SafeError: no round is left to begin again.
        """
        each_round, last = self.rounds(rounds), list[Answer]()

        def ask(organizations: Sequence[int], name: str, **arguments: Any) -> list[Answer]:
            if last:
                self.record(last)
            if next(each_round, None) is None:
                raise SafeError(
                    f"rounds={rounds} are too few: nodes dropped out and the others had to begin again; expected more"
                )
            last[:] = self.statistic(name, organizations=organizations, **arguments).each()
            return [*last]

        return attempts(self.organizations, ask)

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
    def evaluate_every(self) -> int:
        """Rounds from one evaluation to the next."""
        return self._common.evaluate_every

    @property
    def resumed(self) -> bool:
        """Whether the job goes on from the result of another: nodes keep nothing of that one."""
        return self._restored is not None and self._restored is self._common.resume

    def initial_weights(self) -> np.ndarray:
        """w_0 (d,), from the job's seed."""
        return self.model.init(generator(self._tasks.job.seed, "init"))

    def rounds(self, rounds: int) -> Iterator[int]:
        """t = 1, 2, ... until ``rounds``, or until an evaluation has reached the target."""
        self._tasks.round = len(self.history)
        self._history.prepared()
        self._save()  # nodes keep state under the job's key
        for t in range(len(self.history) + 1, rounds + 1):
            accuracies = [row["accuracy"] for row in self.history]
            if self._common.target and any(a is not None and a >= self._common.target for a in accuracies):
                return
            self._tasks.round = t
            self._started = vantage6_api.now(self._client)
            yield t
            if len(self.history) != t:
                raise RuntimeError(f"{self._method} has not called federation.record in round {t}; expected it once")
            self._save()

    def sample(self, fraction: float) -> list[int]:
        """S_t: a random set of m = max(floor(C K), 1) organizations, ascending."""
        K = len(self.organizations)
        m = max(math.floor(fraction * K + 1e-9), 1)  # 0.29 * 100 is a little less than 29
        if m == K:
            return list(self.organizations)
        absent = self._tasks.absent(self.organizations)
        present = [k for k in self.organizations if k not in absent]
        rng = generator(self._tasks.job.seed, "sample", 0, self._tasks.round)
        drawn = rng.choice(present, min(m, len(present)), replace=False).tolist()
        return sorted([*drawn, *absent][:m])  # where too few are there, the history names who is missing

    def ask(self, function: str, organizations: Sequence[int], **arguments: Any) -> Answers:
        """Call a partial function at ``organizations`` and wait for the answers.

        Args:
            function: a partial function's name.
            organizations: ids of those that are asked.
            arguments: what the function is sent, and the options of ``ask_groups``.

        Returns:
            The answers. Raises as ``ask_groups``.
        """
        options = {
            name: arguments.pop(name)
            for name in ("returns", "optional", "numbers", "validate", "quorum_of")
            if name in arguments
        }
        return self.ask_groups(function, [(organizations, arguments)], **options)

    def ask_groups(
        self,
        function: str,
        groups: Sequence[tuple[Sequence[int], dict[str, Any]]],
        *,
        returns: Sequence[str] | Mapping[str, Shape] = ("weights",),
        optional: Sequence[str] = (),
        numbers: Sequence[str] = (),
        validate: Callable[[Answer], str | None] | None = None,
        quorum_of: int | None = None,
    ) -> Answers:
        """Call a partial function at groups of organizations, each with arguments of its own, all at once.

        Arrays among the arguments travel as payload, records as their fields. An array named ``weights`` is the global
        model: as the nodes have it in hand, they evaluate it on the way, which completes the history's row of the
        round before.

        An answer that does not come, or is not as expected, may be missing if the job's settings (``min_responses``,
        ``round_timeout``, ``retries``) allow it.

        Args:
            function: a partial function's name.
            groups: organizations and what they are sent.
            returns: the arrays of an answer; each as long as the model, unless shapes are given.
            optional: arrays, as long as the model, that an answer may lack.
            numbers: numbers of an answer, each from 0 up.
            validate: what else is wrong with an answer, or None; its node then counts as one that failed.
            quorum_of: how many organizations ``min_responses`` is a share of, if not those that are asked: in a later
                request of a round, those of its first. 0: no answer need come.

        Returns:
            The answers.

        Raises:
            CollectResultsError: fewer answered than the job needs; it names every organization that gave no good
                answer, and why.
        """
        expected = self._tasks.expected(returns, optional, numbers, validate)
        sent: list[Group] = []
        for organizations, arguments in groups:
            sent.append(Group(function, list(organizations), self._tasks.job, *parted(arguments), expected))
        evaluate = len(sent) == 1 and GLOBAL_MODEL in sent[0].arrays and self._due()
        if not evaluate:
            return Answers(self._tasks.ask(sent, quorum_of=quorum_of))
        weights, asked = sent[0].arrays[GLOBAL_MODEL], set(sent[0].organizations)
        evaluations = []
        if self.evaluators:
            evaluations = [self._tasks.evaluation(weights)]
        else:
            sent[0] = replace(sent[0], evaluate="held_out")
            if rest := sorted(set(self.organizations) - asked):
                # a curve of whoever happens to be asked would jump from round to round
                evaluations = [replace(self._tasks.evaluation(weights), organizations=rest)]
        answers = self._tasks.ask(sent, evaluations, quorum_of)
        if not self.evaluators:
            self._history.unevaluated |= {k: self._history.missing[k] for k in asked if k in self._history.missing}
        self._evaluated(self._tasks.round - 1, answers)
        return Answers([a for a in answers if a.function == function and a.organization_id in asked])

    # ---- asynchronous methods: one call at a time to each node

    def send(self, function: str, organization: int, round_: int, **arguments: Any) -> None:
        """Call a partial function at one organization and go on; ``next_answer`` brings its answer.

        ``round_`` counts this organization's calls, from which its random numbers and its state follow. The answer may
        hold ``weights``, as long as the model.
        """
        expected = self._tasks.expected(optional=[GLOBAL_MODEL])
        self._tasks.launch(Group(function, [organization], self._tasks.job, *parted(arguments), expected), round_)

    def next_answer(self) -> Answer | None:
        """The answer that comes next; None where an organization has failed: it is asked no more in this round.

        Raises CollectResultsError when fewer organizations are left than the job's settings need.
        """
        return self._tasks.next_answer()

    def at_work(self) -> list[int]:
        """The organizations that a call is under way to."""
        return self._tasks.at_work()

    def idle(self) -> list[int]:
        """The organizations that are not at work and are worth asking: at the start, and again after a failure."""
        rest = [k for k in self.organizations if k not in self.at_work()]
        K = len(self.organizations)
        absent = self._tasks.absent(rest, self._tasks.needed(K) - (K - len(rest)))
        self._history.missing |= absent
        return [k for k in rest if k not in absent]

    def evaluate(self, weights: np.ndarray) -> None:
        """Evaluate the model of the round before at all nodes, where no ``ask`` has done so in passing."""
        if self._due():
            self._evaluated(self._tasks.round - 1, self._tasks.ask([], [self._tasks.evaluation(weights)]))

    def _evaluated(self, t: int, answers: Sequence[Answer]) -> dict[str, Any]:
        """Take the evaluation of round t's model out of ``answers``, and return it."""
        return self._history.evaluated(t, answers, self._tasks.unanswered(evaluations=True))

    def generator(self, purpose: str) -> np.random.Generator:
        """Random numbers for one purpose of central; one stream a round, kept as it goes on within the round."""
        key = (purpose, self._tasks.round)
        if key not in self._generators:
            self._generators = {key: generator(self._tasks.job.seed, purpose, 0, self._tasks.round)}
        return self._generators[key]

    def record(
        self,
        answers: Answers | Sequence[Answer],
        model: np.ndarray | None = None,
        local_model: Callable[[Answer], np.ndarray] | None = None,
        **columns: Any,
    ) -> None:
        """Keep the round: one row of history, and one row a node. The arrays of the answers are then gone.

        Args:
            answers: all answers of the round.
            model: the round's new model (d,). A node's row then holds the distance from it of the node's own model.
            local_model: a node's own model (d,) from its answer; None: the ``weights`` that it sent, if it did.
            columns: what the history's row holds besides.
        """
        answers = list(answers.each()) if isinstance(answers, Answers) else answers
        seconds = vantage6_api.now(self._client) - self._started
        self._history.record(self._tasks.round, seconds, answers, self._tasks.unanswered(), model, local_model, columns)
        for answer in answers:
            answer.arrays.clear()  # else they would be there still while the next round's come in
        if not self._tasks.job.data.supervised:  # no evaluation is to come
            self._history.show(self._tasks.round)

    def result(self, weights: np.ndarray) -> dict[str, Any]:
        """Evaluate the last model at all nodes and return the job's result."""
        self._tasks.round = last = len(self.history)  # one more might be more than a node allows
        final = self._evaluated(last, self._tasks.ask([], [self._tasks.evaluation(weights)]))
        return self.finished(final, weights=codec.encode({"weights": weights}))

    def stopped(self, reason: str) -> dict[str, Any] | None:
        """The result of a job that cannot go on: the model of its last finished round; None where there is none.

        Nodes' state is removed; the result can be resumed.
        """
        if not self._finished or self._last_snapshot is None:
            self.give_up()
            return None
        self._tasks.round = len(self.history) + 1
        rows = self._history.up_to(self._finished)
        return {**self._ended(None, {**self._last_snapshot, **rows}), "stopped": reason}

    def give_up(self) -> None:
        """Remove what nodes and this one keep for the job; the error that is under way is the one to tell."""
        with contextlib.suppress(Exception):
            self._tasks.forget()
        with contextlib.suppress(OSError):
            self._checkpoint.remove()

    def finished(self, final: dict[str, Any] | None, **learned: Any) -> dict[str, Any]:
        """The job's result, with the last evaluation and what was learned: ``weights``, a payload, and ``model``."""
        return self._ended(final, {**self._snapshot(), **learned})

    def _ended(self, final: dict[str, Any] | None, learned: Mapping[str, Any]) -> dict[str, Any]:
        try:
            self._tasks.forget()
            left = None
        except vantage6_api.CollectResultsError as error:  # a finished model is not lost for it
            left = str(error)
        with contextlib.suppress(OSError):  # nor for a disk that is full or gone
            self._checkpoint.remove()
        return {
            "method": self._method,
            "settings": self._own_settings(),
            "organizations": self.organizations,
            **learned,
            "final": final,
            **({"state_left": left} if left else {}),
            "versions": {
                "v6-federated": __version__,
                "numpy": np.__version__,
                "python": platform.python_version(),
            },
        }

    def job(self) -> dict[str, Any]:
        """What every task of the job tells the nodes, for a task that a researcher sends later with the result."""
        return self._tasks.job.to_json()

    def count_preparation(self, answers: Answers) -> None:
        """Add what a method asked before its first round to the bytes of the preparation."""
        self._tasks.count_preparation(list(answers.each()))

    def keep_state(self) -> None:
        """From now on nodes keep state between rounds; it is removed when the job ends, well or not."""
        self._tasks.stateful = True

    def _due(self) -> bool:
        """Whether the model before this round is still to be evaluated (the initial model is not)."""
        t = self._tasks.round - 1
        return t > self._history.last_evaluated and t % self.evaluate_every == 0

    # ---- going on after an interruption

    def _save(self) -> None:
        """Keep a checkpoint; a method that carries nothing from round to round begins its rounds anew."""
        if self.history and not self._carries:
            return
        snapshot = self._snapshot()
        if self._carries:
            self._last_snapshot, self._finished = snapshot, len(self.history)
        own = {
            "settings": self._own_settings(),
            "features": [*self.features],
            "last_evaluated": self._history.last_evaluated,
            **self._tasks.snapshot(),
        }
        self._checkpoint.save({**snapshot, **own})  # its own: they belong to this very job

    def _snapshot(self) -> dict[str, Any]:
        """What a result and a checkpoint have in common: the model, the method's state and the history."""
        carried = dict(vars(self._state))
        weights = codec.encode({"weights": carried.pop(self._carries[0])}) if self._carries else None
        return {
            "weights": weights,
            "state": checkpoint.to_json(carried),
            "model": self._tasks.job.model,
            "data": self._tasks.job.to_json()["data"],
            **self._history.snapshot(),
        }

    def _own_settings(self) -> dict[str, Any]:
        """The job's settings, without the earlier result that it resumes."""
        return self._settings.model_dump(mode="json", exclude={"resume"})

    def _restore(self) -> bool:
        """Go on from this job's checkpoint, else from the result that the researcher sent; False without either."""
        kept = self._checkpoint.load()
        if kept is not None and kept["settings"] == self._own_settings():
            self._tasks.restore(kept)
            self.features = kept["features"]
            last_evaluated = shown = kept["last_evaluated"]
        elif self._common.resume is not None:
            kept = self._common.resume
            if not self._tasks.job.data.supervised:
                raise UserInputError(f"resume: {self._method} has nothing to go on from; expected a new job")
            resume.check(kept, self._method, self._common, self.organizations, self._tasks.job.rounds)
            last_evaluated = max((r["round"] for r in kept["history"] if r["loss"] is not None), default=0)
            shown = len(kept["history"])
        else:
            return False
        self._restored = kept
        self._history.restore(kept, last_evaluated, shown)
        self._tasks.job = replace(self._tasks.job, data=DataSpec(**kept["data"]), model=kept["model"])
        self._build_model()
        if not self.resumed:
            self._tasks.take_over(kept["pending"])
        return True


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
