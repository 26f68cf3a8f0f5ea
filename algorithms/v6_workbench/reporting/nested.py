"""Regressions side by side: which is nested in which, and whether its further columns say more than chance."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from v6_workbench.reporting.intervals import noisy
from v6_workbench.reporting.levels import levels_of
from v6_workbench.reporting.summary import Result

ALIKE = ("label", "classes", "event", "offset", "weights")  # data that decide what the rows tell
FITTED = ("family", "link", "strata", "ties")  # what a likelihood is of
SAME = 1e-6  # relative difference of the same number of two jobs: sums of other orders, or under masks
HARMLESS = ("onehot", "standardize", "scale")  # steps that leave coefficients those of the columns


@dataclass(frozen=True)
class Comparison:
    """Two regressions of the same rows, the columns of one being among those of the other.

    Attributes:
        smaller: the name of the result with fewer columns.
        larger: the name of the other.
        test: "likelihood ratio", or "F" where the dispersion is estimated.
        statistic: of the test that the further coefficients are 0.
        df: their number.
        df_residual: of F, the degrees of freedom of the larger one; None of a likelihood ratio.
        p: probability of a larger statistic if they are 0.
    """

    smaller: str
    larger: str
    test: str
    statistic: float
    df: int
    df_residual: int | None
    p: float


def of_methods(results: Mapping[str, Result]) -> dict[str, dict[str, Result]]:
    """Select the regressions among some results: those that have coefficients, and no noise.

    Args:
        results: results by their names.

    Returns:
        For each method, its results by their names.
    """
    found: dict[str, dict[str, Result]] = {}
    for name, result in results.items():
        if result.get("coefficients") and not noisy(result):
            found.setdefault(result["method"], {})[name] = result
    return found


def same_rows(one: Result, other: Result) -> bool:
    """Say whether two regressions are about the same label of the same rows, as far as results tell.

    Args:
        one: a regression.
        other: another one.

    Returns:
        Whether organizations, numbers of rows and the fit without columns are the same.
    """
    digests = [(result.get("experiment") or {}).get("digest") for result in (one, other)]
    if None not in digests and digests[0] != digests[1] and _dealt(one) == _dealt(other):
        return False
    if any(one["data"].get(name) != other["data"].get(name) for name in ALIKE):
        return False
    if any(one.get(name) != other.get(name) for name in ("n", "fitted_on", "events")):
        return False
    pairs = [(one.get(name), other.get(name)) for name in ("null_deviance", "null_log_likelihood")]
    known = [(a, b) for a, b in pairs if a is not None and b is not None]
    return bool(known) and all(math.isclose(a, b, rel_tol=SAME, abs_tol=SAME) for a, b in known)


def comparisons(results: Mapping[str, Result]) -> list[Comparison]:
    """Test each regression against the largest one that is nested in it.

    Args:
        results: results by their names.

    Returns:
        The tests, in the order of the larger ones.
    """
    found = []
    for regressions in of_methods(results).values():
        for name, larger in regressions.items():
            inner = [(other, one) for other, one in regressions.items() if _is_nested(one, larger)]
            if inner:
                found.append(_tested(*max(inner, key=lambda pair: len(pair[1]["coefficients"])), name, larger))
    return found


def other_rows(results: Mapping[str, Result]) -> list[str]:
    """Say that regressions are about different rows, so that AIC and deviance do not compare them.

    Args:
        results: results by their names.

    Returns:
        One line, or none.
    """
    groups = [[*found.values()] for found in of_methods(results).values()]
    if all(same_rows(group[0], result) for group in groups for result in group[1:]):
        return []
    return [
        "the regressions are not all about the same label of the same table's rows: AIC, deviance and log-likelihood "
        "compare only those that are"
    ]


def _dealt(result: Result) -> list[Any]:
    """How the rows were dealt, on which a digest depends too."""
    return [result["experiment"].get(name) for name in ("partition", "partition_seed", "nodes")]


def _is_nested(smaller: Result, larger: Result) -> bool:
    """Whether a regression is the other one with some coefficients 0, both with all that a test needs."""
    names = [{row["name"] for row in result["coefficients"]} for result in (smaller, larger)]
    fits = all(
        result["converged"] and result["aic"] is not None and result.get("left_out") is None
        for result in (smaller, larger)
    )
    return (
        names[0] < names[1]
        and fits
        and same_rows(smaller, larger)
        and all(smaller.get(name) == larger.get(name) for name in FITTED)
        and _bins(smaller) == _bins(larger)
        and _steps(smaller) == _steps(larger)
        and {str(levels) for levels in levels_of(smaller)} <= {str(levels) for levels in levels_of(larger)}
    )


def _bins(result: Result) -> list[float] | None:
    """The ends of bins of time; None if there are none."""
    ends: list[float] | None = (result.get("baseline") or {}).get("ends")
    return ends


def _steps(result: Result) -> list[Any]:
    """The steps that change what a coefficient is of."""
    return [step for step in result["settings"]["preprocess"] if step.split(":")[0] not in HARMLESS]


def _tested(of_smaller: str, smaller: Result, of_larger: str, larger: Result) -> Comparison:
    from scipy import special  # slow to import

    df = len(larger["coefficients"]) - len(smaller["coefficients"])
    if "log_likelihood" in larger:
        statistic = 2 * (larger["log_likelihood"] - smaller["log_likelihood"])
    else:
        statistic = smaller["deviance"] - larger["deviance"]
    statistic = max(statistic, 0.0)
    if larger.get("family") not in ("gaussian", "gamma"):
        p = float(special.chdtrc(df, statistic))
        return Comparison(of_smaller, of_larger, "likelihood ratio", statistic, df, None, p)
    free = larger["df_residual"]
    statistic /= df * larger["dispersion"]
    return Comparison(of_smaller, of_larger, "F", statistic, df, free, float(special.fdtrc(df, free, statistic)))
