"""CO-OP: merges by hand."""

import math

import numpy as np
import pytest
from by_hand import SEED, arrays, check, epoch, order, rows_of, step
from helpers import OPEN

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
