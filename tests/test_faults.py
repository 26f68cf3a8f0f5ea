"""Nodes that crash, are late, never answer, or answer nonsense, in any order: a method's model is always the one that
follows from exactly the answers which its history names. Checked by following each history in plain numpy.

``FAULT_SCHEDULES`` schedules a method (1,000 in all by default): FAULT_SCHEDULES=2000 pytest tests/test_faults.py
"""

import base64
import functools
import json
import math
import os
import re
from functools import partial

import numpy as np
import pytest
from helpers import OPEN, spoilt, table
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from test_by_hand import arrays, gradient
from vantage6.algorithm.tools.exceptions import CollectResultsError

from v6_federated.base import vantage6_api
from v6_federated.central import federation
from v6_federated.messages import codec
from v6_workbench.reporting import report
from v6_workbench.simulation.mock import CallOutcome, MockNetwork

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


def shaped(answer, shape):
    arrays = answer.get("arrays", codec.encode({"weights": np.ones(5)}))
    return {**answer, "arrays": {**arrays, "shapes": {"weights": shape}}}


# what may become of a call, besides a good answer after 1 to 3 seconds
FAULTS = {
    "late": CallOutcome(DEADLINE + 13),
    "never": CallOutcome(math.inf),
    "crashed before it worked": CallOutcome(1.5, "crashed"),
    "crashed after it worked": CallOutcome(1.5, "crashed", worked=True),
    "killed": CallOutcome(2.5, "killed by user", worked=True),
    "for another round": CallOutcome(1.5, alter=lambda a: {**a, "round": a["round"] - 1}),
    "as another organization": CallOutcome(1.5, alter=lambda a: {**a, "organization_id": a["organization_id"] % 4 + 1}),
    "as nobody": CallOutcome(1.5, alter=lambda a: {k: v for k, v in a.items() if k != "organization_id"}),
    "not finite": CallOutcome(1.5, alter=wrong_numbers),
    "other shape": CallOutcome(1.5, alter=lambda a: {**a, "arrays": codec.encode({"weights": np.ones(3)})}),
    "other names": CallOutcome(1.5, alter=lambda a: {**a, "arrays": codec.encode({"weight": np.ones(5)})}),
    "no rows": CallOutcome(1.5, alter=lambda a: {**a, "n": 0}),
    "too few rows": CallOutcome(1.5, alter=lambda a: {**a, "n": 9}),
    "n is text": CallOutcome(1.5, alter=lambda a: {**a, "n": "many"}),
    "broken payload": CallOutcome(
        1.5, alter=lambda a: {**a, "arrays": {"dtype": "float32", "shapes": {}, "data": "!"}}
    ),
    "twice": CallOutcome(1.5, times=2),
    "text": CallOutcome(1.5, alter=lambda a: "hello"),
    "endless shape": CallOutcome(1.5, alter=lambda a: shaped(a, [math.inf])),
    "too many dimensions": CallOutcome(1.5, alter=lambda a: shaped(a, [5, *[1] * 70])),
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


def by_loss(result, newest=False, passes=None):
    w, version, models = np.zeros(5), dict.fromkeys(NODES, 0), {0: np.zeros(5)}
    for row in result["history"]:
        t, S_t = row["round"], row["participants"]
        if S_t:
            start = {k: w if newest else models[version[k]] for k in S_t}
            w = models[t] = average({k: step(start[k], k, passes or t - version[k]) for k in S_t})
            version |= dict.fromkeys(S_t, t)
    return w


def by_divergence(result):
    w = r = np.zeros(5)
    f = {k: np.zeros(5) for k in NODES}
    for row in result["history"]:
        here = {e["organization_id"] for e in rows_of(result, row["round"]) if "from_reference" in e}
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
    a, a_k = result["settings"]["age_lower"], {}
    begin = True
    for row in result["history"]:
        for k in set(NODES) - at_work:
            start[k], a_k[k] = w, a - result["settings"]["age_lower"] if begin else a
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
    "v6_dynavg-newest": ({"protocol": "loss", "train_from": "newest"}, partial(by_loss, newest=True)),
    "v6_dynavg-newest_pass": (
        {"protocol": "loss", "train_from": "newest_pass"},
        partial(by_loss, newest=True, passes=1),
    ),
    "v6_dynavg-divergence": ({"protocol": "divergence", "delta": 0.005}, by_divergence),
    "v6_coop": ({"age_lower": 0, "age_upper": 2}, coop),
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

        def outcomes(organization, input_):
            i = next(calls)
            name = schedule[i % len(schedule)]
            return CallOutcome(1 + (7 * i % 20) / 10) if name == "good" else FAULTS[name]

        policy = {
            "min_responses": enough,
            "retries": retries,
            "cooldown_rounds": leave_out,
            "round_timeout": DEADLINE,
            "offline_timeout": 15,
        }
        with MockNetwork(
            method.split("-")[0],
            NODES,
            environment=OPEN,
            on_round=lambda row: None,
            outcomes=outcomes,
            online=lambda k, time: k != 4 or time % 97 >= 60 * offline,
        ) as network:
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


def run(package, outcomes=None, **values):
    with MockNetwork(package, NODES, environment=OPEN, on_round=lambda row: None, outcomes=outcomes) as network:
        return network.run(**{"rounds": 2, "classes": [0, 1], **values})


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("crashed before it worked", "organization 2: run crashed"),
        ("killed", "organization 2: run killed by user"),
        ("for another round", "organization 2: answers for round 0; expected round 1"),
        ("as another organization", "organization 2: answers as organization 3; expected its own id"),
        ("as nobody", "organization 2: answers as organization None; expected its own id"),
        ("not finite", "organization 2: sends what cannot be used: weights: some numbers are not finite"),
        ("other shape", "organization 2: sends weights of shape (3,); expected (5,)"),
        ("other names", "organization 2: sends ['weight']; expected ['weights']"),
        ("no rows", "organization 2: answers n=0; expected the rows it used, at least 1"),
        ("twice", "organization 2: 2 answers to one call; expected one"),
        ("broken payload", "organization 2: sends what cannot be used: malformed payload of arrays"),
        ("late", "organization 2: no answer within 20 s"),
        ("never", "organization 2: no answer within 20 s"),
    ],
)
def test_each_fault_is_named(fault, says):
    """All must answer: the job ends with one line. Three of four suffice: the history names who is missing and why."""

    def outcomes(organization, input_):
        return FAULTS[fault] if organization == 2 and input_["method"] == "client_update" else CallOutcome(1.0)

    with pytest.raises(CollectResultsError) as error:
        run("v6_fedavg", outcomes, round_timeout=DEADLINE)
    assert str(error.value).startswith(f"round 1, client_update: {says}")
    history = run("v6_fedavg", outcomes, round_timeout=DEADLINE, min_responses=3)["history"]
    assert [row["participants"] for row in history] == [[1, 3, 4]] * 2
    for row in history:
        [missing] = row["missing"]
        told = f"organization {missing['organization_id']}: {missing['reason']}"
        t = row["round"]
        assert told.startswith(says.replace("round 0; expected round 1", f"round {t - 1}; expected round {t}"))


