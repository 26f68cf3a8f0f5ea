"""A node as a partial function sees it: its rows, its model, its random numbers and its operator's limits."""

import functools
import itertools
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from v6_federated import models
from v6_federated.base.arrays import Array
from v6_federated.base.errors import SafeError
from v6_federated.base.files import keep_latest, replacing
from v6_federated.base.randomness import generator
from v6_federated.base.text import NOTHING_COMPUTED
from v6_federated.base.vantage6_api import NodePermissionException, job_folder
from v6_federated.data import preprocessing, times
from v6_federated.data.columns import Features
from v6_federated.data.declared import conformed
from v6_federated.data.files import open_database
from v6_federated.data.labels import encode_labels, plain
from v6_federated.data.source import Rows, identity_of, split
from v6_federated.messages.job import Job
from v6_federated.messages.local_sgd import LocalSGD, PlainSGD
from v6_federated.messages.result import MOST_CROSSED, crossed
from v6_federated.models import clipping, metrics
from v6_federated.models.outcomes import Outcome
from v6_federated.node import local_training, noising
from v6_federated.node.kept_steps import kept
from v6_federated.node.local_training import Rates, Step
from v6_federated.node.request import Request
from v6_federated.node.state import State
from v6_federated.privacy import quota
from v6_federated.privacy.dp import units
from v6_federated.privacy.environment import limit_threads
from v6_federated.privacy.rounding import Rounding, rounded_loss, rounded_to
from v6_federated.privacy.schema import Schema

OWN_MODELS = "own-models"  # in the hospital's folder
FAR_APART = "The model's predictions are far apart; bring columns to one scale (--preprocess standardize), lower lr"
MOST_OWN_MODELS = 20  # of the latest jobs: tasks must not fill the hospital's disk


