"""Each check finds the defect that it is for, in a method outside this repository that is not registered."""

import itertools
import json
import shutil
from pathlib import Path

import pytest

import v6_fsvrg
from v6_federated.base.errors import SafeError
from v6_workbench.conformance import MethodCase, cases_of, check_method, checks_of
from v6_workbench.conformance.checks import outcome_of
from v6_workbench.conformance.command import main, show
from v6_workbench.network import store

INIT = """
from v6_federated import describe, evaluate, fit_step, forget, keep_steps
from {package}.central import central
from {package}.partial import client_update

__all__ = ["central", "client_update", "describe", "evaluate", "fit_step", "forget", "keep_steps"]
"""
CENTRAL = """
from v6_federated import Federation, LearningRate, Result, Rounds, central


@central(recoverable=True)
def central(federation: Federation, *, rounds: Rounds, lr: LearningRate = 0.1) -> Result:
    \"\"\"Gradient descent with momentum at the server.\"\"\"
    s = federation.start(w=federation.initial_weights, v=0.0)
    for t in federation.rounds(rounds):
        answers = federation.ask("client_update", federation.organizations, weights=s.w, v=s.v, lr=lr)
        s.w = answers.weighted_mean("weights")
        s.v = 0.9 * s.v + 1
        federation.record(answers, s.w)
    return federation.result(s.w)
"""
PARTIAL = """
from typing import Annotated

from pydantic import Field

from v6_federated import LearningRate, Node, Number, Result, Role, Vector, partial

V = Annotated[float, Field(ge=0, description="momentum so far"), Number, Role.OTHER]


@partial
def client_update(node: Node, weights: Vector, *, v: V, lr: LearningRate) -> Result:
    loss, g = node.model.loss_and_gradient(weights, node.rows.X, node.rows.y)
    w = weights - lr * g
    return {"weights": w, "train_loss": loss}
"""
numbers = itertools.count(1)


