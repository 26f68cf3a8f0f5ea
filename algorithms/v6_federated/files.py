"""Files that appear whole or not at all: who is stopped while writing leaves what was there before."""

import os
from pathlib import Path
from tempfile import NamedTemporaryFile

from v6_federated.errors import SafeError


def check_folder(folder: Path | None) -> None:
    """Make the folder of ``--out`` and try to write to it, before anything is trained for it. Raises SafeError."""
    if folder is None:
        return
    if folder.exists() and not folder.is_dir():
        raise SafeError(f"--out {folder} is a file; expected a folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=folder, prefix="."):  # its mode alone does not tell: the disk may be read-only
            pass
    except OSError as error:
        raise SafeError(
            f"--out {folder} cannot be written to ({error.strerror}); expected a folder to write to"
        ) from None


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
