"""Compressed arrays: the error of 8-bit numbers is bounded, the largest numbers are exact, and nothing else is read."""

import numpy as np
import pybase64
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from v6_federated.base.errors import SafeError
from v6_federated.messages import codec, compression

NUMBERS = arrays.arrays(
    np.float32, st.integers(1, 700), elements=st.floats(-(2.0**100), 2.0**100, width=32, allow_subnormal=True)
)


def read(sent: codec.Compressed, most: int):
    return codec.decode(sent.payload("update"), most=most)["update"]


@given(NUMBERS)
def test_each_8_bit_number_is_off_by_half_a_scale_at_most(u):
    sent = codec.Compressed.of(u, "int8")
    found = read(sent, len(u))
    np.testing.assert_array_equal(found, sent.array)
    for start in range(0, len(u), compression.BLOCK):
        part = slice(start, start + compression.BLOCK)
        largest = float(np.abs(u[part]).max())
        assert np.abs(found[part].astype(float) - u[part]).max() <= largest / 254 * (1 + 1e-4) + 1e-43
    assert len(sent.buffer) == len(u) + 4 * -(-len(u) // compression.BLOCK)


def test_the_bound_is_near():
    """Of numbers halfway between two multiples, the error is that of the bound."""
    u = np.array([127.0, *(np.arange(100) + 0.5)], np.float32)
    assert np.abs(codec.Compressed.of(u, "int8").array - u).max() == pytest.approx(127 / 254)


@given(NUMBERS, st.data())
def test_the_largest_numbers_are_sent_as_they_are(u, data):
    k = data.draw(st.integers(1, len(u)))
    sent = codec.Compressed.of(u, "topk", k)
    found = read(sent, len(u))
    np.testing.assert_array_equal(found, sent.array)
    assert len(sent.buffer) == 8 * k
    kept = found != 0
    np.testing.assert_array_equal(found[kept], u[kept])
    assert kept.sum() <= k
    if kept.sum() == k:
        assert np.abs(u[kept]).min() >= np.abs(u[~kept]).max(initial=0)


@pytest.mark.parametrize("form", compression.FORMS)
def test_what_is_not_finite_is_refused(form):
    with pytest.raises(SafeError, match="not finite"):
        codec.Compressed.of(np.array([1.0, np.inf], np.float32), form, 1)
    infinite = np.float32(np.inf).tobytes()
    buffer = infinite + b"\x01\x01" if form == "int8" else np.array([0], "<u4").tobytes() + infinite
    payload = {"dtype": form, "shapes": {"update": [2]}, "data": pybase64.b64encode_as_string(buffer)}
    with pytest.raises(SafeError, match="not finite"):
        codec.decode(payload, most=2)


@pytest.mark.parametrize(
    ("form", "buffer"),
    [
        ("int8", b""),
        ("int8", bytes(4 + 9)),  # 10 numbers need one scale and 10 bytes
        ("int8", bytes(4 + 11)),
        ("topk", bytes(7)),
        ("topk", np.array([10], "<u4").tobytes() + bytes(4)),  # the last of 10 numbers has the index 9
        ("topk", np.array([3, 3], "<u4").tobytes() + bytes(8)),
        ("topk", np.array([4, 3], "<u4").tobytes() + bytes(8)),
        ("topk", bytes(8 * 11)),
    ],
)
def test_malformed_payloads_are_refused(form, buffer):
    payload = {"dtype": form, "shapes": {"update": [10]}, "data": pybase64.b64encode_as_string(buffer)}
    with pytest.raises(SafeError, match="malformed payload"):
        codec.decode(payload, most=10)


@pytest.mark.parametrize("form", compression.FORMS)
def test_a_few_bytes_cannot_fill_the_memory(form):
    payload = {"dtype": form, "shapes": {"update": [2**40]}, "data": ""}
    with pytest.raises(SafeError, match=f"{2**40} numbers; expected 199210 at most"):
        codec.decode(payload, most=199_210)


def test_a_node_reads_no_compressed_array():
    with pytest.raises(SafeError, match="cannot be read here"):
        codec.decode(codec.Compressed.of(np.ones(5, np.float32), "int8").payload("weights"))
