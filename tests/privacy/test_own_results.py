"""Hospitals' own results under masks: nothing of one hospital leaves, whatever it is subtracted from."""

import numpy as np
import pytest
from helpers import table, train

from v6_federated.models import details
from v6_federated.privacy.sums import Part
from v6_workbench.simulation.call_outcomes import CallOutcome

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

    from v6_workbench.conformance.jobs import OPEN
    from v6_workbench.simulation.mock import MockNetwork

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
    good = {"counts": [[1] * 10, [2] * 10], "predicted": [0.5] * 10, "brier": [3.0]}
    assert details.wrong(good, True, 0, 2) is None and details.wrong({}, True, 0, 2) is None
    spoilt = [
        None, [], {**good, "more": 1}, {**good, "counts": [[1] * 9] * 2}, {**good, "counts": [[0.5] * 10] * 2},
        {**good, "counts": [[-1] * 10] * 2}, {**good, "brier": [float("nan")]}, {**good, "predicted": [[1], [1, 2]]},
        {**good, "brier": ["x"]}, {**good, "subgroups": [[[1, 0], [0, 1]]]},
    ]  # fmt: skip
    assert all("malformed details" in details.wrong(bad, True, 0, 2) for bad in spoilt)


def test_a_node_whose_details_are_about_other_rows_is_named():
    def lie(organization, input_):
        def alter(answer):
            if organization == 2 and answer.get("details"):
                answer["details"]["counts"][0][0] += 1
            return answer

        return CallOutcome(alter=alter)

    from v6_workbench.conformance.jobs import OPEN
    from v6_workbench.simulation.mock import MockNetwork

    with MockNetwork("v6_fedavg", NODES, environment=OPEN, outcomes=lie, on_round=lambda row: None) as network:
        result = network.run(rounds=1, holdout=0.4, min_responses=1.0)
    assert "organization 2: sent details of other rows" in result["stopped"]


def test_a_part_of_the_details_is_asked_for_as_a_plain_sum_only():
    """A share or a mean of it would be a second equation about the same rows."""
    for weight in ("share", "equal", "rows"):
        with pytest.raises(Exception, match="with the weight|malformed part"):
            from v6_federated.privacy.sums import Sums

            part = Part("predicted", weight, 64, (details.BINS,), 28)
            sums = Sums.from_json({"seq": 1, "block": 1, "rows": 10, "parts": [part.to_json()], "tags": {}})
            sums.check_weights("one")


def test_rounded_sums_of_bins_tell_no_row():
    """All that ``careful`` sends of a bin follows from its rounded count."""
    from v6_federated import models
    from v6_federated.privacy.rounding import Rounding

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
    with pytest.raises(Exception, match="subgroup cannot be used with clip"):
        train("v6_fedavg", NODES, **MASKED, clip=1.0, noise=5.0, subgroup="x0")
