"""The audit log for a person: by job, what left this node, and what was refused."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from v6_federated.base.errors import SafeError
from v6_federated.base.logs import one_line
from v6_federated.base.vantage6_api import NodePermissionException
from v6_federated.operator import spent
from v6_federated.operator.command_line import FAILED, OK, Found, prints
from v6_federated.operator.options import AuditOptions
from v6_federated.rules import audit, stopped
from v6_federated.rules.audit import Entry
from v6_federated.rules.stopped import Stopped

T = TypeVar("T")
MOST_BYTES = 2**31  # of an answer
EXPECTED = f"expected a hospital's folder, its {audit.NAME}, or a task's output"
MEANING = {  # what answers under masks are called, as in the protocol's description
    "mode": "whether the hospitals are those of a study (pinned) or all of the job (masked); nothing of a row",
    "entry": "public keys (S, E) and version of this node, and a digest of its table (D) that differs in every job",
    "score_bands": "in how many bands this node counts scores, an operator's limit; nothing of a row",
    "hospital_totals": "whether the study's sums may tell totals of single hospitals; nothing of a row",
    "block": "public keys of the hospitals of this node's block, as in its study; nothing of a row",
    "tags": "by which the other hospitals see that all have the same list of keys; nothing of a row",
    "colluders": "how many hospitals the study assumes to work with the server; nothing of a row",
    "hospitals_a_person": "at how many hospitals the study lets a person have rows; nothing of a row",
    "T": "what all requests of this round were, as a digest, so that only answers to the same ones are added up",
    "y32": "under a mask, 32 bits each: random by themselves, they tell only the sum over all hospitals of the block",
    "y64": "the same, 64 bits each",
}
MOST_JOBS = 20  # that are shown in full
MOST_QUERIES = 5  # of a job that are shown


@dataclass
class _Same:
    """Answers of one function that held the same."""

    answers: int = 0
    bytes: int = 0
    rows: set[int] = field(default_factory=set)
    evaluated: set[int] = field(default_factory=set)


@dataclass
class _Job:
    """What left for a job, summed up: a log may be larger than the memory."""

    method: str
    first: str
    last: str = ""
    runs: set[int] = field(default_factory=set)
    participants: set[int] = field(default_factory=set)
    looser: dict[str, set[str]] = field(default_factory=dict)
    databases: set[str] = field(default_factory=set)
    queries: dict[str, None] = field(default_factory=dict)  # in the order in which they came
    left: dict[tuple[str, str], _Same] = field(default_factory=dict)
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, entry: Entry) -> None:
        self.last = entry.time
        self.runs |= _known(entry.run)
        self.participants |= _known(entry.participants)
        self.databases |= _known(entry.database)
        if entry.query is not None:
            self.queries.setdefault(one_line(entry.query))
        self.looser.setdefault(entry.profile, set()).update(entry.looser)
        if entry.refused is not None:
            self.refused[entry.function, entry.refused] += 1
            return
        same = self.left.setdefault((entry.function, _held(entry.left)), _Same())
        same.answers, same.bytes = same.answers + 1, same.bytes + entry.bytes
        same.rows |= _known(entry.rows)
        same.evaluated |= _known(entry.evaluated)

    @property
    def answers(self) -> int:
        return sum(same.answers for same in self.left.values())

    @property
    def bytes(self) -> int:
        return sum(same.bytes for same in self.left.values())


def shown(path: Path, job: str | None = None) -> tuple[list[str], dict[str, Any]]:
    """Describe a log, or one answer that vantage6 has kept."""
    file = path / audit.NAME if path.is_dir() else path
    if not file.is_file():
        of_nodes = sorted(path.glob(f"*/{audit.NAME}"))  # mock nodes have a folder each
        raise SafeError(
            f"there is no file {file}; "
            + (f"name the folder of one node, such as {of_nodes[0].parent}" if of_nodes else EXPECTED)
        )
    lines, numbers = _log(file, job) if file.suffix == Path(audit.NAME).suffix else _answer(file)
    return ["".join(c for c in line if c.isprintable()) for line in lines], numbers  # other programs may write the log


def _log(file: Path, job: str | None) -> tuple[list[str], dict[str, Any]]:
    jobs: dict[str, _Job] = {}
    single: dict[str, list[str]] = {}
    lines, broken = 0, []
    for lines, entry in enumerate(audit.read(file), start=1):
        if entry is None:
            broken.append(lines)
        elif entry.job.startswith(job or ""):
            jobs.setdefault(entry.job, _Job(entry.method, entry.time)).add(entry)
            if job:
                single.setdefault(entry.job, []).append(_line(entry))
    if lines and len(broken) == lines:
        raise SafeError(
            f"no line of {file.name} is an entry of an audit log; expected the file {audit.NAME} of a hospital's folder"
        )
    if job and not jobs:
        raise SafeError(f"no job in {file} has a key that begins with {job}; leave --job out to see all")
    total = {
        "answers": sum(it.answers for it in jobs.values()),
        "bytes": sum(it.bytes for it in jobs.values()),
        "refused": sum(it.refused.total() for it in jobs.values()),
    }
    found = [
        f"{file}: {len(jobs)} job(s), {total['answers']} answer(s) of {total['bytes']:,} bytes left, "
        f"{total['refused']} request(s) refused"
    ]
    if broken:
        found.append(
            f"{len(broken)} line(s) cannot be read: {_some([*map(str, broken)])}. A power cut may leave half a line, "
            "about an answer that did not leave. More such lines mean that another program has changed the file"
        )
    list_, unreadable = _stopped(file.parent)
    found += unreadable
    if list_.all is not None:
        found.append(f"every job is stopped since {minute(list_.all)} UTC, and new ones too")
    brief = len(jobs) > MOST_JOBS
    if brief:
        found += ["--job KEY shows a job in full", ""]
    for key, of_job in jobs.items():
        at = list_.jobs.get(key)
        if brief:
            found.append(_brief(key, of_job, at))
        else:
            found += ["", *_full(key, of_job, at), *single.get(key, _by_function(of_job))]
    stops = sorted(key for key in jobs if list_.since(key))
    return found, {"file": str(file), "jobs": len(jobs), **total, "broken": len(broken), "stopped": stops}


def _stopped(folder: Path) -> tuple[Stopped, list[str]]:
    """The stop list, and a line if it cannot be read."""
    try:
        return Stopped.read(folder), []
    except NodePermissionException:
        return Stopped(), [f"{stopped.NAME} cannot be read, so this node refuses every request; correct or remove it"]


def _brief(key: str, job: _Job, stopped_at: str | None) -> str:
    return (
        f"job {key}: {job.method}, {minute(job.first)} to {minute(job.last)} UTC, {job.answers} answer(s) of "
        f"{job.bytes:,} bytes left, {job.refused.total()} request(s) refused"
        + (f", stopped {minute(stopped_at)} UTC" if stopped_at else "")
    )


def _full(key: str, job: _Job, stopped_at: str | None) -> Iterator[str]:
    yield f"job {key}: {job.method}, {minute(job.first)} to {minute(job.last)} UTC"
    if stopped_at:
        yield f"  stopped by this node's operator, {minute(stopped_at)} UTC"
    if job.runs:
        yield f"  runs at the server: {_some([str(run) for run in sorted(job.runs)])}"
    if job.databases:
        yield f"  database: {', '.join(sorted(job.databases))}"
    for query in [*job.queries][:MOST_QUERIES]:
        yield f"  query: {query}"
    if len(job.queries) > MOST_QUERIES:
        yield f"  and {len(job.queries) - MOST_QUERIES} other queries, which {audit.NAME} has"
    asked = ", ".join(map(str, sorted(job.participants)))
    yield f"  organizations that train, as the tasks said: {asked or 'not said'}"
    for profile, looser in sorted(job.looser.items()):
        yield f"  profile {profile}" + (f", looser in {', '.join(sorted(looser))}" if looser else "")


def _by_function(job: _Job) -> Iterator[str]:
    """A line for each function, with what its answers held, and one for each reason of refusals."""
    for (function, held), same in job.left.items():
        about = _about(same.rows, same.evaluated)
        yield f"  {function}: {same.answers} answer(s) about {about}, {same.bytes:,} bytes: {held}"
    answers = " ".join(held for _, held in job.left)
    for name in (name for name in MEANING if re.search(rf"(?<!\w){name}\b", answers)):
        yield f"    {name}: {MEANING[name]}"
    for (function, reason), times in job.refused.items():
        yield f"  {function}: refused {times} time(s): {reason}"


def _line(entry: Entry) -> str:
    begin = f"  {entry.time[:19]} {entry.function}{'' if entry.round is None else f', round {entry.round}'}: "
    if entry.refused is not None:
        return f"{begin}refused: {entry.refused}"
    about = _about(_known(entry.rows), _known(entry.evaluated))
    return f"{begin}{about}, {entry.bytes:,} bytes, sha256 {entry.sha256}: {_held(entry.left)}"


def _about(rows: set[int], evaluated: set[int]) -> str:
    """The rows of answers: those that the node trains on, and those that the model was evaluated on."""

    def several(numbers: set[int]) -> str:
        least, most = min(numbers, default=0), max(numbers, default=0)
        return f"{least:,}" if least == most else f"{least:,} to {most:,}"

    return f"{several(rows)} rows" + (f", evaluated on {several(evaluated)}" if evaluated else "")


KEY = re.compile("[0-9a-f]{64}")  # a hospital's public key: nothing that a person would read
SENT_AS = {"int8": " in 8 bits", "topk": ", the largest of them"}  # forms of compressed arrays


def _held(left: Mapping[str, Any]) -> str:
    parts = []
    for name, what in left.items():
        if isinstance(what, dict) and all(KEY.fullmatch(key) for key in what):
            parts.append(f"{name} ({len(what)} values)")
        elif isinstance(what, dict):
            parts.append(f"{name} ({_held(what)})")
        elif isinstance(what, list):
            parts.append(f"{name} ({' x '.join(map(str, what[1:])) or 1} numbers{SENT_AS.get(what[0], '')})")
        elif str(what).startswith("list of "):
            parts.append(f"{name} ({what.removeprefix('list of ')} values)")
        else:
            parts.append(name)
    return ", ".join(parts) or "nothing but the number of rows"


def _answer(file: Path) -> tuple[list[str], dict[str, Any]]:
    """Describe the answer in a file that vantage6 has kept."""
    if file.stat().st_size > MOST_BYTES:
        raise SafeError(f"{file.name} is larger than {MOST_BYTES:,} bytes; expected the output of a task")
    data = file.read_bytes()
    sha256 = hashlib.sha256(data).hexdigest()
    try:
        answer = json.loads(data)
        held = audit.contents(answer)
        organization = int(answer["organization_id"])
        about = f" about {int(answer['n'])} rows" if "n" in answer else ""  # under masks, n is part of the sums
        lines = [
            f"{file}: an answer of organization {organization}{about}, {len(data):,} bytes, sha256 {sha256}",
            f"  {_held(held)}",
        ]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise SafeError(
            f"{file.name} is neither an audit log nor the output of a partial function's task; {EXPECTED}"
        ) from None
    return lines, {"file": str(file), "answers": 1, "bytes": len(data), "sha256": sha256}


def _known(value: T | None) -> set[T]:
    return set() if value is None else {value}


def minute(time: str) -> str:
    """Write the time of an entry for a person."""
    return time[:16].replace("T", " ")


def unused(folder: Path) -> list[str]:
    """Say that a folder may be the wrong one: no job has left an audit log there."""
    if (folder / audit.NAME).is_file():
        return []
    return [
        f"no job has asked this hospital for anything: there is no {audit.NAME} in {folder}; check that it is the "
        "folder of the node, its database of type folder"
    ]


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" ... {names[-1]} ({len(names)} in all)" if len(names) > 3 else "")


@prints
def run(options: AuditOptions) -> Found:
    """Show the log, and the ledger that lies in the same folder."""
    lines, ledger = spent.shown(options.file, options.epsilon, options.delta, options.job)
    if ledger is None:
        return Found(*shown(options.file, options.job))
    # a budget of which nothing has been used has no log yet
    log, numbers = shown(options.file, options.job) if (options.file / audit.NAME).exists() else ([], {})
    return Found([*log, *lines], {**numbers, "ledger": ledger}, FAILED if "error" in ledger else OK)
