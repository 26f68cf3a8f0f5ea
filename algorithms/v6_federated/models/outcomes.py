"""What the only output z of a model stands for, if its label is a number, a count or a time: the losses of such labels.

A model of classes has none. A loss brings the label to the scale of z: nodes agree on the label's mean (and deviation)
before the first round, so that the same learning rates work for labels of any size. Predictions and the losses that are
reported are on the label's own scale. The loss that training lowers is the reported one divided by ``unit``.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import numpy as np

from v6_federated.base.arrays import Array
from v6_federated.base.errors import SafeError
from v6_federated.base.text import DIVERGED
from v6_federated.data import times
from v6_federated.masks import exact

FURTHEST = 600.0  # below the largest log hazard ratio: smaller ones would count as no risk at all
# how far from the mean an evaluation with limits lets predictions be
REACH = 5.0  # deviations of a number, or logarithms of a count's mean
FAR = 20.0  # log hazard ratios
MOST = 1e30  # of a label's mean or deviation, and 1 / MOST is the smallest deviation: sums of squares are finite


@dataclass
class Outcome(ABC):
    """What z stands for.

    Attributes:
        name: of the loss, as the setting ``loss`` has it.
        guard: refuses sums in which few rows weigh more than all others, and gets what each row weighs (n,); None: no
            sum is refused.
        events: refuses sums over few events, and gets their number; None: no sum is refused.
    """

    name: ClassVar[str] = ""
    relative: ClassVar[bool] = False  # whether adding a number to all z changes nothing: no intercept is determined
    guard: Callable[[Array], None] | None = field(default=None, init=False, repr=False, compare=False)
    events: Callable[[int], None] | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def unit(self) -> float:
        """What the reported loss is of the one that training lowers."""
        return 1.0

    def problem(self, y: Array) -> str:
        """Say what labels must be that some are not.

        Args:
            y: labels (n,).

        Returns:
            What is expected; empty if all labels are possible.
        """
        return ""

    @abstractmethod
    def predictions(self, z: Array) -> Array:
        """Predict on the label's own scale.

        Args:
            z: outputs of a model.

        Returns:
            The predictions, float64, of the same shape.
        """

    @abstractmethod
    def within_reach(self, predictions: Array, y: Array) -> Array:
        """Move predictions that are too far away nearer, so that no row can outweigh all others in an evaluation.

        How far that is follows from the rows: mean and deviation of the model come with the task, which may be forged.

        Args:
            predictions: what ``predictions`` returned.
            y: labels (n,).

        Returns:
            The predictions, of the same shape.
        """

    @abstractmethod
    def losses_and_slopes(self, z: Array, y: Array) -> tuple[Array, Array]:
        """Compute the loss of each row.

        Args:
            z: outputs of a model (n,).
            y: labels (n,).

        Returns:
            The losses that are reported (n,), and the derivatives of the sum of those that training lowers by z (n,).
        """

    @abstractmethod
    def losses(self, predictions: Array, y: Array) -> Array:
        """Compute the loss of each row, from its prediction.

        Args:
            predictions: what ``predictions`` returned (n,).
            y: labels (n,).

        Returns:
            The losses that are reported (n,).
        """

    def folded(self, weight: Array, bias: Array) -> tuple[Array, Array]:
        """Bring the last layer to the label's own scale.

        Args:
            weight: of the layer (1, in).
            bias: of the layer (1,).

        Returns:
            Weight and bias of the prediction; of a count, of its logarithm; of a time, of the log hazard ratio.
        """
        return weight, bias

    def to_json(self) -> dict[str, Any]:
        """The outcome as a part of a model's spec."""
        own = [part.name for part in fields(self) if part.init]
        return {"name": self.name, **{name: getattr(self, name) for name in own}}


@dataclass
class Number(Outcome):
    """A number, z deviations from its mean. Its squared error is reported; half of it, in deviations, is trained.

    Attributes:
        mean: of the label.
        scale: its standard deviation.
    """

    name = "squared"
    mean: float = 0.0
    scale: float = 1.0

    @property
    def unit(self) -> float:
        """Twice the label's variance."""
        return 2 * self.scale**2

    def predictions(self, z: Array) -> Array:
        return np.asarray(self.mean + self.scale * np.asarray(z, np.float64))

    def folded(self, weight: Array, bias: Array) -> tuple[Array, Array]:
        return self.scale * weight, self.mean + self.scale * bias

    def within_reach(self, predictions: Array, y: Array) -> Array:
        away = REACH * float(y.std())
        return np.clip(predictions, y.mean() - away, y.mean() + away)

    def losses_and_slopes(self, z: Array, y: Array) -> tuple[Array, Array]:
        apart = np.asarray(z, np.float64) - (y - self.mean) / self.scale
        return checked(self.scale**2 * np.square(apart)), apart

    def losses(self, predictions: Array, y: Array) -> Array:
        return np.asarray(np.square(predictions - y))


