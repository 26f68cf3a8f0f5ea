"""The answers to one request: an aggregate first, single answers only for methods that need them."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from v6_federated.base.arrays import Array
from v6_federated.base.errors import SafeError
from v6_federated.central.answer import Answer, by_organization
from v6_federated.messages import codec


class Answers:
    """The answers to one request of a round.

    Sums are computed in float64 in the order of the organizations' ids, so they do not depend on which answer came
    first. ``len(answers)`` is their number.

    Attributes:
        organizations: ids of the organizations that answered, ascending.
        n: number of rows that all answers together are about.
    """

    def __init__(self, answers: Sequence[Answer]) -> None:
        """Put answers together.

        Args:
            answers: single answers, in any order.
        """
        self._answers = sorted(answers, key=by_organization)
        self.organizations = [a.organization_id for a in self._answers]
        self.n = sum(a.n for a in self._answers)

    def __len__(self) -> int:
        """The number of answers."""
        return len(self._answers)

    def __add__(self, others: "Answers") -> "Answers":
        """The answers to two requests of the same round, to record them together."""
        return Answers([*self._answers, *others._answers])

    def weighted_mean(self, name: str = "weights") -> Array:
        """Average an array, weighted by rows: the sum over S_t of n_k / m_t w_k (McMahan et al. 2017, as corrected).

        Args:
            name: the array in each answer.

        Returns:
            The mean, float32, in the array's shape; m_t is the number of rows of all answers.
        """
        return self.combine(name, lambda a: a.n / self.n)

    def mean(self, name: str = "weights") -> Array:
        """Average an array; every node counts the same.

        Args:
            name: the array in each answer.

        Returns:
            The mean, float32, in the array's shape.
        """
        return self.combine(name, lambda a: 1 / len(self))

    def sum(self, name: str) -> Array:
        """Add up an array.

        Args:
            name: the array in each answer.

        Returns:
            The sum, float32, in the array's shape.
        """
        return self.combine(name, lambda a: 1)

    def combine(self, name: str, weight: Callable[[Answer], float]) -> Array:
        """Add up an array with a weight for each answer.

        Args:
            name: the array in each answer.
            weight: the weight of an answer.

        Returns:
            The weighted sum, float32, in the array's shape.

        Raises:
            SafeError: it is not finite in float32.
        """
        total = np.zeros(self._answers[0][name].shape)
        with np.errstate(over="ignore", invalid="ignore"):  # the error below says it better
            for a in self._answers:
                total += np.multiply(a[name], weight(a), dtype=np.float64)
            found = total.astype(np.float32)
        if not np.isfinite(found).all():
            raise SafeError(
                f"{self._answers[0].function}: the weighted sum of {name} over {len(self)} nodes is not finite in "
                f"float32, although each answer is; {codec.DIVERGED}"
            )
        return found

    def each(self) -> Iterator[Answer]:
        """Return single answers. Use sums if they suffice: central may not always see single answers.

        Returns:
            An iterator over the answers, by ascending id.
        """
        return iter(self._answers)

    def numbers(self, name: str) -> dict[int, Any]:
        """Return a single value of each answer, see ``each``.

        Args:
            name: the value in each answer.

        Returns:
            The values, by the organization's id.
        """
        return {a.organization_id: a.values[name] for a in self._answers}
