"""The federation as a central function sees it: whom to ask, asking, and recording what came."""

import contextlib
import functools
import math
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np

from v6_federated import models
from v6_federated.base import logs, vantage6_api
from v6_federated.base.arrays import Array
from v6_federated.base.errors import SafeError
from v6_federated.base.randomness import generator
from v6_federated.base.version import __version__
from v6_federated.central import checkpoint, convergence, preparation, start_file
from v6_federated.central.aggregation import Aggregation
from v6_federated.central.answer import Answer
from v6_federated.central.answers import Answers
from v6_federated.central.bounds import Bounds, Measures
from v6_federated.central.calls import GLOBAL_MODEL, Group, parted
from v6_federated.central.checkpoint import Checkpoint
from v6_federated.central.history import History
from v6_federated.central.last_evaluation import LastEvaluation
from v6_federated.central.method import Method
from v6_federated.central.progress import Progress
from v6_federated.central.rounds import RoundTasks
from v6_federated.central.same_nodes import SameNodes, attempts
from v6_federated.central.tolerance import Tolerance
from v6_federated.messages import codec
from v6_federated.messages.codec import Shape
from v6_federated.messages.common import Common
from v6_federated.noise import units
from v6_federated.noise.bounded import ROW
from v6_federated.noise.clipping import penalty_gradient
from v6_federated.noise.plan import Plan
from v6_federated.rules.policy import Policy

OPTIONS = ("returns", "optional", "numbers", "values", "validate", "measures", "quorum_of", "often")


