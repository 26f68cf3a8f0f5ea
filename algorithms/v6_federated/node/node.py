"""A node as a partial function sees it: its own rows, its model, its random numbers, and its operator's limits."""

import functools
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from v6_federated import models
from v6_federated.base.errors import SafeError
from v6_federated.base.randomness import generator
from v6_federated.base.vantage6_api import job_folder
from v6_federated.data import preprocessing, source
from v6_federated.data.columns import Features
from v6_federated.messages.job import Job
from v6_federated.messages.local_sgd import LocalSGD, PlainSGD
from v6_federated.models import metrics
from v6_federated.node import local_training
from v6_federated.node.kept_steps import kept
from v6_federated.node.local_training import Rates, Step
from v6_federated.node.state import State
from v6_federated.privacy.policy import Policy, number_of_threads


class Node:
    """One node in one round of a job.

    Raises, when made or when its rows are first used, what the operator's policy or the data refuse.

    Attributes:
        organization_id: whose node it is.
        round: the round, from 1; 0 is the preparation.
        job: what central said.
        policy: what the operator allows.
        state: what this node keeps from round to round; nothing of it travels.
        batch_sizes: the sizes of minibatches whose steps were checked.
    """

    def __init__(self, organization_id: int, database: Any, job: Job, round_: int) -> None:
        self.organization_id, self.round = organization_id, round_
        self.state = self.state_of(organization_id, job, round_)
        steps = kept(job.data.preprocess, self.state)
        self.job = replace(job, data=replace(job.data, preprocess=steps))
        self.batch_sizes: set[int] = set()
        self.policy, self._began = Policy.of_node(), time.monotonic()
        self.policy.check_request(job.minimum_rows, len(job.participants), max(job.rounds or 0, round_))
        limit_threads()
        self.source = source.open_source(database)
        features, label = self.source.columns(job.data)
        if self.source.table is not None:
            used = [*features, *filter(None, [label])]
            self.policy.check_columns(used, self.source.twins(used))

    @staticmethod
    def state_of(organization_id: int, job: Job, round_: int) -> State:
        """What the organization's node keeps for the job. Raises SafeError for a job that is none."""
        _check_job(job, round_, organization_id)
        return State(job_folder(), f"{job.method}-{job.key}-{organization_id}", round_)

    @functools.cached_property
    def model(self) -> models.Model:
        """The model, as the job names it."""
        assert self.job.model is not None
        model = models.build(self.job.model)
        if self.job.data.regression and not getattr(model, "regression", False):
            # its loss would tell of each number, and no limit on labels holds for numbers
            raise SafeError(f"the model {self.job.model['name']} predicts classes; expected them, not a regression")
        if self.source.table is not None and getattr(model, "arrays_only", False):
            raise SafeError(f"the model {self.job.model['name']} takes no table; expected arrays (.npz)")
        model.seed(self.generator("model"))
        return model

    @functools.cached_property
    def rows(self) -> source.Rows:
        """The rows to train on. Refused if they are fewer than the minimum."""
        assert self.n
        return self.source.prepared(self.job.data, self.organization_id, self.policy)[0]

    @functools.cached_property
    def n(self) -> int:
        """The number of rows to train on. Refused if they are fewer than the minimum."""
        kept, _ = self.source.split(self.job.data, self.organization_id, self.policy.minimum_rows)
        n = len(self.source.labels(self.job.data)[kept])
        self.policy.check_rows(n, self.job.minimum_rows)
        if self.job.data.supervised and not self.job.data.regression:
            values = len(np.unique(self.source.labels(self.job.data)[kept]))
            self.policy.check_labels(n, values, len(self.job.data.classes or []))
        return n

    @functools.cached_property
    def features(self) -> Features:
        """The same rows' features as statistics are of: after the steps so far, as precise as the table has them."""
        assert self.n
        self.source.features(self.job.data).check_finite()
        features = self.source.training(self.job.data, self.organization_id, self.policy)
        return preprocessing.apply(features, self.job.data.preprocess)

    def check_time(self) -> None:
        """End a task that takes longer than the operator allows."""
        self.policy.check_seconds(time.monotonic() - self._began)

    def generator(self, purpose: str) -> np.random.Generator:
        """Random numbers for one purpose of this node in this round."""
        return generator(self.job.seed, purpose, self.organization_id, self.round)

    @functools.cached_property
    def _shuffle(self) -> np.random.Generator:
        # whoever knows the seed knows the order, and from many jobs the rows of each minibatch
        return np.random.default_rng() if self.policy.own_shuffle else self.generator("shuffle")

    def permutation(self) -> Iterator[int]:
        """The node's rows in random order, one a step: that of the next epoch of ``batches``."""
        self._check_batch(1)
        for i in self._shuffle.permutation(len(self.rows)):
            self.check_time()
            yield i

    def steps_per_epoch(self, batch_size: int | None) -> int:
        """Minibatches of one epoch of ``batches``."""
        return local_training.steps_per_epoch(len(self.rows), batch_size, self.policy.minimum_batch)

    def batches(self, epochs: int, batch_size: int | None) -> Iterator[tuple[Any, Any]]:
        """(X, y) of each minibatch of the node's rows, over ``epochs`` passes. None is of fewer rows than the
        operator's minimum, the last of an epoch neither, unless the node has no more."""
        if batch_size is not None:
            self._check_batch(batch_size)
        X, y = self.model.asarray(self.rows.X), self.model.asarray(self.rows.y)
        least = self.policy.minimum_batch
        for batch in local_training.batches(self._shuffle, len(self.rows), epochs, batch_size, least):
            self.check_time()
            yield X[batch], y[batch]

    def _check_batch(self, batch_size: int) -> None:
        self.policy.check_batch(batch_size)
        if batch_size not in self.batch_sizes and self.steps_per_epoch(batch_size) > 1:
            raise SafeError(
                f"minibatches of {batch_size} rows are refused: the length of their steps was not checked; expected "
                "the size that a setting of type BatchSize has"
            )

    def rates(self, local: PlainSGD, *, round_: int | None = None, steps_before: int | None = None) -> Rates:
        """eta of local step i = 0, 1, ... of this round.

        Args:
            local: rate and decays.
            round_: the round t = 1, 2, ... whose rates are wanted; None is this one.
            steps_before: local steps of all rounds before; None is E epochs in each of them.
        """
        t = self.round if round_ is None else round_
        if steps_before is None:
            steps_before = (t - 1) * local.epochs * self.steps_per_epoch(local.batch_size)
        return local_training.schedule(local, t, steps_before)

    def optimizer(self, local: LocalSGD, w_t: Any, rates: Rates | None = None) -> Step:
        """The optimiser that ``local`` names, for several calls of ``train``: it goes on counting its steps.

        Args:
            local: optimiser, momentum, and mu of FedProx.
            w_t: the model (d,) that FedProx pulls towards.
            rates: eta of each step; None is ``rates(local)``.
        """
        return local_training.optimizer(local, self.rates(local) if rates is None else rates, w_t)

    def train(self, w: Any, local: PlainSGD, step: Step | None = None, *, epochs: int | None = None) -> float:
        """Train ``w`` (d,) in place on the node's rows: w <- w - eta g for each minibatch.

        Args:
            w: the model, changed in place.
            local: epochs, minibatches, rates and optimiser.
            step: what is done with each minibatch's gradient, ``step(w, g)``; None: the optimiser in ``local``.
            epochs: passes over the rows; None is the number that ``local`` names.

        Returns:
            The mean loss on the way.
        """
        if step is None:
            assert isinstance(local, LocalSGD)
            step = self.optimizer(local, w + 0 if local.proximal_mu else w)
        loss, n = 0.0, 0
        for X, y in self.batches(local.epochs if epochs is None else epochs, local.batch_size):
            batch_loss, g = self.model.loss_and_gradient(w, X, y)
            step(w, g)
            loss, n = loss + len(y) * batch_loss, n + len(y)
        return loss / n

    def loss(self, w: Any) -> float:
        """Mean loss of ``w`` on the node's rows."""
        return self.model.loss(self.model.scores(w, self.model.asarray(self.rows.X)), self.rows.y)

    def evaluate(self, weights: Any, which: str) -> dict[str, Any]:
        """Counts of how well ``weights`` do on the rows held out, or on its rows (``which`` is "held_out" or "all").

        A node with too few rows to hold any out gives none: n is 0.
        """
        if which == "all":
            assert self.n
            rows, _ = self.source.prepared(self.job.data, self.organization_id, self.policy, trains=False)
        else:
            _, rows = self.source.prepared(self.job.data, self.organization_id, self.policy)
            if not len(rows):
                return {"n": 0}
        if self.job.data.regression:
            return metrics.evaluate_regression(self.model, weights, rows)
        assert self.job.data.classes is not None
        return metrics.evaluate(self.model, weights, rows, len(self.job.data.classes), self.policy.score_bands)


