"""Payloads: arrays as they cross the network."""

import base64
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from v6_federated.base.errors import SafeError
from v6_federated.messages import codec


@given(st.lists(st.integers(0, 5), max_size=3), st.sampled_from(["float32", "float16"]))
def test_a_decoded_payload_holds_the_arrays_that_were_encoded(shape, precision):
    array = np.random.default_rng(0).normal(size=shape).astype(codec.DTYPES[precision])
    payload = json.loads(json.dumps(codec.encode({"a": array, "b": array[..., None]}, precision)))
    decoded = codec.decode(payload)
    np.testing.assert_array_equal(decoded["a"], array.astype(np.float32))
    assert decoded["b"].shape == (*shape, 1)


def test_float64_numbers_keep_all_their_digits():
    numbers = np.random.default_rng(0).normal(size=(3, 4)) * 1e9
    decoded = codec.decode(json.loads(json.dumps(codec.encode({"a": numbers}, "float64"))))
    np.testing.assert_array_equal(decoded["a"], numbers)


def test_two_float32_arrays_hold_the_digits_of_a_time_stamp():
    numbers = 1.7e9 + np.random.default_rng(0).random(100)
    parts = codec.decode(json.loads(json.dumps(codec.encode(codec.two_parts("mean", numbers)))))
    np.testing.assert_allclose(codec.whole(parts, "mean"), numbers, rtol=0, atol=1e-5)
    assert np.abs(parts["mean"] - numbers).max() > 0.1, "float32 alone loses them"


def test_a_payload_is_base64_of_little_endian_numbers():
    payload = codec.encode({"w": np.array([1.0, -2.0])})
    assert payload == {"dtype": "float32", "shapes": {"w": [2]}, "data": "AACAPwAAAMA="}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"data": "!"}, "malformed payload of arrays"),
        ({"data": "AACA"}, "malformed payload of arrays"),
        ({"data": None}, "malformed payload of arrays"),
        ({"dtype": "int32"}, "malformed payload of arrays"),
        ({"shapes": 1}, "malformed payload of arrays"),
        ({"dtype": "float64"}, "malformed payload: 1 numbers, but its shapes need 2"),
        ({"shapes": {"w": [3]}}, "malformed payload: 2 numbers, but its shapes need 3"),
        ({"shapes": {"w": [-2]}}, "malformed payload: shapes that no array can have"),
        ({"shapes": {"w": [-1, -2]}}, "malformed payload: shapes that no array can have"),
        ({"shapes": {"w": [2**41, 0], "v": [2]}}, "malformed payload: shapes that no array can have"),
        ({"shapes": {"w": [2, *[1] * 8]}}, "malformed payload: shapes that no array can have"),
        # numpy would say that the array is too big, although it is empty
        ({"shapes": {"w": [2**40, 2**40, 0], "v": [2]}}, "malformed payload: shapes that no array can have"),
        ({"shapes": {"w": [2], "v": [0, 2**40, 2**40]}}, "malformed payload: shapes that no array can have"),
        ({"shapes": {"w": [True, 2]}}, "malformed payload: shapes that no array can have; expected at most 8 whole"),
        ({"shapes": {"w": [2.0]}}, "malformed payload: shapes that no array can have"),
        ({"shapes": {"w": ["2"]}}, "malformed payload: shapes that no array can have"),
        ({"shapes": {"w": "2"}}, "malformed payload: shapes that no array can have"),
        ({"shapes": {"w": 2}}, "malformed payload of arrays"),
        ({"shapes": {"w": None}}, "malformed payload of arrays"),
        ({"shapes": {1: [2]}}, "malformed payload: expected at most 1000 arrays, with names of at most 100 letters"),
        ({"shapes": {"w" * 101: [2]}}, "malformed payload: expected at most 1000 arrays"),
        ({"shapes": {str(i): [0] for i in range(1001)}}, "malformed payload: expected at most 1000 arrays"),
        ({"dtype": []}, "malformed payload of arrays"),
        ({"data": "\ud800AAA"}, "malformed payload of arrays"),
        ({"data": b"AACAPwAAAMA=="}, "malformed payload of arrays"),
        ({"data": ["AACAPwAAAMA="]}, "malformed payload of arrays"),
        ({"data": "AACAPwAAAMA"}, "malformed payload of arrays"),
        ({"data": "AACA PwAAAMA="}, "malformed payload of arrays"),
        # whose product would take minutes to compute
        ({"shapes": {"w": [10**400] * 100_000}}, "malformed payload: shapes that no array can have"),
    ],
)
def test_a_malformed_payload_is_refused(change, says):
    with pytest.raises(SafeError) as error:
        codec.decode({**codec.encode({"w": np.ones(2)}), **change})
    assert says in str(error.value) and len(str(error.value)) < 200


@pytest.mark.parametrize(
    ("expected", "says"),
    [
        ({"v": (2,)}, "the array v is missing; its shape must be (2,)"),
        ({"w": (3,)}, "the array w has shape (2,); its shape must be (3,)"),
        ({"w": (None, 2)}, "the array w has shape (2,); its shape must be (any, 2)"),
        ({"w": (2,)}, ""),
        ({"w": (None,)}, ""),
    ],
)
def test_an_array_that_is_missing_or_has_another_shape_is_refused(expected, says):
    payload = codec.encode({"w": np.ones(2)})
    if not says:
        assert codec.decode(payload, expected)["w"].shape == (2,)
        return
    with pytest.raises(SafeError) as error:
        codec.decode(payload, expected)
    assert str(error.value) == says


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_numbers_that_are_not_finite_are_refused_both_ways(bad):
    with pytest.raises(SafeError, match="w: some numbers are not finite in float32"):
        codec.encode({"w": np.array([1, bad])})
    data = base64.b64encode(np.array([1, bad], "<f4")).decode()
    with pytest.raises(SafeError, match="^w: some numbers are not finite$"):
        codec.decode({"dtype": "float32", "shapes": {"w": [2]}, "data": data})


def test_numbers_too_large_for_half_precision_are_refused():
    codec.encode({"w": np.array([65_504.0])}, "float16")
    with pytest.raises(SafeError, match="w: some numbers are not finite in float16"):
        codec.encode({"w": np.array([70_000.0])}, "float16")
