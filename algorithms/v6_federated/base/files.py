"""Files that are written whole or not at all, and files in a folder that other programs can write to.

All containers of a job share its folder at a node, and one of them may be hostile. So nobody can foresee the name of a
temporary file, and links, pipes and devices are refused: with a link, another program would choose what is read.
"""

import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from v6_federated.base.errors import SafeError

# NONBLOCK: a pipe that somebody has put there would keep this process waiting (Windows has neither)
SAFELY = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
LOCK_SECONDS = 0.01  # between two attempts to lock a file

UNUSABLE = {  # what is wrong with a file that was named wrongly, or that others own
    errno.ENOENT: "does not exist; check its name",
    errno.EISDIR: "is a folder; expected a file",
    errno.ENOTDIR: "cannot exist, since a part of its path is a file; check its name",
    errno.EACCES: "cannot be read or written (permission denied); close it elsewhere, correct its permissions, or name "
    "another",  # on Windows, a program that shows a file denies it to others
    errno.EPERM: "cannot be read or written (not permitted); correct its permissions, or name another",
    errno.EROFS: "cannot be written (read-only file system); name another",
}


def unusable(error: OSError) -> str | None:
    """Say what is wrong with a file that a user has named."""
    named = error.filename is not None and error.errno in UNUSABLE
    return f"{error.filename} {UNUSABLE[error.errno or 0]}" if named else None


def write_whole(file: Path, text: str, durable: bool = False, mode: int = 0o666) -> None:
    """Write a text file in one step, and make its folder if there is none."""
    with replacing(file, durable, mode) as stream:
        stream.write(text.encode())


@contextmanager
def replacing(file: Path, durable: bool = False, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Write a file under another name, which becomes its own at the end, and make its folder if there is none."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with _under_another_name(file, mode, durable, os.replace) as stream:
        yield stream


def create(file: Path, content: bytes) -> None:
    """Write a new file that only this user can read, whole from the moment when it has its name."""
    with _under_another_name(file, 0o600, True, os.link) as stream:  # unlike a rename, a link replaces no file
        stream.write(content)


@contextmanager
def _under_another_name(file: Path, mode: int, durable: bool, name: Callable[[Path, Path], None]) -> Iterator[BinaryIO]:
    """Write a new file, and then give it its own name with ``name(part, file)``."""
    part = file.with_name(f"{file.name}.{secrets.token_hex(16)}.part")
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | SAFELY, mode), "wb") as stream:
            yield stream
            if durable:
                stream.flush()
                os.fsync(stream.fileno())
        name(part, file)
    except OSError as error:
        if error.filename is None:
            raise
        raise OSError(error.errno, error.strerror, str(file)) from None  # nobody knows the other name
    finally:
        part.unlink(missing_ok=True)


def keep_latest(folder: Path, pattern: str, most: int) -> None:
    """Remove old files, so that tasks do not fill a disk."""
    for old in sorted(folder.glob(pattern), key=lambda file: file.lstat().st_mtime)[:-most]:
        old.unlink(missing_ok=True)


def open_regular(file: Path, append: bool = False) -> BinaryIO:
    """Open a file in a folder that others can write to."""
    check_regular(file)
    stream = os.fdopen(
        os.open(file, (os.O_WRONLY | os.O_APPEND if append else os.O_RDONLY) | SAFELY), "ab" if append else "rb"
    )
    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):  # it was replaced in between
        stream.close()
        raise _foreign(file)
    return stream


@contextmanager
def locked(descriptor: int) -> Iterator[None]:
    """Wait until no other process has locked a file, and lock it: with ``flock``, or on Windows ``LockFileEx``."""
    from filelock import lock_descriptor, unlock_descriptor  # slow to import

    lock_descriptor(descriptor, poll_interval=LOCK_SECONDS)
    try:
        yield
    finally:
        unlock_descriptor(descriptor)


def check_regular(file: Path) -> None:
    """Refuse a file that another program has put there: a link, or no regular file."""
    try:
        mode = file.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        raise _foreign(file)


def _foreign(file: Path) -> SafeError:
    return SafeError(
        f"{file.name} in a folder of the node is a link or no regular file, which another program has put there; ask "
        "the node's operator to look at it, and run the job again"
    )
