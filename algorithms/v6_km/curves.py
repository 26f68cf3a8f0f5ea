"""Survival curves and the log-rank test, from counts of rows that leave in bins of time."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import special


def curve(
    group: str | None,
    ends: Sequence[float],
    events: np.ndarray,
    censored: np.ndarray,
    confidence: float,
    at_risk_least: float,
    left_out: int = 0,
) -> dict[str, Any]:
    """Estimate a survival curve: Kaplan and Meier 1958, with Greenwood's variance and intervals for log(-log S).

    All rows that leave in a bin count as leaving at its end, and those that are censored there are still at risk.

    Args:
        group: whose curve it is; None for all rows.
        ends: of the bins (B,). What happens after the last is not known.
        events: in each bin, and after the last (B + 1,).
        censored: the same (B + 1,).
        confidence: of the intervals.
        at_risk_least: the curve ends before the first bin with fewer rows at risk.
        left_out: rows of the group at hospitals where they are too few to be shown.

    Returns:
        ``group``, ``n``, ``events`` and ``left_out``; ``median``, the first end at which the curve is at 0.5 or below,
        or None, and ``median_lower`` and ``median_upper``, the same of the ends of the interval (Brookmeyer and Crowley
        1982); ``rows``: for each bin ``end``, ``at_risk``, ``events``, ``censored``, ``survival``, ``std_error``,
        ``lower`` and ``upper``, the last three None where they cannot be estimated.
    """
    n = events.sum() + censored.sum()
    at_risk = n - np.concatenate([[0.0], np.cumsum(events + censored)[:-1]])
    rows: list[dict[str, Any]] = []
    survival, spread = 1.0, 0.0
    z = float(special.ndtri(0.5 + confidence / 2))
    for b, end in enumerate(ends):
        if at_risk[b] < at_risk_least or at_risk[b] < 1e-9:
            break
        left = max(at_risk[b] - events[b], 0.0)
        survival *= left / at_risk[b]
        spread += events[b] / (at_risk[b] * left) if left > 1e-9 else np.inf
        known = np.isfinite(spread)
        deviation = float(survival * np.sqrt(spread)) if known else None
        lower = upper = 1.0 if survival == 1 else None
        if known and 0 < survival < 1:
            about = z * np.sqrt(spread) / np.log(survival)
            lower, upper = float(survival ** np.exp(-about)), float(survival ** np.exp(about))
        rows.append(
            {
                "end": end,
                "at_risk": float(at_risk[b]),
                "events": float(events[b]),
                "censored": float(censored[b]),
                "survival": float(survival),
                "std_error": deviation,
                "lower": lower,
                "upper": upper,
            }
        )

    def first_half(name: str) -> float | None:
        return next((row["end"] for row in rows if row[name] is not None and row[name] <= 0.5), None)

    medians = {"median": "survival", "median_lower": "lower", "median_upper": "upper"}
    counts = {"n": round(float(n)), "events": round(float(events.sum())), "left_out": left_out}
    return {"group": group, **counts, **{name: first_half(side) for name, side in medians.items()}, "rows": rows}


def log_rank(events: np.ndarray, censored: np.ndarray) -> dict[str, float] | None:
    """Test whether groups have the same survival: Mantel 1966, Peto and Peto 1972.

    Args:
        events: of each group in each bin, the last of which is open (G, B + 1). Those in it are not looked at.
        censored: the same.

    Returns:
        ``statistic``, ``df`` and ``p``; None for fewer than two groups with rows, or without events.
    """
    there = (events + censored).sum(axis=1) > 0
    d, left = events[there], events[there] + censored[there]
    at_risk = left.sum(axis=1, keepdims=True) - np.cumsum(left, axis=1) + left
    d, at_risk = d[:, :-1], at_risk[:, :-1]
    total, happened = at_risk.sum(axis=0), d.sum(axis=0)
    looked = (happened > 0) & (total > 1)
    if len(d) < 2 or not looked.any():
        return None
    d, at_risk, total, happened = d[:, looked], at_risk[:, looked], total[looked], happened[looked]
    share = at_risk / total
    difference = (d - happened * share).sum(axis=1)
    each = happened * np.maximum(total - happened, 0) / (total - 1)
    V = np.diag(share @ each) - (share * each) @ share.T
    df = len(d) - 1
    statistic = float(difference[:df] @ np.linalg.lstsq(V[:df, :df], difference[:df], rcond=None)[0])
    return {"statistic": statistic, "df": df, "p": float(special.chdtrc(df, max(statistic, 0.0)))}
