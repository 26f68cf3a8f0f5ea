"""A method that does nothing, to measure what a call costs: the weights go to every node and come back."""

from typing import Any

from v6_federated import functions
from v6_federated.functions import describe, evaluate
from v6_federated.node import Node

__all__ = ["describe", "echo", "evaluate"]


@functions.partial
def echo(node: Node, weights: Any) -> dict[str, Any]:
    """Send back what came."""
    return {"weights": weights}
