"""``v6-federated report``: tables and pictures of results on disk."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from v6_federated.base.errors import SafeError
from v6_federated.base.files import write_whole
from v6_workbench.cli import console, results, show, values
from v6_workbench.cli.options import ReportOptions
from v6_workbench.reporting import diagnostics, nested, summary

FORMATS = ("png", "svg", "pdf")


def run(options: ReportOptions) -> int:
    """Show results that have been written."""
    from v6_workbench.reporting import tables

    values.check_target(options.target)
    if options.format not in FORMATS:
        raise SafeError(f"--format {options.format} is no format of the pictures; expected {', '.join(FORMATS)}")
    found = {str(path): results.read(path) for path in results.found_in(options.results)}
    results.check_folder(options.out)
    results.check_folder(options.csv, "--csv")
    results.check_file(options.html, "--html")
    problems = [*_written(options, found)]
    for name, result in found.items():
        if len(found) == 1:
            show.show(result)
        print(f"{name}: {diagnostics.described(result)}")
        for line in diagnostics.stopped(result):
            console.say(line if len(found) == 1 else f"{name}: {line}")
    console.console().print(tables.table(found, options.target))
    if len(found) > 1:
        for made in (*tables.regressions_tables(found), tables.nested_table(found), tables.medians_table(found)):
            if made is not None:
                console.console().print(made)
        for line in nested.other_rows(found):
            console.say(line)
        show.show_intervals(found)
    for problem in problems:
        console.complain(console.FAILED, problem)
    console.last_line({name: summary.summary(result, options.target) for name, result in found.items()})
    return console.FAILED if problems else console.OK


def _written(options: ReportOptions, found: Mapping[str, dict[str, Any]]) -> Iterator[str]:
    """Write pictures, page and tables as files; yields a line for each of these that could not be written."""
    try:
        if options.out:
            _draw(found, options.out, options.target, options.format)
    except OSError as error:
        yield results.unwritten("--out", options.out or Path(), error)
    try:
        if options.html is not None:
            from v6_workbench.reporting import page  # slow to import

            write_whole(options.html, page.page(found, options.target))
    except OSError as error:
        yield results.unwritten("--html", options.html or Path(), error)
    try:
        if options.csv is not None:
            from v6_workbench.reporting import spreadsheets  # slow to import

            spreadsheets.write_all(found, options.csv)
    except OSError as error:
        yield results.unwritten("--csv", options.csv or Path(), error)


def _draw(found: Mapping[str, dict[str, Any]], out: Path, target: float | None, form: str) -> None:
    from v6_workbench.reporting import pictures

    for kind in pictures.KINDS:  # pictures of an earlier report with more results
        for file in out.glob(f"{kind}-*.{form}"):
            if file.stem.removeprefix(f"{kind}-").isdecimal():
                file.unlink()
    pictures.write(pictures.curves(found, target), out / f"curves.{form}")
    pictures.write(pictures.comparison(found, target), out / f"comparison.{form}")
    for i, (name, result) in enumerate(found.items(), start=1):
        number = "" if len(found) == 1 else f"-{i}"
        pictures.of_one(result, out, form, number, _folder(name) if number else "")


def _folder(result: str) -> str:
    """The name of the folder that a result is in."""
    path = Path(result)
    return path.parent.name if path.suffix == ".json" else path.name
