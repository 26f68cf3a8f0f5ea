"""Random numbers from a seed and a purpose."""

from v6_federated.base.randomness import generator


def test_random_numbers_depend_on_what_they_are_for():
    draws = [
        generator(*a).random() for a in [(0, "a", 1, 1), (1, "a", 1, 1), (0, "b", 1, 1), (0, "a", 2, 1), (0, "a", 1, 2)]
    ]
    assert len(set(draws)) == 5
    assert generator(0, "a", 1, 1).random() == draws[0]
