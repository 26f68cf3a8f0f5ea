"""The policy is read from a node's environment; a limit that cannot be read stops everything."""

import numpy as np
import pytest

from v6_federated.base.vantage6_api import NodePermissionException, PrivacyThresholdViolation
from v6_federated.rules.environment import number_of_threads
from v6_federated.rules.limits import LIMITS
from v6_federated.rules.policy import Policy


def test_without_a_profile_a_node_is_careful():
    assert Policy.of_node({}) == Policy.of("careful")
    assert Policy.of_node({"PATH": "/bin", "V6_FEDERATED_MINIMUM_ROWS": " "}) == Policy.of("careful")


def test_every_limit_of_careful_is_as_strict_as_that_of_trusting():
    trusting, careful = Policy.of("trusting"), Policy.of("careful")
    for limit in LIMITS:
        name = limit.name.lower()
        assert not limit.looser(getattr(careful, name), getattr(trusting, name)), limit.name


def test_a_limit_that_follows_another_follows_its_variable():
    policy = Policy.of_node({"V6_FEDERATED_MINIMUM_ROWS": "50", "V6_FEDERATED_MINIMUM_ORGANIZATIONS": "4"})
    assert (policy.minimum_batch, policy.minimum_sample) == (50, 4)


@pytest.mark.parametrize(
    ("profile", "says"),
    [
        (
            "private",
            "V6_FEDERATED_PROFILE=private needs a privacy budget; set V6_FEDERATED_EPSILON, for example 3, and",
        ),
        ("paranoid", "V6_FEDERATED_PROFILE=paranoid of this node must be trusting, careful or private;"),
    ],
)
def test_a_profile_that_does_not_exist_is_refused(profile, says):
    with pytest.raises(NodePermissionException, match=says):
        Policy.of_node({"V6_FEDERATED_PROFILE": profile})


@pytest.mark.parametrize(
    ("variables", "looser"),
    [
        ({}, []),
        ({"MINIMUM_ROWS": "9"}, ["MINIMUM_ROWS", "MINIMUM_BATCH"]),
        ({"MINIMUM_ROWS": "20", "MAXIMUM_ROUNDS": "5", "DISALLOWED_COLUMNS": "ssn", "ALLOWED_COLUMNS": "age"}, []),
        ({"CLASSES": "0,1,7"}, ["CLASSES"]),
        ({"CLASSES": "*"}, ["CLASSES"]),
        ({"OWN_SHUFFLE": "0", "ALLOW_QUERIES": "1"}, ["OWN_SHUFFLE", "ALLOW_QUERIES"]),
        ({"MAXIMUM_PARAMETERS": "3000000"}, ["MAXIMUM_PARAMETERS"]),
    ],
)
def test_limits_that_are_looser_than_the_profile_are_named(variables, looser):
    assert Policy.of_node({f"V6_FEDERATED_{name}": value for name, value in variables.items()}).looser() == looser


def test_every_limit_is_read_from_its_variable():
    values = {
        "aggregation": "masked",
        "minimum_rows": 21,
        "minimum_rows_a_class": 22,
        "maximum_classes": 23,
        "minimum_batch": 24,
        "minimum_sample": 3,
        "minimum_rows_a_side": 29,
        "minimum_rows_a_column": 30,
        "maximum_local_steps": 34,
        "maximum_parameters": 31,
        "maximum_rounds_a_week": 32,
        "round_evaluations": True,
        "allow_queries": True,
        "allow_numeric_names": True,
        "classes": frozenset({"ill", "well"}),
        "minimum_organizations": 25,
        "maximum_holdout": 33,
        "maximum_rounds": 26,
        "maximum_seconds": 27,
        "score_bands": 28,
        "own_shuffle": True,
        "own_results": True,
        "allowed_columns": frozenset({"age", "sex"}),
        "disallowed_columns": frozenset({"ssn"}),
    }
    text = {
        "own_shuffle": "1",
        "own_results": "1",
        "round_evaluations": "1",
        "allow_queries": "1",
        "allow_numeric_names": "1",
        "classes": "ill,well",
        "allowed_columns": "age, sex",
        "disallowed_columns": "ssn,",
    }
    budget = {"epsilon": 3.0, "delta": 1e-5, "epsilon_per_job": 0.5}
    environment = {f"V6_FEDERATED_{k.upper()}": text.get(k, str(v)) for k, v in (values | budget).items()}
    private = Policy.of_node({**environment, "V6_FEDERATED_PROFILE": "private"})
    assert private == Policy("private", **values, **budget)
    assert {k.upper() for k in values | budget} == {limit.name for limit in LIMITS}


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"EPSILON": "0"}, "V6_FEDERATED_EPSILON of this node must be a number above 0; correct it"),
        ({"EPSILON": "inf"}, "V6_FEDERATED_EPSILON of this node must be a number above 0; correct it"),
        ({"EPSILON": "three"}, "V6_FEDERATED_EPSILON of this node must be a number above 0; correct it"),
        ({"DELTA": "1"}, "V6_FEDERATED_DELTA of this node must be below 1, for example 1e-5"),
        ({"DELTA": ""}, "needs a privacy budget; set V6_FEDERATED_EPSILON, for example 3, and V6_FEDERATED_DELTA"),
        ({"PROFILE": "careful"}, "V6_FEDERATED_EPSILON of this node counts only with V6_FEDERATED_PROFILE=private"),
    ],
)
def test_a_budget_that_cannot_be_read_is_refused(variables, says):
    whole = {"PROFILE": "private", "EPSILON": "3", "DELTA": "1e-5", **variables}
    with pytest.raises(NodePermissionException, match=says):
        Policy.of_node({f"V6_FEDERATED_{name}": text for name, text in whole.items()})


