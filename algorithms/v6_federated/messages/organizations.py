"""Ids of organizations in a message: many in a row are named by the first and the last.

Every call says who takes part, and its node checks that. With ten thousand organizations, messages would mostly consist
of such a list, and nodes would mostly check it.
"""

import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from v6_federated.base.errors import SafeError

MOST = 2**53  # ids end below, so that their number fits everywhere
MOST_IDS = 10**6  # in a list: a node goes through all of them, and a few bytes could name many more
RUN = 100  # consecutive ids, from which on a message names only the first and the last

NOT_LISTED = "the job does not list who takes part; it needs ids, each once, with this organization's"


class Organizations(Collection[int]):
    """Ids of organizations as a message names them, each once."""

    def __init__(self, named: Sequence[Any]) -> None:
        """Read what a message says."""
        if not isinstance(named, list | tuple):
            raise SafeError(NOT_LISTED)
        self._runs = sorted(map(_run, named), key=_first)
        if not _apart(self._runs) or len(self) > MOST_IDS:
            raise SafeError(NOT_LISTED)

    def __contains__(self, id_: object) -> bool:
        """Whether an id is among them."""
        return any(id_ in run for run in self._runs)

    def __iter__(self) -> Iterator[int]:
        """All ids, ascending."""
        return itertools.chain.from_iterable(self._runs)

    def __len__(self) -> int:
        """How many there are."""
        return sum(map(len, self._runs))

    def isdisjoint(self, others: "Organizations") -> bool:
        """Whether no id is among others too."""
        return _apart(sorted([*self._runs, *others._runs], key=_first))


def _run(entry: Any) -> range:
    if type(entry) is int:
        return range(entry, entry + 1)
    if isinstance(entry, list | tuple) and [*map(type, entry)] == [int, int] and 0 <= entry[0] < entry[1] < MOST:
        return range(entry[0], entry[1] + 1)
    raise SafeError(NOT_LISTED)


def _first(run: range) -> int:
    return run.start


def _apart(runs: Sequence[range]) -> bool:
    """Whether no two of some runs, in order, have an id in common."""
    return all(one.stop <= other.start for one, other in itertools.pairwise(runs))


def named(ids: Iterable[int]) -> list[int | list[int]]:
    """Write ids as a message names them."""
    found: list[int | list[int]] = []
    for _, places in itertools.groupby(enumerate(ids), lambda place: place[1] - place[0]):
        run = [id_ for _, id_ in places]
        found += [[run[0], run[-1]]] if len(run) >= RUN else run
    return found


def counted(named: Any) -> int | None:
    """Count the ids in a message that nobody has checked."""
    try:
        return len(Organizations(named))
    except SafeError:
        return None
