"""Central's container is lost, and vantage6 starts it again with the same job: it goes on from its checkpoint.

That every method gives the same bits then is among its checks (tests/methods).
"""

import json
from collections import Counter

import pytest

from v6_federated.data import preprocessing
from v6_workbench.conformance.interruptions import lost_and_started_again
from v6_workbench.conformance.jobs import OPEN, difference
from v6_workbench.simulation.call_outcomes import CallOutcome
from v6_workbench.simulation.mock import MockNetwork

OWN = {"rounds": 6, "seed": 3, "preprocess": ["standardize"]}
STEPS = {**OWN, "preprocess": ["impute:median", "standardize", "pca:3"], "lr": 0.3}


def straight(package, nodes, **settings):
    """The result of the same job without an interruption."""
    with MockNetwork(package, nodes, environment=OPEN, on_round=lambda row: None) as network:
        return network.run(**settings)


def training_of(round_):
    return lambda call: call.own and call.round == round_


def same(one, other):
    """Everything except for times and bytes: what is asked again is counted again."""
    return difference({**one, "traffic": 0}, {**other, "traffic": 0}) == ""


def counted(*calls):
    """How often each function is called."""
    return Counter(call.function for part in calls for call in part)


@pytest.mark.parametrize("round_", [1, 3, 6])
def test_it_goes_on_from_the_last_finished_round(round_, hospitals):
    job = lost_and_started_again("v6_fedavg", hospitals, training_of(round_), **OWN)
    assert same(job.result, straight("v6_fedavg", hospitals, **OWN)) and job.left == []
    assert [call.round for call in job.after if call.own] == [t for t in range(round_, 7) for _ in hospitals]


@pytest.mark.parametrize("large", [1, 10**9])
def test_fitted_steps_are_neither_fitted_nor_handed_over_again(large, hospitals, monkeypatch):
    """Nodes still keep the steps that tasks only name."""
    monkeypatch.setattr(preprocessing, "LARGE", large)
    job = lost_and_started_again("v6_fedavg", hospitals, training_of(3), **STEPS)
    assert same(job.result, straight("v6_fedavg", hospitals, **STEPS)) and job.left == []
    calls = counted(job.before, job.after)
    assert calls["describe"] == 3 and calls["fit_step"] == 3 * 5
    assert calls["keep_steps"] == (3 if large == 1 else 0)


@pytest.mark.parametrize(("package", "own"), [("v6_fedavg", {}), ("v6_gbdt", {"mode": "cyclic", "min_rows_leaf": 10})])
def test_it_is_lost_while_fitted_steps_are_handed_over(package, own, hospitals, monkeypatch):
    """They are handed over again, and not fitted again."""
    monkeypatch.setattr(preprocessing, "LARGE", 1)
    settings = {**STEPS, **own}
    job = lost_and_started_again(package, hospitals, lambda call: call.function == "keep_steps", **settings)
    assert same(job.result, straight(package, hospitals, **settings)) and job.left == []
    assert counted(job.before)["describe"] == 3 and counted(job.after)["describe"] == 0
    assert counted(job.before)["keep_steps"] == counted(job.after)["keep_steps"] == 3


def test_a_method_that_carries_nothing_begins_its_rounds_again(hospitals):
    """PCA, with the fitted steps."""
    settings = {"components": 2, "preprocess": ["standardize"], "features": ["x0", "x1", "x2"]}

    def lost(call):
        return call.function == "fit_step" and call.round == 2

    job = lost_and_started_again("v6_pca", hospitals, lost, **settings)
    assert job.result["weights"] == straight("v6_pca", hospitals, **settings)["weights"]
    assert len(job.result["history"]) == 2
    assert counted(job.before) == {"describe": 3, "fit_step": 3 * (1 + 2)}
    assert counted(job.after)["describe"] == 0 and counted(job.after)["fit_step"] == 3 * 2


def test_a_checkpoint_that_lacks_a_line_goes_on_all_the_same(hospitals):
    """Of that round only the row is lost: model and nodes' state are those of a job that was not interrupted."""

    def cut(folder):
        [rounds] = folder.glob("node-*/tmp/checkpoint-*.jsonl")
        lines = rounds.read_text().splitlines(keepends=True)
        rounds.write_text("".join(line for line in lines if json.loads(line)["row"]["round"] != 4))

    job = lost_and_started_again("v6_scaffold", hospitals, training_of(5), meanwhile=cut, **OWN)
    assert job.result["weights"] == straight("v6_scaffold", hospitals, **OWN)["weights"] and job.left == []
    rows = {row["round"]: row for row in job.result["history"]}
    assert rows[4]["participants"] == [] and rows[3]["participants"] == [*hospitals]
    assert rows[4].keys() <= rows[3].keys() and len(rows) == 6


def test_a_resumed_job_goes_on_from_its_own_checkpoint(hospitals):
    """Not from the result that it began with."""
    half = straight("v6_fedavg", hospitals, **{**OWN, "rounds": 3})
    job = lost_and_started_again("v6_fedavg", hospitals, training_of(5), **OWN, resume=half)
    assert [call.round for call in job.before if call.own] == [4] * 3 + [5] * 3
    assert [call.round for call in job.after if call.own] == [5] * 3 + [6] * 3
    assert job.result["weights"] == straight("v6_fedavg", hospitals, **OWN)["weights"]
    assert len(job.result["history"]) == 6 and job.left == []


def test_a_job_that_cannot_go_on_has_its_earlier_rounds_as_its_result(hospitals):
    """All nodes break down in round 3, once central has been started again."""
    calls = []

    def plan(call):
        if call.own and call.round == 3:
            calls.append(call)
        return CallOutcome(status="crashed" if len(calls) > 3 and call in calls else "completed")

    job = lost_and_started_again("v6_fedavg", hospitals, training_of(3), plan, **OWN)
    assert job.ended.problem == "round 3, client_update: organizations 3, 5, 8: run crashed"
    two = straight("v6_fedavg", hospitals, **{**OWN, "rounds": 2})
    assert job.ended.result["weights"] == two["weights"] and len(job.ended.result["history"]) == 2 and job.left == []


@pytest.mark.parametrize("package", ["v6_fedavg", "v6_scaffold"])
@pytest.mark.parametrize("function", ["evaluate", "forget"])
def test_it_is_lost_after_the_last_round(package, function, hospitals):
    """While the last model is evaluated, or nodes remove what they keep."""
    if (package, function) == ("v6_fedavg", "forget"):
        function = "evaluate"  # its nodes keep nothing
    job = lost_and_started_again(
        package, hospitals, lambda call: call.function == function and call.round == OWN["rounds"], **OWN
    )
    assert same(job.result, straight(package, hospitals, **OWN))
    assert not any(call.own for call in job.after)


def test_a_target_that_was_reached_stays_reached(hospitals):
    settings = {**OWN, "rounds": 30, "lr": 0.3, "target": 0.9}
    one = straight("v6_fedavg", hospitals, **settings)
    reached = len(one["history"])
    assert reached < 30
    job = lost_and_started_again("v6_fedavg", hospitals, training_of(reached), **settings)
    assert same(job.result, one)