@dataclass
class Count(Outcome):
    """A count with a Poisson distribution, whose mean is ``mean`` times exp(z); its deviance is reported.

    What is trained is half the deviance, divided by the mean.

    Attributes:
        mean: of the label.
    """

    name = "poisson"
    mean: float = 1.0

    @property
    def unit(self) -> float:
        """Twice the label's mean."""
        return 2 * self.mean

    def problem(self, y: Array) -> str:
        return "" if ((y >= 0) & (y == np.floor(y))).all() else "counts: whole numbers from 0"

    def predictions(self, z: Array) -> Array:
        return np.asarray(self.mean * np.exp(np.asarray(z, np.float64)))

    def folded(self, weight: Array, bias: Array) -> tuple[Array, Array]:
        return weight, math.log(self.mean) + bias

    def within_reach(self, predictions: Array, y: Array) -> Array:
        middle = max(float(y.mean()), 1 / len(y))
        return np.clip(predictions, middle * math.exp(-REACH), middle * math.exp(REACH))

    def losses_and_slopes(self, z: Array, y: Array) -> tuple[Array, Array]:
        mu = self.predictions(z)
        if self.guard is not None:
            self.guard(mu)
        return checked(self.losses(mu, y)), (mu - y) / self.mean

    def losses(self, predictions: Array, y: Array) -> Array:
        from scipy import special  # slow to import

        deviance = 2 * (special.xlogy(y, y) - special.xlogy(y, predictions) - (y - predictions))
        return np.asarray(np.maximum(deviance, 0))  # rounding may bring it below 0


@dataclass
class Time(Outcome):
    """A time of an event or of censoring, with the hazard h(t) exp(z): Cox's partial likelihood, of the rows at hand.

    A label is the time, and below 0 (or -0) if it is one of censoring, see ``times.signed``. Events of one time
    have the same rows at risk (Breslow 1974). The loss of rows without events is 0.
    """

    name = "cox"
    relative = True

    def predictions(self, z: Array) -> Array:
        return np.asarray(z, np.float64)

    def within_reach(self, predictions: Array, y: Array) -> Array:
        return np.clip(predictions, predictions.mean() - FAR, predictions.mean() + FAR)

    def losses_and_slopes(self, z: Array, y: Array) -> tuple[Array, Array]:
        time, event = times.parted(y)
        finite = np.isfinite(z)
        eta = np.where(finite, np.asarray(z, np.float64), 0.0)  # an early end would show in the time that a node takes
        eta = np.maximum(eta - eta.max(initial=-np.inf), -FURTHEST)
        w, happened = np.exp(eta), event > 0
        order = np.argsort(time, kind="stable")
        at, place = np.unique(time[happened], return_inverse=True)
        at_risk = np.cumsum(w[order][::-1])[::-1][np.searchsorted(time[order], at)]  # at each time of an event
        hazard = np.concatenate([[0.0], np.cumsum(np.bincount(place, minlength=len(at)) / at_risk)])
        expected = w * hazard[np.searchsorted(at, time, side="right")]  # events of each row
        if self.events is not None and happened.any():
            self.events(int(happened.sum()))
        if self.guard is not None and happened.any():
            self.guard(expected)
        losses = np.zeros(len(y))
        losses[happened] = np.maximum(np.log(at_risk)[place] - eta[happened], 0)  # rounding may bring it below 0
        no_number = np.nan if not finite.all() else 0.0
        return losses + no_number, expected - event + no_number

    def losses(self, predictions: Array, y: Array) -> Array:
        return Time().losses_and_slopes(predictions, y)[0]


def checked(losses: Array) -> Array:
    """Refuse losses that are too large to be added up. Whether their sum is would tell of all rows of a node.

    Args:
        losses: of the rows (n,).

    Returns:
        The losses.

    Raises:
        SafeError: one is too large. Infinite and undefined ones are refused where they are added up.
    """
    if exact.MOST <= losses.max(initial=0.0) < math.inf:
        raise SafeError(f"a row's loss is too large to be added up; {DIVERGED}")
    return losses


OUTCOMES: Mapping[str, type[Outcome]] = {kind.name: kind for kind in (Number, Count, Time)}


def of_json(message: Any) -> Outcome:
    """Read a part of a model's spec.

    Args:
        message: what ``Outcome.to_json`` made, or what a task claims to be one.

    Returns:
        The outcome.

    Raises:
        SafeError: it is none.
    """
    try:
        numbers = {**message}
        found = OUTCOMES[numbers.pop("name")](**numbers)
        finite = {*found.to_json()} == {*message} and all(
            type(number) in (int, float) and abs(number) < MOST for number in numbers.values()
        )
        if finite and getattr(found, "scale", 1.0) >= 1 / MOST and (found.name != "poisson" or numbers["mean"] > 0):
            return found
    except (TypeError, KeyError, AttributeError):
        pass
    raise SafeError("the job's model has a malformed loss; it must be as central sends it")


def of_moments(name: str, mean: float, deviation: float) -> Outcome:
    """Bring a label to the scale of a model's output.

    Args:
        name: of the loss.
        mean: of the label.
        deviation: its standard deviation.

    Returns:
        The outcome.

    Raises:
        SafeError: the label does not vary, or no count is above 0.
    """
    if name == "cox":
        return Time()
    if name == "poisson":
        if mean <= 0:
            raise SafeError(f"with loss=poisson the label's mean is {mean:g}; expected counts, some of them above 0")
        return Count(mean=mean)
    if not deviation > 0:
        raise SafeError("the label is the same in all rows; expected a number that varies")
    return Number(mean=mean, scale=deviation)
