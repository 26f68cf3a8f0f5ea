"""Survival curves from counts and time at risk in bins of time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from v6_federated import times

MEDIANS = ("median", "median_lower", "median_upper", "median_known_to")
HALF = 0.5 + 1e-12  # with what rounding may add: a curve at or below it has reached its median
FIRST = 5  # events from which on the interval of the median is looked for: with fewer, log(-log S) is far off
WITHIN = 0.15, 2.0  # standard errors by which S is off at ends near the median at most, measured; the second if
# hospitals keep a minimum of their own, and follow rows only while enough are at risk
POINTS = 128  # in a bin, at which limits are looked at if times are continuous; the most of them otherwise


@dataclass(frozen=True)
class Counts:
    """What happens to a group in bins of time.

    Attributes:
        ends: of the bins (B,). What happens after the last is not known.
        events: in each bin, and after the last (B + 1,).
        censored: the same (B + 1,).
        time: at risk of all rows in each bin (B,).
    """

    ends: np.ndarray
    events: np.ndarray
    censored: np.ndarray
    time: np.ndarray

    @property
    def widths(self) -> np.ndarray:
        """Of the bins (B,)."""
        return np.diff(self.ends, prepend=0.0)

    @property
    def at_risk(self) -> np.ndarray:
        """The rows at risk when each bin begins, and after the last (B + 1,)."""
        left = self.events + self.censored
        return left.sum() - np.append(0.0, np.cumsum(left)[:-1])

    def until(self, b: int) -> "Counts":
        """The same for the first b bins: all others are part of what happens after the last."""
        events, censored = (np.append(c[:b], c[b:].sum()) for c in (self.events, self.censored))
        return Counts(self.ends[:b], events, censored, self.time[:b])

    def joined(self, at: np.ndarray) -> "Counts":
        """The same in bins that end where these do: the bins of these numbers, some of which may be after the last."""
        of, L = np.searchsorted(at, np.arange(len(self.ends))), len(at)
        events, censored = (np.bincount(np.append(of, L), c, L + 1) for c in (self.events, self.censored))
        return Counts(self.ends[at[at < len(self.ends)]], events, censored, np.bincount(of, self.time, L + 1)[:-1])

    @property
    def followed(self) -> np.ndarray:
        """The rows at risk in the mean over each bin (B,). Rows that leave at time 0 are at risk then."""
        return np.where(self.ends <= times.POWERS[0], self.at_risk[:-1], self.time / self.widths)

    def at_once(self, grain: float) -> np.ndarray:
        """The share of each bin's events that are tied (B,): those of one grain of time, and all at time 0."""
        return np.where(self.ends <= times.POWERS[0], 1.0, np.minimum(grain / self.widths, 1.0))

    def mean_at_risk(self, grain: float) -> np.ndarray:
        """The mean number of rows at risk when events happen, in each bin (B,).

        That is the mean over the bin, and half of the events: of D events, those before the i-th are no longer at risk,
        but 1 - i / n multiplies up to 1 - D / n only with those at risk before them all. Tied events are all at risk.
        """
        D = self.events[:-1]
        mean = self.followed + D / 2 * (1 - self.at_once(grain))
        return np.maximum(np.minimum(mean, self.at_risk[:-1]), D)


@dataclass(frozen=True)
class Shown:
    """The bins of a curve, and what of them is written.

    Attributes:
        exact: the counts in these bins.
        counts: the same, spread over joined bins.
        joined: for each bin, the number of the joined one that its events are from (B,).
        at: numbers of the bins at whose ends the curve is shown: where joined ones end, and at times that a job names.
    """

    exact: Counts
    counts: Counts
    joined: np.ndarray
    at: np.ndarray

    def spread(self, values: np.ndarray) -> np.ndarray:
        """Spread what rises with events (B,) in the same way."""
        return _spread(values, self.joined, self.counts.time + 1e-9 * self.counts.widths)


