"""What the central function of a task has asked nodes for, as the server lists it."""

import itertools
import re
from collections.abc import Sequence
from typing import NamedTuple

from v6_workbench.network import server
from v6_workbench.network.client import UserClient, has_ended

CALL = re.compile(r"\S+ (\w+), round (\d+)")  # name of a task that central sent


class Call(NamedTuple):
    """A call of a partial function at one node: its name, its round (0 is the preparation), whether it has ended."""

    function: str
    round: int
    ended: bool


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
    return [Call(found[1], int(found[2]), has_ended(row["status"])) for found, row in named if found]


def described(calls: Sequence[Call]) -> str:
    """Say what nodes were asked for last.

    Args:
        calls: calls, the newest first.

    Returns:
        For example "client_update, round 4; 1 of 3 nodes have ended it"; empty if there are no calls.
    """
    if not calls:
        return ""
    function, number, _ = calls[0]
    same = [*itertools.takewhile(lambda call: call[:2] == (function, number), calls)]
    when = f"round {number}" if number else "before round 1"
    return f"{function}, {when}; {sum(call.ended for call in same)} of {len(same)} nodes have ended it"
