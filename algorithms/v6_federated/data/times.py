"""Times of events in bins that all hospitals agree on, so that no single time leaves one of them.

A bin ends at each agreed time, and the last one is open. At a hospital with limits, bins that few rows leave are joined
and what is summed in them is spread over them. So are all bins once few rows are left at risk, unless rows are followed
only until then.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from v6_federated.base.arrays import Array
from v6_federated.base.errors import SafeError

CELLS = 512  # equal ones in which events are counted before bins are chosen
POWERS = [2.0**k for k in range(-20, 41)]  # where the cells can end: times from 1e-6 to 1e12
COARSE = 256  # times closer than this fraction of a hospital's own deviation count as one in rounded counts of cells
GRAINS = (1.0, 0.1, 0.01)  # times may be multiples of one of them: of days, months or decimals
FINEST = 2.0**-30  # of the last end of a bin: to multiples of this each row's time at risk is rounded
MOST = 500  # bins
BY_LOG, LAST = 0.2, 10  # share of the bins that are chosen by the logarithm of the rows at risk, while so many are
AT_RISK = 2  # times the rows that must leave a bin: so many must be at risk when it begins
FOLLOWED = 4  # times the same: so many are followed at all, so that enough can leave until then


def checked_ends(ends: Sequence[float] | Array) -> Array:
    """Check the times at which bins end.

    Args:
        ends: the times (B,).

    Returns:
        The same, float64.

    Raises:
        SafeError: they are not increasing times above 0, or too many.
    """
    found = np.asarray(ends, np.float64)
    if found.ndim != 1 or not 1 <= len(found) <= MOST or not np.isfinite(found).all():
        raise SafeError(f"the ends of bins are no list of 1 to {MOST} times; expected times such as grid=[6,12,24]")
    if found[0] <= 0 or (np.diff(found) <= 0).any():
        raise SafeError("the ends of bins do not increase from above 0; expected times such as grid=[6,12,24]")
    return found


def upto(time: Array, event: Array, end: float | None, step: int) -> tuple[Array, Array]:
    """Count the events, and all rows that leave, up to the end of each cell.

    Args:
        time: of event or censoring (n,).
        event: 1 for an event (n,).
        end: the end of the last of ``CELLS`` equal cells, one of ``POWERS``; None means that these are the cells' ends.
        step: counts are rounded down to multiples of it. If it is 1, they are those of the rows, and add up.

    Returns:
        The counts of events and of leavers, whole numbers, as many of each as ``cells`` returns.

    Raises:
        SafeError: no cells end there, or a time is below 0.
    """
    check_times(time)
    if end is not None and end not in POWERS:
        raise SafeError("cells of time do not end there; expected a power of 2, as central sends it")
    at = cells(end)
    coarse = float(np.std(time)) / COARSE if step > 1 else 0.0
    at = np.floor(at / coarse) * coarse if coarse else at
    events, leavers = (np.searchsorted(np.sort(which), at, side="right") for which in (time[event > 0], time))
    return events // step * step, leavers // step * step


def off_grain(time: Array, step: int) -> Array:
    """Count the rows whose time is no multiple of each of ``GRAINS``.

    Args:
        time: of event or censoring (n,).
        step: counts are rounded down to multiples of it.

    Returns:
        The counts, whole numbers.
    """
    multiples = time[:, None] / np.array(GRAINS)
    off = np.abs(multiples - np.rint(multiples)) > 1e-6 * np.maximum(1.0, multiples)
    rows: Array = off.sum(axis=0) // step * step
    return rows


def grain_of(off: Array) -> float:
    """Find the grain of times.

    Args:
        off: rows of all nodes whose time is no multiple of each of ``GRAINS``.

    Returns:
        The largest of these of which all times are multiples; 0 if there is none.
    """
    return next((grain for grain, rows in zip(GRAINS, off, strict=True) if not rows), 0.0)


def cells(end: float | None) -> Array:
    """List the ends of cells, see ``upto``.

    Args:
        end: of the last of equal cells; None for cells that end at powers of 2.

    Returns:
        The ends, ascending.
    """
    return np.array(POWERS) if end is None else np.arange(1, CELLS + 1) * (end / CELLS)


def quantiles(counts: Array, ends: Array, shares: Array) -> list[float]:
    """Choose ends of bins that hold about equally many events.

    Args:
        counts: events up to the end of each cell (C,), over all nodes.
        ends: of the cells (C,).
        shares: of the events, up to the end of each bin (B,).

    Returns:
        The ends, those of some cells; fewer than B if many events happened in few cells.

    Raises:
        SafeError: there are too few events to count.
    """
    _check_some(counts)
    return [float(t) for t in ends[np.unique(np.searchsorted(counts, shares * counts[-1] - 1e-9))]]


def mixed(
    events: Array, leavers: Array, ends: Array, bins: int, grain: float, at_zero: float = 0, least: int = 0
) -> list[float]:
    """Choose ends of bins at equal steps of events and leavers, up to the last event.

    In bins of equal events the last ones are years wide. Of the share of the events and that of the leavers, the sum
    rises by as much in each bin. A fifth of the bins is chosen by the logarithm of the rows at risk in place of these:
    otherwise most of the last rows would leave in one bin. Rows that leave at time 0 have a bin of their own: they are
    at risk then, and no time at all.

    Args:
        events: up to the end of each cell (C,), over all nodes.
        leavers: the same of all rows that leave (C,).
        ends: of the cells (C,).
        bins: their number, B.
        grain: of the times; bins end at multiples of it. 0 means that times are continuous.
        at_zero: leavers up to the first of ``POWERS``.
        least: leavers that a bin must have over all nodes.

    Returns:
        The ends; fewer than B if many rows leave in few cells.

    Raises:
        SafeError: there are too few events to count.
    """
    _check_some(events)
    last = int(np.searchsorted(events, events[-1]))
    rising = events[: last + 1] / events[-1] + leavers[: last + 1] / leavers[-1]
    falling = -np.log(np.maximum(leavers[-1] - leavers[: last + 1], LAST) / max(leavers[-1], LAST))
    rising = (1 - BY_LOG) * rising / rising[-1] + BY_LOG * falling / max(falling[-1], 1e-9)
    zero = at_zero >= max(least, 1)
    steps = max(bins - zero, 1)
    cells_of = np.unique(np.searchsorted(rising, np.arange(1, steps + 1) / steps * rising[-1] - 1e-9))
    chosen, left = ends[cells_of], leavers[cells_of]
    if grain:  # no time is between a multiple and the end of its cell
        chosen = np.floor(chosen / grain + 1e-9) * grain
    later = chosen > (POWERS[0] if zero else 0)
    chosen, left = chosen[later], left[later]
    if least:
        after = np.diff(left, prepend=at_zero if zero else 0)
        chosen = chosen[np.diff(joins(after, least), append=-1) != 0]
    found = [float(t) for t in np.unique(chosen)]
    return [POWERS[0], *found] if zero else found or [grain or float(ends[0])]


def of_enough(
    ends: Sequence[float], cells: Array, blocks: Sequence[tuple[Array, Array, int]], least: int
) -> list[float]:
    """Leave out ends of bins until enough rows have the event in each bin, and enough are at risk when the last ends.

    If too few are at risk at the last of them, the last end is that of a cell. What is known of an end between those of
    two cells is the least that these leave possible.

    Args:
        ends: of bins, ascending (B,).
        cells: ends of cells, ascending (C,).
        blocks: of each group of rows whose sums are seen alone, its events and leavers up to the end of each cell (C,),
            and its rows.
        least: rows that each bin must hold. Those that have the event in it leave in it; twice as many must be at risk
            when the last one ends.

    Returns:
        The ends of bins, of which none is open: rows are followed up to the last.

    Raises:
        SafeError: no end is left.
    """
    enough = np.array([rows - leavers >= AT_RISK * least for _, leavers, rows in blocks]).all(axis=0)
    until = min(ends[-1], float(cells[enough].max(initial=0.0)))
    chosen = [*(end for end in ends if end < until), until]
    before, after = np.searchsorted(cells, chosen, side="right"), np.searchsorted(cells, chosen)
    surely = np.array([np.append(0, events)[before] for events, _, _ in blocks])
    perhaps = np.array([np.append(events, events[-1])[after] for events, _, _ in blocks])
    begun: Array = np.zeros(len(blocks))
    kept = list[int]()
    for b in range(len(chosen)):
        if (surely[:, b] - begun >= least).all():
            kept.append(b)
            begun = perhaps[:, b]
    if not kept:
        raise SafeError(
            f"in a study, {least} patients of each block must have the event in a bin of time, and {AT_RISK * least} "
            "be at risk when it ends, and no bin has so many; set fewer bins, or other ends in grid, or strata=hospital"
        )
    return [*(chosen[b] for b in kept[:-1]), until]  # a few events before the last end are in its bin


def _check_some(events: Array) -> None:
    """Reject counts without events."""
    if not events[-1]:
        raise SafeError(
            "hospitals have too few rows with the event to choose bins of time; name the column in event whose value "
            "is 1 for an event, or set the ends of bins, such as grid=[6,12,24]"
        )


def signed(time: Array, event: Array) -> Array:
    """Write times and events as one number a row, as labels.

    Args:
        time: of event or censoring (n,).
        event: 1 for an event, 0 for censoring (n,).

    Returns:
        The times (n,), those of censoring below 0, or -0.

    Raises:
        SafeError: a time is below 0, or an event is neither 0 nor 1.
    """
    if not np.isin(event, (0, 1)).all():
        raise SafeError("the column of events holds other numbers than 0 and 1; expected 1 for an event")
    check_times(time)
    return np.where(event > 0, np.abs(time), -np.abs(time))


def parted(labels: Array) -> tuple[Array, Array]:
    """Read what ``signed`` wrote.

    Args:
        labels: of each row (n,).

    Returns:
        Times (n,), and 1 for an event, 0 for censoring (n,), float64.
    """
    y = np.asarray(labels, np.float64)
    return np.abs(y), np.where(np.signbit(y), 0.0, 1.0)


def check_times(time: Array) -> None:
    """Reject times below 0.

    Args:
        time: times (n,).

    Raises:
        SafeError: there is one.
    """
    if (time < 0).any():
        raise SafeError("the label holds times below 0; expected the time from entry to the event or to censoring")


def unit_of(ends: Array) -> float:
    """Say to multiples of what each row's time at risk is rounded, so that sums over any rows add up to the last bit.

    Args:
        ends: of bins (B,).

    Returns:
        A power of 2.
    """
    return FINEST * 2.0 ** math.ceil(math.log2(float(ends[-1])))


@dataclass(frozen=True)
class Followed:
    """Rows that are followed over bins of time, as far as a hospital lets it be seen.

    Attributes:
        time: of event or censoring (n,).
        event: 1 for an event, 0 for censoring (n,).
        ends: of the bins but the last, which is open (B - 1,).
        least: rows that a bin must lose, and events that it must have, unless it has none; 0 means any number.
        spread: how the events of joined bins are spread over these: evenly, where bins hold about equally many events
            of all hospitals, by their width, or by the time at risk in them.
        until: bins in which they are followed; None means all.
        left: 1 for each row that is still at risk when these end (n,); None if nobody looks.

    Raises:
        SafeError: a time is below 0.
    """

    time: Array
    event: Array
    ends: Array
    least: int
    spread: Literal["evenly", "by width", "by time"]
    until: int | None = None
    left: Array | None = None

    def __post_init__(self) -> None:
        """Reject times below 0.

        Raises:
            SafeError: there is one.
        """
        check_times(self.time)

    @functools.cached_property
    def _at_risk(self) -> Array:
        """The rows at risk when each bin begins (B,)."""
        return len(self.time) - np.append(0, np.searchsorted(np.sort(self.time), self.ends, side="right"))

    def while_known(self) -> "Followed":
        """Follow the same rows only up to the last end of a bin at which enough are at risk: these are censored then.

        When that is depends on how many are left and not on what becomes of them, so it is like any other censoring.
        What becomes of the last rows is in no answer, whatever the bins. Rows that are too few from the beginning are
        left out.
        """
        if not self.least:
            return self
        until = int((self._at_risk[1:] >= AT_RISK * self.least).sum())
        if not until or len(self.time) < FOLLOWED * self.least:
            return replace(self, time=self.time[:0], event=self.event[:0])
        end = self.ends[until - 1]
        left = (self.time > end) * 1.0
        event = np.where(left > 0, 0.0, self.event)
        return replace(self, time=np.minimum(self.time, end), event=event, until=until, left=left)

    def up_to_the_last_end(self) -> "Followed":
        """Censor the same rows at the last end, so that nothing is in the open bin."""
        event = np.where(self.time > self.ends[-1], 0.0, self.event)
        return replace(self, time=np.minimum(self.time, self.ends[-1]), event=event, until=len(self.ends))

    @functools.cached_property
    def bins(self) -> Array:
        """The bin in which each row leaves (n,). A time at which a bin ends is in this bin."""
        return np.searchsorted(self.ends, self.time, side="left")

    def spent(self) -> Array:
        """The time that each row is at risk in each bin (n, B), spread by width over joined bins."""
        begins = np.concatenate([[0.0], self.ends])
        spent = np.clip(self.time[:, None] - begins, 0, np.append(np.diff(begins), np.inf))
        return self._spread(spent, np.ones(len(self.time)), self._widths)

    @functools.cached_property
    def at_risk(self) -> Array:
        """The time at risk of all rows in each bin but the last (B - 1,), spread in the same way.

        Each row's times are rounded to multiples of ``unit_of``: sums of these have no rounding of their own.
        """
        unit = unit_of(self.ends)
        time = np.sort(self.time)
        until = np.searchsorted(time, self.ends, side="right")
        spent = np.append(0, np.cumsum(np.rint(np.minimum(time, self.ends[-1]) / unit).astype(np.int64)))[until]
        spent += (len(time) - until) * np.rint(self.ends / unit).astype(np.int64)
        found = np.append(np.diff(spent, prepend=0) * unit, 0.0)
        return self._spread(found, np.ones(len(self.time)), self._widths)[:-1]

    def events(self) -> Array:
        """The events in each bin (B,), spread over joined bins."""
        return self._counted(self.event)

    def censored(self) -> Array:
        """The rows that are censored in each bin (B,), spread in the same way; the bin of those left is known.

        Too few others count as left with these.
        """
        if self.left is None:
            return self._counted(1 - self.event)
        before = 1 - self.event - self.left
        if before.sum() < self.least:
            before = np.zeros(len(before))
        found = self._counted(before)
        found[-1 if self.until is None else self.until - 1] += (1 - self.event - before).sum()
        return found

    def _counted(self, which: Array) -> Array:
        B = len(self.ends) + 1
        shares = np.ones(B) if self.spread == "evenly" else self._widths
        if self.spread == "by time":
            shares = np.append(self.at_risk, 0.0) + 1e-9 * self._widths
        counts = np.bincount(self.bins, which, B).astype(np.float64)  # whole numbers if there are no rows
        return self._spread(counts, which, shares)

    @property
    def _widths(self) -> Array:
        """Of the bins (B,); the open one counts as wide as the one before it."""
        widths = np.diff(self.ends, prepend=0.0)
        return np.append(widths, widths[-1])

    def _spread(self, values: Array, which: Array, shares: Array) -> Array:
        """Spread values (..., B) over bins that few of some rows leave, by shares (B,)."""
        if not self.least:
            return values
        until, spread = self.until or len(self.ends) + 1, np.zeros(values.shape)
        joined = joins(np.bincount(self.bins, which, len(self.ends) + 1)[:until], self.least)
        enough = int((self._at_risk >= AT_RISK * self.least).sum())  # all later bins are joined with the last of these
        joined = np.minimum(joined, joined[max(enough - 1, 0)])
        same, shares = joined[:, None] == joined, shares[:until]
        spread[..., :until] = values[..., :until] @ same * (shares / (same @ shares))
        return spread


def joins(counts: Array, least: int) -> Array:
    """Join each bin that holds some rows, but too few, with those after it, and the last ones with those before.

    Args:
        counts: rows in each bin (B,).
        least: rows that joined bins must hold.

    Returns:
        The number of the joined bin to which each bin belongs (B,), ascending.
    """
    begins, rows = [0], 0.0
    for b, count in enumerate(counts):
        rows += count
        if rows >= least or not rows:
            begins.append(b + 1)
            rows = 0.0
    while len(begins) > 1 and 0 < counts[begins[-1] :].sum() < least:
        begins.pop()
    return np.searchsorted(begins, np.arange(len(counts)), side="right")


def concordance(time: Array, event: Array, eta: Array) -> tuple[float, float]:
    """Count pairs of rows of which one is known to have had its event first (Harrell et al. 1982).

    Args:
        time: of event or censoring (n,).
        event: 1 for an event (n,).
        eta: log hazard ratios (n,).

    Returns:
        The number of such pairs, and of those in which the earlier row has the larger eta; equal ones count half.
    """
    ranks = np.unique(eta, return_inverse=True)[1]
    tree = np.zeros(int(ranks.max(initial=-1)) + 2, np.int64)  # counts of ranks, as a Fenwick tree
    pairs, concordant, later = 0, 0.0, 0

    def below(rank: int) -> int:
        total = 0
        while rank > 0:
            total += int(tree[rank])
            rank -= rank & -rank
        return total

    order = np.lexsort((event, -time))  # the latest first, and censored rows before events of the same time
    waiting: list[int] = []  # events at the time that is looked at: no pairs among them
    for n, i in enumerate(order.tolist()):
        if waiting and (not event[i] or time[i] != time[order[n - 1]]):
            later += _add(tree, waiting)
        if not event[i]:
            later += _add(tree, [int(ranks[i])])
            continue
        rank = int(ranks[i])
        less, to_here = below(rank), below(rank + 1)
        pairs, concordant = pairs + later, concordant + less + (to_here - less) / 2
        waiting.append(rank)
    return float(pairs), concordant


def _add(tree: Array, ranks: list[int]) -> int:
    """Add rows to the tree, empty their list, and return how many they were."""
    added = len(ranks)
    for rank in ranks:
        at = rank + 1
        while at < len(tree):
            tree[at] += 1
            at += at & -at
    ranks.clear()
    return added
