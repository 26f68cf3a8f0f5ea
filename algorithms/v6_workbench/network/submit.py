"""A researcher's task on a real vantage6 server: send it, show its rounds as they happen, bring the result."""

import base64
import contextlib
import json
import time
from collections.abc import Callable, Sequence
from typing import Any

from requests.exceptions import RequestException
from vantage6.client import UserClient
from vantage6.common.task_status import has_task_finished

from v6_federated.base import vantage6_api
from v6_federated.base.errors import SafeError
from v6_federated.central import checkpoint
from v6_federated.central.history import lost
from v6_federated.data import preprocessing
from v6_federated.messages import codec
from v6_federated.messages.job import SHARED_FUNCTIONS
from v6_federated.models import metrics
from v6_workbench import registry
from v6_workbench.network import server

POLL_SECONDS = 1.0
TELLING_SECONDS = 2.0
# What a run's status means where its log says nothing that helps.
WHY = {
    "non-existing Docker image": "its node finds no image {image}; expected one that it can pull, or, where its "
    "policies allow that, has",
    "not allowed": "its node's policies do not allow image {image}, or not from this researcher",
    "killed by user": "the task was stopped",
    "completed": "image {image} ended without a result; expected the image of a vantage6 algorithm",
}


def send(
    client: UserClient,
    method: str,
    values: dict[str, Any],
    *,
    collaboration: int,
    organization: int,
    image: str,
    label: str,
    query: str | None = None,
) -> int:
    """Send a task whose central function runs at ``organization``; returns its id. Raises SafeError."""
    model = f" of {values['model']}" if values.get("model") else ""
    task = client.task.create(
        collaboration=collaboration,
        organizations=[organization],
        name=f"v6-federated {method}",
        image=image,
        description=f"{method}, {values.get('rounds')} rounds{model}",
        input_={"method": "central", "kwargs": values},
        databases=[{"label": label, **({"query": query} if query else {})}],
    )
    if not task or "id" not in task:
        raise SafeError(f"the server refused the task: {(task or {}).get('msg', 'no reason given')}")
    return task["id"]


def check_nodes(client: UserClient, collaboration: int, label: str, organizations: list[int] | None) -> list[int]:
    """The organizations (None: all) whose node is offline, for which a task would wait.

    Raises SafeError where an organization is not in the collaboration, or where a node tells its labels and has no
    such database.
    """
    nodes = _nodes(client, collaboration)
    asked = sorted(nodes) if organizations is None else organizations
    if unknown := sorted(set(asked) - set(nodes)):
        raise SafeError(f"no node of organizations {unknown} in the collaboration; expected some of {sorted(nodes)}")
    if any(nodes[k]["status"] == "online" and not nodes[k]["config"] for k in asked):
        time.sleep(TELLING_SECONDS)  # a node that has just come online tells its labels a moment later
        nodes = _nodes(client, collaboration)
    for organization in asked:
        told = nodes[organization]["config"]
        labels = sorted(entry["value"] for entry in told if entry["key"] == "database_labels")
        if labels and label not in labels:
            raise SafeError(
                f"organization {organization}: its node has no database {label!r}; expected {' or '.join(labels)}"
            )
    return [organization for organization in asked if nodes[organization]["status"] != "online"]


def _nodes(client: UserClient, collaboration: int) -> dict[int, dict[str, Any]]:
    return {node["organization"]["id"]: node for node in server.nodes(client, collaboration)}


