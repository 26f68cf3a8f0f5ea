"""What README and the pages in ``docs/`` show: commands and settings that exist, files that are there."""

import re
import shlex
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from v6_workbench import registry
from v6_workbench.cli import entries, job, parser
from v6_workbench.cli.main import main
from v6_workbench.cli.options import JobOptions

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
SHOWN = [page for page in PAGES if "v6-federated " in page.read_text()]


def blocks(page):
    """The fenced blocks of code on a page, with their language."""
    return [(token.info, token.content) for token in MarkdownIt().parse(page.read_text()) if token.type == "fence"]


def commands(page):
    """The commands ``v6-federated ...`` in the blocks of a page, as lists of arguments."""
    text = "\n".join(content for language, content in blocks(page) if not language)
    lines = text.replace("\\\n", " ").splitlines()
    # capital letters stand for what a reader puts in
    return [shlex.split(line, comments=True)[1:] for line in lines if re.match(r"v6-federated (?!compare A B)", line)]


@pytest.mark.parametrize("page", SHOWN, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_are_as_the_command_line_takes_them(page):
    for arguments in commands(page):
        _, options = parser.parse(arguments)
        shared = job.settings_of(options) if isinstance(options, JobOptions) else {}
        for text in getattr(options, "methods", ()):
            entry = entries.read(text, shared)
            registry.validate(entry.method, entry.settings)
        if arguments[0] in ("run", "submit"):
            registry.validate(options.method, shared)


def test_readme_shows_every_command():
    shown = {arguments[0] for page in SHOWN for arguments in commands(page)}
    assert {"run", "compare", "report", "export", "predict", "settings", "submit", "network"} <= shown
    assert {"tasks", "status", "watch", "fetch", "cancel", "audit", "stop"} <= shown


def test_python_of_the_readme_runs(capsys):
    (script,) = [content for language, content in blocks(ROOT / "README.md") if language == "python"]
    exec(script.replace("rounds=20", "rounds=2"), {})
    assert 0.2 < float(capsys.readouterr().out) < 1


def test_the_researchers_page_shows_what_is_printed(tmp_path, monkeypatch, capsys):
    page = ROOT / "docs" / "researchers.md"
    monkeypatch.chdir(tmp_path)
    (script,) = [content for language, content in blocks(page) if language == "python"]
    exec(script, {})
    assert [main(arguments) for arguments in commands(page)] == [0] * 8
    printed = " ".join(capsys.readouterr().out.split())
    shown = [line for language, content in blocks(page) if language == "text" for line in content.splitlines()]
    # the last word of a line may be a number of seconds
    assert [line for line in shown if " ".join(line.split()[:-1]) not in printed] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_a_page_names_are_there(page):
    named = re.findall(
        r"`((?:algorithms|benchmarks|docker|docs|examples|node_configs|tests)/[\w./-]+)`", page.read_text()
    )
    assert [name for name in named if "METHOD" not in name and not (ROOT / name).exists()] == []


TABLES = [*PAGES, *sorted((ROOT / "benchmarks" / "results").glob("*.md")), *sorted(ROOT.glob("C*.md"))]


def broken_tables(text):
    """The lines between two bars that are in no table, or have other cells than its head; and tables of no rows."""
    tokens = MarkdownIt().enable("table").parse(text)
    lines, found = text.splitlines(), []
    inside = {i for token in tokens if token.map and token.type in ("table_open", "fence") for i in range(*token.map)}
    found += [line for i, line in enumerate(lines) if re.match(r"\s*\|.*\|\s*$", line) and i not in inside]
    for first, end in (token.map for token in tokens if token.type == "table_open"):
        cells = [len(re.findall(r"(?<!\\)\|", line)) for line in lines[first:end]]
        found += [lines[first]] * (len(cells) < 3)
        found += [line for line, own in zip(lines[first:end], cells, strict=True) if own != cells[0]]
    return found


@pytest.mark.parametrize("page", dict.fromkeys(TABLES), ids=lambda page: str(page.relative_to(ROOT)))
def test_tables_are_whole(page):
    assert broken_tables(page.read_text()) == []


def test_a_broken_table_is_found():
    whole = "| a | b |\n|---|---|\n| 1 | 2 |\n"
    assert broken_tables(whole) == broken_tables(f"```\n{whole[:20]}\n\n| 1 | 2 |\n```") == []
    assert broken_tables("| a | b |\n|---|---|\n\n| 1 | 2 |\n") == ["| 1 | 2 |", "| a | b |"]
    assert broken_tables(whole + "| 3 | |x| |\n") == ["| 3 | |x| |"]
