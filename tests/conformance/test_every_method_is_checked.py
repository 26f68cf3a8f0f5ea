"""A method that is registered here has a test file with its cases, and the checks need no Docker."""

import subprocess
import sys
from pathlib import Path

from v6_workbench.conformance import cases_in
from v6_workbench.registry import names

METHODS = Path(__file__).parents[1] / "methods"


def test_every_method_is_checked():
    for method in names():
        assert method in {case.short_name for case in cases_in(METHODS / f"test_{method}.py")}


def test_the_checks_need_no_docker_library():
    code = "import sys, v6_workbench.conformance; print([name for name in sys.modules if name.startswith('docker')])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout == "[]\n"
