"""The answers to one request: an aggregate first, single answers only for methods that need them."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from v6_federated.central.dispatch import Answer, by_organization


class Answers:
    """The answers to one request of a round.

    Sums are computed in float64 in the order of the organizations' ids, so the order of arrival changes nothing.

    Attributes:
        organizations: ids of those that answered, ascending.
        n: rows that all answers are about.
    """

    def __init__(self, answers: Sequence[Answer]) -> None:
        self._answers = sorted(answers, key=by_organization)
        self.organizations = [a.organization_id for a in self._answers]
        self.n = sum(a.n for a in self._answers)

    def __len__(self) -> int:
        return len(self._answers)

    def __add__(self, others: "Answers") -> "Answers":
        """The answers to two requests of the same round, to be recorded together."""
        return Answers([*self._answers, *others._answers])

    def weighted_mean(self, name: str = "weights") -> np.ndarray:
        """sum over S_t of n_k / m_t times the array ``name``, m_t the rows of S_t (McMahan's erratum); float32."""
        return self.combine(name, lambda a: a.n / self.n)

    def mean(self, name: str = "weights") -> np.ndarray:
        """1/|S| times the sum over S of the array ``name``: every node counts the same; float32."""
        return self.combine(name, lambda a: 1 / len(self))

    def sum(self, name: str) -> np.ndarray:
        """The sum over S of the array ``name``; float32."""
        return self.combine(name, lambda a: 1)

    def combine(self, name: str, weight: Callable[[Answer], float]) -> np.ndarray:
        """The sum over S of ``weight(answer)`` times the array ``name``; float32."""
        total = np.zeros(self._answers[0][name].shape)
        for a in self._answers:
            total += np.multiply(a[name], weight(a), dtype=np.float64)
        return total.astype(np.float32)

    def each(self) -> Iterator[Answer]:
        """Single answers, by ascending id. A method that looks at them cannot be used if only sums may be seen."""
        return iter(self._answers)

    def numbers(self, name: str) -> dict[int, Any]:
        """What each organization said under ``name``, by its id: single values, as ``each`` brings them."""
        return {a.organization_id: a.values[name] for a in self._answers}
