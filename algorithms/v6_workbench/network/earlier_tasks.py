"""What an earlier task has left, for a task that resumes it."""

from typing import Any

from v6_federated.base.errors import SafeError
from v6_federated.central import checkpoint
from v6_federated.central.history import lost
from v6_federated.data import preprocessing
from v6_federated.messages import codec
from v6_federated.messages.job import SHARED_FUNCTIONS
from v6_federated.messages.organizations import Organizations
from v6_workbench import registry
from v6_workbench.network import server, submit
from v6_workbench.network.client import UserClient, arguments_of, has_ended


def result_of(client: UserClient, task_id: int, method: str) -> dict[str, Any]:
    """Return what an earlier task can be resumed from.

    Args:
        client: a client that is signed in.
        task_id: the earlier task.
        method: the method's name.

    Returns:
        The task's result; if its central function was lost, what ``left_by`` finds.

    Raises:
        SafeError: the task cannot be resumed.
    """
    task = client.task.get(task_id)
    if not task or "id" not in task:
        raise SafeError(f"there is no task {task_id}; expected the number that `v6-federated submit` printed")
    status = client.request(f"task/{task_id}/status").get("status")
    if status is None or not has_ended(status):
        raise SafeError(f"task {task_id} is still running ({status}); wait until it ends, or stop it first")
    if any(row.get("result") for row in client.result.from_task(task_id)["data"]):
        return submit.result_of(client, task_id, method)
    return left_by(client, task_id, method)


def left_by(client: UserClient, task_id: int, method: str) -> dict[str, Any]:
    """Return what the server has kept of a task whose central function was lost.

    That is what the task had sent to the nodes in its last round, and the rounds in its log.

    Args:
        client: a client that is signed in.
        task_id: the task.
        method: the method's name.

    Returns:
        A result of the rounds that were finished, as far as it is known.

    Raises:
        SafeError: it is not enough to resume the task.
    """
    nothing = f"task {task_id} cannot be resumed"
    if not registry.recoverable(method):
        raise SafeError(
            f"{nothing}: its central function was lost, and {method} does not send all that it keeps to nodes"
        )
    subtasks = sorted(server.subtasks(client, task_id), key=lambda task: -task["id"])
    functions = [str(subtask["name"]).removeprefix(f"{method} ").partition(",")[0] for subtask in subtasks]
    sent = _last_round(client, subtasks, functions, nothing)
    if "weights" not in sent.get("arrays", {}).get("shapes", {}):
        raise SafeError(f"{nothing}: {method} had not sent its model in the last round")
    arrays, job = codec.decode(sent.pop("arrays")), sent.pop("job")
    if any("kept" in step for step in job["data"]["preprocess"]):  # these steps were sent once, in a task of their own
        handed = subtasks[functions.index("keep_steps")]["id"]
        large = _sent(client, handed, nothing)["job"]["data"]["preprocess"]
        whole = {preprocessing.reference(step)["kept"]: step for step in large}
        job["data"]["preprocess"] = [whole.get(step.get("kept"), step) for step in job["data"]["preprocess"]]
    rows = {row["round"]: row for row in submit.rounds_in(server.one_run(client, task_id).get("log") or "")}
    if not rows:
        raise SafeError(f"{nothing}: its log has no finished round, or its node does not share the log")
    # the row of the round before the last is printed only when the answers of the last have come
    finished = [rows.get(t, lost(t, next(iter(rows.values())))) for t in range(1, sent["round"])]
    settings = _sent(client, task_id, nothing)
    return {
        "method": method,
        "settings": {"seed": job["seed"], **{name: value for name, value in settings.items() if name != "resume"}},
        "organizations": [*Organizations(job["participants"])],
        "weights": codec.encode({"weights": arrays.pop("weights")}),
        "state": checkpoint.to_json({**sent, **arrays}),
        "model": job["model"],
        "data": job["data"],
        "undescribed": [],
        "history": finished,
        "per_node": [],
        "traffic": {name: {"bytes_up": 0, "bytes_down": 0} for name in ("preparation", "evaluation")},
        "final": None,
    }


def _last_round(
    client: UserClient, subtasks: list[dict[str, Any]], functions: list[str], nothing: str
) -> dict[str, Any]:
    """The arguments of the latest call of one of the method's own functions."""
    for subtask, function in zip(subtasks, functions, strict=True):
        if function not in SHARED_FUNCTIONS:
            return _sent(client, subtask["id"], nothing)
    raise SafeError(f"{nothing}: it had not begun to train")


def _sent(client: UserClient, task: int, nothing: str) -> dict[str, Any]:
    """The arguments of a call as the server has kept them."""
    try:
        return arguments_of(server.one_run(client, task))
    except (ValueError, KeyError, TypeError):
        raise SafeError(f"{nothing}: its messages cannot be read, since the collaboration is encrypted") from None