def test_what_is_sent_in_vain_is_counted_too():
    """Every attempt has gone over the line."""
    sent = {1: 0, 2: 0}

    def outcomes(organization, input_):
        if input_["method"] != "client_update":
            return CallOutcome()
        sent[input_["kwargs"]["round"]] += len(json.dumps(input_))
        return CallOutcome(status="crashed") if organization == 4 else CallOutcome()

    result = run("v6_fedavg", outcomes, rounds=2, min_responses=0.5, retries=2)
    assert {row["round"]: row["bytes_down"] for row in result["history"]} == sent


def test_a_node_is_left_out_and_admitted_again():
    calls = []

    def outcomes(organization, input_):
        if organization == 2 and input_["method"] == "client_update":
            calls.append(input_["kwargs"]["round"])
            return CallOutcome(1.0, "crashed" if calls[-1] == 1 else "completed")
        return CallOutcome(1.0)

    history = run("v6_fedavg", outcomes, min_responses=0.5, cooldown_rounds=2, retries=0, rounds=4)["history"]
    assert calls == [1, 4]
    assert [[m["reason"] for m in row["missing"]] for row in history] == [
        ["run crashed"],
        ["left out after it failed in round 1"],
        ["left out after it failed in round 1"],
        [],
    ]


def test_never_fewer_than_the_operators_minimum():
    """``enough`` is small; the operator of central's node asks for three."""

    def outcomes(organization, input_):
        return CallOutcome(1.0, "crashed" if organization > 2 and input_["method"] == "client_update" else "completed")

    three = {"V6_FEDERATED_MINIMUM_ORGANIZATIONS": "3"}
    with (
        MockNetwork("v6_fedavg", NODES, environment=three, on_round=lambda row: None, outcomes=outcomes) as network,
        pytest.raises(CollectResultsError, match="2 of 4 answered, 3 are needed"),
    ):
        network.run(rounds=2, min_responses=0.25)


