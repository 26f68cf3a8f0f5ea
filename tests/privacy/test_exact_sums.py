"""Exact sums: what hospitals add up to is what one hospital with all rows has, whatever central subtracts."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from v6_federated.data import pca, statistics
from v6_federated.masks import encoding, exact
from v6_federated.masks.encoding import Term

NUMBERS = st.floats(-(2.0**60), 2.0**60, allow_subnormal=True) | st.sampled_from(
    [2.0**-1000, -(2.0**-1074), 2.0**60, 0.1]
)


def value(found, i=0):
    return found.numbers[i] * Fraction(2) ** found.exponent


@given(st.lists(NUMBERS, max_size=9))
def test_totals_are_those_of_fractions(x):
    X = np.array(x, float)[:, None]
    assert value(exact.total(X)) == sum(map(Fraction, x), Fraction(0))
    squares = [Fraction(v) ** 2 for v in x]
    assert abs(value(exact.total_of_squares(X)) - sum(squares, Fraction(0))) <= 3 * len(x) * Fraction(2) ** -1074


@pytest.mark.parametrize("power", [-1074, -1000, -600, 0, 200])
@pytest.mark.parametrize("rows", [1, exact.ROWS_OF_SUMS + 1])
def test_sums_of_rows_of_any_size(power, rows):
    """A column whose numbers were all below 2^-984 made the node compute without an end."""
    x = np.ldexp(np.random.default_rng(0).integers(-(2**20), 2**20, (rows, 2)), power if power > -1074 else power + 1)
    wanted = [sum(map(Fraction, column), Fraction(0)) for column in x.T]
    assert [value(exact.sums(x), i) for i in (0, 1)] == wanted
    places = np.arange(rows) % 3
    parts = exact.sums(x, places, 3)
    assert [value(parts, 2 * k) for k in range(3)] == [
        sum(map(Fraction, x[places == k, 0]), Fraction(0)) for k in range(3)
    ]
    if power < 60:
        found = exact.products(x)
        assert value(found, 1) == sum((Fraction(a) * Fraction(b) for a, b in x), Fraction(0))


@given(st.lists(NUMBERS, min_size=1, max_size=12), st.lists(st.integers(0, 3), min_size=12, max_size=12), NUMBERS)
def test_sums_about_any_center_do_not_depend_on_how_rows_are_dealt(x, dealt, center):
    """Over four hospitals and at one, to the last bit of their whole numbers, and so of their words."""
    X, at = np.array(x, float)[:, None], np.array(dealt[: len(x)])
    c = np.array([center])
    whole, parts = statistics.about(X, c), [statistics.about(X[at == k], c) for k in range(4)]
    for name in ("first", "second"):
        total = [sum(numbers) for numbers in zip(*(part[name].numbers for part in parts), strict=True)]
        assert tuple(total) == whole[name].numbers
    assert sum(int(part["count"][0]) for part in parts) == len(x)
    assert value(whole["first"]) == sum((Fraction(v) - Fraction(center) for v in x), Fraction(0))


@given(st.lists(NUMBERS, min_size=1, max_size=5), st.integers(-64, 280), st.sampled_from([32, 64]))
def test_exact_numbers_are_encoded_as_floats_are(x, e, bits):
    X = np.array(x)[:, None]
    found = exact.total(X)
    term = Term("x", bits, (1,), e if bits == 64 else max(min(e, 60), -60))
    unit = Fraction(2) ** (term.exponent - encoding.FRACTION[bits])
    assert found.encode(term).tolist() == [round(value(found) / unit) % 2**bits]
    if len(x) == 1:
        assert found.encode(term).tolist() == encoding.encode(term, X[0]).tolist()


def test_a_center_far_away_tells_nothing_of_single_hospitals():
    """Sums about 2^53 were rounded to whole numbers hospital by hospital: 76 requests told each hospital's mean."""
    rng = np.random.default_rng(0)
    tables = [rng.normal(mean, 0.1, (n, 1)) for mean, n in ((0.3, 103), (0.9, 143), (1.2, 187), (1.9, 230))]
    every = np.concatenate(tables)

    def off(sums, center):
        """By how much the sum of hospitals' sums differs from that of one hospital."""
        return sum(float(sums(rows, center)) for rows in tables) - float(sums(every, center))

    def before(rows, center):
        moments = pca.moments(rows)
        (mean,) = moments["mean"].astype(float) + moments["mean_rest"]
        return len(rows) * (Fraction(mean - center) + Fraction(center))

    def now(rows, center):
        found = statistics.about(rows, np.array([center]))["first"]
        return value(found) + len(rows) * Fraction(center)

    centers = [2.0**53 + 2 * i for i in range(5)]
    assert max(abs(off(before, c)) for c in centers) > 10
    assert all(off(now, c) == 0 for c in centers)


@pytest.mark.parametrize("dithered", [False, True])
def test_what_is_rounded_of_an_exact_sum_is_dithered(dithered):
    found = exact.Exact((1,), exact.FINEST)  # far below half a unit
    drawn = np.array([3.2]) if dithered else None
    assert found.encode(Term("x", 64, (1,), 10), drawn).tolist() == [3 if dithered else 0]
