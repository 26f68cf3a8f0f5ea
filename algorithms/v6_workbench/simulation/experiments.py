"""Experiments on mock nodes: data dealt to nodes, federated training on them, and the baselines to compare with."""

import functools
import hashlib
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from v6_federated.base.errors import Interrupted, SafeError
from v6_federated.base.text import shortened
from v6_federated.data.labels import plain
from v6_federated.data.source import identity_of, split
from v6_federated.rules.hospital import HospitalFolder
from v6_federated.rules.limits import PREFIX
from v6_federated.rules.policy import Policy
from v6_workbench import registry
from v6_workbench.errors import some_of, whole_number
from v6_workbench.simulation import data_checks, dealing, partitions
from v6_workbench.simulation.call_outcomes import CallOutcomes, node_speeds
from v6_workbench.simulation.datasets import Dataset, pool
from v6_workbench.simulation.mock import PROFILE, TRUSTING, MockNetwork, made_folder, secret_variable
from v6_workbench.simulation.mock_node import TURN, Database, environment_of, limits_of_process
from v6_workbench.simulation.partitions import Partition
from v6_workbench.simulation.studies import StudyPlan

OnRound = Callable[[dict[str, Any]], None]
MINIMUM_ORGANIZATIONS, AGGREGATION = f"{PREFIX}MINIMUM_ORGANIZATIONS", f"{PREFIX}AGGREGATION"
HOLDOUT = 0.2  # of most methods
SMALL = 5_000_000  # with fewer numbers in a table, starting worker processes costs more than it saves


