"""The rows of all nodes of a mock network in one file, which each process maps into memory where it reads them.

A node's record is a pickle without its arrays, followed by the arrays (pickle's out-of-band buffers, PEP 574). So a
record is read without a copy, in one way for tables and arrays, and ten thousand nodes need one file.
"""

import functools
import io
import mmap
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

PROTOCOL = 5  # of pickle, the first that leaves arrays out
ALIGNED = 64  # bytes: every array begins at a multiple, as numpy's own arrays do


@dataclass(frozen=True)
class Record:
    """Where the rows of a node lie.

    Attributes:
        file: the file of all nodes.
        offset: where the record begins, in bytes.
        lengths: bytes of the pickle and of each of its arrays.
    """

    file: Path
    offset: int
    lengths: tuple[int, ...]

    def open(self) -> Any:
        """Return the rows; their arrays are read-only and lie in the file, mapped into memory."""
        mapped = _mapped(self.file, self.file.stat().st_size)
        return unpickle(memoryview(mapped)[self.offset : self.offset + self.size], self.lengths)

    def read(self) -> bytes:
        """Return the record as it lies in the file, to send it to another machine."""
        with self.file.open("rb") as stream:
            stream.seek(self.offset)
            return stream.read(self.size)

    @property
    def size(self) -> int:
        """The number of bytes."""
        return [*_places(self.lengths)][-1].stop


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

    def add(self, rows: Any) -> Record:
        """Write the rows of a node.

        Args:
            rows: a table, or arrays.

        Returns:
            Where they lie. They can be read after ``flush``.
        """
        arrays: list[pickle.PickleBuffer] = []
        stream = io.BytesIO()
        _Pickler(stream, PROTOCOL, buffer_callback=arrays.append).dump(rows)
        parts = [stream.getbuffer(), *(array.raw() for array in arrays)]
        lengths = tuple(len(part) for part in parts)
        offset = self._end
        for part, place in zip(parts, _places(lengths), strict=True):
            self._stream.write(bytes(offset + place.start - self._end))
            self._stream.write(part)
            self._end = offset + place.stop
        self._stream.write(bytes(-self._end % ALIGNED))
        self._end += -self._end % ALIGNED
        return Record(self._file, offset, lengths)

    def flush(self) -> None:
        """Write all that was added to the file, for other processes to read."""
        self._stream.flush()

    def close(self) -> None:
        """Close the file."""
        self._stream.close()


def unpickle(record: memoryview, lengths: Sequence[int]) -> Any:
    """Read a record.

    Args:
        record: its bytes.
        lengths: those of its parts, see ``Record``.

    Returns:
        The rows; their arrays are views of the record.
    """
    pickled, *arrays = (record[place] for place in _places(lengths))
    return pickle.loads(pickled, buffers=arrays)


def _places(lengths: Sequence[int]) -> Iterator[slice]:
    """Where each part of a record lies in it."""
    start = 0
    for length in lengths:
        yield slice(start, start + length)
        start += length + -length % ALIGNED


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        """Lay the numbers of a strided array side by side: otherwise pickle copies them into its own part."""
        strided = type(value) is np.ndarray and value.dtype != object and not value.flags.forc
        return np.ascontiguousarray(value).__reduce_ex__(PROTOCOL) if strided else NotImplemented