def _check_job(job: Job, round_: int, organization_id: int) -> None:
    """Refuse a job that does not say who takes part, or a round that is none: a task may say anything."""
    if not re.fullmatch("[0-9a-f]{32}", str(job.key)) or not re.fullmatch("[a-z0-9_]{1,40}", str(job.method)):
        raise SafeError("the job has no proper key or method; expected 32 hexadecimal digits and a method's name")
    ids = [*job.participants, *job.evaluators] if isinstance(job.participants, list) else []
    if len(set(ids)) < len(ids) or not all(type(i) is int for i in ids) or organization_id not in ids:
        raise SafeError("the job does not list who takes part; expected ids, each once, this organization's among them")
    if type(round_) is not int or round_ < 0:
        raise SafeError("the round of the task is not a whole number from 0")
    spec = job.data
    whole = (job.seed, job.rounds or 0, job.minimum_rows or 0)
    texts = ([] if spec.label is None else [spec.label], spec.features or [], spec.categories or [])
    if not (
        all(type(number) is int and number >= 0 for number in whole)
        and all(isinstance(names, list | tuple) and all(isinstance(n, str) for n in names) for names in texts)
        and isinstance(spec.classes, list | tuple | None)
        and type(spec.holdout) in (int, float)
        and 0 <= spec.holdout < 1
        and type(spec.supervised) is bool
        and type(spec.regression) is bool
        and isinstance(spec.preprocess, list | tuple)
        and all(isinstance(step, dict) for step in spec.preprocess)
        and isinstance(job.model, dict | None)
    ):
        raise SafeError("the job is not described as central does; expected its settings, each of its own type")
    classes = spec.classes  # limits on labels are checked by their number
    if classes is not None and (spec.regression or not spec.supervised or len({*map(str, classes)}) < len(classes)):
        raise SafeError("the job names classes for labels that are none, or one twice; expected each once, or none")
    if job.model is not None and job.model.get("classes") != (1 if spec.regression else len(classes or [])):
        raise SafeError("the job's model has other classes than the job names; expected as many, one of a regression")


@functools.cache
def limit_threads() -> None:
    """One thread unless the operator gives more, so that bits do not depend on the machine's load."""
    threadpool_limits(limits=number_of_threads())
