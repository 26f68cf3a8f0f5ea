"""What a node does with a job's privacy plan: samples of rows, sums of clipped gradients, noise, and the ledger.

Noise and samples follow from the node's secret and from the whole request: the same request has the same answer, so
noise cannot be averaged away, and nobody else can compute it.
"""

import functools
import secrets
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from v6_federated.base.arrays import Array
from v6_federated.base.errors import SafeError
from v6_federated.base.text import NOTHING_COMPUTED
from v6_federated.base.vantage6_api import NodePermissionException
from v6_federated.data.declared import UNKNOWN
from v6_federated.data.labels import checked_numbers, plain
from v6_federated.data.source import Rows, Source, ready
from v6_federated.data.steps import WITHOUT_ROWS
from v6_federated.masks import keystreams
from v6_federated.messages.job import Job
from v6_federated.models import Model, metrics
from v6_federated.node.request import Request
from v6_federated.noise import units
from v6_federated.noise.clipping import clipped_sum, sensitivity
from v6_federated.noise.gaussian import discrete_gaussian
from v6_federated.noise.ledger import Ledger
from v6_federated.noise.plan import Plan
from v6_federated.rules.policy import Policy
from v6_federated.rules.schema import Schema

# Where jobs with noise run: against a budget, or on a developer's own rows, to try such a job. Under other profiles the
# researcher alone would choose how much noise there is.
NOISED_PROFILES = ("private", "trusting")
UNCOVERED = "this function reads rows in a way that no noise covers; leave out clip"


