"""Everything that this package uses of vantage6, 4.15 or 5: decorators, the client's calls, a container's environment.

Nothing else in this package imports vantage6, or knows which of the two is installed: ``four`` and ``five`` hold what
differs, under the same names.

A ``client`` is anything with the interface of vantage6's ``AlgorithmClient``: the one inside a container, that of
vantage6's mock network, or the client of this project's mock network.
"""

import functools
import importlib.util
import math
import os
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from json import JSONDecodeError
from pathlib import Path
from typing import Any, TypeVar

try:
    FIVE = importlib.util.find_spec("vantage6.algorithm.decorator") is not None
    from vantage6.algorithm.client import AlgorithmClient
    from vantage6.algorithm.tools.exceptions import (
        AlgorithmExecutionError,
        CollectResultsError,
        DataError,
        NodePermissionException,
        PrivacyThresholdViolation,
        UserInputError,
    )
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "vantage6 is not installed; install v6-federated[vantage6-4] with Python 3.10 to 3.12, or "
        "v6-federated[vantage6-5] with Python 3.13"
    ) from error

from v6_federated.base.logs import last_words
from v6_federated.base.patience import Silence
from v6_federated.base.vantage6_api.described import Database

if FIVE:
    from v6_federated.base.vantage6_api import five as installed
else:
    from v6_federated.base.vantage6_api import four as installed  # type: ignore[no-redef]  # one of the two is imported

__all__ = [
    "FIVE",
    "NO_OWN_FOLDER",
    "AlgorithmExecutionError",
    "CollectResultsError",
    "DataError",
    "Database",
    "NodePermissionException",
    "PrivacyThresholdViolation",
    "ServerAway",
    "UserInputError",
    "central_task",
    "database_of_task",
    "extraction_task",
    "has_task_finished",
    "in_container",
    "is_task",
    "lasting_folder",
    "mock_client",
    "node_task",
    "own_prefix",
    "read_table",
    "run_number",
]

NO_OWN_FOLDER = installed.NO_OWN_FOLDER
central_task, node_task, extraction_task = installed.central_task, installed.node_task, installed.extraction_task
is_task, has_task_finished, mock_client = installed.is_task, installed.has_task_finished, installed.mock_client
in_container, run_number, lasting_folder = installed.in_container, installed.run_number, installed.lasting_folder
own_prefix, database_of_task, read_table = installed.own_prefix, installed.database_of_task, installed.read_table

T = TypeVar("T")

POLL_SECONDS = 1.0
SERVER_TIMEOUT = 600.0  # seconds that a server may not answer, where nobody says how many
NO_SERVER = "Request failed"  # how a node's proxy begins its message if it does not reach the server
# what a call raises if the connection is lost (OSError includes the errors of requests) or an answer lacks its data
NO_ANSWER = (OSError, KeyError, JSONDecodeError)


class ServerAway(CollectResultsError):  # type: ignore[misc]  # its base has no types
    """The server has not answered for as long as it may."""


def be_patient(client: Any, seconds: float) -> None:
    """Set how long the server may not answer; without it, ``SERVER_TIMEOUT``."""
    client.silence = Silence(seconds)


def organizations(client: Any) -> list[int]:
    """Ask the server which organizations the collaboration has."""
    return _ask(client, lambda: sorted(organization["id"] for organization in client.organization.list()))


def create_task(client: Any, input_: dict[str, Any], organizations: list[int], name: str) -> int:
    """Create a task on the server."""

    def ask() -> dict[str, Any]:
        task: dict[str, Any] = installed.create(client, input_, organizations, name)
        if str(task.get("msg", "")).startswith(NO_SERVER):
            raise ConnectionError(task["msg"])
        return task

    task = _ask(client, ask)  # if an answer was lost, the task exists twice; that does no harm, both do the same
    if "id" not in task:
        raise CollectResultsError(f"the server refused the task {name!r}: {task.get('msg', 'it gave no reason')}")
    return int(task["id"])


def on_a_node(client: Any) -> bool:
    """Whether ``client`` is that of a real node, not of a mock network."""
    return isinstance(client, AlgorithmClient)


def now(client: Any) -> float:
    """The time on the network's clock."""
    return client.clock() if hasattr(client, "clock") else time.monotonic()


def wait_for_any(client: Any, tasks: Collection[int], until: float = math.inf) -> list[int]:
    """Wait until all runs of one of the tasks have ended.

    The client's own ``wait_for_results`` waits longer and longer between two requests, and so sees the end of a round
    late.
    """
    if not _asks(client):  # vantage6's mock client runs a task while it is created
        return list(tasks)

    def ended(task: int) -> bool:
        return has_task_finished(_told(client.request(f"task/{task}/status"), "status"))

    while True:
        found = [task for task in tasks if _ask(client, functools.partial(ended, task))]
        if found or now(client) >= until:
            return found
        if hasattr(client, "clock"):
            client.pause(until)
        else:
            time.sleep(POLL_SECONDS)


def results(client: Any, task_id: int) -> Iterator[Any]:
    """The results of a task."""
    return (result for result in _ask(client, lambda: client.result.from_task(task_id)) if result is not None)


def failure(client: Any, task_id: int) -> tuple[str, str]:
    """Why a task that was sent to one organization failed."""
    run = _ask(client, lambda: client.run.from_task(task_id))[0]
    return run["status"], last_words(run.get("log"))


def online(client: Any, task_id: int) -> bool:
    """Whether the node that was sent a task is online."""
    try:
        run = _ask(client, lambda: client.run.from_task(task_id)[0])
    except IndexError:  # a server that restarts does not know its nodes yet
        return True
    return (run.get("node") or {}).get("status") != "offline"


def _ask(client: Any, question: Callable[[], T]) -> T:
    """Ask the server, which may be restarting, until it answers or has been silent for too long."""
    if not _asks(client):
        return question()
    silence: Silence = getattr(client, "silence", None) or Silence(SERVER_TIMEOUT)
    while True:
        try:
            # clients of mock networks belong to one thread, and answer at once
            return silence.listen(question, apart=on_a_node(client))
        except NO_ANSWER as error:
            problem = error
        if silence.over:
            last = str(problem) if isinstance(problem, OSError) and str(problem) else type(problem).__name__
            raise ServerAway(
                f"the server has not answered for {silence.limit:g} s (server_timeout): {last}; check that it runs"
            )
        time.sleep(POLL_SECONDS)


def _told(answer: dict[str, Any], name: str) -> Any:
    """A value of the server's answer. Raises ConnectionError, with the server's words, if it lacks it."""
    if name not in answer:
        raise ConnectionError(str(answer.get("msg") or "it says nothing"))
    return answer[name]


def _asks(client: Any) -> bool:
    """Whether a client can ask a server. vantage6's mock clients cannot; that of 5 warns if it is tried."""
    return hasattr(type(client), "request") or "request" in vars(client)


def job_folder() -> Path:
    """The folder that all runs of one job share on a node."""
    return installed.job_folder() or Path(tempfile.gettempdir())


def own_job_folder() -> Path | None:
    """The ``job_folder`` if it is a node's."""
    return installed.job_folder()


def package() -> str | None:
    """The import package whose functions a task can call, as the container's image names it."""
    return os.environ.get("PKG_NAME") if in_container() else None
