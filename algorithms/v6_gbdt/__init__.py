"""Gradient boosted trees, InPrivate (Zhao et al. 2018), as a vantage6 algorithm."""

from v6_federated.functions import describe, evaluate
from v6_gbdt.central import central
from v6_gbdt.partial import count, grow, moments

__all__ = ["central", "count", "describe", "evaluate", "grow", "moments"]
