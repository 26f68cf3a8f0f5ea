"""Why R squared and the C-index have no interval: what follows from the sums that leave is wrong, or far too wide."""

import numpy as np
import pytest

TRIES, ROWS = 400, 1000


def normal(rng, n):
    prediction = rng.normal(size=n)
    return prediction + rng.normal(size=n), prediction


def skewed(rng, n):
    """Labels such as costs or lengths of stay: logarithms are normal, and the prediction is the right mean."""
    score = rng.normal(size=n)
    return np.exp(0.8 * (score + rng.normal(size=n))), np.exp(0.8 * score + 0.32)


@pytest.mark.parametrize(("draw", "least", "most"), [(normal, 0.92, 0.97), (skewed, 0.4, 0.7)])
def test_intervals_of_r_squared_from_sums_need_normal_labels(draw, least, most):
    """R squared +- 1.96 * 2 R (1 - R^2) / sqrt(n), all that squared errors, labels and their squares tell.

    The real variance depends on fourth powers, which no node sends. 95% are wanted.
    """
    rng = np.random.default_rng(0)

    def r_squared(n):
        y, prediction = draw(rng, n)
        return 1 - np.mean((y - prediction) ** 2) / y.var()

    truth, found = r_squared(10**6), np.array([r_squared(ROWS) for _ in range(TRIES)])
    half = 1.96 * 2 * np.sqrt(np.maximum(found, 0)) * (1 - found) / np.sqrt(ROWS)
    assert least < np.mean(np.abs(found - truth) <= half) < most


def test_the_bound_of_the_c_index_from_sums_is_far_too_wide():
    """Of n rows and P pairs, C (1 - C) (n - 1) / P bounds the variance (Hoeffding 1963), wherever the rows lie.

    With four hospitals and one event in nine rows, its root is 4 to 5 times the real error.
    """
    rng, hospitals, n = np.random.default_rng(0), 4, 1000

    def drawn():
        right = pairs = 0
        for _ in range(hospitals):
            x = rng.normal(size=n // hospitals)
            event, end = rng.exponential(np.exp(-x)), rng.exponential(0.1, size=len(x))
            time = np.minimum(event, end)
            earlier = (event <= end)[:, None] & (time[:, None] < time)
            pairs, right = pairs + earlier.sum(), right + (earlier & (x[:, None] > x)).sum()
        return right / pairs, right / pairs * (1 - right / pairs) * (n - 1) / pairs

    found = np.array([drawn() for _ in range(100)])
    assert 4 < np.sqrt(found[:, 1].mean()) / found[:, 0].std() < 5.5
