"""Answers to one request: their sums and means, whatever the order in which they arrive."""

import itertools

import numpy as np
import pytest

from v6_federated import Answer, Answers


def answer(organization, n, weights, **values):
    arrays = {"weights": np.asarray(weights, np.float32), "c": np.full(2, organization, np.float32)}
    return Answer(organization, n, arrays, values, 10, 20, "client_update")


THREE = [answer(3, 10, [1.0, 2.0]), answer(5, 30, [5.0, -2.0]), answer(8, 60, [0.0, 4.0])]


def test_the_weighted_mean_weighs_by_rows():
    # (10 * 1 + 30 * 5 + 60 * 0) / 100 and (10 * 2 - 30 * 2 + 60 * 4) / 100
    found = Answers(THREE).weighted_mean("weights")
    np.testing.assert_array_equal(found, np.float32([1.6, 2.0]))
    assert found.dtype == np.float32


def test_the_mean_counts_every_node_the_same():
    np.testing.assert_array_equal(Answers(THREE).mean("weights"), np.float32([2.0, 4 / 3]))


def test_the_sum_adds_the_named_array():
    np.testing.assert_array_equal(Answers(THREE).sum("c"), np.float32([16, 16]))
    np.testing.assert_array_equal(Answers(THREE).sum("weights"), np.float32([6, 4]))


def test_combine_takes_the_weights_of_the_method():
    answers = [answer(1, 1, [1.0, 2.0], loss=4.0), answer(2, 1, [3.0, 5.0], loss=0.5)]
    found = Answers(answers).combine("weights", lambda a: a.values["loss"])
    np.testing.assert_array_equal(found, np.float32([5.5, 10.5]))  # 4 * 1 + 0.5 * 3, 4 * 2 + 0.5 * 5


def test_an_aggregate_has_the_shape_of_the_arrays():
    matrices = [Answer(k, 1, {"M": np.full((2, 3), k, np.float32)}, {}, 1, 1, "f") for k in (1, 2)]
    np.testing.assert_array_equal(Answers(matrices).sum("M"), np.full((2, 3), 3, np.float32))


@pytest.mark.parametrize("name", ["weighted_mean", "mean", "sum"])
def test_the_order_of_arrival_changes_no_bit(name):
    """2**60 swallows what is added to it, unless -2**60 came before: a plain sum depends on the order."""
    many = [answer(1, 7, [2.0**60, 1]), answer(2, 7, [3.0, 1]), answer(3, 7, [-(2.0**60), 1]), answer(4, 7, [5.0, 1])]
    plain = {sum(np.float64(a["weights"][0]) for a in order) for order in itertools.permutations(many)}
    assert len(plain) > 1
    found = {getattr(Answers(order), name)("weights").tobytes() for order in itertools.permutations(many)}
    assert len(found) == 1
    assert [a.organization_id for a in Answers(many[::-1]).each()] == [1, 2, 3, 4]


def test_sums_keep_what_float32_would_lose():
    answers = Answers([answer(1, 1, [2.0**24, 0]), *(answer(k, 1, [1.0, 0]) for k in range(2, 6))])
    assert answers.sum("weights")[0] == 2**24 + 4, "in float32, 2**24 + 1 is 2**24"


def test_answers_to_two_requests_are_added():
    whole, parts = Answers(THREE), Answers(THREE[2:]) + Answers(THREE[:2])
    assert parts.organizations == whole.organizations == [3, 5, 8]
    assert parts.n == whole.n == 100 and len(parts) == 3
    np.testing.assert_array_equal(parts.weighted_mean("weights"), whole.weighted_mean("weights"))


def test_what_organizations_said_is_found_by_their_ids():
    answers = Answers([answer(8, 1, [0, 0], loss=0.25), answer(3, 1, [0, 0], loss=0.75)])
    assert answers.numbers("loss") == {3: 0.75, 8: 0.25}
    assert [*answers.numbers("loss")] == [3, 8]
