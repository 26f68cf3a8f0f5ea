"""Experiments on mock nodes: a method, data dealt to nodes, settings; and the baselines to compare with."""

import functools
import hashlib
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from v6_federated.base.errors import Interrupted, SafeError
from v6_federated.data import source
from v6_federated.privacy.policy import Policy
from v6_workbench import registry
from v6_workbench.simulation import datasets
from v6_workbench.simulation.datasets import Database, Dataset
from v6_workbench.simulation.mock import CallOutcomes, MockNetwork, node_speeds

OnRound = Callable[[dict[str, Any]], None]
SMALL = 5_000_000  # numbers in a table below which starting worker processes costs more than it saves


@dataclass(frozen=True)
class Experiment:
    """What to train on which data, dealt how.

    Attributes:
        dataset: all rows.
        nodes: number of nodes; None is 5, or as many as the column of the partition names.
        partition: how rows are dealt, see ``partitions``.
        seed: of everything in the job.
        partition_seed: of the way in which rows are dealt.
        label, features, holdout: as in ``Common``; a dataset with a test set holds out nothing.
        processes: worker processes; None is one for small data, else one a processor.
        environment: of every node, its operator's policy. Mock nodes hold the developer's own rows, so by default one
            organization is enough for a job; all other limits are those of a real node.
        slowest: how many times slower than the fastest node the slowest is, on simulated time; None is real time.
        outcomes: what becomes of each call, instead; see ``mock.CallOutcome``.
        fold: (f, k): the rows of fold f (from 0) of k are the test set, see ``datasets.deal_fold``.
    """

    dataset: Dataset
    nodes: int | None = None
    partition: str = "iid"
    seed: int = 0
    partition_seed: int = 0
    label: str | None = None
    features: Sequence[str] | None = None
    holdout: float = 0.2
    processes: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    slowest: float | None = None
    outcomes: CallOutcomes | None = None
    fold: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.dataset, Dataset):
            kind = type(self.dataset).__name__
            raise SafeError(f'the dataset is of type {kind}; expected load("rows.csv"), or Dataset("name", table)')

    def deal(self) -> dict[int, Database]:
        """The rows of organizations 1, 2, ..."""
        return dict(enumerate(self.named().values(), start=1))

    def named(self) -> dict[str, Database]:
        """The rows of each node by its name: 1, 2, ... or the values of the partition's column."""
        return self._dealt[0]

    @property
    def test(self) -> Database | None:
        """The test set: of the dataset, or a fold."""
        return self._dealt[1]

    @functools.cached_property
    def _dealt(self) -> tuple[dict[str, Database], Database | None]:
        deal = (self.dataset, self.partition, self.nodes, self.partition_seed, self.label)
        return (datasets.deal(*deal), self.dataset.test) if self.fold is None else datasets.deal_fold(*deal, *self.fold)

    def _outcomes(self, organization: int | None = None) -> CallOutcomes | None:
        """What becomes of the calls of the nodes that train, or of the one that trains alone; others take no time."""
        if self.slowest is None:
            return self.outcomes
        if not 1 <= self.slowest < math.inf:
            raise SafeError(f"speeds {self.slowest:g} is refused; expected a number from 1, for example 10")
        found = node_speeds(list(self.deal()), self.slowest, seed=self.partition_seed)
        return found if organization is None else lambda _, input_: found(organization, input_)

    @property
    def policy(self) -> Policy:
        """The limits of every node. Raises NodePermissionException if one cannot be read."""
        return Policy.of_node({**os.environ, **self.environment})

    def description(self) -> dict[str, Any]:
        """What a result keeps of where its rows are from."""
        named = self.named()
        return {
            "data": self.dataset.name,
            "partition": self.partition,
            "partition_seed": self.partition_seed,
            "nodes": [*named],
            "rows": [len(rows if isinstance(rows, pd.DataFrame) else rows[1]) for rows in named.values()],
            "digest": self._digest,
            "speeds": self.slowest,
            "trained": "federated",
        }

    @functools.cached_property
    def _digest(self) -> str:
        """What tells the same rows, dealt alike, from others with the same file name and the same numbers of rows."""
        whole = hashlib.sha256()
        for rows in (*self.named().values(), *([] if self.test is None else [self.test])):
            if isinstance(rows, pd.DataFrame):
                for name in rows.columns:
                    whole.update(f"\0{name}\0".encode())
                    whole.update(_hashes(rows[name]).tobytes())
            else:
                for array in map(np.asarray, rows):
                    whole.update((array.astype(str) if array.dtype == object else array).tobytes())
        return whole.hexdigest()[:16]

    def columns(self) -> tuple[list[str], str]:
        """The columns of a table that may be features, and the label; none of arrays, which have no names."""
        if not isinstance(self.dataset.rows, pd.DataFrame):
            return [], ""
        there = [str(c) for c in self.dataset.rows.columns if f"column:{c}" != self.partition]
        label = there[-1] if self.label is None else self.label
        return [c for c in there if c != label], label

    def class_counts(self) -> dict[Any, int]:
        """Rows of each class at all nodes, the most frequent first."""
        found, counts = np.unique(self._all_labels(), return_counts=True)
        return {source.plain(found[i]): int(counts[i]) for i in np.argsort(-counts, kind="stable")}

    def check(self, *, steps: bool = False, supervised: bool = True, regression: bool = False) -> None:
        """Raise SafeError if the data cannot be used as asked, see ``datasets.check``."""
        kind, _, column = self.partition.partition(":")
        ignored = column if kind == "column" else None
        if ignored and isinstance(self.dataset.rows, pd.DataFrame) and ignored not in self.dataset.rows.columns:
            there = ", ".join(repr(str(c)) for c in self.dataset.rows.columns)  # a space at an end is seen
            raise SafeError(f"no column {ignored!r} to tell the nodes by; expected one of {there}")
        datasets.check(
            self.dataset, self.label, self.features, ignored, steps=steps, supervised=supervised, regression=regression
        )

    def common(self) -> dict[str, Any]:
        """The settings that the data decide."""
        return {
            "seed": self.seed,
            "label": self.label,
            "features": None if self.features is None else list(self.features),
            "holdout": 0.0 if self.fold or self.dataset.test is not None else self.holdout,
        }

    def federated(self, method: str, values: Mapping[str, Any], on_round: OnRound | None = None) -> dict[str, Any]:
        """Train on all nodes. Raises SafeError, or vantage6's errors when nodes refuse."""
        if values.get("classes") is None:
            datasets.check_test(self.dataset, values.get("objective") == "regression")
        databases, common = self.deal(), self.common()
        if self.test is not None:
            common |= {"organizations": list(databases), "evaluators": [len(databases) + 1]}
            databases[len(databases) + 1] = self.test
        return self._run(method, databases, {**common, **values}, on_round, self._outcomes())

    def centralized(self, method: str, values: Mapping[str, Any], on_round: OnRound | None = None) -> dict[str, Any]:
        """Train on the rows of all nodes pooled into one, evaluated on the same held-out rows; on simulated time as
        fast as the fastest node."""
        training, test = self.train_and_test()
        outcomes = self._outcomes()
        if self.slowest is not None:
            outcomes = node_speeds([1], 1.0, seed=self.partition_seed)
        return self._alone(method, "centralized", _pool(list(training.values())), test, values, on_round, outcomes)

    def alone(
        self, method: str, values: Mapping[str, Any], organization: int, on_round: OnRound | None = None
    ) -> dict[str, Any]:
        """Train on the rows of one node only, evaluated on the held-out rows of all."""
        training, test = self.train_and_test()
        kind, outcomes = f"alone: {[*self.named()][organization - 1]}", self._outcomes(organization)
        return self._alone(method, kind, training[organization], test, values, on_round, outcomes)

    def _alone(
        self,
        method: str,
        kind: str,
        rows: Database,
        test: Database,
        values: Mapping[str, Any],
        on_round: OnRound | None,
        outcomes: CallOutcomes | None,
    ) -> dict[str, Any]:
        known: dict[str, Any] = {"organizations": [1], "evaluators": [2], "holdout": 0.0}
        if values.get("objective") != "regression":
            known["classes"] = values.get("classes") or self._classes()
        own = {k: v for k, v in values.items() if k != "fraction"}
        return self._run(method, {1: rows, 2: test}, {**self.common(), **own, **known}, on_round, outcomes, kind)

    def not_evaluated(self, features: Sequence[str]) -> dict[str, list[str]]:
        """By node the features that count as empty in the rows that it holds out."""
        found: dict[str, list[str]] = {}
        for organization, (name, rows) in enumerate(self.named().items(), start=1):
            if isinstance(rows, pd.DataFrame) and self.test is None:
                _, held = source.split(len(rows), self.holdout, organization, self.policy.minimum_rows)
                columns = source.scarce(rows.iloc[held][list(features)], self.policy.minimum_rows)
                found |= {name: columns} if columns else {}
        return found

    def train_and_test(self) -> tuple[dict[int, Database], Database]:
        """The rows that each node trains on, and the held-out rows of all together. Raises SafeError without any."""
        dealt = self.deal()
        if self.test is not None:
            return dealt, self.test
        training, held_out = {}, []
        step = self.policy.minimum_rows
        for organization, rows in dealt.items():
            n = len(rows) if isinstance(rows, pd.DataFrame) else len(rows[1])
            kept, held = source.split(n, self.holdout, organization, step)
            node = Dataset("", rows)
            training[organization] = node.take(kept)
            held_out.append(_without_scarce(node.take(held), step))
        test = _pool(held_out)
        if not len(test if isinstance(test, pd.DataFrame) else test[1]):
            raise SafeError(
                f"no rows are held out to compare on; expected a --holdout above 0 and {2 * step} rows a node or more"
            )
        return training, test

    def _classes(self) -> list[Any]:
        return [source.plain(v) for v in np.unique(self._all_labels())]

    def _all_labels(self) -> np.ndarray:
        kind, _, column = self.partition.partition(":")
        rows = self.dataset.rows
        if kind == "column" and isinstance(rows, pd.DataFrame):
            rows = rows.drop(columns=column)
        return datasets.labels(Dataset("", rows), self.label)

    def _run(
        self,
        method: str,
        databases: dict[int, Database],
        values: dict[str, Any],
        on_round: OnRound | None,
        outcomes: CallOutcomes | None,
        kind: str = "federated",
    ) -> dict[str, Any]:
        registry.check(method, registry.validate(method, values))
        described = {**self.description(), "trained": kind}
        environment = {"V6_FEDERATED_MINIMUM_ORGANIZATIONS": "1", **_policies(os.environ), **self.environment}
        size = sum(rows.size if isinstance(rows, pd.DataFrame) else rows[0].size for rows in databases.values())
        processes = self.processes or (1 if size < SMALL else os.cpu_count() or 1)
        with MockNetwork(
            f"v6_{method}",
            databases,
            environment=environment,
            processes=processes,
            on_round=on_round or (lambda row: None),
            outcomes=outcomes,
        ) as network:
            try:
                result = network.run(**values)
            except Interrupted as error:
                raise Interrupted({**error.result, "experiment": described}) from None
        return {**result, "experiment": described}


def _policies(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith("V6_FEDERATED_")}


def _hashes(column: pd.Series) -> np.ndarray:
    try:
        return pd.util.hash_pandas_object(column, index=False).to_numpy()
    except TypeError:  # lists, say, in a column that no method will use
        return pd.util.hash_pandas_object(column.map(repr), index=False).to_numpy()


def _without_scarce(rows: Database, least: int) -> Database:
    """Held-out rows as a node evaluates them: columns in which fewer than ``least`` have a value count as empty."""
    if not isinstance(rows, pd.DataFrame):
        return rows
    scarce = source.scarce(rows, least)
    return rows.mask(np.tile([name in scarce for name in rows.columns], (len(rows), 1))) if scarce else rows


def _pool(parts: list[Database]) -> Database:
    tables = [part for part in parts if isinstance(part, pd.DataFrame)]
    if tables:
        return pd.concat(tables, ignore_index=True)
    return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])
