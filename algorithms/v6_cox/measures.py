"""The numbers that a node sums over its rows besides gradient and Hessian, in the order in which they are sent."""

from typing import Literal

Ties = Literal["efron", "breslow"]
Strata = Literal["hospital", "none"]

MEASURES = (
    "rows",
    "events",
    "log_likelihood",  # partial; 0 without strata, as it follows from other sums
    "pairs",  # of rows of the node, see ``times.concordance``
    "concordant",
)
