"""A researcher's task on a real vantage6 server: send it, show its rounds as they happen, fetch the result."""

import contextlib
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from requests.exceptions import RequestException

from v6_federated.base import json_text, logs, vantage6_api
from v6_federated.base.errors import SafeError
from v6_workbench import registry
from v6_workbench.errors import NetworkError, ServerGone
from v6_workbench.network import calls, server
from v6_workbench.network.client import COMPLETED, UserClient, create_task, has_ended, rows_for

POLL_SECONDS = 1.0
CALLS_EVERY = 5  # polls: the list of calls is the largest of the answers, and the server serves all at once
LABELS_SECONDS = 2.0  # after which a node that has just come online has sent its labels
UNKNOWN = re.compile(r"unknown setting '(\w+)'")  # in the log of a task whose image is older than this machine's code
# what a run's status means, if its log does not say it better
AGAIN = "send the task again, and if that does not help, ask its operator, whose node's log says more"
WHY = {
    "non-existing Docker image": "its node does not find the image {image}; expected one that it can pull, or that it "
    "has if its policies allow local images",
    "not allowed": "its node's policies do not allow the image {image}, or not for this researcher",
    "killed by user": "the task was stopped",
    # a node that loses its connection for a moment may start a task twice, and then loses the first container
    "start failed": f"its node could not start a container of the image {{image}}; {AGAIN}",
    "unknown error": f"its node has lost the container of the task; {AGAIN}",
    "completed": "the image {image} ended without a result; expected the image of a vantage6 algorithm",
    "unexpected output": "the image {image} extracted no table; expected the image of a method of v6-federated",
    "dataframe not found": f"its node has lost the rows that it had extracted; {AGAIN}",
}
SIBLING = "because sibling run"  # in the log of a run that vantage6 has failed because another one failed


def send(
    client: UserClient,
    method: str,
    values: dict[str, Any],
    *,
    collaboration: int,
    organization: int,
    image: str,
    label: str,
    organizations: Sequence[int] = (),
    query: str | None = None,
    digest: str | None = None,
    say: Callable[[str], None] = print,
) -> int:
    """Send a task, in vantage6 5 after the nodes have extracted their rows for it.

    Args:
        client: a client that is signed in.
        method: the method's name.
        values: its settings.
        collaboration: id of the collaboration.
        organization: id of the organization where the central function runs.
        image: the method's image.
        label: label of the nodes' database.
        organizations: ids of the organizations that take part, that of central among them.
        query: query for an SQL or SPARQL database.
        digest: what the image is at the moment, if the task cannot name it so; the server keeps it with the task.
        say: called with the progress of the extraction.

    Returns:
        The task's id.

    Raises:
        SafeError: the server refuses the task.
        CollectResultsError: a node could not extract its rows; the text says why.
    """
    model = f" of {values['model']}" if values.get("model") else ""
    rows = rows_for(client, collaboration, organizations, image, label, query)
    if rows.task is not None:
        _wait_for_rows(client, rows.task, image, say)
    task = create_task(
        client,
        rows,
        values,
        collaboration=collaboration,
        organizations=[organization],
        name=f"v6-federated {method}",
        image=image,
        description=f"{method}, {values.get('rounds')} rounds{model}" + (f", image {digest}" if digest else ""),
    )
    if not task or "id" not in task:
        raise SafeError(f"the server refused the task: {(task or {}).get('msg', 'no reason given')}")
    return task["id"]


def _wait_for_rows(client: UserClient, task_id: int, image: str, say: Callable[[str], None]) -> None:
    """Wait until all nodes have extracted their rows. If one fails, or at Ctrl-C, the others are stopped."""
    say(f"task {task_id}: the nodes extract their rows, before the method's own task is sent")
    ready: set[int] = set()
    try:
        while True:
            try:
                runs = server.runs(client, task_id)
            except RequestException:  # the server fails for a moment
                time.sleep(POLL_SECONDS)
                continue
            failed = [run for run in runs if run["status"] != COMPLETED and has_ended(run["status"])]
            for run in runs:
                who = run["organization"]["id"]
                if run["status"] == COMPLETED and who not in ready:
                    ready.add(who)
                    say(f"organization {who} has extracted its rows ({len(ready)} of {len(runs)})")
            if failed:
                # vantage6 marks what has not begun as failed too, and says in its log which run it was because of
                first = min(failed, key=lambda run: (SIBLING in (run.get("log") or ""), run["id"]))
                why = _failure(client, task_id, first, image)
                raise vantage6_api.CollectResultsError(
                    f"task {task_id}: {why}; nothing was trained. Correct this, or name the other organizations with "
                    "--set 'organizations=[...]'"
                )
            if len(ready) == len(runs):
                return
            time.sleep(POLL_SECONDS)
    except BaseException:
        with contextlib.suppress(RequestException, NetworkError):
            client.request("kill/task", method="post", json={"id": task_id})
        raise


