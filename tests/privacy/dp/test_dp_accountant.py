"""What plans cost, against a second accountant, and what would fit."""

import math
import subprocess
import sys
from dataclasses import replace

import dp_accounting
import mpmath
import numpy as np
import pytest
from dp_accounting.rdp import rdp_privacy_accountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

from v6_federated.base.errors import SafeError
from v6_federated.noise import accountant
from v6_federated.noise.accountant import calibrated, epsilon, epsilon_pld, events, fitting_steps
from v6_federated.noise.plan import Plan

DELTA = 1e-5


def make(rate=1.0, noise=1.0, steps=0, evaluations=0, evaluation_noise=20.0, statistics=0, statistics_noise=20.0):
    return Plan(
        clip=1.0,
        noise=noise,
        rate=rate,
        steps=steps,
        evaluations=evaluations,
        evaluation_noise=evaluation_noise,
        statistics=statistics,
        statistics_noise=statistics_noise,
    )


def to_epsilon(curve, orders, delta=DELTA):
    """The smallest epsilon that Renyi divergences allow (Canonne, Kamath and Steinke 2020, Proposition 12)."""
    return min(
        curve(a) + math.log1p(-1 / a) - (math.log(delta) + math.log(a)) / (a - 1) for a in orders if curve(a) < math.inf
    )


def mironov(q, z, a):
    """The Renyi divergence of one sampled step, at an integer order.

    Mironov, Talwar and Zhang 2019, section 3.3: 1 / (a - 1) log sum_k binom(a, k) (1 - q)^(a - k) q^k
    exp((k^2 - k) / (2 z^2)), here with 60 digits.
    """
    with mpmath.workdps(60):
        q, z = mpmath.mpf(q), mpmath.mpf(z)
        terms = (
            mpmath.binomial(a, k) * (1 - q) ** (a - k) * q**k * mpmath.exp((k * k - k) / (2 * z * z))
            for k in range(a + 1)
        )
        return mpmath.log(mpmath.fsum(terms)) / (a - 1)


def balle_wang(z, delta=DELTA):
    """The exact epsilon of Gaussian noise (Balle and Wang 2018, Theorem 8)."""

    def gap(e):
        return stats.norm.cdf(1 / (2 * z) - e * z) - math.exp(e) * stats.norm.cdf(-1 / (2 * z) - e * z) - delta

    return optimize.brentq(gap, 0, 100)


@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-9])
@pytest.mark.parametrize(("noise", "steps"), [(1.0, 1), (5.0, 100), (40.0, 1000)])
def test_without_sampling_it_is_the_formula(noise, steps, delta):
    """alpha T / (2 z^2), at the best of all orders: the table's orders lose a percent at most."""
    best = to_epsilon(lambda a: a * steps / (2 * noise**2), np.arange(1.01, 600, 0.01), delta)
    found = epsilon([make(noise=noise, steps=steps)], delta)
    assert best * (1 - 1e-9) <= found <= 1.01 * best
    exact = balle_wang(noise / math.sqrt(steps), delta)
    assert exact * (1 - 1e-6) <= epsilon_pld(make(noise=noise, steps=steps), delta) <= exact * 1.001 + 1e-3
    assert exact <= found


@pytest.mark.parametrize(
    ("rate", "noise", "steps"),
    [(0.01, 1.1, 1000), (0.1, 1.0, 100), (0.2, 8.0, 1000), (1e-4, 0.8, 10_000), (0.02, 20, 1000)],
)
def test_with_sampling_it_agrees_with_a_second_accountant(rate, noise, steps):
    """Integer orders alone, computed by hand: orders between them gain a percent at most in these settings."""
    by_hand = to_epsilon(lambda a: steps * float(mironov(rate, noise, a)), range(2, 200))
    found = epsilon([make(rate, noise, steps)], DELTA)
    assert 0.985 * by_hand <= found <= 1.005 * by_hand
    assert 0 < epsilon_pld(make(rate, noise, steps), DELTA) <= found


