"""A plan is read, written and checked."""

import json
import math

import pytest

from v6_federated.base.errors import SafeError
from v6_federated.noise.plan import RANGES, Plan

FIELDS = {
    "clip": 1.0,
    "noise": 1.5,
    "rate": 0.1,
    "steps": 100,
    "steps_per_epoch": 10,
    "evaluations": 10,
    "evaluation_noise": 20.0,
    "statistics": 2,
    "statistics_noise": 15.0,
    "holdout": 0.2,
}


def test_a_plan_is_written_and_read():
    plan = Plan(**FIELDS)
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
    assert plan.to_json() == FIELDS and list(FIELDS) == list(RANGES)
    assert len({plan, Plan(**FIELDS), Plan(**FIELDS | {"steps": 101})}) == 2


def test_equal_plans_are_written_alike():
    assert json.dumps(Plan(**FIELDS | {"clip": 1}).to_json()) == json.dumps(Plan(**FIELDS).to_json())


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        ("noise", 0, "a number from 0.1 to 1,000,000"),
        ("noise", math.nan, "a number from"),
        ("noise", math.inf, "a number from"),
        ("noise", "1", "a number from"),
        ("evaluation_noise", 0.05, "a number from 0.1 to 1,000,000"),
        ("statistics_noise", -1.0, "a number from 0.1"),
        ("rate", 0.0, "a number from 1e-06 to 1"),
        ("rate", 1.01, "a number from"),
        ("clip", 0.0, "a number from 1e-06 to 1,000,000"),
        ("clip", None, "a number from"),
        ("steps", -1, "a whole number from 0 to 1,000,000"),
        ("steps", 1.0, "a whole number"),
        ("steps", True, "a whole number"),
        ("steps", 10**400, "a whole number"),
        ("evaluations", 1_000_001, "a whole number"),
        ("statistics", [1], "a whole number"),
    ],
)
def test_what_is_out_of_range_is_refused(name, value, accepted):
    with pytest.raises(SafeError, match=f"^{name} of a privacy plan must be {accepted}"):
        Plan.from_json(FIELDS | {name: value})


@pytest.mark.parametrize("message", [None, [], {}, FIELDS | {"more": 1}, {k: FIELDS[k] for k in list(FIELDS)[1:]}])
def test_what_is_no_plan_is_refused(message):
    with pytest.raises(SafeError, match="must have exactly these fields: clip, noise, rate"):
        Plan.from_json(message)
