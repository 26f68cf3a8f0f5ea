"""A new job that goes on from the result of an earlier one, and what it refuses to go on from.

That the bits are those of a job in one go is among each method's checks (tests/methods).
"""

import json
from collections import Counter

import numpy as np
import pytest
from helpers import OPEN, train
from vantage6.algorithm.tools.exceptions import UserInputError

from v6_federated.base.errors import SafeError
from v6_federated.central.checkpoint import Checkpoint
from v6_federated.data import preprocessing
from v6_federated.messages import codec
from v6_workbench.conformance.jobs import Tape
from v6_workbench.simulation.call_outcomes import CallOutcome
from v6_workbench.simulation.mock import MockNetwork

OWN = {"rounds": 6, "seed": 3, "preprocess": ["standardize"]}
STEPS = {**OWN, "preprocess": ["impute:median", "standardize", "pca:3"], "lr": 0.3}


@pytest.mark.parametrize("evaluators", [[], [8]])
@pytest.mark.parametrize("named", [True, False])
def test_fitted_steps_are_handed_to_the_nodes_of_the_new_job(evaluators, named, hospitals, monkeypatch):
    """Whether the request names them again or not."""
    monkeypatch.setattr(preprocessing, "LARGE", 1)
    own = {**STEPS, "organizations": [3, 5], "evaluators": evaluators, "holdout": 0} if evaluators else STEPS
    straight = train("v6_fedavg", hospitals, **own)
    half = json.loads(json.dumps(train("v6_fedavg", hospitals, **{**own, "rounds": 3})))
    again, tape = own if named else {**own, "preprocess": []}, Tape()
    with MockNetwork("v6_fedavg", hospitals, environment=OPEN, on_round=lambda row: None, outcomes=tape) as network:
        resumed = network.run(**again, resume=half)
        assert not list(network.folder.glob("node-*/tmp/*"))
    assert resumed["weights"] == straight["weights"] and resumed["data"] == straight["data"]
    functions = Counter(call.function for call in tape.calls)
    assert functions["fit_step"] == 0 and functions["keep_steps"] == 3


def test_a_job_that_stopped_can_be_resumed(hospitals):
    """Node 5 breaks down in round 3, for good; the job ends with the model of round 2, and a new one goes on."""
    calls = []

    def outcomes(organization, input_):
        if organization == 5 and input_["kwargs"]["round"] >= 3:
            calls.append(input_["method"])
            return CallOutcome(status="crashed")
        return CallOutcome()

    with MockNetwork("v6_fedavg", hospitals, environment=OPEN, on_round=lambda row: None, outcomes=outcomes) as network:
        stopped = network.run(**OWN)
    assert stopped["stopped"] == "round 3, client_update: organization 5: run crashed"
    assert calls == ["client_update", "client_update"], "a node that broke down is asked once more"
    assert len(stopped["history"]) == 2
    resumed = train("v6_fedavg", hospitals, **OWN, resume=stopped)
    assert resumed["weights"] == train("v6_fedavg", hospitals, **OWN)["weights"]


@pytest.mark.parametrize("method", ["fedavg", "scaffold", "gbdt", "coop"])
@pytest.mark.parametrize("more", [0, 2])
def test_a_job_that_stopped_at_its_last_evaluation_can_be_resumed(method, more, hospitals):
    """With as many rounds, only the evaluation is made up for."""

    def outcomes(organization, input_):
        last = input_["method"] == "evaluate" and input_["kwargs"].get("last")
        return CallOutcome(status="crashed" if last else "completed")

    own = {"rounds": 3, "seed": 3, "min_responses": 0.5, "retries": 0}
    with MockNetwork(
        f"v6_{method}", hospitals, environment=OPEN, on_round=lambda row: None, outcomes=outcomes
    ) as network:
        stopped = json.loads(json.dumps(network.run(**own)))
    assert "evaluate: organizations" in stopped["stopped"] and stopped["final"] is None
    resumed = train(f"v6_{method}", hospitals, **{**own, "rounds": 3 + more}, resume=stopped)
    straight = train(f"v6_{method}", hospitals, **{**own, "rounds": 3 + more})
    assert len(resumed["history"]) == 3 + more and None not in [row["loss"] for row in resumed["history"]]
    if not more or method in ("fedavg", "gbdt"):  # what nodes keep was lost with the earlier job
        assert resumed["weights"] == straight["weights"] and resumed["final"] == straight["final"]


