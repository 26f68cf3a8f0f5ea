"""CO-OP (Wang 2017; Nilsson et al. 2018) as a vantage6 algorithm."""

from v6_coop.central import central
from v6_coop.partial import client_update
from v6_federated import confirm, count_rows, describe, evaluate, extract, fit_step, forget, keep_steps

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
