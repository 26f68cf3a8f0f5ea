"""What a worker of a cluster runs: one call at a node whose rows and files were sent to it."""

import functools
import importlib.metadata
import os
import platform
import socket
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from v6_federated.data.source import Source
from v6_workbench.simulation import mock_node, row_store
from v6_workbench.simulation.mock_node import Ended, Image
from v6_workbench.simulation.row_store import Part

PACKAGES = ("v6-federated", "numpy", "scipy", "pandas", "torch")  # whose versions may change a bit of a result

# All calls in a process run here, one after the other: a node's environment is that of the process, and the number of
# threads of a numerical library is limited in the thread that runs it.
_one_by_one = ThreadPoolExecutor(max_workers=1)

Files = Mapping[str, tuple[int, bytes]]  # time of change in nanoseconds, and content, by path


@dataclass(frozen=True)
class Changes:
    """What a call has changed in a folder.

    Attributes:
        written: files that are new, or have another time or content.
        removed: files that are gone.
    """

    written: Files
    removed: Sequence[str]

    def apply(self, folder: Path) -> None:
        """Change another folder in the same way.

        Args:
            folder: the folder.
        """
        unpack(self.written, folder)
        for name in self.removed:
            (folder / name).unlink(missing_ok=True)


@dataclass(frozen=True)
class Sent:
    """What a worker is sent with a call, besides the message and the rows.

    Attributes:
        versions: those of the caller.
        image: what the node runs.
        organization_id: id of the node's organization.
        environment: the node's environment variables.
        files: what lies in the folders that some of these name, by variable.
        number: number of the run.
    """

    versions: Mapping[str, str]
    image: Image
    organization_id: int
    environment: dict[str, str]
    files: Mapping[str, Files]
    number: int


@dataclass(frozen=True)
class Returned:
    """What a worker returns.

    Attributes:
        ended: how the call ended.
        changes: what it has changed in the node's folders, by variable.
        problem: why the call was not run; empty if it was.
    """

    ended: Ended
    changes: Mapping[str, Changes] = field(default_factory=dict)
    problem: str = ""


@functools.cache
def versions() -> dict[str, str]:
    """Return the versions of Python and of packages whose numbers must be the same everywhere."""
    found = {"Python": ".".join(platform.python_version_tuple()[:2])}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "none"
    return found


def pack(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Read all files of a folder.

    Args:
        folder: the folder, which need not exist.

    Returns:
        The files.
    """
    found = {}
    for file in folder.rglob("*") if folder.is_dir() else ():
        if file.is_file() and not file.is_symlink():
            found[file.relative_to(folder).as_posix()] = file.stat().st_mtime_ns, file.read_bytes()
    return found


def unpack(files: Files, folder: Path) -> None:
    """Write files to a folder.

    Args:
        files: the files.
        folder: the folder, which is made if there are any.
    """
    for name, (time, content) in files.items():
        file = folder / name
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.touch(mode=0o600)  # it may be a key; a file that is there keeps its mode
        file.write_bytes(content)
        os.utime(file, ns=(time, time))  # nodes tell by it whether what they keep is still the same


def source(record: bytes, parts: Sequence[Part]) -> Source:
    """Read a node's rows on the worker that has received them.

    Args:
        record: them, as in the file of all nodes.
        parts: what the record holds.

    Returns:
        The node's database; its arrays are read-only.
    """
    return mock_node.source_of(row_store.read(memoryview(bytes(record)), parts))


def run(sent: Sent, request: dict[str, Any], rows: Source) -> Returned:
    """Run a call at a node.

    Args:
        sent: what was sent with the call.
        request: the task's input.
        rows: the node's database.

    Returns:
        How it ended, and what the node keeps now.
    """
    return _one_by_one.submit(_run, sent, request, rows).result()


def _run(sent: Sent, request: dict[str, Any], rows: Source) -> Returned:
    own = {**dict.fromkeys(sent.versions, "none"), **versions()}
    if wrong := [name for name in sent.versions if sent.versions[name] != own[name]]:
        theirs = ", ".join(f"{name} {own[name]} (here {sent.versions[name]})" for name in wrong)
        problem = f"a worker of the cluster, on {socket.gethostname()}, has {theirs}; install the same versions there"
        return Returned(Ended(sent.number, "failed"), problem=problem)
    with tempfile.TemporaryDirectory(prefix="v6-federated-", ignore_cleanup_errors=True) as room:
        folders = {name: Path(room) / name.lower() for name in sent.files}
        for name, folder in folders.items():
            folder.mkdir()
            unpack(sent.files[name], folder)
        environment = {**sent.environment, **{name: str(folder) for name, folder in folders.items()}}
        ended = mock_node.call(sent.image, sent.organization_id, environment, request, rows, sent.number)
        changes = {name: _changes(sent.files[name], pack(folder)) for name, folder in folders.items()}
    return Returned(ended, changes)


def _changes(before: Files, after: Files) -> Changes:
    written = {name: file for name, file in after.items() if before.get(name) != file}
    return Changes(written, [name for name in before if name not in after])
