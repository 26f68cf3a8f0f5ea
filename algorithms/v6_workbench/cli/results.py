"""Results on disk: ``result.json`` and its pictures, and the folders that commands write to."""

import contextlib
import json
import re
from collections.abc import Iterable
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from v6_federated.base import json_text
from v6_federated.base.errors import SafeError
from v6_federated.base.files import write_whole
from v6_federated.messages.result import check as check_form
from v6_workbench.cli.console import say

_made: list[Path] = []  # folders that this process has made before it had anything to write there
NOT_IN_NAMES = re.compile(r'[<>:"/\\|?*\x00-\x1f]')  # of files, on Windows; nor may a dot or space end one
LONGEST = 60  # letters of a name in the name of its folder
WRITTEN = "expected a result.json that `v6-federated run --out DIR` wrote"


def found_in(paths: Iterable[Path]) -> list[Path]:
    """List the results that a user names, each once.

    Args:
        paths: files and folders; a folder that ``compare`` wrote stands for all results in it.

    Returns:
        Files, and folders with a result.
    """
    found: dict[Path, None] = {}
    for path in paths:
        own = (
            not path.is_dir() or (path / "result.json").exists()
        )  # then only folders that ``compare`` may have written
        inside = sorted(path.glob("[0-9]*-*/result.json" if own else "*/result.json"), key=_number_of)
        found |= dict.fromkeys([*([path] if own or not inside else []), *(file.parent for file in inside)])
    return [*found]


def _number_of(file: Path) -> tuple[int, str]:
    number = file.parent.name.partition("-")[0]
    return int(number) if number.isdecimal() else 0, file.parent.name


def read(path: Path) -> dict[str, Any]:
    """Read a result.

    Args:
        path: a ``result.json``, or the folder that it is in.

    Returns:
        The result.

    Raises:
        SafeError: there is no result.
    """
    file = path / "result.json" if path.is_dir() else path
    try:
        found = json_text.parse(file.read_bytes())
        check_form(found)
    except FileNotFoundError:
        if (path / "test.json").exists():
            raise SafeError(
                f"{path} holds a test of `v6-federated compare --test` and no result; see its test.json and "
                "posteriors.png"
            ) from None
        raise SafeError(f"no file {file}; {WRITTEN}") from None
    except SafeError as error:
        raise SafeError(f"{file} is not a result ({error}); {WRITTEN}") from None
    except ValueError:
        raise SafeError(f"{file} is not a result; {WRITTEN}") from None
    return dict(found)


def folder_of(number: int, name: str) -> str:
    """Name the folder of one of several results.

    Args:
        number: its number, from 1.
        name: its name.

    Returns:
        The name of the folder.
    """
    return f"{number}-{NOT_IN_NAMES.sub('-', name)[:LONGEST].rstrip('. ')}"


def write(folder: Path, result: dict[str, Any], target: float | None = None, name: str = "") -> None:
    """Write ``result.json`` and its pictures: curves, distances, components and importances, if there are any.

    Args:
        folder: the folder.
        result: the result.
        target: accuracy to draw a line at.
        name: name of the result in the pictures; empty is the method's name.
    """
    from v6_workbench.reporting import pictures  # slow to import

    write_whole(folder / "result.json", json.dumps(result, indent=1))
    try:
        pictures.write(pictures.curves({name or result["method"]: result}, target), folder / "curves.png")
        pictures.of_one(result, folder, name=name)
    except OSError as error:  # a full disk, for example, when the training is over
        say(
            f"{folder / 'result.json'} is written, but its pictures are not ({error.strerror or error}); `v6-federated "
            f"report {folder} --out DIR` draws them"
        )


def unwritten(option: str, path: Path, error: OSError) -> str:
    """Say that a file could not be written, as on a full disk.

    Args:
        option: the option that names it.
        path: the file or folder.
        error: what went wrong.

    Returns:
        The line.
    """
    return (
        f"{option} {path} cannot be written ({error.strerror or error}); make room, close the program that shows it, "
        "or name another place, and run the command again: files that were there before are as they were"
    )


def check_folder(folder: Path | None, option: str = "--out") -> None:
    """Make the folder of an option and try to write to it, before anything is trained. See ``remove_empty``.

    Args:
        folder: the folder; None is no folder.
        option: the option.

    Raises:
        SafeError: files cannot be written there.
    """
    if folder is None:
        return
    if folder.exists() and not folder.is_dir():
        raise SafeError(f"{option} {folder} is a file; expected a folder")
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _made.extend(new)
        with NamedTemporaryFile(dir=folder, prefix="."):  # its mode alone does not say: the disk may be read-only
            pass
    except OSError as error:
        raise SafeError(
            f"cannot write to {option} {folder} ({error.strerror}); expected a folder that you can write to"
        ) from None


def check_file(file: Path | None, option: str) -> None:
    """Make the folder of a file that an option names, and try to write to it. See ``check_folder``.

    Args:
        file: the file; None is no file.
        option: the option.

    Raises:
        SafeError: it is a folder, or files cannot be written where it is to be.
    """
    if file is None:
        return
    if file.is_dir():
        raise SafeError(f"{option} {file} is a folder; expected a file")
    check_folder(file.parent, option)


def remove_empty() -> None:
    """Remove the folders that ``check_folder`` has made and nothing was written to, as after a refused request."""
    for path in _made:
        with contextlib.suppress(OSError):  # something is in it, or it is gone
            path.rmdir()
    _made.clear()
