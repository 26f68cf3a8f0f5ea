"""JSON from others."""

import json

import pytest

from v6_federated.base.errors import SafeError
from v6_federated.base.json_text import MOST_LEVELS, check_levels, parse


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
        check_levels(nested(MOST_LEVELS + 1, kind))


@pytest.mark.parametrize("text", ["[" * 500, "[" * 10**6, '{"a":' * 10**6, "[" * 10**5 + "]" * 10**5])
def test_no_text_runs_out_of_stack(text):
    with pytest.raises(ValueError):
        parse(text)


@pytest.mark.parametrize("value", [None, 1, "text", [], {}, [[], {"a": []}]])
def test_what_is_not_deep_passes(value):
    assert parse(json.dumps(value)) == value
