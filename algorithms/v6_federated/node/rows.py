"""The rows of a node as a partial function sees them, and the operator's limits on them."""

import contextlib
import functools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from v6_federated import models
from v6_federated.base.arrays import Array
from v6_federated.base.errors import SafeError
from v6_federated.base.randomness import generator
from v6_federated.base.text import NOTHING_COMPUTED
from v6_federated.base.vantage6_api import NodePermissionException, job_folder
from v6_federated.data import preprocessing, times
from v6_federated.data.columns import Features
from v6_federated.data.declared import conformed
from v6_federated.data.labels import encode_labels, plain
from v6_federated.data.opening import open_database
from v6_federated.data.source import Rows, identity_of, split
from v6_federated.masks.exact import EXACTLY, FLOATS, Adding
from v6_federated.messages.job import Job
from v6_federated.messages.result import MOST_CROSSED, crossed
from v6_federated.models.outcomes import Outcome
from v6_federated.node import noising
from v6_federated.node.kept_steps import kept
from v6_federated.node.request import Request
from v6_federated.node.state import State
from v6_federated.rules import quota
from v6_federated.rules.environment import limit_threads
from v6_federated.rules.levels import countable
from v6_federated.rules.schema import Schema

FAR_APART = "The model's predictions are far apart; bring columns to one scale (--preprocess standardize), lower lr"


@dataclass(frozen=True)
class Groups:
    """Rows by the levels of the job's column of subgroups.

    Attributes:
        index: the level of each row (n,); 0 if the job names no column, and -1 in rows that are in no group.
        few: rows of each level that is left out as too few rows have it (G,).
        others: rows of each level that is left out as all rows without it would be too few (G,).
    """

    index: Array
    few: Array
    others: Array


