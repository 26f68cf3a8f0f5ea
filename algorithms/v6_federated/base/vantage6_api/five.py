"""What is particular to vantage6 5: its decorators, the call that creates a task, a container's environment.

``four`` has the same names for vantage6 4.15, and ``vantage6_api`` chooses. A node of vantage6 5 runs a task in a
session. Rows are copied into the session's folder once, as a data frame, by a function for extraction; all that a task
can read or write lies in that folder. Partial functions have no client; a container's environment names the
organization.
"""

import functools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from vantage6.algorithm import decorator
from vantage6.common.enum import TaskStatus

from v6_federated.base.errors import SafeError
from v6_federated.base.vantage6_api import queries
from v6_federated.base.vantage6_api.described import QUERY_TYPES, Database

Task = Callable[..., Any]

OURS = "v6-federated"  # folder of the session
# why a node cannot have a folder of the hospital's own
NO_OWN_FOLDER = "on a node of vantage6 5 nothing that a task writes outlives its session"
has_task_finished: Callable[[str], bool] = TaskStatus.has_finished


@dataclass(frozen=True)
class Container:
    """What a partial function knows of its place.

    Attributes:
        organization_id: id of the node's organization.
    """

    organization_id: int


def is_task(function: Any) -> bool:
    """Whether a function is one of those that this module makes."""
    return hasattr(function, "vantage6_decorator_step_type")


def central_task(call: Task) -> Any:
    """Make ``call(client, **values)`` a function that central runs as."""
    return _on_mock_nodes(decorator.central(decorator.algorithm_client(call)), call)


def node_task(call: Task) -> Task:
    """Make ``call(client, *, mock_data=None, **values)`` a function that a node runs."""

    @functools.wraps(call)
    def run(**values: Any) -> Any:
        return call(Container(int(os.environ["ORGANIZATION_ID"])), **values)

    task: Any = _on_mock_nodes(decorator.federated(run), call)
    task.vantage6_dataframe_decorated = True  # only then does the mock node pass mock_data
    made: Task = task
    return made


def _on_mock_nodes(task: Any, call: Task) -> Task:
    """A task of this project's mock network, where containers have no action that could be checked."""

    @functools.wraps(task)
    def start(**values: Any) -> Any:
        if in_container() or "mock_client" not in values:
            return task(**values)  # a real node refuses mock_client as an unknown setting
        return call(values.pop("mock_client"), **values)

    return start


def extraction_task(call: Task) -> Task:
    """Make ``call(organization, database, **values)`` a function that copies rows into a session."""

    @functools.wraps(call)
    def extract(connection_details: dict[str, str], **values: Any) -> Any:
        kind, uri = connection_details["type"].lower(), connection_details["uri"]
        # a node mounts a file as LABEL.TYPE
        label = Path(uri).stem if kind not in QUERY_TYPES or Path(uri).exists() else kind
        given = {name.lower(): value for name, value in connection_details.items()}
        who = (given.get("user") or given.get("username"), given.get("password"))
        database = Database(label, kind, uri, values.get("query"), values.get("sheet"), user=who[0], password=who[1])
        return call(int(os.environ["ORGANIZATION_ID"]), database, **values)

    task: Task = decorator.data_extraction(extract)
    return task


def create(client: Any, input_: dict[str, Any], organizations: list[int], name: str) -> dict[str, Any]:
    """Create a task as a client of vantage6 5 does, and return the answer; see ``create_task``."""
    task: dict[str, Any] = client.task.create(
        method=input_["method"],
        arguments=input_["kwargs"],
        organizations=organizations,
        name=name,
        description=name,
    )
    return task


def mock_client(package: str, tables: Mapping[int, pd.DataFrame]) -> Any:
    """vantage6's own mock network, to show that methods compute the same there."""
    from vantage6.algorithm.mock.client import MockAlgorithmClient
    from vantage6.algorithm.mock.network import MockNetwork

    network = MockNetwork(package, [{"default": {"database": rows, "db_type": "csv"}} for rows in tables.values()])
    for node, organization in zip(network.nodes, tables, strict=True):  # the network counts them from 1
        node.id_ = node.organization_id = node.env["ORGANIZATION_ID"] = organization
    frame = network.hq.dataframes[0]["id"]
    return MockAlgorithmClient(network.nodes[0], databases=[{"type": "dataframe", "dataframe_id": frame}])


def in_container() -> bool:
    """Whether this process is the container of a real node."""
    return lasting_folder() is not None


def run_number() -> int | None:
    """The number of the task: the environment does not tell that of the run."""
    number = os.environ.get("TASK_ID", "")
    return int(number) if in_container() and number.isdecimal() else None


def database_of_task() -> Database | None:
    """The data frame that the task names."""
    session = lasting_folder()
    frames = [*filter(None, os.environ.get("USER_REQUESTED_DATAFRAMES", "").replace(";", ",").split(","))]
    if session is None or not frames:
        return None
    named, *beside = frames
    file = session / f"{named}.parquet"
    return Database(named, "frame", str(file) if file.is_file() else None, beside=tuple(beside))


def read_table(database: Database) -> pd.DataFrame:
    """Read a data frame of the session, or run a query."""
    if database.kind == "frame":
        frame: pd.DataFrame = decorator.dataframe(1)(lambda frame: frame)()
        return frame
    return queries.ask(database)


def job_folder() -> Path | None:
    """The folder that all runs of one job share on a node: a folder of the session, with other jobs."""
    session = lasting_folder()
    if session is None:
        folder = os.environ.get("TEMPORARY_FOLDER")  # of this project's mock network
        return Path(folder) if folder else None
    ours = session / OURS
    if not ours.is_symlink() and not ours.exists():
        ours.mkdir(mode=0o700, exist_ok=True)
    if ours.is_symlink() or not ours.is_dir():
        raise SafeError("another program has put something else in the place of the job's folder at this node")
    return ours


def own_prefix() -> str:
    """What the names of a task's files begin with in the ``job_folder``: the same if its container is started again."""
    return f"task-{os.environ['TASK_ID']}-" if in_container() else ""


def lasting_folder() -> Path | None:
    """The folder that all runs of a session share on a node, whatever their job."""
    folder = Path(os.environ.get("SESSION_FOLDER", ""))
    return folder if folder.is_absolute() and folder.is_dir() else None
