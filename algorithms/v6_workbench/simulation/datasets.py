"""Data for experiments: scikit-learn's tables, ``.csv``, ``.parquet`` and ``.npz`` files, dealt to nodes."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from v6_federated.base.errors import SafeError
from v6_federated.base.randomness import generator
from v6_federated.base.vantage6_api import DataError
from v6_federated.data.source import Source, as_features, check_pair, load_npz
from v6_federated.messages.job import DataSpec
from v6_federated.privacy.policy import Policy
from v6_workbench.simulation import partitions

EMBEDDED = ("breast-cancer", "diabetes", "digits", "wine")
Database = pd.DataFrame | tuple[np.ndarray, np.ndarray]


FILE = "file of the node"  # a column that no table has of its own


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows of all hospitals together: a table, or arrays; with a test set where the file has one; a table's file."""

    name: str
    rows: Database
    test: tuple[np.ndarray, np.ndarray] | None = None
    file: Path | None = None

    def __len__(self) -> int:
        return len(self.rows) if isinstance(self.rows, pd.DataFrame) else len(self.rows[0])

    def take(self, index: np.ndarray) -> Database:
        """Some of the rows."""
        if isinstance(self.rows, pd.DataFrame):
            return self.rows.iloc[index].reset_index(drop=True)
        return self.rows[0][index], self.rows[1][index]


def load(data: str) -> Dataset:
    """An embedded table by name, or a file by its path. Raises SafeError."""
    if data in EMBEDDED:
        return Dataset(data, _embedded(data))
    path = Path(data)
    if not path.exists():
        raise SafeError(f"no data {data!r}; expected {', '.join(EMBEDDED)}, or a path to .csv, .parquet or .npz")
    if path.is_dir():
        raise SafeError(f"{data} is a folder; expected a file .csv, .parquet or .npz")
    if path.stat().st_size == 0:
        raise SafeError(f"{path.name} is empty; expected rows")
    readers = {".csv": _read_csv, ".parquet": _read_parquet, ".npz": _read_npz}
    suffix = path.suffix.lower()
    if suffix not in readers:
        raise SafeError(f"{path.name} ends in {path.suffix or 'nothing'!r}; expected .csv, .parquet or .npz")
    return readers[suffix](path)


def load_nodes(
    files: Sequence[str], columns: Sequence[str] | None, label: str | None, labelled: bool = True
) -> Dataset:
    """Tables of a node each, as one whose column ``FILE`` names the node by its file. Raises SafeError.

    ``columns``: the features that are used of them; None: all, which then must be the same. ``labelled``: whether a
    label is used, the last column unless ``label`` names it.
    """
    tables: dict[str, pd.DataFrame] = {}
    for file in files:
        rows, name = load(file).rows, Path(file).stem
        if not isinstance(rows, pd.DataFrame):
            raise SafeError(
                f"{file} holds arrays; expected tables (.csv, .parquet), where --data is given more than once"
            )
        if name in tables:
            raise SafeError(f"two files are called {name}, as a node each would be; expected names of their own")
        tables[name] = rows
    tables = dict(sorted(tables.items()))  # as nodes are numbered, in whatever order the files are given
    first, *others = tables
    named = [*(columns or []), *([label] if label else [])]
    if absent := [c for c in named if all(c not in table for table in tables.values())]:
        there = ", ".join(map(repr, tables[first].columns))
        raise SafeError(f"no column {', '.join(map(repr, absent))} in any file; expected some of {there}")
    odd = [k for k in others if tables[k].columns[-1] != tables[first].columns[-1]]
    if labelled and label is None and odd:
        raise SafeError(f"{first} and {odd[0]} have another last column; expected --label, which names the label's")
    wanted = [*tables[first].columns]
    if columns is not None:
        last = [label or wanted[-1]] if labelled or label else []
        wanted = [*dict.fromkeys([*columns, *last])]
    for name, table in tables.items():
        lacking = [c for c in wanted if c not in table]
        more = [c for c in table if c not in wanted and columns is None]
        if lacking or more:
            told = [f"{word} {', '.join(map(repr, c))}" for word, c in (("lacks", lacking), ("has besides", more)) if c]
            raise SafeError(
                f"{name} {' and '.join(told)}, unlike {first}; expected the same columns in all files, or --features "
                "that all have"
            )
    whole = pd.concat([table[wanted].assign(**{FILE: name}) for name, table in tables.items()], ignore_index=True)
    return Dataset(" ".join(tables), whole[[FILE, *wanted]])


