"""95% confidence intervals of a result's accuracy and AUC, from the counts that it already holds.

What they are intervals of: the accuracy and the AUC of this one model on very many new rows of the same hospitals, in
the same proportions. They hold the model and the split as they are, so they say nothing about another seed, another
choice of held-out rows, or a hospital that took no part: there, the numbers vary more.
"""

import math
from collections.abc import Mapping
from statistics import NormalDist
from typing import Any

from v6_federated.messages.result import MOST_NOISE

Result = Mapping[str, Any]  # JSON, as a method returns it
Interval = list[float]  # [lower, upper], as in JSON
LEVEL = 0.95
Z = NormalDist().inv_cdf((1 + LEVEL) / 2)
MEANING = (
    "95% intervals: for new rows of these hospitals, with this model and this split; another seed, split or hospital "
    "varies more"
)
CHOOSING = ("early_stopping", "target")  # settings by which held-out rows choose the round whose model is the result
FEW = 30  # rows of a class below which DeLong's variance is too uncertain itself
# Rounding moves a sum of bands by as many rows as the diagonal of the confusion matrix, and the AUC is a mean over many
# such sums. That leaves less of the error: at most this share in simulations of 4 to 5 nodes with 20 to 200 rows each.
SMOOTHED = 0.4


def accuracy_interval(result: Result) -> Interval | None:
    """Return the interval of the final accuracy: Wilson's.

    If nodes have rounded their counts or added noise, it is wider by the error of that, ``accuracy_error``.

    Args:
        result: the result.

    Returns:
        Its lower and upper end; None if no rows were evaluated, or if labels are numbers.
    """
    final = result.get("final") or {}
    accuracy, n = final.get("accuracy"), final.get("evaluated")
    if accuracy is None or not n:
        return None
    return _wider(wilson(accuracy, n), accuracy, final.get("accuracy_error") or 0.0)


def auc_interval(result: Result) -> Interval | None:
    """Return the interval of the final AUC of two classes, on the scale of log(AUC / (1 - AUC)).

    The variance is DeLong's; with fewer than ``FEW`` rows in a class it is Hanley and McNeil's. If nodes have rounded
    their counts, the interval is wider by the error of that; if they have added noise, by the largest error with which
    an AUC is given at all.

    Args:
        result: the result.

    Returns:
        Its lower and upper end. None if there is no AUC, and with more than two classes: counts by class and band do
        not show how the areas of the classes, whose mean is the AUC, vary together.
    """
    final = result.get("final") or {}
    auc, confusion = final.get("auc"), final.get("confusion") or []
    if auc is None or len(confusion) != 2 or not all(sum(row) > 0 for row in confusion):
        return None
    n0, n1 = map(sum, confusion)
    if not 0 < auc < 1:
        interval = separated(auc, n0, n1)
    else:
        variance = None if min(n0, n1) < FEW else final.get("auc_variance")
        interval = on_logit_scale(auc, hanley_mcneil(auc, n0, n1) if variance is None else variance)
    if noisy(result):
        return _wider(interval, auc, MOST_NOISE)
    return _wider(interval, auc, rounding_of_auc(result))


def rounding_of_auc(result: Result) -> float:
    """Return by how much the nodes' rounding of counts may move the final AUC of two classes, about.

    Args:
        result: the result.

    Returns:
        A standard deviation, rather too large than too small; 0 if nodes have not rounded, or if there is no such AUC.
    """
    final = result.get("final") or {}
    confusion = final.get("confusion") or []
    if final.get("auc") is None or len(confusion) != 2 or not all(sum(row) > 0 for row in confusion):
        return 0.0
    n0, n1 = map(sum, confusion)
    rows: float = SMOOTHED * (final.get("accuracy_error") or 0.0) * (n0 + n1)
    return rows * math.hypot(1 / n0, 1 / n1)


def noisy(result: Result) -> bool:
    """Return whether nodes have added noise to their counts, for privacy."""
    return "plan" in (result.get("privacy") or {})


