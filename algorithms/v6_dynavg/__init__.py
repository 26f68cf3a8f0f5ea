"""Dynamic averaging (Kamp et al. 2018; Reddy 2020, Algorithms 1, 3 and 4) as a vantage6 algorithm."""

from v6_dynavg.central import central
from v6_dynavg.partial import local_update, send_model, singular_index, train
from v6_federated import confirm, count_rows, describe, evaluate, extract, fit_step, forget, keep_steps

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
    "local_update",
    "send_model",
    "singular_index",
    "train",
]
