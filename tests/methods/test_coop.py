"""CO-OP: merges by hand, the filter of ages, and nodes that are slow or fail."""

import math

import numpy as np
import pytest
from by_hand import SEED, arrays, check, epoch, order, rows_of, step
from helpers import OPEN, table, train
from vantage6.algorithm.tools.exceptions import UserInputError

from v6_coop.central import age_filter
from v6_workbench.conformance import MethodCase, conformance_tests
from v6_workbench.simulation.call_outcomes import CallOutcome
from v6_workbench.simulation.mock import MockNetwork


def follow(result, nodes):
    """Algorithm 3 over the answers in the order in which the history has them."""
    lr, b_l = result["settings"]["lr"], result["settings"]["age_lower"]
    w, a, a_k, start, at_work = np.zeros(5), b_l, {}, {}, set()
    for row in result["history"]:
        for k in set(nodes) - at_work:
            start[k], a_k[k] = w, a if row["round"] > 1 else a - b_l
        at_work = set(nodes)
        for answer in sorted(rows_of(result, row["round"]), key=lambda answer: answer["place"]):
            k = answer["organization_id"]
            assert answer["age_difference"] == a - a_k[k]
            w_k = None if answer.get("state_lost") else step(start[k], nodes[k], lr)
            if answer["outcome"] == "merged":
                w = w + (a - a_k[k] + 1) ** -0.5 * (w_k - w)
                a += 1
            if answer["outcome"] != "overactive":
                a_k[k] = a
            start[k] = w_k if answer["outcome"] == "overactive" else w
        at_work -= {missing["organization_id"] for missing in row["missing"]}
    return w


test_conformance = conformance_tests(
    MethodCase(
        "coop",
        {"age_lower": 0, "age_upper": 2},
        keeps_state=True,
        asynchronous=True,
        follow=follow,
        exceptions={
            "equal_nodes_equal_one": "models are merged one after another",
            "traffic_equals_bytes_sent": "calls that are under way when the job ends are not counted",
            "resuming_changes_nothing": "answers under way are lost, and nodes keep their models for one job",
        },
    )
)


def test_coop(hospitals):
    """Nilsson et al. 2018, Algorithm 3, with b_l = 1 and b_u = 3. Node 3 needs 1 second for its epoch, 5 needs 2.3,
    8 needs 9.7: 3 is overactive at times, 8 outdated."""
    seconds, b_l, b_u = {3: 1.0, 5: 2.3, 8: 9.7}, 1, 3

    def outcomes(organization, input_):
        return CallOutcome(seconds[organization] if input_["method"] == "client_update" else 0.0)

    settings = {"batch_size": 10, "lr": 0.3, "lr_decay_round": 0.9, "lr_decay_step": 0.01}
    with MockNetwork("v6_coop", hospitals, environment=OPEN, on_round=lambda row: None, outcomes=outcomes) as network:
        result = network.run(rounds=6, age_lower=b_l, age_upper=b_u, holdout=0, seed=SEED, **settings)

    n = {k: len(rows) for k, rows in hospitals.items()}
    w, a, a_k = np.zeros(5), b_l, dict.fromkeys(hospitals, 0)
    start, calls = {k: np.zeros(5) for k in hospitals}, dict.fromkeys(hospitals, 0)
    happened, merged, clocks = [], 0, []
    due = [(seconds[k], k) for k in hospitals]
    while merged < 6 * 3:
        time, k = min(due)
        due = [(t, j) for t, j in due if j != k] + [(time + seconds[k], k)]
        calls[k] += 1
        before, steps = calls[k] - 1, math.ceil(n[k] / 10)

        def eta(i, before=before, steps=steps):
            return 0.3 * 0.9**before / (1 + 0.01 * (before * steps + i))

        w_k = epoch(start[k], *arrays(hospitals[k]), 10, order(k, calls[k]), eta)
        if a - a_k[k] > b_u:
            outcome, a_k[k], start[k] = "outdated", a, w
        elif a - a_k[k] < b_l:
            outcome, start[k] = "overactive", w_k
        else:
            alpha = (a - a_k[k] + 1) ** -0.5
            w = (1 - alpha) * w + alpha * w_k
            outcome, a, merged = "merged", a + 1, merged + 1
            a_k[k], start[k] = a, w
        happened.append((k, outcome))
        clocks.append(time)
    told = [
        [(row["organization_id"], row["outcome"]) for row in sorted(rows, key=lambda row: row["place"])]
        for rows in ([r for r in result["per_node"] if r["round"] == t] for t in range(1, 7))
    ]
    assert [event for round_ in told for event in round_] == happened
    assert {outcome for _, outcome in happened} == {"merged", "overactive", "outdated"}
    assert sum(row["seconds"] for row in result["history"]) == pytest.approx(clocks[-1])
    check(result, w)


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
