"""What the organizations of a result are called, and their own results."""

from collections.abc import Iterable
from typing import Any

from v6_workbench.reporting.intervals import Result, accuracy_interval, auc_interval


def names_of(result: Result) -> dict[int, str]:
    """Return the names of the organizations of a result, as far as they are known.

    Args:
        result: the result. Nodes on this machine have the names of the experiment; those of a network, the names that
            the server gave.

    Returns:
        Names by the ids of organizations.
    """
    origin = result.get("experiment") or {}
    trained = origin.get("trained", "federated")
    if trained != "federated":  # a baseline: one node, with the rows of one hospital or of all
        return {1: trained.removeprefix("alone: ")}
    listed = {int(k): str(name) for k, name in (origin.get("organizations") or {}).items()}
    return listed or {k: str(name) for k, name in enumerate(origin.get("nodes") or (), start=1)}


def called(result: Result, organizations: Iterable[int]) -> list[str]:
    """Name organizations.

    Args:
        result: the result.
        organizations: their ids.

    Returns:
        The name of each, or its id if no name is known.
    """
    known = names_of(result)
    return [known.get(k, str(k)) for k in organizations]


def nodes_of(result: Result) -> list[tuple[str, int, bool]]:
    """List the nodes of an experiment.

    Args:
        result: the result.

    Returns:
        The name of each, its rows, and whether it took part: it trained, or evaluated only (``evaluators``). All took
        part in a baseline. Empty if the result is of a network.
    """
    origin, settings = result.get("experiment") or {}, result.get("settings") or {}
    asked = {*(result.get("organizations") or ()), *(settings.get("evaluators") or ())}
    every = origin.get("trained", "federated") != "federated" or not asked
    listed = zip(origin.get("nodes") or (), origin.get("rows") or (), strict=False)
    return [(str(name), n, every or k in asked) for k, (name, n) in enumerate(listed, start=1)]


def own_results(result: Result) -> list[dict[str, Any]]:
    """Return the hospitals' own results, as far as their operators let them be shown.

    Args:
        result: the result.

    Returns:
        A row for each: its ``name``, the measures of the result's ``by_hospital``, ``accuracy_interval`` and
        ``auc_interval``. None for a baseline, whose held-out rows are those of all hospitals at one node.
    """
    if (result.get("experiment") or {}).get("trained", "federated") != "federated":
        return []
    return [
        {
            "name": called(result, [row["organization"]])[0],
            **row,
            "accuracy_interval": accuracy_interval({"final": row}),
            "auc_interval": auc_interval({"final": row}),
        }
        for row in result.get("by_hospital") or ()
    ]
