"""The numbers that a node sums over its rows besides gradient and Hessian, in the order in which they are sent."""

from typing import Literal

Ties = Literal["efron", "breslow"]

MEASURES = (
    "rows",
    "events",
    "log_likelihood",  # partial
    "pairs",  # of rows of the node, see ``likelihood.concordance``
    "concordant",
)
