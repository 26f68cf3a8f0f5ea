"""The rows of all nodes of a mock network in one file, so that ten thousand nodes need no more.

Arrays of numbers lie in it, and each process maps the file into memory where it reads them. What else a table's columns
can hold, such as words, stays in the record, which goes to a worker with each call.
"""

import copy
import functools
import math
import mmap
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

MAPPED = sys.platform != "win32"  # Windows removes no file that a process has mapped, and it holds patients' rows
ALIGNED = 64  # bytes: every part begins at a multiple, as numpy's own arrays do


@dataclass(frozen=True)
class Part:
    """A part of a node's rows.

    Attributes:
        start: where it begins in the record, in bytes.
        size: its bytes.
        dtype: type of an array's numbers; empty if the part is no array of numbers.
        shape: an array's shape.
        value: the part itself, if it is no array of numbers.
    """

    start: int
    size: int = 0
    dtype: str = ""
    shape: tuple[int, ...] = ()
    value: Any = field(default=None, compare=False, repr=False)

    def read(self, record: memoryview) -> Any:
        """Return what it holds; an array is a view of the record.

        Args:
            record: the bytes of the record.
        """
        if not self.dtype:
            if isinstance(self.value, np.ndarray):
                self.value.flags.writeable = False  # as those that are mapped: no call may change it for the next
            return self.value
        if not self.size:  # of which there is no buffer
            return np.empty(self.shape, self.dtype)
        return np.frombuffer(record, self.dtype, math.prod(self.shape), self.start).reshape(self.shape)


@dataclass(frozen=True)
class Record:
    """Where the rows of a node lie.

    Attributes:
        file: the file of all nodes.
        offset: where the record begins, in bytes.
        size: its bytes.
        parts: what was added.
    """

    file: Path
    offset: int
    size: int
    parts: tuple[Part, ...]

    def open(self) -> list[Any]:
        """Return the parts; arrays are read-only and lie in the file, mapped into memory, or on Windows are a copy."""
        if not MAPPED:
            return read(memoryview(self.bytes()), self.parts)
        mapped = _mapped(self.file, self.file.stat().st_size)
        return read(memoryview(mapped)[self.offset : self.offset + self.size], self.parts)

    def bytes(self) -> bytes:
        """Return the record as it lies in the file, to send it to another machine."""
        with self.file.open("rb") as stream:
            stream.seek(self.offset)
            return stream.read(self.size)


@functools.lru_cache(maxsize=1)
def _mapped(file: Path, size: int) -> mmap.mmap:
    """The whole file: a map for each record would take a file descriptor each, of which a process has few."""
    with file.open("rb") as stream:
        return mmap.mmap(stream.fileno(), size, access=mmap.ACCESS_READ)


def forget() -> None:
    """Close the file that this process has mapped, once nobody reads its rows any more."""
    _mapped.cache_clear()


class RowStore:
    """Writes the rows of nodes, one record after the other."""

    def __init__(self, file: Path) -> None:
        """Make the file.

        Args:
            file: a file that does not exist.
        """
        self._file, self._stream, self._end = file, file.open("xb"), 0

    def add(self, *values: Any) -> Record:
        """Write the rows of a node.

        Args:
            values: arrays, or anything else that processes can be sent.

        Returns:
            Where they lie. They can be read after ``flush``.
        """
        offset, parts = self._end, list[Part]()
        for value in values:
            parts.append(self._add(value, offset))
            padding = -self._end % ALIGNED
            self._stream.write(bytes(padding))
            self._end += padding
        if self._end == offset:  # each record has a place of its own, by which processes tell them apart
            self._stream.write(bytes(ALIGNED))
            self._end += ALIGNED
        return Record(self._file, offset, self._end - offset, tuple(parts))

    def _add(self, value: Any, offset: int) -> Part:
        start = self._end - offset
        if isinstance(value, np.ndarray) and not value.dtype.hasobject and value.dtype.kind not in "mM":
            array = np.ascontiguousarray(value)
            self._stream.write(array.tobytes())
            self._end += array.nbytes
            return Part(start, array.nbytes, value.dtype.str, value.shape)
        return Part(start, value=copy.copy(value))  # the caller's may change

    def flush(self) -> None:
        """Write all that was added to the file, for other processes to read."""
        self._stream.flush()

    def close(self) -> None:
        """Close the file."""
        self._stream.close()


def read(record: memoryview, parts: Sequence[Part]) -> list[Any]:
    """Read a record.

    Args:
        record: its bytes.
        parts: what they hold.

    Returns:
        The parts; arrays are read-only views of the record.
    """
    return [part.read(record) for part in parts]