def follow(client: UserClient, task_id: int, method: str, on_round: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Wait for a task, calling ``on_round`` once with each row of history as the log of its run tells it.

    Where the node keeps its logs to itself, the rounds are seen only in the result.
    Raises CollectResultsError that says what became of the task.
    """
    run_id = client.run.from_task(task_id)["data"][0]["id"]
    shown = silent = 0

    def show(rows: Sequence[dict[str, Any]]) -> None:
        nonlocal shown
        for row in rows:
            if row["round"] > shown:  # a central function that was started again begins its log anew
                shown = row["round"]
                on_round(row)

    while silent <= vantage6_api.PATIENCE:
        status = _told(client, f"task/{task_id}/status").get("status")
        silent = 0 if status else silent + 1
        ended = status is not None and has_task_finished(status)
        show(_rounds(_told(client, f"run/{run_id}", params={"fields": "log"}).get("log") or ""))
        if ended:
            result = _result(client, task_id, method)
            show(result["history"])
            return result
        time.sleep(POLL_SECONDS)
    raise vantage6_api.CollectResultsError(f"task {task_id}: the server no longer tells its status; the task may go on")


def earlier(client: UserClient, task_id: int, method: str) -> dict[str, Any]:
    """What an earlier task has left to go on from: its result, or, where its central function was lost, what it had
    sent to the nodes in its last round and the rounds that its log tells. Raises SafeError where that is not enough."""
    task = client.task.get(task_id)
    if not task or "id" not in task:
        raise SafeError(f"no task {task_id}; expected the id that `submit` told")
    status = client.request(f"task/{task_id}/status").get("status")
    if status is None or not has_task_finished(status):
        raise SafeError(f"task {task_id} is still at work ({status}); expected one that has ended")
    if any(row.get("result") for row in client.result.from_task(task_id)["data"]):
        return _result(client, task_id, method)
    return _left_by(client, task_id, method)


def _left_by(client: UserClient, task_id: int, method: str) -> dict[str, Any]:
    nothing = f"task {task_id} has left nothing to go on from"
    if not registry.recoverable(method):
        raise SafeError(f"{nothing}: its central function was lost, and with it what {method} tells no node")
    subtasks = sorted(server.subtasks(client, task_id), key=lambda task: -task["id"])
    functions = [str(subtask["name"]).removeprefix(f"{method} ").partition(",")[0] for subtask in subtasks]
    for subtask, function in zip(subtasks, functions, strict=True):
        if function in SHARED_FUNCTIONS:
            continue
        sent = _sent(client, subtask["id"], nothing)
        if "weights" not in sent.get("arrays", {}).get("shapes", {}):
            raise SafeError(f"{nothing}: {method} had not sent its model in the last round")
        break
    else:
        raise SafeError(f"{nothing}: it had not begun to train")
    arrays, job = codec.decode(sent.pop("arrays")), sent.pop("job")
    if any("kept" in step for step in job["data"]["preprocess"]):  # these were sent once, in a task of their own
        handed = subtasks[functions.index("keep_steps")]["id"]
        large = _sent(client, handed, nothing)["job"]["data"]["preprocess"]
        whole = {preprocessing.reference(step)["kept"]: step for step in large}
        job["data"]["preprocess"] = [whole.get(step.get("kept"), step) for step in job["data"]["preprocess"]]
    log = server.one_run(client, task_id).get("log") or ""
    told = {row["round"]: row for row in _rounds(log)}
    if not told:
        raise SafeError(f"{nothing}: its node keeps the log of the rounds to itself, or there was none")
    # the round before the last is told with the last one's answers
    finished = [told.get(t, lost(t, next(iter(told.values())))) for t in range(1, sent["round"])]
    settings = _sent(client, task_id, nothing)
    return {
        "method": method,
        "settings": {name: value for name, value in settings.items() if name != "resume"},
        "organizations": job["participants"],
        "weights": codec.encode({"weights": arrays.pop("weights")}),
        "state": checkpoint.to_json({**sent, **arrays}),
        "model": job["model"],
        "data": job["data"],
        "undescribed": [],
        "score_scale": metrics.SCALE,
        "history": finished,
        "per_node": [],
        "traffic": {name: {"bytes_up": 0, "bytes_down": 0} for name in ("preparation", "evaluation")},
    }


def _sent(client: UserClient, task: int, nothing: str) -> dict[str, Any]:
    """The arguments of a call as the server has kept them. Raises SafeError that begins with ``nothing``."""
    try:
        return json.loads(base64.b64decode(server.one_run(client, task)["input"]))["kwargs"]
    except (ValueError, KeyError, TypeError):
        raise SafeError(f"{nothing}: what it sent cannot be read, its collaboration is encrypted") from None


def _rounds(log: str) -> list[dict[str, Any]]:
    """The rows of history in a log; the last line may still be on its way."""
    rows = []
    for line in log.splitlines():
        with contextlib.suppress(ValueError):
            if isinstance(row := json.loads(line.partition(vantage6_api.ROUND)[2]), dict):
                rows.append(row)
    return rows


def _told(client: UserClient, endpoint: str, **parameters: Any) -> dict[str, Any]:
    """What the server answers; nothing where it fails for a moment (lost connections the client tries again itself)."""
    try:
        return client.request(endpoint, **parameters)
    except RequestException:
        return {}


def _result(client: UserClient, task_id: int, method: str) -> dict[str, Any]:
    found = [row["result"] for row in client.result.from_task(task_id)["data"] if row.get("result")]
    if not found:
        raise vantage6_api.CollectResultsError(f"task {task_id}: {_failure(client, task_id)}")
    result = json.loads(found[0]) if isinstance(found[0], str) else found[0]
    if not isinstance(result, dict) or result.get("method") != method:
        image = client.task.get(task_id)["image"]
        raise vantage6_api.CollectResultsError(f"task {task_id}: image {image} holds another method; expected {method}")
    return result


def _failure(client: UserClient, task_id: int) -> str:
    """What became of a task without a result: its status where that says it, else the run's last words."""
    run = server.one_run(client, task_id)
    who = f"organization {run['organization']['id']}: "
    if run["status"] in WHY:
        return who + WHY[run["status"]].format(image=client.task.get(task_id)["image"])
    words = vantage6_api.last_words(server.last_line(run.get("log") or ""))
    return words or f"{who}run {run['status']}; its node keeps the log to itself"
