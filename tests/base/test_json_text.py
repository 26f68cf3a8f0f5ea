"""JSON from others."""

import json

import pytest

from v6_federated.base.errors import SafeError
from v6_federated.base.json_text import MOST_LEVELS, check, parse


def nested(levels, kind="list"):
    value = 1
    for _ in range(levels):
        value = [2, value, 3] if kind == "list" else {"a": 1, "b": value}
    return value


@pytest.mark.parametrize("kind", ["list", "dict"])
def test_nesting_is_bounded(kind):
    fits = nested(MOST_LEVELS, kind)
    assert parse(json.dumps(fits)) == fits
    with pytest.raises(SafeError, match=f"JSON of more than {MOST_LEVELS} levels; expected"):
        check(nested(MOST_LEVELS + 1, kind))


@pytest.mark.parametrize("text", ["[" * 500, "[" * 10**6, '{"a":' * 10**6, "[" * 10**5 + "]" * 10**5])
def test_no_text_runs_out_of_stack(text):
    with pytest.raises(ValueError):
        parse(text)


@pytest.mark.parametrize("value", [None, 1, "text", [], {}, [[], {"a": []}]])
def test_what_is_not_deep_passes(value):
    assert parse(json.dumps(value)) == value


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1, 10**400])
def test_whole_numbers_have_at_most_64_bits(number):
    """Other readers refuse them, each in a way of its own."""
    for value in (number, [number], {"a": [{"b": number}]}):
        with pytest.raises(SafeError, match="JSON with a whole number of more than 64 bits; expected smaller numbers"):
            parse(json.dumps(value))
    assert parse("[18446744073709551615, -9223372036854775808, 1e300]") == [2**64 - 1, -(2**63), 1e300]