def test_a_published_number():
    """TensorFlow Privacy's tutorial on MNIST: 60,000 rows, batches of 250, 15 epochs, noise 1.3, delta 1e-5: 1.18.

    It says the looser epsilon(a) + log(1 / delta) / (a - 1), which the same divergences give here.
    """
    steps, rate = 15 * 60_000 // 250, 250 / 60_000
    theirs = min(steps * float(mironov(rate, 1.3, a)) - math.log(DELTA) / (a - 1) for a in range(2, 65))
    assert theirs == pytest.approx(1.18, abs=0.005)
    assert 0.75 * theirs < epsilon([make(rate, 1.3, steps)], DELTA) < theirs


@pytest.mark.parametrize("evaluations", [5, 500])
def test_all_parts_of_a_plan_cost(evaluations):
    """Gaussian parts add up, T / z^2 of each; of rows to train on and rows held out the dearer ones count."""
    plan = make(noise=4.0, steps=10, evaluations=evaluations, evaluation_noise=8.0, statistics=3, statistics_noise=2.0)
    together = make(noise=1 / math.sqrt(max(10 / 16 + 3 / 4, evaluations / 64)), steps=1)
    assert epsilon([plan], DELTA) == pytest.approx(epsilon([together], DELTA), rel=1e-12)
    assert epsilon_pld(plan, DELTA) == pytest.approx(epsilon_pld(together, DELTA), rel=1e-3)
    assert epsilon([], DELTA) == epsilon([make()], DELTA) == epsilon_pld(make(), DELTA) == 0


def test_the_two_kinds_of_rows_are_compared_order_by_order():
    """A row of either kind costs at most the plan: by the formulas, at integer orders."""
    plan = make(rate=0.1, noise=1.0, steps=40, evaluations=8, evaluation_noise=2.6)
    alone = [replace(plan, evaluations=0), replace(plan, steps=0)]
    assert epsilon([plan], DELTA) > max(epsilon([part], DELTA) for part in alone)
    assert epsilon([plan], DELTA) < epsilon(alone, DELTA)
    by_hand = to_epsilon(lambda a: max(40 * float(mironov(0.1, 1.0, a)), a * 8 / (2 * 2.6**2)), range(2, 200))
    assert 0.985 * by_hand <= epsilon([plan], DELTA) <= 1.005 * by_hand


def test_rows_that_are_held_out_by_another_job_pay_for_both():
    """Two jobs may split the rows otherwise: their costs add up, also where each asks another kind of rows."""
    training, evaluation = make(noise=4.0, steps=16), make(evaluations=16, evaluation_noise=4.0)
    assert epsilon([training, evaluation], DELTA) == pytest.approx(epsilon([make(noise=4.0, steps=32)], DELTA))


def test_plans_compose():
    a, b = make(0.1, 1.5, 40), make(0.2, 3.0, 60, 10)
    assert epsilon([make(0.1, 1.5, 20)] * 2, DELTA) == pytest.approx(epsilon([a], DELTA))
    assert max(epsilon([a], DELTA), epsilon([b], DELTA)) < epsilon([a, b], DELTA)
    assert epsilon([a, b], DELTA) < epsilon([a], DELTA) + epsilon([b], DELTA)
    assert epsilon([a, b], DELTA) == pytest.approx(epsilon([b, a], DELTA))


def test_the_neighbours_are_zero_out():
    """Replacing a row by another one (REPLACE_ONE) would double the sensitivity."""
    training, _ = events(make(0.5, steps=3))
    assert training.events[0].event.sampling_probability == 0.5
    assert accountant._neighbours() is dp_accounting.NeighboringRelation.REPLACE_SPECIAL


@pytest.mark.parametrize("rate", [1e-6, 1e-3, 0.3, 0.999999])
@pytest.mark.parametrize("noise", [0.5, 3.0, 100.0, 1e6])
def test_no_step_is_cheaper_than_it_is(rate, noise):
    """At any integer order the library's number and the margin are at least the sum with 60 digits."""
    for order in (2, 3, 10, 64, 512):
        exact = mironov(rate, noise, order)
        [found] = rdp_privacy_accountant._compute_rdp_poisson_subsampled_gaussian(rate, noise, [order])
        assert found + accountant.ROUNDING >= exact
        assert abs(found - exact) < 1e-12 * max(1, exact)


