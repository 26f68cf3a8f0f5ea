"""Texts for messages."""

from v6_federated.base.text import shortened


def test_long_lists_are_shortened():
    assert shortened("abcd", 3) == "a, b, c and 1 more" and shortened("abc", 3) == "a, b, c" and shortened([7]) == "7"
