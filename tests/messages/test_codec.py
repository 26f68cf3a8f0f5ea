"""Payloads: arrays as they cross the network."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from v6_federated.base.errors import SafeError
from v6_federated.messages import codec


@given(st.lists(st.integers(0, 5), max_size=3), st.sampled_from(["float32", "float16"]))
def test_payload_round_trip(shape, precision):
    array = np.random.default_rng(0).normal(size=shape).astype(codec.DTYPES[precision])
    payload = json.loads(json.dumps(codec.encode({"a": array, "b": array[..., None]}, precision)))
    decoded = codec.decode(payload)
    np.testing.assert_array_equal(decoded["a"], array.astype(np.float32))
    assert decoded["b"].shape == (*shape, 1)


def test_float64_travels_whole():
    numbers = np.random.default_rng(0).normal(size=(3, 4)) * 1e9
    decoded = codec.decode(json.loads(json.dumps(codec.encode({"a": numbers}, "float64"))))
    np.testing.assert_array_equal(decoded["a"], numbers)


def test_payload_is_little_endian_base64():
    payload = codec.encode({"w": np.array([1.0, -2.0])})
    assert payload == {"dtype": "float32", "shapes": {"w": [2]}, "data": "AACAPwAAAMA="}


@pytest.mark.parametrize(
    "change",
    [
        {"data": "!"},
        {"data": "AACA"},
        {"dtype": "float64"},
        {"shapes": {"w": [3]}},
        {"shapes": {"w": [-2]}},
        {"shapes": {"w": [-1, -2]}},
        {"shapes": {"w": [2**41, 0], "v": [2]}},
        {"shapes": {"w": [2, *[1] * 8]}},
        {"shapes": {"w": [10**400] * 100_000}},  # whose product would take minutes
        {"shapes": 1},
    ],
)
def test_what_is_no_payload_is_refused(change):
    with pytest.raises(SafeError) as error:
        codec.decode({**codec.encode({"w": np.ones(2)}), **change})
    assert len(str(error.value)) < 200


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_numbers_not_finite_are_refused_both_ways(bad):
    with pytest.raises(SafeError, match="not finite"):
        codec.encode({"w": np.array([1, bad])})
    import base64

    source = base64.b64encode(np.array([1, bad], "<f4")).decode()
    with pytest.raises(SafeError, match="not finite"):
        codec.decode({"dtype": "float32", "shapes": {"w": [2]}, "data": source})


def test_size_is_that_of_the_message_as_vantage6_sends_it():
    message = {"method": "x", "kwargs": {"arrays": codec.encode({"w": np.ones(100)}), "list": [1, {"a": None}, "é"]}}
    assert codec.size(message) == len(json.dumps(message).encode())
