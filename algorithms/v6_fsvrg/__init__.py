"""Federated SVRG (Konecny et al. 2016, as in Nilsson et al. 2018, Algorithm 2) as a vantage6 algorithm."""

from v6_federated import confirm, count_rows, describe, evaluate, extract, fit_step, forget, keep_steps
from v6_fsvrg.central import central
from v6_fsvrg.partial import client_update, gradient

__all__ = [
    "central",
    "client_update",
    "confirm",
    "count_rows",
    "describe",
    "evaluate",
    "extract",
    "fit_step",
    "forget",
    "gradient",
    "keep_steps",
]