@pytest.fixture
def method(tmp_path, monkeypatch):
    """Writes the method with changes to its text, and returns the name of its package."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(*changes, **files):
        package = f"v6_outside{next(numbers)}"
        texts = {"__init__": INIT.format(package=package), "central": CENTRAL, "partial": PARTIAL}
        for old, new in changes:
            assert any(old in text for text in texts.values()), old
            texts = {name: text.replace(old, new) for name, text in texts.items()}
        folder = tmp_path / "algorithms" / package
        monkeypatch.syspath_prepend(folder.parent)
        folder.mkdir(parents=True)
        for name, text in texts.items():
            (folder / f"{name}.py").write_text(text)
        for name, text in files.items():
            (folder / name).write_text(text)
        return package

    return write


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


SENT_AS_PAYLOAD = [
    ("v=s.v, lr=lr", "v=s.v, lr=lr, extra=codec.encode({'extra': s.w})"),
    ("Federation, LearningRate,", "Federation, LearningRate, codec,"),
    ("v: V, lr: LearningRate", "v: V, lr: LearningRate, extra: Annotated[dict, Field(description='more')]"),
    ("Role, Vector,", "Role, Vector, codec,"),
    ("w = weights - lr * g", "w = weights - lr * g + 0 * codec.decode(extra)['extra']"),
]
DEFECTS = [
    ("one_node_equals_centralized_training", "weights is off by", [("- lr * g", "- 2 * lr * g")]),
    (
        "order_of_nodes_changes_nothing",
        "gives other bits",
        [
            (
                "        s.w = answers",
                "        import os\n        s.w = int(os.environ['TEMPORARY_FOLDER'][-5]) * answers",
            )
        ],
    ),
    ("equal_nodes_equal_one", "is off by", [('weighted_mean("weights")', 'sum("weights")')]),
    ("rate_zero_changes_nothing", "changes at a rate of 0", [("- lr * g", "- (lr + 0.01) * g")]),
    (
        "bytes_equal_the_formula",
        "grow by",
        [('return {"weights"', 'return {"again": w, "weights"'), ("lr=lr)", 'lr=lr, returns=["weights", "again"])')],
    ),
    (
        "too_few_answers_are_an_error_in_every_request",
        "and the job goes on",
        [("lr=lr)", "lr=lr, quorum_of=0)"), ("weighted_mean(", "combine("), ('"weights")', '"weights", lambda a: 1)')],
    ),
    (
        "nonsense_in_an_answer_does_not_end_the_job",
        "and the job ends: TypeError",
        [
            ("0.9 * s.v + 1", "sum(1 + a.values['label'] for a in answers.each())"),
            ('_loss": loss', '_loss": loss, "label": 1'),
        ],
    ),
    (
        "a_lost_central_goes_on",
        "differs in",
        [
            ("v=0.0)", "v=0.0)\n    moved = 0"),
            ("        s.w = answers", "        moved += 1\n        s.w = moved * answers"),
        ],
    ),
    ("nodes_are_sent_what_central_carries", "v of round 2 are not sent", [("v=s.v", "v=0.0")]),
    (
        "nodes_keep_what_is_declared_and_nothing_in_the_end",
        "declared: keeps no state",
        [('    return {"weights"', '    node.state.save({"w": w})\n    return {"weights"')],
    ),
    (
        "same_bits_everywhere",
        "worker processes give another",
        [("- lr * g", "- lr * g * (1 + __import__('os').getpid() % 1000 / 1000)")],
    ),
    ("arrays_of_another_shape_are_refused", "extra of shape", SENT_AS_PAYLOAD),
    ("exports_are_the_functions_that_a_task_may_call", "and __all__ is", [('"client_update", ', "")]),
    ("exports_are_the_functions_that_a_task_may_call", "is no `@central` or `@partial`", [("@partial\n", "")]),
    (
        "imports_are_from_the_face_of_v6_federated",
        "central.py imports v6_federated.models; expected names",
        [("from v6_federated import Federation,", "import v6_federated.models\nfrom v6_federated import Federation,")],
    ),
    (
        "imports_are_from_the_face_of_v6_federated",
        "partial.py imports v6_workbench; expected names",
        [("from pydantic import Field", "import v6_workbench\nfrom pydantic import Field")],
    ),
    (
        "every_partial_function_is_called",
        "no case calls another",
        [
            ("import client_update", "import another, client_update"),
            ('"central", ', '"another", "central", '),
            ("@partial\n", "@partial\ndef another(node: Node) -> Result:\n    return {}\n\n\n@partial\n"),
        ],
    ),
]


@pytest.mark.parametrize(("name", "says", "changes"), DEFECTS)
def test_a_defect_is_found(method, name, says, changes):
    found = outcome(MethodCase(method(*changes)), name)
    assert found.status == "fail" and says in found.reason, found


def test_rows_held_out_that_are_trained_on_are_found(method):
    everything = "X, y = node.source.table.iloc[:, :-1].to_numpy('float32'), node.source.table['label'].to_numpy()\n"
    package = method(("    loss, g", f"    {everything}    loss, g"), ("node.rows.X, node.rows.y", "X, y"))
    found = outcome(MethodCase(package), "rows_held_out_are_not_trained_on")
    assert found.status == "fail" and "depends on rows that are held out" in found.reason


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


def test_what_follows_from_the_history_is_compared(method):
    case = MethodCase(method(), follow=lambda result, nodes: 0 * nodes[1].iloc[0, :1].to_numpy())
    found = outcome(case, "model_follows_from_the_history")
    assert found.status == "fail" and "off by" in found.reason


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


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("v6_nowhere", "unknown method 'v6_nowhere'; expected one of "),
        ("json", "json/__init__.py exports no central; expected the method's central function"),
        ("nowhere.py", "no Python file nowhere.py"),
    ],
)
def test_what_is_no_method_is_one_line(asked, says, capsys):
    with pytest.raises(SystemExit) as ended:
        main([asked])
    assert ended.value.code == 2
    assert says in capsys.readouterr().err
