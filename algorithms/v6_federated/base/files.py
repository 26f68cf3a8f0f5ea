"""Files that are written whole or not at all: a process that is stopped while it writes leaves the old file."""

import os
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
