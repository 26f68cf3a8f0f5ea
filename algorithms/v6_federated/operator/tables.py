"""The hospital's own table, read on the operator's machine exactly as a node reads it."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from v6_federated.base.database import read_database
from v6_federated.base.errors import SafeError
from v6_federated.base.tables import KINDS, suffix
from v6_federated.data.files import open_database
from v6_federated.data.source import Source

LABEL = "operators_table"  # of the database, for as long as it is read


def opened(path: Path) -> Source:
    """Read a table, or arrays.

    Args:
        path: a csv, tsv, Excel, Parquet or npz file, or a folder of images.

    Returns:
        The rows.

    Raises:
        SafeError: there is no such file.
        DataError: it cannot be read. The text quotes none of its rows.
    """
    if not path.exists():
        raise SafeError(f"there is no file {path}; expected {', '.join(KINDS)}, .npz, or a folder of images")
    kind = KINDS.get(suffix(path), "") if path.is_file() else ""
    if not kind:
        return open_database(path)
    with _as_database(path, kind):
        return open_database(read_database(allow_queries=False))


@contextlib.contextmanager
def _as_database(path: Path, kind: str) -> Iterator[None]:
    """Describe a file in the environment as vantage6 describes a node's database."""
    described = {
        "USER_REQUESTED_DATABASE_LABELS": LABEL,
        f"{LABEL.upper()}_DATABASE_URI": str(path),
        f"{LABEL.upper()}_DATABASE_TYPE": kind,
    }
    before = {name: os.environ.get(name) for name in described}
    os.environ.update(described)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value