def deal(dataset: Dataset, partition: str, nodes: int | None, seed: int, label: str | None) -> dict[str, Database]:
    """The rows of each node, by the node's name: 1, 2, ... or the column's values. Raises SafeError."""
    table, named = _dealt(with_names(dataset, partition), partition, nodes, seed, label)
    return {name: table.take(index) for name, index in named.items()}


def deal_fold(
    dataset: Dataset, partition: str, nodes: int | None, seed: int, label: str | None, fold: int, folds: int
) -> tuple[dict[str, Database], Database]:
    """The rows of each node outside fold number ``fold`` (from 0), and the fold's rows of all nodes, to test on.

    All rows, those of a test set too, are shuffled and cut into folds, and each fold is dealt to the nodes alike: where
    a partition gives a node shards, those at the same positions of each fold (Nilsson et al. 2018, section 4.2). Up to
    ``folds`` - 1 rows are left out, so that the folds are equal. Raises SafeError.
    """
    whole = with_names(_with_test(dataset), partition)
    order = generator(seed, "folds").permutation(len(whole))
    size = len(order) // folds
    if size < 1:
        raise SafeError(f"{folds} folds of {len(whole)} rows; expected fewer folds")
    parts: dict[str, list[np.ndarray]] = {}
    for f in range(folds):
        rows = np.sort(order[f * size : (f + 1) * size])
        table, named = _dealt(Dataset(whole.name, whole.take(rows)), partition, nodes, seed, label)
        for name, index in named.items():
            parts.setdefault(name, [np.empty(0, dtype=np.int64)] * folds)[f] = rows[index]
    table = _without_column(whole, partition)
    training = {n: table.take(np.concatenate([p for f, p in enumerate(own) if f != fold])) for n, own in parts.items()}
    return training, table.take(np.concatenate([own[fold] for own in parts.values()]))


def _dealt(
    dataset: Dataset, partition: str, nodes: int | None, seed: int, label: str | None
) -> tuple[Dataset, dict[str, np.ndarray]]:
    """The table without the nodes' column, if there is one, and the indices of each node's rows."""
    partitions.check(partition)
    kind, _, column = partition.partition(":")
    if kind == "column":
        if not isinstance(dataset.rows, pd.DataFrame) or column not in dataset.rows.columns:
            names = map(str, dataset.rows.columns) if isinstance(dataset.rows, pd.DataFrame) else ()
            there = ", ".join(map(repr, names)) or "a .csv"
            raise SafeError(f"no column {column!r} to tell the nodes by; expected one of {there}")
        if dataset.rows[column].isna().any():
            raise SafeError(f"missing values in the column {column}; expected a node's name in every row")
        named = partitions.by_column(dataset.rows[column].to_numpy())
        if nodes is not None and nodes != len(named):
            raise SafeError(f"nodes={nodes}, but the column {column} names {len(named)}; leave the number out")
        return _without_column(dataset, partition), named
    if nodes is None:
        nodes = 5
    if nodes > len(dataset):
        raise SafeError(f"nodes={nodes} are more than the {len(dataset)} rows; expected at most one node a row")
    parts = partitions.partition(partition, labels(dataset, label), nodes, seed)
    return dataset, {str(k + 1): index for k, index in enumerate(parts)}


def with_names(dataset: Dataset, partition: str) -> Dataset:
    """With the column that names the nodes as its file has it: 01 and 1 are two hospitals."""
    kind, _, column = partition.partition(":")
    table = dataset.rows
    if kind != "column" or dataset.file is None or not isinstance(table, pd.DataFrame) or column not in table.columns:
        return dataset
    table = table.copy(deep=False)
    table[column] = as_written(dataset.file, table[[column]])[column]
    return Dataset(dataset.name, table)


def _without_column(dataset: Dataset, partition: str) -> Dataset:
    kind, _, column = partition.partition(":")
    if kind != "column" or not isinstance(dataset.rows, pd.DataFrame):
        return dataset
    return Dataset(dataset.name, dataset.rows.drop(columns=column))


def _with_test(dataset: Dataset) -> Dataset:
    if dataset.test is None:
        return dataset
    assert isinstance(dataset.rows, tuple)
    (X, y), (X_test, y_test) = dataset.rows, dataset.test
    return Dataset(dataset.name, (np.concatenate([X, X_test]), np.concatenate([y, y_test])))


def labels(dataset: Dataset, label: str | None) -> np.ndarray:
    """The label of every row. Raises SafeError."""
    if not isinstance(dataset.rows, pd.DataFrame):
        return dataset.rows[1]
    column = dataset.rows.columns[-1] if label is None else label
    if column not in dataset.rows.columns:
        there = ", ".join(repr(str(c)) for c in dataset.rows.columns)  # a space at an end is seen
        raise SafeError(f"no label column {label!r}; expected one of {there}")
    return dataset.rows[column].to_numpy()


