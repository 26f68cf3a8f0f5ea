"""Mock nodes on a cluster: its workers, on any machines, run the partial functions and share no disk with the caller.

Everything travels through the cluster: a node's rows once, a message once for all nodes, and with each call the files
that the node keeps. So any worker can run any node, and one that dies takes nothing with it: Dask and Ray run its calls
again on another worker, from what the caller has handed over.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import orjson

from v6_federated.base.errors import SafeError
from v6_workbench.errors import EngineError
from v6_workbench.simulation import mock_node
from v6_workbench.simulation.cluster import remote
from v6_workbench.simulation.mock_node import Ended, Image
from v6_workbench.simulation.row_store import Record
from v6_workbench.simulation.workers import Call, Workers, waves

LIBRARIES = {"dask": "distributed", "ray": "ray"}
EXPECTED = "expected dask:ADDRESS, for example dask:tcp://10.0.0.1:8786, or ray, or ray:ADDRESS"
FOLDERS = ("TEMPORARY_FOLDER", "HOSPITAL_DATABASE_URI")  # variables of a node that name folders


class Library(Protocol):
    """What is used of Dask or Ray."""

    def hand_over(self, function: Any, *arguments: Any) -> Any:
        """Give the cluster what a function returns; return what stands for it in calls.

        The cluster keeps it while that is referred to, whichever worker ends.
        """

    def run(self, calls: Sequence[tuple[Any, ...]]) -> Iterator[remote.Returned]:
        """Run ``remote.run`` with the arguments of each call; yield what they return, as they return."""

    def close(self) -> None:
        """Leave the cluster."""


def check(cluster: str) -> None:
    """Check the name of a cluster, without connecting to it.

    Args:
        cluster: ``dask:ADDRESS``, ``ray`` or ``ray:ADDRESS``.

    Raises:
        SafeError: there is no such kind of cluster, or its library is not installed.
    """
    _parted(cluster)


def connect(cluster: str) -> "ClusterWorkers":
    """Connect to a cluster.

    Args:
        cluster: ``dask:ADDRESS``, ``ray`` or ``ray:ADDRESS``.

    Returns:
        Its workers.

    Raises:
        SafeError: there is no such kind of cluster, or its library is not installed.
        EngineError: it cannot be reached, or has no workers.
    """
    kind, address = _parted(cluster)
    if kind == "dask":
        from v6_workbench.simulation.cluster.on_dask import DaskCluster

        return ClusterWorkers(DaskCluster(address))
    from v6_workbench.simulation.cluster.on_ray import RayCluster

    return ClusterWorkers(RayCluster(address))


def _parted(cluster: str) -> tuple[str, str]:
    """The kind of a cluster and its address."""
    kind, _, address = cluster.partition(":")
    if kind not in LIBRARIES or (kind == "dask" and not address):
        raise SafeError(f"--cluster {cluster!r} is not understood; {EXPECTED}")
    if kind == "ray" and address and not address.rpartition(":")[2].isdecimal():
        raise SafeError(f"--cluster {cluster!r} names no port; expected for example ray:10.0.0.1:6379")
    try:
        __import__(LIBRARIES[kind])
    except ModuleNotFoundError:
        raise SafeError(
            f"--cluster {cluster} needs the library {LIBRARIES[kind]}; run: pip install 'v6-federated[{kind}]'"
        ) from None
    return kind, address


class ClusterWorkers(Workers):
    """The workers of a cluster."""

    def __init__(self, library: Library) -> None:
        """Use a cluster that is connected.

        Args:
            library: Dask or Ray.
        """
        self._library = library
        self._rows: dict[Record, Any] = {}  # those that were handed over

    def __enter__(self) -> "ClusterWorkers":
        """Nothing: they run."""
        return self

    def __exit__(self, *exception: Any) -> None:
        """Leave the cluster."""
        self._rows.clear()
        self._library.close()

    def work(self, image: Image, calls: Sequence[Call]) -> Iterator[Ended]:
        """Run calls, see ``Workers``."""
        messages = {
            file: self._library.hand_over(orjson.loads, file.read_bytes()) for file in {call.message for call in calls}
        }
        for wave in waves(calls):
            yield from self._together(image, wave, messages)

    def _together(self, image: Image, calls: Sequence[Call], messages: dict[Path, Any]) -> Iterator[Ended]:
        by_number = {call.number: call for call in calls}
        versions = remote.versions()

        def arguments(call: Call) -> tuple[Any, ...]:
            node, rows = call.node, call.node.rows
            if rows not in self._rows:
                self._rows[rows] = self._library.hand_over(remote.source, rows.bytes(), rows.parts)
            files = {name: remote.pack(Path(node.environment[name])) for name in FOLDERS if name in node.environment}
            sent = remote.Sent(versions, image, node.organization_id, dict(node.environment), files, call.number)
            return sent, messages[call.message], self._rows[rows]

        for returned in self._library.run([arguments(call) for call in calls]):
            if returned.problem:
                raise EngineError(returned.problem)
            call = by_number[returned.ended.number]
            for name, changes in returned.changes.items():
                changes.apply(Path(call.node.environment[name]))
            yield mock_node.spooled(returned.ended, call.message.parent)
