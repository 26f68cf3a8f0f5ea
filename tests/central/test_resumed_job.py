"""A new job that goes on from the result of an earlier one, and what it refuses to go on from.

That the bits are those of a job in one go is among each method's checks (tests/methods).
"""

import json
from collections import Counter

import numpy as np
import pandas as pd
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


# ---- settings that further rounds cannot change any more

SURVIVAL = {"label": "t", "event": "e1", "features": ["x"]}
COUNTS = {"family": "poisson", "label": "count", "features": ["x"], "offset": "o1", "weights": "w1", "l2": 0.5}
CLASSES = {"label": "y", "features": ["x"], "rounds": 2}


@pytest.fixture(scope="module")
def patients():
    """Three hospitals' rows with two columns of each role."""
    rng = np.random.default_rng(4)
    rows = {}
    for k in (3, 5, 8):
        x = rng.normal(size=80)
        rows[k] = pd.DataFrame({"x": x, "x2": rng.normal(size=80), "y": (x + rng.normal(size=80) > 0).astype(int)})
        for i in (1, 2):
            own = {"o": rng.normal(size=80), "w": rng.integers(1, 5, 80), "e": rng.integers(0, 2, 80)}
            own["g"] = rng.choice(["a", "b"], 80)
            rows[k] = rows[k].assign(**{f"{name}{i}": column for name, column in own.items()})
        rows[k] = rows[k].assign(t=rng.exponential(size=80) + 0.01, count=rng.poisson(np.exp(0.3 * x)))
    return rows


@pytest.mark.parametrize(
    ("package", "before", "change", "says"),
    [
        ("v6_glm", COUNTS, {"offset": "o2"}, "offset='o1'; expected the same, not 'o2'"),
        ("v6_glm", COUNTS, {"weights": "w2"}, "weights='w1'; expected the same, not 'w2'"),
        ("v6_glm", {**COUNTS, "weights": None}, {"weights": "w2"}, "no weights; expected the same, not 'w2'"),
        ("v6_glm", COUNTS, {"l2": 1.0}, "l2=0.5; expected the same, not 1.0"),
        (
            "v6_glm",
            COUNTS,
            {"family": "gaussian"},
            "model 'glm' with family='poisson', link='log'; expected the same, not 'glm' with family='gaussian', "
            "link='identity'",
        ),
        ("v6_cox", SURVIVAL, {"event": "e2"}, "event='e1'; expected the same, not 'e2'"),
        ("v6_cox", SURVIVAL, {"ties": "breslow"}, "ties='efron'; expected the same, not 'breslow'"),
        ("v6_cox", SURVIVAL, {"strata": "none"}, "strata='hospital'; expected the same, not 'none'"),
        ("v6_cox", {**SURVIVAL, "strata": "none"}, {"bins": 9}, "bins=50; expected the same, not 9"),
        ("v6_cox", {**SURVIVAL, "strata": "none"}, {"grid": [1.0]}, r"no grid; expected the same, not \[1.0\]"),
        ("v6_fedavg", {**CLASSES, "subgroup": "g1"}, {"subgroup": "g2"}, "subgroup='g1'; expected the same, not 'g2'"),
        ("v6_fedavg", CLASSES, {"subgroup": "g2"}, "no subgroup; expected the same, not 'g2'"),
        ("v6_fedavg", CLASSES, {"features": None, "exclude": ["x2"]}, r"no exclude; expected the same, not \['x2'\]"),
        ("v6_fedavg", CLASSES, {"start_from": "a.npz"}, "no start_from; expected the same, not 'a.npz'"),
        ("v6_fedavg", CLASSES, {"class_weights": "balanced"}, "no class_weights; expected the same, not 'balanced'"),
        ("v6_fedavg", CLASSES, {"clip": 1.0, "epsilon": 1.0}, "no clip, so its model may tell more about rows"),
        ("v6_fedavg", {**CLASSES, "loss": "cox", **SURVIVAL}, {"event": "e2"}, "event='e1'; expected the same"),
        ("v6_colearning", CLASSES, {"epochs": 4}, "epochs=1; expected the same, not 4"),
        ("v6_gbdt", CLASSES, {"max_bin": 9}, "max_bin=64; expected the same, not 9"),
        (
            "v6_gbdt",
            {**CLASSES, "mode": "cyclic", "prediction": "vote"},
            {"prediction": "sum"},
            "prediction='vote'; expected the same, not 'sum'",
        ),
    ],
)
def test_settings_that_would_be_ignored_are_refused(package, before, change, says, patients):
    """The earlier model answers another question, and rounds of the new job would not change that."""
    half = json.loads(json.dumps(train(package, patients, **before)))
    with pytest.raises(UserInputError, match=f"resume: the earlier job had (the )?{says}") as error:
        train(package, patients, **{**before, "rounds": 40, "resume": half, **change})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("package", "before", "left_out"),
    [
        ("v6_glm", COUNTS, ("offset", "weights")),
        ("v6_cox", SURVIVAL, ("event",)),
        ("v6_fedavg", {**CLASSES, "subgroup": "g1"}, ("subgroup",)),
    ],
)
def test_columns_that_are_not_named_again_are_those_of_the_earlier_job(package, before, left_out, patients):
    """The result says so too."""
    half = train(package, patients, **before)
    again = {name: value for name, value in before.items() if name not in left_out}
    result = train(package, patients, **{**again, "rounds": 40}, resume=half)
    for name in left_out:
        assert result["settings"][name] == result["data"][name] == before[name]


def test_settings_of_further_rounds_may_change(patients):
    half = train("v6_fedavg", patients, **CLASSES)
    new = {"rounds": 4, "lr": 0.5, "epochs": 3, "fraction": 0.7, "seed": 9, "evaluate_every": 2, "precision": "float16"}
    result = train("v6_fedavg", patients, **{**CLASSES, **new}, resume=half)
    assert len(result["history"]) == 4 and {name: result["settings"][name] for name in new} == new
    half = train("v6_glm", patients, **COUNTS)
    result = train("v6_glm", patients, **COUNTS, rounds=40, confidence=0.9, tolerance=1e-6, resume=half)
    assert result["confidence"] == 0.9