def shown(counts: Counts, at_risk_least: float, least: int, named: Sequence[float]) -> Shown:
    """Choose the bins of a curve; join those of few events, or of few censored rows.

    The curve ends where few of either would be left. Events are spread over joined bins by the time at risk, which is
    that of bins that enough rows leave.

    Args:
        counts: of a group, over all hospitals.
        at_risk_least: rows that must be at risk when a bin begins.
        least: events, or censored rows, that joined bins must have, unless they have none.
        named: ends that are shown also within joined bins.

    Returns:
        The bins.
    """
    enough = counts.at_risk[:-1] >= max(at_risk_least, 1e-9)
    counts = counts.until(len(enough) if enough.all() else int(enough.argmin()))
    if not least:
        every = np.arange(len(counts.ends))
        return Shown(counts, counts, every, every)
    some = [c for c in (counts.events, counts.censored) if c.sum() >= least]  # n less all events tells the others
    after = np.stack([np.cumsum(c[::-1])[::-1] for c in some]).round(6)
    counts = counts.until(int(np.flatnonzero(((after == 0) | (after >= least)).all(axis=0))[-1]))
    D, C = counts.events[:-1], counts.censored[:-1]
    time = _spread(counts.time, times.joins(D + C, least), counts.widths)
    shares, of = time + 1e-9 * counts.widths, times.joins(D, least)
    events = np.append(_spread(D, of, shares), counts.events[-1])
    censored = np.append(_spread(C, times.joins(C, least), shares), counts.censored[-1])
    at = np.flatnonzero((np.diff(of, append=-1) != 0) | np.isin(counts.ends, named))
    return Shown(counts, Counts(counts.ends, events, censored, time), of, at)


def _spread(values: np.ndarray, joined: np.ndarray, shares: np.ndarray) -> np.ndarray:
    totals, of_shares = (np.bincount(joined, each) for each in (values, shares))
    return np.asarray(totals[joined] * (shares / of_shares[joined]))


def curve(
    group: str | None,
    counts: Counts,
    grain: float,
    confidence: float,
    at_risk_least: float,
    least: int = 0,
    named: Sequence[float] = (),
) -> dict[str, Any]:
    """Estimate a survival curve: Kaplan and Meier 1958, with Greenwood's variance and intervals for log(-log S).

    In a bin with D events, n* rows are at risk in the mean (``Counts.mean_at_risk``): S falls by the factor 1 - D / n*
    in it, its variance rises by D / (n* (n* - D)), and log S falls in a line.

    Args:
        group: whose curve it is; None for all rows.
        counts: of the group.
        grain: all times are multiples of it; 0 if they are continuous.
        confidence: of the intervals.
        at_risk_least: the curve ends before the first bin with fewer rows at risk.
        least: events, or censored rows, that a bin must have to be shown, unless it has none; see ``shown``.
        named: ends that are shown also within joined bins.

    Returns:
        ``group``, ``n`` and ``events``; ``median``, the first time at which the curve is at 0.5 or below, or None, and
        ``median_lower`` and ``median_upper``, the same of the interval (Brookmeyer and Crowley 1982);
        ``median_known_to``, between which times the median of the single times is, or None; ``rows``: for each bin
        ``end``, ``at_risk`` when it begins, ``events``, ``censored``, ``survival``, ``std_error``, ``lower`` and
        ``upper``, the last three None where they cannot be estimated.
    """
    n, events = counts.at_risk[0], counts.events.sum()
    bins = shown(counts, at_risk_least, least, named)
    counts, D = bins.exact, bins.exact.events[:-1]
    mean, widths = counts.mean_at_risk(grain), counts.widths
    with np.errstate(divide="ignore", invalid="ignore"):
        falls = np.where(D > 0, -np.log1p(-np.minimum(D / mean, 1.0)), 0.0)  # of log S
        varies = np.where(D > 0, D / (mean * (mean - D)), 0.0)
    z = float(special.ndtri(0.5 + confidence / 2))
    S, V = np.exp(-np.cumsum(bins.spread(falls))), np.cumsum(bins.spread(varies))
    lower, upper = _limits(S, V, z)
    known = np.isfinite(V)
    drawn = known & ((np.cumsum(bins.counts.events[:-1]) >= 1 - 1e-9) | (S == 1))
    at = bins.at
    begins = np.append(0, at + 1)[:-1]
    columns = {
        "end": said(counts.ends, named)[at],
        "at_risk": bins.counts.at_risk[begins],
        "events": np.diff(np.cumsum(bins.counts.events[:-1])[at], prepend=0.0),
        "censored": np.diff(np.cumsum(bins.counts.censored[:-1])[at], prepend=0.0),
        "survival": S[at],
        "std_error": np.where(known, S * np.sqrt(np.where(known, V, 0.0)), np.nan)[at],
        "lower": np.where(drawn, lower, np.nan)[at],
        "upper": np.where(drawn, upper, np.nan)[at],
    }
    rows = [
        {name: None if np.isnan(value) else float(value) for name, value in zip(columns, line, strict=True)}
        for line in zip(*columns.values(), strict=True)
    ]
    S, V = np.exp(-np.cumsum(falls)), np.cumsum(varies)

    def first_half(side: Callable[[np.ndarray, np.ndarray], np.ndarray], from_event: int = 0) -> float | None:
        """The first time at which something of the curve is at 0.5 or below."""
        for b in np.flatnonzero(np.cumsum(D) >= from_event):
            before = D[:b].sum()
            S0, V0 = (S[b - 1], V[b - 1]) if b else (1.0, 0.0)
            at = _points(counts.ends[b] - widths[b], counts.ends[b], grain)
            f = (at - counts.ends[b] + widths[b]) / widths[b]
            inside = S0 * np.exp(-falls[b] * f) if np.isfinite(falls[b]) else S0 * (1 - f)
            with np.errstate(invalid="ignore"):
                values = side(inside, np.where(f > 0, V0 + f * varies[b], V0))
            values = np.where(before + f * D[b] < from_event, 1.0, values)
            if len(there := np.flatnonzero(values <= HALF)):
                i = int(there[0])
                if grain or i == 0:
                    return float(said(at, named)[i])
                return float(np.interp(0.5, [values[i], values[i - 1]], [at[i], at[i - 1]]))
        return None

    median = first_half(lambda inside, V: inside)
    return {
        "group": group,
        "n": round(float(n)),
        "events": round(float(events)),
        "median": median,
        "median_lower": first_half(lambda inside, V: _limits(inside, V, z)[0], FIRST),
        "median_upper": first_half(lambda inside, V: _limits(inside, V, z)[1], FIRST),
        "median_known_to": None if median is None else _known_to(counts, grain, S, V),
        "rows": rows,
    }


