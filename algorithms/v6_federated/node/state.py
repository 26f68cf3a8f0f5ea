"""What a node keeps from one round of a job to the next: arrays in the job's folder, which never leave the node.

There is one file a round. If a round is run again (because the node was restarted, the run failed or central never got
its answer), it finds what its first run found. A file is written whole or not at all. Of the earlier rounds, only the
one that was loaded is kept.
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

from v6_federated.base.arrays import Array
from v6_federated.base.errors import SafeError

BROKEN = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error)


class State:
    """The state of one method, job and organization (central may run on the same node, in the same folder)."""

    def __init__(self, folder: Path, name: str, round_: int) -> None:
        """Name the state; nothing is read or written yet.

        Args:
            folder: the job's folder.
            name: a name for method, job and organization together.
            round_: the round that is running, whose state ``save`` keeps.
        """
        self.folder, self.name, self.round = folder, name.replace("/", "-"), round_
        self._loaded: int | None = None

    def load(self, round_: int) -> dict[str, Array] | None:
        """Load the arrays of a round.

        Args:
            round_: the round that kept them.

        Returns:
            The arrays by name; None if there are none, or if their file is broken.
        """
        with contextlib.suppress(*BROKEN), np.load(self._file(round_)) as found:
            self._loaded = round_
            return {key: found[key] for key in found.files}
        return None

    def part(self, name: str) -> "State":
        """Return a part of the state that does not depend on the round and is removed with the rest.

        Args:
            name: a name for the part.

        Returns:
            The part, as a state of round 0.
        """
        return State(self.folder, f"{self.name}-{name}", 0)

    def save(self, arrays: Mapping[str, Any]) -> None:
        """Keep arrays for later rounds.

        Args:
            arrays: numpy arrays or torch tensors, by name.

        Raises:
            SafeError: the job's folder cannot be written.
        """
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
            raise SafeError(
                f"the job's folder at this node cannot be written: {error.strerror}; ask its operator to make room"
            ) from None
        for old in self._files():
            # central will not ask for rounds before the one that was loaded; later rounds are not this one's to remove
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
