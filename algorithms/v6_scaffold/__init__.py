"""SCAFFOLD (Karimireddy et al. 2020) as a vantage6 algorithm."""

from v6_federated import confirm, count_rows, describe, evaluate, extract, fit_step, forget, keep_steps
from v6_scaffold.central import central
from v6_scaffold.partial import client_update

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
    "keep_steps",
]