def test_a_plan_of_almost_no_cost_is_not_free():
    """The library alone rounds this one to epsilon 0, or says that it cannot compute it."""
    plan = make(1e-6, 1e6, 1_000_000)
    assert epsilon([plan], 1e-9) > 0
    assert epsilon([plan] * 1000 + [make(noise=3.0, steps=1)], DELTA) > epsilon([make(noise=3.0, steps=1)], DELTA)


def test_what_costs_too_much_to_compute_is_bounded():
    assert epsilon_pld(make(noise=0.1, steps=1000), DELTA) == epsilon([make(noise=0.1, steps=1000)], DELTA) > 50


@pytest.mark.parametrize("target", [0.3, 1, 3, 8])
@pytest.mark.parametrize(
    "plan", [make(0.1, 1, 100, 20, 20.0, 3, 15.0), make(noise=7, steps=100), make(evaluations=5), make(0.01, 100, 5000)]
)
def test_calibrated_noise_just_fits(plan, target):
    found = calibrated(plan, target, DELTA)
    assert 0.995 * target < epsilon([found], DELTA) <= target
    assert calibrated(found, target, DELTA).noise == pytest.approx(found.noise, rel=5e-4)
    used = [(f, o) for f, o, count in zip(noises(found), noises(plan), counts(plan), strict=True) if count]
    assert np.ptp([f / o for f, o in used]) < 1e-3 * used[0][0] / used[0][1]
    unused = [(f, o) for f, o, count in zip(noises(found), noises(plan), counts(plan), strict=True) if not count]
    assert all(f == o for f, o in unused)
    assert counts(found) == counts(plan)


def noises(plan):
    return [plan.noise, plan.evaluation_noise, plan.statistics_noise]


def counts(plan):
    return [plan.steps, plan.evaluations, plan.statistics]


def test_calibration_beside_other_plans():
    spent = [make(0.1, 2.0, 50), make(noise=20, steps=5)]
    found = calibrated(make(0.1, 1.0, 50), 2, DELTA, spent)
    assert 1.99 < epsilon([*spent, found], DELTA) <= 2
    with pytest.raises(SafeError, match=r"no noise up to 1,000,000 makes the plan cost at most epsilon 0\.1"):
        calibrated(make(0.1, 1.0, 50), 0.1, DELTA, spent)


def test_calibration_at_its_ends():
    assert calibrated(make(), 1, DELTA) == make()
    assert calibrated(make(steps=1, noise=3), 1000, DELTA).noise == pytest.approx(0.1, rel=1e-3)
    assert calibrated(make(steps=1, noise=1e6), 1, DELTA).noise < 10


@settings(deadline=None, max_examples=8)
@given(st.floats(0.02, 1), st.floats(0.6, 5), st.integers(0, 50), st.floats(0.5, 10))
def test_fitting_steps_fit_and_one_more_does_not(rate, noise, evaluations, target):
    plan, spent = make(rate, noise, 1, evaluations), [make(0.2, 4.0, 30)]
    steps = fitting_steps(spent, plan, target, DELTA)
    if steps:
        assert epsilon([*spent, make(rate, noise, steps, evaluations)], DELTA) <= target
    assert epsilon([*spent, make(rate, noise, steps + 1, evaluations)], DELTA) > target


def test_fitting_steps_at_their_ends():
    assert fitting_steps([], make(1e-6, 1e6), 8, DELTA) == 1_000_000
    assert fitting_steps([make(noise=1, steps=10)], make(), 1, DELTA) == 0


def test_the_library_is_imported_by_nodes_that_need_it():
    """It takes half a second, with SciPy."""
    code = "import sys, v6_federated.noise.ledger; print('dp_accounting' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"
