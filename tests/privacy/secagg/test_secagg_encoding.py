"""Encoding: sums are right within the bound, linear for numbers of any size, and show when they have wrapped."""

import math

import numpy as np
import pytest
import second
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from v6_federated.base.errors import SafeError
from v6_federated.privacy.secagg.encoding import CHECK, Term, decode, encode, signs
from v6_federated.privacy.secagg.notation import MOST_HOSPITALS

FINITE = st.floats(width=64, allow_nan=False, allow_infinity=False)


def vector(bits, size, exponent):
    return Term("x", bits, (size,), exponent)


def add(words):
    return sum(words[1:], words[0].copy())


def test_vectors(vectors):
    update, rows, loss = (
        Term(t["name"], t["bits"], tuple(t["shape"]), t["exponent"]) for t in vectors["request"]["layout"]
    )
    check = Term("check", 64, (), update.exponent + CHECK)
    for block in vectors["blocks"]:
        T = bytes.fromhex(block["T"])
        for answer in block["answers"]:
            values = {t.name: np.array(answer["values"][t.name], float).reshape(t.shape) for t in (update, rows, loss)}
            signed = np.asarray(values["update"].reshape(-1) @ signs(T, update.size))
            words = [encode(rows, values["rows"]), encode(loss, values["loss"]), encode(check, signed)]
            assert encode(update, values["update"]).tolist() == answer["q32"]
            assert [1, 0, *np.concatenate(words).tolist()] == answer["q64"]
        sums = np.array(block["sum64"], np.uint64)
        assert sums[:2].tolist() == [len(block["answers"]), 0]
        found = {
            "update": decode(update, np.array(block["sum32"], np.uint32)),
            "rows": decode(rows, sums[2:3]),
            "loss": decode(loss, sums[3:5]),
            "check": decode(check, sums[5:]),
        }
        assert {name: value.reshape(-1).tolist() for name, value in found.items()} == block["decoded"]
        assert found["update"].reshape(-1) @ signs(T, update.size) == pytest.approx(float(found["check"]), abs=1e-5)


def test_numbers_that_wrap(vectors):
    for wrapped in vectors["negatives"]["wrapped"]:
        term = vector(wrapped["bits"], len(wrapped["values"]), wrapped["exponent"])
        assert encode(term, np.array(wrapped["values"], float)).tolist() == wrapped["words"]


@settings(deadline=None)
@given(st.lists(FINITE, max_size=9), st.integers(-40, 40), st.sampled_from([32, 64]))
def test_both_implementations_encode_alike(values, e, bits):
    assume(all(math.isfinite(x * 2.0**100) for x in values))
    words = encode(vector(bits, len(values), e), np.array(values, np.float64))
    assert words.tolist() == second.encode({"bits": bits, "exponent": e}, values)
    assert words.dtype.itemsize * 8 == bits


@given(st.lists(st.integers(-(2**60), 2**60).map(float), max_size=9))
def test_both_implementations_encode_counts_alike(values):
    words = encode(vector(64, len(values), None), np.array(values, np.float64))
    assert words.tolist() == second.encode({"bits": 64, "exponent": None}, values)


@given(st.binary(min_size=32, max_size=32), st.integers(0, 100))
def test_both_implementations_draw_the_same_signs(T, size):
    assert signs(T, size).tolist() == second.signs(T, size)


@settings(deadline=None)
@given(st.integers(1, 100), st.integers(-40, 40), st.integers(0, 2**32))
def test_sums_of_32_bits_are_within_the_bound(n, e, seed):
    x = np.random.default_rng(seed).uniform(-1, 1, (n, 20)) * 2.0**e / n
    term = vector(32, 20, e)
    exact = np.array([math.fsum(column) for column in x.T])
    assert (np.abs(decode(term, add([encode(term, x_k) for x_k in x])) - exact) <= n * 2.0 ** (e - 31)).all()


