"""Federated principal component analysis (Garst 2021, Algorithm 3) as a vantage6 algorithm."""

from v6_federated import confirm, count_rows, describe, extract, fit_step, forget
from v6_pca.central import central
from v6_pca.partial import noisy_moments, transform

__all__ = [
    "central",
    "confirm",
    "count_rows",
    "describe",
    "extract",
    "fit_step",
    "forget",
    "noisy_moments",
    "transform",
]