@pytest.mark.parametrize("bad", [1, 3])
def test_a_model_that_is_not_finite_is_no_result(bad, hospitals):
    """The model of the round before is the result, and that round the last of its history; without one, the error. Each
    node's model is finite, their step at the server is not."""
    settings = {**OWN, "global_lr": 2.0}
    two = train("v6_scaffold", hospitals, **{**settings, "rounds": 2})

    def alter(answer):
        return answer | {"arrays": codec.encode({"dy": np.full(5, 3.4e38)}), "travelled": 1e9}

    def outcomes(organization, input_):
        broken = input_["method"] == "client_update" and input_["kwargs"]["round"] == bad
        return CallOutcome(alter=alter if broken else None)

    with (
        MockNetwork(
            "v6_scaffold", hospitals, environment=OPEN, on_round=lambda row: None, outcomes=outcomes
        ) as network,
        np.errstate(over="ignore"),
    ):
        if bad == 1:
            with pytest.raises(SafeError, match="not finite"):
                network.run(**settings)
            return
        result = network.run(**settings)
    assert "not finite" in result["stopped"] and result["weights"] == two["weights"]
    assert [row["round"] for row in result["history"]] == [1, 2]
    assert {row["round"] for row in result["per_node"]} == {1, 2}


def test_a_disk_that_is_gone_at_the_end_costs_no_model(hospitals, monkeypatch):
    def gone(self):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Checkpoint, "remove", gone)
    assert len(train("v6_fedavg", hospitals, **OWN)["history"]) == OWN["rounds"]


# ---- what is refused


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"resume": {}}, "a result of the method None; expected one of 'fedavg'"),
        ({"resume": {"method": "scaffold"}}, "a result of the method 'scaffold'; expected one of 'fedavg'"),
        ({"resume": {"method": "fedavg"}}, "not a result"),
        ({"rounds": 2}, "the earlier job has 2 rounds already"),
        ({"model": "svm"}, "the earlier job had the model 'logreg'"),
        ({"preprocess": ["standardize"]}, r"the earlier job had the steps \[\]; expected the same"),
    ],
)
def test_what_cannot_be_resumed_is_refused(change, says, hospitals):
    half = train("v6_fedavg", hospitals, rounds=2)
    with pytest.raises(UserInputError, match=says):
        train("v6_fedavg", hospitals, **{"rounds": 4, "resume": half, **change})


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("data", {}),
        ("history", []),
        ("history", [{}]),
        ("history", 3),
        ("per_node", 3),
        ("per_node", [{}]),
        ("traffic", {}),
        ("undescribed", {}),
        ("settings", 3),
        ("state", 3),
        ("weights", "x"),
        ("model", {"name": "logreg", "features": 4, "classes": -1}),
    ],
    ids=str,
)
@pytest.mark.parametrize("package", ["v6_fedavg", "v6_coop"])
def test_a_spoilt_result_is_refused_in_one_line(package, part, value, hospitals):
    half = train(package, hospitals, rounds=2)
    says = rf"resume: not a result \({part}.*\); expected the whole result\.json"
    with pytest.raises(UserInputError, match=says) as error:
        train(package, hospitals, rounds=4, resume={**half, part: value})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"organizations": [3, 5]}, r"organizations=\[3, 5, 8\]; expected the same, not \[3, 5\]"),
        ({"holdout": 0.5}, "holdout=0.2; expected the same, not 0.5"),
        ({"label": "x0"}, "label='label'; expected the same, not 'x0'"),
        ({"features": ["x0"]}, r"features=\['x0', 'x1', 'x2', 'x3'\]; expected the same, not \['x0'\]"),
        ({"classes": ["no", "yes"]}, r"classes=\[0, 1\]; expected the same, not \['no', 'yes'\]"),
        ({"preprocess": ["clip:0.4"]}, r"the earlier job had the steps \['clip:0.05'\]; expected the same"),
    ],
)
def test_other_hospitals_or_rows_are_refused(change, says, hospitals):
    half = train("v6_dynavg", hospitals, rounds=2, protocol="loss", preprocess=["clip:0.05"])
    with pytest.raises(UserInputError, match=says):
        train("v6_dynavg", hospitals, rounds=4, protocol="loss", resume=half, **change)
