"""Data for experiments: scikit-learn's tables, one file, or a file for each node."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from v6_federated.base.errors import SafeError
from v6_federated.base.tables import stem
from v6_federated.data.source import Source
from v6_workbench.simulation import files
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
    """

    name: str
    rows: Database
    test: tuple[np.ndarray, np.ndarray] | None = None
    file: Path | None = None

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


def load(data: str) -> Dataset:
    """Load a table by its name, or a file by its path.

    Args:
        data: one of ``EMBEDDED``, or the path of a table (``tables.KINDS``) or a ``.npz`` file.

    Returns:
        The dataset.

    Raises:
        SafeError: there are no such data, or they cannot be read.
    """
    if data in EMBEDDED:
        return Dataset(data, _embedded(data))
    path = Path(data)
    if not path.exists():
        raise SafeError(f"no data {data!r}; expected {', '.join(EMBEDDED)}, or a path to a file: {files.EXPECTED}")
    rows, test = files.read(path)
    return Dataset(stem(path), rows, test, path if isinstance(rows, pd.DataFrame) else None)


def load_nodes(
    paths: Sequence[str],
    columns: Sequence[str] | None,
    label: str | None,
    labelled: bool = True,
    excluded: Sequence[str] = (),
) -> Dataset:
    """Load a table for each node, as one table whose column ``FILE`` names the node by its file.

    Args:
        paths: a table (``tables.KINDS``) for each node.
        columns: the features to use; None uses all columns, which must then be the same in all files.
        label: the label's column; None is the last.
        labelled: whether a label is used.
        excluded: columns that are left out.

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
    tables = {name: table.drop(columns=excluded, errors="ignore") for name, table in tables.items()}
    wanted = _wanted(tables, columns, label, labelled)
    first = next(iter(tables))
    for name, table in tables.items():
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
        rows, name = load(path).rows, stem(Path(path))
        if not isinstance(rows, pd.DataFrame):
            raise SafeError(f"{path} holds arrays; expected tables (.csv, .xlsx) if --data is given more than once")
        if name in tables:
            raise SafeError(f"two files are called {name}; each file is a node, so expected different names")
        tables[name] = rows
    return dict(sorted(tables.items()))


def _wanted(
    tables: dict[str, pd.DataFrame], columns: Sequence[str] | None, label: str | None, labelled: bool
) -> list[str]:
    """The columns that are used of every table, the label last."""
    first, *others = tables
    named = [*(columns or []), *([label] if label else [])]
    if absent := [c for c in named if all(c not in table for table in tables.values())]:
        raise SafeError(f"no file has a column {_quoted(absent)}; expected some of {_quoted(tables[first].columns)}")
    odd = [k for k in others if tables[k].columns[-1] != tables[first].columns[-1]]
    if labelled and label is None and odd:
        raise SafeError(f"the last columns of {first} and {odd[0]} differ; name the label's column with --label")
    if columns is None:
        return [*tables[first].columns]
    last = [label or tables[first].columns[-1]] if labelled or label else []
    return [*dict.fromkeys([*columns, *last])]


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
    path = Path(data)
    if data not in EMBEDDED and path.is_file():
        if path.suffix.lower() == ".npz":
            X, y = files.read_features(path)
            return Source(X=X, y=y)
        if files.is_table(path) and path.stat().st_size:  # one column is enough
            return Source(table=files.read_table(path))
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
