"""All tables in one report, Markdown and HTML: ``python -m benchmarks report``.

The pages that the benchmarks have written, with how many of their cells come near the document's. Nothing is run.
"""

import base64
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from markdown_it import MarkdownIt

from benchmarks import runs
from benchmarks.tables import NOT_RUN_YET
from v6_federated.base.errors import SafeError
from v6_federated.base.files import write_whole

Cells = dict[str, list[str]]  # a row by the names of its columns; of a name that comes twice both


@dataclass(frozen=True)
class Count:
    """What is counted in a page's tables: rows that have both columns, and which of them."""

    theirs: str
    ours: str
    agree: Callable[[float, float], bool]
    what: str
    nearer: Callable[[float, float], bool] | None = None  # which of them are near from both sides, where that differs


def _rounds(theirs: float, ours: float) -> bool:
    return ours <= 1.25 * theirs


def _near(theirs: float, ours: float) -> bool:
    return 0.8 * theirs <= ours <= 1.25 * theirs


def _points(theirs: float, ours: float) -> bool:
    return round(abs(theirs - ours), 6) <= 0.02


WITHIN = "within 1.25 times of the document's rounds, or fewer"
POINTS = "accuracies within 2 points of the document's"
AREA = "areas under the accuracy by round within 0.02 of the document's"
GARST = [Count("accuracy Garst", "accuracy", _points, POINTS), Count("area Garst", "area", _points, AREA)]
# page, and what is counted in it
PAGES: list[tuple[str, list[Count]]] = [
    ("mcmahan2017", [Count("paper's rounds", "ours, by seed", _rounds, WITHIN, _near)]),
    ("mcmahan2017_shakespeare", [Count("paper's rounds", "ours, by seed", _rounds, WITHIN, _near)]),
    ("nilsson2018", [Count("max(acc) paper", "ours", _points, POINTS)]),
    ("nilsson2018_cv", []),
    ("pfitzner_arnrich", [Count("poster", "ours", _rounds, WITHIN, _near)]),
    ("garst2021", GARST),
    ("garst2021-fashion_mnist", GARST),
    ("garst2021_gbdt", GARST),
    ("garst2021_gbdt-fashion_mnist", GARST),
    ("garst2021_pca-golub", []),
    ("reddy2020", []),
    ("reddy2020-fashion_mnist", []),
    ("cost", []),
    ("network", []),
]
NOT_RUN = ("not tried", "not run")  # as a cell begins that is not there
NOT_FINISHED = "(Not finished; "  # as ``tables.page`` says it
STYLE = (
    "body{font:16px/1.5 sans-serif;max-width:70em;margin:2em auto;padding:0 1em}table{border-collapse:collapse;"
    "margin:1em 0}td,th{border:1px solid #ccc;padding:.2em .6em;text-align:left}img{max-width:100%}"
)


def rows_of(page: str) -> Iterator[Cells]:
    """The rows of all tables of a page."""
    names: list[str] = []
    for line in page.splitlines():
        if not line.startswith("|"):
            names = []
            continue
        cells = [cell.strip() for cell in line.strip("|").split(" |")]
        if not names:
            names = cells
        elif not set(line) <= set("|-: "):
            row: Cells = {}
            for name, cell in zip(names, cells, strict=False):
                row.setdefault(name, []).append(cell)
            yield row


def number(text: str) -> float | None:
    """The number of a cell, the mean of several; None where it holds none, or one in brackets: not reached."""
    parts = text.split(", ")
    return sum(map(float, parts)) / len(parts) if all(re.fullmatch(r"-?\d+(\.\d+)?", p) for p in parts) else None


