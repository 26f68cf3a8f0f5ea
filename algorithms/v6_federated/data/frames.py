"""A node's rows as a data frame that can be written as Parquet, for the sessions of vantage6 5.

A table keeps its columns. Arrays become two columns, since a column for each pixel would be thousands: ``x`` holds the
bytes of a row, ``y`` its label, and an attribute of the frame their shape and type.
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from v6_federated.base.database import CHOSEN, MARK, TABLE
from v6_federated.base.logs import one_line
from v6_federated.base.tables import DECIMAL_COMMAS
from v6_federated.base.vantage6_api import DataError
from v6_federated.base.version import __version__
from v6_federated.data.reading import shortest
from v6_federated.data.source import Source
from v6_federated.rules.policy import Policy

if TYPE_CHECKING:
    import pyarrow

ATTRIBUTES = b"PANDAS_ATTRS"  # where pandas keeps the attributes of a frame in Parquet


def encode(source: Source, policy: Policy, chosen: bool, name: str = "") -> "pyarrow.Table":
    """Write rows as a data frame with this package's mark.

    Args:
        source: the rows.
        policy: the operator's limits. Columns that may not be used are left out: a session shows all names to
            researchers, and all rows to other images.
        chosen: whether a task has chosen the rows, by a query or a sheet.
        name: of the database, see ``database.name_of``.

    Returns:
        The frame. Columns whose values are of kinds that no task could use are left out, and named in the log.

    Raises:
        PrivacyThresholdViolation: no column may be used.
    """
    about: dict[str, Any] = {"version": __version__, CHOSEN: chosen, TABLE: name}
    if source.table is not None:
        table = source.table[policy.permitted(source.table.columns, source.twins)]
        writable = {name: column for name in table.columns if (column := _writable(table[name])) is not None}
        if left := [name for name in table.columns if name not in writable]:
            print(f"left out, since their values are of several kinds: {one_line(', '.join(left))}", flush=True)
        about |= {DECIMAL_COMMAS: bool(source.table.attrs.get(DECIMAL_COMMAS))}
        return _marked(pd.DataFrame(writable, index=table.index), about)
    assert source.X is not None and source.y is not None
    X = np.ascontiguousarray(source.X, source.X.dtype.newbyteorder("<"))
    about |= {"shape": [*X.shape[1:]], "dtype": X.dtype.str}
    y = np.asarray(source.y, source.y.dtype.newbyteorder("="))
    return _marked(pd.DataFrame({"x": [row.tobytes() for row in X], "y": y}), about)


def decode(frame: pd.DataFrame) -> Source:
    """Read the rows of a data frame.

    Args:
        frame: a frame with a mark.

    Returns:
        The rows.

    Raises:
        DataError: it does not hold what ``encode`` has written.
    """
    about = frame.attrs[MARK]
    source = _read(frame, about)
    if source.digest.hex() != about.get("digest"):
        raise DataError("the data frame was changed after its rows were read; make it again with the function extract")
    return source


def _read(frame: pd.DataFrame, about: Mapping[str, Any]) -> Source:
    if "shape" not in about:
        frame.attrs[DECIMAL_COMMAS] = bool(about.get(DECIMAL_COMMAS))
        # whether there is a header was checked before, on all columns
        return Source(table=frame, _read={"header": ""})
    try:
        dtype, shape = np.dtype(about["dtype"]), (len(frame), *map(int, about["shape"]))
        if dtype.hasobject:
            raise TypeError
        X = np.frombuffer(b"".join(frame["x"]), dtype).reshape(shape)
        y = frame["y"].to_numpy()
        return Source(X=X, y=np.asarray(y.tolist()) if y.dtype == object else y)  # words, as .npz has them
    except (KeyError, TypeError, ValueError):
        raise DataError("the data frame does not hold the arrays that it names; make it again") from None


def _marked(frame: pd.DataFrame, about: dict[str, Any]) -> "pyarrow.Table":
    import pyarrow

    table = pyarrow.Table.from_pandas(frame, preserve_index=False)
    mark = {**about, "digest": _read(table.to_pandas(), about).digest.hex()}  # of what a task will find
    return table.replace_schema_metadata({**table.schema.metadata, ATTRIBUTES: json.dumps({MARK: mark}).encode()})


def _writable(column: "pd.Series[Any]") -> "pd.Series[Any] | None":
    """A column as Parquet can hold it, words and numbers as texts that are read as the same; None if it cannot."""
    import pyarrow

    if column.dtype == object:
        number = (bool, int, float, np.number, np.bool_)
        column = column.map(lambda v: shortest(float(v)) if isinstance(v, number) else v, na_action="ignore")
    try:
        written = pyarrow.Array.from_pandas(column)
    except (pyarrow.ArrowException, TypeError, ValueError, OverflowError):
        return None
    nested = pyarrow.types.is_nested(written.type)  # whose values cannot be compared
    return None if nested else column
