"""Encoding: sums are right within the bound, nothing wraps unnoticed, and nothing is refused because of a value."""

import math

import numpy as np
import pytest
import second
from hypothesis import given, settings
from hypothesis import strategies as st

from v6_federated.base.errors import SafeError
from v6_federated.privacy.secagg.encoding import Term, check_header, decode, encode, header, layout_json, pack, split
from v6_federated.privacy.secagg.notation import MOST_HOSPITALS

ANY = st.floats(width=64)


def vector(bits, size, exponent):
    return Term("x", bits, (size,), exponent)


def add(words):
    return sum(words[1:], words[0].copy())


def test_vectors(vectors):
    terms = [Term(t["name"], t["bits"], tuple(t["shape"]), t["exponent"]) for t in vectors["request"]["layout"]]
    assert layout_json(terms) == vectors["request"]["layout"]
    for block in vectors["blocks"]:
        for answer in block["answers"]:
            arrays = {t.name: np.array(answer["values"][t.name]).reshape(t.shape) for t in terms}
            q32, q64 = pack(terms, arrays, answer["share"])
            assert q32.tolist() == answer["q32"] and q64.tolist() == answer["q64"]
        sum32, sum64 = np.array(block["sum32"], np.uint32), np.array(block["sum64"], np.uint64)
        assert check_header(sum64, len(block["answers"])) == 0
        sums = split(sum32, terms) | split(sum64, terms)
        assert {name: sums[name].reshape(-1).tolist() for name in sums} == block["decoded"]


def test_saturation(vectors):
    for given_ in vectors["negatives"]["saturation"]:
        values = np.array([float(x) for x in given_["values"]])
        words, clamped = encode(vector(given_["bits"], len(values), given_["exponent"]), values, given_["share"])
        assert words.tolist() == given_["words"] and clamped == given_["clamped"]


@settings(deadline=None)
@given(st.lists(ANY, max_size=9), st.integers(-20, 20), st.floats(0, 2), st.sampled_from([32, 64]))
def test_both_implementations_encode_alike(values, e, share, bits):
    words, clamped = encode(vector(bits, len(values), e), np.array(values, np.float64), share)
    assert (words.tolist(), clamped) == second.encode({"bits": bits, "exponent": e}, values, share)
    assert words.dtype.itemsize * 8 == bits


@given(st.lists(ANY | st.integers(-3, 2**41).map(float), max_size=9))
def test_both_implementations_encode_counts_alike(values):
    words, clamped = encode(vector(64, len(values), None), np.array(values, np.float64))
    assert (words.tolist(), clamped) == second.encode({"bits": 64, "exponent": None}, values, None)


@settings(deadline=None)
@given(st.integers(1, 100), st.integers(-20, 20), st.integers(0, 2**32))
def test_sums_of_32_bits_are_within_the_bound(n, e, seed):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(n)) * (1 - 1e-9) + 1e-9 / n
    x = rng.uniform(-1, 1, (n, 20)) * 2.0**e
    term = vector(32, 20, e)
    encoded = [encode(term, p_k * x_k, p_k) for p_k, x_k in zip(p, x, strict=True)]
    assert [clamped for _, clamped in encoded] == [0] * n
    exact = np.array([math.fsum(column) for column in (p[:, None] * x).T])
    assert (np.abs(decode(term, add([words for words, _ in encoded])) - exact) <= n * 2.0 ** (e - 31)).all()


@settings(deadline=None)
@given(st.integers(1, 100), st.integers(-64, 64), st.integers(0, 2**32))
def test_sums_of_64_bits_are_within_the_bound(n, e, seed):
    x = np.random.default_rng(seed).uniform(-1, 1, (n, 20)) * 2.0**e
    term = vector(64, 20, e)
    words, clamped = zip(*(encode(term, x_k) for x_k in x), strict=True)
    exact = np.array([math.fsum(column) for column in x.T])
    assert not any(clamped)
    bound = n * 2.0 ** (e - 57) + np.abs(exact) * 2.0**-52
    assert (np.abs(decode(term, add(words)) - exact) <= bound).all()


@pytest.mark.parametrize("n", [2, 3, 50, 100])
@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_no_sum_of_honest_hospitals_wraps_however_large_their_values_are(n, bits, sign):
    """All saturated: the sum is the bound itself, its sign is right, and the count says so."""
    term = vector(bits, 3, 2)
    values = sign * np.array([1e300, 1e9, np.finfo(np.float32).max])
    words, clamped = zip(*(encode(term, values, 1 / n) for _ in range(n)), strict=True)
    assert sum(clamped) == 3 * n
    expected = sign * (4.0 if bits == 32 else 4.0 * n)
    np.testing.assert_allclose(decode(term, add(words)), expected, atol=2 * n * 2.0**-28 if bits == 32 else 0)


def test_unequal_shares_do_not_wrap_either():
    shares = [0.97, 0.01, 0.01, 0.01]
    term = vector(32, 1, 0)
    words = [encode(term, np.array([5.0]), share)[0] for share in shares]
    assert decode(term, add(words))[0] == pytest.approx(1.0, abs=1e-8)


