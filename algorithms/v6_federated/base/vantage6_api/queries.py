"""Asking an SQL or SPARQL database of a node, for both versions of vantage6.

vantage6's own readers are not used: they print the database's address, with the password in it, into the task's log,
which researchers may read. The texts of the drivers' errors may quote a row, a user or an address, so each kind of
error has a fixed sentence instead.
"""

import io
import warnings
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pandas as pd
from vantage6.algorithm.tools.exceptions import DataError, UserInputError

from v6_federated.base.logs import WITHHELD
from v6_federated.base.vantage6_api.described import Database

ADDRESS = (
    "expected for example postgresql://USER:PASSWORD@HOST:5432/NAME in the node's configuration, with %40 for @, %2F "
    "for / and %3A for : in a password"
)
ASK = "ask this node's operator"

# what is wrong with the query, by SQLSTATE
OF_QUERY = {
    "42P01": f"the query names a table or view that this node's database does not have; {ASK} for the right name",
    "3F000": f"the query names a schema that this node's database does not have; {ASK} for the right name",
    "42703": f"the query names a column that is not in its table; {ASK} for the right names",
    "42501": (
        "this node's database does not let its user do what the query asks; read only the view or table that is meant "
        f"for research, or {ASK} to grant it"
    ),
    "42601": "the query is not correct SQL; correct it, and try it first on a database of your own",
    "42702": "the query names a column that several of its tables have; write TABLE.COLUMN",
    "42803": "the query selects a column that is neither grouped nor aggregated; add it to GROUP BY",
    "42846": "the query casts a column to a type to which its values cannot be cast; leave the cast out",
    "42883": "the query calls a function that this node's database does not have for such types; correct it",
    "25006": "the query changes the database, which can only be read here; use SELECT",
    "57014": "this node's database ended the query, which took longer than it allows; ask for less",
}
# what has happened to the connection: a later try may succeed
OF_CONNECTION = {
    "08": "lost the connection",
    "53": "has no memory, disk or connection left",
    "57": "is being stopped or started",
    "40": "could not run the query beside others",
}
# what libpq and servers say of a connection that is refused for good, and what an operator can do about it
REFUSED = {
    ("authentication failed", "no password supplied"): (
        "refuses the user or the password of its address; its operator must correct them in the node's configuration"
    ),
    (
        "pg_hba.conf",
    ): "does not let this user in from the node's containers; its operator must add a line to pg_hba.conf",
    ("could not translate host name",): (
        "is on a host whose name is unknown there; its operator must correct the address or docker_services of the "
        f"node: {ADDRESS}"
    ),
    ("does not exist",): (
        "has no such user or database as its address names; its operator must correct the node's configuration"
    ),
}
# what SQLite, which has no SQLSTATE, says instead
OF_SQLITE = {"no such table": "42P01", "no such column": "42703", "syntax error": "42601", "readonly": "25006"}


def ask(database: Database) -> pd.DataFrame:
    """Run the query that a task brings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they may quote a cell of the table
        return _ask_sparql(database) if database.kind == "sparql" else _ask_sql(database)


def _ask_sql(database: Database) -> pd.DataFrame:
    from sqlalchemy import create_engine, exc
    from sqlalchemy.engine import make_url

    uri = str(database.uri)
    try:
        address = make_url(f"sqlite:///{uri}" if Path(uri).is_file() else uri)
        if address.drivername == "postgresql":
            address = address.set(drivername="postgresql+psycopg2")  # the driver that vantage6 brings
        if database.user:
            address = address.set(username=database.user, password=database.password)
        engine = create_engine(address)
    except (exc.NoSuchModuleError, ImportError):
        raise DataError(
            "this image has no driver for this node's database; it reads PostgreSQL and SQLite. The node's operator "
            f"must correct the address: {ADDRESS}"
        ) from None
    except (exc.ArgumentError, ValueError):
        raise DataError(
            f"the address of this node's database cannot be read; its operator must correct it: {ADDRESS}"
        ) from None
    try:
        try:
            connection = engine.raw_connection()
        except (exc.DBAPIError, engine.dialect.dbapi.Error) as error:  # sqlalchemy 2 does not wrap the driver's
            raise _refused(error) from None
        with closing(connection):
            return pd.read_sql_query(str(database.query), connection)
    except TypeError:
        raise UserInputError("the query returns no table; use a SELECT") from None
    except (pd.errors.DatabaseError, engine.dialect.dbapi.Error) as error:  # pandas 3 does not wrap the driver's
        raise _failed(error) from None
    finally:
        engine.dispose()


def _refused(error: Exception) -> Any:
    """Why there is no connection, in words that hold no address."""
    *_, cause = _causes(error)
    for words, refused in REFUSED.items():
        if any(word in str(cause) for word in words):
            return DataError(f"this node's database {refused}")
    return DataError(
        f"this node's database cannot be reached, or does not accept a connection; {ASK} whether it runs (the driver "
        f"said more; {WITHHELD})"
    )


def _failed(error: Exception) -> Any:
    """Why there is no table, in words that hold nothing of a row."""
    causes = [*_causes(error)]
    text = str(causes[-1])
    state = next((str(code) for each in causes if (code := getattr(each, "pgcode", None))), "")
    state = state or next((code for words, code in OF_SQLITE.items() if words in text), "")
    state = state or ("08000" if "connection" in text else "")
    if state in OF_QUERY:
        return UserInputError(OF_QUERY[state])
    if (happened := OF_CONNECTION.get(state[:2])) is not None:
        return DataError(f"this node's database {happened}; try again, or {ASK} (the driver said more; {WITHHELD})")
    return UserInputError(
        "this node's database ended the query with an error, whose text could contain a value of a row; the hospital's "
        f"audit log has the query: {ASK} to run it, or try it on a database of your own"
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error, and what it was raised for."""
    found: BaseException | None = error
    while found is not None:
        yield found
        found = getattr(found, "orig", None) or found.__cause__


def _ask_sparql(database: Database) -> pd.DataFrame:
    from SPARQLWrapper import CSV, SPARQLWrapper

    source: Any = SPARQLWrapper(str(database.uri), returnFormat=CSV)
    if database.user:
        source.setCredentials(database.user, database.password)
    source.setQuery(database.query)
    return pd.read_csv(io.BytesIO(_answer_of(source)))


def _answer_of(source: Any) -> bytes:
    from http.client import HTTPException

    from SPARQLWrapper.SPARQLExceptions import EndPointInternalError, EndPointNotFound, QueryBadFormed, Unauthorized

    try:
        answer: bytes = source.query().convert()
    except QueryBadFormed:
        raise UserInputError("the query is not correct SPARQL; correct it") from None
    except Unauthorized:
        raise DataError(
            "this node's database refuses the user or the password; its operator must correct them in the node's "
            "configuration"
        ) from None
    except EndPointNotFound:
        raise DataError(
            "there is no SPARQL endpoint at the address of this node's database; its operator must correct it"
        ) from None
    except EndPointInternalError:
        raise DataError(
            f"this node's database could not run the query; try again, or {ASK} (the driver said more; {WITHHELD})"
        ) from None
    except (OSError, HTTPException, ValueError):  # a host that does not answer, an address that cannot be read
        raise DataError(
            f"this node's database cannot be reached; {ASK} whether it runs (the driver said more; {WITHHELD})"
        ) from None
    return answer
