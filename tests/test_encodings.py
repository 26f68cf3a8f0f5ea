"""Text is UTF-8 wherever it is read, written or printed, whatever the machine's own encoding is."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted(
    file for folder in ("algorithms", "docs", "docker", "examples") for file in (ROOT / folder).rglob("*.py")
)
SAYS = """
from types import SimpleNamespace
import pandas as pd
import v6_fedavg
from helpers import JOB
from v6_federated.data.source import Source
rows = Source(table=pd.DataFrame({"x": range(30), "y": [0, 1] * 15}))
call = {"mock_client": SimpleNamespace(organization_id=3), "mock_data": [rows], "round": 0, "raw": True}
try:
    v6_fedavg.describe(job={**JOB, "data": {**JOB["data"], "label": "Łódź"}}, **call)
except Exception as error:
    print("error >", error)
"""


def in_the_machines_encoding(code: str) -> Iterator[int]:
    """The lines that open a text file, or read what a program prints, without naming an encoding."""
    for call in (node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)):
        name = getattr(call.func, "attr", getattr(call.func, "id", ""))
        given = {keyword.arg: keyword.value for keyword in call.keywords}
        of_a_path = isinstance(call.func, ast.Attribute)
        mode = given.get("mode", next(iter(call.args[0 if of_a_path else 1 :]), ast.Constant("r")))
        opens = name == "open" and (call.args or not of_a_path or given) and isinstance(mode, ast.Constant)
        text = isinstance(mode, ast.Constant) and isinstance(mode.value, str) and "b" not in mode.value
        reads = name in ("read_text", "write_text") or (opens and text) or {"text", "universal_newlines"} & {*given}
        if reads and not {"encoding", "fileobj"} & {*given}:
            yield call.lineno


@pytest.mark.parametrize("code", ["f.read_text()", "f.open('w')", "open(f)", "run(c, text=True)", "open(f, mode='r')"])
def test_an_encoding_that_is_not_named_is_found(code):
    assert [*in_the_machines_encoding(code)] == [1]


def test_every_text_file_is_opened_with_its_encoding():
    found = {f"{file}:{line}" for file in FILES for line in in_the_machines_encoding(file.read_text(encoding="utf-8"))}
    assert len(FILES) > 300 and not found


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_a_node_says_why_it_failed_in_any_encoding(encoding):
    """vantage6 prints the error of a function, and a container's log need not be UTF-8."""
    done = subprocess.run(
        [sys.executable, "-c", SAYS],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "algorithms"), str(ROOT / "tests")]),
            "PYTHONIOENCODING": encoding,
            "V6_FEDERATED_PROFILE": "trusting",
        },
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0 and b"organization 3: " in done.stdout and b"\\u0141" in done.stdout, done.stderr