class NodeRows:
    """What a node holds, in one round of a job, and what its operator allows to be done with it.

    Rows are read, and limits on them checked, when they are first used.

    Attributes:
        organization_id: the organization whose node it is.
        round: the round, from 1; 0 is the preparation.
        job: what central tells all nodes.
        policy: the operator's limits.
        request: the request, with the hospital's folder.
        state: what this node keeps from round to round. It never leaves the node.
        schema: what the operator has declared of the rows; None if there is no privacy budget.
        noising: noise and samples of the job's privacy plan; None if it has none.
        key: by which central names this node in the arguments of a function; with masked answers, all nodes of a block
            have the same, so that no argument can single out one of them.
        pinned: whether what this request computes leaves only as a part of a sum over a block of a study.
        goes_on: whether the node computes on after an error, see ``later``; only for what leaves under masks.
        failure: the first error after which it has computed on.
    """

    pinned: bool = False
    goes_on: bool = False
    failure: Exception | None = None

    def __init__(
        self,
        organization_id: int,
        database: Any,
        job: Job,
        round_: int,
        request: Request,
        schema: Schema | None = None,
    ) -> None:
        """Check a task and the columns that it uses."""
        self.organization_id, self.round = organization_id, round_
        self.state = self.state_of(organization_id, job, round_)
        steps = kept(job.data.preprocess, self.state)
        self.job = replace(job, data=replace(job.data, preprocess=steps))
        self.key = str(organization_id)
        self.policy, self.request, self._began = request.policy, request, time.monotonic()
        self.policy.check_request(job.minimum_rows, len(job.participants), max(job.rounds or 0, round_))
        self.policy.check_holdout(job.data.holdout)
        self.policy.check_made(preprocessing.made(steps))
        preprocessing.check_reach(steps)
        self.policy.check_levels(len(job.data.levels))
        if job.data.levels and len(job.data.classes or ()) > MOST_CROSSED:
            raise SafeError(crossed(job.data.subgroup))
        limit_threads()
        if schema is not None:
            schema.check_named(job.data)  # before the table is looked at: it may have other columns
            preprocessing.check_foreseen(steps, schema.features, schema.levels)
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

    @contextlib.contextmanager
    def later(self) -> Iterator[None]:
        """Compute on after an error inside, and raise it in ``check_failed`` only, if the node ``goes_on``.

        Under masks a node that fails adds noise to the sum, so that nobody sees which one it is. But vantage6 shows
        when its run has ended: at once, while the others train for thousands of epochs, if it did not go on.
        """
        try:
            yield
        except Exception as error:
            if not self.goes_on:
                raise
            self.failure = self.failure or error

    def check_failed(self) -> None:
        """Raise the first error after which the node has computed on."""
        if self.failure is not None:
            raise self.failure

    @staticmethod
    def state_of(organization_id: int, job: Job, round_: int) -> State:
        """What an organization's node keeps for a job."""
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
        """The model that the job names."""
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
            outcome.guard = self._later(functools.partial(self.policy.check_dominance, remedy=FAR_APART))
            outcome.events = self._later(self.policy.check_batch_events)
        model.seed(self.generator("model"))
        return model

    def _later(self, check: Callable[..., None]) -> Callable[..., None]:
        def checked(*args: Any) -> None:
            with self.later():
                check(*args)

        return checked

    @staticmethod
    def _outcome_of(model: Any) -> Outcome | None:
        """What a model predicts in place of classes; None for classes, and for models of methods' own."""
        found: Outcome | None = getattr(model, "outcome", None)
        return found

    @property
    def width(self) -> int:
        """How many columns there are after the steps; no row is read."""
        return len(self.layout.names)

    @property
    def layout(self) -> Features:
        """The columns after the steps, without rows."""
        layout = self.source.features(self.job.data).take(slice(0))
        return preprocessing.apply(layout, self.job.data.preprocess)

    @functools.cached_property
    def rows(self) -> Rows:
        """The rows to train on."""
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
        return self._prepared()[0]

    def _prepared(self, trains: bool = True) -> tuple[Rows, Rows]:
        """See ``Source.prepared``. A node that computes on goes on with zeros if the rows cannot be prepared."""
        with self.later():
            return self.source.prepared(self.job.data, self.identity, self.policy, trains)
        kept, held = split(self._total, self.job.data.holdout, self.identity, self.policy.minimum_rows)
        y = np.zeros(self._total, np.float64 if self.job.data.regression else np.int64)
        X = np.zeros((self._total, self.width), np.float32)
        return Rows(X[kept], y[kept]), Rows(X[held], y[held])

    @property
    def n(self) -> int:
        """The number of rows to train on."""
        return self._counted[0]

    def _check_rows(self) -> None:
        """Check the limits on the rows to train on, before any of them is used."""
        _ = self._counted

    @functools.cached_property
    def _counted(self) -> tuple[int, float]:
        """How many rows there are to train on, and as which share of them they count with the weights of classes."""
        if self.noising is not None:  # public, as the budget counts what rows hold and not how many there are
            return self._total - self._held_out, 1.0
        with self.later():
            return self._allowed()
        return self._total - self._held_out, 1.0

    def _allowed(self) -> tuple[int, float]:
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
            weights = getattr(self.model, "class_weights", None) if self.job.model and not self.pinned else None
            if weights is not None:
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
        """The labels of the rows to train on, which are numbers to predict (n,), float64."""
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
    def labels(self) -> Array:
        """The labels of the rows to train on, as indices of the job's classes (n,)."""
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
        """The features of the same rows for statistics: after the steps so far, in the precision of the table."""
        self._check_covered()
        self._check_rows()
        self.source.features(self.job.data).check_finite()
        features = self.as_read
        levelling = preprocessing.Levelling(self.policy.minimum_rows_a_side)
        return preprocessing.apply(features, self.job.data.preprocess, levelling.fit)

    @property
    def as_read(self) -> Features:
        """The same before any step."""
        self._check_covered()
        self._check_rows()
        return self.source.training(self.job.data, self.identity, self.policy)

    @property
    def adding(self) -> Adding:
        """How sums over rows are made: exactly where they are parts of a sum over hospitals, otherwise in float64."""
        return FLOATS if self.job.aggregation == "plain" else EXACTLY

    def as_used(self, X: Array) -> Array:
        """Hold the limit on columns that mark few rows where columns are used, after all that a task does to them.

        A far center or scale rounds numbers, and so can make a column differ in few rows.

        Args:
            X: columns of numbers of the rows to train on (n, d).
        """
        levelling = preprocessing.Levelling(self.policy.minimum_rows_a_side)
        return levelling.fit(Features([str(i) for i in range(X.shape[1])], X, {})).X

    def special(self, name: Literal["offset", "weights", "event", "time"], default: float) -> Array:
        """Return a column that is neither a feature nor the label, for the rows to train on.

        Returns:
            Numbers (n,), float64.
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

    def times(self, few_events: bool = False) -> tuple[Array, Array]:
        """Return the times of the rows to train on: the label, or a column of its own if there is none.

        Returns:
            Times of the event or of censoring (n,), and 1 for an event or 0 for censoring (n,), float64.
        """
        if not self.job.data.supervised:
            time, event = times.parted(times.signed(self.special("time", 0.0), self.special("event", 1.0)))
        elif self.job.data.event is None:
            time, event = self.rows.y, np.ones(self.n)
        else:
            time, event = times.parted(self.rows.y)
        if not few_events:
            self.policy.check_events(int(event.sum()))
        return time, event

    def groups(self) -> Groups:
        """Sort the rows to train on by the levels of the job's column of subgroups.

        Levels that too few rows have are left out, and while their rows are too few, the smallest other level too: see
        ``countable``. Not in a study, where what is small over a block is left out by central's code.
        """
        self._check_covered()
        spec, G = self.job.data, max(len(self.job.data.levels), 1)
        if spec.subgroup is None:
            return Groups(np.zeros(self.n, np.intp), np.zeros(G, np.intp), np.zeros(G, np.intp))
        kept, _ = self.source.split(spec, self.identity, self.policy.minimum_rows)
        said = self.source.words(spec.subgroup)[kept]
        place = {level: i for i, level in enumerate(spec.levels)}
        index = np.array([place.get(word, -1) for word in said], np.intp)
        rows, least = np.bincount(index[index >= 0], minlength=G), self.policy.minimum_rows_a_class
        few: Array = np.zeros(G, np.intp)
        others: Array = np.zeros(G, np.intp)
        if not self.pinned:
            one_class = np.zeros(len(said), np.intp)
            counted = countable(said, one_class, lambda rows: ((rows > 0) & (rows < least)).any(axis=-1))
            out = np.array([level not in counted for level in spec.levels])
            few, others = np.where(out & (rows < least), rows, 0), np.where(out & (rows >= least), rows, 0)
            index[np.append(out, False)[index]] = -1
        return Groups(index, few, others)

    def check_time(self) -> None:
        """End a task that takes longer than the operator allows."""
        self.policy.check_seconds(time.monotonic() - self._began)

    def generator(self, purpose: str) -> np.random.Generator:
        """Return random numbers that depend on the job's seed, this node and this round."""
        return generator(self.job.seed, purpose, self.identity, self.round)