def check(
    dataset: Dataset,
    label: str | None,
    features: Sequence[str] | None,
    ignored: str | None = None,
    *,
    steps: bool = False,
    supervised: bool = True,
    regression: bool = False,
) -> None:
    """Raise SafeError for absent columns, missing values, and labels that are no classes, of a ``regression`` no
    numbers; names columns only.

    Where ``steps`` follow, features may be words or missing; where the method is not ``supervised``, any label will do.
    """
    if not isinstance(dataset.rows, pd.DataFrame):
        if label is not None or features is not None:
            raise SafeError("--label and --features name columns, and a .npz has none; leave them out")
        if supervised:
            _check_label(_labels_of(dataset.rows, regression), regression)
            check_test(dataset, regression)
        return
    table = dataset.rows.drop(columns=ignored) if ignored else dataset.rows
    labels(Dataset(dataset.name, table), label)
    try:
        source = Source(table=table)
        spec = DataSpec(label=label, features=features, supervised=supervised, regression=regression)
        source.columns(spec)
        if not steps:
            source.rows(spec)
        if supervised:
            _check_label(source.labels(spec), regression)
    except DataError as error:
        raise SafeError(str(error)) from None


def check_test(dataset: Dataset, regression: bool) -> None:
    """Raise SafeError if the test set has a class that no other row has."""
    if dataset.test is not None and not regression:
        y, y_test = (_labels_of(pair, regression) for pair in (dataset.rows, dataset.test))
        if not np.isin(y_test, y).all():
            raise SafeError(f"{dataset.name}: y_test holds labels that y_train does not; expected none")


def _labels_of(rows: Any, regression: bool) -> np.ndarray:
    try:
        return Source(X=rows[0], y=rows[1]).labels(DataSpec(regression=regression))
    except DataError as error:
        raise SafeError(str(error)) from None


def _check_label(y: np.ndarray, regression: bool) -> None:
    count = len(np.unique(y))
    if regression:
        if y.dtype.kind not in "iuf" or count < 2:
            raise SafeError("the label is no number that varies; expected one, as objective=regression predicts it")
    elif not 2 <= count <= Policy.maximum_classes:
        number = ", or for a number to predict gbdt with --set objective=regression" if y.dtype.kind in "iuf" else ""
        raise SafeError(f"the label has {count} value(s); expected from 2 to {Policy.maximum_classes} classes{number}")


def load_new(data: str) -> Source:
    """Rows to predict for, their label not needed: an embedded table, a file; of ``.npz`` x, else x_test, else x_train.

    Raises SafeError.
    """
    path = Path(data)
    if data not in EMBEDDED and path.suffix.lower() == ".npz" and path.is_file():
        try:
            return _new_arrays(path)
        except DataError as error:
            raise SafeError(str(error)) from None
    if data not in EMBEDDED and path.suffix.lower() == ".csv" and path.is_file() and path.stat().st_size:
        return Source(table=_parse_csv(path))
    rows = load(data).rows
    return Source(table=rows) if isinstance(rows, pd.DataFrame) else Source(X=rows[0], y=rows[1])


def _new_arrays(path: Path) -> Source:
    arrays = load_npz(path)
    x = next((name for name in ("x", "x_test", "x_train") if name in arrays), None)
    if x is None:
        raise DataError(f"{path.name} holds {', '.join(arrays) or 'nothing'}; expected x, x_test or x_train")
    X, y = arrays[x], arrays.get(x.replace("x", "y", 1))
    if y is not None:
        check_pair(X, y, f"{path.name}: {x} and its labels")
    elif X.ndim < 2:
        raise DataError(f"{path.name}: {x} is no table; expected (n, ...) features")
    return Source(X=X, y=y)


def as_written(data: str | Path, columns: pd.DataFrame) -> pd.DataFrame:
    """Columns of the table read from ``data``; where that is a .csv their text, 007 and 1E2 and NA as they stand there,
    and only what is empty is missing."""
    path = Path(data)
    if path.suffix.lower() != ".csv":
        return columns
    text = _parse_csv(path, usecols=list(columns), dtype=str, keep_default_na=False, na_values=[""])
    return text[list(columns)]  # usecols keeps the order of the file


def _embedded(name: str) -> pd.DataFrame:
    from sklearn import datasets  # slow to import, and needed here only

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


def _read_csv(path: Path) -> Dataset:
    return _table(path, _parse_csv(path))


