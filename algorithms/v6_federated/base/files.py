"""Files that appear whole or not at all: who is stopped while writing leaves what was there before."""

import os
from pathlib import Path


def write_whole(file: Path, text: str, durable: bool = False) -> None:
    """Write a text file in one step; its folder is made. Raises OSError, and the file is as it was.

    With ``durable`` the text is on the disk before the name is: a file of after a power cut is whole too.
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
