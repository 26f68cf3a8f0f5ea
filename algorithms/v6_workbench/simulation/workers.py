"""The processes that run the partial functions of a mock network, on this machine."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import joblib

from v6_workbench.simulation import mock_node
from v6_workbench.simulation.mock_node import Ended, Image, MockNode


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
        """Run calls.

        Args:
            image: what the nodes run.
            calls: the calls.

        Yields:
            How each ended, as they end.
        """


class LocalWorkers:
    """Processes of this machine, through joblib; one is this process itself."""

    def __init__(self, processes: int) -> None:
        """Choose how many there are.

        Args:
            processes: their number.
        """
        self._pool = joblib.Parallel(
            n_jobs=processes, batch_size=1, pre_dispatch="all", return_as="generator_unordered", max_nbytes=None
        )

    def __enter__(self) -> "LocalWorkers":
        """Start them."""
        self._pool.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        """End them."""
        self._pool.__exit__(*exception)

    def work(self, image: Image, calls: Sequence[Call]) -> Iterator[Ended]:
        """Run calls, see ``Workers``."""
        yield from self._pool(joblib.delayed(mock_node.run)(image, c.node, c.message, c.number) for c in calls)
