"""A Dask cluster, through the client of ``distributed``."""

import asyncio
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from typing import Any

from distributed import Client, Future, KilledWorker, as_completed
from distributed import TimeoutError as TimedOut  # asyncio's own, before Python 3.11
from distributed.comm import CommClosedError, connect
from distributed.security import Security

from v6_workbench.errors import EngineError
from v6_workbench.simulation.cluster import remote

CONNECT_SECONDS = 10
WATCH_SECONDS = 15  # how often a run looks whether there are workers
PATIENCE_SECONDS = 120  # for which it waits for a new one when the last has gone


class DaskCluster:
    """A Dask cluster, see ``cluster.Library``.

    What is handed over is the result of a task, not data that are scattered: the scheduler keeps the task, and runs it
    again if the worker that had its result has ended.
    """

    def __init__(self, address: str) -> None:
        """Connect.

        Args:
            address: the scheduler's, such as ``tcp://10.0.0.1:8786``.

        Raises:
            EngineError: no scheduler answers there, or it has no workers.
        """
        self._address = address
        try:
            asyncio.run(_shake_hands(address))  # a Client that has failed would print a traceback when it is deleted
            self._client = Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
        except Exception:  # another server may answer with bytes that fail in any way
            raise EngineError(
                f"no Dask scheduler answers at {address}; start one with `dask scheduler`, and name its address as it "
                "shows it"
            ) from None
        try:
            self._client.wait_for_workers(1, timeout=CONNECT_SECONDS)
        except TimedOut:
            self.close()
            raise EngineError(
                f"the Dask scheduler at {address} has no workers; start one with `dask worker {address} --nthreads 1`"
            ) from None

    def hand_over(self, function: Any, *arguments: Any) -> Any:
        """Give the cluster what a function returns, see ``cluster.Library``."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph")  # a node's rows, which are sent once
            return self._client.submit(function, *arguments, pure=False)

    def run(self, calls: Sequence[tuple[Any, ...]]) -> Iterator[remote.Returned]:
        """Run calls, see ``cluster.Library``."""
        try:
            yield from self._returned({self._client.submit(remote.run, *call, pure=False) for call in calls})
        except KilledWorker:
            raise EngineError(
                f"several workers of the Dask cluster at {self._address} ended while they ran the same call; see what "
                "they print, for example that memory is short"
            ) from None
        except (CancelledError, CommClosedError):
            raise EngineError(f"the Dask scheduler at {self._address} does not answer any more") from None
        except ModuleNotFoundError as error:
            raise EngineError(
                f"a worker of the Dask cluster at {self._address} lacks the module {error.name}; install there what is "
                "installed here"
            ) from None

    def _returned(self, futures: set[Future]) -> Iterator[remote.Returned]:
        seen = time.monotonic()  # when there was a worker
        while futures:
            done = as_completed(futures, loop=self._client.loop, with_results=True, timeout=WATCH_SECONDS)
            try:
                for future, returned in done:
                    if isinstance(returned, CancelledError):  # it comes as a result
                        raise returned
                    futures.remove(future)
                    seen = time.monotonic()
                    yield returned
            except TimedOut:
                if self._client.nthreads():
                    seen = time.monotonic()
                elif time.monotonic() - seen >= PATIENCE_SECONDS:
                    raise EngineError(
                        f"the Dask cluster at {self._address} has lost its last worker; start others with `dask worker "
                        f"{self._address} --nthreads 1`, and run the job again"
                    ) from None

    def close(self) -> None:
        """Leave the cluster."""
        self._client.close()


async def _shake_hands(address: str) -> None:
    """Connect to a scheduler and leave again."""
    options = Security().get_connection_args("client")
    comm = await asyncio.wait_for(connect(address, timeout=CONNECT_SECONDS, **options), CONNECT_SECONDS + 1)
    comm.abort()
