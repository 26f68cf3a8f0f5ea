"""Pages: the tables of one document beside ours, as Markdown for readers and as JSON for the counts."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import jinja2

from benchmarks import runs
from benchmarks.comparisons import Comparison, Count, count
from v6_federated.base.files import write_whole

FOLDER = Path(__file__).parent
NOT_RUN_YET = "not run yet"
Line = str | Comparison


def render(template: str, **values: Any) -> str:
    """The text that a template of ``templates/`` makes of some values."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER / "templates"),
        undefined=jinja2.StrictUndefined,
        autoescape=jinja2.select_autoescape(["html"]),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"sentence": sentence, "verdicts": verdicts}
    return environment.get_template(template).render(**values)


@dataclass(frozen=True)
class Page:
    """What is known of a page beside its lines.

    Attributes:
        document: the benchmark that makes it.
        title: its heading.
        full: whether all rows and seeds are run.
        about: what the tables show.
        data: name of the data; it is part of the file's name unless it is mnist.
        file: the data's file, if it is not DATA.npz.
        timed: whether it holds times of this machine, which are not kept.
    """

    document: str
    title: str
    full: bool
    about: str
    data: str = "mnist"
    file: str | None = None
    timed: bool = False

    @property
    def name(self) -> str:
        """Of its files, without their endings."""
        parts = [self.document, "" if self.data == "mnist" else self.data, "" if self.full else "reduced"]
        return "-".join(filter(None, parts))

    @property
    def command(self) -> str:
        """The command that makes it."""
        file = self.file or (self.data and f"{self.data}.npz")
        data = f" --data {file}" if file else ""
        few = f" --seeds {runs.most_seeds}" if self.full and runs.most_seeds else ""
        return f"python -m benchmarks {self.document}{data}{' --full' if self.full else ''}{few}"

    def write(self, lines: Sequence[Line], finished: bool) -> str:
        """Write ``NAME.md`` and ``NAME.json`` among the results, with the document's notes; returns the Markdown."""
        notes = FOLDER / "notes" / f"{self.document}.md"
        comparisons = [line for line in lines if isinstance(line, Comparison)]
        text = render(
            "page.md",
            page=self,
            machine=runs.machine(),
            today=date.today(),
            places=runs.places(),
            counts=count(comparisons),
            body="\n".join(line for line in lines if isinstance(line, str)).strip("\n"),
            finished=finished,
            notes=notes.read_text(encoding="utf-8") if notes.exists() else "",
        )
        write_whole(runs.RESULTS / f"{self.name}.md", text)
        known = {"title": self.title, "finished": finished, "comparisons": [c.to_json() for c in comparisons]}
        write_whole(runs.RESULTS / f"{self.name}.json", json.dumps(known, indent=1) + "\n")
        return text


def page(about: Page, lines: Iterable[Line], most: int = 0) -> None:
    """Print the lines of a page as they come, and write it, also if the benchmark is stopped.

    Args:
        about: the page.
        lines: its lines of Markdown, and what they compare with the document.
        most: the most runs that the lines need.
    """
    known, finished = list[Line](), False
    with runs.Watch(about.document, most) as runs.watch:
        try:
            for line in lines:
                known.append(line)
                if isinstance(line, str):
                    print(line, flush=True)
            finished = True
        except runs.NotRun:  # the lines that follow need that run
            pass
        finally:
            about.write(known, finished)
    runs.watch = None


def sentence(found: Count) -> str:
    """A count in words."""
    what, of = found.rule.what.capitalize(), found.of
    parts = [f"{found.near} of {of} are near, that is {found.rule.near}."] if of else ["none is counted."]
    if found.others:
        parts.append(f"The others: {verdicts(found.others)}.")
    if found.one_seed:
        parts.append(f"{_share(found.one_seed, of)} from a single seed.")
    parts += [f"{_share(n, of)} with a setting chosen because it fits: {name}." for name, n in found.chosen.items()]
    if found.not_run:
        parts.append(f"Not run: {found.not_run}.")
    parts += [f"Not counted: {n}, because {why}." for why, n in found.not_counted.items()]
    return f"{what}: {' '.join(parts)}"


def verdicts(others: Mapping[str, int]) -> str:
    """How often each verdict was given, in words; the most frequent first."""
    return ", ".join(f"{n} {verdict}" for verdict, n in sorted(others.items(), key=lambda item: -item[1]))


def _share(n: int, of: int) -> str:
    return "All are" if n == of else f"{n} of them {'are' if n > 1 else 'is'}"


def row(*cells: object) -> str:
    """One line of a Markdown table; None is a dash."""
    return "| " + " | ".join("-" if cell is None else str(cell) for cell in cells) + " |"


def head(*cells: str) -> list[str]:
    """The first two lines of a Markdown table."""
    return [row(*cells), row(*["---"] * len(cells))]


def trained(
    known: Sequence[object], cells: Callable[[], Sequence[object]], width: int, absent: str = NOT_RUN_YET
) -> str:
    """A line whose last ``width`` cells come from runs; the first of them is ``absent`` if those are not kept."""
    try:
        return row(*known, *cells())
    except runs.NotRun:
        return row(*known, absent, *[None] * (width - 1))


def accuracies(run: runs.Run) -> Sequence[float]:
    """The accuracies of a run's rounds."""
    return [r["accuracy"] for r in run.history if r["accuracy"] is not None]
