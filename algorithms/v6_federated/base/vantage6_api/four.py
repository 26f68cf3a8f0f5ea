"""What is particular to vantage6 4.15: its decorators, the call that creates a task, a container's environment.

``five`` has the same names for vantage6 5, and ``vantage6_api`` chooses. vantage6's decorators and pandas are slow to
import, and commands of operators need neither.
"""

import functools
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vantage6.algorithm.tools.exceptions import UserInputError
from vantage6.common.task_status import has_task_finished as has_task_finished  # mypy then knows that it is offered

from v6_federated.base.vantage6_api.described import Database

if TYPE_CHECKING:
    import pandas as pd

Task = Callable[..., Any]

NO_OWN_FOLDER = ""  # why a node cannot have a folder of the hospital's own: it can, a database of type folder


def is_task(function: Any) -> bool:
    """Whether a function is one of those that this module makes."""
    return bool(getattr(function, "wrapped_in_algorithm_client_decorator", False))


def central_task(call: Task) -> Any:
    """Make ``call(client, **values)`` a function that central runs as."""
    from vantage6.algorithm.tools import decorators

    return decorators.algorithm_client(call)


def node_task(call: Task) -> Task:
    """Make ``call(client, *, mock_data=None, **values)`` a function that a node runs."""
    from vantage6.algorithm.tools import decorators

    task: Any = decorators.algorithm_client(call)
    task.wrapped_in_data_decorator = True  # only then does the mock client pass mock_data
    made: Task = task
    return made


def extraction_task(call: Task) -> Task:
    """Make a function that copies rows into a session; there are none in vantage6 4."""

    @functools.wraps(call)
    def refuse(client: Any, **values: Any) -> None:
        raise UserInputError("extract is for vantage6 5; with vantage6 4 a task names the node's database itself")

    task: Task = central_task(refuse)
    return task


def create(client: Any, input_: dict[str, Any], organizations: list[int], name: str) -> dict[str, Any]:
    """Create a task as a client of vantage6 4 does, and return the answer; see ``create_task``."""
    task: dict[str, Any] = client.task.create(input_=input_, organizations=organizations, name=name, description=name)
    return task


def mock_client(package: str, tables: "Mapping[int, pd.DataFrame]") -> Any:
    """vantage6's own mock network, to show that methods compute the same there."""
    from vantage6.algorithm.tools.mock_client import MockAlgorithmClient

    databases = [[{"database": rows, "db_type": "csv"}] for rows in tables.values()]
    return MockAlgorithmClient(databases, package, organization_ids=[*tables])


def in_container() -> bool:
    """Whether this process is the container of a real node."""
    return bool(os.environ.get("INPUT_FILE"))


def run_number() -> int | None:
    """The number of the run, by which the server knows it."""
    # a run's input lies in a folder with its number: task-000000012
    number = Path(os.environ.get("INPUT_FILE", "")).parent.name.removeprefix("task-")
    return int(number) if number.isdecimal() else None


def database_of_task() -> Database | None:
    """The database that the task names."""
    labels = [*filter(None, os.environ.get("USER_REQUESTED_DATABASE_LABELS", "").split(","))]
    if not labels:
        return None
    named, *beside = labels
    label = named.upper()
    return Database(
        named,
        os.environ.get(f"{label}_DATABASE_TYPE", "").lower(),
        os.environ.get(f"{label}_DATABASE_URI"),
        os.environ.get(f"{label}_QUERY") or None,
        os.environ.get(f"{label}_SHEET_NAME") or None,
        bool(os.environ.get(f"{label}_PREPROCESSING")),
        tuple(f"{k}={v}" for k, v in sorted(os.environ.items()) if k.startswith(f"{label}_")),
        tuple(beside),
    )


def read_table(database: Database) -> "pd.DataFrame":
    """Run a query."""
    from v6_federated.base.vantage6_api import queries

    return queries.ask(database)


def job_folder() -> Path | None:
    """The folder that all runs of one job share on a node."""
    folder = os.environ.get("TEMPORARY_FOLDER")
    return Path(folder) if folder else None


def own_prefix() -> str:
    """What the names of a task's files begin with in the ``job_folder``: nothing, since no other job uses it."""
    return ""


def lasting_folder() -> Path | None:
    """The folder that all runs on a node share, whatever their job: vantage6 keeps each run's input there."""
    return Path(os.environ["INPUT_FILE"]).parents[1] if in_container() else None
