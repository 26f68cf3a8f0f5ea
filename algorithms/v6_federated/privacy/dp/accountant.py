"""What plans cost: epsilon at a given delta, with the library dp-accounting.

Two tables are neighbours if one row of the first is replaced by the row of zeros, which contributes nothing (zero-out,
REPLACE_SPECIAL in the library); the number of rows is public.

The accounting is for Gaussian noise, and the noise is discrete. That changes nothing for sums of whole numbers: of a
shift by whole numbers, a discrete Gaussian has the Renyi divergence of the continuous one at integer orders a, with and
without sampling, since its moments sum over x - k Delta, which are all whole numbers again (Canonne, Kamath and Steinke
2020 without sampling); at other orders the sums differ by a factor 1 + 2 exp(-2 pi^2 sigma^2), below 1 + 2^-454 for
sigma from 4. Numbers by PLD are those of continuous noise, and are shown but never decide.
"""

import copy
import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from v6_federated.base.errors import SafeError
from v6_federated.privacy.dp.plan import NOISE, RANGES, Plan

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


def events(plan: Plan) -> Any:
    """What a plan does, as the library describes it.

    Args:
        plan: a job's plan.

    Returns:
        A DpEvent.
    """
    import dp_accounting as dp  # here, since it takes half a second and only nodes with a budget need it

    step = dp.GaussianDpEvent(plan.noise)
    if plan.rate < 1:
        step = dp.PoissonSampledDpEvent(plan.rate, step)
    parts = (
        (step, plan.steps),
        (dp.GaussianDpEvent(plan.evaluation_noise), plan.evaluations),
        (dp.GaussianDpEvent(plan.statistics_noise), plan.statistics),
    )
    return dp.ComposedDpEvent([dp.SelfComposedDpEvent(event, count) for event, count in parts if count])


def epsilon(plans: Iterable[Plan], delta: float) -> float:
    """What plans cost together, by Renyi differential privacy.

    This holds if each plan was chosen after seeing the results of others, and if jobs run at the same time (Feldman and
    Zrnic 2021; Haney et al. 2023).

    Args:
        plans: the plans.
        delta: the probability that epsilon does not bound the loss.

    Returns:
        epsilon.
    """
    return float(_compose(plans).get_epsilon(delta))


def epsilon_pld(plan: Plan, delta: float) -> float:
    """What one plan costs, by privacy loss distributions: a tighter bound than ``epsilon``, for a fixed plan alone.

    Args:
        plan: a job's plan.
        delta: the probability that epsilon does not bound the loss.

    Returns:
        epsilon; that of ``epsilon`` if it is above 50.
    """
    import dp_accounting as dp
    from dp_accounting.pld import PLDAccountant

    bound = epsilon([plan], delta)
    if bound > MOST_PLD:
        return bound
    accountant = PLDAccountant(dp.NeighboringRelation.REPLACE_SPECIAL)
    return min(bound, float(accountant.compose(events(plan)).get_epsilon(delta)))


def calibrated(plan: Plan, target: float, delta: float, spent: Iterable[Plan] = ()) -> Plan:
    """The plan with the smallest noise that costs at most epsilon. Its noises keep their proportions.

    Args:
        plan: a job's plan, whose noises count by their proportions only.
        target: the epsilon that it may cost, with ``spent``.
        delta: the probability that epsilon does not bound the loss.
        spent: plans whose costs are added.

    Returns:
        The plan with the noises of what it asks at all multiplied by one factor, to 0.03% the smallest.

    Raises:
        SafeError: no noise that a plan can have is large enough.
    """
    used = {noise: getattr(plan, noise) for noise, count in NOISES if getattr(plan, count)}
    if not used:
        return plan
    low = math.ceil(FINENESS * math.log2(NOISE[0] / min(used.values())))
    high = math.floor(FINENESS * math.log2(NOISE[1] / max(used.values())))
    before = _compose(spent)

    def scaled(i: int) -> Plan:
        noises: dict[str, Any] = {name: _rounded_up(z * 2 ** (i / FINENESS)) for name, z in used.items()}
        return replace(plan, **noises)

    def fits(i: int) -> bool:
        return _epsilon_with(before, scaled(i), delta) <= target

    if not fits(high):
        raise SafeError(
            f"no noise up to {NOISE[1]:,.0f} makes the plan cost at most epsilon {target:.4g} at delta {delta:g}; ask "
            "for a larger epsilon"
        )
    return scaled(_first(fits, low, high))


def fitting_steps(spent: Iterable[Plan], plan: Plan, target: float, delta: float) -> int:
    """How many steps fit, with the plan's noises, evaluations and statistics.

    Args:
        spent: plans whose costs are added.
        plan: a job's plan, whose number of steps does not count.
        target: the epsilon that all may cost together.
        delta: the probability that epsilon does not bound the loss.

    Returns:
        The largest number of steps that a plan can have and that costs at most epsilon; 0 if there is none.
    """
    before, most = _compose(spent), int(RANGES["steps"][1])

    def too_many(steps: int) -> bool:
        return _epsilon_with(before, replace(plan, steps=steps), delta) > target

    return most if not too_many(most) else _first(too_many, 1, most) - 1


def _compose(plans: Iterable[Plan]) -> Any:
    """An accountant that knows these plans."""
    import dp_accounting as dp
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant(ORDERS, dp.NeighboringRelation.REPLACE_SPECIAL)
    for plan, count in Counter(plans).items():
        _add(accountant, plan, count)
    return accountant


def _epsilon_with(accountant: Any, plan: Plan, delta: float) -> float:
    """What one plan more would cost together with what an accountant knows."""
    with_plan = copy.deepcopy(accountant)
    _add(with_plan, plan, 1)
    return float(with_plan.get_epsilon(delta))


def _add(accountant: Any, plan: Plan, count: int) -> None:
    """Add a plan to what an accountant knows, so many times."""
    import dp_accounting as dp

    if plan.rate < 1 and plan.steps:
        accountant.compose(dp.ZCDpEvent(rho=0.0, xi=ROUNDING), plan.steps * count)
    accountant.compose(events(plan), count)


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
