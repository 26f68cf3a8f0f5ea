"""The audit log for a person: by job, what left this node, and what was refused."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from v6_federated.base.errors import SafeError
from v6_federated.privacy import audit
from v6_federated.privacy.audit import Entry

MOST_BYTES = 2**31  # of an answer


def shown(path: Path, job: str | None = None) -> tuple[list[str], dict[str, Any]]:
    """Describe a log, or one answer that vantage6 has kept.

    Args:
        path: a hospital's folder, its audit log, or the file ``output`` of a task in the node's data volume.
        job: the beginning of a job's key: every answer of this job is then shown on a line of its own.

    Returns:
        Lines for a person, and the same in numbers.

    Raises:
        SafeError: there is no such file, or it is neither a log nor an answer.
    """
    file = path / audit.NAME if path.is_dir() else path
    if not file.is_file():
        raise SafeError(f"there is no file {file}; expected a hospital's folder, its {audit.NAME}, or a task's output")
    if file.suffix != Path(audit.NAME).suffix:
        return _answer(file)
    entries = [entry for entry in audit.read(file) if job is None or entry.job.startswith(job)]
    if job is not None and not entries:
        raise SafeError(f"no job in {file} has a key that begins with {job}; leave --job out to see all")
    jobs: dict[str, list[Entry]] = {}
    for entry in entries:
        jobs.setdefault(entry.job, []).append(entry)
    total = _totals(entries)
    lines = [
        f"{file}: {len(jobs)} job(s), {total['answers']} answer(s) of {total['bytes']:,} bytes left, "
        f"{total['refused']} request(s) refused"
    ]
    for key, of_job in jobs.items():
        lines += ["", *_job(key, of_job), *(map(_line, of_job) if job else _by_function(of_job))]
    return lines, {"file": str(file), "jobs": len(jobs), **total}


def _totals(entries: Sequence[Entry]) -> dict[str, int]:
    left = [entry for entry in entries if entry.refused is None]
    return {"answers": len(left), "bytes": sum(e.bytes for e in left), "refused": len(entries) - len(left)}


def _job(key: str, entries: Sequence[Entry]) -> Iterator[str]:
    first, last = entries[0], entries[-1]
    yield f"job {key}: {first.method}, {_minute(first.time)} to {_minute(last.time)} UTC"
    runs = sorted({entry.run for entry in entries if entry.run is not None})
    if runs:
        yield f"  runs at the server: {_some([str(run) for run in runs])}"
    asked = ", ".join(sorted({str(e.participants) for e in entries if e.participants is not None}))
    yield f"  organizations that train, as the tasks said: {asked or 'not said'}"
    for profile in sorted({entry.profile for entry in entries}):
        looser = sorted({name for entry in entries if entry.profile == profile for name in entry.looser})
        yield f"  profile {profile}" + (f", looser in {', '.join(looser)}" if looser else "")


def _by_function(entries: Sequence[Entry]) -> Iterator[str]:
    """A line for each function, with what its answers held, and one for each reason of refusals."""
    left: dict[tuple[str, str], list[Entry]] = {}
    refused: dict[tuple[str, str], int] = {}
    for entry in entries:
        if entry.refused is None:
            left.setdefault((entry.function, _held(entry.left)), []).append(entry)
        else:
            at = (entry.function, entry.refused)
            refused[at] = refused.get(at, 0) + 1
    for (function, held), same in left.items():
        rows = sorted({entry.rows or 0 for entry in same})
        size = sum(entry.bytes for entry in same)
        about = f"{rows[0]:,}" if len(rows) == 1 else f"{rows[0]:,} to {rows[-1]:,}"
        yield f"  {function}: {len(same)} answer(s) about {about} rows, {size:,} bytes: {held}"
    for (function, reason), times in refused.items():
        yield f"  {function}: refused {times} time(s): {reason}"


def _line(entry: Entry) -> str:
    begin = f"  {entry.time[:19]} {entry.function}, round {entry.round}: "
    if entry.refused is not None:
        return f"{begin}refused: {entry.refused}"
    return f"{begin}{entry.rows} rows, {entry.bytes:,} bytes, sha256 {entry.sha256}: {_held(entry.left)}"


def _held(left: Mapping[str, Any]) -> str:
    parts = []
    for name, what in left.items():
        if isinstance(what, dict):
            parts.append(f"{name} ({_held(what)})")
        elif isinstance(what, list):
            parts.append(f"{name} {tuple(what[1:])} {what[0]}")
        elif what.startswith("list of "):
            parts.append(f"{name} ({what.removeprefix('list of ')} values)")
        else:
            parts.append(name)
    return ", ".join(parts) or "nothing but the number of rows"


def _answer(file: Path) -> tuple[list[str], dict[str, Any]]:
    """Describe the answer in a file that vantage6 has kept."""
    if file.stat().st_size > MOST_BYTES:
        raise SafeError(f"{file.name} is larger than {MOST_BYTES:,} bytes; expected the output of a task")
    data = file.read_bytes()
    try:
        answer = json.loads(data)
        held = audit.contents(answer)
        organization, n = answer["organization_id"], answer["n"]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise SafeError(
            f"{file.name} is neither an audit log nor the output of a task of this project; expected a hospital's "
            f"folder, its {audit.NAME}, or the file output of a partial function's task"
        ) from None
    sha256 = hashlib.sha256(data).hexdigest()
    return [
        f"{file}: an answer of organization {organization} about {n} rows, {len(data):,} bytes, sha256 {sha256}",
        f"  {_held(held)}",
    ], {"file": str(file), "answers": 1, "bytes": len(data), "sha256": sha256}


def _minute(time: str) -> str:
    return time[:16].replace("T", " ")


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" ... {names[-1]} ({len(names)} in all)" if len(names) > 3 else "")
