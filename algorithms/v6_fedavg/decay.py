"""Less local computation from round to round: fewer epochs, or larger minibatches (McMahan et al. 2017, section 3)."""

import math
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from v6_federated import LARGE, Excludes, LocalSGD, Needs, Number, Record

PLANNED = Excludes("clip", because="its plan counts the same epochs in each round")
CONVERGED = Excludes("until_converged", because="rounds that train less look like a model that has converged")
EpochsDecayRound = Annotated[
    float,
    Field(gt=0, le=1, description="factor on epochs from each round to the next; at least 1 is left"),
    Number,
    Excludes("local_steps", because="they take the place of epochs"),
    Excludes(epochs=1, because="less cannot be", instead="set epochs higher, for example epochs=5"),
    PLANNED,
    CONVERGED,
]
BatchSizeGrowthRound = Annotated[
    float,
    Field(ge=1, allow_inf_nan=False, description="factor on batch_size from each round to the next"),
    Number,
    Needs("batch_size"),
    PLANNED,
    CONVERGED,
]


class LocalDecay(Record):
    """How local computation falls from round to round, as learning rates do.

    Attributes:
        epochs_decay_round: the factor on E.
        batch_size_growth_round: the factor on B.
    """

    epochs_decay_round: EpochsDecayRound = 1.0
    batch_size_growth_round: BatchSizeGrowthRound = 1.0

    def local(self, first: LocalSGD, t: int) -> LocalSGD:
        """Say how nodes train in a round. They are sent the result, so they need to know nothing of the factors.

        Args:
            first: local training in round 1.
            t: the round.

        Returns:
            The same, with the round's E and B, both rounded to whole numbers.
        """
        if self == LocalDecay():
            return first
        epochs = max(math.floor(first.epochs * self.epochs_decay_round ** (t - 1) + 0.5), 1)
        if first.batch_size is None:
            return first.replace(epochs=epochs)
        with np.errstate(over="ignore"):  # no node has so many rows
            grown = first.batch_size * np.float64(self.batch_size_growth_round) ** (t - 1)
        return first.replace(epochs=epochs, batch_size=math.floor(min(grown + 0.5, LARGE)))

    def columns(self, local: LocalSGD) -> dict[str, Any]:
        """Say what the round's row of the history holds.

        Args:
            local: local training in the round.

        Returns:
            Its E and B, those that it has, if a factor is set.
        """
        if self == LocalDecay():
            return {}
        found = {"epochs": None if local.local_steps else local.epochs, "batch_size": local.batch_size}
        return {name: value for name, value in found.items() if value is not None}
