"""A researcher's tasks on a vantage6 server: find them again, see how far they are, stop one."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from pydantic import TypeAdapter

from v6_federated.base.errors import SafeError
from v6_federated.messages.job import SHARED_FUNCTIONS
from v6_workbench import registry
from v6_workbench.errors import NetworkError
from v6_workbench.network import calls, server, submit
from v6_workbench.network.calls import Call
from v6_workbench.network.client import COMPLETED, KILLED, PENDING, UserClient, has_ended, is_job, status_of

TIME = TypeAdapter(datetime)
NAME = re.compile(r"v6-federated (\S+)")  # of a task that ``submit`` sent
IMAGE = re.compile(r"(?:.*/)?v6-([^:@/]+)(?:[:@].*)?")  # of a task that was sent from elsewhere
ROUNDS = re.compile(r"\S+, (\d+) rounds")  # description of a task that ``submit`` sent
DIGEST = re.compile(r"(?:@|, image )(sha256:[0-9a-f]{64})$")  # in the name of an image, or in such a description
STOPPED = (
    "task {task} is stopped: nodes remove its containers, and no new ones start. A container at a node that is not "
    "connected to the server at the moment ends only by itself. What nodes have already sent is not taken back"
)


@dataclass(frozen=True)
class Task:
    """A job of one of the methods.

    Attributes:
        id: the task's id.
        method: the method's name.
        status: vantage6's word for its state.
        sent: when it was sent.
        started: when central began; None if it has not.
        ended: when it ended; None if it has not.
        user: who sent it.
        organization: id of the organization that sent it.
        central: id of the organization where central runs.
        image: the method's image.
        digest: the image's digest; None if neither its name nor the task's description has it.
        rounds: number of rounds that it was to train; None if unknown.
        history: rows of the finished rounds in its log; empty if there are none, or if its node does not share the log.
        begun: the latest round in which nodes were asked to train; 0 if none was.
        calls: what central has asked nodes for, the newest call first; only those of the latest page.
        waits: whether it has not begun because its node is offline.
    """

    id: int
    method: str
    status: str
    sent: datetime
    started: datetime | None
    ended: datetime | None
    user: str
    organization: int
    central: int
    image: str
    digest: str | None
    rounds: int | None
    history: Sequence[Mapping[str, Any]]
    begun: int
    calls: Sequence[Call]
    waits: bool

    @property
    def finished(self) -> int:
        """How many rounds are finished. The log has a round once the model was evaluated, during the next round."""
        trained = self.begun if self.status == COMPLETED else max(self.begun - 1, 0)
        return max([trained, *(row["round"] for row in self.history)])

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return not has_ended(self.status)

    @property
    def silent(self) -> bool:
        """Whether the log should have a round by now and has none: its node does not share it."""
        return self.finished > 1 and not self.history


def newest(client: UserClient, number: int) -> list[Task]:
    """List the newest jobs of all methods.

    Args:
        client: a client that is signed in.
        number: how many to list at most.

    Returns:
        The jobs, the newest first.

    Raises:
        NetworkError: the server does not list them.
    """
    names: dict[int, str] = {}
    found: list[Task] = []
    filters = {"collaboration_id": client.collaboration_id, "is_user_created": 1, "sort": "-id"}
    for row in server.rows(client, "task", **filters):
        if len(found) == number:
            break
        if method_of(row) is not None and len(runs := server.runs(client, row["id"])) == 1:
            found.append(_described(client, row, runs[0], names))
    return found


def find(client: UserClient, task_id: int) -> Task:
    """Find a job of one of the methods.

    Args:
        client: a client that is signed in.
        task_id: the task's id.

    Returns:
        The job.

    Raises:
        SafeError: there is no such task, or it is not a job of a method.
        NetworkError: the server does not show the task.
    """
    row: dict[str, Any] = client.request(f"task/{task_id}")
    if "id" not in row:
        if "not found" in server.reason(row):
            raise SafeError(f"there is no task {task_id}; `v6-federated tasks` lists those that there are")
        raise NetworkError(f"the server does not show task {task_id}: {server.reason(row)}")
    if row["parent"]:
        raise SafeError(f"task {task_id} is a step of task {row['parent']['id']}; use {row['parent']['id']}")
    if method_of(row) is None:
        raise SafeError(
            f"task {task_id} ({row['name']}) is not one of v6-federated: its image is {row['image']}; `v6-federated "
            "tasks` lists those that are"
        )
    if (collaboration := row["collaboration"]["id"]) != client.collaboration_id:
        raise SafeError(f"task {task_id} is in collaboration {collaboration}; use --collaboration {collaboration}")
    runs = server.runs(client, task_id)
    if len(runs) != 1:
        raise SafeError(
            f"task {task_id} was sent to {len(runs)} organizations; expected one that was sent to one, as by `submit`"
        )
    return _described(client, row, runs[0], {})


def method_of(row: Mapping[str, Any]) -> str | None:
    """Tell which method a task runs.

    Args:
        row: the task as the server describes it.

    Returns:
        The method's name, from the task's name or its image; None if it is a task of another program, or if it only
        extracts rows for a method.
    """
    if not is_job(row):
        return None
    for pattern, text in ((NAME, row["name"]), (IMAGE, row["image"])):
        found = pattern.fullmatch(text or "")
        if found and found[1] in registry.names():
            return found[1]
    return None


def stop(client: UserClient, task_id: int) -> None:
    """Let the server stop a task and what it has asked of nodes: see ``STOPPED``.

    Args:
        client: a client that is signed in.
        task_id: a task that has not ended.

    Raises:
        NetworkError: the server does not stop it.
    """
    # ``client.task.kill`` sends the same, and keeps the answer to itself
    answer = client.request("kill/task", method="post", json={"id": task_id})
    if status_of(client.request(f"task/{task_id}/status"), server.one_run(client, task_id)) != KILLED:
        why = server.reason(answer)
        cure = " A role must have the rule to send events to a collaboration; its administrators have it"
        raise NetworkError(f"the server did not stop task {task_id}: {why}{cure if 'permission' in why else ''}")


def _described(client: UserClient, row: Mapping[str, Any], run: Mapping[str, Any], names: dict[int, str]) -> Task:
    """A task and its run as the server describes them; ``names`` holds the names of users by their ids."""
    asked = calls.latest(client, row["id"])
    own = (call.round for call in asked if call.function not in SHARED_FUNCTIONS)
    said = row["image"], row["description"] or ""
    rounds = ROUNDS.match(said[1])
    return Task(
        id=row["id"],
        method=method_of(row) or "",
        status=status_of(row, run),
        sent=_time(row["created_at"]),
        started=_time(run["started_at"]) if run.get("started_at") else None,
        ended=_time(run["finished_at"]) if run.get("finished_at") else None,
        user=_user(client, row["init_user"], names),
        organization=row["init_org"]["id"],
        central=run["organization"]["id"],
        image=row["image"],
        digest=next((found[1] for text in said if (found := DIGEST.search(text))), None),
        rounds=int(rounds[1]) if rounds else None,
        history=submit.rounds_in(run.get("log") or ""),
        begun=next(own, 0),
        calls=asked,
        waits=status_of(row, run) == PENDING and (run.get("node") or {}).get("status") != "online",
    )


def _user(client: UserClient, user: Mapping[str, Any] | None, names: dict[int, str]) -> str:
    """Name of a user; some may not see it, and the user may have been deleted."""
    if not user:
        return "a former user"
    if user["id"] not in names:
        names[user["id"]] = client.request(f"user/{user['id']}").get("username") or f"user {user['id']}"
    return names[user["id"]]


def _time(text: str) -> datetime:
    """A time of the server, which is in UTC and does not say so."""
    time = TIME.validate_python(text)  # Python 3.10 itself reads no fraction of one digit
    return time if time.tzinfo else time.replace(tzinfo=timezone.utc)