def _parse_csv(path: Path, **options: Any) -> pd.DataFrame:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # lines with more fields than the header
            header = pd.read_csv(path, header=None, nrows=1, dtype=str, keep_default_na=False)
            table = pd.read_csv(path, float_precision="round_trip", index_col=False, low_memory=False, **options)
    except pd.errors.ParserWarning:
        raise SafeError(
            f"lines of {path.name} have more fields than its header; expected as many{_dialect(path)}"
        ) from None
    except UnicodeDecodeError:
        raise SafeError(f"{path.name} is not in UTF-8; expected it saved as CSV UTF-8") from None
    except ValueError as error:  # pandas' parser errors are ValueErrors; their text may quote a row
        raise SafeError(f"{path.name} cannot be read as .csv ({type(error).__name__}){_dialect(path)}") from None
    # pandas calls the second of two columns NAME.1, as another column may honestly be called
    names = header.iloc[0].tolist()
    if twice := [name for name in dict.fromkeys(names) if name and names.count(name) > 1]:
        told = "a number" if any(_is_number(name) for name in twice) else ", ".join(twice)  # which may be a patient's
        raise SafeError(f"the first line of {path.name} has {told} more than once; expected each column's name once")
    numbers = [name for name in names if name and _is_number(name)]
    if 2 * len(numbers) > len(names) and any(not name.isdecimal() for name in numbers):
        raise SafeError(f"most columns of {path.name} are called by numbers; expected their names in its first line")
    return table


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _dialect(path: Path) -> str:
    """What may help, where the header of a .csv looks as a European Excel writes it."""
    with path.open(encoding="utf-8", errors="replace") as stream:
        header = stream.readline()
    semicolons = path.suffix.lower() == ".csv" and header.count(";") > header.count(",")
    return (
        "; its header has semicolons: save it with commas between columns and points in numbers" if semicolons else ""
    )


def _read_parquet(path: Path) -> Dataset:
    try:
        table = pd.read_parquet(path)
    except ImportError:
        raise SafeError("reading .parquet needs pyarrow, which is not installed; install pyarrow or use .csv") from None
    except Exception as error:  # pyarrow's errors have no common base but this; their text may quote a row
        raise SafeError(f"{path.name} cannot be read as .parquet ({type(error).__name__})") from None
    return _table(path, table)


def _table(path: Path, table: pd.DataFrame) -> Dataset:
    table.columns = table.columns.astype(str)
    if table.empty or len(table.columns) < 2:
        raise SafeError(
            f"{path.name} holds {table.shape[0]} rows of {table.shape[1]} column(s); expected rows of two or more"
            + _dialect(path)
        )
    return Dataset(path.stem, table, file=path)


def _check_test(name: str, arrays: dict[str, np.ndarray]) -> None:
    train, test = arrays["x_train"], arrays["x_test"]
    if train.shape[1:] != test.shape[1:] or train.dtype != test.dtype:
        raise SafeError(f"{name}: x_test and x_train differ in shape or type; expected rows of one kind")
    if len(test) < Policy.minimum_rows:
        raise SafeError(f"{name} holds {len(test)} test rows; expected at least {Policy.minimum_rows}")


def _read_npz(path: Path) -> Dataset:
    try:
        arrays = load_npz(path)
        found = next((names for names in (("x_train", "y_train"), ("x", "y")) if set(names) <= set(arrays)), None)
        if found is None:
            raise SafeError(
                f"{path.name} holds {', '.join(arrays) or 'nothing'}; expected x_train, y_train, x_test, y_test"
            )
        pairs = [found] + [("x_test", "y_test")] * ({"x_test", "y_test"} <= set(arrays))
        for x, y in pairs:
            check_pair(arrays[x], arrays[y], f"{path.name}: {x} and {y}")
            if not len(arrays[y]):
                raise SafeError(f"{path.name}: {x} and {y} hold no rows; expected some")
            as_features(arrays[x][:1])
            kind = arrays[y].dtype.kind
            if kind not in "biufU" or (kind == "f" and not np.isfinite(arrays[y]).all()):
                raise SafeError(
                    f"labels in {y} of {path.name} that are missing, infinite or of another kind; expected words or "
                    "numbers"
                )
            if arrays[x].dtype.kind == "f" and not np.isfinite(arrays[x]).all():
                raise SafeError(f"missing or infinite values in {x} of {path.name}; expected none")
        (x, y), test = pairs[0], pairs[1:]
        if test:
            _check_test(path.name, arrays)
        return Dataset(path.stem, (arrays[x], arrays[y]), (arrays[test[0][0]], arrays[test[0][1]]) if test else None)
    except DataError as error:
        raise SafeError(str(error)) from None
