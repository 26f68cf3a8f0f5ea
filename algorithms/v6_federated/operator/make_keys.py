"""The hospital's identity key: operators make it once, and send its public half to each other."""

import os
from pathlib import Path

from v6_federated.base.errors import SafeError
from v6_federated.masks import keys
from v6_federated.operator.command_line import Found, prints
from v6_federated.operator.options import KeysOptions


def existing(folder: Path) -> Path:
    """Check that a hospital's folder is there."""
    if not folder.is_dir():
        raise SafeError(
            f"{folder} is not a folder"
            if folder.exists()
            else f"there is no folder {folder}; make it with "
            f"`mkdir -m 700 {folder}`, or name the hospital's own folder"
        )
    return folder


@prints
def new(options: KeysOptions) -> Found:
    """Make the key."""
    public = keys.new_identity(existing(options.folder))
    lines = [
        f"made {options.folder / keys.NAME}, the private half of the key: never send it to anybody",
        "keep a copy of it where you keep passwords; if it is lost, all hospitals of your block need new keys",
    ]
    if os.name == "posix" and options.folder.stat().st_mode & 0o077:
        lines.append(f"other users of this machine may open the folder; close it with `chmod 700 {options.folder}`")
    return _with_public(options.folder, public, lines)


@prints
def show(options: KeysOptions) -> Found:
    """Show the public half of the key."""
    return _with_public(options.folder, keys.public_of(keys.identity(existing(options.folder))), [])


def _with_public(folder: Path, public: bytes, lines: list[str]) -> Found:
    key = keys.written(public)
    return Found(
        [*lines, "the public half, which you send to the other hospitals:", f"  {key}"],
        {"folder": str(folder), "key": key},
    )
