"""A researcher's task on a real vantage6 server: send it, show its rounds as they happen, bring the result."""

import json
import time
from collections.abc import Callable
from typing import Any

from vantage6.client import UserClient
from vantage6.common.task_status import has_task_finished

from v6_federated import network, vantage
from v6_federated.errors import SafeError

POLL_SECONDS = 1.0


def send(
    client: UserClient,
    method: str,
    values: dict[str, Any],
    *,
    collaboration: int,
    organization: int,
    image: str,
    label: str,
) -> int:
    """Send a task whose central function runs at ``organization``; returns its id. Raises SafeError."""
    task = client.task.create(
        collaboration=collaboration,
        organizations=[organization],
        name=f"v6-federated {method}",
        image=image,
        description=f"{method}, {values.get('rounds')} rounds of {values.get('model')}",
        input_={"method": "central", "kwargs": values},
        databases=[{"label": label}],
    )
    if not task or "id" not in task:
        raise SafeError(f"the server refused the task: {(task or {}).get('msg', 'no reason given')}")
    return task["id"]


def follow(client: UserClient, task_id: int, on_round: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Wait for a task, calling ``on_round`` with each row of history as the log of its run tells it.

    Where the node keeps its logs to itself, the rounds are seen only in the result.
    Raises CollectResultsError that says what became of the task.
    """
    run_id = client.run.from_task(task_id)["data"][0]["id"]
    seen = 0
    while True:
        finished = has_task_finished(client.request(f"task/{task_id}/status")["status"])
        log = client.request(f"run/{run_id}", params={"fields": "log"}).get("log") or ""
        rows = [json.loads(line.partition(vantage.ROUND)[2]) for line in log.splitlines() if _is_round(line)]
        for row in rows[seen:]:
            on_round(row)
        seen = len(rows)
        if finished:
            return _result(client, task_id, on_round, seen)
        time.sleep(POLL_SECONDS)


def _is_round(line: str) -> bool:
    return vantage.ROUND in line and line.rstrip().endswith("}")


def _result(client: UserClient, task_id: int, on_round: Callable[[dict[str, Any]], None], seen: int) -> dict[str, Any]:
    found = [row["result"] for row in client.result.from_task(task_id)["data"] if row.get("result")]
    if not found:
        raise vantage.CollectResultsError(f"task {task_id}: {'; '.join(_failures(client, task_id))}")
    result = json.loads(found[0]) if isinstance(found[0], str) else found[0]
    for row in result["history"][seen:]:
        on_round(row)
    return result


def _failures(client: UserClient, task_id: int) -> list[str]:
    """What became of the task: central's own words, or the status of every run that failed."""
    runs = network.runs(client, task_id)
    central = next(run for run in runs if run["task"] == task_id)
    words = vantage.last_words(central["log"])
    if words:
        return [words]
    failed = [run for run in runs if run["status"] != "completed"]
    return [
        f"organization {r['organization_id']}: {vantage.last_words(r['log']) or 'run ' + r['status']}" for r in failed
    ]
