"""Without masks each organization is a block of one, which opens to its own answer; others open whole or not at all."""

import json

import numpy as np
import pytest

from v6_federated import SafeError
from v6_federated.base.vantage6_api import CollectResultsError
from v6_federated.central import blocks
from v6_federated.central.answer import Answer
from v6_federated.central.blocks import SINGLE, Masked, Pinned
from v6_federated.central.calls import Group, Question

TWO = [[1, 4], [2, 3, 5]]


def test_a_block_of_one_opens_to_its_answer_unchanged():
    answer = Answer(7, 40, {"weights": np.ones(3)}, {"train_loss": 0.5}, 10, 20, "client_update")
    question = Question(Group("client_update", [7], None), [[7]], None)
    assert SINGLE.open(question, [7], [answer]) is answer


def test_blocks_of_one_are_asked_in_any_part_and_miss_nobody_else():
    assert SINGLE.whole([3, 1]) == [[3], [1]] and SINGLE.standing([1, 2, 3], {2}) == [[1], [3]]
    assert SINGLE.broken({1, 2, 3}, {2}) == {} and SINGLE.without([2]) == [[2]]
    assert SINGLE.number([1, 2], None) == 2 and SINGLE.number([1, 2], 5) == 5


@pytest.mark.parametrize("kind", [Masked, Pinned])
def test_a_masked_block_is_asked_whole_and_misses_all_if_one_is_missing(kind):
    found = kind(TWO)
    with pytest.raises(SafeError, match="can only be asked as a whole"):
        found.whole([1, 4, 2])
    assert found.standing([1, 2, 3, 4, 5], {3}) == [[1, 4]]
    assert {k: str(why) for k, why in found.broken({1, 2, 3, 4, 5}, {3}).items()} == dict.fromkeys(
        (2, 5), "organization 3 of its block is missing"
    )
    assert [found.number([1, 4], of) for of in (None, 0, 2, 5)] == [1, 0, 1, 2]


@pytest.mark.parametrize("kind", [Masked, Pinned])
def test_a_lost_block_is_left_out_and_the_last_one_is_not_lost(kind):
    found = kind(TWO)
    found.lose([1, 4], CollectResultsError("why"))
    assert found.standing([1, 2, 3, 4, 5]) == [[2, 3, 5]] and str(found.broken({1, 4}, set())[4]) == "why"
    with pytest.raises(CollectResultsError, match="the last one"):
        found.lose([2, 3, 5], CollectResultsError("the last one"))


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("kind", [Masked, Pinned])
def test_blocks_survive_a_checkpoint(kind, again):
    found = kind(TWO, {1: 80}, 9, {"1 f share w": -3}, {2: {"ab": {"cd": "ef"}}}, lost={1: "why"}, absent=[1])
    brought_back = blocks.restored(json.loads(json.dumps(found.snapshot())), again)
    assert type(brought_back) is kind
    assert vars(brought_back) == {**vars(found), "seq": 9 + blocks.LEAP * again}
    assert blocks.restored(SINGLE.snapshot(), again) is SINGLE


def test_only_counts_over_blocks_of_a_study_have_a_least():
    assert [found.least(5) for found in (SINGLE, Masked(TWO), Pinned(TWO))] == [0, 0, 5]
