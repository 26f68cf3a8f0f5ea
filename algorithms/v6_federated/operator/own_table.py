"""The hospital's own table, read on the operator's machine exactly as a node reads it."""

from pathlib import Path

from v6_federated.base.database import read
from v6_federated.base.errors import SafeError
from v6_federated.base.tables import KINDS, suffix
from v6_federated.base.vantage6_api import Database
from v6_federated.data.opening import open_database
from v6_federated.data.source import Source


def opened(path: Path) -> Source:
    """Read a table, or arrays."""
    if not path.exists():
        raise SafeError(f"there is no file {path}; expected {', '.join(KINDS)}, .npz, or a folder of images")
    kind = KINDS.get(suffix(path), "") if path.is_file() else ""
    if not kind:
        return open_database(path)
    return open_database(read(Database(path.name, kind, str(path)), allow_queries=False))
