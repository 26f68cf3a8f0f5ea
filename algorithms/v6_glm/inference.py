"""What the sums at the end say: standard errors, tests, intervals, and how well the model fits."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import special

from v6_federated import SafeError
from v6_glm.families import FAMILIES, LINKS, Family, Glm
from v6_glm.scoring import Scoring

ALIASED = 1e-9  # share of a column's information that is not in the columns before it
SEPARATED = 1e-7  # share of the first step's information on some coefficient that is left
RATIOS = {"logit": "odds_ratio", "cloglog": "hazard_ratio", "log": "mean_ratio"}  # what exp(coefficient) is, by link


def symmetric(triangle: np.ndarray, p: int) -> np.ndarray:
    """Write a symmetric matrix in full.

    Args:
        triangle: its lower triangle, row by row.
        p: its size.

    Returns:
        The matrix (p, p).
    """
    H = np.zeros((p, p))
    H[np.tril_indices(p)] = triangle
    return H + np.tril(H, -1).T


def check_identified(H: np.ndarray, names: Sequence[str]) -> None:
    """Reject columns that say nothing beyond the intercept and the columns before them.

    Args:
        H: the Hessian (p, p) of centred columns divided by their deviations; the last is the intercept.
        names: of the columns, without the intercept.

    Raises:
        SafeError: there are such columns; it names them.
    """
    p = len(H)
    order = [p - 1, *range(p - 1)]
    A = H[np.ix_(order, order)].copy()
    before, taken = np.diag(A).copy(), [0]
    for j in range(p):
        if j and A[j, j] <= ALIASED * max(before[j], before[0]):
            name = names[order[j]]
            if len(taken) > 1:
                own = H[np.ix_([order[i] for i in taken], [order[i] for i in taken])]
                with_it = np.linalg.solve(own, H[[order[i] for i in taken], order[j]])
                same = [names[order[i]] for i, b in zip(taken, with_it, strict=True) if i and abs(b) > 1e-6]
            else:
                same = []
            if not same:
                raise SafeError(f"the column {name} has one value in all rows, as the intercept has; leave it out")
            levels = sorted({c.partition("=")[0] for c in (name, *same) if "=" in c})
            onehot = f", or one level of each category (--preprocess onehot:{','.join(levels)},drop=first)"
            raise SafeError(
                f"the column {name} follows from {', '.join(same)}, so that their coefficients are not determined; "
                f"leave one of them out (--exclude){onehot if levels else ''}, or set l2"
            )
        if A[j, j] > 0:
            taken += [j] if j else []
            A[j + 1 :, j + 1 :] -= np.outer(A[j + 1 :, j], A[j, j + 1 :]) / A[j, j]


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
        L = np.linalg.cholesky(scoring.first)
        values, vectors = np.linalg.eigh(np.linalg.solve(L, np.linalg.solve(L, H).T))
        if values[0] > SEPARATED * values.max():
            return
        direction = np.abs(np.linalg.solve(L.T, vectors[:, 0]))
    direction[-1] = 0.0  # the intercept goes along
    matter = [name for name, part in zip(names, direction, strict=False) if part > 0.1 * direction.max()]
    raise SafeError(
        f"the column(s) {', '.join(matter)} separate the labels: some of their values predict the label with "
        "certainty, so that no finite coefficients fit best; leave them out, merge levels, or set l2, for example "
        "l2=0.01"
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


def table(
    names: Sequence[str],
    estimates: np.ndarray,
    covariance: np.ndarray | None,
    ratio: str | None,
    confidence: float,
    degrees: float | None,
) -> list[dict[str, Any]]:
    """Make the rows of the coefficients.

    Args:
        names: of the coefficients (k,).
        estimates: the coefficients (k,).
        covariance: of them (k, k); None if it is not known.
        ratio: what the exponential of a coefficient is called; None if it has no meaning.
        confidence: of the intervals.
        degrees: of freedom of the t distribution; None: the normal distribution, as the dispersion is known.

    Returns:
        For each coefficient ``name``, ``estimate``, ``std_error``, ``z`` (t if the dispersion was estimated), ``p`` and
        the interval from ``lower`` to ``upper``; and the exponentials of estimate and interval, as ``odds_ratio``,
        ``odds_ratio_lower`` and ``odds_ratio_upper``, or under the other names that ``ratio`` may have.
    """
    found = []
    at = (1 + confidence) / 2
    quantile = float(special.ndtri(at) if degrees is None else special.stdtrit(degrees, at))
    for i, (name, value) in enumerate(zip(names, estimates.tolist(), strict=True)):
        row: dict[str, Any] = {"name": name, "estimate": value}
        row |= dict.fromkeys(("std_error", "z", "p", "lower", "upper"))
        if covariance is not None:
            error = math.sqrt(max(float(covariance[i, i]), 0.0))
            z = value / error if error else None
            p = None
            if z is not None:
                p = 2 * float(special.ndtr(-abs(z)) if degrees is None else special.stdtr(degrees, -abs(z)))
            low, high = value - quantile * error, value + quantile * error
            row |= {"std_error": error, "z": z, "p": p, "lower": low, "upper": high}
        if ratio is not None and name != "intercept":
            row[ratio] = _exp(value)
            row |= {f"{ratio}_{end}": None if row[end] is None else _exp(row[end]) for end in ("lower", "upper")}
        found.append(row)
    return found


def _exp(value: float) -> float | None:
    """The exponential; None if it is too large for JSON."""
    return math.exp(value) if value < 709 else None


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
        ``coefficients``, see ``table``, and ``deviance``, ``null_deviance``, ``aic``, ``dispersion``,
        ``n`` and ``df_residual``.
    """
    sums, p = scoring.good["sums"], len(scoring.good["H"])
    link = next(name for name, one in LINKS.items() if one is model.link)
    family = next(name for name, one in FAMILIES.items() if one is model.family)
    M = np.zeros((1 + len(names), p))  # the intercept first
    M[:, :-1], M[0, -1] = E.T, 1.0
    M = M @ scoring.back
    phi = dispersion(model.family, sums, p)
    covariance = None
    if phi is not None and not scoring.l2:
        covariance = phi * M @ np.linalg.inv(scoring.good["H"]) @ M.T
    free = sums["rows"] - p
    likelihood, estimated = log_likelihood(family, sums)
    null = sums["null_deviance"]
    if sums["null_hessian"] > 0:
        null -= sums["null_gradient"] ** 2 / sums["null_hessian"]  # the last step, which is short
    return {
        "coefficients": table(
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
        "aic": 2 * (p + estimated - likelihood) if math.isfinite(likelihood) and not scoring.l2 else None,
        "dispersion": phi,
        "n": int(sums["rows"]),
        "df_residual": int(free),
    }
