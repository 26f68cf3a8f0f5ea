"""A mock node: its rows on disk, and one call of a partial function as a container would run it."""

import functools
import importlib
import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import orjson
import pandas as pd

from v6_federated import models
from v6_federated.base.errors import SafeError
from v6_federated.data.reading import as_features
from v6_federated.data.source import Source
from v6_federated.privacy.environment import debugging
from v6_federated.privacy.limits import PREFIX

Database = pd.DataFrame | tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class MockNode:
    """What a worker process needs to know about a node.

    Attributes:
        organization_id: id of the node's organization.
        folder: the node's folder; it holds the file ``database`` and the folder ``tmp``.
        environment: environment variables of the node's algorithms.
    """

    organization_id: int
    folder: Path
    environment: Mapping[str, str]


def check(database: Database, named: str = "the rows") -> None:
    """Refuse rows that no node could read.

    Args:
        database: the rows.
        named: what the error calls them.

    Raises:
        SafeError: they are neither a table nor arrays of the same length, or hold complex numbers. The text quotes no
            value.
    """
    if isinstance(database, pd.DataFrame):
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


def create(organization: int, folder: Path, database: Database, environment: Mapping[str, str]) -> MockNode:
    """Write a node's rows to its folder.

    Args:
        organization: id of the node's organization.
        folder: the node's folder, which is created.
        database: the node's rows: a table, or arrays X (n, ...) and y (n,).
        environment: environment variables of the node's algorithms.

    Returns:
        The node.

    Raises:
        SafeError: no node could read the rows.
    """
    check(database, f"the rows of organization {organization}")
    (folder / "tmp").mkdir(parents=True)
    if isinstance(database, pd.DataFrame):
        source = Source(table=database)
    else:
        X, y = database
        source = Source(X=as_features(np.asarray(X)), y=np.asarray(y))
    joblib.dump(source, folder / "database")
    return MockNode(organization, folder, {**environment, "TEMPORARY_FOLDER": str(folder / "tmp")})


def run(
    package: str, folder: str, node: MockNode, message: Path, number: int, model: models.Registered | None = None
) -> tuple[int, str, str]:
    """Run one call at one node, in a worker process. The answer goes to a file, as in a container.

    Args:
        package: import package of the method.
        folder: the folder that the package lies in.
        node: the node.
        message: file of the task's input; the answer is written next to it.
        number: number of the run.
        model: the job's model, if it was registered in the process that started this one.

    Returns:
        The number of the run, its status and its log.

    Raises:
        AttributeError: the method does not export the function that the task names.
    """
    _forget_other_networks(node.folder.parent)
    request = _parse(message)
    if folder not in sys.path:
        sys.path.append(folder)  # a worker has not the path of the process that started it
    module = importlib.import_module(package)
    if model is not None:  # this process may not be the one in which the developer has registered it
        models.register(model.name, model.build, model.options)
    if not hasattr(module, request["method"]):
        raise AttributeError(f"{package}/__init__.py does not export {request['method']}; add it there")
    function = getattr(module, request["method"])
    try:
        with environment_of(node):
            answer = function(
                mock_client=_Identity(node.organization_id), mock_data=[_open(node.folder)], **request["kwargs"]
            )
        (message.parent / f"answer-{number}.json").write_bytes(orjson.dumps(answer))
    except Exception as error:
        if debugging():
            traceback.print_exc()
        return number, "crashed", f"Error encountered while calling {request['method']}: {error}"
    return number, "completed", ""


@contextmanager
def environment_of(node: MockNode) -> Iterator[None]:
    """Set the node's environment variables, and restore the process's own afterwards.

    A worker process may have inherited the policy of another node, which was set when it was started: it is removed.
    """
    inherited = [name for name in os.environ if name.startswith(PREFIX)]
    before = {name: os.environ.get(name) for name in (*inherited, *node.environment)}
    _set_environment({**dict.fromkeys(inherited), **node.environment})
    try:
        yield
    finally:
        _set_environment(before)


def _set_environment(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def close_databases() -> None:
    """Close the databases that this process has open."""
    _open.cache_clear()


_network: list[Path] = []  # the network whose databases this process has open


def _forget_other_networks(folder: Path) -> None:
    """Worker processes outlive a network; its open databases must not."""
    if _network != [folder]:
        _network[:] = [folder]
        close_databases()


@functools.lru_cache(maxsize=2)
def _parse(message: Path) -> dict[str, Any]:
    """A task's message, parsed once in each worker: it is the same for all nodes, and functions do not change it."""
    return orjson.loads(message.read_bytes())


@functools.cache
def _open(folder: Path) -> Source:
    """A node's database, mapped into memory once in each worker (read-only: no call can change it for the next)."""
    return joblib.load(folder / "database", mmap_mode="r")


@dataclass(frozen=True)
class _Identity:
    """The client as a partial function sees it."""

    organization_id: int
