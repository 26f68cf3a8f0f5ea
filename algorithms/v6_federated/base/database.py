"""The database that a task names, as a node of vantage6 describes it in the environment of a container."""

import os
import warnings
from pathlib import Path

import pandas as pd

from v6_federated.base import tables
from v6_federated.base.errors import SafeError
from v6_federated.base.vantage6_api import DataError, NodePermissionException, UserInputError, read_table

RESERVED = "HOSPITAL"  # label of the hospital's own folder
TABLE_TYPES = {"csv", "excel", "parquet"}
QUERY_TYPES = {"sparql", "sql"}


def label_of_task() -> str | None:
    """The label of the database that the task names, as it is written there.

    Returns:
        The first label; None if the task names none, as on mock nodes.
    """
    labels = os.environ.get("USER_REQUESTED_DATABASE_LABELS", "").split(",")
    return next(filter(None, labels), None)


def chosen() -> list[str | int]:
    """Say which rows a task has chosen, and in which state they are, without reading them.

    Returns:
        What the environment says about the database that the task names, its query or sheet among it; size and time
        of its file.
    """
    label = (label_of_task() or "").upper()
    if not label:
        return []
    found: list[str | int] = [label]
    found += [f"{k}={v}" for k, v in sorted(os.environ.items()) if k.startswith(f"{label}_")]
    file = Path(os.environ.get(f"{label}_DATABASE_URI", ""))
    if file.is_file():
        found += [file.stat().st_size, file.stat().st_mtime_ns]
    return found


def read_database(allow_queries: bool) -> pd.DataFrame | Path:
    """Read the database that the task names.

    Args:
        allow_queries: whether the operator lets a task bring a query or choose a sheet.

    Returns:
        A table if it is of one of vantage6's types for tables or queries, and the path of its file otherwise.

    Raises:
        UserInputError: the task names no database that this node has, or brings what the node cannot use.
        NodePermissionException: the task brings a query or chooses a sheet, which the node's operator has not allowed.
        DataError: the file is missing or cannot be read; the text quotes none of its rows.
    """
    named = label_of_task()
    if named is None:
        raise UserInputError("the task names no database; name one, for example databases=[{'label': 'default'}]")
    label = named.upper()
    if label == RESERVED:
        raise UserInputError(f"the database {named!r} is the hospital's own folder and holds no rows; name another")
    if f"{label}_DATABASE_URI" not in os.environ:
        raise UserInputError(f"this node has no database {named!r}; use a label of its configuration")
    if os.environ.get(f"{label}_PREPROCESSING"):
        # vantage6 would filter rows by any column before the node's policy is checked
        raise UserInputError(
            "the task asks vantage6 to preprocess the database, which this algorithm does not accept; leave it out and "
            "use the setting preprocess"
        )
    kind = os.environ.get(f"{label}_DATABASE_TYPE", "").lower()
    if kind in QUERY_TYPES and not allow_queries:
        # the query comes with the task: it could rename columns or repeat rows and so evade the limits on both
        raise NodePermissionException(
            "this node does not run queries that come with a task (V6_FEDERATED_ALLOW_QUERIES); use a database of files"
        )
    if os.environ.get(f"{label}_SHEET_NAME") and not allow_queries:
        raise NodePermissionException(
            "this node does not let a task choose a sheet (V6_FEDERATED_ALLOW_QUERIES); leave it out to use the first"
        )
    file = Path(os.environ[f"{label}_DATABASE_URI"])
    if kind not in TABLE_TYPES | QUERY_TYPES:
        return file
    if kind in QUERY_TYPES and not os.environ.get(f"{label}_QUERY"):
        raise UserInputError("the database needs a query and the task has none; add one, for example with --query")
    return _table(kind, file, named)


def _table(kind: str, file: Path, named: str) -> pd.DataFrame:
    """Read the table of the database that the task names; no error quotes a row of it, except those of queries."""
    if kind in QUERY_TYPES:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they may quote a cell of the table
            return read_table()  # the text of its errors is withheld, see ``node.task``
    try:
        return tables.read(file, kind, "the table", sheet=os.environ.get(f"{named.upper()}_SHEET_NAME"))
    except SafeError as error:
        raise DataError(str(error)) from None
    except OSError:
        raise DataError(
            f"the file of this node's database {named!r} is missing or may not be read; ask its operator"
        ) from None
