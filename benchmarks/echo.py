"""A method that does nothing, to measure the cost of a call: the weights go to every node and come back."""

from typing import Any

from v6_federated import Node, describe, evaluate, partial

__all__ = ["describe", "echo", "evaluate"]


@partial
def echo(node: Node, weights: Any) -> dict[str, Any]:
    """Send the weights back."""
    return {"weights": weights}
