"""FederatedAveraging and FederatedSGD (McMahan et al. 2017) as a vantage6 algorithm."""

from v6_fedavg.central import central
from v6_fedavg.partial import client_update, compressed_update, ditto_update, evaluate_own, noisy_gradient
from v6_federated import confirm, count_rows, describe, evaluate, extract, fit_step, forget, keep_steps

__all__ = [
    "central",
    "client_update",
    "compressed_update",
    "confirm",
    "count_rows",
    "describe",
    "ditto_update",
    "evaluate",
    "evaluate_own",
    "extract",
    "fit_step",
    "forget",
    "keep_steps",
    "noisy_gradient",
]