@dataclass(frozen=True)
class Experiment:
    """The data of an experiment, how they are dealt to nodes, and the nodes' properties.

    Attributes:
        dataset: all rows.
        nodes: number of nodes; None is 5, or as many as the partition has.
        partition: how the rows are dealt: the name of one of ``partitions``, ``column:NAME``, a function like those of
            ``partitions``, or the indices of each node's rows, as a list or by the nodes' names. None: as the hospitals
            have them, if the dataset consists of hospitals, and otherwise "iid".
        seed: seed of everything random in the job.
        partition_seed: seed of the partition.
        label: the label's column, as in ``Common``.
        features: the features' columns, as in ``Common``.
        holdout: share of a node's rows kept for evaluation; a dataset with a test set holds out nothing. None is the
            method's own default.
        processes: worker processes; None is one for small data, otherwise one for each processor.
        cluster: a cluster whose workers take their place, see ``MockNetwork``; None: there is none.
        environment: environment variables of every node, its operator's policy. Mock nodes hold the developer's own
            rows, so the profile is ``trusting`` and one organization is enough for a job unless this says otherwise.
            For baselines, which have one node, one organization is enough under every profile, and its answers are
            plain.
        environments: further variables of single nodes, by their numbers from 1. Pooled rows have none of these.
        slowest: how many times slower than the fastest node the slowest is, in simulated time; None is real time.
        outcomes: decides what becomes of each call, in place of ``slowest``; see ``call_outcomes.CallOutcome``.
        hospital_folder: where each node keeps its audit log, counters and secret, see ``MockNetwork``; baselines keep
            none. Without it, a node's secret follows from ``partition_seed`` and its number: all jobs on the nodes, and
            the baselines, hold out the same rows, whatever the profile is.
        study: a study that the nodes have accepted, see ``studies.make``; None: there is none. A job is in the study if
            its setting ``aggregation`` is ``pinned``, or if ``V6_FEDERATED_AGGREGATION`` requires that.
        fold: (f, k): the rows of fold f (from 0) of k are the test set, see ``dealing.deal_fold``.

    Raises:
        SafeError: ``dataset`` is not a Dataset or has no rows, ``features`` is not a list, or ``nodes``, ``processes``,
            a seed or ``fold`` is not whole.

    Example:
        >>> from v6_workbench import Experiment, load
        >>> experiment = Experiment(load("wine"), nodes=3, seed=1)
        >>> result = experiment.federated("fedavg", rounds=3, preprocess=["standardize"])
        >>> len(result["history"])
        3
    """

    dataset: Dataset
    nodes: int | None = None
    partition: Partition | None = None
    seed: int = 0
    partition_seed: int = 0
    label: str | None = None
    features: Sequence[str] | None = None
    holdout: float | None = None
    processes: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    environments: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    slowest: float | None = None
    outcomes: CallOutcomes | None = None
    fold: tuple[int, int] | None = None
    hospital_folder: str | Path | None = None
    study: StudyPlan | None = None
    cluster: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.dataset, Dataset):
            kind = type(self.dataset).__name__
            raise SafeError(f'the dataset is a {kind}; expected load(table), load(X, y) or load("rows.csv")')
        if not len(self.dataset):
            raise SafeError(f"the dataset {self.dataset.name!r} has no rows; expected some for each node")
        if isinstance(self.features, str):
            raise SafeError(f"features is the text {self.features!r}; expected a list of names: [{self.features!r}]")
        for name, example in (("nodes", 5), ("processes", 2), ("seed", 1), ("partition_seed", 1)):
            if (value := getattr(self, name)) is not None:
                object.__setattr__(self, name, whole_number(name, value, example))
        if self.fold is not None:
            object.__setattr__(self, "fold", tuple(whole_number("fold", value) for value in self.fold))

    def __repr__(self) -> str:
        """Names and numbers: a notebook shows it, and a variable of a node may be a secret."""
        try:
            rows = {
                name: len(part if isinstance(part, pd.DataFrame) else part[1]) for name, part in self.named().items()
            }
            nodes = f"{len(rows)} nodes: {shortened(f'{name} ({n} rows)' for name, n in rows.items())}"
        except SafeError:
            nodes = "rows that cannot be dealt"
        label = "" if self.label is None else f"; label {self.label}"
        return f"<Experiment: {self.dataset.name}; {nodes}{label}; seed {self.seed}>"

    @property
    def _partition(self) -> Partition:
        return self.partition if self.partition is not None else self.dataset.hospitals or "iid"

    def deal(self) -> dict[int, Database]:
        """Return the rows of organizations 1, 2, ..."""
        return dict(enumerate(self.named().values(), start=1))

    def named(self) -> dict[str, Database]:
        """Return the rows of each node by its name: 1, 2, ... or the values of the partition's column."""
        return self._dealt[0]

    @property
    def test(self) -> Database | None:
        """The test set: the dataset's own, or a fold; None if there is neither."""
        return self._dealt[1]

    @functools.cached_property
    def _dealt(self) -> tuple[dict[str, Database], Database | None]:
        deal = (self.dataset, self._partition, self.nodes, self.partition_seed, self.label)
        return (dealing.deal(*deal), self.dataset.test) if self.fold is None else dealing.deal_fold(*deal, *self.fold)

    def _outcomes(self, organization: int | None = None) -> CallOutcomes | None:
        """The outcomes of calls to the nodes that train, or to the one that trains alone; other calls take no time."""
        if self.slowest is None:
            return self.outcomes
        if not 1 <= self.slowest < math.inf:
            raise SafeError(f"--speeds {self.slowest:g} is too small; expected 1 or more, for example 10")
        found = node_speeds(list(self.deal()), self.slowest, seed=self.partition_seed)
        return found if organization is None else lambda _, input_: found(organization, input_)

    def policy(self, node: int | None = None) -> Policy:
        """Return the limits of a node.

        Args:
            node: its number, from 1; None: the limits of all nodes that have no further ones.

        Raises:
            NodePermissionException: a limit cannot be read.
        """
        return Policy.of_node(self._environment(node))

    def _environment(self, node: int | None = None, baseline: bool = False) -> dict[str, str]:
        """The V6_FEDERATED_ variables of a node."""
        own = {} if node is None else self.environments.get(node, {})
        said = {**TRUSTING, **limits_of_process(), **self.environment, **own}
        if baseline:  # it has one node, whatever the profile
            return {MINIMUM_ORGANIZATIONS: "1", **said, AGGREGATION: "plain"}
        return {MINIMUM_ORGANIZATIONS: "1", **said} if said[PROFILE] == "trusting" else said

    def _identity(self, organization: int) -> int:
        """What decides which rows a node holds out, as the node itself finds it."""
        policy = self.policy(organization)
        if not policy.own_split:
            return organization
        environment = self._environment(organization)
        if self.hospital_folder is None:
            folder, environment = Path(), {**environment, **secret_variable(environment, self._secret(organization))}
        else:
            folder = made_folder(self.hospital_folder, organization)
        with TURN, environment_of(environment):
            return identity_of(organization, policy, HospitalFolder(folder, own=True))

    def _secret(self, organization: int) -> str:
        # Anyone can compute it. Noise also depends on the key of a job, which is random
        return hashlib.sha256(f"mock node {organization}, partition seed {self.partition_seed}".encode()).hexdigest()

    def description(self) -> dict[str, Any]:
        """Return what a result says about its rows and nodes, as JSON."""
        named = self.named()
        return {
            "data": self.dataset.name,
            "partition": partitions.described(self._partition),
            "partition_seed": self.partition_seed,
            "nodes": [*named],
            "rows": [len(rows if isinstance(rows, pd.DataFrame) else rows[1]) for rows in named.values()],
            "digest": self._digest,
            "speeds": self.slowest,
            "trained": "federated",
        }

    @functools.cached_property
    def _digest(self) -> str:
        """A digest of the rows, of how they are dealt, and of secrets by which nodes hold some out.

        Files of the same name and size may differ.
        """
        whole = hashlib.sha256()
        parts = [*self.named().values(), *([] if self.test is None else [self.test])]
        pooled = pool(parts) if isinstance(parts[0], pd.DataFrame) else None
        # a column is hashed at once, and not for each of thousands of nodes
        hashes = (
            {} if not isinstance(pooled, pd.DataFrame) else {name: _hashes(pooled[name]) for name in pooled.columns}
        )
        start = 0
        for rows in parts:
            if isinstance(rows, pd.DataFrame):
                for name, column in hashes.items():
                    whole.update(f"\0{name}\0".encode())
                    whole.update(column[start : start + len(rows)].tobytes())
                start += len(rows)
            else:
                for array in map(np.asarray, rows):
                    whole.update((array.astype(str) if array.dtype == object else array).tobytes())
        if self.test is None:
            every = self.policy().own_split  # most nodes have no limits of their own
            for organization in range(1, len(self.named()) + 1):
                if self.policy(organization).own_split if organization in self.environments else every:
                    whole.update(f"\0held out by {self._identity(organization)}\0".encode())
        return whole.hexdigest()[:16]

    def columns(self) -> tuple[list[str], str]:
        """Return the columns of a table that may be features, and the label; arrays have neither name."""
        if not isinstance(self.dataset.rows, pd.DataFrame):
            return [], ""
        there = [str(c) for c in self.dataset.rows.columns if str(c) != partitions.column_of(self._partition)]
        label = there[-1] if self.label is None else self.label
        return [c for c in there if c != label], label

    def class_counts(self) -> dict[Any, int]:
        """Return the number of rows of each class at all nodes, the most frequent class first."""
        found, counts = np.unique(self._all_labels(), return_counts=True)
        return {plain(found[i]): int(counts[i]) for i in np.argsort(-counts, kind="stable")}

    def check(
        self,
        *,
        steps: bool = False,
        supervised: bool = True,
        regression: bool = False,
        noisy: bool = False,
        missing: bool = False,
        named: bool = False,
        times: bool = False,
        method: str | None = None,
    ) -> None:
        """Check that a method can be trained on the data.

        Args:
            steps: whether preprocessing steps follow; then columns may hold words and missing values.
            supervised: whether the method needs a label.
            regression: whether the label is a number to predict.
            noisy: whether nodes add noise; a schema then says what fills missing values.
            missing: whether the model takes missing values as they are.
            named: whether the job names the classes.
            times: whether the method looks at the label, a time, and at no features.
            method: the method's name, whose own settings errors name first.

        Raises:
            SafeError: the method cannot be trained on them.
        """
        declared = self.hospital_folder is not None or (self.study is not None and self.study.schema is not None)
        column = partitions.column_of(self._partition)
        ignored = column if column and isinstance(self.dataset.rows, pd.DataFrame) else None
        if column:
            dealing.check_column(self.dataset, column)
        data_checks.check(
            self.dataset,
            self.label,
            self.features,
            ignored,
            steps=steps or (noisy and declared),
            supervised=supervised,
            regression=regression,
            noisy=noisy,
            missing=missing,
            named=named,
            times=times,
            method=method,
        )

    def share(self, method: str | None = None) -> float:
        """Return the share of a node's rows that is kept for evaluation.

        Args:
            method: the method's name, whose own default it is if ``holdout`` is None; None: that of most methods.
        """
        if self.holdout is not None:
            return self.holdout
        return HOLDOUT if method is None else registry.holdout(method)

    def common(self, method: str) -> dict[str, Any]:
        """Return the settings that the data decide.

        Args:
            method: the method's name; no rows are held out for one that trains no model.
        """
        decided: dict[str, Any] = {
            "seed": self.seed,
            "label": self.label,
            "features": None if self.features is None else list(self.features),
        }
        if registry.supervised(method):
            decided["holdout"] = 0.0 if self.fold or self.dataset.test is not None else self.share(method)
        return decided

    def federated(
        self,
        method: str,
        values: Mapping[str, Any] | None = None,
        on_round: OnRound | None = None,
        **settings: Any,
    ) -> dict[str, Any]:
        """Train on all nodes.

        Args:
            method: the method's name.
            values: its settings.
            on_round: called with each finished row of the history.
            settings: further settings, or all of them: ``rounds=30, lr=0.1``. Without rounds, there are as many as on
                the command line, see ``registry.rounds``.

        Returns:
            The result, with the experiment's ``description``.

        Raises:
            SafeError: a setting is wrong, or the data do not fit.
            Interrupted: Ctrl-C was pressed after the first round.
            Exception: one of vantage6's errors if nodes refuse.
        """
        values = {**(values or {}), **settings}
        if values.get("classes") is None:
            data_checks.check_test(self.dataset, registry.predicts_numbers(method, values))
        supervised = registry.supervised(method)
        databases, common = self.deal(), self.common(method)
        if self.test is not None and supervised:
            common |= {"organizations": list(databases), "evaluators": [len(databases) + 1]}
            databases[len(databases) + 1] = self.test
        return self._run(method, databases, {**common, **values}, on_round, self._outcomes())

    def centralized(
        self,
        method: str,
        values: Mapping[str, Any] | None = None,
        on_round: OnRound | None = None,
        **settings: Any,
    ) -> dict[str, Any]:
        """Train on the rows of all nodes pooled in one, and evaluate on the same held-out rows as ``federated``.

        In simulated time the pooled rows are as fast as the fastest node. Arguments, result and errors are those of
        ``federated``.
        """
        training, tests = self._train_and_tests(method)
        outcomes = self._outcomes()
        if self.slowest is not None:
            outcomes = node_speeds([1], 1.0, seed=self.partition_seed)
        own = {**(values or {}), **settings}
        return self._alone(method, "centralized", pool(list(training.values())), tests, own, on_round, outcomes)

    def alone(
        self,
        method: str,
        values: Mapping[str, Any] | None = None,
        organization: int | str = 1,
        on_round: OnRound | None = None,
        **settings: Any,
    ) -> dict[str, Any]:
        """Train on the rows of one node only, and evaluate on the held-out rows of all.

        Args:
            method: see ``federated``.
            values: see ``federated``.
            organization: number of the node, from 1, or its name.
            on_round: see ``federated``.
            settings: see ``federated``.

        Returns:
            The result. Errors are those of ``federated``.
        """
        names = [*self.named()]
        numbers = {name: number for number, name in enumerate(names, start=1)}
        number = organization if isinstance(organization, int) else numbers.get(organization, 0)
        if not 1 <= number <= len(names):
            raise SafeError(
                f"there is no node {organization!r}; expected 1 to {len(names)}, or a name: {some_of(names)}"
            )
        training, tests = self._train_and_tests(method)
        kind, own = f"alone: {names[number - 1]}", {**(values or {}), **settings}
        return self._alone(method, kind, training[number], tests, own, on_round, self._outcomes(number), number)

    def _alone(
        self,
        method: str,
        kind: str,
        rows: Database,
        tests: Sequence[Database],
        values: Mapping[str, Any],
        on_round: OnRound | None,
        outcomes: CallOutcomes | None,
        node: int | None = None,
    ) -> dict[str, Any]:
        # of times, pairs of rows of one hospital are compared, as in federated training
        apart = tests if registry.measured_by(method, values) == "c_index" else [pool(tests)]
        test = dict(enumerate(apart, start=2))
        known: dict[str, Any] = {"organizations": [1], "evaluators": [*test], "holdout": 0.0, "aggregation": "plain"}
        if not registry.predicts_numbers(method, values):
            known["classes"] = values.get("classes") or self._classes()
        own = {k: v for k, v in values.items() if k != "fraction"}
        return self._run(
            method, {1: rows, **test}, {**self.common(method), **own, **known}, on_round, outcomes, kind, node
        )

    def not_evaluated(self, features: Sequence[str], method: str | None = None) -> dict[str, list[str]]:
        """Return, by node, the features that count as empty in the rows that it holds out, see ``share``."""
        found: dict[str, list[str]] = {}
        for organization, (name, rows) in enumerate(self.named().items(), start=1):
            if isinstance(rows, pd.DataFrame) and self.test is None:
                least = self.policy(organization).minimum_rows
                _, held = split(len(rows), self.share(method), self._identity(organization), least)
                columns = _scarce(rows.iloc[held][list(features)], least)
                found |= {name: columns} if columns else {}
        return found

    def train_and_test(self, method: str | None = None) -> tuple[dict[int, Database], Database]:
        """Return the rows that each organization trains on, and the held-out rows of all together.

        Args:
            method: see ``share``.

        Raises:
            SafeError: no rows are held out.
        """
        training, tests = self._train_and_tests(method)
        return training, pool(tests)

    def _train_and_tests(self, method: str | None) -> tuple[dict[int, Database], list[Database]]:
        """The same, with the held-out rows of each organization that has some."""
        dealt = self.deal()
        if self.test is not None:
            return dealt, [self.test]
        training, held_out, least = {}, [], 0
        for organization, rows in dealt.items():
            step = self.policy(organization).minimum_rows
            least = max(step, least)
            n = len(rows) if isinstance(rows, pd.DataFrame) else len(rows[1])
            kept, held = split(n, self.share(method), self._identity(organization), step)
            node = Dataset("", rows)
            training[organization] = node.take(kept)
            held_out.append(_without_scarce(node.take(held), step))
        tests = [rows for rows in held_out if len(rows if isinstance(rows, pd.DataFrame) else rows[1])]
        if not tests:
            raise SafeError(
                "no rows are held out to compare on; expected --holdout above 0, such as 0.2, and nodes with "
                f"{2 * least} rows or more"
            )
        return training, tests

    def _classes(self) -> list[Any]:
        return [plain(v) for v in np.unique(self._all_labels())]

    def _all_labels(self) -> np.ndarray:
        column, rows = partitions.column_of(self._partition), self.dataset.rows
        if column and isinstance(rows, pd.DataFrame):
            rows = rows.drop(columns=column)
        return data_checks.labels(Dataset("", rows), self.label)

    def _run(
        self,
        method: str,
        databases: dict[int, Database],
        values: dict[str, Any],
        on_round: OnRound | None,
        outcomes: CallOutcomes | None,
        kind: str = "federated",
        node: int | None = None,
    ) -> dict[str, Any]:
        if on_round is not None and not callable(on_round):
            raise SafeError(f"on_round={on_round!r} is no function; expected one that takes a row of the history")
        values = {"rounds": registry.rounds(method), **values}
        registry.check(method, registry.validate(method, values))
        described = {**self.description(), "trained": kind}
        baseline = kind != "federated"
        every = self._environment(None, baseline)
        if baseline:  # one node, and a second that only evaluates
            own = {1: self._environment(node, baseline)}
        else:
            own = {k: self._environment(k) for k in self.environments if k in databases}
            for k in range(len(self.named()) + 1, len(databases) + 1):  # it holds a test set, and is no hospital
                own[k] = {**own.get(k, every), AGGREGATION: "plain"}
        study = None
        if self.study is not None and not baseline:
            study = replace(self.study, names=dict(enumerate(self.named(), start=1)))
        size = sum(rows.size if isinstance(rows, pd.DataFrame) else rows[0].size for rows in databases.values())
        started = now()

        def finished(result: dict[str, Any]) -> dict[str, Any]:
            hospitals = {k: own.get(k, every) for k in ((1,) if baseline else self.deal())}
            origin = {**described, "limits": limits_in_force(hospitals)}
            return {**result, "started": started, "ended": now(), "experiment": origin}

        processes = self.processes or (1 if size < SMALL else os.cpu_count() or 1)
        with MockNetwork(
            registry.package_of(method).__name__,
            databases,
            environment=every,
            environments=own,
            processes=processes,
            on_round=on_round or (lambda row: None),
            outcomes=outcomes,
            hospital_folder=None if baseline else self.hospital_folder,  # pooled rows are no hospital's
            secret_of=self._secret,
            study=study,
            cluster=self.cluster,
        ) as network:
            try:
                result = network.run(**values)
            except Interrupted as error:
                raise Interrupted(finished(error.result)) from None
            except Exception as error:
                if len(error.args) == 1:
                    error.args = (self._with_names(str(error), baseline, node),)
                raise
        if "stopped" in result:
            result["stopped"] = self._with_names(result["stopped"], baseline, node)
        return finished(result)

    def _with_names(self, text: str, baseline: bool, node: int | None) -> str:
        """A text about organizations with the names of the nodes, which are their own here."""
        every = dict(enumerate(self.named(), start=1))
        if baseline:  # organization 1 has the rows of all nodes, or of one
            every = {} if node is None else {1: every[node]}
        named = {k: name for k, name in every.items() if name != str(k)}

        def add(found: re.Match[str]) -> str:
            numbers = [int(number) for number in found[1].split(", ")]
            names = [named[k] for k in numbers if k in named]
            return f"{found[0]} ({', '.join(names)})" if names and len(names) == len(numbers) else found[0]

        return re.sub(r"organizations? (\d{1,9}(?:, \d{1,9})*)(?!\d)", add, text)


