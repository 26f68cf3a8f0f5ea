"""Everything this project takes from vantage6 4.15, in one place: decorators, the client's calls, the environment.

Any client with the interface of vantage6's ``AlgorithmClient`` will do: the one inside a container, vantage6's own
``MockAlgorithmClient``, and the client of this project's mock network.
"""

import json
import math
import os
import re
import tempfile
import time
import warnings
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from json import JSONDecodeError
from pathlib import Path
from typing import Any

import pandas as pd
from vantage6.algorithm.client import AlgorithmClient
from vantage6.algorithm.tools.decorators import algorithm_client, data
from vantage6.algorithm.tools.exceptions import (
    AlgorithmExecutionError,
    CollectResultsError,
    DataError,
    NodePermissionException,
    PrivacyThresholdViolation,
    UserInputError,
)
from vantage6.common.task_status import has_task_finished

__all__ = [
    "AlgorithmExecutionError",
    "CollectResultsError",
    "DataError",
    "NodePermissionException",
    "PrivacyThresholdViolation",
    "UserInputError",
    "algorithm_client",
]

POLL_SECONDS = 1.0
PATIENCE = 60  # looks at a task's status that may fail in a row
NO_SERVER = "Request failed"  # says the proxy of a node that does not reach the server
NO_ANSWER = (OSError, KeyError, JSONDecodeError)  # lost connections, requests' errors too; an answer without the data
ROUND = "v6-federated round "  # begins the line of a log that holds a row of history
CALLING = r"Error encountered while calling \w+: (.*)"  # how vantage6 begins the last line of a crash
WITHHELD = "its text is withheld"  # an error that nobody foresaw
TABLE_TYPES = {"csv", "excel", "parquet"}
QUERY_TYPES = {"sparql", "sql"}


def organizations(client: Any) -> list[int]:
    """The ids of the collaboration's organizations, ascending."""

    def ids() -> list[int]:
        return sorted(organization["id"] for organization in client.organization.list())

    return _again(ids) if hasattr(client, "request") else ids()


def create_task(client: Any, input_: dict[str, Any], organizations: list[int], name: str) -> int:
    """Send a task (``input_``: method and kwargs) to ``organizations`` and return its id."""

    def create() -> dict[str, Any]:
        task = client.task.create(input_=input_, organizations=organizations, name=name, description=name)
        if str(task.get("msg", "")).startswith(NO_SERVER):
            raise ConnectionError(task["msg"])
        return task

    # a task that is created twice does no harm: both runs do the same
    task = _again(create) if hasattr(client, "request") else create()
    if "id" not in task:
        raise CollectResultsError(f"the server refused the task {name!r}: {task.get('msg', 'no reason given')}")
    return task["id"]


def on_a_node(client: Any) -> bool:
    """Whether this runs on a real node, not on a mock network."""
    return isinstance(client, AlgorithmClient)


def now(client: Any) -> float:
    """Seconds on the clock of the network: this machine's, or a mock network's simulated one."""
    return client.clock() if hasattr(client, "clock") else time.monotonic()


@dataclass
class Silence:
    """How often in a row the server has not told a status."""

    tries: int = 0


def wait_for_any(
    client: Any, tasks: Collection[int], until: float = math.inf, silence: Silence | None = None
) -> list[int]:
    """The ids of those tasks that have no run still to come, as soon as there is one; none where ``until`` comes first.

    The client's own ``wait_for_results`` waits half as long again after each look, so a finished round is seen late.
    """
    if not hasattr(client, "request"):  # MockAlgorithmClient has run a task by the time it is created
        return list(tasks)
    silence = silence or Silence()
    while True:
        ended = []
        try:
            for task in tasks:
                if has_task_finished(client.request(f"task/{task}/status")["status"]):
                    ended.append(task)
            silence.tries = 0
        except NO_ANSWER:
            silence.tries += 1
            if silence.tries >= PATIENCE:
                raise CollectResultsError(
                    f"the server has not told the status of task {task} for {PATIENCE} tries in a row"
                ) from None
        if ended or now(client) >= until:
            return ended
        if hasattr(client, "clock"):
            client.pause(until)
        else:
            time.sleep(POLL_SECONDS)


def wait(client: Any, task_id: int) -> None:
    """Return when the task has no run still to come."""
    wait_for_any(client, [task_id])


def results(client: Any, task_id: int) -> Iterator[Any]:
    """The results of a task's runs that have one."""
    return (result for result in _again(lambda: client.result.from_task(task_id)) if result is not None)


def failure(client: Any, task_id: int) -> tuple[str, str]:
    """Status and last words of the run of a task that one organization was sent."""
    run = _again(lambda: client.run.from_task(task_id))[0]
    return run["status"], last_words(run.get("log"))


