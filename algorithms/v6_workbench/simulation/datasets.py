"""Data for experiments: rows in memory, scikit-learn's tables, one file, or a file for each node."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from v6_federated.base.errors import SafeError
from v6_federated.base.tables import stem
from v6_federated.base.text import shortened
from v6_federated.data.source import Source
from v6_workbench.simulation import files, mock_node
from v6_workbench.simulation.mock_node import Database

EMBEDDED = ("breast-cancer", "diabetes", "digits", "wine")
FILE = "file of the node"  # name of the column that tells which file a row is from; no table has such a column


@dataclass(frozen=True, eq=False)
class Dataset:
    """The rows of all hospitals together.

    Attributes:
        name: the name in results and tables.
        rows: a table, or arrays X (n, ...) and y (n,).
        test: the test set, if the file has one: arrays X and y.
        file: the file that the table is from.
        hospitals: indices of the rows of each hospital by its name, if the rows came so. They are then dealt to nodes
            in this way, unless an experiment says otherwise.

    Raises:
        SafeError: the rows are no table, and no arrays of the same length.
    """

    name: str
    rows: Database
    test: tuple[np.ndarray, np.ndarray] | None = None
    file: Path | None = None
    hospitals: Mapping[str, np.ndarray] | None = None

    def __post_init__(self) -> None:
        mock_node.check(self.rows)

    def __repr__(self) -> str:
        """Names and numbers, and no row: a notebook shows it."""
        if isinstance(self.rows, pd.DataFrame):
            columns = f"{len(self.rows.columns)} columns: {shortened(self.rows.columns)}"
        else:
            columns = f"features of the shape {' x '.join(map(str, self.rows[0].shape[1:]))}"
        test = "" if self.test is None else f"; {len(self.test[1])} test rows"
        hospitals = "" if self.hospitals is None else f"; hospitals: {shortened(self.hospitals)}"
        return f"<Dataset: {self.name}; {len(self)} rows; {columns}{test}{hospitals}>"

    def __len__(self) -> int:
        return len(self.rows) if isinstance(self.rows, pd.DataFrame) else len(self.rows[0])

    def take(self, index: np.ndarray) -> Database:
        """Take some rows.

        Args:
            index: their indices (m,).

        Returns:
            A table of m rows, or arrays X (m, ...) and y (m,).
        """
        if isinstance(self.rows, pd.DataFrame):
            return self.rows.iloc[index].reset_index(drop=True)
        return self.rows[0][index], self.rows[1][index]


def load(data: Any, y: Any = None, *, name: str | None = None) -> Dataset:
    """Load rows: a table, arrays, a file, or the rows of each hospital.

    Args:
        data: one of

            - a DataFrame, or another table that has ``to_pandas`` (polars, pyarrow). Its label is the last column,
              unless the experiment names another one;
            - features X (n, ...), with their labels as ``y``;
            - the path of a table (``tables.KINDS``; ``rows.xlsx:SHEET`` if a workbook has several sheets) or a
              ``.npz`` file, or one of ``EMBEDDED``;
            - the rows of each hospital, ``{"north": ..., "south": ...}`` or a list: DataFrames with the same columns,
              or arrays (X, y).
        y: labels (n,), if ``data`` are features. If these are a DataFrame, they become its last column.
        name: the name in results and tables; None is the file's, or "rows".

    Returns:
        The dataset.

    Raises:
        SafeError: there are no such data, they cannot be read, or X and y differ in length. The text quotes no value.
    """
    if not isinstance(data, str | Path):
        return _in_memory(data, y, name or "rows")
    if y is not None:
        raise SafeError("y is given with the name of data that have a label; leave it out, or give X itself")
    dataset = _by_name(str(data))
    return dataset if name is None else replace(dataset, name=name)


def _in_memory(data: Any, y: Any, name: str) -> Dataset:
    if isinstance(data, Mapping):
        return _of_hospitals({str(key): rows for key, rows in data.items()}, name)
    if isinstance(data, list) and data and all(isinstance(part, pd.DataFrame | tuple) for part in data):
        return _of_hospitals({str(key): rows for key, rows in enumerate(data, start=1)}, name)
    if isinstance(data, tuple) and y is None:
        return _filled(Dataset(name, _arrays(data, name)))
    table = data.to_pandas() if hasattr(data, "to_pandas") else data
    if isinstance(table, pd.DataFrame):
        return _filled(Dataset(name, _table(table, y, name)))
    if y is None:
        raise SafeError(
            f"the data are a {type(data).__name__} without labels; expected load(table), load(X, y), or the path of a "
            "file"
        )
    return _filled(Dataset(name, _arrays((data, y), name)))


def _table(table: pd.DataFrame, y: Any, name: str) -> pd.DataFrame:
    """A table whose columns are named by texts, each once; labels that are given apart become the last column."""
    mock_node.check(table, name)
    table = table.copy(deep=False)
    table.columns = table.columns.astype(str)
    if y is not None:
        labels = np.asarray(y)
        if labels.shape != (len(table),):
            raise SafeError(
                f"{name}: X has {len(table)} rows, but y has the shape {labels.shape}; expected as many labels as rows"
            )
        label = str(getattr(y, "name", None) or "label")
        if label in table.columns:
            raise SafeError(f"{name}: X has a column {label} already, which y is called too; rename one of them")
        table[label] = labels
    if not table.columns.is_unique:
        twice = table.columns[table.columns.duplicated()].unique()
        raise SafeError(f"{name} has the column(s) {', '.join(twice)} more than once; expected each name once")
    return table


def _arrays(pair: Any, name: str) -> tuple[np.ndarray, np.ndarray]:
    mock_node.check(pair, name)
    return np.asarray(pair[0]), np.asarray(pair[1])


def _filled(dataset: Dataset) -> Dataset:
    rows = dataset.rows
    if not len(dataset) or (isinstance(rows, pd.DataFrame) and len(rows.columns) < 2):
        holds = f" of {len(rows.columns)} column(s)" if isinstance(rows, pd.DataFrame) else ""
        wide = " of two columns or more, one of them the label" if holds else ""
        raise SafeError(f"{dataset.name} holds {len(dataset)} rows{holds}; expected rows{wide}")
    return dataset


def _of_hospitals(parts: Mapping[str, Any], name: str) -> Dataset:
    """The rows of all hospitals, one hospital after the other."""
    if not parts:
        raise SafeError("there are no hospitals; expected the rows of at least one")
    each = {key: _in_memory(rows, None, f"the hospital {key}") for key, rows in parts.items()}
    (first, some), *others = each.items()
    for key, one in others:
        a, b = some.rows, one.rows
        if isinstance(a, pd.DataFrame) and isinstance(b, pd.DataFrame):
            if wrong := sorted({*a.columns} ^ {*b.columns}):
                raise SafeError(
                    f"the hospitals {first} and {key} do not both have the column(s) {', '.join(wrong)}; expected the "
                    "same columns everywhere"
                )
        elif isinstance(a, pd.DataFrame) or isinstance(b, pd.DataFrame) or a[0].shape[1:] != b[0].shape[1:]:
            raise SafeError(
                f"the rows of the hospitals {first} and {key} are of different kinds; expected the same kind"
            )
    ends = np.cumsum([len(one) for one in each.values()])
    hospitals = dict(zip(each, np.split(np.arange(ends[-1]), ends[:-1]), strict=True))
    return Dataset(name, pool([one.rows for one in each.values()]), hospitals=hospitals)


def pool(parts: Sequence[Database]) -> Database:
    """Put the rows of several nodes one after the other.

    Args:
        parts: tables with the same columns, or arrays.

    Returns:
        One table, its columns in the order of the first; or arrays X (n, ...) and y (n,).
    """
    tables = [part for part in parts if isinstance(part, pd.DataFrame)]
    if tables:
        return pd.concat(tables, ignore_index=True)
    return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])


def _by_name(data: str) -> Dataset:
    """A table by its name, or a file by its path."""
    if data in EMBEDDED:
        return Dataset(data, _embedded(data))
    path, sheet = files.parted(data)
    if not path.exists():
        raise SafeError(f"no data {data!r}; expected {', '.join(EMBEDDED)}, or a path to a file: {files.EXPECTED}")
    rows, test = files.read(path, sheet)
    return Dataset(_name_of(data), rows, test, path if isinstance(rows, pd.DataFrame) else None)


def _name_of(data: str) -> str:
    path, sheet = files.parted(data)
    return stem(path) if sheet is None else f"{stem(path)}-{sheet}"


def load_nodes(
    paths: Sequence[str],
    columns: Sequence[str] | None,
    label: str | None,
    labelled: bool = True,
    excluded: Sequence[str] = (),
    named: Sequence[str] = (),
) -> Dataset:
    """Load a table for each node, as one table whose column ``FILE`` names the node by its file.

    Args:
        paths: a table (``tables.KINDS``) for each node.
        columns: the features to use; None uses all columns, which must then be the same in all files.
        label: the label's column; None is the last.
        labelled: whether a label is used.
        excluded: columns that are left out.
        named: columns that settings name, such as ``event``: they are used, whether they are features or not.

    Returns:
        The dataset, its nodes in alphabetical order.

    Raises:
        SafeError: the files do not have the same columns or have the same name.
    """
    tables = _tables(paths)
    if absent := [c for c in excluded if all(c not in table for table in tables.values())]:
        raise SafeError(f"--exclude {', '.join(absent)}: no file has such a column; name columns that one has")
    if label in excluded:
        raise SafeError(f"--exclude {label}: this is the label; name another column in one of them")
    left_out = [c for c in excluded if c not in named]
    tables = {name: table.drop(columns=left_out, errors="ignore") for name, table in tables.items()}
    wanted = _wanted(tables, columns, label, labelled, named)
    first = next(iter(tables))
    needed = {**dict.fromkeys(named, "a setting (--set)"), **({label: "--label"} if label else {})}
    for name, table in tables.items():
        if (column := next((c for c in needed if c not in table), None)) is not None:
            raise SafeError(
                f"{name} has no column {column!r}, which {needed[column]} names; name a column that all files have, or "
                "leave this file out"
            )
        lacking = [c for c in wanted if c not in table]
        more = [c for c in table if c not in wanted and columns is None]
        if lacking or more:
            differs = [f"{verb} {_quoted(c)}" for verb, c in (("lacks", lacking), ("also has", more)) if c]
            raise SafeError(
                f"{name} {' and '.join(differs)}, unlike {first}; expected the same columns in all files; name those "
                "that all have with --features, or leave the others out with --exclude"
            )
    whole = pd.concat([table[wanted].assign(**{FILE: name}) for name, table in tables.items()], ignore_index=True)
    return Dataset(" ".join(tables), whole[[FILE, *wanted]])


def _tables(paths: Sequence[str]) -> dict[str, pd.DataFrame]:
    """The tables by the names of their files, in the order in which nodes are numbered."""
    tables: dict[str, pd.DataFrame] = {}
    for path in paths:
        rows, name = load(path).rows, _name_of(path)
        if not isinstance(rows, pd.DataFrame):
            raise SafeError(f"{path} holds arrays; expected tables (.csv, .xlsx) if --data is given more than once")
        if name in tables:
            raise SafeError(f"two files are called {name}; each file is a node, so expected different names")
        tables[name] = rows
    return dict(sorted(tables.items()))


def _wanted(
    tables: dict[str, pd.DataFrame],
    columns: Sequence[str] | None,
    label: str | None,
    labelled: bool,
    more: Sequence[str] = (),
) -> list[str]:
    """The columns that are used of every table, the label last."""
    first, *others = tables
    asked = [*(columns or []), *more, *([label] if label else [])]
    if absent := [c for c in asked if all(c not in table for table in tables.values())]:
        raise SafeError(f"no file has a column {_quoted(absent)}; expected some of {_quoted(tables[first].columns)}")
    odd = [k for k in others if tables[k].columns[-1] != tables[first].columns[-1]]
    if labelled and label is None and odd:
        raise SafeError(f"the last columns of {first} and {odd[0]} differ; name the label's column with --label")
    if columns is None:
        return [*tables[first].columns]
    last = [label or tables[first].columns[-1]] if labelled or label else []
    wanted = [c for c in (*columns, *more) if c not in last]
    return [*dict.fromkeys([*wanted, *last])]


def _quoted(names: Any) -> str:
    return ", ".join(map(repr, names))


def load_new(data: str) -> Source:
    """Load rows to predict for; they need no label.

    Args:
        data: one of ``EMBEDDED``, or the path of a file; of a ``.npz`` the array x, x_test or x_train.

    Returns:
        The rows.

    Raises:
        SafeError: there are no such data, or they cannot be read.
    """
    path, sheet = files.parted(data)
    if data not in EMBEDDED and path.is_file():
        if path.suffix.lower() == ".npz":
            X, y = files.read_features(path)
            return Source(X=X, y=y)
        if files.is_table(path) and path.stat().st_size:  # one column is enough
            return Source(table=files.read_table(path, sheet))
    rows = load(data).rows
    return Source(table=rows) if isinstance(rows, pd.DataFrame) else Source(X=rows[0], y=rows[1])


def as_written(data: str | Path, columns: pd.DataFrame) -> pd.DataFrame:
    """Return columns with the text that their text file has: 007, 1E2 and NA stay as they are.

    Args:
        data: the name or file that the table was read from.
        columns: columns of that table.

    Returns:
        The columns as text, in which only empty cells are missing; unchanged if the file is not a text file.
    """
    text = files.as_text(Path(data), [*map(str, columns)])
    return columns if text is None else text


def _embedded(name: str) -> pd.DataFrame:
    from sklearn import datasets  # slow to import, and needed only here

    loaders: dict[str, Any] = {
        "breast-cancer": datasets.load_breast_cancer,
        "diabetes": datasets.load_diabetes,
        "digits": datasets.load_digits,
        "wine": datasets.load_wine,
    }
    table = loaders[name](as_frame=True).frame
    if name == "digits":
        table[table.columns[:-1]] /= 16  # pixels from 0..16 to 0..1, as 8-bit pixels are
    return table
