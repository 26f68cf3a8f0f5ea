"""Nodes that break down, are late or answer nonsense: who is missing, who is asked again, and when too few are left."""

import json
import math

import pytest
from four_nodes import CRASHED, NODES, at, run, training
from helpers import OPEN, table
from vantage6.algorithm.tools.exceptions import CollectResultsError

from v6_workbench.conformance.faults import DEADLINE, FAULTS
from v6_workbench.simulation.call_outcomes import CallOutcome
from v6_workbench.simulation.mock import MockNetwork


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("crashed before it worked", "run crashed"),
        ("killed", "run killed by user"),
        ("for another round", "answered for round 0; expected round 1"),
        ("as another organization", "answered as organization 3; expected its own id"),
        ("as nobody", "answered as organization None; expected its own id"),
        ("not finite", "sent arrays that cannot be used: weights: some numbers are not finite"),
        ("other shape", "sent weights of shape (3, 7); expected (5,)"),
        ("other names", "sent the arrays ['another']; expected ['weights']"),
        ("no rows", "sent n=0; expected its number of rows, at least 1"),
        ("twice", "sent 2 answers to one call; expected one"),
        ("broken payload", "sent arrays that cannot be used: malformed payload of arrays"),
        ("late", "no answer within 20 s"),
        ("never", "no answer within 20 s"),
    ],
)
def test_each_fault_is_named(fault, says):
    """If all must answer, the job ends with one line; if three of four are enough, the history says who is missing."""
    outcomes = at([2], FAULTS[fault])
    with pytest.raises(CollectResultsError) as error:
        run(outcomes, round_timeout=DEADLINE)
    assert str(error.value).startswith(f"round 1, client_update: organization 2: {says}")
    history = run(outcomes, round_timeout=DEADLINE, min_responses=3)["history"]
    assert [row["participants"] for row in history] == [[1, 3, 4]] * 2
    for t, row in enumerate(history, start=1):
        [missing] = row["missing"]
        assert missing["organization_id"] == 2
        expected = says.replace("round 0; expected round 1", f"round {t - 1}; expected round {t}")
        assert missing["reason"].startswith(expected)


def test_bytes_sent_to_nodes_that_fail_are_counted():
    """Those of every attempt."""
    sent = {1: 0, 2: 0}

    def outcomes(organization, input_):
        if input_["method"] != "client_update":
            return CallOutcome()
        sent[input_["kwargs"]["round"]] += len(json.dumps(input_))
        return CRASHED if organization == 4 else CallOutcome()

    result = run(outcomes, min_responses=0.5, retries=2)
    assert {row["round"]: row["bytes_down"] for row in result["history"]} == sent


def test_a_node_is_left_out_for_the_rounds_that_the_settings_say():
    calls = []

    def seconds(organization, round_):
        if organization != 2:
            return 1.0
        calls.append(round_)
        return CRASHED if round_ == 1 else 1.0

    history = run(training(seconds), min_responses=0.5, cooldown_rounds=2, retries=0, rounds=4)["history"]
    assert calls == [1, 4]
    assert [[m["reason"] for m in row["missing"]] for row in history] == [
        ["run crashed"],
        ["left out after it failed in round 1"],
        ["left out after it failed in round 1"],
        [],
    ]


def test_the_operators_minimum_of_organizations_counts_answers_too():
    """Two of four answers would be enough for the settings; the operator of central's node asks for three."""
    three = {"V6_FEDERATED_MINIMUM_ORGANIZATIONS": "3"}
    with pytest.raises(CollectResultsError, match="2 of 4 answered, 3 are needed"):
        run(at([3, 4], CRASHED), environment=three, min_responses=0.25)


def last_evaluation(fails):
    """CallOutcomes: some organizations do not answer the last evaluation."""

    def outcomes(k, input_):
        last = input_["method"] == "evaluate" and input_["kwargs"].get("last")
        return CRASHED if last and k in fails else CallOutcome()

    return outcomes


@pytest.mark.parametrize(
    ("min_responses", "fails", "needed"),
    [(0.5, [2, 3, 4], 2), (0.5, [2, 3], None), (3, [3, 4], 3), (3, [4], None), (0.25, [1, 2, 3, 4], 1), (1, [4], 4)],
)
def test_the_last_evaluation_needs_as_many_answers_as_a_round(min_responses, fails, needed):
    """If too few answer, the model of the last round is the result."""
    result = run(last_evaluation(fails), min_responses=min_responses, retries=0)
    whole = run(min_responses=min_responses)
    assert result["weights"] == whole["weights"] and len(result["history"]) == 2
    if needed is None:
        assert "stopped" not in result and 0 < result["final"]["evaluated"] < whole["final"]["evaluated"]
        assert [row["organization_id"] for row in result["history"][-1]["unevaluated"]] == fails
        return
    assert result["final"] is None and "by_hospital" not in result
    counted = "" if min_responses == 1 else f"; {4 - len(fails)} of 4 answered, {needed} are needed"
    assert result["stopped"].startswith("round 2, evaluate: organization")
    assert result["stopped"].endswith(f"run crashed{counted}")


def test_the_operators_minimum_counts_in_the_last_evaluation_too():
    environment = {"V6_FEDERATED_MINIMUM_ORGANIZATIONS": "3"}
    stopped = run(last_evaluation([1, 2]), environment=environment, min_responses=0.25, retries=0)["stopped"]
    assert "2 of 4 answered, 3 are needed" in stopped


