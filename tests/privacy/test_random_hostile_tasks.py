"""Tasks of honest jobs, changed at random: a node answers or refuses clearly, and never names a row."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("hostile_tasks.py")
TASKS = int(os.environ.get("HOSTILE_TASKS", "60"))


@pytest.mark.parametrize("profile", ["trusting", "careful"])
def test_hostile_tasks_are_answered_or_refused_in_one_clear_line(profile):
    # a process of its own: its memory is measured
    command = [sys.executable, str(PROGRAM), profile, str(TASKS), "0"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    found = json.loads(ran.stdout)
    assert found["faults"] == []
    assert found["peak_mb"] < 1000
    assert sum(found["done"].values()) == TASKS and len(found["done"]) == 2  # some are still proper tasks


def test_a_row_in_a_message_is_found():
    sys.path.insert(0, str(PROGRAM.parent))
    try:
        import hostile_tasks
    finally:
        sys.path.remove(str(PROGRAM.parent))
    words, numbers = hostile_tasks.secrets()
    assert hostile_tasks.betrays(f"the value {numbers[7]:.5f} is too large", words, numbers)
    assert hostile_tasks.betrays(f"[{numbers[3]!r}]", words, numbers)
    assert hostile_tasks.betrays("could not convert Rumpelstilz", words, numbers)
    assert not hostile_tasks.betrays("lr=0.1 is refused; expected 12.5 or 1e+30, 100 rows", words, numbers)
