"""Random numbers from a seed and a purpose."""

import pytest

from v6_federated.base.randomness import generator

ARGUMENTS = (0, "shuffle", 1, 1)


@pytest.mark.parametrize("other", [(1, "shuffle", 1, 1), (0, "init", 1, 1), (0, "shuffle", 2, 1), (0, "shuffle", 1, 2)])
def test_every_argument_gives_other_random_numbers(other):
    assert generator(*other).random() != generator(*ARGUMENTS).random()


def test_random_numbers_do_not_depend_on_earlier_calls():
    first = generator(*ARGUMENTS).random(5).tolist()
    generator(7, "else", 3, 2).random(100)
    assert generator(*ARGUMENTS).random(5).tolist() == first


def test_random_numbers_are_the_same_in_every_version():
    """A change of these would change every published result."""
    assert generator(0, "shuffle", 1, 1).integers(1_000_000, size=3).tolist() == [914903, 306337, 283016]
