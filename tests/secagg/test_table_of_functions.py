"""The page on what sums tell has a row for each function that answers sums, and each test that it names exists."""

import importlib
import re
from pathlib import Path

import pytest
from honest import HONEST

from v6_workbench import registry

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "what-sums-tell.md").read_text(encoding="utf-8")
ROWS = [line.strip("|").split("|") for line in PAGE.splitlines() if line.startswith("| `")]
KEYS = dict(re.findall(r"^\| ([TR]\d+) \| (.+?) \|$", PAGE, re.MULTILINE))
KINDS = 6
TESTS = {
    name
    for file in (ROOT / "tests").rglob("test_*.py")
    for name in re.findall(r"^def (test_\w+)", file.read_text(encoding="utf-8"), re.MULTILINE)
}


def functions() -> set[str]:
    """All functions that declare what their answer is a sum of; those of all methods without a method's name."""
    found, shared = set(), importlib.import_module("v6_federated")
    for method in registry.names():
        module = importlib.import_module(f"v6_{method}")
        for name in {*module.__all__} - {"central", "extract", "forget"}:
            function = getattr(module, name)
            if function.sums is not None:
                found.add(name if getattr(shared, name, None) is function else f"{method}.{name}")
    return found


def statistics() -> set[str]:
    """What ``fit_step`` can be asked for in a sum."""
    return {settings["statistic"] for name, _, settings, _ in HONEST["fedavg"] if name == "fit_step"}


def test_every_function_that_answers_sums_has_a_row():
    """A new one is found by what it declares."""
    rows = {re.match(r" `([\w.]+)`", row[0])[1]: row for row in ROWS}
    assert {*rows} == functions()
    named = {word.strip() for row in ROWS if "fit_step" in row[0] for word in row[0].partition(":")[2].split(",")}
    assert named == statistics()


@pytest.mark.parametrize("row", ROWS, ids=[row[0].strip(" `") for row in ROWS])
def test_each_cell_is_a_test_or_a_reason(row):
    cells = [cell.strip() for cell in row[1:]]
    assert len(cells) == KINDS and {*cells} <= {*KEYS}


def test_each_test_that_the_page_names_exists_and_each_key_is_used():
    named = {*re.findall(r"`(test_\w+)`", PAGE)}
    assert named and not named - TESTS
    assert {*KEYS} == {cell.strip() for row in ROWS for cell in row[1:]}
    assert all(KEYS[key].startswith("`test_") == (key[0] == "T") for key in KEYS)