def test_an_organization_without_a_node_is_named(monkeypatch):
    with MockNetwork("v6_fedavg", NODES, environment=OPEN, on_round=lambda row: None) as network:
        organizations = [{"id": k, "name": f"hospital {k}"} for k in (1, 2, 3, 4, 9)]
        monkeypatch.setattr(type(network.client().organization), "list", lambda self: organizations)
        with pytest.raises(
            CollectResultsError, match=r"round 0, describe: organization 9: .*no node for organizations"
        ):
            network.run(rounds=2)
        result = network.run(rounds=2, min_responses=0.8)
    [absent] = result["undescribed"]
    assert absent["organization_id"] == 9 and "no node" in absent["reason"]
    assert [m["organization_id"] for row in result["history"] for m in row["missing"]] == [9, 9]


def test_a_node_that_is_offline_joins_when_it_comes():
    """Seen before a round is sent; with all needed it is waited for, as long as patience lasts."""

    def online(organization, time):
        return organization != 4 or time >= 1.5

    with MockNetwork(
        "v6_fedavg",
        NODES,
        environment=OPEN,
        on_round=lambda row: None,
        online=online,
        outcomes=lambda k, i: CallOutcome(1.0),
    ) as network:
        history = network.run(rounds=4, classes=[0, 1], min_responses=0.5)["history"]
    assert [row["participants"] for row in history] == [[1, 2, 3], [1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3, 4]]
    assert history[0]["missing"] == [{"organization_id": 4, "reason": "its node is offline"}]
    with (
        MockNetwork(
            "v6_fedavg",
            NODES,
            environment=OPEN,
            on_round=lambda row: None,
            online=lambda k, time: k != 4,
            outcomes=lambda k, i: CallOutcome(math.inf if k == 4 else 1.0),
        ) as network,
        pytest.raises(CollectResultsError, match="describe: organization 4: its node has been offline for 30 s"),
    ):
        network.run(rounds=2, offline_timeout=30)


def test_with_sampling_the_absent_count_and_are_named():
    """Nodes 2 to 4 go offline after round 1; with C = 0.75 three are asked for, and one alone is never the model: the
    others are waited for, as long as patience lasts."""

    def online(organization, time):
        return organization == 1 or time < 1.5

    with MockNetwork(
        "v6_fedavg",
        NODES,
        environment=OPEN,
        on_round=lambda row: None,
        online=online,
        outcomes=lambda k, input_: CallOutcome(1.0 if k == 1 or input_["kwargs"]["round"] < 2 else math.inf),
    ) as network:
        result = network.run(rounds=3, classes=[0, 1], fraction=0.75, min_responses=2, offline_timeout=40)
    assert len(result["history"]) == 1
    assert re.search(
        r"round 2, client_update: .*organizations [234], [234]: its node has been offline for 40 s; 1 of 3 answered",
        result["stopped"],
    )
    assert result["history"][0]["missing"] == []


def attended(online, outcomes, method="fedavg", **settings):
    """The result of a job of four nodes, of which three must answer, on simulated time."""
    with MockNetwork(
        f"v6_{method}", NODES, environment=OPEN, on_round=lambda row: None, online=online, outcomes=outcomes
    ) as network:
        return network.run(**{"classes": [0, 1], "min_responses": 0.75, "offline_timeout": 40, **settings})


def training(seconds):
    """CallOutcomes by the seconds that training takes, a function of organization and round; all else takes no time."""

    def outcomes(organization, input_):
        if input_["method"] != "client_update":
            return CallOutcome(0.0)
        outcome = seconds(organization, input_["kwargs"]["round"])
        return outcome if isinstance(outcome, CallOutcome) else CallOutcome(float(outcome))

    return outcomes


