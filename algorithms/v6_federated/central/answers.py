"""The answers to one request: an aggregate first, single answers only for methods that need them."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from v6_federated.base.arrays import Array
from v6_federated.base.errors import SafeError
from v6_federated.base.text import DIVERGED
from v6_federated.central.answer import Answer, by_organization
from v6_federated.masks.encoding import MOST_DITHER
from v6_federated.masks.summing import FINEST


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
        self.organizations = sorted(k for a in self._answers for k in a.organizations)
        self.n = sum(a.n for a in self._answers)

    def __len__(self) -> int:
        """The number of nodes that answered."""
        return sum(len(a.organizations) for a in self._answers)

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
        return self._combined(name, "share", lambda a: a.n / self.n)

    def mean(self, name: str = "weights") -> Array:
        """Average an array; every node counts the same.

        Args:
            name: the array in each answer.

        Returns:
            The mean, float32, in the array's shape.

        Raises:
            SafeError: the answers are sums, and the function declares no such ``Mean``.
        """
        return self._combined(name, "equal", lambda a: len(a.organizations) / len(self))

    def sum(self, name: str, per: str | None = None) -> Array:
        """Add up an array.

        Args:
            name: the array in each answer.
            per: a number in each answer by which its array is divided; an array whose number is 0 counts as zeros.

        Returns:
            The sum, float32, in the array's shape.

        Raises:
            SafeError: the answers are sums, and the function declares no such ``Mean``.
        """

        def weight(a: Answer) -> float:
            return len(a.organizations) if a.members or per is None else 1 / (a.values[per] or math.inf)

        return self._combined(name, "equal" if per is None else f"equal/{per}", weight)

    def exact_sum(self, name: str) -> Array:
        """Add up an array in full precision.

        Args:
            name: the array in each answer.

        Returns:
            The sum, float64, in the array's shape.

        Raises:
            SafeError: the answers are sums, and the function declares no such ``Sum``.
        """
        total: Array = np.add.reduce([self._array(a, name, "sum").astype(np.float64) for a in self._answers])
        # dither moves what a hospital sends by some units at most: a sum of zeros is zero again, as methods count on
        blurred = FINEST * MOST_DITHER * sum(len(a.members) for a in self._answers)
        return np.where(np.abs(total) <= blurred, 0.0, total) if blurred else total

    def any(self, name: str) -> bool:
        """Say whether a truth value is true in any answer.

        Args:
            name: the value, of which answers may lack some.
        """
        return any(bool(a.values.get(name)) for a in self._answers)

    def combine(self, name: str, weight: Callable[[Answer], float]) -> Array:
        """Add up an array with a weight for each node's own answer.

        Args:
            name: the array in each answer.
            weight: the weight of an answer.

        Returns:
            The weighted sum, float32, in the array's shape.

        Raises:
            SafeError: it is not finite in float32, or central sees no single answers.
        """
        self._check_single()
        return self._combined(name, "share", weight)

    def whole_sum(self, name: str) -> Array:
        """Add up an array of whole numbers.

        Args:
            name: the array in each answer.

        Returns:
            The sum, float64, in the array's shape; exact below 2^53.

        Raises:
            SafeError: the answers are sums, and the function declares no such ``Count``.
        """
        total: Array = np.add.reduce([self._array(a, name, "count").astype(np.float64) for a in self._answers])
        return total

    def _combined(self, name: str, way: str, weight: Callable[[Answer], float]) -> Array:
        total = np.zeros(self._array(self._answers[0], name, way).shape)
        with np.errstate(over="ignore", invalid="ignore"):  # the error below says it better
            for a in self._answers:
                total += np.multiply(self._array(a, name, way), weight(a), dtype=np.float64)
            found = total.astype(np.float32)
        if not np.isfinite(found).all():
            raise SafeError(
                f"{self._answers[0].function}: the weighted sum of {name} over {len(self)} nodes is not finite in "
                f"float32, although each answer is; {DIVERGED}"
            )
        return found

    @staticmethod
    def _array(a: Answer, name: str, way: str) -> Array:
        if not a.members:
            return a[name]
        if (key := Answer.key(name, way)) not in a.arrays:
            raise SafeError(
                f"{a.function}: central sees sums only, and the function does not declare this one of {name}; expected "
                f"{_declared(name, way)} at its @partial"
            )
        return a[key]

    def each(self) -> Iterator[Answer]:
        """Return single answers. Use sums if they suffice: central does not always see single answers.

        Returns:
            An iterator over the answers, by ascending id.

        Raises:
            SafeError: central sees sums only.
        """
        self._check_single()
        return iter(self._answers)

    def keys(self) -> list[str]:
        """The keys of the nodes that answered, as ``Node.key``; with masked answers, of their blocks."""
        return [f"block {a.organization_id}" if a.members else str(a.organization_id) for a in self._answers]

    def parts(self) -> list[Answer]:
        """Return the answers as they came: of single nodes, or the sums of blocks."""
        return list(self._answers)

    def _check_single(self) -> None:
        if any(a.members for a in self._answers):
            raise SafeError(
                f"{self._answers[0].function}: this method looks at single answers, and central sees sums only; "
                "expected aggregation=plain"
            )

    def numbers(self, name: str) -> dict[int, Any]:
        """Return a single value of each answer, see ``each``.

        Args:
            name: the value in each answer.

        Returns:
            The values, by the organization's id.
        """
        self._check_single()
        return {a.organization_id: a.values[name] for a in self._answers}


def _declared(name: str, way: str) -> str:
    """How a function declares a sum."""
    weight, _, per = way.partition("/")
    options = [f"weight={weight!r}"] * (weight != "share") + [f"per={per!r}"] * bool(per)
    kind = {"sum": "Sum(...)", "count": "Count(...)"}.get(way, f"Mean({', '.join(options)})")
    return f"sums={{{name!r}: {kind}}}"
