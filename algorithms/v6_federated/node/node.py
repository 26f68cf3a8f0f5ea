"""A node as a partial function sees it: training and evaluating on its rows, within its operator's limits."""

import functools
import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from v6_federated.base.arrays import Array
from v6_federated.base.errors import SafeError
from v6_federated.base.files import keep_latest, replacing
from v6_federated.data.source import Rows
from v6_federated.masks.exact import Exact
from v6_federated.messages import local_sgd
from v6_federated.messages.local_sgd import LocalSGD, PlainSGD
from v6_federated.models import metrics
from v6_federated.models.alone import summing
from v6_federated.node import local_training, noising
from v6_federated.node.local_training import Carried, Rates, Step
from v6_federated.node.rows import NodeRows
from v6_federated.noise import clipping, units
from v6_federated.rules.rounding import Rounding, rounded_loss, rounded_to

OWN_MODELS = "own-models"  # in the hospital's folder
MOST_OWN_MODELS = 20  # of the latest jobs: tasks must not fill the hospital's disk


class Node(NodeRows):
    """One node in one round of a job.

    Attributes:
        own_model: a model (d,) of this node's own, which stays here and is evaluated; None if there is none.
        evaluated: the rows that this request has evaluated a model on, and which of all rows they are; None if none.
        known: the rounds in which nodes, or blocks, kept what the function loads; None if it keeps nothing.
    """

    own_model: Any = None
    evaluated: tuple[Rows, Array | slice] | None = None
    known: Mapping[str, int] | None = None
    _local_steps: int = 0  # taken in this request

    @functools.cached_property
    def batch_sizes(self) -> set[int]:
        """Sizes of minibatches whose steps were checked."""
        return set()

    @property
    def minimum_batch(self) -> int:
        """Rows that a minibatch must have: more than the operator's minimum if weights of classes make rows count less.

        Otherwise the step on a minibatch with one row of a heavy class would be that row. In a study, the node's own
        classes do not decide it: central would see whether some node refuses.
        """
        weights = getattr(self.model, "class_weights", None) if self.pinned and self.job.model else None
        if weights is not None:
            return self.policy.least_batch(weights.tolist())
        least, share = self.policy.minimum_batch, self._counted[1]
        return least if least <= 1 else math.ceil(least / share)

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
            self._count_local_step()
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
            self._count_local_step()
            yield batch

    def _count_local_step(self) -> None:
        """What settings ask for is checked before a row is read; this is for methods that count otherwise."""
        self._local_steps += 1
        with self.later():
            self.policy.check_local_steps(self._local_steps)

    def _check_batch(self, batch_size: int) -> None:
        with self.later():
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
            self.take(step, w, g)
            loss, n = loss + len(y) * batch_loss, n + len(y)
        return self.rounded(loss / n)

    def summed(self, w: Any) -> tuple[Any, Any]:
        """Compute loss and gradient over all rows, each once.

        Args:
            w: the model (d,).

        Returns:
            The mean loss, rounded if the operator wants it, and the mean gradient (d,); where they are parts of a sum
            over hospitals, exact sums over the rows if the model has such, see ``models.alone``. The next call
            overwrites the gradient.
        """
        rows, model = self.rows, summing(self.model)
        if model is None or not self._adds_exactly:
            loss, g = self.model.loss_and_gradient(w, self.model.asarray(rows.X), self.model.asarray(rows.y))
            return self.rounded(loss), g
        of_rows, of_gradients = model.sums(w, rows.X, rows.y)
        return self.rounded(of_rows.floats()[0] / len(rows)) if self.rounds_means else of_rows, of_gradients

    def one_step(self, w: Any, local: LocalSGD) -> tuple[Any, Exact] | None:
        """Take one plain step on all rows, if that is all that is asked for and can be added up exactly.

        Args:
            w: the model (d,).
            local: the step.

        Returns:
            The loss, see ``summed``, and the sum over the rows by which their steps change the model (d,); None if
            ``train`` must take the steps.
        """
        if not local_sgd.one_step(local) or not self._adds_exactly or self.noising is not None:
            return None
        if summing(self.model) is None:
            return None
        if getattr(self._outcome_of(self.model), "relative", False):  # a partial likelihood is no sum over rows
            return None
        self.check_time()
        self._count_local_step()
        loss, gradient = self.summed(w)
        return loss, gradient.scaled(-self.rates(local)(0))

    def take(self, step: Step, w: Any, g: Any) -> None:
        """Take a step; under masks, the model's change is carried apart from the model, see ``local_training.Carried``.

        Args:
            step: ``step(w, g)`` changes ``w`` in place, by what does not depend on ``w`` but for ``g``.
            w: the model (d,), changed in place.
            g: its gradient (d,), which may be overwritten.
        """
        if not self._carries:
            step(w, g)
            return
        self._apart(w).take(step, w, g)

    def change(self, w: Any, start: Any) -> Any:
        """Say how a model has moved.

        Args:
            w: the model (d,), trained from ``start``.
            start: what it was (d,).

        Returns:
            w - start, under masks without the rounding of w (d,).
        """
        u = self.carried(w, start)
        return w - start if u is None else u

    def carried(self, w: Any, start: Any) -> Any:
        """The change of a model that was carried apart from it; None if there is none.

        Args:
            w: the model (d,).
            start: what it was trained from (d,).
        """
        _, found = self._carried.get(id(w), (None, None))
        return None if found is None or not bool((found.start == start).all()) else found.u

    def apart(self, w: Any) -> tuple[Any, Any] | None:
        """Where a model that takes steps by itself carries its change apart, see ``take``.

        Args:
            w: the model (d,).

        Returns:
            What it started from, and its change since (d,); None if its change need not be carried.
        """
        if not self._carries:
            return None
        found = self._apart(w)
        return found.start, found.u

    def _apart(self, w: Any) -> Carried:
        """The change of a model, carried apart from it from its first step on."""
        if id(w) not in self._carried:
            self._carried[id(w)] = w, Carried(w)
        return self._carried[id(w)][1]

    @property
    def _carries(self) -> bool:
        """Whether the answer is a part of a sum."""
        return self.job.aggregation != "plain"

    @property
    def _adds_exactly(self) -> bool:
        """Whether sums over rows are exact: not where that takes long and other sums tell of single hospitals."""
        return self._carries and (self.job.hides_totals or not self.model.traits.costly_sums)

    @functools.cached_property
    def _carried(self) -> dict[int, tuple[Any, Carried]]:
        """The changes of models by the models' identity; the models are kept, so that no other has it."""
        return {}

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
        found: tuple[float, int] = model.descend(w, self.rows.X, self.rows.y, batches, step.rate, self.apart(w))
        return found

    def _train_with_noise(self, w: Any, step: Step, steps: int) -> None:
        """DP-SGD (Abadi et al. 2016, Algorithm 1): each step on a noisy sum of clipped gradients of sampled rows."""
        assert self.noising is not None
        self._check_classes()
        first = self.noising.use("steps", steps)
        X, y = self.model.asarray(self._rows.X), self.model.asarray(self._rows.y)
        for i in range(first, first + steps):
            self.check_time()
            self.take(step, w, self._noisy_gradient(w, X, y, i, shared=False)[1])

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
            summed: returns the sum over some rows, int64. What one row contributes follows from this row alone, and
                the ``idle`` ones contribute nothing, even to a model that takes missing values.
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
        """By how much rows of one person multiply the variance of the node's noise (1,), see ``Noising``."""
        return np.array([1 if self.noising is None else self.noising.variance_for_persons], np.int64)

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
        rounded before: its decisions, too, tell of the rows. What is added up over a block of a study is not rounded.

        Args:
            value: the number.

        Returns:
            The number, rounded to about its standard error.
        """
        if not self.rounds_means or not math.isfinite(value):
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
            rows, _ = self._prepared(trains=False)
            self.evaluated = rows, slice(None)
        else:
            _, rows = self._prepared()
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
            return metrics.evaluate_regression(
                self.model, weights, rows, self.rounds_means, least, exactly=self.adds_losses
            )
        assert self.job.data.classes is not None
        classes = len(self.job.data.classes)
        bands = self.policy.score_bands
        return metrics.evaluate(self.model, weights, rows, classes, bands, self.rounding, exactly=self.adds_losses)

    @property
    def rounding(self) -> Rounding | None:
        """How the node rounds counts of evaluations; None if its operator does not want it, or central rounds the sum.

        In a study central's code does, over a block. If each node rounded its own count, the sum would jump where the
        count of one node passes a multiple of the step, and a dishonest researcher can choose models until it does.
        """
        if self.pinned:
            return None
        step = self.policy.minimum_rows_a_class
        return Rounding.of(step, self.identity, self.rounds_means) if self.policy.round_evaluations else None

    @property
    def rounds_means(self) -> bool:
        """Whether losses and other means over rows are rounded.

        Not where they become part of a sum over a block of a study: the sum would jump where one hospital's mean passes
        a step, and so tell of single hospitals. What the exact sum tells of a row, the sum of gradients tells too.
        """
        return self.policy.round_evaluations and not self.pinned

    @property
    def adds_losses(self) -> bool:
        """Whether sums of losses and of labels are exact: where they are parts of a sum and not rounded before."""
        return self._adds_exactly and not self.rounds_means

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
        self.evaluated = rows.without_idle(), slice(None)
        try:
            found = metrics.evaluate(self.model, weights, rows, classes, bands, row_by_row=True)
        except SafeError:  # the score of a row of zeros is not finite, whatever the rows are
            found = {"n": 0}
        counted = metrics.to_sums({"bands": [], "loss": 0.0, **found}, classes, bands)
        reach = metrics.reach(len(counted["bands"]))
        noisy = {name: self.noising.counts(counted[name], reach, f"{name} {number}") for name in ("confusion", "bands")}
        return {"n": self._held_out, **noisy}
