"""SQLite databases in the hospital's own folder, which only one task can write at a time."""

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

from v6_federated.base.text import NOTHING_COMPUTED
from v6_federated.base.vantage6_api import NodePermissionException, in_container

LOCK_SECONDS = 30.0  # how long a request waits while others use the file


@contextlib.contextmanager
def locked(file: Path, schema: Sequence[str], what: str) -> Iterator[sqlite3.Connection]:
    """Use a database in one transaction, while no other task may use it.

    What is written cannot come undone once the block is left, also if the power fails.
    """
    with explained(file, what), contextlib.closing(connect(file)) as database:
        if not in_container():  # on mock nodes nothing must survive a power cut
            database.execute("PRAGMA synchronous = OFF")
            database.execute("PRAGMA journal_mode = MEMORY")
        else:  # FULL, and the folder is synced too
            database.execute("PRAGMA synchronous = EXTRA")
        database.execute("BEGIN IMMEDIATE")
        try:
            for statement in schema:
                database.execute(statement)
            yield database
        except BaseException:
            if database.in_transaction:  # a full disk has ended it already
                database.execute("ROLLBACK")
            raise
        database.execute("COMMIT")


def connect(file: Path, query: str = "") -> sqlite3.Connection:
    """Open a database; it waits while others use it."""
    return sqlite3.connect(file.absolute().as_uri() + query, timeout=LOCK_SECONDS, isolation_level=None, uri=True)


@contextlib.contextmanager
def explained(file: Path, what: str) -> Iterator[None]:
    """Refuse the request if a database cannot be used."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        reason = error if isinstance(error, sqlite3.Error) else error.strerror
        raise NodePermissionException(
            f"{what} cannot be used ({reason}); send the task again, and if that does not help, the node's operator "
            f"must look at {file.name} in the hospital's folder. {NOTHING_COMPUTED}"
        ) from None
