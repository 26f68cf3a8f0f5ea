"""Encoding: sums are right within the bound, linear for numbers of any size, and show when they have wrapped."""

import math
import os

import numpy as np
import pytest
import second
from hypothesis import assume, given
from hypothesis import strategies as st

from v6_federated.base.errors import SafeError
from v6_federated.masks.encoding import SIGMA, Term, checks, decode, dither, encode, factors, has_wrapped
from v6_federated.masks.keystreams import mask
from v6_federated.masks.notation import MOST_HOSPITALS, enc, expand

FINITE = st.floats(width=64, allow_nan=False, allow_infinity=False)


def vector(bits, size, exponent):
    return Term("x", bits, (size,), exponent)


def add(words):
    return sum(words[1:], words[0].copy())


def test_vectors(vectors):
    update, rows, loss = (
        Term(t["name"], t["bits"], tuple(t["shape"]), t["exponent"]) for t in vectors["layout"]["terms"]
    )
    check = checks(update.exponent)
    for block in vectors["blocks"]:
        T = bytes.fromhex(block["T"])
        for answer in block["answers"]:
            values = {
                t.name: np.array(answer["values"][t.name], np.int64 if t is rows else float).reshape(t.shape)
                for t in (update, rows, loss)
            }
            total = np.asarray(values["update"].reshape(-1) @ factors(T, update.size))
            words = [encode(rows, values["rows"]), encode(loss, values["loss"]), *(encode(c, total) for c in check)]
            assert encode(update, values["update"]).tolist() == answer["q32"]
            assert [1, 0, *np.concatenate(words).tolist()] == answer["q64"]
        sums = np.array(block["sum64"], np.uint64)
        assert sums[:2].tolist() == [len(block["answers"]), 0]
        found = {
            "update": decode(update, np.array(block["sum32"], np.uint32)),
            "rows": decode(rows, sums[2:3]),
            "loss": decode(loss, sums[3:5]),
            "checks": np.array([decode(c, sums[i : i + 1].reshape(())) for i, c in enumerate(check, start=5)]),
        }
        assert {name: value.reshape(-1).tolist() for name, value in found.items()} == block["decoded"]
        total = float(found["update"].reshape(-1) @ factors(T, update.size))
        assert total == pytest.approx(found["checks"][0], abs=2.0 ** (update.exponent - 10))
        assert not has_wrapped(update.exponent, total, found["checks"].tolist())


def test_numbers_that_wrap(vectors):
    for wrapped in vectors["negatives"]["wrapped"]:
        term = vector(wrapped["bits"], len(wrapped["values"]), wrapped["exponent"])
        kind = np.int64 if term.exponent is None else float
        assert encode(term, np.array(wrapped["values"], kind)).tolist() == wrapped["words"]


@given(st.lists(FINITE, max_size=9), st.integers(-40, 40), st.sampled_from([32, 64]))
def test_both_implementations_encode_alike(values, e, bits):
    assume(all(math.isfinite(x * 2.0**100) for x in values))
    words = encode(vector(bits, len(values), e), np.array(values, np.float64))
    assert words.tolist() == [second.rounded(x, bits, e) for x in values]
    assert words.dtype.itemsize * 8 == bits


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=9))
def test_both_implementations_encode_counts_alike(values):
    """Without a detour through float64, which has 53 bits."""
    words = encode(vector(64, len(values), None), np.array(values, np.int64))
    assert words.tolist() == [second.rounded(x, 64, None) for x in values]


@given(st.binary(min_size=32, max_size=32), st.integers(0, 100))
def test_both_implementations_draw_the_same_factors(T, size):
    assert factors(T, size).tolist() == second.factors(T, size)


@given(st.integers(1, 100), st.integers(-40, 40), st.integers(0, 2**32))
def test_sums_of_32_bits_are_within_the_bound(n, e, seed):
    x = np.random.default_rng(seed).uniform(-1, 1, (n, 20)) * 2.0**e / n
    term = vector(32, 20, e)
    exact = np.array([math.fsum(column) for column in x.T])
    assert (np.abs(decode(term, add([encode(term, x_k) for x_k in x])) - exact) <= n * 2.0 ** (e - 31)).all()


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


