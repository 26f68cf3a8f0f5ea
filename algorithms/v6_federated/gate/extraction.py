"""The function that copies a node's rows into a session of vantage6 5."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from v6_federated.base.database import name_of, read
from v6_federated.base.errors import SafeError, place_of
from v6_federated.base.logs import WITHHELD, one_line, print_anything
from v6_federated.base.vantage6_api import AlgorithmExecutionError, Database, extraction_task
from v6_federated.data.frames import encode
from v6_federated.data.opening import open_database
from v6_federated.gate.under_masks import SAFE_ERRORS
from v6_federated.node.silence import silent
from v6_federated.rules import audit
from v6_federated.rules.environment import debugging
from v6_federated.rules.hospital import HospitalFolder
from v6_federated.rules.policy import Policy

if TYPE_CHECKING:
    import pyarrow


@extraction_task
@silent()
def extract(
    organization: int, database: Database, /, *, sheet: Any = None, query: Any = None, **unknown: Any
) -> "pyarrow.Table":
    """Copy this node's rows into the session, so that tasks can use them. No row leaves the node.

    The names and types of the columns do: vantage6 shows them to researchers. Columns that the operator does not allow
    are left out, and so is what a task might do to rows: queries and sheets are the operator's to allow.

    Args:
        organization: id of the node's organization.
        database: the node's database.
        sheet: a sheet of an Excel file.
        query: a query, for a database that needs one.
        **unknown: arguments that it does not take.

    Returns:
        The rows, with a mark by which partial functions know that this package has made the frame.

    Raises:
        SafeError: there are other arguments.
        AlgorithmExecutionError: an unexpected error, whose text could quote a row.
    """
    print_anything()
    folder, line = None, None
    try:
        if unknown:
            raise SafeError(f"extract does not take {', '.join(map(repr, unknown))}; it takes sheet or query")
        if wrong := [name for name, value in {"sheet": sheet, "query": query}.items() if not _text(value)]:
            raise SafeError(f"{wrong[0]} is no text; expected a text, or leave it out")
        policy = Policy.of_node()
        folder = HospitalFolder.of_node(policy, organization)
        line = replace(
            audit.entry(policy, organization, "extract", None, {}),
            database=audit.text(database.label),
            query=audit.query_text(query),
        )
        source = open_database(read(database, policy.allow_queries, policy.private))
        if not policy.allow_numeric_names:
            source.check_header()
        frame = encode(source, policy, chosen=bool(query or sheet), name=name_of(database))
        if folder is not None:
            audit.write(
                folder, replace(line, rows=frame.num_rows, left={"names and types of columns": frame.num_columns})
            )
        return frame
    except SAFE_ERRORS as error:
        _refused(folder, line, one_line(error))
        raise type(error)(f"organization {organization}: {one_line(error)}") from None
    except Exception as error:
        where = f"{type(error).__name__} in {place_of(error)}"
        _refused(folder, line, where)
        if debugging():
            raise
        raise AlgorithmExecutionError(
            f"organization {organization}: {where}; {WITHHELD} because it could contain a value of a row"
        ) from None


def _refused(folder: HospitalFolder | None, line: audit.Entry | None, reason: str) -> None:
    """Note in the audit log that no frame was made."""
    if folder is not None and line is not None:
        audit.write(folder, replace(line, refused=reason))


def _text(value: Any) -> bool:
    return value is None or isinstance(value, str)
