"""The age filter of CO-OP: what is refused before the start, and a deadlock that comes later."""

import math

import pytest
from helpers import OPEN, table, train
from vantage6.algorithm.tools.exceptions import UserInputError

from v6_coop.central import age_filter
from v6_workbench.simulation.mock import CallOutcome, MockNetwork

NODES = {k: table(30, seed=k) for k in range(1, 7)}


@pytest.mark.parametrize(
    ("K", "low", "up", "says"),
    [
        (100, 16, 16, "expected age_lower < age_upper"),
        (100, 51, 16, "expected age_lower < age_upper"),
        (100, 100, 200, "expected age_lower < 100"),
        (100, 16, 31, "expected age_upper of at least 32"),
    ],
)
def test_filters_that_deadlock_are_refused(K, low, up, says):
    with pytest.raises(UserInputError, match=says):
        age_filter(K, low, up)


def test_filters_of_the_paper_and_unset_ones():
    assert age_filter(100, 16, 51) == (16, 51) == age_filter(100, None, None)
    assert [age_filter(K, None, None) for K in (1, 2, 3, 10)] == [(0, 10), (1, 10), (1, 10), (1, 10)]


def test_a_filter_is_refused_in_one_line():
    """As it is, without the word of a round: also where the job goes on from an earlier result."""
    settings = {"rounds": 2, "age_lower": 6, "age_upper": 12}
    earlier = train("v6_coop", NODES, rounds=1)
    for more in ({}, {"resume": earlier}):
        with pytest.raises(UserInputError, match="^age_lower=6 is refused: with 6 nodes"):
            train("v6_coop", NODES, **settings, **more)


def test_a_deadlock_while_running_is_told():
    """Nodes break down after their first answer: with b_l = 4 the others can never be merged again."""
    calls = dict.fromkeys(NODES, 0)

    def outcomes(organization, input_):
        if input_["method"] != "client_update":
            return CallOutcome()
        calls[organization] += 1
        failed = organization > 3 and calls[organization] > 1
        return CallOutcome(seconds=organization, status="crashed" if failed else "completed")

    with MockNetwork("v6_coop", NODES, environment=OPEN, on_round=lambda row: None, outcomes=outcomes) as network:
        result = network.run(rounds=9, age_lower=4, age_upper=8, min_responses=0.5, retries=0)
    assert "nodes at work are overactive (age difference below age_lower = 4)" in result["stopped"]
    assert len(result["history"]) >= 1
    assert not list(network.folder.glob("node-*/tmp/*"))


def test_a_node_that_comes_back_takes_part_again():
    """Node 6 fails in its first call only; it is asked again in the next round."""
    calls = []

    def outcomes(organization, input_):
        if input_["method"] == "client_update" and organization == 6:
            calls.append(organization)
            return CallOutcome(1.0, "crashed" if len(calls) == 1 else "completed")
        return CallOutcome(1.0 if input_["method"] == "client_update" else 0.0)

    with MockNetwork("v6_coop", NODES, environment=OPEN, on_round=lambda row: None, outcomes=outcomes) as network:
        history = network.run(rounds=3, min_responses=0.8, retries=0, age_lower=1, age_upper=7)["history"]
    assert [row["missing"] for row in history] == [[{"organization_id": 6, "reason": "run crashed"}], [], []]
    assert 6 not in history[0]["participants"] and 6 in history[1]["participants"] + history[2]["participants"]


def test_slow_nodes_do_not_hold_up_the_others():
    """One node is 20 times slower: CO-OP makes its merges in a fraction of the time that rounds of all nodes take."""

    def outcomes(organization, input_):
        return CallOutcome((20.0 if organization == 6 else 1.0) if input_["method"] == "client_update" else 0.0)

    seconds = {}
    for package, own in (("v6_coop", {"age_lower": 1, "age_upper": 12}), ("v6_fedavg", {})):
        with MockNetwork(package, NODES, environment=OPEN, on_round=lambda row: None, outcomes=outcomes) as network:
            result = network.run(rounds=5, **own)
        seconds[package] = sum(row["seconds"] for row in result["history"])
    assert seconds["v6_fedavg"] == 100
    assert seconds["v6_coop"] == math.ceil(30 / 5)
