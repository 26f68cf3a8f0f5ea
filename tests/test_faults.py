"""Nodes that crash, are late, never answer, or answer nonsense, in any order: a method's model is always the one that
follows from exactly the answers which its history names. Checked by following each history in plain numpy.

``FAULT_SCHEDULES`` schedules a method (1,000 in all by default): FAULT_SCHEDULES=2000 pytest tests/test_faults.py
"""

import base64
import math
import os

import numpy as np
import pytest
from helpers import OPEN, table
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from test_by_hand import arrays, gradient
from vantage6.algorithm.tools.exceptions import CollectResultsError

from v6_federated import codec
from v6_federated.mock import Fate, MockNetwork

SCHEDULES = int(os.environ.get("FAULT_SCHEDULES", 143))
NODES = {k: table(20 + 3 * k, seed=k) for k in (1, 2, 3, 4)}
DATA = {k: arrays(rows) for k, rows in NODES.items()}
N = {k: len(rows) for k, rows in NODES.items()}
LR = 0.3
DEADLINE = 20.0
ROUNDS = 4


def wrong_numbers(answer):
    arrays = {name: np.full(shape, 1e38) for name, shape in answer.get("arrays", {"shapes": {}})["shapes"].items()}
    payload = codec.encode(arrays, "float32")
    with np.errstate(over="ignore"):
        not_finite = np.frombuffer(base64.b64decode(payload["data"]), "<f4") * np.float32(10)
    return {**answer, "arrays": {**payload, "data": base64.b64encode(not_finite.tobytes()).decode()}}


# what may become of a call, besides a good answer after 1 to 3 seconds
FAULTS = {
    "late": Fate(DEADLINE + 13),
    "never": Fate(math.inf),
    "crashed before it worked": Fate(1.5, "crashed"),
    "crashed after it worked": Fate(1.5, "crashed", worked=True),
    "killed": Fate(2.5, "killed by user", worked=True),
    "for another round": Fate(1.5, alter=lambda a: {**a, "round": a["round"] - 1}),
    "as another organization": Fate(1.5, alter=lambda a: {**a, "organization_id": a["organization_id"] % 4 + 1}),
    "as nobody": Fate(1.5, alter=lambda a: {k: v for k, v in a.items() if k != "organization_id"}),
    "not finite": Fate(1.5, alter=wrong_numbers),
    "other shape": Fate(1.5, alter=lambda a: {**a, "arrays": codec.encode({"weights": np.ones(3)})}),
    "other names": Fate(1.5, alter=lambda a: {**a, "arrays": codec.encode({"weight": np.ones(5)})}),
    "no rows": Fate(1.5, alter=lambda a: {**a, "n": 0}),
    "too few rows": Fate(1.5, alter=lambda a: {**a, "n": 9}),
    "n is text": Fate(1.5, alter=lambda a: {**a, "n": "many"}),
    "broken payload": Fate(1.5, alter=lambda a: {**a, "arrays": {"dtype": "float32", "shapes": {}, "data": "!"}}),
    "text": Fate(1.5, alter=lambda a: "hello"),
}
NAMES = st.sampled_from(["good"] * 20 + [*FAULTS])


def step(w, k, times=1):
    """Local training: that many steps of gradient descent on all rows of node k."""
    for _ in range(times):
        w = w - LR * gradient(w, *DATA[k])
    return w


def average(models):
    return sum(N[k] * w for k, w in models.items()) / sum(N[k] for k in models)


def rows_of(result, t):
    return [row for row in result["per_node"] if row["round"] == t]


# ---- what follows from a history, method by method


def fedavg(result):
    w = np.zeros(5)
    for row in result["history"]:
        w = average({k: step(w, k) for k in row["participants"]})
    return w


def loadaboost(result):
    w = np.zeros(5)
    for t in range(1, len(result["history"]) + 1):
        w = average(
            {row["organization_id"]: step(w, row["organization_id"], row["epochs"]) for row in rows_of(result, t)}
        )
    return w


def scaffold(result):
    x, c, c_k = np.zeros(5), np.zeros(5), {k: np.zeros(5) for k in NODES}
    for row in result["history"]:
        S, dy, dc = row["participants"], [], []
        for k in S:
            y = x - LR * (gradient(x, *DATA[k]) - c_k[k] + c)
            new = c_k[k] - c + (x - y) / LR
            dy.append(y - x)
            dc.append(new - c_k[k])
            c_k[k] = new
        x = x + np.mean(dy, axis=0)
        c = c + len(S) / len(NODES) * np.mean(dc, axis=0)
    return x


