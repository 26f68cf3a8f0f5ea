"""What plans cost: epsilon at a given delta, with the library dp-accounting.

Two tables are neighbours if one row of the first is replaced by the row of zeros, which contributes nothing (zero-out,
REPLACE_SPECIAL in the library); the number of rows is public.

A job's split sends each person's rows to training or holds them out, whatever the rows are. So one person's rows change
either the sums of gradients and of the preparation, or the counts of evaluations: at each order a plan costs the larger
of the two divergences, not their sum (parallel composition; McSherry 2009). Another job may split otherwise: the costs
of jobs add up.

The accounting is for Gaussian noise, and the noise is discrete. That changes nothing for sums of whole numbers: of a
shift by whole numbers, a discrete Gaussian has the Renyi divergence of the continuous one at integer orders a, with and
without sampling, since its moments sum over x - k Delta, which are all whole numbers again (Canonne, Kamath and Steinke
2020 without sampling); at other orders the sums differ by a factor 1 + 2 exp(-2 pi^2 sigma^2), below 1 + 2^-454 for
sigma from 4. Numbers by PLD are those of continuous noise, and are shown but never decide.
"""

import functools
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from v6_federated.base.arrays import Array
from v6_federated.base.errors import SafeError
from v6_federated.noise.plan import NOISE, RANGES, Plan

# Integer orders are computed exactly; those between matter where epsilon is above 3. Below order 2 and above 512 no
# epsilon from 0.1 to 15 is found.
ORDERS = (
    *(a / 5 for a in range(10, 25)),
    *range(5, 65),
    *range(72, 129, 8),
    *range(144, 257, 16),
    *range(288, 513, 32),
)
# Added to a sampled step's divergence at every order: the library rounds in floating point, and a step of almost no
# cost would become one of cost 0 or less. Such errors are below 1e-12 (tests/privacy/dp/test_dp_accountant.py).
ROUNDING = 1e-11
FINENESS = 4096  # noises that are tried between one number and its double
DIGITS = 5  # of a calibrated noise
MOST_PLD = 50.0  # above this epsilon, which protects nobody, PLD's arrays grow too long
NOISES = (("noise", "steps"), ("evaluation_noise", "evaluations"), ("statistics_noise", "statistics"))


def events(plan: Plan) -> tuple[Any, Any]:
    """What a plan does, as the library describes it."""
    import dp_accounting as dp  # here, since it takes half a second and only nodes with a budget need it

    step = dp.GaussianDpEvent(plan.noise)
    if plan.rate < 1:
        step = dp.PoissonSampledDpEvent(plan.rate, step)
    training = ((step, plan.steps), (dp.GaussianDpEvent(plan.statistics_noise), plan.statistics))
    held_out = ((dp.GaussianDpEvent(plan.evaluation_noise), plan.evaluations),)
    composed = [
        dp.ComposedDpEvent([dp.SelfComposedDpEvent(event, count) for event, count in parts if count])
        for parts in (training, held_out)
    ]
    return composed[0], composed[1]


def epsilon(plans: Iterable[Plan], delta: float) -> float:
    """What plans cost together, by Renyi differential privacy.

    This holds if each plan was chosen after seeing the results of others, and if jobs run at the same time (Feldman and
    Zrnic 2021; Haney et al. 2023).
    """
    return _epsilon(_divergences(plans), delta)


@functools.lru_cache(maxsize=256)
def epsilon_pld(plan: Plan, delta: float) -> float:
    """What one plan costs, by privacy loss distributions: a tighter bound than ``epsilon``, for a fixed plan alone."""
    from dp_accounting.pld import PLDAccountant

    bound = epsilon([plan], delta)
    if bound > MOST_PLD:
        return bound
    accountants = [PLDAccountant(_neighbours()).compose(event) for event in events(plan)]
    return min(bound, max(float(accountant.get_epsilon(delta)) for accountant in accountants))


def calibrated(
    plan: Plan, target: float, delta: float, spent: Iterable[Plan] = (), noises: Collection[str] = tuple(dict(NOISES))
) -> Plan:
    """The plan with the smallest noise that costs at most epsilon. Its noises keep their proportions."""
    used = {noise: getattr(plan, noise) for noise, count in NOISES if getattr(plan, count) and noise in noises}
    if not used:
        return plan
    low = math.ceil(FINENESS * math.log2(NOISE[0] / min(used.values())))
    high = math.floor(FINENESS * math.log2(NOISE[1] / max(used.values())))
    before = _divergences(spent)

    def scaled(i: int) -> Plan:
        noises: dict[str, Any] = {name: _rounded_up(z * 2 ** (i / FINENESS)) for name, z in used.items()}
        return replace(plan, **noises)

    def fits(i: int) -> bool:
        return _epsilon(before + _divergence(scaled(i)), delta) <= target

    if not fits(high):
        raise SafeError(
            f"no noise up to {NOISE[1]:,.0f} makes the plan cost at most epsilon {target:.4g} at delta {delta:g}; ask "
            "for a larger epsilon"
        )
    return scaled(_first(fits, low, high))


def fitting_steps(spent: Iterable[Plan], plan: Plan, target: float, delta: float) -> int:
    """How many steps fit, with the plan's noises, evaluations and statistics."""
    before, most = _divergences(spent), int(RANGES["steps"][1])

    def too_many(steps: int) -> bool:
        return _epsilon(before + _divergence(replace(plan, steps=steps)), delta) > target

    return most if not too_many(most) else _first(too_many, 1, most) - 1


def _divergences(plans: Iterable[Plan]) -> Array:
    """The Renyi divergences of plans together, at each order (orders,)."""
    each = [count * _divergence(plan) for plan, count in Counter(plans).items()]
    return np.sum(each, axis=0) if each else np.zeros(len(ORDERS))


@functools.lru_cache(maxsize=1024)
def _divergence(plan: Plan) -> Array:
    """The Renyi divergences of one plan, at each order (orders,): those of the rows that it costs more."""
    from dp_accounting.rdp import RdpAccountant

    training, held_out = (RdpAccountant(ORDERS, _neighbours()).compose(event).rdp for event in events(plan))
    rounding = ROUNDING * plan.steps if plan.rate < 1 else 0.0
    found: Array = np.maximum(training + rounding, held_out)
    found.flags.writeable = False
    return found


def _epsilon(divergences: Array, delta: float) -> float:
    from dp_accounting.rdp import compute_epsilon

    return float(compute_epsilon(np.array(ORDERS), divergences, delta)[0])


def _neighbours() -> Any:
    import dp_accounting as dp

    return dp.NeighboringRelation.REPLACE_SPECIAL


def _first(holds: Callable[[int], bool], low: int, high: int) -> int:
    """The smallest number from ``low`` on that something holds for, if it holds from there on, ``high`` included."""
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return high


def _rounded_up(x: float) -> float:
    """A noise with few digits, and not less."""
    unit = 10.0 ** (math.floor(math.log10(x)) + 1 - DIGITS)
    return min(float(f"{math.ceil(x / unit) * unit:.{DIGITS}g}"), NOISE[1])