@dataclass
class Noising:
    """The noise of one request.

    Attributes:
        plan: what the job asks of the node in all.
        request: the request, with the operator's limits and the hospital's folder.
        job: the job's key.
        rows: the rows as they fit the schema, and so what their roles in the job follow from; None without a budget.
        rows_of_a_person: m, the rows that a person has at most.
        shares: how many nodes of a block share the noise of one sum: those that are not assumed to work with the
            server. A node with several rows a person adds all of its noise by itself: the others may have fewer, and
            their shares would then be too small for its persons.
        hospitals_of_a_person: N, at how many hospitals of the study a person may have rows.
    """

    plan: Plan
    request: Request
    job: str
    rows_of_a_person: int = 1
    shares: int = 1
    hospitals_of_a_person: int = 1
    rows: Source | None = field(default=None, repr=False)
    _random: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    _used: Counter[str] = field(default_factory=Counter, repr=False)

    @property
    def variance_for_persons(self) -> int:
        """How many times the noise's variance grows by rows of one person, if the others' shares stay as they are.

        It is rounded up: a node that adds all of its noise multiplies it by N, and the shares are those of N^2.
        """
        whole = -(-(self.rows_of_a_person**2) * self.shares // self.hospitals_of_a_person)
        return whole if self.rows_of_a_person > 1 else 1

    @property
    def steps_per_epoch(self) -> int:
        """Noisy steps of an epoch."""
        return self.plan.steps_per_epoch

    def ledger(self) -> Ledger | None:
        """The hospital's ledger; None if its operator has set no budget."""
        policy, folder = self.request.policy, self.request.folder
        if not policy.private:
            return None
        if folder is None or not folder.own:
            raise NodePermissionException(
                "a privacy budget needs a folder on the hospital's own disk: add a database of type folder with the "
                f"label hospital to the node's configuration. {NOTHING_COMPUTED}"
            )
        assert policy.epsilon is not None and policy.delta is not None
        return Ledger(folder.path, policy.epsilon, policy.delta, policy.epsilon_of_a_job)

    def reserve(self) -> None:
        """Take the whole job from the budget, before its first round."""
        if (ledger := self.ledger()) is not None:
            ledger.reserve(self.entry, self.plan)

    @functools.cached_property
    def entry(self) -> str:
        """The job's name in the ledger: its key, and a digest of the rows and of what decides which are held out.

        A job costs the larger of what training and what evaluations cost, since each row is in one of both. Under the
        same key, another table of the hospital, or the table of another day, would give rows the other role too. It is
        another job in the ledger, and reserves a plan of its own.
        """
        if self.rows is None or self.request.folder is None:
            return self.job
        roles = f"{self.job} {self.request.policy.minimum_rows} {self.rows.digest.hex()}"
        return f"{self.job}-{self.request.folder.derived('roles of rows', roles.encode()):064x}"[: len(self.job) + 17]

    def use(self, kind: str, number: int) -> int:
        """Count noisy sums of this request against the plan, before they are computed."""
        before = self._used[kind]
        if (ledger := self.ledger()) is not None:
            T = self.request.digest + kind.encode() + (b" %d" % before if before else b"")
            ledger.use(self.entry, self.plan, T, **{kind: number})
        self._used[kind] += number
        return before

    def renew(self) -> None:
        """Draw new noise for an answer without masks, even if the same request was answered before.

        Masked answers are stored, and their noise follows from the request. Others are computed again, perhaps from
        rows, a schema or a program that have changed: under the same noise, the two would show their difference. So
        each answer counts against the budget.
        """
        self.request.digest += secrets.token_bytes(32)

    def readable(self, evaluation: Mapping[str, Any]) -> dict[str, Any]:
        """Turn an evaluation with noise into the form of an answer that no other node's is added to."""
        reach = metrics.reach(len(evaluation["bands"]))
        return metrics.of_noisy_sums(evaluation, self.plan.evaluation_noise * self.rows_of_a_person * reach)

    def sample(self, rows: Rows, step: int) -> Array | slice:
        """Draw the rows of a step: each person's take part together, with the probability of the plan."""
        if self.plan.rate == 1:
            return slice(None)
        persons = np.arange(len(rows)) if rows.persons is None else rows.persons
        words = keystreams.mask(
            self._key(f"rows of step {step}"), self.request.digest, 64, int(persons.max(initial=-1)) + 1
        )
        return np.flatnonzero(words[persons] < np.uint64(int(self.plan.rate * 2**64)))

    def gradient(self, model: Model, w: Any, X: Any, y: Any, step: int, shared: bool) -> Array:
        """Add up clipped gradients of rows, with noise.

        Args:
            model: the model.
            w: its weights (d,).
            X: rows (b, ...).
            y: their labels (b,).
            step: the step in this request.
            shared: whether central learns only the sum over the block, so that its nodes share the noise.

        Returns:
            The sum (d,), int64, in units of the clip divided by ``units.GRADIENT``.
        """
        total = clipped_sum(model, w, X, y, self.plan.clip, units.GRADIENT)
        reach = self.rows_of_a_person * sensitivity(len(total), units.GRADIENT)
        if self.hospitals_of_a_person > 1 and self.plan.rate < 1:  # each hospital draws its rows by itself
            shared = False
        return total + self._noise(f"gradient {step}", self.plan.noise * reach, len(total), shared)

    def statistic(self, total: Array, reach: float, number: int) -> Array:
        """Add noise to a sum over rows, which the nodes of a block share (see ``shares``)."""
        sigma = self.plan.statistics_noise * self.rows_of_a_person * reach
        return total + self._noise(f"statistic {number}", sigma, len(total), shared=True)

    def counts(self, counts: Array, reach: float, purpose: str) -> Array:
        """Add noise to counts of rows, which the nodes of a block share."""
        sigma = self.plan.evaluation_noise * self.rows_of_a_person * reach * units.COUNT
        noise = self._noise(purpose, sigma, counts.size, shared=True)
        return np.asarray(np.rint(counts * units.COUNT), np.int64) + noise.reshape(counts.shape)

    def _noise(self, purpose: str, sigma: float, size: int, shared: bool) -> Array:
        """Noise that hides a person at N hospitals, if sigma hides one at this hospital.

        In one sum with the noise of all, N hospitals add N times as much of a person, and the noise is N times as
        large. If each adds its own, their noise adds up as well, and sqrt(N) times as much at each is enough: rows at
        N hospitals, m_1 to m_N, change the sum by m_1 + ... + m_N, which is at most sqrt(N (m_1^2 + ... + m_N^2)).
        """
        N = self.hospitals_of_a_person
        if shared and self.rows_of_a_person == 1:
            return discrete_gaussian(self._key(purpose), float(N * sigma / np.sqrt(self.shares)), size)
        return discrete_gaussian(self._key(purpose), float(np.sqrt(N) * sigma), size)

    def _key(self, purpose: str) -> bytes:
        folder = self.request.folder
        if folder is None:  # a developer's own rows, without an operator
            purpose_of = purpose.encode()
            return keystreams.mask(self._random, purpose_of, 64, 4).tobytes()
        return folder.derived(f"privacy, {purpose}", self.request.digest).to_bytes(32, "big")


def of_node(job: Any, request: Request, schema: Schema | None) -> Noising | None:
    """Read a job's plan."""
    if job.privacy is None:
        if request.policy.private:
            raise NodePermissionException(
                "this node's operator has set a privacy budget (V6_FEDERATED_PROFILE=private), and the job asks for "
                "answers without noise; set clip and epsilon, for example clip=1 epsilon=1, or choose a method that "
                f"has these settings, such as fedavg, glm or pca. {NOTHING_COMPUTED}"
            )
        return None
    if request.policy.profile not in NOISED_PROFILES:  # noise takes the place of limits on few rows
        raise NodePermissionException(
            "the job asks for answers with noise, and this node has no privacy budget to count them against; leave out "
            f"clip, or ask its operator for a budget (V6_FEDERATED_PROFILE=private). {NOTHING_COMPUTED}"
        )
    if job.evaluators:
        raise SafeError("evaluators cannot be used with clip: their answers would be single ones; leave them out")
    plan = Plan.from_json(job.privacy)
    if plan.holdout != job.data.holdout:  # a row that is trained on and held out in one job would pay for one of both
        raise SafeError(f"the privacy plan holds out {plan.holdout:g} of the rows, and the job {job.data.holdout:g}")
    m = 1 if schema is None or schema.m is None else schema.m
    return Noising(plan, request, job.key, m)


def check_declared(job: Job, schema: Schema, policy: Policy, arrays: bool, reads: bool) -> None:
    """Refuse a job that some rows would fit and others not: whether they do is an answer that no noise covers.

    Nothing here depends on a row, only on the schema.
    """
    spec, known = job.data, schema.classes or ()
    schema.check(spec)
    if unused := sorted({*spec.special, *filter(None, [spec.subgroup])}):
        raise SafeError(
            f"the column(s) {', '.join(unused)} are asked for as offset, weights, event, time or subgroup, and no sum "
            "with noise uses such columns; leave them out"
        )
    named = None if spec.classes is None else {*map(plain, spec.classes)}
    if named is not None and (absent := [value for value in known if value not in named]):
        raise SafeError(
            f"the job leaves out the class(es) {', '.join(map(str, absent))} of the schema; name all of them"
        )
    if reads and spec.supervised and not spec.regression and named is None:
        raise SafeError("the job names no classes; name those of the schema")
    if wrong := [step["step"] for step in spec.preprocess if step["step"] not in WITHOUT_ROWS]:
        raise SafeError(f"no noise covers what the step {wrong[0][:40]} reads; use {' and '.join(WITHOUT_ROWS)}")
    named_levels = {} if arrays else schema.levels
    if strange := sorted({*(spec.categories or ())} - {*named_levels}):
        raise SafeError(f"the column(s) {', '.join(strange)} hold numbers in the schema; leave them out of onehot")
    for name, levels in named_levels.items():
        if spec.features is None or name in spec.features:
            policy.check_classes(len(levels) + 1, f"the column {name}")
    if not reads:
        return
    # scaling is monotone in each column: if both bounds can be computed with, so can all values between them; and an
    # undeclared word is no number, even if all declared ones are
    classes = [*(known or schema.bounds or (0, 1))][:2]
    if schema.bounds is not None:
        checked_numbers(np.array(schema.bounds))
    if arrays:
        bounds = np.array([[column.lower, column.upper] for column in schema.columns], dtype=np.float64).T
        ready(Source(X=bounds, y=np.array(classes)).features(spec), spec.preprocess)
        return
    ends: dict[str, list[Any]] = {
        c.name: [UNKNOWN] * 2 if c.kind == "words" else [c.lower, c.upper] for c in schema.columns
    }
    ends |= {schema.label: classes} if schema.label else {}
    ready(Source(table=pd.DataFrame(ends)).features(spec), spec.preprocess)
