"""A mock node: its rows, and one call of a partial function as a container would run it."""

import functools
import importlib
import os
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pandas as pd

from v6_federated import models
from v6_federated.base.errors import SafeError
from v6_federated.base.tables import DECIMAL_COMMAS
from v6_federated.data.reading import as_features
from v6_federated.data.source import Source
from v6_federated.rules.environment import debugging
from v6_federated.rules.limits import PREFIX
from v6_workbench.simulation import row_store
from v6_workbench.simulation.row_store import Record, RowStore

Database = pd.DataFrame | tuple[np.ndarray, np.ndarray]
LONG = 2**16  # bytes of an answer, above which it is written to a file
MOST_OPEN = 1000  # databases that a process has open: of each, it keeps the rows that it has prepared

# While a node is at work, its environment variables are those of this process. So networks in several threads take
# turns, and central keeps the turn until its job ends. Its partial functions run in the same thread, which has the turn
# already; on a cluster whose workers are threads of this process, they run in others and must not wait for it.
TURN = threading.RLock()


@dataclass(frozen=True)
class MockNode:
    """What a worker process needs to know about a node.

    Attributes:
        organization_id: id of the node's organization.
        folder: the node's folder; it holds ``tmp``, the temporary folder of its algorithms. Both are made when the
            first file is written there.
        rows: where its rows lie.
        environment: environment variables of the node's algorithms.
    """

    organization_id: int
    folder: Path
    rows: Record
    environment: MutableMapping[str, str]


@dataclass(frozen=True)
class Image:
    """What a node runs.

    Attributes:
        package: import package of the method.
        folder: the folder that the package lies in; empty if it lies in none.
        model: the job's model, if it is registered in the process that started the workers, and in no package.
    """

    package: str
    folder: str
    model: models.Registered | None = None


@dataclass(frozen=True)
class Ended:
    """How a call ended.

    Attributes:
        number: number of the run.
        status: in vantage6's words.
        log: the container's log.
        answer: the answer as JSON, or the file that holds it if it is long; None if there is none.
    """

    number: int
    status: str
    log: str = ""
    answer: bytes | Path | None = None


def check(database: Database, named: str = "the rows") -> None:
    """Refuse rows that no node could read.

    Args:
        database: the rows.
        named: what the error calls them.

    Raises:
        SafeError: they are neither a table whose columns have one name each nor arrays of the same length, or hold
            complex numbers. The text quotes no value.
    """
    if isinstance(database, pd.DataFrame):
        if isinstance(database.columns, pd.MultiIndex):
            raise SafeError(
                f"{named}: each column has {database.columns.nlevels} names (a MultiIndex); expected one each, for "
                "example by table.columns = ['_'.join(map(str, names)) for names in table.columns]"
            )
        if wrong := [
            str(name) for name, dtype in zip(database.columns, database.dtypes, strict=True) if _complex(dtype)
        ]:
            raise SafeError(
                f"{named}: the column(s) {', '.join(wrong)} hold complex numbers; expected numbers or words"
            )
        return
    if not isinstance(database, tuple | list) or len(database) != 2:
        raise SafeError(f"{named} are a {type(database).__name__}; expected a DataFrame, or arrays (X, y)")
    X, y = map(np.asarray, database)
    if X.ndim < 2 or y.ndim != 1:
        raise SafeError(f"{named}: X has the shape {X.shape} and y {y.shape}; expected X (n, ...) and y (n,)")
    if len(X) != len(y):
        raise SafeError(f"{named}: X has {len(X)} rows, but y has {len(y)}; expected as many labels as rows")
    if wrong := [name for name, array in (("X", X), ("y", y)) if _complex(array.dtype)]:
        raise SafeError(f"{named}: {' and '.join(wrong)} hold complex numbers; expected real numbers")


def _complex(dtype: Any) -> bool:
    return getattr(dtype, "kind", "") == "c"


def stored(organization: int, database: Database, store: RowStore) -> Record:
    """Write a node's rows to the store of all nodes.

    Args:
        organization: id of the node's organization.
        database: the node's rows: a table, or arrays X (n, ...) and y (n,).
        store: the store.

    Returns:
        Where they lie.

    Raises:
        SafeError: no node could read the rows.
    """
    check(database, f"the rows of organization {organization}")
    if isinstance(database, pd.DataFrame):
        table = Source(table=database).table
        assert table is not None
        head = [*table.columns], table.index, {k: v for k, v in table.attrs.items() if k == DECIMAL_COMMAS}
        return store.add(head, *(_numbers(table.iloc[:, i]) for i in range(table.shape[1])))
    X, y = map(np.asarray, database)
    # pixels of 8 bits stay as they are, as their numbers take four times the room; a node reads them as numbers
    return store.add(X if X.dtype == np.uint8 else as_features(X), y)


