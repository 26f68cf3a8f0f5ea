"""Reading ``.csv``, ``.parquet`` and ``.npz`` files. No error quotes a value of a row."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from v6_federated.base.errors import SafeError
from v6_federated.base.files import has_nul
from v6_federated.base.vantage6_api import DataError
from v6_federated.data import header
from v6_federated.data.files import check_pair, load_npz
from v6_federated.data.reading import as_features
from v6_federated.privacy.limits import PREFIX
from v6_federated.privacy.policy import Policy
from v6_workbench.simulation.mock_node import Database

Arrays = tuple[np.ndarray, np.ndarray]
SUFFIXES = (".csv", ".parquet", ".npz")


def read(path: Path) -> tuple[Database, Arrays | None]:
    """Read a file of labelled rows.

    Args:
        path: a ``.csv``, ``.parquet`` or ``.npz`` file.

    Returns:
        The rows, a table or arrays X (n, ...) and y (n,); and the test set of a ``.npz`` that has one.

    Raises:
        SafeError: the file does not exist, is empty, or cannot be read.
    """
    if path.is_dir():
        raise SafeError(f"{path} is a folder; expected a file ({', '.join(SUFFIXES)})")
    if path.stat().st_size == 0:
        raise SafeError(f"{path.name} is empty; expected a file with rows")
    suffix = path.suffix.lower()
    if suffix == ".npz":
        return _read_npz(path)
    if suffix not in SUFFIXES:
        ending = f"the ending {path.suffix}" if path.suffix else "no ending"
        raise SafeError(f"{path.name} has {ending}; expected .csv, .parquet or .npz")
    table = read_table(path)
    if table.empty or len(table.columns) < 2:
        raise SafeError(
            f"{path.name} holds {table.shape[0]} rows of {table.shape[1]} column(s); expected rows of two columns or "
            f"more{_hint(path)}"
        )
    return table, None


def read_table(path: Path) -> pd.DataFrame:
    """Read a ``.csv`` or ``.parquet`` file.

    Args:
        path: the file.

    Returns:
        The table, its columns named by texts.

    Raises:
        SafeError: the file cannot be read, or seems to have no header.
    """
    table = read_csv(path) if path.suffix.lower() == ".csv" else _read_parquet(path)
    table.columns = table.columns.astype(str)
    if table.shape[1] == 1 and (hint := _hint(path)):
        raise SafeError(f"{path.name} holds one column only{hint}")
    if not Policy.of_node().allow_numeric_names and (sign := header.missing(table)):
        raise SafeError(
            f"{path.name} seems to have no header: {sign}. Name each column in its first line; if these are their "
            f"names, set {PREFIX}ALLOW_NUMERIC_NAMES=1 before the command"
        )
    return table


def read_csv(path: Path, **options: Any) -> pd.DataFrame:
    """Read a ``.csv`` file.

    Args:
        path: the file.
        options: further arguments of ``pandas.read_csv``.

    Returns:
        The table.

    Raises:
        SafeError: the file is not a table in UTF-8, or its first line does not name each column once.
    """
    if has_nul(path):  # pandas would end a value there
        raise SafeError(f"{path.name} holds NUL bytes, as UTF-16 does; save it as CSV UTF-8")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # lines with more fields than the header
            header = pd.read_csv(path, header=None, nrows=1, dtype=str, keep_default_na=False)
            table = pd.read_csv(path, float_precision="round_trip", index_col=False, low_memory=False, **options)
    except pd.errors.ParserWarning:
        raise SafeError(
            f"some lines of {path.name} have more fields than its first line; expected as many{_hint(path)}"
        ) from None
    except UnicodeDecodeError:
        raise SafeError(f"{path.name} is not in UTF-8; save it as CSV UTF-8") from None
    except pd.errors.EmptyDataError:
        raise SafeError(f"{path.name} holds empty lines only; expected the names of the columns, then rows") from None
    except ValueError as error:  # pandas' parser errors are ValueErrors; their text may quote a row
        raise SafeError(
            f"{path.name} cannot be read as .csv ({type(error).__name__}); expected two quotes around each quoted "
            f"value, and as many values in each line as in the first{_hint(path)}"
        ) from None
    _check_header(path, header.iloc[0].tolist())
    return table


def _check_header(path: Path, names: list[str]) -> None:
    # pandas renames the second of two equal columns to NAME.1, which may also be the real name of a column
    if twice := [name for name in dict.fromkeys(names) if name and names.count(name) > 1]:
        found = "a number" if any(_is_number(name) for name in twice) else ", ".join(twice)  # it may be a patient's
        raise SafeError(f"the first line of {path.name} has {found} more than once; expected each column's name once")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _hint(path: Path) -> str:
    """What may help if the first line of a .csv looks as European versions of Excel write it."""
    if path.suffix.lower() != ".csv":
        return ""
    with path.open(encoding="utf-8", errors="replace") as stream:
        header = stream.readline()
    for separator, name in ((";", "semicolons"), ("\t", "tabs")):
        if header.count(separator) > header.count(","):
            return f"; its columns are separated by {name}: save it with commas between columns and decimal points"
    return ""


def _read_parquet(path: Path) -> pd.DataFrame:
    try:
        return pd.read_parquet(path)
    except ImportError:
        raise SafeError("reading .parquet needs pyarrow; install it with `pip install pyarrow`, or use .csv") from None
    except Exception as error:  # pyarrow's errors have no narrower common base; their text may quote a row
        raise SafeError(
            f"{path.name} cannot be read as .parquet ({type(error).__name__}); save it again, or as .csv"
        ) from None


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
