"""Who takes part, as a message says it."""

import pytest

from v6_federated.base.errors import SafeError
from v6_federated.messages.organizations import RUN, Organizations, counted, named

MANY = [*range(3, 3 + RUN), 500, 502, *range(1000, 21_000)]


def test_consecutive_ids_are_named_by_the_first_and_the_last():
    assert named(MANY) == [[3, 102], 500, 502, [1000, 20_999]]
    assert named([3, 5, 8]) == [3, 5, 8] and named(range(1, RUN)) == [*range(1, RUN)] and named([]) == []


def test_they_are_read_as_they_were():
    found = Organizations(named(MANY))
    assert [*found] == MANY and len(found) == len(MANY)
    assert 3 in found and 20_999 in found and 501 not in found and "3" not in found and 103 not in found


@pytest.mark.parametrize(
    "said",
    ["358", None, 7, {"1": 2}, [1.0], ["1"], [True], [1, 1], [[1, 1]], [[3, 1]], [[1, 2, 3]], [[1, True]], [[1, 9], 5],
     [[1, 9], [9, 12]], [[-5, 5]], [[0, 2**64 - 1]], [[[1, 2], 3]], [None]],
)  # fmt: skip
def test_what_is_no_list_of_ids_is_refused(said):
    with pytest.raises(SafeError, match="the job does not list who takes part"):
        Organizations(said)
    assert counted(said) is None


def test_nobody_trains_and_only_evaluates():
    some = Organizations([[1, 100], 200])
    assert some.isdisjoint(Organizations([101, 199])) and some.isdisjoint(Organizations([]))
    for others in ([100], [200], [[150, 300]], [[50, 60]]):
        assert not some.isdisjoint(Organizations(others)) and not Organizations(others).isdisjoint(some)


def test_a_few_bytes_do_not_name_more_ids_than_a_node_can_go_through():
    assert counted([[1, 10**6]]) == 10**6
    for said in ([[1, 10**6 + 1]], [[1, 2**52]], [0, [1, 10**6]]):
        assert counted(said) is None
