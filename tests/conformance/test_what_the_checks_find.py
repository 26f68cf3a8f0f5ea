"""Each check finds the defect that it is for, in a method outside this repository that is not registered."""

import json
import shutil
from pathlib import Path

import pytest
from defects import DEFECTS

import v6_fsvrg
from v6_federated.base.errors import SafeError
from v6_workbench.conformance import MethodCase, cases_of, check_method, checks_of, faults
from v6_workbench.conformance.checks import OF_CASES, OF_PACKAGES, outcome_of
from v6_workbench.conformance.command import main, show
from v6_workbench.network import store


def outcome(case, name):
    """What comes of the check of this name."""
    [check] = [check for check in checks_of(case) if check.name.endswith(name.replace("_", " "))]
    return outcome_of(check)


def test_a_method_without_a_defect_passes(method):
    outcomes = check_method(method())
    assert [str(o) for o in outcomes if o.status == "fail"] == []
    apart = {o.check.partition(": ")[2]: o.reason for o in outcomes if o.status == "not applicable"}
    assert apart == {
        "long training is ended": "it has no minibatches between which training could be ended",
        "a node that has lost its state says so": "its nodes keep nothing",
        "model follows from the history": "MethodCase(follow=...) says what follows from a history",
        "store entry is up to date": "the package has no algorithm_store.json",
        "page names what leaves a node": "the method has no page",
    }


@pytest.mark.parametrize("defect", DEFECTS, ids=[f"{defect.check}-{defect.says}" for defect in DEFECTS])
def test_a_defect_is_found(defect, method, tmp_path, monkeypatch):
    monkeypatch.setattr(faults, "SCHEDULES", 6)
    case = MethodCase(method(*defect.changes, **defect.files), **defect.case)
    if defect.page:
        (tmp_path / "docs").mkdir()
        (tmp_path / "docs" / f"{case.short_name}.md").write_text(defect.page)
    found = outcome(case, defect.check)
    assert found.status == "fail" and defect.says in found.reason, found


def test_every_check_finds_a_defect():
    assert {defect.check for defect in DEFECTS} == {check.__name__ for check in (*OF_CASES, *OF_PACKAGES)}


def test_a_request_whose_answers_are_counted_by_themselves_is_found(tmp_path, monkeypatch):
    """Federated SVRG without ``quorum_of`` in its second request: one of the two that answered the first is enough."""
    shutil.copytree(Path(v6_fsvrg.__file__).parent, tmp_path / "v6_careless")
    for file in (tmp_path / "v6_careless").glob("*.py"):
        file.write_text(file.read_text().replace("v6_fsvrg", "v6_careless"))
    central = tmp_path / "v6_careless" / "central.py"
    lines = central.read_text().splitlines(keepends=True)
    kept = [line for line in lines if "quorum_of=len(K)" not in line]
    assert len(kept) == len(lines) - 1
    central.write_text("".join(kept))
    monkeypatch.syspath_prepend(tmp_path)
    found = outcome(MethodCase("v6_careless"), "too_few_answers_are_an_error_in_every_request")
    assert found.status == "fail"
    assert found.reason.startswith("round 1, client_update: too few nodes answer, and the job goes on")


def test_an_exception_is_printed_with_its_reason_and_must_be_one(method):
    twice = method(("- lr * g", "- 2 * lr * g"))
    name = "one_node_equals_centralized_training"
    found = outcome(MethodCase(twice, exceptions={name: "steps are twice as long"}), name)
    assert found.status == "not applicable" and found.reason == "does not hold, as declared: steps are twice as long"
    found = outcome(MethodCase(method(), exceptions={name: "steps are twice as long"}), name)
    assert found.status == "fail" and "and it does; remove it" in found.reason
    with pytest.raises(SafeError, match="exceptions of .* name no check: speed"):
        checks_of(MethodCase(twice, exceptions={"speed": "slow"}))


def test_entry_and_page_of_a_method(method, tmp_path):
    package = method()
    case, folder = MethodCase(package), tmp_path / "algorithms" / package
    (folder / "algorithm_store.json").write_text(store.text_of(case.module))
    assert outcome(case, "store_entry_is_up_to_date").status == "pass"
    entry = json.loads(store.text_of(case.module)) | {"image": "another"}
    (folder / "algorithm_store.json").write_text(json.dumps(entry))
    assert outcome(case, "store_entry_is_up_to_date").status == "fail"
    (tmp_path / "docs").mkdir()
    page = tmp_path / "docs" / f"{case.short_name}.md"
    page.write_text("A node sends `weights`.")
    found = outcome(case, "page_names_what_leaves_a_node")
    assert found.status == "fail" and "does not name train_loss, which client_update sends" in found.reason
    page.write_text("A node sends `weights` and `train_loss`.")
    assert outcome(case, "page_names_what_leaves_a_node").status == "pass"


# ---- the command line


def test_a_line_for_each_check(method, capsys, monkeypatch):
    monkeypatch.setattr("v6_workbench.conformance.faults.SCHEDULES", 3)
    package = method(("- lr * g", "- (lr + 0.01) * g"))
    assert main([package]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(checks_of(MethodCase(package)))
    [rate] = [line for line in lines if "rate zero changes nothing" in line]
    assert rate == f"fail: {package[3:]}: rate zero changes nothing (logreg: the model changes at a rate of 0)"


def test_a_test_file_names_its_cases(method, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("v6_workbench.conformance.checks.OF_CASES", ())
    file = tmp_path / "test_outside.py"
    file.write_text(
        "from v6_workbench.conformance import MethodCase, conformance_tests\n"
        f"test_conformance = conformance_tests(MethodCase('{method()}', name='one'))\n"
    )
    assert show(str(file)) == 0
    assert [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()] == ["pass"] * 3 + [
        "not applicable"
    ] * 2


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
    package = f"v6_outside{next(numbers)}"
    (tmp_path / f"{package}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    for asked, file in ((str(tmp_path / "test_outside.py"), "test_outside.py"), (package, f"{package}.py")):
        with pytest.raises(SafeError, match=f"{asked} cannot be imported: {says.replace('{file}', file)}"):
            show(asked)


def test_a_central_that_the_decorator_did_not_make_is_no_method(tmp_path, monkeypatch):
    package = f"v6_outside{next(numbers)}"
    (tmp_path / f"{package}.py").write_text("central = 5")
    monkeypatch.syspath_prepend(tmp_path)
    for name in (package, "v6_federated"):
        with pytest.raises(SafeError, match=f"{name}/__init__.py exports no method; expected a function named central"):
            show(name)


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
    with pytest.raises(SystemExit) as ended:
        main([asked])
    assert ended.value.code == 2
    assert says in capsys.readouterr().err
