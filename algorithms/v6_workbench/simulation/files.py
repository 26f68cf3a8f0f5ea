"""Reading tables and ``.npz`` files. No error quotes a value of a row."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from v6_federated.base import tables
from v6_federated.base.errors import SafeError
from v6_federated.base.text import shortened
from v6_federated.base.vantage6_api import DataError
from v6_federated.data import header
from v6_federated.data.opening import check_pair, load_npz
from v6_federated.data.reading import as_features
from v6_federated.rules.limits import PREFIX
from v6_federated.rules.policy import Policy
from v6_workbench.errors import some_of
from v6_workbench.simulation.mock_node import Database

Arrays = tuple[np.ndarray, np.ndarray]
SUFFIXES = (*tables.KINDS, ".npz")
EXCEL = ".xlsx"
LOOK = 100  # rows in which a sheet that holds anything has a cell
EXPECTED = f"{', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"


def parted(data: str) -> tuple[Path, str | None]:
    """Part the path of a file from the sheet of a workbook: ``rows.xlsx:SHEET``.

    Args:
        data: what names the file.

    Returns:
        The path, and the sheet if one is named.
    """
    file, colon, sheet = data.rpartition(":")
    named = colon and sheet and Path(file).suffix.lower() == EXCEL and not Path(data).exists()
    return (Path(file), sheet) if named else (Path(data), None)


def read(path: Path, sheet: str | None = None) -> tuple[Database, Arrays | None]:
    """Read a file of labelled rows.

    Args:
        path: a table (``tables.KINDS``), or a ``.npz`` file.
        sheet: see ``read_table``.

    Returns:
        The rows, a table or arrays X (n, ...) and y (n,); and the test set of a ``.npz`` that has one.

    Raises:
        SafeError: the file does not exist, is empty, or cannot be read.
    """
    if path.is_dir():
        raise SafeError(f"{path} is a folder; expected a file: {EXPECTED}")
    if path.stat().st_size == 0:
        raise SafeError(f"{path.name} is empty; expected a file with rows")
    if path.suffix.lower() == ".npz":
        return _read_npz(path)
    if not is_table(path):
        ending = f"the ending {path.suffix}" if path.suffix else "no ending"
        raise SafeError(f"{path.name} has {ending}; expected {EXPECTED}")
    table = read_table(path, sheet)
    if table.empty or len(table.columns) < 2:
        raise SafeError(
            f"{path.name} holds {table.shape[0]} rows of {table.shape[1]} column(s); expected rows of two columns or "
            "more, with commas, semicolons or tabs between them"
        )
    return table, None


def read_table(path: Path, sheet: str | None = None) -> pd.DataFrame:
    """Read a table.

    Args:
        path: a file with one of the endings of ``tables.KINDS``.
        sheet: the sheet of a workbook; None: it has only one that holds anything.

    Returns:
        The table, its columns named by texts.

    Raises:
        SafeError: the file cannot be read, seems to have no header, or has columns without names; or nothing says which
            of several sheets is meant.
    """
    if tables.suffix(path) == EXCEL:
        _check_sheet(path, sheet)
    table = tables.read(path, tables.KINDS[tables.suffix(path)], path.name, own=True, sheet=sheet)
    table.columns = table.columns.astype(str)
    if not Policy.of_node().allow_numeric_names and (sign := header.missing(table)):
        raise SafeError(
            f"{path.name} seems to have no header: {sign}. Name each column in its first line; if these are their "
            f"names, set {PREFIX}ALLOW_NUMERIC_NAMES=1 before the command"
        )
    if blank := [i for i, name in enumerate(table.columns, start=1) if name == f"Unnamed: {i - 1}"]:
        raise SafeError(
            f"{path.name}: the column(s) {shortened(blank)} have no name; the first row must hold the names of all "
            "columns: remove a title above it, and name these columns or remove them"
        )
    return table


def _check_sheet(path: Path, sheet: str | None) -> None:
    """Check that a workbook has a sheet, or, if none is named, that only its first one holds anything."""
    try:
        with pd.ExcelFile(path) as book:
            there = [str(name) for name in book.sheet_names]
            used = [name for name in there if sheet is not None or not book.parse(name, header=None, nrows=LOOK).empty]
    except Exception:  # readers have many; ``tables.read`` says what is wrong
        return
    if sheet is not None and sheet not in there:
        raise SafeError(f"{path.name} has no sheet {sheet!r}; expected one of {some_of(there)}")
    if sheet is None and used not in ([], there[:1]):
        raise SafeError(
            f"{path.name} has the sheets {some_of(used)}; name the one that holds the rows: --data {path}:{used[0]}"
        )


def is_table(path: Path) -> bool:
    """Whether a file holds a table, by its ending.

    Args:
        path: the file.
    """
    return tables.suffix(path) in tables.KINDS


def as_text(path: Path, columns: Sequence[str]) -> pd.DataFrame | None:
    """Read columns of a text file with the text that it has.

    Args:
        path: the file.
        columns: columns of its table.

    Returns:
        The columns as text, in which only empty cells are missing; None if the file is not a text file.

    Raises:
        SafeError: the file cannot be read.
    """
    if tables.KINDS.get(tables.suffix(path)) != "csv":
        return None
    text = tables.read_csv(
        path, path.name, own=True, usecols=list(columns), dtype=str, keep_default_na=False, na_values=[""]
    )
    return text[list(columns)]  # usecols keeps the order of the file


def _read_npz(path: Path) -> tuple[Arrays, Arrays | None]:
    try:
        arrays = load_npz(path)
        found = next((names for names in (("x_train", "y_train"), ("x", "y")) if set(names) <= set(arrays)), None)
        if found is None:
            raise SafeError(
                f"{path.name} holds {', '.join(arrays) or 'nothing'}; expected x and y, or x_train, y_train, x_test "
                "and y_test"
            )
        train = _checked_pair(path, arrays, *found)
        if not {"x_test", "y_test"} <= set(arrays):
            return train, None
        test = _checked_pair(path, arrays, "x_test", "y_test")
    except DataError as error:
        raise SafeError(str(error)) from None
    if train[0].shape[1:] != test[0].shape[1:] or train[0].dtype != test[0].dtype:
        raise SafeError(f"{path.name}: x_test and {found[0]} differ in shape or type; expected rows of the same kind")
    if len(test[0]) < (least := Policy.of("trusting").minimum_rows):
        raise SafeError(f"{path.name} holds {len(test[0])} test rows; expected at least {least}")
    return train, test


def _checked_pair(path: Path, arrays: dict[str, np.ndarray], x: str, y: str) -> Arrays:
    check_pair(arrays[x], arrays[y], f"{path.name}: {x} and {y}")
    if not len(arrays[y]):
        raise SafeError(f"{path.name}: {x} and {y} are empty; expected arrays with rows")
    as_features(arrays[x][:1])
    kind = arrays[y].dtype.kind
    if kind not in "biufU" or (kind == "f" and not np.isfinite(arrays[y]).all()):
        raise SafeError(
            f"{path.name}: {y} holds labels that are missing, infinite or of another type; expected words or numbers"
        )
    if arrays[x].dtype.kind == "f" and not np.isfinite(arrays[x]).all():
        raise SafeError(f"{path.name}: {x} holds missing or infinite values; remove those rows, or fill the values in")
    return arrays[x], arrays[y]


def read_features(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    """Read rows to predict for from a ``.npz`` file: x, if it has none x_test, if it has none x_train.

    Args:
        path: the file.

    Returns:
        The features (n, ...), and the labels (n,) if the file has them.

    Raises:
        SafeError: the file has no such array, or labels of other rows.
    """
    try:
        arrays = load_npz(path)
        x = next((name for name in ("x", "x_test", "x_train") if name in arrays), None)
        if x is None:
            raise SafeError(f"{path.name} holds {', '.join(arrays) or 'nothing'}; expected x, x_test or x_train")
        X, y = arrays[x], arrays.get(x.replace("x", "y", 1))
        if y is not None:
            check_pair(X, y, f"{path.name}: {x} and its labels")
    except DataError as error:
        raise SafeError(str(error)) from None
    if X.ndim < 2:
        raise SafeError(f"{path.name}: {x} has {X.ndim} dimension(s); expected two or more, (n, ...) features")
    return X, y
