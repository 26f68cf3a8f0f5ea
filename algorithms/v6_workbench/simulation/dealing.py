"""Dealing the rows of a dataset to nodes, once or fold by fold."""

import numpy as np
import pandas as pd

from v6_federated.base.errors import SafeError
from v6_federated.base.randomness import generator
from v6_workbench.simulation import partitions
from v6_workbench.simulation.data_checks import labels
from v6_workbench.simulation.datasets import Dataset, as_written
from v6_workbench.simulation.mock_node import Database
from v6_workbench.simulation.partitions import Partition


def deal(
    dataset: Dataset, partition: Partition, nodes: int | None, seed: int, label: str | None
) -> dict[str, Database]:
    """Deal the rows to nodes.

    Args:
        dataset: the rows.
        partition: how they are dealt, see ``partitions``.
        nodes: number of nodes; None is 5, or as many as the partition's column names.
        seed: seed of the partition.
        label: the label's column; None is the last.

    Returns:
        The rows of each node by the node's name: 1, 2, ... or the values of the partition's column.

    Raises:
        SafeError: the rows cannot be dealt in this way.
    """
    table, named = _dealt(with_names(dataset, partition), partition, nodes, seed, label)
    return {name: table.take(index) for name, index in named.items()}


def deal_fold(
    dataset: Dataset, partition: Partition, nodes: int | None, seed: int, label: str | None, fold: int, folds: int
) -> tuple[dict[str, Database], Database]:
    """Deal the rows for one fold of a cross-validation.

    All rows, those of a test set too, are shuffled and cut into folds, and each fold is dealt to the nodes in the same
    way: if a partition gives a node shards, these are at the same positions in each fold (Nilsson et al. 2018, section
    4.2). Up to ``folds`` - 1 rows are left out, so that the folds are equal.

    Args:
        dataset: see ``deal``.
        partition: see ``deal``.
        nodes: see ``deal``.
        seed: see ``deal``.
        label: see ``deal``.
        fold: number of the fold to test on, from 0.
        folds: number of folds.

    Returns:
        The rows of each node outside the fold, by the node's name; and the fold's rows of all nodes.

    Raises:
        SafeError: there are too few rows, or they cannot be dealt in this way.
    """
    whole = with_names(_with_test(dataset), partition)
    order = generator(seed, "folds").permutation(len(whole))
    size = len(order) // folds
    if size < 1:
        raise SafeError(f"{len(whole)} rows are too few for {folds} folds; use --folds {len(whole)} or fewer")
    parts: dict[str, list[np.ndarray]] = {}
    for f in range(folds):
        rows = np.sort(order[f * size : (f + 1) * size])
        table, named = _dealt(
            Dataset(whole.name, whole.take(rows)), _within(partition, rows, len(whole)), nodes, seed, label
        )
        for name, index in named.items():
            parts.setdefault(name, [np.empty(0, dtype=np.int64)] * folds)[f] = rows[index]
    table = _without_column(whole, partition)
    training = {n: table.take(np.concatenate([p for f, p in enumerate(own) if f != fold])) for n, own in parts.items()}
    return training, table.take(np.concatenate([own[fold] for own in parts.values()]))


def _within(partition: Partition, rows: np.ndarray, n: int) -> Partition:
    """Deal the rows of a fold as all rows are dealt, if the partition says where each row goes."""
    if isinstance(partition, str) or callable(partition):
        return partition
    parts = partitions.own(partition, np.empty(n), None, 0)
    return {name: np.flatnonzero(np.isin(rows, part)) for name, part in parts.items()}


def with_names(dataset: Dataset, partition: Partition) -> Dataset:
    """Read the column that names the nodes as text, as its file has it: 01 and 1 are two hospitals.

    Args:
        dataset: the rows.
        partition: how they are dealt; other partitions than ``column:NAME`` change nothing.

    Returns:
        The dataset with that column as text.
    """
    column, table = partitions.column_of(partition), dataset.rows
    if not column or dataset.file is None or not isinstance(table, pd.DataFrame) or column not in table.columns:
        return dataset
    table = table.copy(deep=False)
    table[column] = as_written(dataset.file, table[[column]])[column]
    return Dataset(dataset.name, table)


def _dealt(
    dataset: Dataset, partition: Partition, nodes: int | None, seed: int, label: str | None
) -> tuple[Dataset, dict[str, np.ndarray]]:
    """The table without the nodes' column, if there is one, and the indices of each node's rows."""
    if not isinstance(partition, str):
        return dataset, partitions.own(partition, labels(dataset, label), nodes, seed)
    partitions.check(partition)
    if column := partitions.column_of(partition):
        check_column(dataset, column)
        assert isinstance(dataset.rows, pd.DataFrame)
        if dataset.rows[column].isna().any():
            raise SafeError(f"the column {column} has missing values; expected a node's name in every row")
        named = partitions.by_column(dataset.rows[column].to_numpy())
        if nodes is not None and nodes != len(named):
            raise SafeError(f"--nodes is {nodes}, but the column {column} names {len(named)} nodes; remove --nodes")
        return _without_column(dataset, partition), named
    if nodes is None:
        nodes = 5
    if nodes > len(dataset):
        raise SafeError(f"{len(dataset)} rows are too few for {nodes} nodes; use --nodes {len(dataset)} or fewer")
    parts = partitions.partition(partition, labels(dataset, label), nodes, seed)
    return dataset, {str(k + 1): index for k, index in enumerate(parts)}


def check_column(dataset: Dataset, column: str) -> None:
    """Raise SafeError if the dataset has no column of this name to tell the nodes apart by."""
    if not isinstance(dataset.rows, pd.DataFrame):
        raise SafeError(f"no column {column!r}: {dataset.name} holds arrays; expected another partition, or a table")
    if column not in dataset.rows.columns:
        names = ", ".join(repr(str(c)) for c in dataset.rows.columns)  # quoted: a space at an end is visible
        raise SafeError(f"no column {column!r} to tell the nodes apart; expected one of {names}")


def _without_column(dataset: Dataset, partition: Partition) -> Dataset:
    column = partitions.column_of(partition)
    if not column or not isinstance(dataset.rows, pd.DataFrame):
        return dataset
    return Dataset(dataset.name, dataset.rows.drop(columns=column))


def _with_test(dataset: Dataset) -> Dataset:
    if dataset.test is None:
        return dataset
    assert isinstance(dataset.rows, tuple)
    (X, y), (X_test, y_test) = dataset.rows, dataset.test
    return Dataset(dataset.name, (np.concatenate([X, X_test]), np.concatenate([y, y_test])))
