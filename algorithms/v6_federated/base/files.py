"""Files that are written whole or not at all: a process that is stopped while it writes leaves the old file."""

import os
import secrets
from pathlib import Path


def write_whole(file: Path, text: str, durable: bool = False) -> None:
    """Write a text file in one step, and make its folder if there is none.

    Args:
        file: the file to write or replace.
        text: what it is to hold, written as UTF-8.
        durable: write the text to the disk before the file gets its name, so that it is whole after a power cut too.

    Raises:
        OSError: the file cannot be written; it is then as it was before.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f"{file.name}.part")
    try:
        part.write_text(text, encoding="utf-8")
        if durable:
            with part.open("r+b") as stream:
                os.fsync(stream.fileno())
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)


def create(file: Path, content: bytes) -> None:
    """Write a new file that only this user can read, whole from the moment when it has its name.

    Args:
        file: the file.
        content: its content.

    Raises:
        FileExistsError: there is such a file already; it stays as it is.
        OSError: the file cannot be written.
    """
    part = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.link(part, file)  # unlike a rename, it replaces no file
    finally:
        part.unlink(missing_ok=True)


def read_plain(file: Path) -> bytes:
    """Read a file that is no link: who can write to the folder could otherwise choose what is read.

    Args:
        file: the file.

    Returns:
        Its content.

    Raises:
        OSError: it is a link, or cannot be read.
    """
    with os.fdopen(os.open(file, os.O_RDONLY | os.O_NOFOLLOW), "rb") as stream:
        return stream.read()
