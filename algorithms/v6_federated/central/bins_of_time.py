"""Bins of time for the rows of all nodes: those that a job names, or quantiles of rounded counts of events."""

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from v6_federated.base.arrays import Array
from v6_federated.base.errors import SafeError
from v6_federated.central.answer import Answer
from v6_federated.central.answers import Answers
from v6_federated.central.federation import Federation
from v6_federated.data import times

COUNTED = ("counts", "leavers", "off_grain")  # what ``count_events`` answers
Grid = Annotated[
    list[float] | None,
    Field(min_length=1, max_length=times.MOST, description="times at which bins end"),
]


def check_grid(settings: Any, between: bool = False) -> None:
    """Reject a ``grid`` that is no list of times, or makes too many bins.

    Args:
        settings: the job's settings, with ``bins`` and ``grid``.
        between: whether there are other bins between the ends of the grid.

    Raises:
        SafeError: they do not fit each other.
    """
    if settings.grid is None:
        return
    times.checked_ends(settings.grid)
    if between and len(settings.grid) + max(settings.bins, 2) > times.MOST:  # rows of time 0 have a bin of their own
        raise SafeError(
            f"grid with {len(settings.grid)} times and bins={settings.bins} are more than {times.MOST} bins; set fewer"
        )


@dataclass(frozen=True)
class Counted:
    """What all nodes count by cell of time.

    Attributes:
        ends: of the cells (C,).
        events: up to each (C,).
        leavers: rows that leave up to each (C,).
        off_grain: rows whose time is no multiple of each of ``times.GRAINS``.
        of_blocks: events and leavers up to each (C,), and rows, of each answer, by its first organization.
    """

    ends: Array
    events: Array
    leavers: Array
    off_grain: Array
    of_blocks: dict[int, tuple[Array, Array, int]]


def bins_of_time(federation: Federation, shares: Array, grid: list[float] | None) -> list[float]:
    """Choose ends of bins: those of the grid, or such that bins hold about equally many events.

    For the latter, two requests: events up to powers of 2, and then up to the ends of equal cells below the power that
    holds them all. The nodes round their counts down, except in a study. There they join no bins either: ends are left
    out until each block has enough rows in each bin, see ``times.of_enough``, whoever names them.

    Args:
        federation: the nodes, whose function ``count_events`` is asked.
        shares: of the events, up to the end of each bin (B,).
        grid: the ends that the job names; None if it names none.

    Returns:
        The ends; fewer than B if many events happened at the same time, or if bins would hold too few.

    Raises:
        SafeError: there are too few events to count, or to show.
        CollectResultsError: fewer nodes answered than the job needs.
    """
    if grid and not federation.least:
        return [*map(float, grid)]
    rough = _counted(federation, None)
    counted = _counted(federation, _last_end(rough))
    if not federation.least:
        return times.quantiles(counted.events, counted.ends, shares)
    ends = [*map(float, grid)] if grid else times.quantiles(counted.events, counted.ends, np.append(shares, 1.0))
    cells, first = np.unique([*rough.ends, *counted.ends], return_index=True)
    blocks = list[tuple[Array, Array, int]]()
    for block in rough.of_blocks.keys() & counted.of_blocks.keys():
        (coarse, gone, _), (events, leavers, rows) = rough.of_blocks[block], counted.of_blocks[block]
        blocks.append((np.append(coarse, events)[first], np.append(gone, leavers)[first], rows))
    return times.of_enough(ends, cells, blocks, federation.least)


def mixed_bins(federation: Federation, bins: int, grid: list[float] | None) -> tuple[list[float], float]:
    """Choose ends of bins at equal steps of events and leavers, and those of the grid, by the same two requests.

    In a study, whose counts of cells are exact, ends are times at which rows leave: enough leave from one to the next.

    Args:
        federation: the nodes, whose function ``count_events`` is asked.
        bins: their number, B.
        grid: further ends that the job names; None if it names none.

    Returns:
        The ends, and the grain of times: 0 if these are continuous.

    Raises:
        SafeError: there are too few events to count.
        CollectResultsError: fewer nodes answered than the job needs.
    """
    named = [*map(float, grid or ())]
    rough = _counted(federation, None)
    grain = times.grain_of(rough.off_grain)
    if named and not rough.events.any():
        return named, grain
    counted = _counted(federation, _last_end(rough))
    at_zero, least = float(rough.leavers[0]), federation.least
    ends = times.mixed(counted.events, counted.leavers, counted.ends, bins, grain, at_zero, least)
    return sorted({*named, *ends}), grain


def _last_end(rough: Counted) -> float:
    """The power of 2 up to which all events happen."""
    (end,) = times.quantiles(rough.events, rough.ends, np.ones(1))
    return end


def _counted(federation: Federation, end: float | None) -> Counted:
    """Events and leavers at all nodes up to the end of each cell."""
    cells = times.cells(end)
    answers = federation.ask(
        "count_events",
        federation.organizations,
        measures=dict.fromkeys(COUNTED),
        validate=_wrong,
        end=end,
    )
    federation.count_preparation(answers)
    blocks = {
        a.organizations[0]: (Answers([a]).whole_sum("counts"), Answers([a]).whole_sum("leavers"), a.n)
        for a in answers.parts()
    }
    events, leavers, off_grain = (answers.whole_sum(name) for name in COUNTED)
    return Counted(cells, events, leavers, off_grain, blocks)


def _wrong(answer: Answer) -> str | None:
    """What is wrong with a node's counts; None if nothing is."""
    events, leavers, off = answer["counts"], answer["leavers"], answer["off_grain"]
    rising = all((np.diff(counts, prepend=0) >= 0).all() and counts[-1] <= answer.n for counts in (events, leavers))
    if not rising or (events > leavers).any() or off.min() < 0 or off.max() > answer.n:
        return f"sent counts of events that {answer.n} rows cannot have; expected some that rise"
    return None