@settings(deadline=None)
@given(st.integers(1, 100), st.integers(-64, 280), st.integers(0, 2**32))
def test_sums_of_64_bits_are_within_the_bound(n, e, seed):
    x = np.random.default_rng(seed).uniform(-1, 1, (n, 20)) * 2.0**e
    term = vector(64, 20, e)
    exact = np.array([math.fsum(column) for column in x.T])
    bound = n * 2.0 ** (e - 57) + np.abs(exact) * 2.0**-52
    assert (np.abs(decode(term, add([encode(term, x_k) for x_k in x])) - exact) <= bound).all()


@pytest.mark.parametrize("bits", [32, 64])
@given(st.lists(st.integers(-(2**90), 2**90), min_size=2, max_size=8))
def test_a_sum_tells_nothing_but_the_sum_of_the_values(bits, units):
    """Whatever a hospital's own number is, large or small, hospitals whose numbers have the same sum have the same
    words: no bound, unit or center that central chooses finds a single number."""
    values = [float(u) for u in units]
    unit = Term("x", bits, (), {32: 30, 64: 56}[bits])  # a unit of 1
    words = add([encode(unit, np.array(x)) for x in values])
    assert words.tolist() == [sum(map(int, values)) % 2**bits]


@given(st.integers(0, 2**32), st.integers(-20, 20), st.floats(2.0, 1e6), st.integers(0, 29))
def test_a_check_shows_that_a_sum_has_wrapped(seed, e, times, place):
    x = np.random.default_rng(seed).uniform(-1, 1, (3, 30)) * 2.0**e / 3
    T, term, check = seed.to_bytes(32, "big"), vector(32, 30, e), Term("check", 64, (), e + CHECK)

    def apart():
        total = decode(term, add([encode(term, x_k) for x_k in x]))
        told = decode(check, add([encode(check, np.asarray(x_k @ signs(T, 30))) for x_k in x]))
        return abs(float(total @ signs(T, 30)) - float(told))

    assert apart() < 2.0**e
    x[1, place] = times * 2.0 ** (e + 1) - x[0, place] - x[2, place]
    assert apart() > 2.0 ** (e + 1)


def test_counts_are_exact():
    term = vector(64, 3, None)
    values = np.array([0, 1, 2**40 - 1])
    assert decode(term, add([encode(term, values) for _ in range(100)])).tolist() == (100 * values).tolist()
    assert decode(term, encode(term, values)).dtype == np.int64


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused(wrong):
    for term in (vector(32, 2, 0), vector(64, 2, 0), vector(64, 2, None)):
        with pytest.raises(SafeError, match="not finite"):
            encode(term, np.array([wrong, 1.0]))
    with pytest.raises(SafeError, match="not finite in units of"):
        encode(vector(64, 1, -64), np.array([1e300]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.bool_])
def test_any_numbers_are_encoded(dtype):
    term = Term("x", 32, (2, 2), 1)
    assert decode(term, encode(term, np.array([[0, 1], [1, 0]], dtype))).tolist() == [[0, 1], [1, 0]]


def test_words_of_another_size_or_type_are_refused():
    with pytest.raises(SafeError, match="has 1 words of type uint64; expected 2 words of 32 bits"):
        decode(vector(32, 2, 0), np.zeros(1, np.uint64))
    with pytest.raises(SafeError, match=r"have shape \(3,\); expected \(2,\)"):
        encode(vector(32, 2, 0), np.zeros(3))


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("x", 16, (1,), 0), "16 bits"),
        (("x", 32, (1,), None), "a count, which needs 64 bits"),
        (("x", 32, (1,), 61), "from -60 to 60 with 32 bits"),
        (("x", 64, (1,), 281), "from -64 to 280"),
        (("x", 32, (1,), 1.0), "whole number"),
        (("x", 32, (1,), True), "whole number"),
        (("x", 32, (-1,), 0), "no array can have"),
    ],
)
def test_a_wrong_term_is_refused(arguments, error):
    with pytest.raises(SafeError, match=error):
        Term(*arguments)


def test_the_rounding_that_the_module_claims():
    """Of a check: the roundings of two million values of a hundred hospitals are far below what a wrap moves."""
    assert MOST_HOSPITALS * 2_000_000 * 2.0**-31 < 2.0**1