@pytest.mark.parametrize("bits", [32, 64])
@given(st.integers(0, 2**32), st.integers(-40, 40), st.floats(2.0**7, 1e38), st.lists(st.integers(0, 29), min_size=1))
def test_checks_show_that_a_sum_has_wrapped(bits, seed, e, times, places):
    """Whether it is just too large or the largest that float32 has, and however many wrap alike."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (3, 30)) * 2.0**e / 3
    T, term = seed.to_bytes(32, "big"), vector(bits, 30, e)

    def wrapped():
        total = decode(term, add([encode(term, x_k) for x_k in x])) @ factors(T, 30)
        told = [np.asarray(x_k @ factors(T, 30)) for x_k in x]
        return has_wrapped(e, float(total), [float(decode(c, add([encode(c, v) for v in told]))) for c in checks(e)])

    assert not wrapped()
    x[1, places] = times * 2.0 ** (e + 1) * np.resize([1.0, -1.0], len(places))
    assert wrapped()


@pytest.mark.parametrize("power", range(20, 128))
def test_a_huge_power_of_two_does_not_vanish(power):
    """It is zero modulo 2^64 units of any fine unit."""
    T = bytes(32)
    for e in (-40, -10, 10):
        total = np.asarray(2.0**power * factors(T, 1)[0])
        word = encode(vector(64, 1, e), np.array([2.0**power]))
        decoded = float(decode(vector(64, 1, e), word) @ factors(T, 1))
        assert has_wrapped(e, decoded, [float(decode(c, encode(c, total))) for c in checks(e)])


@pytest.mark.parametrize("n", [3, 100])
def test_roundings_of_many_numbers_are_no_wrap(n):
    """Two million numbers of a hundred hospitals, at their largest."""
    T, rng, size, e = bytes(32), np.random.default_rng(n), 2_000_000 // n, 3
    term = vector(32, size, e)
    words, told = [], []
    for _ in range(n):
        x = rng.uniform(-1, 1, size) * 2.0 ** (e + 1) / n
        words.append(encode(term, x))
        told.append(np.asarray(x @ factors(T, size)))
    total = float(decode(term, add(words)) @ factors(T, size))
    assert not has_wrapped(e, total, [float(decode(c, add([encode(c, v) for v in told]))) for c in checks(e)])


@given(st.binary(min_size=32, max_size=32), st.lists(st.integers(0, 29), min_size=2, max_size=29, unique=True))
def test_numbers_that_wrap_alike_do_not_cancel(T, places):
    """As many upwards as downwards, by the same."""
    times = np.zeros(30)
    times[places] = np.resize([1.0, -1.0], len(places))
    # hypothesis looks for the one transcript in 65,536 with which they would, and has a hundred tries
    assert times @ factors(T, 30) != 0


def test_counts_are_exact():
    term = vector(64, 3, None)
    values = np.array([0, 1, 2**40 - 1])
    assert decode(term, add([encode(term, values) for _ in range(100)])).tolist() == (100 * values).tolist()
    assert decode(term, encode(term, values)).dtype == np.int64


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused(wrong):
    for term in (vector(32, 2, 0), vector(64, 2, 0)):
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


def test_dither_is_what_the_specification_says():
    for size in (0, 1, 2, 51):
        found = dither(b"s" * 32, b"T" * 32, "share weights", size)
        assert found == pytest.approx(second.dither(b"s" * 32, b"T" * 32, "share weights", size), abs=1e-12)
    assert (found != dither(b"t" * 32, b"T" * 32, "share weights", 51)).all()


@pytest.mark.parametrize("bits", [32, 64])
def test_dither_hides_on_which_side_of_a_threshold_a_value_lies(bits):
    """Mean and variance of the rounded value are those of any other value, wherever it lies between two units."""
    size, exponent = 100_000, 10
    term, unit = vector(bits, size, exponent), 2.0 ** (exponent - {32: 30, 64: 56}[bits])
    for k, x in enumerate([0.0, 0.1, 0.49, 0.5, 0.51, 0.9, 1.0]):
        added = dither(bytes([k]) * 32, b"T" * 32, "x", size)
        words = encode(term, np.full(size, x * unit), added).view(f"<i{bits // 8}")
        variance = SIGMA**2 + 1 / 12
        assert abs(words.mean() - x) < 5 * math.sqrt(variance / size)
        assert abs(words.var() - variance) < 5 * variance * math.sqrt(2 / size)
    without = [int(encode(vector(bits, 1, exponent), np.array([x * unit]))[0]) for x in (0.49, 0.51)]
    assert without == [0, 1]  # without dither, a sum of such numbers counts who is above


DRAWS = int(os.environ.get("ENCODER_DRAWS", 2_000_000))


def two_uniform(secret, T, key, size):
    """The dither that hid two moments only."""
    halves = mask(expand(secret, enc("dither", T, key)), T, 64, size).view("<i4").astype(np.float64)
    return np.ldexp(halves[0::2] + halves[1::2], -32)


def rounded(drawn, x, size, key):
    """Draws of a hospital's value x, in units, after rounding, less x."""
    words = encode(vector(64, size, 56), np.full(size, x), drawn(b"s" * 32, b"T" * 32, key, size))
    return words.view("<i8") - x


def seen(drawn, x):
    """The third cumulant of many draws of x, and the mean of a sign that is + for even numbers.

    Of a sum over hospitals the cumulant is the sum of theirs, and the sign is the product of theirs.
    """
    powers, sign, size = np.zeros(3), 0.0, min(DRAWS, 2_000_000)
    for chunk in range(DRAWS // size):
        z = rounded(drawn, x, size, f"{x} {chunk}")
        powers += [np.sum(z), np.sum(z**2), np.sum(z**3)]
        sign += float(np.sum((-1.0) ** (z + x)))
    one, two, three = powers / DRAWS
    return three - 3 * one * two, sign / DRAWS


def test_no_moment_of_a_sum_tells_how_it_is_divided():
    """Two uniform numbers hid two moments. The third cumulant was x / 4 - x^3, and the share of even numbers in x told
    still more: 41 sums in units that central chose told single hospitals' numbers. Now neither depends on x.

    ``ENCODER_DRAWS=100000000`` looks fifty times as long.
    """
    error = 5 / math.sqrt(DRAWS)
    for x in (0.0, 0.25, 0.5):
        cumulant, sign = seen(two_uniform, x)
        assert abs(cumulant - (x / 4 - x**3)) < 2 * error  # the deviation of a cube is below 1
        assert abs(sign - {0.0: 0.5, 0.25: 0.375, 0.5: 0.0}[x]) < error
        cumulant, sign = seen(dither, x)
        assert abs(cumulant) < error * 32  # the deviation of the cube of such a Gaussian
        assert abs(sign) < error


def test_counts_are_not_dithered():
    term = Term("n", 64, (3,), None)
    assert encode(term, np.array([1, 2, 3]), np.full(3, 0.9)).tolist() == [1, 2, 3]
