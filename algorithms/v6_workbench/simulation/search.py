"""Search over settings: what is tried, and on which rows the best is chosen.

Rows are used for one thing only. A node's training rows are cut again: the tries are trained on some of them and scored
on the others. The rows that the node holds out anyway are kept for the model that is chosen (Cawley and Talbot 2010: a
score by which one of many is chosen is too good).
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from v6_federated.base.errors import SafeError
from v6_federated.base.randomness import generator
from v6_workbench.simulation import datasets
from v6_workbench.simulation.experiments import Experiment

MOST = 1000  # tries


@dataclass(frozen=True)
class Range:
    """Numbers from ``low`` to ``high``: drawn evenly by their logarithm if ``low`` is above 0, and whole if both are.

    Raises:
        SafeError: ``low`` is not below ``high``.
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        if not -math.inf < self.low < self.high < math.inf:
            raise SafeError(f"{self.low:g}..{self.high:g} is no range; expected a smaller and a larger number")

    def draw(self, rng: np.random.Generator) -> float:
        """Draw one of the numbers."""
        if self.low > 0:
            x = self.low * (self.high / self.low) ** rng.random()
        else:
            x = self.low + (self.high - self.low) * rng.random()
        return round(x) if isinstance(self.low, int) and isinstance(self.high, int) else float(f"{x:.4g}")


Choice = Sequence[Any] | Range


def combinations(values: Mapping[str, Choice], number: int | None = None, seed: int = 0) -> list[dict[str, Any]]:
    """Combine the values of several settings.

    Args:
        values: the values of each setting.
        number: how many combinations to draw at random (Bergstra and Bengio 2012); None: all.
        seed: of the draws.

    Returns:
        Different combinations. They are fewer than ``number`` if there are not so many.

    Raises:
        SafeError: there are too many, or a range although all are asked for.
    """
    if number is not None and not 1 <= number <= MOST:
        raise SafeError(f"--random {number} is out of range; expected 1 to {MOST}")
    ranges = [name for name, choice in values.items() if isinstance(choice, Range)]
    lists = {name: choice for name, choice in values.items() if not isinstance(choice, Range)}
    size = math.prod(len(choice) for choice in lists.values())
    if number is None:
        if ranges:
            raise SafeError(f"{ranges[0]} has a range, which has no end of values; add --random N, or name its values")
        if size > MOST:
            raise SafeError(f"there are {size:,} combinations; expected at most {MOST}: name fewer, or add --random N")
        return [dict(zip(lists, one, strict=True)) for one in itertools.product(*lists.values())]
    if not ranges and size <= number:
        return combinations(values)
    rng, found = generator(seed, "search"), list[dict[str, Any]]()
    for _ in range(100 * number):  # whole numbers of a short range are soon drawn twice
        one = {
            name: choice.draw(rng) if isinstance(choice, Range) else choice[int(rng.integers(len(choice)))]
            for name, choice in values.items()
        }
        if one not in found:
            found.append(one)
        if len(found) == number:
            break
    return found


def choosing(experiment: Experiment, method: str | None = None) -> Experiment:
    """Make the experiment by which settings are chosen: it has the training rows of each node, and no others.

    Args:
        experiment: the experiment whose held-out rows are kept for the model that is chosen.
        method: the method's name, whose own share of held-out rows it is if the experiment names none.

    Returns:
        The experiment, with the same nodes.

    Raises:
        SafeError: no rows are held out.
    """
    training, _ = experiment.train_and_test(method)
    rows = dict(zip(experiment.named(), training.values(), strict=True))
    dataset = datasets.load(rows, name=experiment.dataset.name)
    return replace(experiment, dataset=dataset, partition=None, nodes=None)