def wilson(share: float, n: int) -> Interval:
    """Return Wilson's score interval of a share.

    Args:
        share: the share that was found, from 0 to 1.
        n: number of rows that it was found in.

    Returns:
        Its lower and upper end.
    """
    middle = (share + Z**2 / (2 * n)) / (1 + Z**2 / n)
    half = Z / (1 + Z**2 / n) * math.sqrt(share * (1 - share) / n + Z**2 / (4 * n**2))
    return [max(0.0, middle - half), min(1.0, middle + half)]


def hanley_mcneil(auc: float, n0: int, n1: int) -> float:
    """Return the variance of an AUC as Hanley and McNeil 1982 estimate it from the AUC alone.

    Args:
        auc: the AUC.
        n0: rows outside the class.
        n1: rows inside.

    Returns:
        The variance.
    """
    # Q1 - AUC^2 and Q2 - AUC^2 of the paper, in a form that rounding cannot make negative
    q1, q2 = auc * (1 - auc) ** 2 / (2 - auc), auc**2 * (1 - auc) / (1 + auc)
    return (auc * (1 - auc) + (n1 - 1) * q1 + (n0 - 1) * q2) / (n0 * n1)


def on_logit_scale(auc: float, variance: float) -> Interval:
    """Return the interval of an AUC that is symmetric on the scale of log(AUC / (1 - AUC)).

    Args:
        auc: the AUC, between 0 and 1.
        variance: its variance.

    Returns:
        Its lower and upper end.
    """
    logit = math.log(auc / (1 - auc))
    half = Z * math.sqrt(variance) / (auc * (1 - auc))  # the derivative of the logit is 1 / (AUC (1 - AUC))
    return [0.5 + math.tanh(z / 2) / 2 for z in (logit - half, logit + half)]


def separated(auc: float, n0: int, n1: int) -> Interval:
    """Return the interval of an AUC of 0 or 1, which has no logit, and no variance by DeLong.

    Its other end is the AUC from which the one that was found is ``Z`` standard deviations away, by Hanley and McNeil's
    variance of that AUC (Newcombe 2006).

    Args:
        auc: 0 or 1.
        n0: rows outside the class.
        n1: rows inside.

    Returns:
        Its lower and upper end.
    """
    if not auc:  # the mirror image: the classes change places
        lower, upper = separated(1.0, n1, n0)
        return [1 - upper, 1 - lower]
    low, high = 0.0, 1.0  # of the distance from 1, by bisection
    for _ in range(60):
        middle = (low + high) / 2
        near = middle <= Z * math.sqrt(hanley_mcneil(1 - middle, n0, n1))
        low, high = (middle, high) if near else (low, middle)
    return [1 - low, 1.0]


def explained(result: Result) -> list[str]:
    """Say what the intervals of a result mean, and what is special about them.

    Args:
        result: the result.

    Returns:
        Lines of text; none if the result has no interval.
    """
    final, settings = result.get("final") or {}, result.get("settings") or {}
    if accuracy_interval(result) is None:
        return []
    found = [MEANING]
    if final.get("accuracy_error"):
        what = "added noise to" if noisy(result) else "rounded"
        found.append(f"nodes have {what} their counts: the intervals are wider by the error of that")
    if final.get("auc") is not None and final.get("confusion"):
        rows, interval = [sum(row) for row in final["confusion"]], auc_interval(result)
        if interval and (final.get("auc_error") or 0.0) > (interval[1] - interval[0]) / 2:
            found.append(f"scores lie close together: their bands alone can move the AUC by {final['auc_error']:.2f}")
        if len(rows) > 2:
            found.append(
                "the AUC of more than two classes has no interval: counts do not show how its parts vary together"
            )
        elif interval and min(rows) < FEW:
            found.append(
                f"a class has fewer than {FEW} held-out rows ({min(rows):.4g}): the AUC's interval is approximate"
            )
    chosen = [name for name in CHOOSING if settings.get(name) is not None]
    if chosen:
        found.append(f"{' and '.join(chosen)} chose the round by the held-out rows: the numbers are a little too good")
    return found


def _wider(interval: Interval, value: float, error: float) -> Interval:
    """The interval of a value to which an independent error with this standard deviation was added."""
    lower, upper = interval
    return [
        max(0.0, value - math.hypot(value - lower, Z * error)),
        min(1.0, value + math.hypot(upper - value, Z * error)),
    ]
