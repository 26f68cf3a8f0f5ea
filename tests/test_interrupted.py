"""The end of a run of the tests."""

import subprocess
import sys
from pathlib import Path

import pytest

COMMAND_AND_NEXT = """
import contextlib, os, signal

def test_of_a_command_that_takes_control_c():
    with contextlib.suppress(KeyboardInterrupt):
        os.kill(os.getpid(), signal.{signal})
    assert False

def test_that_comes_next():
    print("it goes on")
    assert False
"""


@pytest.mark.parametrize("signal", ["SIGINT", "SIGTERM"])
def test_the_tests_end_also_where_a_command_under_test_takes_control_c(signal, tmp_path):
    (tmp_path / "test_two.py").write_text(COMMAND_AND_NEXT.format(signal=signal))
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "conftest", str(tmp_path)]
    ended = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True)
    assert ended.returncode == pytest.ExitCode.INTERRUPTED, ended.stdout + ended.stderr
    assert "1 failed" in ended.stdout and "it goes on" not in ended.stdout
