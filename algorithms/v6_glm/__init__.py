"""Exact generalised linear models by Newton's method on federated sums, as a vantage6 algorithm."""

from v6_federated import confirm, count_rows, describe, evaluate, extract, fit_step, forget, keep_steps
from v6_glm.central import central
from v6_glm.partial import newton, noisy_newton

__all__ = [
    "central",
    "confirm",
    "count_rows",
    "describe",
    "evaluate",
    "extract",
    "fit_step",
    "forget",
    "keep_steps",
    "newton",
    "noisy_newton",
]
