"""The audit log: each answer that leaves the node, and each request that was refused, is a line of a file."""

import errno
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from v6_federated.base.database import label_of_task, query_of_task
from v6_federated.base.files import SAFELY, locked
from v6_federated.base.logs import one_line
from v6_federated.base.text import NOTHING_COMPUTED
from v6_federated.base.vantage6_api import NodePermissionException, in_container, package, run_number
from v6_federated.messages import codec, serialization
from v6_federated.messages.organizations import counted
from v6_federated.rules.environment import debugging
from v6_federated.rules.hospital import HospitalFolder
from v6_federated.rules.policy import Policy

NAME = "audit.jsonl"
MOST_LETTERS = 300  # of a text that a task brings
MOST_OF_QUERY = 10_000  # letters
MOST_LINE = 2**20  # bytes of a line; ours have a few thousand at most


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A line of the log.

    Attributes:
        time: when the answer left, or the request was refused, in UTC.
        run: number of the run at the server, by which its task and sender can be found; None on mock nodes.
        job: the job's key.
        method: the method of the node's image; on mock nodes, the one that the task said.
        function: the partial function that was called.
        database: label of the database that the task named; None on mock nodes.
        query: the query that the task brought for it; None if it brought none.
        round: the round that the task said.
        organization: the node's organization.
        participants: how many organizations train, as the task said.
        rows: how many rows the node trains on, with these settings; None if nothing left.
        evaluated: how many rows a model was evaluated on, if it was.
        left: what left, by name: the shape of an array, or the kind of another value.
        bytes: size of the answer, as it was sent.
        sha256: of these bytes.
        profile: the node's profile.
        looser: limits that allow more than the profile.
        refused: why nothing left; None if something did.
    """

    time: str
    run: int | None = None
    job: str
    method: str
    function: str
    database: str | None = None
    query: str | None = None
    round: int | None = None
    organization: int
    participants: int | None = None
    profile: str
    looser: Sequence[str] = ()
    rows: int | None = None
    evaluated: int | None = None
    left: Mapping[str, Any] = field(default_factory=dict)
    bytes: int = 0
    sha256: str | None = None
    refused: str | None = None


def entry(policy: Policy, organization: int, function: str, round_: Any, job: Mapping[str, Any]) -> Entry:
    """Begin the line of a request."""
    return Entry(
        time=now(),
        run=run_number(),
        job=text(job.get("key")),
        method=text((package() or "").removeprefix("v6_") or job.get("method")),
        function=function,
        database=text(label) if (label := label_of_task()) else None,
        query=query_text(query_of_task()),
        round=round_ if type(round_) is int and 0 <= round_ < 2**31 else None,
        organization=organization,
        participants=counted(job.get("participants")),
        profile=policy.profile,
        looser=policy.looser() + (["DEBUG"] if debugging() else []),
    )


def query_text(query: str | None) -> str | None:
    """A query as lines have it: readers of the log must see what was asked of the database, and no answer holds it."""
    if not query:
        return None
    whole = query.encode("utf-8", "replace").decode()
    more = len(whole) - MOST_OF_QUERY
    return f"{whole[:MOST_OF_QUERY]}... ({more:,} more letters)" if more > 0 else whole


def now() -> str:
    """The time in UTC, as lines have it."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


def contents(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Say what an answer holds, without its numbers."""
    parts: dict[str, Any] = {}
    for name, value in answer.items():
        if isinstance(value, dict) and set(value) == codec.PAYLOAD:
            for array, shape in value["shapes"].items():  # y32 and y64 have one
                parts[array if name == "arrays" else name] = [value["dtype"], *shape]
        elif isinstance(value, dict):  # a dictionary in it is counted: its keys may be levels, which are values of rows
            parts[name] = contents({k: [v] if isinstance(v, dict) else v for k, v in value.items()})
        elif isinstance(value, list):
            parts[name] = f"list of {_values(value)}"
        elif isinstance(value, str):
            parts[name] = f"text of {len(value)}"
        elif name not in ("organization_id", "round"):
            parts[name] = "nothing" if value is None else type(value).__name__
    return parts


def _values(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value
    return sum(map(_values, inner)) if isinstance(value, dict | list) else 1


def sent(answer: Mapping[str, Any]) -> tuple[int, str]:
    """Measure an answer as vantage6 sends it, before encryption."""
    parts = serialization.pieces(answer)
    return sum(map(len, parts)), serialization.sha256(parts).hexdigest()


def write(folder: HospitalFolder, line: Entry) -> None:
    """Add a line to the log. It is written whole, and to the disk, before the answer can leave."""
    fields = {name: value for name, value in vars(line).items() if value not in (None, (), [], {})}
    data = f"{json.dumps(fields)}\n".encode()
    try:
        descriptor = os.open(folder.path / NAME, os.O_RDWR | os.O_APPEND | os.O_CREAT | SAFELY, 0o640)
        try:
            with locked(descriptor):
                _append(descriptor, data)
                if in_container():
                    os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise NodePermissionException(
            f"the audit log of this node cannot be written ({error.strerror}), so nothing leaves; its operator must "
            f"look at {NAME} in the hospital's folder. {NOTHING_COMPUTED}"
        ) from None


def _append(descriptor: int, data: bytes) -> None:
    """Write a line whole or not at all, and on a line of its own even if a power cut left half a line."""
    end = os.fstat(descriptor).st_size
    if end:
        os.lseek(descriptor, end - 1, os.SEEK_SET)
        if os.read(descriptor, 1) != b"\n":
            data = b"\n" + data
    try:
        if os.write(descriptor, data) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError:
        os.ftruncate(descriptor, end)
        raise


def read(file: Path) -> Iterator[Entry | None]:
    """Read a log, whose lines may be broken: a disk was full, or another program has written there."""
    entry_of = TypeAdapter(Entry)
    whole = True  # whether the line before has ended
    with file.open("rb") as stream:
        for line in iter(lambda: stream.readline(MOST_LINE), b""):
            begins, whole = whole, line.endswith(b"\n")
            if not begins:
                continue
            try:
                yield entry_of.validate_json(line)
            except ValidationError:
                yield None


def text(value: Any) -> str:
    """A text from a task as the log has it: it commands no terminal and fills no disk."""
    return one_line(value[:MOST_LETTERS] if isinstance(value, str) else type(value).__name__)
