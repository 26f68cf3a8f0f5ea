"""What a node keeps from one round of a job to the next: arrays in the job's folder, which never travel.

A file a round, so that a round that is run again (after a node's restart, after a failure, or because central never got
its answer) finds what its first run found. Files appear whole or not at all; of earlier rounds only the one that was
loaded is kept.
"""

import contextlib
import glob
import os
import uuid
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from v6_federated.base.errors import SafeError

BROKEN = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error)


class State:
    """The state of one method, job and organization (central may run on the same node, in the same folder).

    Args:
        folder: of the job.
        name: of method, job and organization.
        round_: the round that is running, of which ``save`` keeps the state.
    """

    def __init__(self, folder: Path, name: str, round_: int) -> None:
        self.folder, self.name, self.round = folder, name.replace("/", "-"), round_
        self._loaded: int | None = None

    def load(self, round_: int) -> dict[str, np.ndarray] | None:
        """The arrays kept in ``round_``; None where they are gone or their file is broken. Never another round's."""
        with contextlib.suppress(*BROKEN), np.load(self._file(round_)) as found:
            self._loaded = round_
            return {key: found[key] for key in found.files}
        return None

    def part(self, name: str) -> "State":
        """State of the same job that is kept apart, whatever the round; removed with the rest."""
        return State(self.folder, f"{self.name}-{name}", 0)

    def save(self, arrays: Mapping[str, Any]) -> None:
        """Keep arrays (numpy or torch) for later rounds. Raises SafeError where the job's folder takes no more."""
        file = self._file(self.round)
        part = file.with_suffix(f".{uuid.uuid4().hex}.part")  # the same task may run twice, in two containers
        plain: dict[str, Any] = {k: v.cpu().numpy() if hasattr(v, "cpu") else v for k, v in arrays.items()}
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with part.open("wb") as stream:
                np.savez(stream, **plain)
                stream.flush()
                os.fsync(stream.fileno())
            part.replace(file)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise SafeError(f"this node cannot keep the job's state: {error.strerror}") from None
        for old in self._files():
            # what central has not counted by now it never will; a later round's is not this one's to remove
            if old < self.round and old != self._loaded:
                self._file(old).unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove everything of this method, job and organization."""
        for file in self.folder.glob(f"{glob.escape(self.name)}-*"):
            file.unlink(missing_ok=True)

    def _file(self, round_: int) -> Path:
        return self.folder / f"{self.name}-round-{round_}.npz"

    def _files(self) -> list[int]:
        return [int(file.stem.rpartition("-")[2]) for file in self.folder.glob(f"{glob.escape(self.name)}-round-*.npz")]
