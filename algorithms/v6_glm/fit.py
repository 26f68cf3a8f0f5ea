"""What the sums at the end say: standard errors, tests, intervals, and how well the model fits."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import special

from v6_federated import SafeError, inference
from v6_glm.families import FAMILIES, LINKS, Family, Glm
from v6_glm.scoring import Scoring

PERFECT = 1e-24  # share of the label's variance that is rounding
RATIOS = {"logit": "odds_ratio", "cloglog": "hazard_ratio", "log": "mean_ratio"}  # what exp(coefficient) is, by link


def check_not_separated(
    scoring: Scoring, model: Glm, H: np.ndarray, sums: Mapping[str, float], names: Sequence[str]
) -> None:
    """Reject data in which some columns predict labels with certainty: their coefficients grow for ever.

    If every row is on the right side of its class, no row's deviance is above 2 log 2, and the other way round. If only
    some values of a column predict with certainty, the rows that tell its coefficient weigh less and less in H.

    Args:
        scoring: the coefficients b (p,) of centred columns divided by their deviations, and the first H.
        model: family and link.
        H: the Hessian at b (p, p).
        sums: sums over all rows at b.
        names: of the columns, without the intercept.

    Raises:
        SafeError: they do; it names the columns, as far as they matter.
    """
    assert scoring.first is not None and scoring.b is not None
    binary = model.family is FAMILIES["binomial"] and sums["weight"] == sums["rows"]
    if binary and sums["deviance"] < 2 * math.log(2):
        direction = np.abs(scoring.b)
    else:
        lost = inference.lost_direction(scoring.first, H)
        if lost is None:
            return
        direction = lost
    direction[-1] = 0.0  # the intercept goes along
    matter = inference.that_matter(names, direction)
    raise SafeError(
        f"the column(s) {matter} separate the labels: some of their values predict the label with "
        "certainty, so that no finite coefficients fit best; leave them out (--exclude), merge levels, or set l2, for "
        "example --set l2=0.1"
    )


def why_refused(model: Glm, scoring: Scoring, names: Sequence[str]) -> str:
    """Say why nodes often refuse the sums of a step, and what to do: under masks nobody sees the reason.

    Args:
        model: family and link.
        scoring: where it stands.
        names: of the columns, without the intercept.
    """
    if scoring.b is None:
        fits = f", the label does not fit the family (expected {model.family.labels})" if model.family.labels else ""
        return (
            f"values are missing (add a step impute){fits}, rows are too few for a limit or for so many columns (leave "
            "some out with --exclude), or a column of weights or offsets is too uneven"
        )
    larger = "a larger l2" if scoring.l2 else "l2, for example --set l2=0.1"
    if model.regression:
        return (
            "the means that the columns predict are too far apart: leave out columns (--exclude), choose another "
            f"family or link, or set {larger}"
        )
    certain = "" if scoring.first is None else inference.suspects(names, scoring.first, scoring.good["H"])
    return (
        f"columns{certain} predict the label of nearly all rows with certainty (separation): leave them out "
        f"(--exclude), merge levels, or set {larger}"
    )


def log_likelihood(family: str, sums: Mapping[str, float]) -> tuple[float, int]:
    """Compute the log-likelihood as R's families do for AIC, and how many dispersions it estimates.

    Args:
        family: its name.
        sums: sums over all rows, see ``measures``.

    Returns:
        The log-likelihood, and 0 or 1.
    """
    deviance, weight, rows = sums["deviance"], sums["weight"], sums["rows"]
    if family == "gaussian":
        if deviance <= 0:
            return math.inf, 1
        return (sums["log_weight"] - rows * (math.log(2 * math.pi * deviance / rows) + 1)) / 2, 1
    if family == "gamma":
        k = weight / deviance if deviance > 0 else math.inf  # shape, 1 / dispersion
        if not math.isfinite(k):
            return math.inf, 1
        # sum of w (k log(k y / mu) - k y / mu - log y - log Gamma(k)); deviance / 2 is that of w (y/mu - 1 - log(y/mu))
        return weight * (k * math.log(k) - k - float(special.gammaln(k))) - k * deviance / 2 - sums["constant"], 1
    return sums["constant"] - deviance / 2, 0


def dispersion(family: Family, sums: Mapping[str, float], p: int) -> float | None:
    """Estimate the dispersion by Pearson's X^2.

    Args:
        family: the family.
        sums: sums over all rows.
        p: number of coefficients.

    Returns:
        phi; 1 if the family has none, None if no rows are left to estimate it from.
    """
    if not family.dispersed:
        return 1.0
    free = sums["rows"] - p
    return sums["pearson"] / free if free > 0 else None


def fits_perfectly(model: Glm, scoring: Scoring) -> bool:
    """Say whether nothing is left of labels but rounding, so that errors and tests would be about rounding.

    Args:
        model: family and link.
        scoring: where it has ended.

    Returns:
        Whether it is so; False of families whose dispersion is not estimated.
    """
    sums = scoring.good["sums"]
    least = max(PERFECT * sums["null_deviance"], scoring.rounding(scoring.good["H"]))
    return model.family.dispersed and sums["pearson"] <= least


def check_labels(model: Glm, sums: Mapping[str, float]) -> None:
    """Reject labels that are all alike, for which no finite coefficients fit best.

    Args:
        model: family and link.
        sums: sums over all rows.

    Raises:
        SafeError: they are.
    """
    if not sums["weight"]:
        raise SafeError("no row has a weight above 0; name another column in weights")
    if model.family is FAMILIES["binomial"] and sums["label"] in (0, sums["weight"]):
        raise SafeError("all rows have the same class; expected rows of both classes")
    if model.family is FAMILIES["poisson"] and sums["label"] == 0:
        raise SafeError("all counts are 0; expected some that are not")


def summary(model: Glm, scoring: Scoring, names: Sequence[str], E: np.ndarray, confidence: float) -> dict[str, Any]:
    """Say what was found, as statistics packages do.

    Args:
        model: family and link.
        scoring: where it has ended.
        names: original columns (k,), see ``affine.original``.
        E: the columns after the steps by original ones (d, 1 + k).
        confidence: of the intervals.

    Returns:
        ``coefficients``, see ``inference.table``, and ``deviance``, ``null_deviance``, ``aic``, ``dispersion``,
        ``n`` and ``df_residual``, all over the rows of the organizations in ``fitted_on``.
    """
    sums, p = scoring.good["sums"], len(scoring.good["H"])
    link = next(name for name, one in LINKS.items() if one is model.link)
    family = next(name for name, one in FAMILIES.items() if one is model.family)
    M = np.zeros((1 + len(names), p))  # the intercept first
    M[:, :-1], M[0, -1] = E.T, 1.0
    M = M @ scoring.back
    phi = dispersion(model.family, sums, p)
    covariance, perfect = None, fits_perfectly(model, scoring)
    if phi is not None and not scoring.l2 and not perfect:
        covariance = phi * M @ np.linalg.inv(scoring.good["H"]) @ M.T
    free = max(sums["rows"] - p, 0)  # with a penalty, rows may be fewer than coefficients
    likelihood, estimated = log_likelihood(family, sums)
    known = math.isfinite(likelihood) and not scoring.l2 and not perfect
    null = sums["null_deviance"]
    if sums["null_hessian"] > 0:
        null -= sums["null_gradient"] ** 2 / sums["null_hessian"]  # the last step, which is short
    return {
        "coefficients": inference.table(
            ["intercept", *names],
            M @ scoring.good["next"],
            covariance,
            "rate_ratio" if family == "poisson" else RATIOS.get(link),
            confidence,
            free if model.family.dispersed and free > 0 else None,
        ),
        "family": family,
        "link": link,
        "confidence": confidence,
        "converged": scoring.converged,
        "deviance": sums["deviance"],
        "null_deviance": null,
        "fits_perfectly": perfect,
        "aic": 2 * (p + estimated - likelihood) if known else None,
        "dispersion": phi,
        "n": int(sums["rows"]),
        "df_residual": int(free),
        "fitted_on": [*map(int, scoring.good["about"][1:])],
    }
