"""What the tables of several documents share."""

import contextlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from benchmarks import runs

NOT_RUN_YET = "not run yet"


def page(
    document: str,
    title: str,
    full: bool,
    lines: Iterable[str],
    about: str,
    runs_: int,
    data: str = "mnist",
    file: str | None = None,
) -> None:
    """Print the lines as they come, and keep them with how they were made and with the document's notes.

    Tables of other data than MNIST have their name in the file's. ``runs_``: the most runs that the lines take;
    ``file``: of the data, where it is not DATA.npz.
    """
    kept = [
        f"# {title}",
        "",
        f"`python -m benchmarks {document} --data {file or f'{data}.npz'}{_options(full)}`; each run is a "
        f"file in [{document}/]({document}) with its settings, seed, machine and date.",
        "",
        about,
        "",
    ]
    name = "-".join(([] if data == "mnist" else [data]) + ([] if full else ["reduced"]))
    notes = Path(__file__).parent / "notes" / f"{document}.md"
    last = ["", notes.read_text()] if notes.exists() else []
    with runs.Watch(document, runs_) as runs.watch:
        unfinished = ["", "(Not finished; the same command goes on from here.)", *last]
        with contextlib.suppress(runs.NotRun):  # what follows needs that run
            for line in lines:
                print(line, flush=True)
                kept.append(line)
                runs.write_table(document, name, [*kept, *unfinished])
            unfinished = last
    runs.watch = None
    runs.write_table(document, name, [*kept, *unfinished])


def _options(full: bool) -> str:
    few = f" --seeds {runs.most_seeds}" if runs.most_seeds else ""
    return f" --full{few}" if full else ""


def row(*cells: object) -> str:
    """One line of a Markdown table; None is a dash."""
    return "| " + " | ".join("-" if cell is None else str(cell) for cell in cells) + " |"


def head(*cells: str) -> list[str]:
    """The first two lines of a Markdown table."""
    return [row(*cells), row(*["---"] * len(cells))]


def trained(
    known: Sequence[object], cells: Callable[[], Sequence[object]], width: int, absent: str = NOT_RUN_YET
) -> str:
    """A line of which the last ``width`` cells come of runs; the first is ``absent`` where those are not kept."""
    try:
        return row(*known, *cells())
    except runs.NotRun:
        return row(*known, absent, *[None] * (width - 1))


def accuracies(run: runs.Run) -> Sequence[float]:
    """The accuracies of a run's rounds."""
    return [r["accuracy"] for r in run.history if r["accuracy"] is not None]
