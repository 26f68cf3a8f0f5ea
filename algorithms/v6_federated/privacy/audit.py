"""The audit log: each answer that leaves the node, and each request that was refused, is a line of a file."""

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from v6_federated.base.errors import SafeError
from v6_federated.base.vantage6_api import NodePermissionException, data_volume
from v6_federated.messages import codec
from v6_federated.privacy.hospital import HospitalFolder
from v6_federated.privacy.policy import NOTHING_COMPUTED, Policy

NAME = "audit.jsonl"
MOST_LETTERS = 300  # of a text that a task brings


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A line of the log.

    Attributes:
        time: when the answer left, in UTC.
        run: number of the run at the server, by which its task and sender can be found; None on mock nodes.
        job: the job's key.
        method: its method.
        function: the partial function that was called.
        round: the round that the task said.
        organization: the node's organization.
        participants: how many organizations train, as the task said.
        rows: how many rows the answer is about; None if nothing left.
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
    round: int | None = None
    organization: int
    participants: int | None = None
    profile: str
    looser: Sequence[str] = ()
    rows: int | None = None
    left: Mapping[str, Any] = field(default_factory=dict)
    bytes: int = 0
    sha256: str | None = None
    refused: str | None = None


def entry(policy: Policy, organization: int, function: str, round_: Any, job: Mapping[str, Any]) -> Entry:
    """Begin the line of a request.

    Args:
        policy: the operator's limits.
        organization: the node's organization.
        function: the partial function that is called.
        round_: the round that the task says.
        job: what the task says about its job, unchecked.

    Returns:
        The line of a request of which nothing has left yet.
    """
    participants = job.get("participants")
    return Entry(
        time=datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
        run=_run(),
        job=_text(job.get("key")),
        method=_text(job.get("method")),
        function=function,
        round=round_ if type(round_) is int else None,
        organization=organization,
        participants=len(participants) if isinstance(participants, list) else None,
        profile=policy.profile,
        looser=policy.looser() + (["DEBUG"] if os.environ.get("V6_FEDERATED_DEBUG") == "1" else []),
    )


def contents(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Say what an answer holds, without its numbers.

    Args:
        answer: a partial function's answer, as JSON.

    Returns:
        By name: the shape of an array, the contents of a dictionary, otherwise the kind of the value.
    """
    parts: dict[str, Any] = {}
    for name, value in answer.items():
        if isinstance(value, dict) and set(value) == codec.PAYLOAD:
            parts |= {array: [value["dtype"], *shape] for array, shape in value["shapes"].items()}
        elif isinstance(value, dict):
            parts[name] = contents(value)
        elif isinstance(value, list | str):
            parts[name] = f"{'list' if isinstance(value, list) else 'text'} of {len(value)}"
        elif name not in ("organization_id", "round"):
            parts[name] = "nothing" if value is None else type(value).__name__
    return parts


def sent(answer: Mapping[str, Any]) -> tuple[int, str]:
    """Measure an answer as vantage6 sends it, before encryption.

    Args:
        answer: a partial function's answer, as JSON.

    Returns:
        Bytes, and their SHA-256 in hexadecimal digits.
    """
    parts = codec.pieces(answer)
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode())
    return sum(map(len, parts)), digest.hexdigest()


def write(folder: HospitalFolder, line: Entry) -> None:
    """Add a line to the log. It is written whole, and to the disk, before the answer can leave.

    Args:
        folder: the hospital's folder.
        line: the line.

    Raises:
        NodePermissionException: it cannot be written.
    """
    text = json.dumps({name: value for name, value in asdict(line).items() if value not in (None, (), [], {})}) + "\n"
    try:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(folder.path / NAME, flags, 0o640)
        with os.fdopen(descriptor, "ab") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            stream.write(text.encode())
            stream.flush()
            if data_volume() is not None:  # a real node
                os.fsync(stream.fileno())
    except OSError as error:
        raise NodePermissionException(
            f"the audit log of this node cannot be written ({error.strerror}), so nothing leaves; its operator must "
            f"look at {NAME} in the hospital's folder. {NOTHING_COMPUTED}"
        ) from None


def read(file: Path) -> Iterator[Entry]:
    """Read a log.

    Args:
        file: the log.

    Yields:
        Its lines, in the order in which they were written.

    Raises:
        SafeError: the file cannot be read, or a line is no entry; it names the line's number.
        OSError: the file cannot be opened.
    """
    with file.open(encoding="utf-8") as stream:
        for number, text in enumerate(stream, start=1):
            try:
                yield Entry(**json.loads(text))
            except (ValueError, TypeError, RecursionError):
                raise SafeError(
                    f"line {number} of {file.name} is not an entry of an audit log; expected the file {NAME} of a "
                    "hospital's folder"
                ) from None


def _text(value: Any) -> str:
    return "".join(c for c in str(value)[:MOST_LETTERS] if c.isprintable())


def _run() -> int | None:
    """vantage6 keeps a run's input in a folder with its number: task-000000012."""
    number = Path(os.environ.get("INPUT_FILE", "")).parent.name.removeprefix("task-")
    return int(number) if number.isdecimal() else None
