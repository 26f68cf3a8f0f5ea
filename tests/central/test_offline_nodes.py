"""Nodes that are offline: who is waited for, for how long, and who is not asked."""

import math

import pytest
from four_nodes import CRASHED, at, run, training
from vantage6.algorithm.tools.exceptions import CollectResultsError

from v6_workbench.simulation.call_outcomes import CallOutcome

ALL_WELL = at([], CRASHED)


def test_a_node_that_is_offline_joins_when_it_comes():
    """Central sees it before a round is sent."""
    history = run(ALL_WELL, online=lambda k, time: k != 4 or time >= 1.5, rounds=4, min_responses=0.5)["history"]
    assert [row["participants"] for row in history] == [[1, 2, 3], [1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3, 4]]
    assert history[0]["missing"] == [{"organization_id": 4, "reason": "its node is offline"}]


def test_a_node_that_must_answer_is_waited_for_until_offline_timeout():
    outcomes = at([4], CallOutcome(math.inf), "describe")
    with pytest.raises(CollectResultsError, match="describe: organization 4: its node has been offline for 30 s"):
        run(outcomes, online=lambda k, time: k != 4, classes=None, offline_timeout=30)


def test_a_sample_counts_those_that_are_absent():
    """Nodes 2 to 4 go offline after round 1. Of the three that C = 0.75 asks for, node 1 is not enough: the others are
    waited for until ``offline_timeout``."""
    result = run(
        lambda k, input_: CallOutcome(1.0 if k == 1 or input_["kwargs"]["round"] < 2 else math.inf),
        online=lambda k, time: k == 1 or time < 1.5,
        rounds=3,
        fraction=0.75,
        min_responses=2,
        offline_timeout=40,
    )
    assert len(result["history"]) == 1 and result["history"][0]["missing"] == []
    assert result["stopped"].startswith("round 2, client_update: organization")
    assert "its node has been offline for 40 s; 1 of 3 answered, 2 are needed" in result["stopped"]


def attended(online, outcomes, method="fedavg", **settings):
    """The result of a job of which three of four nodes must answer."""
    return run(outcomes, method, online=online, **{"min_responses": 0.75, "offline_timeout": 40, **settings})


@pytest.mark.parametrize("min_responses", [0.75, 1.0])
def test_if_too_few_are_online_the_others_are_waited_for(min_responses):
    """The server is restarted, twice: for a while it takes all nodes for offline, which is no reason to stop. The
    second time, waiting begins from the start."""
    result = attended(
        lambda k, time: not (1.5 <= time < 21 or 71.5 <= time < 90),
        training(lambda k, round_: 18 if round_ in (2, 28) else 2),
        rounds=30,
        min_responses=min_responses,
    )
    assert "stopped" not in result
    assert [row["missing"] for row in result["history"]] == [[]] * 30


def test_nodes_left_out_are_asked_before_offline_ones_are_waited_for():
    """Node 3 breaks down in round 1 and is to be left out; node 4 goes for good. Three must answer."""

    def seconds(k, round_):
        if k == 3 and round_ == 1:
            return CRASHED
        return math.inf if k == 4 and round_ > 1 else 1

    result = attended(
        lambda k, time: k != 4 or time < 0.5,
        training(seconds),
        rounds=4,
        retries=0,
        cooldown_rounds=3,
        offline_timeout=600,
    )
    assert [row["participants"] for row in result["history"]] == [[1, 2, 4], [1, 2, 3], [1, 2, 3], [1, 2, 3]]
    assert max(row["seconds"] for row in result["history"]) < 5


def test_the_node_of_central_is_there_whatever_the_server_says():
    result = attended(lambda k, time: k != 1, ALL_WELL)
    assert [row["participants"] for row in result["history"]] == [[1, 2, 3, 4]] * 2


def test_an_evaluator_that_is_away_is_not_waited_for():
    """Not even while a node that trains is waited for. Only the last evaluation needs it."""

    def outcomes(k, input_):
        if k == 4 and input_["kwargs"]["round"] > 2:
            return CallOutcome(math.inf)
        return training(lambda k, round_: 10 if round_ == 3 else 2)(k, input_)

    result = attended(
        lambda k, time: time < 2.5 if k == 4 else not (k in (2, 3) and 3.5 <= time < 12),
        outcomes,
        rounds=4,
        evaluators=[4],
        offline_timeout=600,
    )
    assert result["stopped"].startswith("round 4, evaluate: organization 4: ") and len(result["history"]) == 4
    assert max(row["seconds"] for row in result["history"]) < 20


@pytest.mark.parametrize("method", ["fedavg", "coop"])
def test_the_last_evaluation_waits_for_the_nodes(method):
    """All seem to be offline after the last round."""
    result = attended(lambda k, time: not 5.5 <= time < 30, training(lambda k, round_: 2), method, rounds=3)
    assert result["final"]["evaluated"] and result["final"]["loss"] is not None


def test_a_node_that_goes_offline_is_noticed_while_others_answer():
    """CO-OP's other nodes answer all the time."""
    history = run(
        training(lambda k, round_: math.inf if k == 4 else k),
        "coop",
        online=lambda k, time: k != 4 or time < 0.5,
        rounds=6,
        min_responses=0.5,
        offline_timeout=5,
        age_lower=1,
        age_upper=10,
    )["history"]
    gone = {"organization_id": 4, "reason": "its node has been offline for 5 s"}
    assert gone in [missing for row in history for missing in row["missing"]]
