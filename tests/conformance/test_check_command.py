"""``v6-federated check``: which cases it runs, what it prints, and what it refuses."""

import json

import pytest

from v6_federated.base.errors import SafeError
from v6_workbench.cli.main import main
from v6_workbench.conformance import MethodCase, cases_of, checks_of, laws


def test_a_line_for_each_check(method, capsys, monkeypatch):
    few = (laws.rate_zero_changes_nothing, laws.order_of_nodes_changes_nothing)
    monkeypatch.setattr("v6_workbench.conformance.checks.OF_CASES", few)
    package = method(("- lr * g", "- (lr + 0.01) * g"))
    assert main(["check", package]) == 1
    *lines, last = capsys.readouterr().out.splitlines()
    assert len(lines) == len(checks_of(MethodCase(package)))
    assert json.loads(last) == {"method": package, "passed": False}
    [rate] = [line for line in lines if "rate zero changes nothing" in line]
    assert rate == f"fail: {package[3:]}: rate zero changes nothing (logreg: the model changes at a rate of 0)"


def test_a_test_file_names_its_cases(method, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("v6_workbench.conformance.checks.OF_CASES", ())
    file = tmp_path / "test_outside.py"
    file.write_text(
        "from v6_workbench.conformance import MethodCase, conformance_tests\n"
        f"test_conformance = conformance_tests(MethodCase('{method()}', name='one'))\n"
    )
    assert main(["check", str(file)]) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["pass"] * 4 + ["not applicable"] * 2
    assert json.loads(last) == {"method": str(file), "passed": True}


def test_the_cases_of_a_method_are_those_of_its_test_file(method, tmp_path):
    package = method()
    assert [case.name for case in cases_of(package)] == [""], "its default settings"
    (tmp_path / "tests").mkdir()
    file = tmp_path / "tests" / f"test_{package.removeprefix('v6_')}.py"
    cases = f"MethodCase('{package}', name='one'), MethodCase('{package}', name='two'), MethodCase('fedavg')"
    file.write_text(
        "from v6_workbench.conformance import MethodCase, conformance_tests\n"
        f"test_conformance = conformance_tests({cases})\n"
    )
    assert [case.name for case in cases_of(package)] == ["one", "two"]
    file.write_text("import nowhere_to_be_found")
    with pytest.raises(SafeError, match="imports nowhere_to_be_found, which is not installed; run: pip install"):
        cases_of(package)
    file.write_text(
        "from v6_workbench.conformance import MethodCase, conformance_tests\n"
        "test_conformance = conformance_tests(MethodCase('fedavg'))\n"
    )
    with pytest.raises(SafeError, match=f"{file.name} holds no case of {package}; expected conformance_tests"):
        cases_of(package)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("import sys\nsys.exit(0)", r"SystemExit: 0 \({file}, line 2\)"),
        ("1 / 0", r"ZeroDivisionError: division by zero \({file}, line 1\)"),
        ("def f(:", r"SyntaxError: invalid syntax \({file}, line 1\)"),
        ("import pytest\npytest.skip('later', allow_module_level=True)", "Skipped: later "),
        ("from v6_federated import nothing", "ImportError: cannot import name 'nothing' from 'v6_federated'"),
    ],
)
def test_code_that_cannot_be_imported_is_one_line(text, says, tmp_path, monkeypatch):
    """A test file, and a package."""
    (tmp_path / "test_outside.py").write_text(text)
    package = f"v6_{tmp_path.name}"
    (tmp_path / f"{package}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    for asked, file in ((str(tmp_path / "test_outside.py"), "test_outside.py"), (package, f"{package}.py")):
        with pytest.raises(SafeError, match=f"{asked} cannot be imported: {says.replace('{file}', file)}"):
            cases_of(asked)


def test_a_central_that_the_decorator_did_not_make_is_no_method(tmp_path, monkeypatch):
    package = f"v6_{tmp_path.name}"
    (tmp_path / f"{package}.py").write_text("central = 5")
    monkeypatch.syspath_prepend(tmp_path)
    for name in (package, "v6_federated"):
        with pytest.raises(SafeError, match=f"{name}/__init__.py exports no method; expected a function named central"):
            cases_of(name)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("v6_nowhere", "unknown method 'v6_nowhere'; expected one of "),
        ("v6_nowhere.central", "unknown method 'v6_nowhere.central'; expected one of "),
        ("", "unknown method ''; expected one of "),
        ("../x", "unknown method '../x'; expected one of "),
        ("json", "json/__init__.py exports no method; expected a function named central under the decorator"),
        ("nowhere.py", "no Python file nowhere.py"),
    ],
)
def test_what_is_no_method_is_one_line(asked, says, capsys):
    assert main(["check", asked]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert says in line