def counted(page: str, count: Count) -> tuple[int, int, list[str], int]:
    """How many rows are as counted, of how many that were run; the others, which may not have reached what the document
    has; and how many were not run."""
    good, total, other, not_run = 0, 0, list[str](), 0
    for row in rows_of(page):
        if count.theirs not in row or count.ours not in row or (theirs := number(row[count.theirs][0])) is None:
            continue
        if row[count.ours][0].startswith(NOT_RUN):
            not_run += 1
            continue
        ours = number(row[count.ours][0])
        total += 1
        if ours is not None and count.agree(theirs, ours):
            good += 1
        else:
            before = [cells[0] for name, cells in row.items() if list(row).index(name) < _first_number(row)]
            other.append(f"{', '.join(before)}: {row[count.theirs][0]} / {row[count.ours][0]}")
    return good, total, other, not_run


def _first_number(row: Cells) -> int:
    """Where in a row the numbers begin that are compared."""
    compared = {count.theirs for _, counts in PAGES for count in counts}
    return min(i for i, name in enumerate(row) if name in compared)


def lines(folder: Path) -> Iterator[str]:
    """The report. Raises SafeError where the folder holds no page."""
    files = [(name, _page(folder, name), counts) for name, counts in PAGES]
    found = [(name, file, counts) for name, file, counts in files if file.exists()]
    if not found:
        raise SafeError(f"no tables in {folder}; expected the folder that benchmarks have written to")
    yield "# The documents and what was measured here"
    yield ""
    yield "`python -m benchmarks report`, from the pages beside it, each of which says by which command it was made."
    yield ""
    yield "| page | cells | what is counted | the others, document / here |"
    yield "| --- | --- | --- | --- |"
    for _, file, counts in found:
        page = file.read_text()
        unfinished = " (not finished)" if NOT_FINISHED in page else ""
        for count in counts:
            good, total, other, not_run = counted(page, count)
            cells = f"{good} of {total}"
            if count.nearer:
                near, *_ = counted(page, replace(count, agree=count.nearer))
                cells += f" ({near} of them with 0.8 times as many or more)"
            cells += f", {not_run} not run" if not_run else ""
            yield f"| [{file.stem}]({file.name}){unfinished} | {cells} | {count.what} | {'; '.join(other)} |"
        if not counts:
            signs = re.search(r"^(\d+ of \d+) (signs are .*)\.$", page, re.MULTILINE)
            cells, what = signs.groups() if signs else ("", "see the page")
            yield f"| [{file.stem}]({file.name}){unfinished} | {cells} | {what} | |"
    partly = [name for name, file, _ in files if not _whole(file, name)]
    if partly:
        yield ""
        yield f"Not run yet in full: {', '.join(partly)}."
    for _, file, _ in found:
        yield ""
        yield re.sub(r"^#", "##", file.read_text().strip(), flags=re.MULTILINE)


def _whole(file: Path, name: str) -> bool:
    if not file.exists() or file.name != f"{name}.md":
        return False
    return not any(text in file.read_text() for text in (NOT_FINISHED, NOT_RUN_YET))


def _page(folder: Path, name: str) -> Path:
    """A benchmark's page; the reduced one where it has not been run in full."""
    full, reduced = folder / f"{name}.md", folder / f"{name}-reduced.md"
    return reduced if reduced.exists() and not full.exists() else full


def html(text: str, folder: Path) -> str:
    """The report as one file, pictures included."""
    body = MarkdownIt("commonmark").enable("table").render(text)

    def included(match: re.Match[str]) -> str:
        picture = folder / match.group(1)
        if not picture.exists():
            return match.group(0)
        return f'src="data:image/png;base64,{base64.b64encode(picture.read_bytes()).decode()}"'

    body = re.sub(r'src="([^":]+\.png)"', included, body)
    return f'<!doctype html><meta charset="utf-8"><title>v6-federated</title><style>{STYLE}</style>{body}'


def write() -> Path:
    """``REPORT.md`` and ``REPORT.html`` among the results."""
    text = "\n".join(lines(runs.RESULTS)) + "\n"
    write_whole(runs.RESULTS / "REPORT.html", html(text, runs.RESULTS))
    write_whole(runs.RESULTS / "REPORT.md", text)
    return runs.RESULTS / "REPORT.md"
