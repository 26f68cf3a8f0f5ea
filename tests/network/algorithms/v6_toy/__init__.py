"""An algorithm that does nothing: the cost of a round on a vantage6 network without a method's own work."""

from .central import central
from .partial import column_sum, crash, nothing

__all__ = ["central", "column_sum", "crash", "nothing"]
