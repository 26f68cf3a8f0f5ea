"""A node's rows as a data frame that can be written as Parquet, for the sessions of vantage6 5.

A table keeps its columns. Arrays become two columns, since a column for each pixel would be thousands: ``x`` holds the
bytes of a row, ``y`` its label, and an attribute of the frame their shape and type.
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from v6_federated.base.database import MARK
from v6_federated.base.vantage6_api import DataError
from v6_federated.base.version import __version__
from v6_federated.data.reading import shortest
from v6_federated.data.source import Source
from v6_federated.privacy.policy import Policy

if TYPE_CHECKING:
    import pyarrow

ATTRIBUTES = b"PANDAS_ATTRS"  # where pandas keeps the attributes of a frame in Parquet


def encode(source: Source, policy: Policy) -> "pyarrow.Table":
    """Write rows as a data frame with this package's mark.

    Args:
        source: the rows.
        policy: the operator's limits. Columns that may not be used are left out: a session shows all names to
            researchers, and all rows to other images.

    Returns:
        The frame.

    Raises:
        PrivacyThresholdViolation: no column may be used.
        DataError: a column holds what Parquet cannot.
    """
    about: dict[str, Any] = {"version": __version__}
    if source.table is not None:
        table = source.table[policy.permitted(source.table.columns, source.twins)]
        return _marked(pd.DataFrame({name: _writable(table[name]) for name in table.columns}), about)
    assert source.X is not None and source.y is not None
    X = np.ascontiguousarray(source.X, source.X.dtype.newbyteorder("<"))
    about |= {"shape": [*X.shape[1:]], "dtype": X.dtype.str}
    return _marked(pd.DataFrame({"x": [row.tobytes() for row in X], "y": source.y}), about)


def decode(frame: pd.DataFrame) -> Source:
    """Read the rows of a data frame.

    Args:
        frame: a table, or what ``encode`` has written.

    Returns:
        The rows.

    Raises:
        DataError: the frame has the mark of ``encode``, and does not hold what ``encode`` has written.
    """
    about = frame.attrs.get(MARK)
    if about is None:
        return Source(table=frame)
    source = _read(frame, about)
    if source.digest.hex() != about.get("digest"):
        raise DataError("the data frame was changed after its rows were read; make it again with the function extract")
    return source


def _read(frame: pd.DataFrame, about: Mapping[str, Any]) -> Source:
    if "shape" not in about:
        return Source(table=frame)
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

    try:
        table = pyarrow.Table.from_pandas(frame, preserve_index=False)
    except (pyarrow.ArrowException, TypeError, ValueError, OverflowError):
        raise DataError(
            "a column of the table holds values of several kinds; expected numbers or words in each"
        ) from None
    about |= {"digest": _read(table.to_pandas(), about).digest.hex()}  # of what a task will find
    return table.replace_schema_metadata({**table.schema.metadata, ATTRIBUTES: json.dumps({MARK: about}).encode()})


def _writable(column: "pd.Series[Any]") -> "pd.Series[Any]":
    """A column of words and numbers as texts, which are read as the same words and numbers."""
    if column.dtype != object:
        return column
    number = (bool, int, float, np.number, np.bool_)
    return column.map(lambda value: shortest(float(value)) if isinstance(value, number) else value, na_action="ignore")