def fsvrg(result):
    w = np.zeros(5)
    for row in result["history"]:
        asked = [r["organization_id"] for r in rows_of(result, row["round"]) if r.get("train_loss") is not None]
        full = average({k: gradient(w, *DATA[k]) for k in asked})
        w = w - LR * full  # one step on all rows: the node's own gradients cancel
    return w


def by_loss(result):
    w, version, models = np.zeros(5), dict.fromkeys(NODES, 0), {0: np.zeros(5)}
    for row in result["history"]:
        t, S_t = row["round"], row["participants"]
        if S_t:
            w = models[t] = average({k: step(models[version[k]], k, t - version[k]) for k in S_t})
            version |= dict.fromkeys(S_t, t)
    return w


def by_divergence(result):
    w = r = np.zeros(5)
    f = {k: np.zeros(5) for k in NODES}
    for row in result["history"]:
        here = {e["organization_id"] for e in rows_of(result, row["round"]) if "distance" in e}
        f = {k: step(f[k], k) for k in here}
        B = row["participants"]
        if B:
            w = average({k: f[k] for k in B})
        r = w if len(B) == len(NODES) else r
        gone = {m["organization_id"] for m in row["missing"]}
        f = {k: w if k in B else f[k] if k in here and k not in gone else r for k in NODES}
    return w


def coop(result):
    w, at_work, start = np.zeros(5), set(), {}
    a, a_k = result["settings"]["age_low"], {}
    begin = True
    for row in result["history"]:
        for k in set(NODES) - at_work:
            start[k], a_k[k] = w, a - result["settings"]["age_low"] if begin else a
        at_work, begin = set(NODES), False
        for event in sorted(rows_of(result, row["round"]), key=lambda e: e["place"]):
            k = event["organization_id"]
            assert event["age_difference"] == a - a_k[k]
            w_k = None if event.get("state_lost") else step(start[k], k)
            if event["outcome"] == "merged":
                w = w + (a - a_k[k] + 1) ** -0.5 * (w_k - w)
                a += 1
            if event["outcome"] != "overactive":
                a_k[k] = a
            start[k] = w_k if event["outcome"] == "overactive" else w
        at_work -= {m["organization_id"] for m in row["missing"]}
    return w


METHODS = {
    "v6_fedavg": ({}, fedavg),
    "v6_loadaboost": ({"epochs": 3}, loadaboost),
    "v6_scaffold": ({}, scaffold),
    "v6_fsvrg": ({"batch_size": None, "stepsize": LR}, fsvrg),
    "v6_dynavg": ({"protocol": "loss"}, by_loss),
    "v6_dynavg-divergence": ({"protocol": "divergence", "delta": 0.005}, by_divergence),
    "v6_coop": ({"age_low": 0, "age_up": 2}, coop),
}


@pytest.mark.parametrize("method", METHODS)
def test_the_model_follows_from_the_answers_that_the_history_names(method):
    own, follow = METHODS[method]
    if "stepsize" not in own:
        own = {**own, "lr": LR}
    count = {"finished": 0, "stopped": 0, "missing": 0}

    @settings(max_examples=SCHEDULES, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
    @given(
        st.lists(NAMES, min_size=1, max_size=60),
        st.sampled_from([0.25, 0.5, 2, 3, 1.0]),
        st.integers(0, 2),
        st.integers(0, 2),
        st.sampled_from([0.0, 0.7]),
    )
    @example(["good"], 1.0, 0, 0, 0.0)
    def check(schedule, enough, retries, leave_out, offline):
        calls = iter(range(10**9))

        def fates(organization, input_):
            i = next(calls)
            name = schedule[i % len(schedule)]
            return Fate(1 + (7 * i % 20) / 10) if name == "good" else FAULTS[name]

        policy = {"enough": enough, "retries": retries, "leave_out": leave_out, "deadline": DEADLINE, "patience": 15}
        with MockNetwork(
            method.split("-")[0], NODES, environment=OPEN, on_round=lambda row: None, fates=fates,
            online=lambda k, time: k != 4 or time % 97 >= 60 * offline,
        ) as network:  # fmt: skip
            try:
                result = network.run(
                    rounds=ROUNDS, classes=[0, 1], holdout=0, evaluate_every=2, minimum_rows=10, **policy, **own
                )
            except CollectResultsError as error:
                assert str(error).startswith("round ")
                return
        np.testing.assert_allclose(codec.decode(result["weights"])["weights"], follow(result), atol=2e-6)
        count["stopped" if "stopped" in result else "finished"] += 1
        for row in result["history"]:
            count["missing"] += bool(row["missing"])
            assert enough < 1 or not row["missing"] or enough > 1, "nobody is left out unless the policy says so"
            assert all(m["reason"] for m in row["missing"])

    check()
    assert count["finished"] > SCHEDULES / 10 and count["stopped"] and count["missing"], count
