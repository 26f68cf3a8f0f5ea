"""The transcript: whatever changes the answer changes it, and nothing else does."""

import math

import numpy as np
import pytest
import rfc8785
import second
from hypothesis import given
from hypothesis import strategies as st

from v6_federated.base.errors import SafeError
from v6_federated.masks.transcript import array_digest, canonical, transcript

DTYPES = {"f4": np.float32, "f8": np.float64, "i8": np.int64}
NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53) + 1, 2**53 - 1)
LEAVES = st.none() | st.booleans() | NUMBERS | st.text(st.characters(exclude_categories=["Cs"]))
JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=4), inner, max_size=3),
    max_leaves=8,
)


def of(request, R=bytes(32)):
    arrays = {
        name: np.array(elements, DTYPES[kind]).reshape(shape)
        for name, (kind, shape, elements) in request["arrays"].items()
    }
    names = ("seq", "round", "method", "function", "layout", "arguments")
    return transcript(R, *(request[name] for name in names), arrays)


def test_vectors(vectors):
    assert canonical(vectors["request"]["arguments"]).decode() == vectors["canonical_arguments"]
    for block in vectors["blocks"]:
        assert of(vectors["request"], bytes.fromhex(block["R"])).hex() == block["T"]


def test_another_model_by_one_bit_has_another_transcript(vectors):
    given_ = vectors["negatives"]["another_model"]
    R = bytes.fromhex(vectors["blocks"][0]["R"])
    assert of(given_["request"], R).hex() == given_["T"] != vectors["blocks"][0]["T"]


@pytest.mark.parametrize(
    "change",
    [
        {"seq": 8},
        {"round": 3},
        {"method": "fedsgd"},
        {"function": "evaluate"},
        {"layout": []},
        {"arguments": {}},
        {"arrays": {}},
        {"arrays": {"b": ["f8", [1], [0.5]], "V": ["f4", [2, 2], [0.25, -1.0, 3.0, 0.0]]}},
        {"arrays": {"b": ["f4", [1], [0.5]], "W": ["f4", [2, 2], [0.25, -1.0, 3.0, 0.0]]}},
        {"arrays": {"b": ["f8", [1], [0.5]], "W": ["f4", [4], [0.25, -1.0, 3.0, 0.0]]}},
        {"arrays": {"b": ["f8", [1], [0.5]], "W": ["f4", [2, 2], [0.25, -1.0, 3.0, -0.0]]}},
    ],
)
def test_each_part_counts(vectors, change):
    assert of(vectors["request"] | change) != of(vectors["request"])
    assert of(vectors["request"], bytes([1] * 32)) != of(vectors["request"])


def test_each_layout_field_counts(vectors):
    for i, value in enumerate([2, 304, "0" * 64, [[32, 4]]]):
        layout = [*vectors["request"]["layout"]]
        layout[i] = value
        assert of(vectors["request"] | {"layout": layout}) != of(vectors["request"])


def test_order_in_memory_and_in_the_request_does_not_matter():
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    fortran, big, strided = np.asfortranarray(a), a.astype(">f4"), np.repeat(a, 2, axis=1)[:, ::2]
    assert {array_digest("a", x) for x in (a, fortran, big, strided)} == {
        second.array_digest("a", "float32", [2, 3], list(range(6)))
    }
    made = [transcript(bytes(32), 1, 1, "m", "f", [], x, {}) for x in ({"a": 1, "b": 2}, {"b": 2, "a": 1})]
    assert made[0] == made[1]


@given(JSON)
def test_both_implementations_write_json_alike(value):
    assert canonical(value).decode() == second.canonical(value)


@pytest.mark.parametrize(
    ("x", "text"),
    [
        (1.0, "1"),
        (-0.0, "0"),
        (0.1, "0.1"),
        (1e21, "1e+21"),
        (1e20, "100000000000000000000"),
        (1e-6, "0.000001"),
        (1e-7, "1e-7"),
        (5e-324, "5e-324"),
        (np.float64(0.5), "0.5"),
        (2**53 - 1, "9007199254740991"),
    ],
)
def test_numbers_are_written_as_ecmascript_does(x, text):
    assert canonical(x).decode() == text


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (2**53, "beyond 2\\^53 - 1"),
        (-(2**53), "beyond 2\\^53 - 1"),
        (2**70, "more than 64 bits"),
        (math.nan, "not finite"),
        (math.inf, "not finite"),
        ("\ud800", "no Unicode"),
        ({1: 2}, "not JSON"),
        ({1}, "not JSON"),
        (np.float32(1), "not JSON"),
    ],
)
def test_what_has_no_canonical_form_is_refused(value, error):
    with pytest.raises(SafeError, match=error) as refused:
        transcript(bytes(32), 1, 1, "m", "f", [], {"a": value}, {})
    assert "\n" not in str(refused.value)


def test_deep_nesting_is_refused():
    value = []
    for _ in range(200):
        value = [value]
    with pytest.raises(SafeError, match="levels"):
        canonical(value)


def test_wrong_numbers_and_arrays_are_refused():
    for seq, round_ in [(-1, 0), (True, 0), (1.0, 0), (1, 2**53), (1, None)]:
        with pytest.raises(SafeError, match="must be a whole number from 0 to 2\\^53 - 1"):
            transcript(bytes(32), seq, round_, "m", "f", [], {}, {})
    with pytest.raises(SafeError, match="digest has 3 bytes"):
        transcript(b"abc", 1, 1, "m", "f", [], {}, {})
    for array in (np.array(["a"]), np.array([None]), np.array([1j])):
        with pytest.raises(SafeError, match="expected floats or whole numbers"):
            array_digest("a", array)


def test_the_library_is_the_version_that_was_looked_at():
    assert rfc8785.dumps({"b": [1e30, "é"], "a": None}) == '{"a":null,"b":[1e+30,"é"]}'.encode()