def test_values_at_their_share_of_the_bound_are_not_counted_as_clamped():
    for n in range(1, 101):
        assert encode(vector(32, 2, 3), np.array([8.0, -8.0]) / n, 1 / n)[1] == 0


def test_counts_are_exact_up_to_2_to_40():
    term = vector(64, 3, None)
    values = np.array([0, 1, 2**40 - 1])
    words = [encode(term, values)[0] for _ in range(100)]
    assert decode(term, add(words)).tolist() == (100 * values).tolist()
    assert decode(term, add(words)).dtype == np.int64


def test_what_is_not_finite_becomes_zero_and_is_counted():
    for term in (vector(32, 4, 0), vector(64, 4, 0), vector(64, 4, None)):
        words, clamped = encode(term, np.array([np.nan, np.inf, -np.inf, 1.0]), 1.0)
        assert clamped == 3 and words[:3].tolist() == [0, 0, 0]
        assert decode(term, words)[3] == 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.bool_])
def test_any_numbers_are_encoded(dtype):
    term = Term("x", 32, (2, 2), 1)
    words, clamped = encode(term, np.array([[0, 1], [1, 0]], dtype), 1.0)
    assert clamped == 0
    assert decode(term, words).tolist() == [[0, 1], [1, 0]]


def test_the_header_counts_hospitals_and_clamped_values():
    sums = add([header(i) for i in (0, 2, 5)])
    assert check_header(sums, 3) == 7
    for wrong in (sums + np.array([1, 0], np.uint64), sums[:1], sums[:0]):
        with pytest.raises(SafeError, match="do not add up to 3 hospitals"):
            check_header(wrong, 3)


def test_an_answer_is_packed_and_split():
    terms = [Term("a", 32, (2, 1), 0), Term("n", 64, (), None), Term("b", 32, (1,), 1), Term("s", 64, (1,), 8)]
    arrays = {"a": np.array([[0.5], [9.0]]), "n": 7, "b": np.array([0.25]), "s": np.array([100.0])}
    q32, q64 = pack(terms, arrays, {"a": 0.75, "b": 0.5})
    assert q64[:2].tolist() == [1, 1]
    sums = split(q32, terms) | split(q64, terms)
    assert {name: value.tolist() for name, value in sums.items()} == {
        "a": [[0.5], [0.75]], "n": 7, "b": [0.25], "s": [100.0],
    }  # fmt: skip
    assert pack(terms, arrays, 1.0, count=False)[1][:2].tolist() == [1, 0]
    assert pack([terms[1]], {"n": 7})[0].size == 0
    with pytest.raises(SafeError, match="has 4 words; the layout has 3"):
        split(np.append(q32, q32[:1]), terms)
    with pytest.raises(SafeError, match="has 2 words; the layout has 4"):
        split(q64[:2], terms)
    for wrong in ({}, arrays | {"more": 1}):
        with pytest.raises(SafeError, match="must have the arrays a, n, b, s, each once, and nothing else"):
            pack(terms, wrong, 1.0)


def test_words_of_another_size_or_type_are_refused():
    with pytest.raises(SafeError, match="has 1 words of type uint64; expected 2 words of 32 bits"):
        decode(vector(32, 2, 0), np.zeros(1, np.uint64))
    with pytest.raises(SafeError, match=r"have shape \(3,\); expected \(2,\)"):
        encode(vector(32, 2, 0), np.zeros(3), 1.0)


@pytest.mark.parametrize("share", [None, -0.1, math.nan])
def test_the_share_of_the_bound_is_needed_with_32_bits(share):
    with pytest.raises(SafeError, match="share of the bound"):
        encode(vector(32, 1, 0), np.zeros(1), share)
    encode(vector(64, 1, 0), np.zeros(1), share)


def test_a_share_is_never_refused_for_its_size_which_depends_on_rows():
    for share, expected in [(0.0, 0.0), (1.0, 1.0), (1.5, 1.0), (1e300, 1.0), (math.inf, 1.0)]:
        words, clamped = encode(vector(32, 1, 0), np.array([7.0]), share)
        assert decode(vector(32, 1, 0), words)[0] == expected and clamped == 1


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("x", 16, (1,), 0), "16 bits"),
        (("x", 32, (1,), None), "a count, which needs 64 bits"),
        (("x", 32, (1,), 21), "from -20 to 20 with 32 bits"),
        (("x", 64, (1,), 65), "from -64 to 64"),
        (("x", 32, (1,), 1.0), "whole number"),
        (("x", 32, (1,), True), "whole number"),
        (("x", 32, (-1,), 0), "no array can have"),
    ],
)
def test_a_wrong_term_is_refused(arguments, error):
    with pytest.raises(SafeError, match=error):
        Term(*arguments)


def test_the_headroom_that_the_module_claims():
    most = MOST_HOSPITALS
    assert 2**30 + 2 * most < 2**31 and most * 2**56 + most < 2**63 and most * 2**40 < 2**47
