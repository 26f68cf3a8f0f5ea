"""What all commands read, write and show: results, the last line, progress."""

import json
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any

from v6_federated.base.errors import SafeError
from v6_federated.base.files import write_whole

if TYPE_CHECKING:
    from rich.console import Console

COLUMNS = ("round", "participants", "loss", "accuracy", "auc", "bytes_up", "bytes_down", "seconds")  # of a history


def results_of(paths: Iterable[Path]) -> list[Path]:
    """The results that are named, each once: of a folder that ``compare`` wrote, all in it."""
    found: dict[Path, None] = {}
    for path in paths:
        own = not path.is_dir() or (path / "result.json").exists()  # beside it only what ``compare`` may have written
        inside = sorted(path.glob("[0-9]*-*/result.json" if own else "*/result.json"), key=_number_of)
        found |= dict.fromkeys([*([path] if own or not inside else []), *(file.parent for file in inside)])
    return [*found]


def _number_of(file: Path) -> tuple[int, str]:
    number = file.parent.name.partition("-")[0]
    return int(number) if number.isdecimal() else 0, file.parent.name


def read(path: Path) -> dict[str, Any]:
    """A result, or the one in a folder. Raises SafeError."""
    file = path / "result.json" if path.is_dir() else path
    try:
        result = json.loads(file.read_text())
        result["settings"]["seed"], result["data"]["classes"], result["history"][-1]
        result["method"], result["final"], result["per_node"]
        if not all(name in row for row in result["history"] for name in COLUMNS):
            raise KeyError
    except FileNotFoundError:
        if (path / "test.json").exists():
            raise SafeError(
                f"{path} holds a test of `v6-federated compare --test`: test.json, posteriors.png; expected a result"
            ) from None
        raise SafeError(f"no result {file}; expected a result.json that `v6-federated run --out DIR` wrote") from None
    except (ValueError, KeyError, IndexError, TypeError):
        raise SafeError(
            f"{file} is not a result; expected a result.json that `v6-federated run --out DIR` wrote"
        ) from None
    return result


def write(folder: Path, result: dict[str, Any], target: float | None = None, name: str = "") -> None:
    """``result.json``, and its pictures: curves, distances and components, where there are any; ``name``: of the
    result, where the method does not tell it from others."""
    from v6_workbench.reporting import report

    write_whole(folder / "result.json", json.dumps(result, indent=1))
    report.curves({name or result["method"]: result}, folder / "curves.png", target)
    report.distances(result, folder / "distances.png", name)
    report.components(result, folder / "components.png")


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


def complain(status: int, problem: object) -> int:
    """One line on standard error; returns the exit status."""
    print(f"v6-federated: {' '.join(str(problem).split())}", file=sys.stderr)
    return status


def console() -> "Console":
    """Standard output; wide where it is no terminal, so that a table in a file is whole."""
    from rich.console import Console  # slow to import: see ``cli.build_parser``

    return Console() if sys.stdout.isatty() else Console(width=140)


def last_line(values: Mapping[str, Any]) -> None:
    """A command's last line of standard output: JSON."""
    print(json.dumps(values), flush=True)


class Bar:
    """A progress bar on standard error; where that is no terminal, a line now and then.

    Args:
        rounds: how many there are to come.
        one_job: whether they are those of one job, which may be resumed and so not begin with round 1.
    """

    def __init__(self, rounds: int, text: str, one_job: bool = False) -> None:
        from rich import progress
        from rich.console import Console

        self.rounds, self.text, self.one_job, self.done, self.said = rounds, text, one_job, 0, time.monotonic()
        console = Console(stderr=True)
        self.screen = console.is_terminal
        self.progress = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TextColumn("{task.fields[last]}"),
            progress.TimeElapsedColumn(),
            progress.TimeRemainingColumn(),
            console=console,
            disable=not self.screen,
        )

    def __enter__(self) -> "Bar":
        if self.screen:
            self.progress.start()
        self.bar = self.progress.add_task(self.text, total=self.rounds, last="")
        return self

    def __exit__(self, *exception: object) -> None:
        if self.screen:  # it would print an empty line elsewhere
            self.progress.stop()

    def on_round(self, row: Mapping[str, Any]) -> None:
        """Show a finished round."""
        self.done = row["round"] if self.one_job else self.done + 1
        measure = "r2" if "r2" in row else "accuracy"
        reached = "" if row[measure] is None else f"{measure} {row[measure]:.4f}"
        self.progress.update(self.bar, completed=self.done, last=reached)
        if not self.screen and (time.monotonic() - self.said > 10 or self.done == self.rounds):
            self.said = time.monotonic()
            print(f"{self.text}: round {self.done} of {self.rounds} {reached}", file=sys.stderr, flush=True)