@pytest.mark.parametrize("min_responses", [0.75, 1.0])
def test_when_too_few_are_online_the_others_are_waited_for(min_responses):
    """The server is restarted, twice: for a while it takes all nodes for offline, which is no reason to stop. The
    second time patience begins anew."""
    result = attended(
        lambda k, time: not (1.5 <= time < 21 or 71.5 <= time < 90),
        training(lambda k, round_: 18 if round_ in (2, 28) else 2),
        rounds=30,
        min_responses=min_responses,
    )
    assert "stopped" not in result
    assert [row["missing"] for row in result["history"]] == [[]] * 30


def test_those_left_out_are_asked_before_those_offline_are_waited_for():
    """Node 3 breaks down in round 1 and is to be left out; node 4 goes for good. Three must answer."""

    def seconds(k, round_):
        if k == 3 and round_ == 1:
            return CallOutcome(1.0, "crashed")
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
    result = attended(lambda k, time: k != 1, training(lambda k, round_: 1), rounds=2)
    assert [row["participants"] for row in result["history"]] == [[1, 2, 3, 4]] * 2


def test_an_evaluator_that_is_away_is_not_waited_for():
    """Not even where a node that trains is."""
    result = attended(
        lambda k, time: time < 2.5 if k == 4 else not (k in (2, 3) and 3.5 <= time < 12),
        lambda k, input_: CallOutcome(math.inf)
        if k == 4 and input_["kwargs"]["round"] > 2
        else training(lambda k, round_: 10 if round_ == 3 else 2)(k, input_),
        rounds=4,
        evaluators=[4],
        offline_timeout=600,
    )
    assert "stopped" not in result
    assert max(row["seconds"] for row in result["history"]) < 20


@pytest.mark.parametrize("method", ["fedavg", "coop"])
def test_the_last_evaluation_waits_for_the_nodes(method):
    """All seem to be offline after the last round."""
    result = attended(lambda k, time: not 5.5 <= time < 30, training(lambda k, round_: 2), method=method, rounds=3)
    assert result["final"]["evaluated"] and result["final"]["loss"] is not None


def edited(**values):
    return CallOutcome(1.0, alter=lambda answer: {**answer, **values})


@pytest.mark.parametrize(
    "outcome",
    [
        edited(train_loss="x"),
        edited(train_loss=[1]),
        edited(train_loss=-1.0),
        edited(n=10**400),
        edited(evaluation="x"),
        edited(evaluation={"n": 10}),
        edited(evaluation={"n": 10, "loss": 0.1, "confusion": [[1, 2], [3]], "bands": []}),
        edited(evaluation={"n": 10, "loss": "0", "confusion": [[1, 2], [3, 4]], "bands": []}),
        edited(evaluation={"n": 10, "loss": 0.1, "confusion": [[1, -2], [3, 4]], "bands": []}),
        # sums that wrap around in 64 bits
        edited(evaluation={"n": 10, "loss": 0.1, "confusion": [[2**62, 2**62], [2**62, 2**62 + 10]], "bands": []}),
        edited(
            evaluation={"n": 10, "loss": 0.1, "confusion": [[5, 0], [0, 5]], "bands": [[[2**62, 2**62], [2**62, 9]]]}
        ),
        edited(evaluation={"n": 10, "loss": 0.1, "confusion": [[5, 0], [0, 5]], "bands": [[[1, 1], [1, 1]]]}),
        edited(note=functools.reduce(lambda inner, _: [inner], range(600), 0)),
        edited(organization_id="A" * 1_000_000),
        edited(**{"K" * 1_000_000: 1}),
        edited(**{f"k{i}": "x" * 190 for i in range(5_000)}),
    ],
)
@pytest.mark.parametrize("package", ["v6_fedavg", "v6_coop"])
def test_an_answer_of_any_form_does_not_end_the_job(package, outcome):
    def outcomes(organization, input_):
        return outcome if organization == 2 and input_["method"] == "client_update" else CallOutcome(1.0)

    result = run(package, outcomes, min_responses=2, cooldown_rounds=1)
    history = result["history"]
    assert len(json.dumps(result)) < 20_000, "nothing long that a node says is kept"
    assert [m["organization_id"] for m in history[0]["missing"]] in ([2], []), "merged before, or named"
    assert len(history) == 2
    assert package != "v6_fedavg" or history[0]["missing"]