def _numbers(column: "pd.Series[Any]") -> Any:
    """A column as an array of numpy, or as pandas' own, for example of categories."""
    return column.to_numpy() if isinstance(column.dtype, np.dtype) else column.array.copy()


def source_of(rows: Sequence[Any]) -> Source:
    """Return a node's database.

    Args:
        rows: what ``stored`` has written: arrays X and y, or the names, the index and the attributes of a table, and
            its columns.
    """
    first, *others = rows
    if isinstance(first, np.ndarray):
        return Source(X=first, y=others[0])
    names, index, attributes = first
    table = pd.DataFrame(dict(zip(names, others, strict=True)), index=index, columns=names, copy=False)
    table.attrs |= attributes
    return Source(table=table)


def run(image: Image, node: MockNode, message: Path, number: int) -> Ended:
    """Run one call at one node, in a process on the machine of the caller.

    Args:
        image: what the node runs.
        node: the node.
        message: file of the task's input; a long answer is written next to it.
        number: number of the run.

    Returns:
        How it ended.

    Raises:
        AttributeError: the method does not export the function that the task names.
    """
    with TURN:
        _forget_other_networks(node.rows.file)
        ended = call(image, node.organization_id, node.environment, _parse(message), _open(node.rows), number)
    return spooled(ended, message.parent)


def spooled(ended: Ended, folder: Path) -> Ended:
    """Write a long answer to a file: those of a thousand nodes need not lie in memory as text.

    Args:
        ended: how a call ended.
        folder: the network's folder.

    Returns:
        The same, with the file in place of a long answer.
    """
    if not isinstance(ended.answer, bytes) or len(ended.answer) <= LONG:
        return ended
    file = folder / f"answer-{ended.number}.json"
    file.write_bytes(ended.answer)
    return replace(ended, answer=file)


def call(
    image: Image,
    organization: int,
    environment: Mapping[str, str],
    request: dict[str, Any],
    source: Source,
    number: int,
) -> Ended:
    """Run one call at one node, in this process.

    Args:
        image: what the node runs.
        organization: id of the node's organization.
        environment: environment variables of the node's algorithms.
        request: the task's input: the name of the function (``method``) and its arguments (``kwargs``).
        source: the node's database.
        number: number of the run.

    Returns:
        How it ended; the answer is JSON.

    Raises:
        AttributeError: the method does not export the function that the task names.
    """
    if image.folder and image.folder not in sys.path:
        sys.path.append(image.folder)  # a worker has not the path of the process that started it
    module = importlib.import_module(image.package)
    if image.model is not None:  # this process may not be the one in which the developer has registered it
        models.register(image.model.name, image.model.build, image.model.options)
    if not hasattr(module, request["method"]):
        raise AttributeError(f"{image.package}/__init__.py does not export {request['method']}; add it there")
    function = getattr(module, request["method"])
    try:
        with environment_of(environment):
            answer = function(mock_client=_Identity(organization), mock_data=[source], **request["kwargs"])
        return Ended(number, "completed", answer=orjson.dumps(answer))
    except Exception as error:
        if debugging():
            traceback.print_exc()
        return Ended(number, "crashed", f"Error encountered while calling {request['method']}: {error}")


@contextmanager
def environment_of(variables: Mapping[str, str]) -> Iterator[None]:
    """Set a node's environment variables, and restore the process's own afterwards.

    A worker process may have inherited the policy of another node, which was set when it was started: it is removed.
    """
    inherited = [name for name in os.environ if name.startswith(PREFIX)]
    before = {name: os.environ.get(name) for name in (*inherited, *variables)}
    _set_environment({**dict.fromkeys(inherited), **variables})
    try:
        yield
    finally:
        _set_environment(before)


def limits_of_process() -> dict[str, str]:
    """Return the V6_FEDERATED_ variables of this process, and not those of a node that is at work in another thread."""
    with TURN:
        return {name: value for name, value in os.environ.items() if name.startswith(PREFIX)}


def _set_environment(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def close_databases() -> None:
    """Close the databases that this process has open."""
    _open.cache_clear()
    row_store.forget()


_stores: list[Path] = []  # the rows of the network whose databases this process has open


def _forget_other_networks(store: Path) -> None:
    """Worker processes outlive a network; its open databases must not."""
    if _stores != [store]:
        _stores[:] = [store]
        close_databases()


@functools.lru_cache(maxsize=2)
def _parse(message: Path) -> dict[str, Any]:
    """A task's message, parsed once in each worker: it is the same for all nodes, and functions do not change it."""
    return orjson.loads(message.read_bytes())


@functools.lru_cache(maxsize=MOST_OPEN)
def _open(rows: Record) -> Source:
    """A node's database, mapped into memory once in each worker (read-only: no call can change it for the next)."""
    return source_of(rows.open())


@dataclass(frozen=True)
class _Identity:
    """The client as a partial function sees it."""

    organization_id: int
