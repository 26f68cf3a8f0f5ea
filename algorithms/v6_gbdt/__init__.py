"""Gradient boosted trees as a vantage6 algorithm: InPrivate (Zhao et al. 2018), and trees from sums over nodes."""

from v6_federated import confirm, count_rows, describe, evaluate, extract, fit_step, forget, keep_steps
from v6_gbdt.central import central
from v6_gbdt.partial import average, bin_sums, count, grow, leaf_sums, noisy_leaf_sums

__all__ = [
    "average",
    "bin_sums",
    "central",
    "confirm",
    "count",
    "count_rows",
    "describe",
    "evaluate",
    "extract",
    "fit_step",
    "forget",
    "grow",
    "keep_steps",
    "leaf_sums",
    "noisy_leaf_sums",
]
