"""Bins of time for the rows of all nodes: those that a job names, or quantiles of rounded counts of events."""

from typing import Annotated, Any

import numpy as np
from pydantic import Field

from v6_federated.base.arrays import Array
from v6_federated.base.errors import SafeError
from v6_federated.central.answer import Answer
from v6_federated.central.federation import Federation
from v6_federated.data import times
from v6_federated.messages.settings import changed

Grid = Annotated[
    list[float] | None,
    Field(min_length=1, max_length=times.MOST, description="times at which bins end"),
]


def check_grid(settings: Any, between: bool = False) -> None:
    """Reject a ``grid`` that is no list of times, or that leaves ``bins`` without effect.

    Args:
        settings: the job's settings, with ``bins`` and ``grid``.
        between: whether there are other bins between the ends of the grid.

    Raises:
        SafeError: they do not fit each other.
    """
    if settings.grid is None:
        return
    times.checked_ends(settings.grid)
    if between and len(settings.grid) + settings.bins > times.MOST:
        raise SafeError(
            f"grid with {len(settings.grid)} times and bins={settings.bins} are more than {times.MOST} bins; set fewer"
        )
    if not between and changed(settings, ["bins"]):
        raise SafeError("bins has no effect with grid, which names the ends of bins; leave one of them out")


def bins_of_time(federation: Federation, shares: Array, grid: list[float] | None, between: bool = False) -> list[float]:
    """Choose ends of bins: those of the grid, or such that bins hold about equally many events, or both.

    For the latter, two requests: events up to powers of 2, and then up to the ends of equal cells below the power that
    holds them all. The nodes round their counts down.

    Args:
        federation: the nodes, whose function ``count_events`` is asked.
        shares: of the events, up to the end of each bin (B,).
        grid: the ends that the job names; None if it names none.
        between: whether bins end between those of the grid too.

    Returns:
        The ends; fewer than B if many events happened at the same time.

    Raises:
        SafeError: there are too few events to count.
        CollectResultsError: fewer nodes answered than the job needs.
    """
    named = [*map(float, grid or ())]
    if named and not between:
        return named
    rough = _counted(federation, None)
    if named and not rough.any():
        return named
    (end,) = times.quantiles(rough, times.cells(None), np.ones(1))
    return sorted({*named, *times.quantiles(_counted(federation, end), times.cells(end), shares)})


def _counted(federation: Federation, end: float | None) -> Array:
    """Events at all nodes up to the end of each cell."""
    answers = federation.ask(
        "count_events",
        federation.organizations,
        measures={"counts": None},
        validate=_wrong,
        end=end,
    )
    federation.count_preparation(answers)
    return answers.whole_sum("counts")


def _wrong(answer: Answer) -> str | None:
    """What is wrong with a node's counts; None if nothing is."""
    counts = answer["counts"]
    if (np.diff(counts, prepend=0) < 0).any() or counts[-1] > answer.n:
        return f"sent counts of events that {answer.n} rows cannot have; expected some that rise"
    return None
