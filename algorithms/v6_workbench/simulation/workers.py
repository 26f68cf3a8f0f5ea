"""The processes that run the partial functions of a mock network, on this machine."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import current_process
from pathlib import Path
from typing import Any, Protocol

from loky import BrokenProcessPool, ProcessPoolExecutor, cpu_count
from loky.backend.context import LokyContext

from v6_workbench.simulation import mock_node
from v6_workbench.simulation.mock_node import Ended, Image, MockNode

IDLE_SECONDS = 300  # after which a process ends
NUMBERS = ("OMP_NUM", "OPENBLAS_NUM", "MKL_NUM", "BLIS_NUM", "NUMBA_NUM", "NUMEXPR_NUM", "VECLIB_MAXIMUM")
# loky ends a process that holds 300 MB more than at its first call, for which importing torch is enough
MAY_GROW = {"LOKY_MAX_MEMORY_LEAK_SIZE": "1e18"}
THREADS = tuple(f"{number}_THREADS" for number in NUMBERS)  # variables for the threads of numerical libraries


@dataclass(frozen=True)
class Call:
    """A call of a partial function.

    Attributes:
        node: where.
        message: file of the task's input.
        number: number of the run.
    """

    node: MockNode
    message: Path
    number: int


class Workers(Protocol):
    """Processes that run calls. Use them as a context manager."""

    def __enter__(self) -> "Workers":
        """Start them."""

    def __exit__(self, *exception: Any) -> None:
        """End them, or leave them to others."""

    def work(self, image: Image, calls: Sequence[Call]) -> Iterator[Ended]:
        """Begin to run calls.

        Args:
            image: what the nodes run.
            calls: the calls.

        Returns:
            How each ended; the iterator waits for them.
        """


def waves(calls: Sequence[Call]) -> Iterator[list[Call]]:
    """Part calls so that those of one node run one after the other: each finds what the one before has kept.

    Args:
        calls: the calls.

    Yields:
        Calls of different nodes, which may run at the same time.
    """
    while calls:
        now: dict[int, Call] = {}  # the first call of each node
        for call in calls:
            now.setdefault(call.node.organization_id, call)
        yield [*now.values()]
        calls = [call for call in calls if call is not now[call.node.organization_id]]


class LocalWorkers:
    """Processes of this machine, through loky; one is this process itself.

    They are kept for the next network, and ended if a job does not wait for its calls, which would go on otherwise.
    """

    def __init__(self, most: int, nodes: int) -> None:
        """Choose how many there are.

        Args:
            most: their number, at most.
            nodes: number of nodes: each runs one call at a time.
        """
        # a daemon may have no processes of its own
        self._most, self._processes = most, 1 if current_process().daemon else min(most, nodes)
        self._pool: Pool | None = None

    def __enter__(self) -> "LocalWorkers":
        """Nothing: they start with the first calls."""
        return self

    def __exit__(self, *exception: Any) -> None:
        """Keep them for the next network."""
        if self._pool is not None:
            _kept[:] = [self._pool]
            self._pool = None

    def work(self, image: Image, calls: Sequence[Call]) -> Iterator[Ended]:
        """Run calls, see ``Workers``; they end in their order."""
        for wave in waves(calls):
            if self._processes == 1:
                yield from (mock_node.run(image, c.node, c.message, c.number) for c in wave)
            else:
                yield from self._together(image, wave)

    def _together(self, image: Image, calls: Sequence[Call]) -> Iterator[Ended]:
        self._pool = self._pool or Pool.of(self._processes, self._most)
        done = False
        try:
            yield from self._pool.run(image, calls)
            done = True
        finally:
            if not done:
                pool, self._pool = self._pool, None
                pool.end()


class Pool:
    """Some processes."""

    def __init__(self, processes: int, most: int) -> None:
        """Start none: they start with the first calls.

        Args:
            processes: how many.
            most: how many there might be for more nodes.
        """
        self._processes, self._most, self._said = processes, most, _said()
        environment = {**dict.fromkeys(THREADS, str(max(1, cpu_count() // processes))), **self._said, **MAY_GROW}
        context = LokyContext()  # its own: by the name "loky", Python may find that of the copy within joblib
        self._executor = ProcessPoolExecutor(processes, timeout=IDLE_SECONDS, context=context, env=environment)

    @classmethod
    def of(cls, processes: int, most: int) -> "Pool":
        """Return a pool: the one that an earlier network has left, if it has enough processes.

        Args:
            processes: how many are needed.
            most: how many there might be for more nodes. A pool for more than that is not used, so that no more calls
                run at the same time.
        """
        kept = [pool for pool in _kept if pool._suits(processes, most)]
        _kept.clear()
        return kept[0] if kept else cls(processes, most)

    def _suits(self, processes: int, most: int) -> bool:
        return self._processes >= processes and (self._most, self._said) == (most, _said()) and self._works()

    def _works(self) -> bool:
        """Whether none has died since the last call."""
        try:
            self._executor.submit(int).result()
        except BrokenProcessPool:
            return False
        return True

    def run(self, image: Image, calls: Sequence[Call]) -> Iterator[Ended]:
        """Run calls.

        Args:
            image: what the nodes run.
            calls: the calls, of different nodes.

        Yields:
            How each ended, in their order.
        """
        futures = [self._executor.submit(mock_node.run, image, c.node, c.message, c.number) for c in calls]
        yield from (future.result() for future in futures)

    def end(self) -> None:
        """End the processes, whatever they do."""
        self._executor.shutdown(wait=True, kill_workers=True)


_kept: list[Pool] = []  # by the last network that ended


def _said() -> dict[str, str]:
    """The user's own variables for the threads of numerical libraries."""
    return {name: os.environ[name] for name in THREADS if name in os.environ}
