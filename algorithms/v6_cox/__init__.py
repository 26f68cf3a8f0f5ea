"""Cox's proportional hazards by Newton's method on federated sums, as a vantage6 algorithm."""

from v6_cox.central import central
from v6_cox.partial import newton, newton_on_grid
from v6_federated import confirm, count_events, count_rows, describe, evaluate, extract, fit_step, forget, keep_steps

__all__ = [
    "central",
    "confirm",
    "count_events",
    "count_rows",
    "describe",
    "evaluate",
    "extract",
    "fit_step",
    "forget",
    "keep_steps",
    "newton",
    "newton_on_grid",
]
