"""The processes that run the partial functions of a mock network, on this machine."""

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from joblib.externals.loky import cpu_count, get_reusable_executor, process_executor

from v6_workbench.simulation import mock_node
from v6_workbench.simulation.mock_node import Ended, Image, MockNode

IDLE_SECONDS = 3600  # after which a process ends; loky warns if that happens between two rounds
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


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


class LocalWorkers:
    """Processes of this machine, which loky keeps for the next network; one is this process itself."""

    def __init__(self, processes: int) -> None:
        """Choose how many there are.

        Args:
            processes: their number.
        """
        self._processes = processes

    def __enter__(self) -> "LocalWorkers":
        """Nothing: they start with the first calls."""
        return self

    def __exit__(self, *exception: Any) -> None:
        """Nothing: they end when they have been idle for a while."""

    def work(self, image: Image, calls: Sequence[Call]) -> Iterator[Ended]:
        """Run calls, see ``Workers``; they end in their order."""
        if self._processes == 1:
            return (mock_node.run(image, c.node, c.message, c.number) for c in calls)
        threads = str(max(1, cpu_count() // self._processes))
        pool = get_reusable_executor(
            self._processes, timeout=IDLE_SECONDS, initializer=_may_grow, env=dict.fromkeys(THREADS, threads)
        )
        return _in_order([pool.submit(mock_node.run, image, c.node, c.message, c.number) for c in calls])


def _may_grow() -> None:
    """Let a process grow: loky ends one of 300 MB more than at its first call, for which importing torch is enough."""
    process_executor._MAX_MEMORY_LEAK_SIZE = math.inf


def _in_order(futures: Sequence["Future[Ended]"]) -> Iterator[Ended]:
    """Wait for each result, and drop those that nobody waits for any more."""
    try:
        yield from (future.result() for future in futures)
    finally:
        for future in futures:
            future.cancel()