@pytest.mark.parametrize(("fails", "says"), [([3, 4], "0 of 2 answered, 1 are needed"), ([4], None), ([1, 2], None)])
def test_the_last_evaluation_needs_answers_of_evaluators_if_there_are_any(fails, says):
    """Whatever the operators' minimum of those that train: each evaluator is named, and central sees it alone."""
    settings = {"evaluators": [3, 4], "min_responses": 0.5, "retries": 0}
    environment = {"V6_FEDERATED_MINIMUM_ORGANIZATIONS": "2"}
    result = run(last_evaluation(fails), environment=environment, **settings)
    assert says is None or (says in result["stopped"] and result["final"] is None)
    assert says is not None or (result["final"]["loss"] is not None and "stopped" not in result)


@pytest.mark.parametrize("method", ["coop", "dynavg"])
def test_an_evaluation_in_between_needs_as_many_answers_as_a_round(method):
    """CO-OP and dynamic averaging evaluate in requests of their own."""
    fails = at([2, 3, 4], CRASHED, "evaluate")
    result = run(fails, method, min_responses=0.5, retries=0, rounds=3)
    assert "evaluate: organizations 2, 3, 4: run crashed; 1 of 4 answered, 2 are needed" in result["stopped"]
    assert [row["loss"] for row in result["history"]] == [None]
    least = run(fails, method, min_responses=0.25, retries=0, rounds=3)
    assert "stopped" not in least and None not in [row["loss"] for row in least["history"]]


@pytest.mark.parametrize("method", ["coop", "dynavg", "fedavg"])
def test_no_round_depends_on_evaluators(method):
    """Only the last evaluation does."""
    fails = at([3, 4], CRASHED, "evaluate")
    settings = {"evaluators": [3, 4], "min_responses": 0.5, "retries": 0, "rounds": 3}
    result = run(fails, method, **settings)
    assert len(result["history"]) == 3 and "round 3, evaluate: organizations 3, 4" in result["stopped"]


def test_an_organization_without_a_node_is_named(monkeypatch):
    with MockNetwork("v6_fedavg", NODES, environment=OPEN, on_round=lambda row: None) as network:
        organizations = [{"id": k, "name": f"hospital {k}"} for k in (1, 2, 3, 4, 9)]
        monkeypatch.setattr(type(network.client().organization), "list", lambda self: organizations)
        with pytest.raises(CollectResultsError, match="round 0, describe: organization 9: .*no node"):
            network.run(rounds=2)
        result = network.run(rounds=2, min_responses=0.8)
    [absent] = result["undescribed"]
    assert absent["organization_id"] == 9 and "no node" in absent["reason"]
    assert [m["organization_id"] for row in result["history"] for m in row["missing"]] == [9, 9]


def test_a_node_that_fails_before_the_first_round_may_take_part_in_it():
    """In what a method asks before its rounds, as dynamic averaging by SVD does."""
    outcomes = at([3], CRASHED, "singular_index")
    result = run(outcomes, "dynavg", protocol="svd", retries=0, min_responses=3, cooldown_rounds=0)
    assert [row["organization_id"] for row in result["undescribed"]] == [3]
    assert not any(row["missing"] for row in result["history"])


def test_nodes_that_were_given_up_leave_nothing_behind():
    """Node 2's container ends after its deadline, and after the job; what it keeps is removed all the same."""
    outcomes = at([2], CallOutcome(30.0))
    with MockNetwork("v6_scaffold", NODES, environment=OPEN, on_round=lambda row: None, outcomes=outcomes) as network:
        result = network.run(rounds=3, min_responses=3, round_timeout=20)
        left = list(network.folder.glob("node-*/tmp/*"))
    assert not left and "state_left" not in result


def test_a_node_that_has_begun_to_refuse_still_removes_its_state(hospitals, tmp_path):
    """Its operator allows fewer rounds from round 3 on."""

    def outcomes(organization, input_):
        if input_["kwargs"]["round"] == 3:
            network.nodes[5].environment["V6_FEDERATED_MAXIMUM_ROUNDS"] = "1"
        return CallOutcome()

    with MockNetwork(
        "v6_scaffold",
        hospitals,
        environment=OPEN,
        on_round=lambda row: None,
        outcomes=outcomes,
        hospital_folder=tmp_path,
    ) as network:
        stopped = network.run(rounds=3)["stopped"]
        assert "round 3" in stopped and "organization 5: " in stopped and "V6_FEDERATED_MAXIMUM_ROUNDS" in stopped
        assert not list(network.folder.glob("node-*/tmp/*"))


NEVER_ANSWER = at([3, 4, 5], CallOutcome(math.inf))
SIX = {k: table(40, seed=k) for k in range(1, 7)}
MERGING = {"rounds": 3, "round_timeout": 5.0, "age_lower": 1, "age_upper": 20, "retries": 0, "cooldown_rounds": 9}


def test_asynchronous_nodes_that_are_given_up_at_once_are_all_missing():
    """Three nodes run out of time in the same second."""
    history = run(NEVER_ANSWER, "coop", nodes=SIX, min_responses=3, **MERGING)["history"]
    assert {3, 4, 5} == {m["organization_id"] for row in history for m in row["missing"]}
    assert all({*row["participants"]} <= {1, 2, 6} for row in history) and len(history) == 3


def test_too_few_asynchronous_nodes_end_the_job():
    result = run(NEVER_ANSWER, "coop", nodes=SIX, min_responses=4, **MERGING)
    assert "organizations 3, 4, 5: no answer within 5 s" in result["stopped"] and len(result["history"]) < 3
