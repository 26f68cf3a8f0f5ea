"""A Ray cluster."""

import logging
import os
import socket
from collections.abc import Iterator, Sequence
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from v6_workbench.errors import EngineError
from v6_workbench.simulation.cluster import remote

CONNECT_SECONDS = 10
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it reports to its makers otherwise


class RayCluster:
    """A Ray cluster, see ``cluster.Library``.

    What is handed over lies in the object store of this machine, from where the workers fetch it.
    """

    def __init__(self, address: str) -> None:
        """Connect.

        Args:
            address: of the cluster's head; empty: of the cluster that this machine has joined.

        Raises:
            EngineError: there is no such cluster.
        """
        where = f"answers at {address}" if address else "runs on this machine"
        try:
            if address:  # Ray itself would try for minutes
                host, _, port = address.removeprefix("ray://").rpartition(":")
                socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()
            ray.init(address=address or "auto", log_to_driver=False, logging_level=logging.ERROR)
        except (OSError, RuntimeError, ValueError, RayError):
            raise EngineError(f"no Ray cluster {where}; start one with `ray start --head`") from None
        self._run = ray.remote(max_retries=3, num_cpus=1)(remote.run)

    def hand_over(self, function: Any, *arguments: Any) -> Any:
        """Give the cluster what a function returns, see ``cluster.Library``."""
        return ray.put(function(*arguments))

    def run(self, calls: Sequence[tuple[Any, ...]]) -> Iterator[remote.Returned]:
        """Run calls, see ``cluster.Library``."""
        waiting = [self._run.remote(*call) for call in calls]
        while waiting:
            done, waiting = ray.wait(waiting)
            try:
                yield from ray.get(done)
            except RayTaskError as error:
                raise error.cause if isinstance(error.cause, AttributeError) else EngineError(_said(error)) from None
            except RayError as error:
                raise EngineError(_said(error)) from None

    def close(self) -> None:
        """Leave the cluster."""
        ray.shutdown()


def _said(error: RayError) -> str:
    cause = getattr(error, "cause", None) or error
    line = next((line for line in str(cause).splitlines() if line.strip()), "")
    return f"the Ray cluster could not run a call: {type(cause).__name__}: {line}"
