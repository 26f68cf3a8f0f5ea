"""What the central function of a task has asked nodes for, as the server lists it."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from v6_workbench.network import server
from v6_workbench.network.client import UserClient, has_ended

CALL = re.compile(r"\S+ (\w+), round (\d+)(?:, organization (\d+))?")  # name of a task that central sent


class Call(NamedTuple):
    """A call of a partial function at one node.

    Attributes:
        function: the function's name.
        round: the round; 0 is the preparation.
        ended: whether it has ended.
        organization: the organization whose node is called; None if the image is older than this machine's code.
    """

    function: str
    round: int
    ended: bool
    organization: int | None = None


def latest(client: UserClient, task_id: int) -> list[Call]:
    """List the latest calls of a central function.

    Args:
        client: a client that is signed in.
        task_id: its task.

    Returns:
        The calls of the server's first page, the newest first; none if the server does not show them.
    """
    page = client.request("task", params={"parent_id": task_id, "sort": "-id", "page": 1, "per_page": server.PAGE})
    named = ((CALL.fullmatch(row["name"] or ""), row) for row in page.get("data", []))
    return [
        Call(found[1], int(found[2]), has_ended(row["status"]), int(found[3]) if found[3] else None)
        for found, row in named
        if found
    ]


def described(calls: Sequence[Call]) -> str:
    """Say what nodes were asked for last.

    A node may be called more than once in a round: it is asked again after it has failed, and some functions are called
    several times. Only its last call counts.

    Args:
        calls: calls, the newest first.

    Returns:
        For example "client_update, round 4; 1 of 3 nodes have ended it"; empty if there are no calls.
    """
    if not calls:
        return ""
    function, number, *_ = calls[0]
    ended: dict[object, bool] = {}
    for i, call in enumerate(calls):
        if call[:2] != (function, number):
            break
        ended.setdefault(i if call.organization is None else ("organization", call.organization), call.ended)
    when = f"round {number}" if number else "before round 1"
    return f"{function}, {when}; {sum(ended.values())} of {len(ended)} nodes have ended it"
