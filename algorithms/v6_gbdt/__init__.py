"""Gradient boosted trees, InPrivate (Zhao et al. 2018), as a vantage6 algorithm."""

from v6_federated import confirm, count_rows, describe, evaluate, fit_step, forget, keep_steps
from v6_gbdt.central import central
from v6_gbdt.partial import average, count, grow

__all__ = [
    "average",
    "central",
    "confirm",
    "count",
    "count_rows",
    "describe",
    "evaluate",
    "fit_step",
    "forget",
    "grow",
    "keep_steps",
]