class Node:
    """One node in one round of a job.

    Rows are read, and limits on them checked, when they are first used.

    Attributes:
        organization_id: the organization whose node it is.
        round: the round, from 1; 0 is the preparation.
        job: what central tells all nodes.
        policy: the operator's limits.
        request: the request, with the hospital's folder.
        state: what this node keeps from round to round. It never leaves the node.
        batch_sizes: sizes of minibatches whose steps were checked.
        schema: what the operator has declared of the rows; None if there is no privacy budget.
        noising: noise and samples of the job's privacy plan; None if it has none.
        key: by which central names this node in the arguments of a function; with masked answers, all nodes of a block
            have the same, so that no argument can single out one of them.
        own_model: a model (d,) of this node's own, which stays here and is evaluated; None if there is none.
        evaluated: the rows that this request has evaluated a model on, and which of all rows they are; None if none.
    """

    def __init__(
        self,
        organization_id: int,
        database: Any,
        job: Job,
        round_: int,
        request: Request,
        schema: Schema | None = None,
    ) -> None:
        """Check a task and the columns that it uses.

        Args:
            organization_id: the organization whose node it is.
            database: the rows, as vantage6 hands them over.
            job: what central tells all nodes.
            round_: the round, from 0.
            request: the request, with the operator's limits.
            schema: what the hospitals of a study have agreed on; its columns are used if the job names none.

        Raises:
            SafeError: the job is malformed, or a fitted step that it names is no longer kept.
            PrivacyThresholdViolation: the operator's limits do not allow the request.
            DataError: the database cannot be read, or a column is missing.
        """
        self.organization_id, self.round = organization_id, round_
        self.state = self.state_of(organization_id, job, round_)
        steps = kept(job.data.preprocess, self.state)
        self.job = replace(job, data=replace(job.data, preprocess=steps))
        self.batch_sizes: set[int] = set()
        self.key = str(organization_id)
        self.own_model: Any = None
        self.evaluated: tuple[Rows, Array | slice] | None = None
        self.policy, self.request, self._began = request.policy, request, time.monotonic()
        self.policy.check_request(job.minimum_rows, len(job.participants), max(job.rounds or 0, round_))
        self.policy.check_holdout(job.data.holdout)
        self.policy.check_made(preprocessing.made(steps))
        self.policy.check_levels(len(job.data.levels))
        if job.data.levels and len(job.data.classes or ()) > MOST_CROSSED:
            raise SafeError(crossed(job.data.subgroup))
        limit_threads()
        self.source = open_database(database)
        if schema is not None and self.source.table is not None:
            self.job = replace(self.job, data=schema.named(self.job.data))
        # on a developer's own rows too: a job with noise is then what it is at a hospital with a budget
        self.schema = self._declared() if self.policy.private or job.privacy is not None else None
        self.noising = noising.of_node(job, request, self.schema)
        if self.schema is None and not self.policy.allow_numeric_names:
            self.source.check_header()  # before any name of a column is in an answer or an error; it reads rows
        self._total = self.source.size
        if self.schema is not None:
            self._total = self.schema.n or self._total
            arrays, reads = self.source.table is None, request.entry.function not in quota.FREE
            noising.check_declared(self.job, self.schema, self.policy, arrays, reads)
            self.source = conformed(self.source, self.schema)
            if self.noising is not None:
                self.noising.rows = self.source
        features, label = self.source.columns(self.job.data)
        if self.source.table is not None:
            used = [*features, *filter(None, [label, job.data.subgroup]), *self.job.data.special]
            self.policy.check_columns(used, self.source.twins(used))

    @staticmethod
    def state_of(organization_id: int, job: Job, round_: int) -> State:
        """What an organization's node keeps for a job.

        Args:
            organization_id: the organization.
            job: what central tells all nodes.
            round_: the round that is running, whose state ``save`` keeps.

        Returns:
            The state.

        Raises:
            SafeError: the job is malformed.
        """
        job.check(organization_id, round_)
        noisy = "" if job.privacy is None else "-noisy"  # what was kept without noise must not be sent with it
        return State(job_folder(), f"{job.method}-{job.key}-{organization_id}{noisy}", round_)

    def _declared(self) -> Schema | None:
        found = None if self.request.folder is None else Schema.of_folder(self.request.folder.path)
        if found is None and self.policy.private:
            raise NodePermissionException(
                "a privacy budget needs schema.json in the hospital's folder, which says what the rows can hold; its "
                f"operator writes one with `v6-federated schema new`. {NOTHING_COMPUTED}"
            )
        return found

    @functools.cached_property
    def identity(self) -> int:
        """What decides which rows are held out, and random numbers, see ``source.identity_of``."""
        return identity_of(self.organization_id, self.policy, self.request.folder)

    @functools.cached_property
    def model(self) -> models.Model:
        """The model that the job names.

        Raises:
            SafeError: it does not fit the label or the data.
        """
        assert self.job.model is not None
        spec = models.parse(self.job.model)
        self.policy.check_size(models.parameters(spec), f"the model {spec['name']}")
        d = self.width
        if spec.get("features") != d:  # before it is built: a network for a million columns would fill the memory
            raise SafeError(f"the job's model does not have {d} features, as many as there are columns after the steps")
        model = models.build(spec)
        if self.job.data.regression and not model.traits.regression:
            # its loss would reveal single labels, and the limits on labels count classes
            raise SafeError(f"the model {self.job.model['name']} predicts classes and cannot be used for a regression")
        if self.job.aggregation != "plain" and model.traits.plain_only:
            raise SafeError(f"the model {self.job.model['name']} can be used with aggregation=plain only")
        if self.job.data.missing and not model.traits.takes_missing:
            raise SafeError(f"the model {self.job.model['name']} takes no missing values; add a step impute")
        if self.source.table is not None and model.traits.arrays_only:
            raise SafeError(f"the model {self.job.model['name']} cannot read a table; it needs arrays (.npz)")
        self.policy.check_size(model.size or 0, f"the model {spec['name']}")  # a method's own may be larger
        if (outcome := self._outcome_of(model)) is not None:
            outcome.guard = functools.partial(self.policy.check_dominance, remedy=FAR_APART)
            outcome.events = self.policy.check_batch_events
        model.seed(self.generator("model"))
        return model

    @staticmethod
    def _outcome_of(model: Any) -> Outcome | None:
        """What a model predicts in place of classes; None for classes, and for models of methods' own."""
        found: Outcome | None = getattr(model, "outcome", None)
        return found

    @property
    def width(self) -> int:
        """How many columns there are after the steps; no row is read."""
        layout = self.source.features(self.job.data).take(slice(0))
        return len(preprocessing.apply(layout, self.job.data.preprocess).names)

    @functools.cached_property
    def rows(self) -> Rows:
        """The rows to train on.

        Raises:
            PrivacyThresholdViolation: there are fewer rows than the minimum.
        """
        self._check_covered()
        self._check_rows()
        return self._rows

    def _check_covered(self) -> None:
        """Refuse to read rows for a function without noise, in a job with noise."""
        if self.noising is not None:
            raise SafeError(noising.UNCOVERED)

    @property
    def _rows(self) -> Rows:
        if self.job.data.missing and (self.job.model is None or self.model is None):  # the model says whether it may
            raise SafeError("a job without a model takes no missing values; add a step impute")
        return self.source.prepared(self.job.data, self.identity, self.policy)[0]

    @property
    def n(self) -> int:
        """The number of rows to train on.

        Raises:
            PrivacyThresholdViolation: there are fewer rows than the minimum, the label has too many values, or the
                job names a class that too few rows have.
        """
        return self._counted[0]

    def _check_rows(self) -> None:
        """Check the limits on the rows to train on, before any of them is used."""
        _ = self._counted

    @functools.cached_property
    def _counted(self) -> tuple[int, float]:
        """How many rows there are to train on, and as which share of them they count with the weights of classes."""
        if self.noising is not None:  # public, as the budget counts what rows hold and not how many there are
            return self._total - self._held_out, 1.0
        share = 1.0
        kept, _ = self.source.split(self.job.data, self.identity, self.policy.minimum_rows)
        n = len(self.source.labels(self.job.data)[kept])
        self.policy.check_rows(n, self.job.minimum_rows)
        if self.job.data.regression and self.job.loss and (outcome := self._outcome_of(self.model)) is not None:
            self._check_numbers(outcome, kept)
        if self.job.data.supervised and not self.job.data.regression:
            values, counts = np.unique(self.source.labels(self.job.data)[kept], return_counts=True)
            named = self.job.data.classes or []
            self.policy.check_labels(n, len(values), len(named))
            rows = dict(zip(map(plain, values), counts.tolist(), strict=True))
            counted = {c: rows.get(c, 0) for c in map(plain, named)}
            self.policy.check_named_classes(counted)
            if (weights := getattr(self.model, "class_weights", None) if self.job.model else None) is not None:
                share = self.policy.check_weights([*counted.values()], weights.tolist(), self.job.minimum_rows)
        return n, share

    def _check_numbers(self, outcome: Outcome, kept: Array | slice) -> None:
        """Refuse labels that the outcome cannot have, or that single out a few of the rows to train on."""
        labels = self.source.labels(self.job.data)
        if expected := outcome.problem(labels):
            raise SafeError(f"loss={outcome.name} does not fit this label; expected {expected}")
        if outcome.name == "cox":
            if self.job.data.event is None:
                times.check_times(labels)
            self.policy.check_events(int(times.parted(labels[kept])[1].sum()))
        else:
            self._check_label(labels[kept])

    def _check_label(self, labels: Array) -> None:
        column = Features([self.job.data.label or "label"], labels[:, None], {})
        self.policy.check_marks(column.names[0], len(column.marks(self.policy.minimum_rows_a_side).columns))

    @property
    def numbers(self) -> Array:
        """The labels of the rows to train on, which are numbers to predict (n,), float64.

        Raises:
            SafeError: the labels are classes, or times.
            PrivacyThresholdViolation: there are fewer rows than the minimum, or all but a few have the same label.
        """
        spec = self.job.data
        if not spec.regression or spec.event is not None:
            raise SafeError("the task asks for the moments of a label of classes; moments need a label of numbers")
        if self.noising is not None:
            raise SafeError(noising.UNCOVERED)
        self._check_rows()
        labels = self.source.labels(spec)[self.source.split(spec, self.identity, self.policy.minimum_rows)[0]]
        self._check_label(labels)
        return labels

    @property
    def minimum_batch(self) -> int:
        """Rows that a minibatch must have: more than the operator's minimum if weights of classes make rows count less.

        Otherwise the step on a minibatch with one row of a heavy class would be that row.
        """
        least, share = self.policy.minimum_batch, self._counted[1]
        return least if least <= 1 else math.ceil(least / share)

    @property
    def labels(self) -> Array:
        """The labels of the rows to train on, as indices of the job's classes (n,).

        Raises:
            PrivacyThresholdViolation: there are fewer rows than the minimum.
        """
        self._check_covered()
        self._check_rows()
        assert self.job.data.classes is not None
        kept, _ = self.source.split(self.job.data, self.identity, self.policy.minimum_rows)
        return encode_labels(self.source.labels(self.job.data)[kept], self.job.data.classes)

    @functools.cached_property
    def _held_out(self) -> int:
        """How many rows are held out of as many as the node says that it has."""
        holdout = self.job.data.holdout
        return len(split(self._total, holdout, self.identity, self.policy.minimum_rows)[1]) if holdout else 0

    @functools.cached_property
    def features(self) -> Features:
        """The features of the same rows for statistics: after the steps so far, in the precision of the table.

        Raises:
            DataError: values are infinite.
        """
        self._check_covered()
        self._check_rows()
        self.source.features(self.job.data).check_finite()
        features = self.source.training(self.job.data, self.identity, self.policy)
        levelling = preprocessing.Levelling(self.policy.minimum_rows_a_side)
        return preprocessing.apply(features, self.job.data.preprocess, levelling.fit)

    def special(self, name: Literal["offset", "weights", "event", "time"], default: float) -> Array:
        """Return a column that is neither a feature nor the label, for the rows to train on.

        Args:
            name: which of the job's ``DataSpec`` names it.
            default: what it holds if the job names none.

        Returns:
            Numbers (n,), float64.

        Raises:
            DataError: values are missing, or not numbers.
            PrivacyThresholdViolation: all rows but a few have the same value.
        """
        self._check_covered()
        column = getattr(self.job.data, name)
        if column is None:
            return np.full(self.n, default)
        kept, _ = self.source.split(self.job.data, self.identity, self.policy.minimum_rows)
        found = self.source.special(column).take(kept)
        if name != "event":  # few events are another matter, see ``Policy.check_events``
            self.policy.check_marks(column, len(found.marks(self.policy.minimum_rows_a_side).columns))
        return found.X[:, 0]

    def times(self) -> tuple[Array, Array]:
        """Return the times of the rows to train on: the label, or a column of its own if there is none.

        Returns:
            Times of the event or of censoring (n,), and 1 for an event or 0 for censoring (n,), float64.

        Raises:
            SafeError: the column of events holds other numbers than 0 and 1.
            PrivacyThresholdViolation: there are too few rows or events.
        """
        if not self.job.data.supervised:
            time, event = times.parted(times.signed(self.special("time", 0.0), self.special("event", 1.0)))
        elif self.job.data.event is None:
            time, event = self.rows.y, np.ones(self.n)
        else:
            time, event = times.parted(self.rows.y)
        self.policy.check_events(int(event.sum()))
        return time, event

    def groups(self) -> Array:
        """Sort the rows to train on by the levels of the job's column of subgroups.

        Returns:
            The index of each row's level (n,); 0 if the job names no column, and -1 in rows with none of the levels,
            or with one that too few rows have.
        """
        self._check_covered()
        spec = self.job.data
        if spec.subgroup is None:
            return np.zeros(self.n, np.intp)
        kept, _ = self.source.split(spec, self.identity, self.policy.minimum_rows)
        said = self.source.words(spec.subgroup)[kept]
        place = {level: i for i, level in enumerate(spec.levels)}
        found = np.array([place.get(word, -1) for word in said], np.intp)
        rows = np.bincount(found[found >= 0], minlength=len(place))
        return np.where(rows[found] < self.policy.minimum_rows_a_class, -1, found)

    def check_time(self) -> None:
        """End a task that takes longer than the operator allows.

        Raises:
            NodePermissionException: it does.
        """
        self.policy.check_seconds(time.monotonic() - self._began)

    def generator(self, purpose: str) -> np.random.Generator:
        """Return random numbers that depend on the job's seed, this node and this round.

        Args:
            purpose: what they are for; each purpose has its own numbers.

        Returns:
            A new generator.
        """
        return generator(self.job.seed, purpose, self.identity, self.round)

    @functools.cached_property
    def _shuffle(self) -> np.random.Generator:
        # the job's seed determines the order: the researcher, who knows it, knows which rows are in a minibatch
        return self.request.generator("shuffle") if self.policy.own_shuffle else self.generator("shuffle")

    def permutation(self) -> Iterator[int]:
        """Go through the node's rows in random order, the one that the next epoch of ``batches`` would have.

        Yields:
            The index of a row, for a step on this row alone.

        Raises:
            PrivacyThresholdViolation: the operator does not allow steps on one row.
            SafeError: no setting declared such steps, so their length was not checked.
            NodePermissionException: the task takes longer than the operator allows.
        """
        self._check_batch(1)
        for i in self._shuffle.permutation(len(self.rows)):
            self.check_time()
            yield i

    def steps_per_epoch(self, batch_size: int | None) -> int:
        """Count the minibatches of one epoch of ``batches``.

        Args:
            batch_size: rows of a minibatch; None means all rows.

        Returns:
            Their number.
        """
        if self.noising is not None:
            return self.noising.steps_per_epoch
        return local_training.steps_per_epoch(len(self.rows), batch_size, self.minimum_batch)

    def steps_of(self, local: PlainSGD) -> int:
        """Count the local steps of a round.

        Args:
            local: epochs or steps, and minibatches.

        Returns:
            Their number.
        """
        return local.local_steps or local.epochs * self.steps_per_epoch(local.batch_size)

    def batches(self, epochs: int, batch_size: int | None) -> Iterator[tuple[Any, Any]]:
        """Go through the node's rows in minibatches.

        If fewer rows than the operator's minimum are left at the end of an epoch, they join the minibatch before.

        Args:
            epochs: passes over the rows.
            batch_size: rows of a minibatch; None means all rows.

        Yields:
            X (b, ...) and y (b,) of a minibatch, as the model takes them.

        Raises:
            PrivacyThresholdViolation: minibatches are smaller than the operator's minimum.
            SafeError: no setting declared this size, so the length of the steps was not checked.
            NodePermissionException: the task takes longer than the operator allows.
        """
        X, y = self.model.asarray(self.rows.X), self.model.asarray(self.rows.y)
        for batch in self._indices(epochs, batch_size):
            yield X[batch], y[batch]

    def _indices(self, epochs: int, batch_size: int | None) -> Iterator[Any]:
        """The indices of the rows of each minibatch, or a slice of all rows."""
        if batch_size is not None:
            self._check_batch(batch_size)
        least = self.minimum_batch
        for batch in local_training.batches(self._shuffle, len(self.rows), epochs, batch_size, least):
            self.check_time()
            yield batch

    def _check_batch(self, batch_size: int) -> None:
        self.policy.check_batch(batch_size, self.minimum_batch)
        if batch_size not in self.batch_sizes and self.steps_per_epoch(batch_size) > 1:
            raise SafeError(
                f"minibatches of {batch_size} rows are refused because the length of their steps was not checked; "
                "declare the size as a setting of type BatchSize"
            )

    def rates(self, local: PlainSGD, *, round_: int | None = None, steps_before: int | None = None) -> Rates:
        """Return the learning rates of a round.

        Args:
            local: learning rate and decays.
            round_: the round t = 1, 2, ...; None means this round.
            steps_before: local steps in all rounds before; None means ``steps_of(local)`` in each.

        Returns:
            A function: eta of local step i = 0, 1, ...
        """
        t = self.round if round_ is None else round_
        if steps_before is None:
            steps_before = (t - 1) * self.steps_of(local)
        return local_training.schedule(local, t, steps_before)

    def optimizer(self, local: LocalSGD, w_t: Any, rates: Rates | None = None) -> Step:
        """Return the optimiser that ``local`` names. Use one for several calls of ``train``: it counts its steps.

        Args:
            local: optimiser, momentum, and mu of FedProx.
            w_t: the model (d,) that FedProx pulls towards.
            rates: eta of each step; None means ``rates(local)``.

        Returns:
            A function ``step(w, g)`` that takes a step from ``w`` (d,) in place, and may overwrite ``g`` (d,).
        """
        return local_training.optimizer(local, self.rates(local) if rates is None else rates, w_t)

    def train(self, w: Any, local: PlainSGD, step: Step | None = None, *, epochs: int | None = None) -> float | None:
        """Train ``w`` on the node's rows: w <- w - eta g for each minibatch.

        Args:
            w: the model (d,), changed in place.
            local: epochs, minibatches, learning rates and optimiser.
            step: what to do with each minibatch's gradient, ``step(w, g)``; None means the optimiser in ``local``.
            epochs: passes over the rows; None means the number in ``local``, or its ``local_steps``.

        Returns:
            The mean loss over all rows and passes, each before its step; rounded if the operator wants it. None if the
            job has a privacy plan, whose noise covers no losses.

        Raises:
            PrivacyThresholdViolation: minibatches are smaller than the operator's minimum.
            NodePermissionException: the task takes longer than the operator allows.
        """
        if step is None:
            assert isinstance(local, LocalSGD)
            step = self.optimizer(local, w + 0 if local.proximal_mu else w)
        if self.noising is not None:
            self._train_with_noise(w, step, (local.epochs if epochs is None else epochs) * self.noising.steps_per_epoch)
            return None
        if local.local_steps is not None and epochs is not None:
            raise SafeError("local_steps cannot be used where a method counts epochs; leave it out")
        steps, passes = local.local_steps, local.epochs if epochs is None else epochs
        if steps is not None:
            passes = -(-steps // self.steps_per_epoch(local.batch_size))
        loss, n = 0.0, 0
        if (descended := self._descended(w, step, passes, local.batch_size, steps)) is not None:
            loss, n = descended
            return self.rounded(loss / n)
        for X, y in itertools.islice(self.batches(passes, local.batch_size), steps):
            batch_loss, g = self.model.loss_and_gradient(w, X, y)
            step(w, g)
            loss, n = loss + len(y) * batch_loss, n + len(y)
        return self.rounded(loss / n)

    def _descended(
        self, w: Any, step: Step, passes: int, batch_size: int | None, steps: int | None
    ) -> tuple[float, int] | None:
        """The sum of the losses and the number of rows, if the model takes the steps of plain SGD by itself."""
        model: Any = self.model
        if batch_size is None or self.steps_per_epoch(batch_size) == 1 or not isinstance(step, local_training.Descent):
            return None
        if not hasattr(model, "descends") or not model.descends(batch_size):
            return None
        batches = itertools.islice(self._indices(passes, batch_size), steps)
        found: tuple[float, int] = model.descend(w, self.rows.X, self.rows.y, batches, step.rate)
        return found

    def _train_with_noise(self, w: Any, step: Step, steps: int) -> None:
        """DP-SGD (Abadi et al. 2016, Algorithm 1): each step on a noisy sum of clipped gradients of sampled rows."""
        assert self.noising is not None
        self._check_classes()
        first = self.noising.use("steps", steps)
        X, y = self.model.asarray(self._rows.X), self.model.asarray(self._rows.y)
        for i in range(first, first + steps):
            self.check_time()
            step(w, self._noisy_gradient(w, X, y, i, shared=False)[1])

    def noisy_gradient(self, w: Any) -> Array:
        """Add up the clipped gradients of a sample of the rows, with the node's share of the block's noise.

        Args:
            w: the model (d,).

        Returns:
            The sum (d,), int64, in units of the clip divided by ``units.GRADIENT``. Central must learn nothing but the
            sum over a block of it.

        Raises:
            SafeError: the job has no privacy plan.
            NodePermissionException: its plan has no step left.
        """
        if self.noising is None:
            raise SafeError("noisy_gradient needs a privacy plan; set clip")
        self._check_classes()
        i = self.noising.use("steps", 1)
        X, y = self.model.asarray(self._rows.X), self.model.asarray(self._rows.y)
        return self._noisy_gradient(w, X, y, i, shared=True)[0]

    @property
    def clip(self) -> float:
        """C, the largest norm of what a row contributes to a sum with noise.

        Raises:
            SafeError: the job has no privacy plan.
        """
        if self.noising is None:
            raise SafeError("sums with noise need a privacy plan; set clip")
        return self.noising.plan.clip

    def noisy_sum(self, summed: Callable[[Rows], Array], size: int, reach: float, parts: int = 1) -> Array:
        """Add up what the rows contribute, in whole numbers, with the node's share of the block's noise.

        Args:
            summed: returns the sum over some rows, int64. What one row contributes follows from this row alone.
            size: how many numbers the sum has.
            reach: the largest L2 norm of what one row contributes.
            parts: how many of the plan's sums this one takes the place of: k sums with noise z tell as much as one
                with noise z / sqrt(k).

        Returns:
            The sum, int64. Central must learn nothing but the sum over a block of it.

        Raises:
            SafeError: the job has no privacy plan.
            PrivacyThresholdViolation: the sum has more numbers than the operator allows.
            NodePermissionException: its plan has no such sum left.
        """
        if self.noising is None:
            raise SafeError("sums with noise need a privacy plan; set clip")
        self.policy.check_size(size, "the sum with noise")
        number = self.noising.use("statistics", parts)
        return self.noising.statistic(summed(self._rows), reach / math.sqrt(parts), number)

    @property
    def bounds_of_label(self) -> tuple[float, float]:
        """The smallest and the largest label that the schema declares; 0 and 1 for two classes, which are indices.

        Raises:
            SafeError: nothing is declared.
        """
        if not self.job.data.regression:
            return 0.0, len(self.job.data.classes or ()) - 1.0
        if self.schema is None or self.schema.bounds is None:
            raise SafeError("a number with noise needs the label's bounds in schema.json; declare lower and upper")
        lower, upper = self.schema.bounds
        return float(lower), float(upper)

    @property
    def variance_for_persons(self) -> Array:
        """By how much rows of one person multiply the variance of the node's noise (1,): m^2, as declared."""
        return np.array([1 if self.noising is None else self.noising.rows_of_a_person**2], np.int64)

    def _check_classes(self) -> None:
        if self.job.data.regression:
            raise SafeError("a regression cannot be used with clip here; choose a label of classes")

    def _noisy_gradient(self, w: Any, X: Any, y: Any, i: int, shared: bool) -> tuple[Array, Any]:
        """The noisy sum of step i in units, and the mean that it stands for."""
        assert self.noising is not None
        rows = self.noising.sample(self._rows, i)
        total = self.noising.gradient(self.model, w, X[rows], y[rows], i, shared)
        plan = self.noising.plan
        mean = total * (plan.clip / units.GRADIENT / (plan.rate * self.n))
        return total, self.model.asarray(mean.astype(np.float32)) + clipping.penalty_gradient(self.model, w)

    def keep_own_model(self, w: Any) -> None:
        """Have the node's own model evaluated, and keep it for the hospital's people.

        It lies in the hospital's folder, if there is one, as a file that ``v6-federated predict`` reads. Models of the
        latest ``MOST_OWN_MODELS`` jobs are kept.

        Args:
            w: the model (d,).
        """
        self.own_model = w
        if self.request.folder is None:
            return
        data = self.job.to_json()["data"]
        about = {"method": self.job.method, "model": self.job.model, "data": data, "arrays": ["weights"]}
        text = np.frombuffer(json.dumps(about).encode(), np.uint8)
        folder = self.request.folder.path / OWN_MODELS
        try:
            with replacing(folder / f"{self.job.key}.npz") as stream:
                np.savez(stream, weights=np.asarray(w.cpu() if hasattr(w, "cpu") else w), about=text)
            (folder / f"{self.job.key}.npz").chmod(0o640)
            keep_latest(folder, "*.npz", MOST_OWN_MODELS)
        except OSError as error:  # a full disk must not end the job of all hospitals
            print(f"this hospital's own model could not be written: {error.strerror}", flush=True)

    def loss(self, w: Any) -> float:
        """Compute the mean loss on the node's rows.

        Args:
            w: the model (d,).

        Returns:
            The mean loss; rounded if the operator wants it.
        """
        return self.rounded(self.model.loss(self.model.scores(w, self.model.asarray(self.rows.X)), self.rows.y))

    def rounded(self, value: float) -> float:
        """Round a mean over the rows, or a distance of models, if the operator wants evaluations rounded.

        The partial functions round what they return under names that end in ``loss``. What a method decides by must be
        rounded before: its decisions, too, tell of the rows.

        Args:
            value: the number.

        Returns:
            The number, rounded to about its standard error.
        """
        if not self.policy.round_evaluations or not math.isfinite(value):
            return value
        if self.job.data.regression:  # in the label's own unit there is no smallest step
            return rounded_to(value, value, len(self.rows)) if value > 0 else value
        return rounded_loss(value, len(self.rows))

    def evaluate(self, weights: Any, which: str) -> dict[str, Any]:
        """Count how well a model does.

        Args:
            weights: the model (d,).
            which: "held_out" for the rows held out, or "all" at a node that only evaluates.

        Returns:
            The counts, see ``metrics.evaluate`` and ``metrics.evaluate_regression``; if the node has too few rows to
            hold any out, only ``n``, which is 0.

        Raises:
            SafeError: a score is not finite.
            PrivacyThresholdViolation: there are fewer rows than the minimum.
        """
        if self.noising is not None:
            return self._evaluate_with_noise(weights, which)
        if which == "all":
            self._check_rows()
            rows, _ = self.source.prepared(self.job.data, self.identity, self.policy, trains=False)
            self.evaluated = rows, slice(None)
        else:
            _, rows = self.source.prepared(self.job.data, self.identity, self.policy)
            if not len(rows):
                return {"n": 0}
            self.evaluated = rows, self.source.split(self.job.data, self.identity, self.policy.minimum_rows)[1]
        if self.job.data.regression:
            if self.job.aggregation != "plain" and self.model.traits.plain_evaluation:
                # chosen coefficients can make the error of one row outweigh all others, whatever sum it is in
                raise SafeError(
                    "such a number is evaluated with aggregation=plain only; leave out holdout and evaluators"
                )
            least = self.policy.minimum_rows_a_side
            return metrics.evaluate_regression(self.model, weights, rows, self.policy.round_evaluations, least)
        assert self.job.data.classes is not None
        classes = len(self.job.data.classes)
        return metrics.evaluate(self.model, weights, rows, classes, self.policy.score_bands, self.rounding)

    @property
    def rounding(self) -> Rounding | None:
        """How the node rounds counts of evaluations; None if its operator does not want it."""
        step = self.policy.minimum_rows_a_class
        return Rounding.of(step, self.identity) if self.policy.round_evaluations else None

    def _evaluate_with_noise(self, weights: Any, which: str) -> dict[str, Any]:
        """Counts with noise, in units of a row divided by ``units.COUNT``; no loss, which no noise covers."""
        assert self.noising is not None
        self._check_classes()
        assert self.job.data.classes is not None
        if which != "held_out":
            raise SafeError(noising.UNCOVERED)
        if not self.model.traits.row_by_row:
            clipping.check(self.model)  # of these models each row has a score of its own; others refuse all for one
        number = self.noising.use("evaluations", 1)
        classes, bands = len(self.job.data.classes), self.policy.score_bands
        _, rows = self.source.prepared(self.job.data, self.identity, self.policy)
        self.evaluated = rows, slice(None)
        try:
            found = metrics.evaluate(self.model, weights, rows, classes, bands, row_by_row=True)
        except SafeError:  # the score of a row of zeros is not finite, whatever the rows are
            found = {"n": 0}
        counted = metrics.to_sums({"bands": [], "loss": 0.0, **found}, classes, bands)
        reach = metrics.reach(len(counted["bands"]))
        noisy = {name: self.noising.counts(counted[name], reach, f"{name} {number}") for name in ("confusion", "bands")}
        return {"n": self._held_out, **noisy}
