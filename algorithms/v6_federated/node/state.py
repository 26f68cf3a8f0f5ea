"""What a node keeps from one round of a job to the next: arrays in the job's folder, which never leave the node.

There is one file a round. If a round is run again (because the node was restarted, the run failed or central never got
its answer), it finds what its first run found. A file is written whole or not at all. Of the earlier rounds, only the
one that was loaded is kept.
"""

import contextlib
import glob
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from v6_federated.base.arrays import Array
from v6_federated.base.errors import SafeError
from v6_federated.base.files import check_regular, open_regular, replacing
from v6_federated.base.vantage6_api import DataError
from v6_federated.data.opening import read_archive
from v6_federated.masks import notation

STAMP = "stamp"  # name of the request's ``history`` among the arrays


class State:
    """The state of one method, job and organization (central may run on the same node, in the same folder).

    Attributes:
        stamp: transcript of the request, if its answer is masked.
        loaded_stamp: the ``history`` of the request that saved what this one names; empty if it names nothing that is
            there.
        history: T', which differs from node to node unless the same requests have led to what this one may load. A
            stamp of the last request alone would be the same at a node that had been sent a request more before it.
    """

    def __init__(self, folder: Path, name: str, round_: int) -> None:
        """Name the state; nothing is read or written yet."""
        self.folder, self.name, self.round = folder, name.replace("/", "-"), round_
        self.stamp, self.loaded_stamp, self.history = b"", b"", b""
        self._loaded: int | None = None
        self._named: int | None = None
        self._saved = False

    def bind(self, stamp: bytes, named: int | None) -> None:
        """Begin a request whose answer is masked: masks depend on what it names, whatever becomes of it."""
        self.stamp, self._named = stamp, named
        if named is not None:
            self.load(named)
        self.history = notation.H("kept", stamp, self.loaded_stamp)

    def settle(self) -> None:
        """Keep what the request names for this round too, if nothing was saved in it.

        Otherwise the next masks would tell how far a node came that could not compute its part.
        """
        if not self._saved:
            self.save((None if self._named is None else self.load(self._named)) or {})

    def load(self, round_: int) -> dict[str, Array] | None:
        """Load the arrays of a round."""
        if self.stamp and round_ != self._named:
            raise SafeError("where answers are masked, a function can load what `known` names and nothing else")
        try:
            stream = open_regular(self._file(round_))
        except OSError:
            return None
        with stream, contextlib.suppress(DataError):
            found = read_archive(stream, self.name)
            self._loaded = round_
            self.loaded_stamp = found.pop(STAMP, np.empty(0)).astype(np.uint8).tobytes()
            return found or None
        return None

    def version(self) -> list[int]:
        """Say which arrays this round finds, without reading them."""
        before = [old for old in self._files() if old < self.round]
        with contextlib.suppress(OSError):
            found = self._file(max(before)).stat() if before else None
            return [max(before), found.st_size, found.st_mtime_ns] if found else []
        return []

    def part(self, name: str) -> "State":
        """Return a part of the state that does not depend on the round and is removed with the rest."""
        return State(self.folder, f"{self.name}-{name}", 0)

    def save(self, arrays: Mapping[str, Any]) -> None:
        """Keep arrays for later rounds."""
        file = self._file(self.round)
        check_regular(file)
        plain: dict[str, Any] = {k: v.cpu().numpy() if hasattr(v, "cpu") else v for k, v in arrays.items()}
        if self.stamp:
            plain[STAMP] = np.frombuffer(self.history, np.uint8)
        try:
            with replacing(file, durable=True) as stream:  # the same task may run twice, in two containers
                np.savez(stream, **plain)
        except OSError as error:
            raise SafeError(
                f"the job's folder at this node cannot be written: {error.strerror}; ask its operator to make room"
            ) from None
        self._saved = True
        for old in self._files():
            # central will not ask for rounds before the one that was loaded; later rounds are not this one's to remove
            if old < self.round and old != self._loaded:
                with contextlib.suppress(OSError):
                    self._file(old).unlink()

    def remove(self) -> None:
        """Remove everything of this method, job and organization."""
        files = [*self.folder.glob(f"{glob.escape(self.name)}-*")]
        for file in files:
            if file.is_symlink() or not file.is_dir():
                file.unlink(missing_ok=True)
        for file in files:
            check_regular(file)

    def _file(self, round_: int) -> Path:
        return self.folder / f"{self.name}-round-{round_}.npz"

    def _files(self) -> list[int]:
        """The rounds that have kept something."""
        try:
            names = os.listdir(self.folder)  # Path.glob would compile a pattern for each node and job
        except OSError:  # nothing was kept yet
            return []
        begin, end = f"{self.name}-round-", ".npz"
        rounds = (name[len(begin) : -len(end)] for name in names if name.startswith(begin) and name.endswith(end))
        return [int(round_) for round_ in rounds if round_.isdecimal()]
