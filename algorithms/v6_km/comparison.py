"""The log-rank test: by hospital from single times, or on bins of time."""

from typing import Any

import numpy as np
from scipy import sparse, special

SMALL = 1e-9  # variance that is rounding


def of_hospital(time: np.ndarray, event: np.ndarray, group: np.ndarray, G: int) -> tuple[np.ndarray, np.ndarray]:
    """Compare groups within a stratum: Mantel 1966, as survdiff of R does.

    Args:
        time: of the event or of censoring (n,). Rows that are censored when an event happens are still at risk.
        event: 1 for an event, 0 for censoring (n,).
        group: of each row (n,), from 0.
        G: number of groups.

    Returns:
        Events less those that are expected if groups do not differ (G,), and the covariance of these (G, G).
    """
    at = np.unique(time[event > 0])
    d, at_risk = np.zeros((2, G, len(at)))
    for g in range(G):
        own = np.sort(time[group == g])
        at_risk[g] = len(own) - np.searchsorted(own, at, side="left")
        d[g] = np.bincount(np.searchsorted(at, time[(group == g) & (event > 0)]), minlength=len(at))
    return _compared(d, at_risk, tied=d.sum(axis=0))


def of_bins(events: np.ndarray, at_risk: np.ndarray, at_once: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compare groups on bins of time: each event is expected in a group by its share of the rows at risk in the bin.

    Args:
        events: of each group in each bin (G, B).
        at_risk: rows in the mean over the bin (G, B), see ``Counts.followed``.
        at_once: the share of a bin's events that are tied (B,), see ``Counts.at_once``.

    Returns:
        The same as ``of_hospital``.
    """
    return _compared(events, at_risk, tied=np.maximum(events.sum(axis=0) * at_once, 1.0))


def _compared(d: np.ndarray, at_risk: np.ndarray, tied: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    total, happened = at_risk.sum(axis=0), d.sum(axis=0)
    looked = (happened > 0) & (total > 0)
    d, at_risk, total, happened, tied = d[:, looked], at_risk[:, looked], total[looked], happened[looked], tied[looked]
    share = at_risk / total
    each = happened * np.where(total > 1, np.maximum(total - tied, 0.0) / np.maximum(total - 1, SMALL), 0.0)
    return (d - happened * share).sum(axis=1), np.diag(share @ each) - (share * each) @ share.T


def parts_of(covariance: np.ndarray) -> list[list[int]]:
    """Find the groups that are compared with each other: the covariance of two that never are is 0.

    Args:
        covariance: of events less expected ones (G, G). It is the sum of those of the strata.

    Returns:
        The groups of each part, two or more, from 0.
    """
    of = sparse.csgraph.connected_components(np.abs(covariance) > SMALL, directed=False)[1]
    parts = [np.flatnonzero(of == part).tolist() for part in np.unique(of)]
    return [part for part in parts if len(part) > 1]


def chi_squared(difference: np.ndarray, covariance: np.ndarray, strata: str) -> dict[str, Any] | None:
    """Test whether groups have the same survival.

    The differences add up to 0 in each part of groups that are compared, so one of them says nothing.

    Args:
        difference: events less those that are expected, over all strata (G,).
        covariance: of these (G, G).
        strata: what the test is stratified by.

    Returns:
        ``statistic``, ``df``, ``p`` and ``strata``; None if no groups can be compared.
    """
    free = sorted(g for part in parts_of(covariance) for g in part[:-1])
    if not (df := len(free)):
        return None
    u, V = difference[free], covariance[np.ix_(free, free)]
    statistic = float(u @ np.linalg.lstsq(V, u, rcond=None)[0])
    return {"statistic": statistic, "df": df, "p": float(special.chdtrc(df, max(statistic, 0.0))), "strata": strata}
