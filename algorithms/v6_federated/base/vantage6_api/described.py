"""The database that a task names, as a node describes it to the container."""

from dataclasses import dataclass, field

QUERY_TYPES = ("sparql", "sql")


@dataclass(frozen=True)
class Database:
    """What a node says about a database.

    Attributes:
        label: its name, as the task has it.
        kind: vantage6's name of its type, in small letters; ``frame`` for a data frame of a session.
        uri: the path of its file or folder, or its address; None if the node has no such database.
        query: the query that the task brings, if any.
        sheet: the sheet that the task chooses, if any.
        preprocessed: whether the task asks vantage6 to change rows before this package sees them.
        details: everything that the environment says about it, for the digest of a request.
        beside: labels of further databases that the task names; none is read.
        user: who signs in at it, if its address does not say so.
        password: of this user.
    """

    label: str
    kind: str
    uri: str | None
    query: str | None = None
    sheet: str | None = None
    preprocessed: bool = False
    details: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    user: str | None = None
    password: str | None = field(default=None, repr=False)
