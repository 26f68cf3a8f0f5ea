"""The noise is a discrete Gaussian, to far below any delta, and hangs on its key alone."""

import bisect
import hashlib
import math
import time
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from v6_federated.masks.notation import enc, expand
from v6_federated.noise import gaussian
from v6_federated.noise.gaussian import LARGEST, discrete_gaussian

KEY = bytes(range(32))
SIGMAS = pytest.mark.parametrize("sigma", [4, 5.7, 100, 1024, 1024.5, 5000, 2.0**17, 123456789.1, 2.0**31, LARGEST])


@SIGMAS
def test_moments(sigma):
    """Mean 0, variance sigma^2 and kurtosis 3, each within 4.5 of its standard errors."""
    n = 400_000
    x = discrete_gaussian(KEY, sigma, n) / sigma
    assert abs(x.mean()) < 4.5 / math.sqrt(n)
    assert abs((x**2).mean() - 1) < 4.5 * math.sqrt(2 / n)
    assert abs((x**4).mean() - 3) < 4.5 * math.sqrt(96 / n)
    assert abs((x[1:] * x[:-1]).mean()) < 4.5 / math.sqrt(n)


@pytest.mark.parametrize("sigma", [4, 5.7, 100, 1024, 1024.5, 5000])
def test_each_number_has_its_probability(sigma):
    n = 1_000_000
    reach = int(3 * sigma)
    x = discrete_gaussian(KEY, sigma, n)
    weights = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * sigma**2))
    expected = n * weights / (sigma * math.sqrt(2 * math.pi))  # the sum of all weights, to 1 + 2 exp(-2 pi^2 sigma^2)
    inside = np.bincount(x[abs(x) <= reach] + reach, minlength=2 * reach + 1)
    width = max(1, reach // 500)  # neighbours in a group, so that 20 are expected in each
    groups = np.arange(0, 2 * reach + 2 - width, width)
    counts, expected = np.add.reduceat(inside, groups), np.add.reduceat(expected, groups)
    counts, expected = np.append(counts, n - counts.sum()), np.append(expected, n - expected.sum())
    assert expected.min() > 20
    assert stats.chisquare(counts, expected).pvalue > 1e-4


@pytest.mark.parametrize("sigma", [2.0**17, 123456789.1, 2.0**31, LARGEST])
def test_large_noise_has_the_normal_quantiles_and_uniform_last_digits(sigma):
    x = discrete_gaussian(KEY, sigma, 1_000_000)
    bins = (stats.norm.cdf((x + 0.5) / sigma) * 500).astype(int)
    assert stats.chisquare(np.bincount(bins, minlength=500)).pvalue > 1e-4
    for modulus in (2, 256, 1000):
        assert stats.chisquare(np.bincount(x % modulus, minlength=modulus)).pvalue > 1e-4


def test_the_key_decides():
    x = discrete_gaussian(KEY, 2.0**20, 1000)
    assert x.dtype == np.int64 and x.tolist() == discrete_gaussian(KEY, 2.0**20, 1000).tolist()
    for other in (discrete_gaussian(bytes(32), 2.0**20, 1000), discrete_gaussian(KEY, 2.0**20 + 1, 1000)):
        assert abs(np.corrcoef(x, other)[0, 1]) < 0.15
    assert discrete_gaussian(KEY, 4, 0).size == 0


@pytest.mark.parametrize("sigma", [50, 3000.5, LARGEST])
def test_more_numbers_begin_with_the_fewer(sigma):
    long = discrete_gaussian(KEY, sigma, 2 * gaussian.PART + 5)
    for size in (1, gaussian.PART, gaussian.PART + 1):
        assert long[:size].tolist() == discrete_gaussian(KEY, sigma, size).tolist()


def test_the_same_numbers_on_every_machine():
    draws = [discrete_gaussian(KEY, sigma, 1000).astype("<i8").tobytes() for sigma in (4.0, 700.25, 2.0**33)]
    digests = [hashlib.sha256(draw).hexdigest()[:16] for draw in draws]
    assert digests == ["983ed72b3b713e45", "ee2558eaeb77fe92", "9c82aa3e4a5fb6c9"]


@pytest.mark.parametrize("sigma", [3.99, 0, -5, math.nan, math.inf, 2.0**40 + 1])
def test_other_sigmas_are_refused(sigma):
    with pytest.raises(ValueError, match=r"expected a number from 4 to 2\^40"):
        discrete_gaussian(KEY, sigma, 1)


def test_other_keys_and_sizes_are_refused():
    with pytest.raises(ValueError, match="a key of 31 bytes; expected 32"):
        discrete_gaussian(KEY[:31], 4, 1)
    for size in (-1, 2**35 + 1):
        with pytest.raises(ValueError, match="values; expected 0 to"):
            discrete_gaussian(KEY, 4, size)


@given(st.floats(4, LARGEST))
def test_variances_add_up_exactly(sigma):
    factor, total = 1, Fraction(0)
    levels = gaussian._levels(sigma)
    for variance, k in levels:
        total += factor**2 * variance
        factor *= k
        assert variance <= 1024**2
    assert total == Fraction(sigma) ** 2
    assert len(levels) <= 5
    for (variance, k), after in zip(levels, gaussian._levels(sigma)[1:], strict=False):
        assert variance == 16 * k * k  # sigma1 = 4 k
        assert after[0] >= 48 or after[1] > 1


@pytest.mark.parametrize("sigma", [4, 1024])
def test_tables_agree_with_mpmath(sigma):
    """F(x) computed in another way, with 60 digits: to two units of 2^-128."""
    table = gaussian._table(Fraction(sigma) ** 2)
    F = [int(high) << 64 | int(low) for high, low in zip(table.high, table.low, strict=True)]
    assert sorted(F) == F and len(F) == 2 * table.R
    with mpmath.workdps(60):
        weights = [mpmath.exp(-mpmath.mpf(x * x) / (2 * sigma**2)) for x in range(table.R + 1)]
        total = weights[0] + 2 * mpmath.fsum(weights[1:])
        left = mpmath.fsum(weights[1:])
        for x in (0, 1, sigma, 3 * sigma, 9 * sigma, 10 * sigma, 13 * sigma):
            above = mpmath.fsum(weights[x + 1 :]) / total
            assert abs(F[table.R - x - 1] - above * 2**128) < 2  # P(X <= -x - 1)
            assert abs(2**128 - F[table.R + x] - above * 2**128) < 2
        assert abs(F[table.R - 1] - left / total * 2**128) < 2


@pytest.mark.parametrize("sigma", [4, 57.5, 200])
def test_numbers_that_64_bits_do_not_decide(sigma):
    """The first words of U are a table's own, and those at its ends: 128 bits decide as a search in whole numbers."""
    table = gaussian._table(Fraction(sigma) ** 2)
    F = [int(high) << 64 | int(low) for high, low in zip(table.high, table.low, strict=True)]
    words = np.concatenate(
        [table.high, table.high + np.uint64(1), table.high - np.uint64(1), np.uint64([0, 2**64 - 1])]
    )
    got = gaussian._invert(table, words, KEY, b"label", 7)
    U = [int(w) << 64 | int.from_bytes(expand(KEY, enc(b"label", 7 + i), 8), "big") for i, w in enumerate(words)]
    assert got.tolist() == [bisect.bisect_right(F, u) - table.R for u in U]


@pytest.mark.parametrize(("sigma", "bound"), [(1024.5, 2.0**-340), (5000.0, 2.0**-340)])
def test_two_narrow_ones_make_a_wide_one(sigma, bound):
    """The smoothing error of X1 + k X2, summed with 160 digits, is as small as the docstring says."""
    (v1, k), (v2, _) = gaussian._levels(sigma)
    with mpmath.workdps(160):
        v1, v2 = mpmath.mpf(v1.numerator) / v1.denominator, mpmath.mpf(v2.numerator) / v2.denominator
        reach = 30 * int(mpmath.sqrt(v2))

        def ratio(x):
            terms = (
                mpmath.exp(-((x - k * j) ** 2) / (2 * v1) - mpmath.mpf(j * j) / (2 * v2)) for j in range(-reach, reach)
            )
            return mpmath.fsum(terms) * mpmath.exp(mpmath.mpf(x * x) / (2 * mpmath.mpf(sigma) ** 2))

        middle = ratio(0)
        for x in (1, k // 2, k - 1, int(sigma), 3 * int(sigma) + 1):
            assert abs(ratio(x) / middle - 1) < 2 * bound


def test_noise_is_cheap():
    def seconds():
        start = time.process_time()
        discrete_gaussian(KEY, LARGEST, 500_000)
        return time.process_time() - start

    ns = min(seconds() for _ in range(3)) / 500_000 * 1e9
    print(f"{ns:.0f} ns a value at sigma 2^40")
    assert ns < 300