def check_nodes(client: UserClient, collaboration: int, label: str, organizations: list[int] | None) -> list[int]:
    """Check the nodes before a task is sent.

    Args:
        client: a client that is signed in.
        collaboration: id of the collaboration.
        label: label of the nodes' database.
        organizations: ids of the organizations that the task asks; None is all.

    Returns:
        Ids of the organizations whose node is offline: a task would wait for them.

    Raises:
        SafeError: an organization is not in the collaboration, or its node says that it has no such database.
    """
    nodes = _nodes(client, collaboration)
    asked = sorted(nodes) if organizations is None else organizations
    if unknown := sorted(set(asked) - set(nodes)):
        names = server.organizations(client)
        there = ", ".join(f"{k} ({names[k]})" if k in names else str(k) for k in sorted(nodes))
        raise SafeError(
            f"organizations {', '.join(map(str, unknown))} have no node in the collaboration; expected some of {there}"
        )
    if any(nodes[k]["status"] == "online" and not nodes[k]["config"] for k in asked):
        time.sleep(LABELS_SECONDS)
        nodes = _nodes(client, collaboration)
    for organization in asked:
        config = nodes[organization]["config"]
        labels = sorted(entry["value"] for entry in config if entry["key"] == "database_labels")
        if labels and label not in labels:
            raise SafeError(
                f"organization {organization}: its node has no database {label!r}; use --database {' or '.join(labels)}"
            )
    return [organization for organization in asked if nodes[organization]["status"] != "online"]


def members(client: UserClient, collaboration: int) -> list[int]:
    """List the ids of the organizations that have a node in a collaboration. Raises NetworkError."""
    return sorted(_nodes(client, collaboration))


def _nodes(client: UserClient, collaboration: int) -> dict[int, dict[str, Any]]:
    return {node["organization"]["id"]: node for node in server.nodes(client, collaboration)}


def follow(
    client: UserClient,
    task_id: int,
    method: str,
    on_round: Callable[[dict[str, Any]], None],
    on_call: Callable[[str], None] = lambda text: None,
    *,
    patience: float = server.PATIENCE,
) -> dict[str, Any]:
    """Wait for a task to end.

    Args:
        client: a client that is signed in.
        task_id: the task.
        method: the method's name.
        on_round: called once with each row of the history, as soon as the log of the run has it. If the node does not
            share its logs, the rows come with the result.
        on_call: called with what nodes are asked for, whenever that changes before the first round is finished.
        patience: seconds in which the server may not tell the task's status.

    Returns:
        The task's result.

    Raises:
        CollectResultsError: the task has no result; the text says why.
        ServerGone: the server no longer answers, or no longer tells the status.
    """
    run_id = server.one_run(client, task_id)["id"]
    shown = polls = 0
    said, heard = "", time.monotonic()

    def show(rows: Sequence[dict[str, Any]]) -> None:
        nonlocal shown
        for row in rows:
            if row["round"] > shown:  # a central function that was started again begins a new log
                shown = row["round"]
                on_round(row)

    while True:
        answer = _answer(client, f"task/{task_id}/status")
        status = answer.get("status")
        ended = status is not None and has_ended(status)
        if status is not None and not ended:
            heard = time.monotonic()
        elif not ended and time.monotonic() - heard >= patience:
            raise ServerGone(
                f"the server has not told the task's status for {patience:g} s (--server-timeout): "
                f"{server.reason(answer)}"
            )
        show(rounds_in(_answer(client, f"run/{run_id}", params={"fields": "log"}).get("log") or ""))
        due = not shown and not ended and polls % CALLS_EVERY == 0
        if due and (asked := _asked_last(client, task_id)) not in ("", said):
            said = asked
            on_call(asked)
        polls += 1
        if ended:
            try:
                result = result_of(client, task_id, method)
            except (RequestException, KeyError) as error:  # the server has told the status, and fails before the result
                if time.monotonic() - heard >= patience:
                    raise ServerGone(f"the server does not give the result ({type(error).__name__})") from None
            else:
                show(result["history"])
                return result
        time.sleep(POLL_SECONDS)