def online(client: Any, task_id: int) -> bool:
    """Whether the node that was sent the task is online, as far as the server tells."""
    try:
        run = client.run.from_task(task_id)[0]
    except Exception:  # a server that restarts knows nothing of its nodes
        return True
    return (run.get("node") or {}).get("status") != "offline"


def _again(ask: Callable[[], Any]) -> Any:
    """Ask the server, which may be restarting, for as long as patience lasts."""
    for _ in range(PATIENCE):
        try:
            return ask()
        except NO_ANSWER as error:
            problem = error
            time.sleep(POLL_SECONDS)
    raise CollectResultsError(f"the server has not answered for {PATIENCE} tries in a row: {type(problem).__name__}")


def progress(client: Any, row: dict[str, Any]) -> None:
    """Show a finished round: to whoever listens on a mock network, else as a line of the task's log."""
    listener: Callable[[dict[str, Any]], None] | None = getattr(client, "on_round", None)
    if listener is not None:
        listener(row)
    else:
        print(ROUND + json.dumps(row), flush=True)


def last_words(log: str | None) -> str:
    """What an algorithm said when it failed: the last line of a log, without vantage6's own beginning of it, and
    without signs that would command a terminal."""
    printable = ("".join(c for c in line if c.isprintable()).strip() for line in (log or "").splitlines())
    lines = [line for line in printable if line]
    last = lines[-1] if lines else ""
    found = re.search(CALLING, last)
    return found[1] if found else last


def said_no(line: str) -> bool:
    """Whether last words are those of a node that refused, and would again, and not of one that broke down."""
    return line.startswith("organization ") and WITHHELD not in line


def read_database() -> "pd.DataFrame | Path":
    """The database that the researcher asked for: a table for vantage6's table types, else the path of its file."""
    labels = [label for label in os.environ.get("USER_REQUESTED_DATABASE_LABELS", "").split(",") if label]
    if not labels:
        raise UserInputError("the task names no database; expected one, for example databases=[{'label': 'default'}]")
    label = labels[0].upper()
    if f"{label}_DATABASE_URI" not in os.environ:
        raise UserInputError(f"this node has no database {labels[0]!r}; expected a label of its configuration")
    if os.environ.get(f"{label}_PREPROCESSING"):
        # vantage6 would filter rows by any column before the node's policy is asked
        raise UserInputError("the task brings preprocessing of its own for the database; expected none")
    kind = os.environ.get(f"{label}_DATABASE_TYPE", "").lower()
    if kind in QUERY_TYPES and os.environ.get("V6_FEDERATED_ALLOW_QUERIES") != "1":
        # the task brings the query: it can rename columns and repeat rows, past the limits on both
        raise NodePermissionException("this node does not run a task's queries (V6_FEDERATED_ALLOW_QUERIES)")
    if os.environ.get(f"{label}_SHEET_NAME") and os.environ.get("V6_FEDERATED_ALLOW_QUERIES") != "1":
        raise NodePermissionException("this node does not let a task choose a sheet (V6_FEDERATED_ALLOW_QUERIES)")
    if kind in TABLE_TYPES | QUERY_TYPES:
        if kind in QUERY_TYPES and not os.environ.get(f"{label}_QUERY"):
            raise UserInputError("the database is asked by a query and the task brings none; expected one (--query)")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # they may quote a cell of the table
                frame = data(1)(lambda frame: frame)()
        except ImportError:
            raise DataError(f"{kind} files cannot be read: their reader is not installed here; expected csv") from None
        except (FileNotFoundError, PermissionError):
            raise DataError(f"the file of this node's database {labels[0]!r} is not there, or not to be read") from None
        except UnicodeDecodeError:
            raise DataError("the table is not in UTF-8; expected it saved as CSV UTF-8") from None
        except (pd.errors.ParserError, pd.errors.EmptyDataError) as error:  # their text may quote a row
            raise DataError(f"the table cannot be read as {kind} ({type(error).__name__})") from None
        if not isinstance(frame.index, pd.RangeIndex) and kind == "csv":
            raise DataError("lines of the table have more fields than its header; expected as many")
        return frame
    return Path(os.environ[f"{label}_DATABASE_URI"])


def job_folder() -> Path:
    """The folder that all runs of one job share on a node; vantage6's mock client has none: this machine's."""
    return Path(os.environ.get("TEMPORARY_FOLDER") or tempfile.gettempdir())


def own_job_folder() -> Path | None:
    """``job_folder`` where it is this job's alone, else None."""
    return job_folder() if os.environ.get("TEMPORARY_FOLDER") else None
