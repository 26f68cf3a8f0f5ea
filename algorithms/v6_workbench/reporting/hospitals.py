"""What the organizations of a result are called."""

from collections.abc import Iterable

from v6_workbench.reporting.intervals import Result


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