def said(ends: np.ndarray, named: Sequence[float]) -> np.ndarray:
    """Write the end of the bin of those who leave at time 0 as 0, unless the job names it.

    Args:
        ends: times (B,).
        named: times that the job names.

    Returns:
        The times as they are written (B,).
    """
    return np.where((ends <= times.POWERS[0]) & ~np.isin(ends, named), 0.0, ends)


def _limits(S: np.ndarray, spread: np.ndarray, z: float) -> tuple[np.ndarray, np.ndarray]:
    """The ends of the interval for log(-log S); 1 if nothing has happened, NaN if the variance is not known."""
    with np.errstate(divide="ignore", invalid="ignore"):
        about = z * np.sqrt(spread) / np.log(S)
        lower, upper = S ** np.exp(-about), S ** np.exp(about)
    return np.where(S == 1, 1.0, lower), np.where(S == 1, 1.0, upper)


def _points(begin: float, end: float, grain: float) -> np.ndarray:
    """Times in a bin at which S is looked at: multiples of the grain after its begin, or many with both ends."""
    if not grain:
        return np.linspace(begin, end, POINTS + 1)
    first, last = np.floor(begin / grain + 1e-9) + 1, np.floor(end / grain + 1e-9)
    points = np.arange(first, last + 1) * grain
    return points[:: -(-len(points) // 4096) or 1] if len(points) else np.array([end])


def _known_to(counts: Counts, grain: float, S: np.ndarray, V: np.ndarray) -> list[float | None]:
    """Between which ends of bins the median of the single times is; None for the last if the curve ends before."""
    wide = np.maximum.accumulate(counts.widths > grain * (1 + 1e-9))  # otherwise each time has a bin, and S is exact
    whole = np.abs(counts.events - np.rint(counts.events)).max() < 1e-6
    with np.errstate(invalid="ignore"):
        off = WITHIN[0 if whole else 1] * S * np.sqrt(V)
    off = np.where(np.isfinite(off) & wide, off, 0.0)
    first, last = (np.flatnonzero(side <= HALF) for side in (S - off, S + off))
    ends = said(counts.ends, ())
    begin = float(ends[first[0] - 1]) if first[0] else 0.0
    return [begin, float(ends[last[0]]) if len(last) else None]