def now() -> str:
    """The time in UTC, to the second, as ISO 8601 writes it."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def as_json(policy: Policy) -> dict[str, Any]:
    """Write the limits of a node as JSON.

    Args:
        policy: the limits.

    Returns:
        Values by the names of ``Policy``'s attributes; sets are sorted lists.
    """
    return {limit: sorted(v) if isinstance(v, frozenset) else v for limit, v in asdict(policy).items()}


def limits_in_force(environments: Mapping[int, Mapping[str, str]]) -> list[dict[str, Any]]:
    """Return the limits of nodes.

    Args:
        environments: the environment of each node, by organization id.

    Returns:
        Nodes with the same limits together: ``organizations``, their ids, and ``limits``, as ``as_json`` writes them.
    """
    found: list[dict[str, Any]] = []
    groups: dict[frozenset[tuple[str, str]], list[int]] = {}  # by environment: most nodes have the same
    for organization, environment in environments.items():
        groups.setdefault(frozenset(environment.items()), []).append(organization)
    for same in groups.values():
        limits = as_json(Policy.of_node(environments[same[0]]))
        known = next((group for group in found if group["limits"] == limits), None)
        if known is None:
            found.append({"organizations": same, "limits": limits})
        else:
            known["organizations"] = sorted([*known["organizations"], *same])
    return found


def _hashes(column: pd.Series) -> np.ndarray:
    try:
        return pd.util.hash_pandas_object(column, index=False).to_numpy()
    except TypeError:  # for example lists, in a column that no method will use
        return pd.util.hash_pandas_object(column.map(repr), index=False).to_numpy()


def _scarce(table: pd.DataFrame, least: int) -> list[Any]:
    """The columns in which at least one row has a value, and fewer than ``least``."""
    given = table.notna().sum()
    return [name for name, n in given.items() if 0 < n < min(least, len(table))]


def _without_scarce(rows: Database, least: int) -> Database:
    """Held-out rows as a node evaluates them: columns in which fewer than ``least`` rows have a value are emptied."""
    if not isinstance(rows, pd.DataFrame):
        return rows
    scarce = _scarce(rows, least)
    return rows.mask(np.tile([name in scarce for name in rows.columns], (len(rows), 1))) if scarce else rows