@pytest.mark.parametrize("name", ["MINIMUM_ROWS", "MAXIMUM_ROUNDS", "SCORE_BANDS", "OWN_SHUFFLE"])
@pytest.mark.parametrize("text", ["ten", "-1", "1.5", "1e3", "\N{SUPERSCRIPT TWO}", "9" * 16, "9" * 5000, "'5'"])
def test_a_limit_that_cannot_be_read_stops_everything(name, text):
    accepted = "0 or 1" if name == "OWN_SHUFFLE" else "a whole number of at most 15 digits"
    with pytest.raises(NodePermissionException) as refusal:
        Policy.of_node({f"V6_FEDERATED_{name}": text})
    assert str(refusal.value) == (
        f"V6_FEDERATED_{name} of this node must be {accepted}; correct it in algorithm_env of the node's "
        "configuration. Nothing was computed."
    )


def test_a_switch_is_0_or_1():
    with pytest.raises(NodePermissionException, match="V6_FEDERATED_ALLOW_QUERIES of this node must be 0 or 1;"):
        Policy.of_node({"V6_FEDERATED_ALLOW_QUERIES": "2"})


def test_listing_classes_is_stricter_than_trusting_which_allows_all():
    policy = Policy.of_node({"V6_FEDERATED_PROFILE": "trusting", "V6_FEDERATED_CLASSES": "ill,well"})
    assert policy.looser() == []


@pytest.mark.parametrize("text", ["*", " * "])
def test_a_star_allows_all_classes(text):
    assert Policy.of_node({"V6_FEDERATED_CLASSES": text}).classes is None


@pytest.mark.parametrize(
    "limit", [it for it in LIMITS if it.kind == "number" and it.careful is not None], ids=lambda it: it.name
)
def test_every_number_is_looser_in_one_direction(limit):
    own = getattr(Policy.of("careful"), limit.name.lower())
    up, down = (f"{own + step}" for step in (1, -1))
    looser, stricter = (down, up) if limit.stricter == "higher" else (up, down)
    assert limit.name in Policy.of_node({f"V6_FEDERATED_{limit.name}": looser}).looser()
    assert limit.name not in Policy.of_node({f"V6_FEDERATED_{limit.name}": stricter}).looser()


@pytest.mark.parametrize("name", ["v6_federated_minimum_rows", "V6_FEDERATED_minimum_rows"])
def test_a_limit_in_lower_case_is_misspelt(name):
    with pytest.raises(NodePermissionException, match=f"{name} is not .* did you mean V6_FEDERATED_MINIMUM_ROWS[?]"):
        Policy.of_node({name: "50"})


def test_a_misspelt_limit_is_named_with_the_right_one():
    with pytest.raises(NodePermissionException) as refusal:
        Policy.of_node({"V6_FEDERATED_MINIMUM_ROW": "50"})
    assert str(refusal.value) == (
        "V6_FEDERATED_MINIMUM_ROW is not a setting of a node; did you mean V6_FEDERATED_MINIMUM_ROWS? "
        "Nothing was computed."
    )


def test_an_unknown_limit_is_refused_with_the_list_of_limits():
    with pytest.raises(NodePermissionException) as refusal:
        Policy.of_node({"V6_FEDERATED_XYZ": "1"})
    assert all(f"V6_FEDERATED_{limit.name}" in str(refusal.value) for limit in LIMITS)


@pytest.mark.parametrize(("name", "text"), [("DEVICE", "tpu"), ("DEVICE", "cuda:x"), ("SCORE_BANDS", "10001")])
def test_a_device_or_a_number_of_bands_that_is_not_accepted_is_refused(name, text):
    accepted = {"DEVICE": "must be cpu, cuda or cuda:NUMBER;", "SCORE_BANDS": "must be 10000 at most;"}[name]
    with pytest.raises(NodePermissionException, match=f"V6_FEDERATED_{name}={text} of this node {accepted}"):
        Policy.of_node({f"V6_FEDERATED_{name}": text})
    for right in ("", "cpu", "cuda", "cuda:1"):
        Policy.of_node({"V6_FEDERATED_DEVICE": right})


