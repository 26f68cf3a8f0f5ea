"""Encoding of parts, hash and key derivation."""

import pytest
import second
from hypothesis import given
from hypothesis import strategies as st

from v6_federated.masks.notation import PROTOCOL, H, enc, expand, hkdf

PARTS = st.lists(st.binary(max_size=20) | st.text(max_size=10) | st.integers(0, 2**64 - 1), max_size=4)


@given(PARTS)
def test_both_implementations_encode_alike(parts):
    assert enc(*parts) == second.enc(*parts)
    assert H(*parts) == second.H(*parts)


@given(st.lists(st.binary(max_size=9), max_size=4), st.lists(st.binary(max_size=9), max_size=4))
def test_different_lists_have_different_encodings(a, b):
    assert (enc(*a) == enc(*b)) == (a == b)


def test_the_encoding_is_what_the_page_says():
    assert enc() == PROTOCOL.encode()
    assert enc("ab", 3)[len(PROTOCOL) :] == b"\0" * 7 + b"\2ab" + b"\0" * 7 + b"\x08" + b"\0" * 7 + b"\3"


def test_numbers_have_64_bits():
    with pytest.raises(OverflowError):
        enc(2**64)
    with pytest.raises(OverflowError):
        enc(-1)


def test_hkdf_is_that_of_rfc_5869():
    """Test case 1 of the RFC's appendix."""
    expected = "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"
    arguments = bytes(range(13)), b"\x0b" * 22, bytes(range(0xF0, 0xFA)), 42
    assert hkdf(*arguments).hex() == second.hkdf(*arguments).hex() == expected


@given(st.binary(min_size=32, max_size=32), st.binary(max_size=99), st.integers(1, 100))
def test_both_implementations_derive_alike(key, info, length):
    assert expand(key, info, length) == second.expand(key, info, length)
    assert hkdf(key, info + b"x", info, length) == second.hkdf(key, info + b"x", info, length)