def rounds_in(log: str) -> list[dict[str, Any]]:
    """Return the rows of history in a log.

    Args:
        log: the log; its last line may be incomplete.

    Returns:
        The rows.
    """
    rows = []
    for line in log.splitlines():
        with contextlib.suppress(ValueError):
            if isinstance(row := json_text.parse(line.partition(logs.ROUND)[2]), dict):
                rows.append(row)
    return rows


def _answer(client: UserClient, endpoint: str, **parameters: Any) -> dict[str, Any]:
    """The server's answer; empty if it fails for a moment (the client itself tries lost connections again)."""
    try:
        return client.request(endpoint, **parameters)
    except RequestException:
        return {}


def _asked_last(client: UserClient, task_id: int) -> str:
    """What central has asked nodes for last; empty if the server fails for a moment."""
    try:
        return calls.described(calls.latest(client, task_id))
    except RequestException:
        return ""


def result_of(client: UserClient, task_id: int, method: str) -> dict[str, Any]:
    """Fetch the result of a task that has ended.

    Args:
        client: a client that is signed in.
        task_id: the task.
        method: the method's name.

    Returns:
        The result.

    Raises:
        CollectResultsError: there is no result, or it is another method's.
    """
    found = [result for result in _results(client, task_id) if result]
    if not found:
        raise vantage6_api.CollectResultsError(f"task {task_id}: {failure(client, task_id)}")
    result = json_text.parse(found[0]) if isinstance(found[0], str) else found[0]
    names = {method, registry.called(method)} if method in registry.names() else {method}
    if not isinstance(result, dict) or result.get("method") not in names:
        image = client.task.get(task_id)["image"]
        raise vantage6_api.CollectResultsError(
            f"task {task_id}: the image {image} does not hold {method}; check --image"
        )
    return result


def _results(client: UserClient, task_id: int) -> list[Any]:
    try:
        return [row.get("result") for row in client.result.from_task(task_id)["data"]]
    except RequestException:
        raise
    except ValueError:  # of the cryptography
        raise vantage6_api.CollectResultsError(
            f"task {task_id}: its result cannot be decrypted; expected with --key the private key of the organization "
            "that sent it"
        ) from None


def failure(client: UserClient, task_id: int) -> str:
    """Say why a task has no result.

    Args:
        client: a client that is signed in.
        task_id: a task that has ended.

    Returns:
        What its status means, or the last line of its log.
    """
    run = server.one_run(client, task_id)
    return _failure(client, task_id, run, client.task.get(task_id)["image"])


def _failure(client: UserClient, task_id: int, run: Mapping[str, Any], image: str) -> str:
    who = f"organization {run['organization']['id']}: "
    if run["status"] in WHY:
        return who + WHY[run["status"]].format(image=image)
    words = logs.last_words(run.get("log"))
    if words and (older := _older(client, task_id, words)):
        return f"{words}; {older}"
    return words or f"{who}its run is {run['status']}, and its node does not share the log"


def _older(client: UserClient, task_id: int, words: str) -> str:
    """What to do if an image does not know a setting that this machine knows; empty if that is not what happened."""
    task = client.task.get(task_id)
    unknown, method = UNKNOWN.search(words), str(task.get("name")).removeprefix("v6-federated ")
    if unknown is None or method not in registry.names() or unknown[1] not in registry.settings_of(method).model_fields:
        return ""
    return (
        f"this machine knows that setting, so the image {task['image']} holds older code than is here: build it again "
        "(`make images`), or have the hospitals pull the newer one"
    )
