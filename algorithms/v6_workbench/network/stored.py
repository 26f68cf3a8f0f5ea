"""What the file of a method's entry for an algorithm store says: read without importing the method, which is slow.

Tests keep the entries of this project's methods as the code says.
"""

import json
from collections.abc import Mapping
from typing import Any

from v6_workbench import registry
from v6_workbench.network.project import FOUR

ONLY_PLAIN = "Secure aggregation is not possible"
AS_TEXT = ("string", "column")  # types of settings whose defaults are texts; those of others are JSON


def central(method: str) -> dict[str, Any]:
    """Read the entry of a method's central function.

    Args:
        method: the name of a method of this project.

    Returns:
        The entry, as ``store.entry`` makes it.
    """
    file = registry.folder_of(method) / FOUR.store
    (function,) = json.loads(file.read_text(encoding="utf-8"))["functions"]
    return dict(function)


def defaults(function: Mapping[str, Any]) -> dict[str, Any]:
    """Return the defaults of settings.

    Args:
        function: the entry of a central function.

    Returns:
        Values by the names of the settings that have a default.
    """
    return {one["name"]: _default(one) for one in function["arguments"] if one["has_default_value"]}


def _default(argument: Mapping[str, Any]) -> Any:
    text = argument.get("default_value")
    return text if text is None or argument["type"] in AS_TEXT else json.loads(text)


def needs_single(reason: str) -> str:
    """Say that a method cannot run with secure aggregation.

    Args:
        reason: why, as the method declares it.

    Returns:
        A sentence.
    """
    return f"{ONLY_PLAIN}: {reason}. The nodes' operators must set V6_FEDERATED_AGGREGATION=plain."


def single(function: Mapping[str, Any]) -> str:
    """Find what ``needs_single`` has said.

    Args:
        function: the entry of a central function.

    Returns:
        The sentence; empty if the method can run with secure aggregation.
    """
    _, said, reason = function["description"].partition(ONLY_PLAIN)
    return said + reason
