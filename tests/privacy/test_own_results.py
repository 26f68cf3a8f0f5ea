"""Hospitals' own results under masks: nothing of one hospital leaves, whatever it is subtracted from."""

from types import SimpleNamespace

import helpers
import numpy as np
import pytest
from helpers import OPEN, table, train

from v6_federated import models
from v6_federated.central.answer import Answer
from v6_federated.central.last_evaluation import LastEvaluation
from v6_federated.central.rounds import Group
from v6_federated.data.source import Rows
from v6_federated.gate import own_results
from v6_federated.messages import codec
from v6_federated.messages.job import DataSpec
from v6_federated.models import details
from v6_workbench.simulation.call_outcomes import CallOutcome
from v6_workbench.simulation.mock import MockNetwork

NODES = {k: table(60, seed=k) for k in (1, 2, 3)}
MASKED = {"rounds": 1, "aggregation": "masked", "holdout": 0.4}


def answered(environments=None, **settings):
    """What each node answers to the evaluation of the last model, and the result."""
    answers = {}

    def keep(organization, input_):
        def alter(answer):
            if input_["method"] == "evaluate" and input_["kwargs"].get("last"):
                answers[organization] = dict(answer)
            return answer

        return CallOutcome(alter=alter)

    with MockNetwork(
        "v6_fedavg", NODES, environment=OPEN, environments=environments, outcomes=keep, on_round=lambda row: None
    ) as network:
        return answers, network.run(**{**MASKED, **settings})


def test_a_pooled_sum_minus_the_willing_would_be_the_one_that_refuses():
    """Two of three operators let their own results leave: under masks these do not leave either."""
    answers, result = answered(environments={2: {"V6_FEDERATED_OWN_RESULTS": "0"}})
    assert {*answers} == {1, 2, 3}
    for answer in answers.values():
        assert {*answer} == {"organization_id", "round", "T", "y32", "y64"}, "masked words and nothing else"
    assert "by_hospital" not in result and "sums only" in result["privacy"]["own_results"]
    # with plain answers central has seen the third one's counts anyway, and the result does not show them
    answers, result = answered(environments={2: {"V6_FEDERATED_OWN_RESULTS": "0"}}, aggregation="plain")
    assert answers[2]["own_results"] is False and answers[2]["evaluation"]["n"] > 0
    assert [row["organization"] for row in result["by_hospital"]] == [1, 3]


def test_what_a_dishonest_node_counts_in_addition_is_checked():
    good = {"counts": np.repeat([[1.0], [2.0]], 10, axis=1), "predicted": np.full(10, 0.5), "brier": np.array([3.0])}
    assert details.wrong(good, True, 0, 2) is None and details.wrong({}, True, 0, 2) is None
    spoilt = [
        {"more": np.ones(1)}, {"counts": np.ones((2, 9))}, {"counts": np.full((2, 10), 0.5)},
        {"counts": np.full((2, 10), -1.0)}, {"brier": np.array([np.nan])}, {"predicted": np.ones((2, 10))},
        {"brier": np.array(3.0)}, {"subgroups": np.ones((1, 2, 2))},
    ]  # fmt: skip
    assert all("malformed details" in details.wrong({**good, **bad}, True, 0, 2) for bad in spoilt)


@pytest.mark.parametrize("sent", [[], "x", {}, {"counts": [[1] * 10] * 2}, {"dtype": "int8", "shapes": {}, "data": ""}])
def test_details_that_are_no_payload_are_refused(sent):
    answer = Answer(2, 40, {}, {"evaluation": {"n": 40}, "details": sent}, 0, 0, "evaluate")
    spec = DataSpec(classes=[0, 1])
    shown = LastEvaluation(SimpleNamespace(data=spec, privacy=None), models.build(helpers.JOB["model"]), None)
    group = shown.asked(Group("evaluate", [2], None))
    assert "details of its evaluation that cannot be used" in group.expected.validate(answer)


def test_a_node_whose_details_are_about_other_rows_is_named():
    def lie(organization, input_):
        def alter(answer):
            if organization == 2 and answer.get("details"):
                sent = codec.decode(answer["details"])
                sent["counts"][0, 0] += 1
                answer["details"] = codec.encode(sent, "float64")
            return answer

        return CallOutcome(alter=alter)

    with MockNetwork("v6_fedavg", NODES, environment=OPEN, outcomes=lie, on_round=lambda row: None) as network:
        result = network.run(rounds=1, holdout=0.4, min_responses=1.0)
    assert "organization 2: sent details of other rows" in result["stopped"]


def test_details_are_plain_sums_only():
    """A share or a mean of them would be a second equation about the same rows."""
    for summand in details.summands(True, 2, 2).values():
        assert [item.weight for item in summand.items("x", None)] == ["one"]


def test_rounded_sums_of_bins_tell_no_row():
    """All that ``careful`` sends of a bin follows from its rounded count."""
    from v6_federated import models
    from v6_federated.rules.rounding import Rounding

    model = models.build({"name": "logreg", "features": 1, "classes": 2})
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 1)).astype(np.float32), rng.integers(0, 2, 40)
    w = np.array([3, 0], np.float32)
    found = details.calibration(model, w, X, y, Rounding(5, 1))
    assert np.allclose(found["predicted"], details.MIDDLES * found["counts"].sum(axis=0))
    moved = X.copy()
    moved[7] += 1e-3  # within its bin
    assert all(np.array_equal(a, b) for a, b in zip(
        found.values(), details.calibration(model, w, moved, y, Rounding(5, 1)).values(), strict=True
    ))  # fmt: skip


def test_noise_has_no_own_results_in_its_answers():
    answers, result = answered(clip=1.0, noise=5.0)
    assert all("details" not in a and "own_results" not in a for a in answers.values()) and "curves" not in result
    with pytest.raises(Exception, match="subgroup=x0 cannot be used with clip"):
        train("v6_fedavg", NODES, **MASKED, clip=1.0, noise=5.0, subgroup="x0")


@pytest.mark.parametrize("overflow", [0, 1, 30])
def test_a_hospitals_own_results_are_computed_whatever_a_row_is(overflow):
    """Nothing of them leaves, but an early end for one row whose score is not finite would show in the run's time."""
    model, rng = models.build({"name": "logreg", "features": 2, "classes": 2}), np.random.default_rng(0)
    X, y = rng.normal(size=(30, 2)).astype(np.float32), rng.integers(0, 2, 30)
    X[:overflow] = 1e38
    job = SimpleNamespace(key="k", method="fedavg", model=helpers.JOB["model"], data=DataSpec(classes=[0, 1]))
    node = SimpleNamespace(job=job, model=model)
    with np.errstate(all="ignore"):
        found = own_results.results(node, np.array([9, 9, 0], np.float32), Rows(X, y))
    assert found["evaluated"] == 30 - overflow and ("brier" in found) == (overflow < 30)
