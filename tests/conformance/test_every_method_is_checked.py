"""A method that is registered here has a test file with its cases."""

from pathlib import Path

from v6_workbench.conformance import cases_in
from v6_workbench.registry import names

METHODS = Path(__file__).parents[1] / "methods"


def test_every_method_is_checked():
    for method in names():
        assert method in {case.short_name for case in cases_in(METHODS / f"test_{method}.py")}
