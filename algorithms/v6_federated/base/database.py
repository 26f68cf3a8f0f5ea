"""Reading the database that a task names: a table, or the path of what holds arrays."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from v6_federated.base.errors import SafeError
from v6_federated.base.vantage6_api import (
    Database,
    DataError,
    NodePermissionException,
    UserInputError,
    database_of_task,
    read_table,
)
from v6_federated.base.vantage6_api.described import QUERY_TYPES

if TYPE_CHECKING:
    import pandas as pd

RESERVED = "HOSPITAL"  # label of the hospital's own folder
TABLE_TYPES = {"csv", "excel", "parquet"}
CHOSEN = "chosen"  # in the mark: whether a query or a sheet chose the rows
TABLE = "table"  # in the mark: which database of the node the rows are from, see ``named``
MARK = "v6-federated"  # attribute of a data frame that this package has made


@dataclass(frozen=True)
class Frame:
    """A data frame with this package's mark, which ``data.frames`` decodes.

    Attributes:
        rows: what the session's file holds.
    """

    rows: "pd.DataFrame"


def label_of_task() -> str | None:
    """The label of the database that the task names, as it is written there."""
    database = database_of_task()
    return None if database is None else database.label


def query_of_task() -> str | None:
    """The query that the task brings."""
    database = database_of_task()
    return None if database is None else database.query


def check_alone() -> None:
    """Check that the task names one database at most: a second one would not be read."""
    database = database_of_task()
    if database is not None and database.beside:
        labels = ", ".join(map(repr, (database.label, *database.beside)))
        raise UserInputError(
            f"the task names {1 + len(database.beside)} databases, {labels}, and a job reads one; name one alone. What "
            "is in several tables must be joined before, by the hospital's operator or a query"
        )


def chosen() -> list[str | int]:
    """Say which rows a task has chosen, and in which state they are, without reading them."""
    database = database_of_task()
    if database is None:
        return []
    found: list[str | int] = [database.label.upper(), *database.details]
    file = Path(database.uri or "")
    if file.is_file():
        found += [file.stat().st_size, file.stat().st_mtime_ns]
    return found


def name_of(database: Database) -> str:
    """Name a table, for operators and to compare it: what is chosen by a query is another table."""
    chosen_by = {"sheet": database.sheet, "query": database.query}
    parts = {kind: hashlib.sha256(text.encode()).hexdigest()[:16] for kind, text in chosen_by.items() if text}
    return " ".join([database.label.lower(), *(f"{kind}={digest}" for kind, digest in parts.items())])


def named(rows: object) -> str | None:
    """Name the table of this node that a task is about, by whatever name a session knows it."""
    if isinstance(rows, Frame):
        return str(rows.rows.attrs[MARK].get(TABLE, ""))
    database = database_of_task()
    return None if database is None else name_of(database)


def read_database(allow_queries: bool, by_value: bool = False) -> "pd.DataFrame | Frame | Path":
    """Read the database that the task names."""
    check_alone()
    database = database_of_task()
    if database is None:
        raise UserInputError(
            "the task names no database; name one, for example databases=[{'label': 'default'}], or in vantage6 5 a "
            "data frame, databases=[{'type': 'dataframe', 'dataframe_id': 1}]"
        )
    if database.uri is None and database.label.upper() != RESERVED:
        raise UserInputError(f"this node has no database {database.label!r}; use a label of its configuration")
    if database.kind == "frame":
        return _frame(database, allow_queries)
    return read(database, allow_queries, by_value)


def _frame(database: Database, allow_queries: bool) -> Frame:
    """Read a data frame of a session, if this package has made it: any image can make one, of repeated rows as well."""
    try:
        found = read_table(database)
    except Exception as error:  # pyarrow's texts may quote what they found
        raise DataError(
            f"the data frame {database.label!r} cannot be read ({type(error).__name__}); make it again"
        ) from None
    mark = found.attrs.get(MARK)
    if not isinstance(mark, dict):
        raise NodePermissionException(
            f"the data frame {database.label!r} was not made by an image of v6-federated, or was changed since; make "
            "one with the function extract of such an image"
        )
    if mark.get(CHOSEN) is not False and not allow_queries:  # it was allowed when the frame was made
        raise NodePermissionException(
            f"a task has chosen the rows of the data frame {database.label!r}, by a query or a sheet, which this node "
            "does not allow any more (V6_FEDERATED_ALLOW_QUERIES); make one without"
        )
    return Frame(found)


def read(database: Database, allow_queries: bool, by_value: bool = False) -> "pd.DataFrame | Path":
    """Read a database of this node."""
    if database.label.upper() == RESERVED:
        raise UserInputError(
            f"the database {database.label!r} is the hospital's own folder and holds no rows; name another"
        )
    if database.preprocessed:
        # vantage6 would filter rows by any column before the node's policy is checked
        raise UserInputError(
            "the task asks vantage6 to preprocess the database, which this algorithm does not accept; leave it out and "
            "use the setting preprocess"
        )
    if database.kind in QUERY_TYPES and not allow_queries:
        # the query comes with the task: it could rename columns or repeat rows and so evade the limits on both
        raise NodePermissionException(
            "this node does not run queries that come with a task (V6_FEDERATED_ALLOW_QUERIES); use a database of files"
        )
    if database.sheet and not allow_queries:
        raise NodePermissionException(
            "this node does not let a task choose a sheet (V6_FEDERATED_ALLOW_QUERIES); leave it out to use the first"
        )
    file = Path(database.uri or "")
    if database.kind not in {*TABLE_TYPES, *QUERY_TYPES}:
        return file
    if database.kind in QUERY_TYPES and not database.query:
        raise UserInputError("the database needs a query and the task has none; add one, for example with --query")
    if database.kind in QUERY_TYPES:
        return read_table(database)
    from v6_federated.base import tables  # with pandas, which commands of operators do not wait for

    try:
        return tables.read(file, database.kind, "the table", sheet=database.sheet, by_value=by_value)
    except SafeError as error:
        raise DataError(str(error)) from None
    except OSError:
        raise DataError(
            f"the file of this node's database {database.label!r} is missing or may not be read; ask its operator"
        ) from None
