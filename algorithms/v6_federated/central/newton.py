"""What central compares of the nodes' answers if a method is Newton's: the sizes of their gradients and Hessians."""

from v6_federated.base.arrays import Array
from v6_federated.central.answer import Answer
from v6_federated.central.bounds import Measures
from v6_federated.data import inference

__all__ = ["Measures", "deviations", "pull"]


def pull(answer: Answer, unexplained: float) -> Array:
    """Measure a node's gradient, see ``inference.pull``.

    Args:
        answer: a node's answer, with ``gradient`` (p,) and ``hessian``, its lower triangle.
        unexplained: what there is to explain.

    Returns:
        A number (1,).
    """
    g = answer["gradient"]
    return inference.pull(g, inference.symmetric(answer["hessian"], len(g)), unexplained)


def deviations(answer: Answer) -> Array:
    """Measure a node's Hessian, see ``inference.deviations``.

    Args:
        answer: a node's answer, with ``hessian``, its lower triangle.

    Returns:
        Numbers (p,).
    """
    return inference.deviations(answer["hessian"], answer.n)