class Federation:
    """The organizations of a job, and what happened in its rounds.

    Attributes:
        organizations: ids of those that train, ascending.
        evaluators: ids of those that only evaluate, ascending.
        model: the model; known once the job is prepared, if the method is supervised.
        features: names of the features after preprocessing, or their indices if the data are arrays; empty if an
            earlier result is resumed.
        plan: what the job asks of a node in all; None if nodes add no noise.
    """

    def __init__(self, client: Any, method: Method, settings: Any, plan: Plan | None = None) -> None:
        """Settle who takes part. Nobody is asked yet.

        Args:
            client: vantage6's client.
            method: what the method declares.
            settings: the job's settings, checked.
            plan: what the job asks of a node in all, if nodes add noise.

        Raises:
            SafeError: the settings name organizations that cannot take part.
            PrivacyThresholdViolation: fewer take part than the operator of this node requires.
        """
        common: Common = settings
        vantage6_api.be_patient(client, common.server_timeout)
        self.organizations, self.evaluators = preparation.parties(common, vantage6_api.organizations(client))
        self._policy = policy = Policy.of_node()
        policy.check_participants(len(self.organizations))
        if hasattr(common, "fraction"):  # before any node is asked
            self._sampled(common.fraction)
        self.model: models.Model
        self.features: Sequence[str] = ()
        self._client, self._method, self._common, self.plan = client, method, common, plan
        who = self.organizations, self.evaluators
        job = preparation.first_job(method.name, common, *who, method.supervised, method.missing)
        if self.plan is not None:
            job = replace(job, privacy=self.plan.to_json())
        show = functools.partial(logs.progress, client)
        loss = getattr(common, "loss", "").replace("cross_entropy", "")
        self._history = History(self.evaluators, job.data.regression, show, loss)
        tolerance = Tolerance.of(common, policy.minimum_organizations, vantage6_api.on_a_node(client))
        bounds = Bounds(common, self.evaluators)
        self._tasks = RoundTasks(client, tolerance, bounds, job, self._history, method.declared, method.instead)
        self._aggregation = Aggregation(method, common, self._tasks, plan)
        name = f"{vantage6_api.own_prefix()}{method.name}-{client.organization_id}"
        kept = Checkpoint(vantage6_api.own_job_folder(), name, durable=vantage6_api.on_a_node(client))
        self._progress = Progress(method.name, common, kept, self._tasks, self._history)
        self._generators: dict[tuple[str, int], np.random.Generator] = {}
        self._started = vantage6_api.now(client)
        self._model_before: Array | None = None
        self._reduced: Mapping[str, Callable[[Any], Any]] = {}

    # ---- what a method calls, in this order

    def prepare(self) -> None:
        """Settle columns, classes and preprocessing with all nodes, and build the model (round 0).

        A job that was interrupted goes on from its checkpoint; a job that resumes an earlier result, from that one.

        Raises:
            UserInputError: the job cannot go on from the earlier result.
            SafeError: the settings do not fit the data.
            CollectResultsError: too few nodes answered, or their columns or labels differ.
        """
        if (kept := self._progress.restore(self.organizations)) is not None:
            self._build_model()
            if not self.resumed:
                self.features = kept["features"]
                self._tasks.take_over(kept["pending"])
            else:
                self._aggregation.settle_again(raw=bool(kept["data"]["preprocess"]))
        else:
            self._tasks.job, self.features = preparation.prepare(
                self._tasks.job,
                self._common.preprocess,
                self._common.named_model,
                self._aggregation.ask_in_preparation,
                self._aggregation.settle,
                self._aggregation.measure,
                self._common.class_weights,
                getattr(self._common, "loss", "cross_entropy"),
            )
            self._aggregation.count_rows()
            self._history.prepared()
            self._progress.save(self.features)  # nodes will keep steps under the job's key
            self._build_model()
        if self._tasks.job.data.supervised:
            self._tasks.keep_steps()  # not for PCA, whose nodes keep the rows on the components when the job ends

    def _build_model(self) -> None:
        if self._tasks.job.model is not None:
            self.model = models.build(self._tasks.job.model)
            self._tasks.size = self.model.size

    def statistic(
        self, name: str, precision: str = "float64", organizations: Sequence[int] | None = None, **arguments: Any
    ) -> Answers:
        """Ask for a statistic of the nodes' training rows.

        Args:
            name: the statistic, see ``data.statistics``.
            precision: type of the numbers that are sent for it, whatever the job's is.
            organizations: ids of those that are asked; None means all.
            arguments: what else the statistic needs.

        Returns:
            The answers.

        Raises:
            CollectResultsError: fewer answered than the job needs.
        """
        who = self.organizations if organizations is None else organizations
        return Answers(self._aggregation.measure_in_round(who, len(self.features), name, precision, **arguments))

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
            last[:] = self.statistic(name, organizations=organizations, **arguments).parts()
            return [*last]

        return attempts(self.organizations, ask)

    def start(self, **initial: Any) -> SimpleNamespace:
        """Name what the method carries from round to round, the model first.

        It is kept after each round, and brought back if the job goes on after an interruption.

        Args:
            initial: the parts by name: arrays, numbers, lists or dictionaries, or functions without arguments that
                compute them, which are called only if the job begins.

        Returns:
            A namespace with these parts; assign to them in each round.

        Raises:
            UserInputError: the earlier result that is resumed does not hold these parts.
        """
        state = self._progress.start(initial, self._tasks.size)
        model = next(iter(vars(state).values()), None)
        self._tasks.newest = self._model_before = model if isinstance(model, np.ndarray) else None
        return state

    @property
    def levels(self) -> Sequence[str]:
        """The levels of the job's column of subgroups, sorted; empty if it names none."""
        return self._tasks.job.data.levels

    @property
    def least(self) -> int:
        """Rows or events that a count over all hospitals must have to be written into the result; 0 if any may be.

        In a study nodes send exact counts, and what is small over its block is central's to join or to leave out, by
        the limit of the node where central runs. Elsewhere nodes have kept their own minimum.
        """
        return self._tasks.blocks.least(self._policy.minimum_rows_a_side)

    @property
    def least_rows(self) -> int:
        """Rows that a sum over all hospitals must be about, unless it is about none; 0 if any may be.

        As ``least``: in a study, what is small is central's to join or to leave out.
        """
        return self._tasks.blocks.least(self._policy.minimum_rows)

    def write_without(self, **reduced: Callable[[Any], Any]) -> None:
        """Reduce parts of what the method carries before they are written into a result: they may hold small cells.

        This is done where nodes answer under masks, and the node where central runs has a minimum for small cells. A
        checkpoint holds all; it lies at that node until the job ends.

        Args:
            reduced: by name of the part, a function that returns what is written of it, with which the job can be
                resumed.
        """
        self._reduced = reduced

    @property
    def hides_totals(self) -> bool:
        """Whether the job is in a study that answers sums over rows only, see ``secagg.study.TOTALS``."""
        return self._tasks.job.hides_totals

    @property
    def history(self) -> Sequence[Mapping[str, Any]]:
        """A row a round so far, as in the result."""
        return self._history.rounds

    @property
    def evaluate_every(self) -> int:
        """Rounds from one evaluation to the next."""
        return self._common.evaluate_every

    @property
    def resumed(self) -> bool:
        """Whether the job goes on from the result of another job, of which nodes keep nothing."""
        return self._progress.resumed

    @property
    def indicators(self) -> list[bool]:
        """Whether each feature is 0 or 1, as the step ``onehot`` makes it from a column of words."""
        fitted = [step["fitted"]["levels"] for step in self._tasks.job.data.preprocess if step["step"] == "onehot"]
        made = {f"{column}={level}" for levels in fitted for column in levels for level in levels[column]}
        return [name in made for name in self.features]

    @property
    def one_noisy_sum(self) -> bool:
        """Whether nodes answer a round with one noisy sum of gradients: the nodes of a block then share its noise."""
        return self.plan is not None and self.plan.steps == getattr(self._common, "rounds", None)

    def noisy_sum(self, answers: Answers, name: str) -> Array:
        """Add up arrays of whole numbers with noise, which the nodes of a block share.

        Args:
            answers: the answers of a function that declares ``name`` as a ``Count``.
            name: the array's name.

        Returns:
            The sum over all nodes, int64.
        """
        self._aggregation.shared = True
        total: Array = np.add.reduce([a.arrays[Answer.key(name, "count")] for a in answers.parts()])
        return total

    @property
    def bounds(self) -> Mapping[str, Sequence[float]]:
        """The bounds of columns of numbers, and of a label that is a number, if all operators have declared the same.

        They are known while the job is prepared: keep what is needed later in ``start``.
        """
        return self._aggregation.bounds

    def bounded_sum(self, answers: Answers, name: str) -> Array:
        """Add up what ``Node.noisy_sum`` has returned of a ``bounded_sum``.

        Args:
            answers: the answers of a function that declares ``name`` as a ``Count``.
            name: the array's name.

        Returns:
            The sum over all nodes, float64; the longest contribution of a row is 1 long.
        """
        return self.noisy_sum(answers, name) / ROW

    def noises(self, answers: Answers, persons: str = "") -> float:
        """Say how much noise the sum of ``noisy_sum`` has.

        Args:
            answers: the answers.
            persons: the name under which they hold ``Node.variance_for_persons``, asked for as a count; empty if they
                do not.

        Returns:
            Its variance, over that of the noise that hides a row.
        """
        found = 0.0
        for a in answers.parts():
            nodes = len(a.organizations)
            several = float(a.arrays[Answer.key(persons, "count")][0]) / nodes if persons else 1.0
            found += self._tasks.blocks.noises(nodes) * several
        return found

    def mean_gradient(self, answers: Answers, w: Array) -> Array:
        """The mean gradient over all rows from the answers of ``Node.noisy_gradient``.

        Args:
            answers: the answers, with ``gradient`` (d,).
            w: the model (d,).

        Returns:
            C / (q N) times the sum, for the clip C, the sampling q and the rows N of all answers, and the gradient of
            the model's penalty, which no row enters: float32 (d,).
        """
        assert self.plan is not None
        total = self.noisy_sum(answers, "gradient")
        mean = total * (self.plan.clip / units.GRADIENT / (self.plan.rate * answers.n))
        gradient: Array = mean.astype(np.float32) + penalty_gradient(self.model, w)
        return gradient

    def initial_weights(self) -> Array:
        """Return w_0 (d,), drawn from the job's seed, or from the file that the job names.

        Raises:
            SafeError: there is no such file, or it does not fit the model.
        """
        drawn, name = self.model.init(generator(self._tasks.job.seed, "init")), self._common.start_from
        if name is None:
            return drawn
        w, self._progress.started_from = start_file.read(
            name, self._policy, self.model, drawn, vantage6_api.on_a_node(self._client)
        )
        return w

    def rounds(self, rounds: int) -> Iterator[int]:
        """Go through the rounds until the last, or until the job's target is reached or its model has converged.

        A method may leave the loop earlier with ``break``: the last round is then the last one that it has recorded.
        A job that goes on after an interruption begins after its last finished round. Once ``result`` was called, no
        round follows.

        Args:
            rounds: number of rounds in all.

        Yields:
            The round t = 1, 2, ... Call ``record`` once in each.
        """
        self._tasks.round = len(self.history)
        self._history.prepared()
        self._progress.save(self.features)  # nodes keep state under the job's key
        for t in range(len(self.history) + 1, rounds + 1):
            if self._progress.ended or self._target_reached or self._converged:
                return
            self._tasks.round = t
            self._started = vantage6_api.now(self._client)
            if self._method.recoverable:  # a round needs no more than what it sends
                self._aggregation.let_join(t)
            yield t
            if len(self.history) != t:
                raise RuntimeError(f"{self._method.name} must call federation.record once in each round; see round {t}")
            self._progress.save(self.features)

    @property
    def _target_reached(self) -> bool:
        """Whether a model was as accurate as the job's target."""
        accuracies = [row["accuracy"] for row in self.history if row["accuracy"] is not None]
        return self._common.target is not None and max(accuracies, default=0.0) >= self._common.target

    @property
    def _converged(self) -> bool:
        """Whether so little is left to change that the job ends."""
        tolerance = self._common.until_converged
        return tolerance is not None and convergence.settled(self.history, tolerance)

    def sample(self, fraction: float) -> list[int]:
        """Draw S_t, a random set of m = max(floor(C K), 1) organizations.

        Nodes that are offline or failed recently are drawn only if too few others are left.

        Args:
            fraction: C.

        Returns:
            Their ids, ascending.

        Raises:
            PrivacyThresholdViolation: they are fewer than the node where central runs allows.
        """
        K, m = len(self.organizations), self._sampled(fraction)
        if m == K:
            return list(self.organizations)
        blocks, absent = self._tasks.blocks, self._tasks.absent(self.organizations)
        present, gone = blocks.standing(self.organizations, absent.keys()), blocks.without(absent)
        m = self._sampled_of(len(present) + len(gone), fraction)
        rng = generator(self._tasks.job.seed, "sample", 0, self._tasks.round)
        drawn = rng.choice(len(present), min(m, len(present)), replace=False)
        chosen = [*(present[i] for i in drawn), *gone][:m]  # the history then names the absent ones as missing
        return sorted(k for block in chosen for k in block)

    def _sampled(self, fraction: float) -> int:
        """How many organizations ``sample`` draws, if the node where central runs allows so few."""
        m = self._sampled_of(len(self.organizations), fraction)
        self._policy.check_sample(m, len(self.organizations))
        return m

    @staticmethod
    def _sampled_of(K: int, fraction: float) -> int:
        return max(math.floor(fraction * K + 1e-9), 1)  # 0.29 * 100 is a little less than 29

    def ask(self, function: str, organizations: Sequence[int], **arguments: Any) -> Answers:
        """Call a partial function at ``organizations`` and wait for the answers.

        Args:
            function: a partial function's name.
            organizations: ids of those that are asked.
            arguments: what the function is sent, and the options of ``ask_groups``.

        Returns:
            The answers.

        Raises:
            CollectResultsError: fewer answered than the job needs.
        """
        options = {name: arguments.pop(name) for name in OPTIONS if name in arguments}
        return self.ask_groups(function, [(organizations, arguments)], **options)

    def ask_groups(
        self,
        function: str,
        groups: Sequence[tuple[Sequence[int], dict[str, Any]]],
        *,
        returns: Sequence[str] | Mapping[str, Shape] | None = None,
        optional: Sequence[str] = (),
        numbers: Sequence[str] = (),
        values: Sequence[str] = (),
        validate: Callable[[Answer], str | None] | None = None,
        measures: Measures = MappingProxyType({}),
        quorum_of: int | None = None,
        often: str = "",
    ) -> Answers:
        """Call a partial function at groups of organizations at once, each group with arguments of its own.

        Arrays among the arguments are sent as a payload, records as their fields. An array named ``weights`` is the
        global model: the nodes evaluate it on the way, which completes the history's row of the round before.

        Answers may be missing or malformed as far as the job's settings (``min_responses``, ``round_timeout``,
        ``retries``) allow it.

        Args:
            function: a partial function's name.
            groups: organizations, and what they are sent.
            returns: names of the arrays in an answer, each as long as the model, or their shapes by name. None: those
                that the function declares as sums; one that declares none returns ``weights``.
            optional: names of arrays as long as the model that an answer may lack.
            numbers: names of values in an answer that must be numbers from 0.
            values: names of further values that an answer may hold: numbers, truth values or None. Every answer may
                hold ``train_loss``; anything else that is not named is refused.
            validate: says what else is wrong with an answer, or None; a node with a wrong answer counts as failed.
            measures: what of an answer is compared with the other nodes' answers (``maximum_norm_ratio``), by name,
                as functions of the answer. Without it, each array is: as the change of the array of the same name that
                was sent, or as it is. None in place of a function means that this array is not compared.
            quorum_of: number of organizations that ``min_responses`` is a share of; None means those that are asked.
                In a later request of a round, give the number of its first; 0 means that no answer is needed.
            often: why nodes often cannot compute their part of this request, and what to do. Masks hide the reason,
                so the error names this one.

        Returns:
            The answers.

        Raises:
            CollectResultsError: fewer answered than the job needs; it names each organization without a usable answer,
                and why.
        """
        sent = [Group(function, [*who], self._tasks.job, *parted(arguments)) for who, arguments in groups]
        if returns is None:
            returns = self._tasks.shapes(sent[0])
        expected = self._tasks.expected(returns, optional, numbers, values, validate, measures)
        sent = [replace(group, expected=expected, often=often) for group in sent]
        evaluate = len(sent) == 1 and GLOBAL_MODEL in sent[0].arrays and self._due()
        if not evaluate:
            return Answers(self._tasks.ask(sent, quorum_of=quorum_of))
        model, asked = sent[0].arrays[GLOBAL_MODEL], set(sent[0].organizations)
        evaluations = []
        if self.evaluators:
            evaluations = [self._tasks.evaluation(model)]
        else:
            sent[0] = replace(sent[0], evaluate="held_out")
            if rest := sorted(set(self.organizations) - asked):
                # a curve over the nodes that happen to be asked would jump from round to round
                evaluations = [replace(self._tasks.evaluation(model), organizations=rest)]
        answers = self._tasks.ask(sent, evaluations, quorum_of)
        if not self.evaluators:
            self._history.unevaluated |= {k: self._history.missing[k] for k in asked if k in self._history.missing}
        self._evaluated(self._tasks.round - 1, answers)
        return Answers([a for a in answers if a.function == function and a.organization_id in asked])

    def require(self, answers: Answers, organizations: Sequence[int]) -> None:
        """Check that enough answered, after requests with ``quorum_of=0`` in one round.

        Args:
            answers: all answers of the round.
            organizations: ids of those that were asked.

        Raises:
            CollectResultsError: fewer answered than the job needs.
        """
        if len(answers) < (needed := self._tasks.needed(len(organizations))):
            raise vantage6_api.CollectResultsError(
                f"round {self._tasks.round}: {len(answers)} of {len(organizations)} answered, {needed} are needed"
            )

    # ---- asynchronous methods: one call at a time to each node

    def send(
        self, function: str, organization: int, round_: int, *, values: Sequence[str] = (), **arguments: Any
    ) -> None:
        """Call a partial function at one organization and do not wait: ``next_answer`` returns its answer.

        Args:
            function: a partial function's name.
            organization: id of the organization.
            round_: the number of this organization's call, on which its random numbers and its state depend.
            values: names of values that the answer may hold: numbers, truth values or None.
            arguments: what it is sent. The answer may hold ``weights``, as long as the model.
        """
        expected = self._tasks.expected(optional=[GLOBAL_MODEL], values=values)
        self._tasks.launch(Group(function, [organization], self._tasks.job, *parted(arguments), expected), round_)

    def next_answer(self) -> Answer | None:
        """Wait for the next answer.

        Returns:
            The answer; None if an organization has failed, which is then not asked any more in this round.

        Raises:
            CollectResultsError: fewer organizations are left than the job needs.
        """
        return self._tasks.next_answer()

    def at_work(self) -> list[int]:
        """Return the organizations that are working on a call, ascending."""
        return self._tasks.at_work()

    def idle(self) -> list[int]:
        """Return the organizations that can be called: not at work, not offline, and without a recent failure."""
        rest = [k for k in self.organizations if k not in self.at_work()]
        K = len(self.organizations)
        absent = self._tasks.absent(rest, self._tasks.needed(K) - (K - len(rest)))
        self._history.missing |= absent
        return [k for k in rest if k not in absent]

    def evaluate(self, weights: Array) -> None:
        """Evaluate the model of the round before at all nodes, if no ``ask`` has done so.

        If others than those that train evaluate, the round does not depend on their answers, as in ``ask``.

        Args:
            weights: the model (d,).

        Raises:
            CollectResultsError: fewer of those that train answered than the job needs.
        """
        if self._due():
            quorum_of = 0 if self.evaluators else None
            answers = self._tasks.ask([], [self._tasks.evaluation(weights)], quorum_of)
            self._evaluated(self._tasks.round - 1, answers)

    def _evaluated(self, t: int, answers: Sequence[Answer]) -> dict[str, Any]:
        """Move the evaluation of round t's model from ``answers`` into the history, and return it."""
        return self._history.evaluated(t, answers, self._tasks.unanswered(evaluations=True))

    def generator(self, purpose: str) -> np.random.Generator:
        """Return random numbers of central, which depend on the job's seed and the round.

        Args:
            purpose: what they are for; each purpose has its own numbers.

        Returns:
            A generator; within a round the same one, which goes on.
        """
        key = (purpose, self._tasks.round)
        if key not in self._generators:
            self._generators = {key: generator(self._tasks.job.seed, purpose, 0, self._tasks.round)}
        return self._generators[key]

    def record(
        self,
        answers: Answers | Sequence[Answer],
        model: Array | None = None,
        local_model: Callable[[Answer], Array] | None = None,
        **columns: Any,
    ) -> None:
        """Record the round: a row in the history, and a row for each node. It removes the arrays of the answers.

        Args:
            answers: all answers of the round.
            model: the round's new model (d,). The round's row then holds how much it has changed, and a node's row the
                distance of its own model from it.
            local_model: a node's own model (d,) from its answer; None means the ``weights`` that it sent, if it did.
            columns: further columns of the round's row.
        """
        answers = answers.parts() if isinstance(answers, Answers) else answers
        seconds = vantage6_api.now(self._client) - self._started
        before, self._model_before = self._model_before, model
        moved = None if model is None or before is None or not answers else convergence.change(before, model)
        unanswered = self._tasks.unanswered()
        self._history.record(self._tasks.round, seconds, answers, unanswered, model, local_model, columns, change=moved)
        for answer in answers:
            answer.arrays.clear()  # otherwise they would take memory while the answers of the next round come in
        if not (self._tasks.job.data.supervised and self._evaluates):  # no evaluation will follow
            self._history.show(self._tasks.round)

    def result(self, weights: Array) -> dict[str, Any]:
        """End the rounds, and evaluate the last model at all nodes, or at the evaluators.

        Args:
            weights: the model (d,).

        Returns:
            The job's result, as JSON: see docs/reference/result.md.

        Raises:
            CollectResultsError: fewer of them answered than the job needs.
        """
        self._tasks.round = last = len(self.history)  # a node may not allow one more round
        if self._progress.final is None:
            self._progress.ended = True
            self._progress.save(self.features)  # ``rounds`` does not keep a round that is left with ``break``
            if self._evaluates:
                shown = LastEvaluation(self._tasks.job, self.model, self._tasks.blocks)
                answers = self._tasks.ask([], [shown.asked(self._tasks.evaluation(weights, last=True))])
                self._progress.shown = shown.of(answers)
            else:
                answers = []
            self._progress.final = self._evaluated(last, answers)
            self._progress.save(self.features)  # nodes that have removed their keys cannot answer again
        return self.finished(self._progress.final, weights=codec.encode({"weights": weights}))

    def evaluate_own_models(self, function: str, weights: Array, **arguments: Any) -> dict[str, Any]:
        """Have each node evaluate a model of its own, which stays there, at the end of a job.

        Args:
            function: a partial function that is declared with ``own_model=True``.
            weights: the global model (d,).
            arguments: what else the function is sent.

        Returns:
            The evaluation over the held-out rows of all nodes, each with its own model; and ``by_hospital``, those of
            the hospitals whose operators let their own results leave, if central sees single answers.

        Raises:
            CollectResultsError: fewer answered than the job needs.
        """
        self._tasks.round = len(self.history)
        values, arrays = parted({"weights": weights, **arguments})
        expected = self._tasks.expected(values=["own_results"])
        who = self._tasks.job.participants
        group = Group(function, who, self._tasks.job, values, arrays, expected, "held_out")
        answers = self._tasks.ask([group], quorum_of=len(self.organizations))
        shown = [a for a in answers if not a.members and a.values.get("own_results") is True]
        by_hospital = [{"organization": a.organization_id, **self._history.measured([a])} for a in shown]
        found = self._history.measured(answers)
        self._history.count_evaluation(answers)
        return {**found, **({"by_hospital": by_hospital} if by_hospital else {})}

    def stopped(self, reason: str, resumable: bool = True, away: bool = False) -> dict[str, Any] | None:
        """End a job that cannot go on, and have the nodes remove what they keep for it.

        Args:
            reason: why.
            resumable: whether the same job could go on from there; False if it would only end in the same way.
            away: whether the server is away. Then nodes and the checkpoint keep what they have: a node of vantage6
                loses a result that it cannot hand over, and starts central again once the server is back.

        Returns:
            The result after the last finished round; None if no round was finished.
        """
        last = self._progress.last_finished_round()
        if last is None:
            if not away:
                self.give_up()
            return None
        self._tasks.round = len(self.history) + 1
        return {**self._ended(None, last, away), "stopped": reason, "resumable": resumable}

    def give_up(self) -> None:
        """Have the nodes remove what they keep for the job, and remove the checkpoint. It raises no errors."""
        with contextlib.suppress(Exception):
            self._tasks.forget()
        self._progress.remove()

    def finished(self, final: dict[str, Any] | None, **learned: Any) -> dict[str, Any]:
        """End the job.

        Args:
            final: the last evaluation, if there is one.
            learned: ``weights``, a payload, and other parts of the result that the history does not hold.

        Returns:
            The job's result, as JSON.
        """
        return self._ended(final, {**self._progress.snapshot(), **learned})

    def _ended(self, final: dict[str, Any] | None, learned: Mapping[str, Any], away: bool = False) -> dict[str, Any]:
        if self._reduced and self._policy.minimum_rows_a_side and not self._tasks.blocks.single:
            carried = checkpoint.from_json(learned["state"])
            carried |= {name: reduce(carried[name]) for name, reduce in self._reduced.items()}
            learned = {**learned, "state": checkpoint.to_json(carried)}
        left = "the server is away" if away and self._tasks.stateful else None
        if not away:
            try:
                self._tasks.forget()
            except vantage6_api.CollectResultsError as error:  # the finished model must not be lost
                left, away = str(error), isinstance(error, vantage6_api.ServerAway)
        if not away:
            self._progress.remove()
        shown = {name: value for name, value in self._progress.shown.items() if value}
        own_results = {"own_results": hidden} if (hidden := shown.pop("own_results", None)) else {}
        return {
            "method": self._method.name,
            "settings": self._progress.settings_used,
            "organizations": self.organizations,
            **learned,
            "final": final,
            **({"converged_in": len(self.history)} if self._converged else {}),
            **shown,
            "privacy": {**own_results, **self._aggregation.seen()},
            **({"state_left": left} if left else {}),
            "versions": {
                "v6-federated": __version__,
                "numpy": np.__version__,
                "python": platform.python_version(),
            },
        }

    def job(self) -> dict[str, Any]:
        """Return what every task tells the nodes, for tasks that a researcher sends later with the result."""
        return self._tasks.job.to_json()

    def count_preparation(self, answers: Answers) -> None:
        """Count what a method asked before its first round as bytes of the preparation.

        Args:
            answers: the answers.
        """
        self._tasks.count_preparation(answers.parts())

    def keep_state(self) -> None:
        """Declare that nodes keep state between rounds from now on. It is removed when the job ends or fails."""
        self._tasks.stateful = True

    @property
    def _evaluates(self) -> bool:
        """Whether there are rows to evaluate on."""
        return bool(self.evaluators or self._common.holdout)

    def _due(self) -> bool:
        """Whether the model before this round must still be evaluated (the initial model is not)."""
        t = self._tasks.round - 1
        return t > self._history.last_evaluated and t % self.evaluate_every == 0