def test_the_number_of_threads_is_one_unless_the_operator_gives_more(monkeypatch):
    monkeypatch.delenv("V6_FEDERATED_THREADS", raising=False)
    assert number_of_threads() == 1
    monkeypatch.setenv("V6_FEDERATED_THREADS", "4")
    assert number_of_threads() == 4
    for wrong in ("\N{SUPERSCRIPT TWO}", "0", "many"):
        monkeypatch.setenv("V6_FEDERATED_THREADS", wrong)
        with pytest.raises(NodePermissionException, match="THREADS of this node must be a whole number from 1"):
            number_of_threads()
        with pytest.raises(NodePermissionException, match="THREADS of this node must be a whole number from 1"):
            Policy.of_node({"V6_FEDERATED_THREADS": wrong})  # before a task computes
    assert number_of_threads({}) == 1 and number_of_threads({"V6_FEDERATED_THREADS": " 3 "}) == 3


@pytest.mark.parametrize(
    ("check", "says"),
    [
        (lambda p: p.check_batch(4), "batch_size=4 is below the 5 rows that this node requires"),
        (lambda p: p.check_leaf(9, None), "min_rows_leaf=9 is below the 10 rows .* set min_rows_leaf=10 or more"),
        (lambda p: p.check_leaf(12, 20), "min_rows_leaf=12 is below the 20 rows .* set min_rows_leaf=20 or more"),
        (lambda p: p.check_rows(9, None), "fewer than 10 rows to compute on"),
        (lambda p: p.check_rows(19, 20), "fewer than 20 rows to compute on"),
        (lambda p: p.check_holdout(0.51), r"holdout=0.51 is more than the 50% that this node allows"),
        (lambda p: p.check_values(["load"]), r"fewer than 10 rows have a value in the column\(s\) load"),
        (lambda p: p.check_classes(101), "the label has more than 100 values"),
        (lambda p: p.check_classes(101, "the column city"), "the column city has more than 100 values"),
        (lambda p: p.check_labels(300, 101, 0), "the label has fewer than 3 rows per value on average"),
        (lambda p: p.check_labels(1000, 2, 101), "the request names 101 classes, but this node accepts at most 100"),
    ],
)
def test_each_check_refuses_what_is_just_beyond_its_limit(check, says):
    with pytest.raises(PrivacyThresholdViolation, match=says):
        check(Policy.of("trusting", minimum_batch=5, maximum_holdout=50))


def test_each_check_passes_what_is_just_within_its_limit():
    policy = Policy.of("trusting", minimum_batch=5, maximum_holdout=50)
    policy.check_batch(5)
    policy.check_holdout(0.5)
    assert policy.check_leaf(10, None) == 10 and policy.check_leaf(20, 20) == 20
    policy.check_rows(10, None)
    policy.check_rows(20, 20)
    policy.check_values([])
    policy.check_classes(100)
    policy.check_labels(300, 100, 100)


def test_a_node_with_a_low_limit_on_classes_accepts_those_that_other_nodes_name():
    Policy.of("trusting", maximum_classes=5).check_labels(1000, 2, 100)


@pytest.mark.parametrize(
    ("weights", "allowed"),
    [
        ([1] * 5 + [0], True),
        ([1] * 4 + [0], False),
        ([100, 1, 1, 1, 1, 1], False),
        ([0] * 6, False),  # nothing was compared: 0 < 5 * 0 is false
        ([1e-200] + [0] * 5, False),  # the square would be 0
        ([1e200] + [1e190] * 5, False),  # the square would be infinite
        ([1e-200] * 6, True),
        ([1e200] * 6, True),
        ([np.inf] + [1] * 5, False),
        ([np.nan] + [1] * 5, False),
        ([], False),
    ],
)
def test_sums_need_several_rows_that_weigh(weights, allowed):
    """Of equal weights (sum w)^2 / sum w^2 is their number, whatever their size."""
    own, w = Policy.of("careful"), np.array(weights, float)
    Policy.of("trusting").check_dominance(w, "")
    if allowed:
        own.check_dominance(w, "")
        return
    with pytest.raises(PrivacyThresholdViolation, match="fewer than 5 rows"):
        own.check_dominance(w, "")


@pytest.mark.parametrize("size", [1.0, 1e-200, 1e200])
def test_a_bin_needs_two_rows_that_weigh_or_none(size):
    careful = Policy.of("careful")
    careful.check_bins(size * np.array([[1.0, 0], [1, 0], [0, 0]]))
    with pytest.raises(PrivacyThresholdViolation, match="one row would outweigh"):
        careful.check_bins(size * np.array([[1.0, 1], [1, 0], [0, 0]]))
