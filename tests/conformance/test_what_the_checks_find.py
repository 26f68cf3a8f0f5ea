"""Each check finds the defect that it is for, in a method outside this repository that is not registered."""

import json
import shutil
from pathlib import Path

import pytest
from defects import DEFECTS

import v6_fsvrg
from v6_federated.base.errors import SafeError
from v6_federated.models import metrics
from v6_workbench.conformance import MethodCase, check_method, checks_of, faults
from v6_workbench.conformance.checks import OF_CASES, OF_PACKAGES, outcome_of
from v6_workbench.network import store


def outcome(case, name):
    """What comes of the check of this name."""
    [check] = [check for check in checks_of(case) if check.name.endswith(name.replace("_", " "))]
    return outcome_of(check)


def test_a_method_without_a_defect_passes(method, monkeypatch):
    monkeypatch.setattr(faults, "SCHEDULES", 20)
    outcomes = check_method(method())
    assert [str(o) for o in outcomes if o.status == "fail"] == []
    apart = {o.check.partition(": ")[2]: o.reason for o in outcomes if o.status == "not applicable"}
    assert apart == {
        "long training is ended": "it has no minibatches between which training could be ended",
        "a node that has lost its state says so": "its nodes keep nothing",
        "model follows from the history": "MethodCase(follow=...) says what follows from a history",
        "store entry is up to date": "the package has no algorithm_store.json or algorithm_store_5.json",
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


def test_a_case_that_asks_some_nodes_in_a_round_is_summed_over_all():
    case = MethodCase("fedavg", {"fraction": 0.5}, models=["logreg"])
    found = outcome(case, "the_sum_under_masks_equals_the_sum_without")
    assert found.status == "pass" and found.reason == "works with masked sums", found


REGRESSION = MethodCase("v6_least_squares", {"objective": "regression"})


def test_a_regression_is_summed_and_measured():
    found = outcome(REGRESSION, "the_sum_under_masks_equals_the_sum_without")
    assert found.status == "pass" and found.reason == "works with masked sums", found


@pytest.mark.parametrize("measure", ["loss", "r2"])
def test_a_regression_that_masks_measure_otherwise_is_found(measure, monkeypatch):
    """As if the squares of the labels, or of the errors, had been rounded away."""
    real = metrics.regression_of_sums

    def rounded(sums):
        evaluation = real(sums)
        name = {"loss": "loss", "r2": "squares"}[measure]
        return {**evaluation, name: 1.0001 * evaluation[name]}

    monkeypatch.setattr(metrics, "regression_of_sums", rounded)
    found = outcome(REGRESSION, "the_sum_under_masks_equals_the_sum_without")
    assert found.status == "fail" and f"{measure} of the final model under masks is off by" in found.reason, found


def test_a_method_that_needs_single_answers_must_refuse_masks_and_say_why(method, monkeypatch):
    declared = '@central(single_answers="each answer moves the model", recoverable=True)'
    looks = [
        ("@central(recoverable=True)", declared),
        ('weighted_mean("weights")', 'combine("weights", lambda a: a.n / answers.n)'),
    ]
    case, name = MethodCase(method(*looks)), "the_sum_under_masks_equals_the_sum_without"
    found = outcome(case, name)
    assert (found.status, found.reason) == ("pass", "needs single answers: each answer moves the model")
    monkeypatch.setattr(case.central, "why_single", lambda settings: "another reason")
    found = outcome(case, name)
    assert found.status == "fail"
    assert found.reason.startswith("aggregation=masked ends in 'outside") and "'another reason'" in found.reason


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
