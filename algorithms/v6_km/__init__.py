"""Kaplan-Meier curves and the log-rank test on agreed bins of time, as a vantage6 algorithm."""

from v6_federated import confirm, count_events, count_rows, describe, extract, fit_step, forget
from v6_km.central import central
from v6_km.partial import leaving

__all__ = [
    "central",
    "confirm",
    "count_events",
    "count_rows",
    "describe",
    "extract",
    "fit_step",
    "forget",
    "leaving",
]