def test_what_a_node_tells_of_itself_does_not_spoil_the_report(tmp_path):
    """A text for a distance, lists, long texts: what is no value of a table is not kept."""

    def outcomes(organization, input_):
        odd = {"distance": "x", "drift": "far", "list": [1], "text": "x" * 1000, "short": "x", "none": None}
        return edited(**odd) if organization == 2 and input_["method"] == "client_update" else CallOutcome(1.0)

    result = run("v6_fedavg", outcomes)
    row = next(row for row in result["per_node"] if row["organization_id"] == 2)
    assert isinstance(row["distance"], float) and {"list", "text"} & {*row} == set() and row["short"] == "x"
    odd = [{**row, "distance": "x"} if row["organization_id"] == 2 else row for row in result["per_node"]]
    assert report.distances({**result, "per_node": odd}, tmp_path / "distances.png")


def test_a_gradient_that_none_can_be_does_not_end_scaffold():
    def outcomes(organization, input_):
        return (
            edited(travelled=1e-300) if organization == 2 and input_["method"] == "client_update" else CallOutcome(1.0)
        )

    history = run("v6_scaffold", outcomes, min_responses=2, cooldown_rounds=1, retries=0)["history"]
    assert len(history) == 2 and history[0]["missing"][0]["reason"].startswith("sends dy and travelled that make no")


@pytest.mark.parametrize("moments", [{"mean": 1e39}, {"squares": -1.0}, {"squares": 1e200}, {"count": 1e6}])
@pytest.mark.parametrize("step", ["impute:mean", "standardize"])
def test_statistics_that_no_rows_have_do_not_end_the_job(moments, step):
    name, value = next(iter(moments.items()))

    def alter(answer):
        arrays = codec.decode(answer["arrays"])
        if name not in arrays or (arrays[name].dtype == np.float32 and value > 1e38):
            return answer
        return {**answer, "arrays": codec.encode({**arrays, name: np.full_like(arrays[name], value)}, "float64")}

    def outcomes(organization, input_):
        return CallOutcome(alter=alter) if organization == 2 and input_["method"] == "fit_step" else CallOutcome()

    with MockNetwork("v6_fedavg", words(), environment=OPEN, outcomes=outcomes, on_round=lambda row: None) as network:
        result = network.run(rounds=1, preprocess=[step], retries=0, min_responses=2)
    told = [m["reason"] for m in result["undescribed"]]
    applies = name in ("mean", "squares", "count") and not (step == "standardize" and (name == "count" or value > 1e38))
    assert len(told) == applies and all(f"sends {name} that no" in reason for reason in told)


def test_moments_that_are_in_bounds_but_not_together_do_not_end_the_job():
    def alter(answer):
        arrays = codec.decode(answer["arrays"])
        huge = {name: np.full(arrays[name].shape, 3.4e38) for name in ("mean", "mean_rest")}
        return {**answer, "n": 2**53, "arrays": codec.encode({**arrays, **huge}, "float64")}

    def outcomes(organization, input_):
        return CallOutcome(alter=alter) if organization == 2 and input_["method"] == "fit_step" else CallOutcome()

    with MockNetwork("v6_fedavg", words(), environment=OPEN, outcomes=outcomes, on_round=lambda row: None) as network:
        result = network.run(rounds=1, preprocess=["standardize"], retries=0, min_responses=2)
    assert [m["reason"].split(";")[0] for m in result["undescribed"]] == [
        f"sends means and sums of squares that {2**53} rows cannot have"
    ]


def test_who_fails_before_the_first_round_is_not_missing_in_it():
    """In what a method asks before its rounds too."""

    def outcomes(organization, input_):
        return CallOutcome(
            status="crashed" if organization == 3 and input_["method"] == "singular_index" else "completed"
        )

    with MockNetwork("v6_dynavg", words(), environment=OPEN, outcomes=outcomes, on_round=lambda row: None) as network:
        result = network.run(rounds=2, protocol="svd", retries=0, min_responses=2, cooldown_rounds=0)
    assert [row["organization_id"] for row in result["undescribed"]] == [3]
    assert not any(row["missing"] for row in result["history"])


def test_last_words_command_no_terminal():
    assert vantage6_api.last_words("a\n\x1b]0;owned\x07\x1b[2J fine\n") == "]0;owned[2J fine"


@pytest.mark.parametrize(
    "values",
    [
        {"features": None},
        {"features": [1]},
        {"label": 3},
        {"classes": None},
        {"classes": [{}]},
        {"classes": [math.nan, 1]},
        {"classes": [math.inf]},
        {"classes": [0, 1, 10**400]},
    ],
)
def test_a_description_of_any_form_is_refused(values):
    def outcomes(organization, input_):
        return edited(**values) if organization == 2 and input_["method"] == "describe" else CallOutcome(1.0)

    with pytest.raises(
        CollectResultsError, match="round 0, describe: organization 2: describes its data as nobody does"
    ):
        run("v6_fedavg", outcomes, classes=None)


@pytest.mark.parametrize(
    ("function", "values", "says"),
    [
        ("describe", {"kinds": None}, "describe: organization 2: does not tell columns of words"),
        ("describe", {"kinds": {"words": ["a"]}}, "describe: organization 2: does not tell columns of words"),
        (
            "describe",
            {"kinds": {"words": ["nobody's"], "mixed": [], "empty": []}},
            "describe: organization 2: tells the kind of columns that are not its features",
        ),
        ("describe", {"kinds": {"words": [{}], "mixed": [], "empty": 1}}, "organization 2: tells the kind of columns"),
        ("fit_step", {"levels": None}, "fit_step: organization 2: names levels of other columns"),
        ("fit_step", {"levels": {"other": {"a": 1}}}, "fit_step: organization 2: names levels of other columns"),
        ("fit_step", {"levels": {"sex": ["f", "m"]}}, "fit_step: organization 2: names levels without their counts"),
        ("fit_step", {"levels": {"sex": {"f": -3}}}, "fit_step: organization 2: names levels without their counts"),
        ("fit_step", {"levels": {"sex": {"f": "3"}}}, "fit_step: organization 2: names levels without their counts"),
        ("fit_step", {"levels": {"sex": {f"l{i}": 3 for i in range(101)}}}, "names 101 levels of a column, or long"),
        ("fit_step", {"levels": {"sex": {"f" * 1001: 3}}}, "names 1 levels of a column, or long"),
        ("describe", {"classes": list(range(101))}, "names 101 classes; expected 100 at most"),
    ],
)
def test_nonsense_about_columns_of_words_is_refused(function, values, says):
    """And the job goes on without that node, where others are enough."""
    nodes = {k: rows.assign(sex=["f", "m"] * (len(rows) // 2)) for k, rows in words().items()}

    def outcomes(organization, input_):
        return edited(**values) if organization == 2 and input_["method"] == function else CallOutcome()

    settings = {"rounds": 1, "label": "label", "preprocess": ["onehot"], "retries": 0}
    with MockNetwork("v6_fedavg", nodes, environment=OPEN, outcomes=outcomes, on_round=lambda row: None) as network:
        with pytest.raises(CollectResultsError, match=says):
            network.run(**settings)
        assert network.run(**settings, min_responses=2)["history"][0]["participants"]


def words():
    return {k: table(40, seed=k) for k in (1, 2, 3)}


@pytest.mark.parametrize(
    "evaluation",
    [
        {"confusion": [[1, 2, 3], [4, 5, 6], [7, 8, 9]]},
        {"confusion": [[1, 1], [1, 1]]},
        {"bands": [[[1, 2], [3, 4]]] * 3},
        {"loss": None},
    ],
)
def test_an_evaluation_of_other_classes_or_rows_is_refused(evaluation):
    nodes = {k: table(60, seed=k) for k in (1, 2, 3)}
    with MockNetwork(
        "v6_fedavg", nodes, environment=OPEN, outcomes=spoilt(**evaluation), on_round=lambda row: None
    ) as network:
        result = network.run(rounds=2, retries=0, min_responses=2)
    assert result["history"][1]["missing"][0]["reason"].startswith("answers an evaluation that is none")


def test_coop_notices_that_a_node_is_away_while_others_answer():
    def outcomes(organization, input_):
        if input_["method"] != "client_update":
            return CallOutcome()
        return CallOutcome(math.inf if organization == 4 else float(organization))

    with MockNetwork(
        "v6_coop",
        NODES,
        environment=OPEN,
        on_round=lambda row: None,
        outcomes=outcomes,
        online=lambda k, time: k != 4 or time < 0.5,
    ) as network:
        history = network.run(rounds=6, min_responses=0.5, offline_timeout=5, age_lower=1, age_upper=10)["history"]
    assert {"organization_id": 4, "reason": "its node has been offline for 5 s"} in [
        m for r in history for m in r["missing"]
    ]


def test_a_task_is_created_again_when_the_server_is_away_for_a_moment(monkeypatch):
    monkeypatch.setattr(vantage6_api, "POLL_SECONDS", 0.0)
    with MockNetwork("v6_fedavg", NODES, environment=OPEN, on_round=lambda row: None) as network:
        tasks = type(network.client().task)
        create, calls = tasks.create, []

        def fails(self, **arguments):
            calls.append(1)
            if len(calls) in (3, 7, 8):
                return {"msg": "Request failed, see node logs. Endpoint: task"}
            if len(calls) == 9:
                raise ConnectionError
            return create(self, **arguments)

        monkeypatch.setattr(tasks, "create", fails)
        result = network.run(rounds=2)
    assert "stopped" not in result and len(result["history"]) == 2


def test_a_server_that_is_gone_ends_the_job(monkeypatch):
    monkeypatch.setattr(vantage6_api, "POLL_SECONDS", 0.0)
    with MockNetwork("v6_fedavg", NODES, environment=OPEN, on_round=lambda row: None) as network:
        client = network.client()
        request, calls = client.request, []

        def gone(endpoint):
            calls.append(1)
            if len(calls) > 20:
                raise ConnectionError
            return request(endpoint)

        monkeypatch.setattr(client, "request", gone, raising=False)
        result = network.run(rounds=5)
    assert "the server did not report the status of task" in result["stopped"]


def test_given_up_nodes_leave_nothing_behind():
    """Node 2's container ends after its deadline, and after the job; what it keeps is removed all the same."""

    def outcomes(organization, input_):
        return CallOutcome(30.0 if organization == 2 and input_["method"] == "client_update" else 1.0)

    with MockNetwork("v6_scaffold", NODES, environment=OPEN, on_round=lambda row: None, outcomes=outcomes) as network:
        result = network.run(rounds=3, min_responses=3, round_timeout=20)
        left = list(network.folder.glob("node-*/tmp/*"))
    assert not left and "state_left" not in result


@pytest.mark.parametrize("min_responses", [3, 4])
def test_asynchronous_nodes_that_fail_at_once_are_all_missing(min_responses):
    """Two are given up in the same second."""

    def outcomes(organization, input_):
        silent = input_["method"] == "client_update" and organization in (3, 4, 5)
        return CallOutcome(math.inf if silent else 1.0)

    nodes = {k: table(40, seed=k) for k in range(1, 7)}
    with MockNetwork("v6_coop", nodes, environment=OPEN, on_round=lambda row: None, outcomes=outcomes) as network:
        settings = {
            "rounds": 3,
            "round_timeout": 5.0,
            "age_lower": 1,
            "age_upper": 20,
            "retries": 0,
            "cooldown_rounds": 9,
        }
        result = network.run(min_responses=min_responses, **settings)
    history = result["history"]
    if min_responses == 4:
        assert "organizations 3, 4, 5: no answer within 5 s" in result["stopped"] and len(history) < 3
        return
    assert {3, 4, 5} == {m["organization_id"] for row in history for m in row["missing"]}
    assert all({*row["participants"]} <= {1, 2, 6} for row in history) and len(history) == 3


def test_a_bug_at_the_coordinator_says_where(monkeypatch):
    """And with DEBUG it is the error itself."""

    def record(self, answers, *rest, **columns):
        if self._tasks.round == 2:
            raise NameError("nobody knows it")
        return recorded(self, answers, *rest, **columns)

    recorded = federation.Federation.record
    monkeypatch.setattr(federation.Federation, "record", record)
    assert re.search(r"NameError at the coordinator, in test_faults\.py, line \d+: nobody", run("v6_fedavg")["stopped"])
    monkeypatch.setenv("V6_FEDERATED_DEBUG", "1")
    with pytest.raises(NameError, match="nobody knows it"):
        run("v6_fedavg")
