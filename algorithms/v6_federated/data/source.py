"""The rows of a node: the columns that a job uses, the split for evaluation, and the rows after its steps."""

import functools
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from v6_federated.base.arrays import Array
from v6_federated.base.randomness import generator
from v6_federated.base.vantage6_api import DataError
from v6_federated.data import header, preprocessing, times
from v6_federated.data.columns import Features, UnfitColumns
from v6_federated.data.labels import checked_labels, checked_numbers, encode_labels
from v6_federated.data.reading import as_features, mark_of, read_features
from v6_federated.messages.job import DataSpec
from v6_federated.rules.hospital import HospitalFolder
from v6_federated.rules.limits import PREFIX
from v6_federated.rules.policy import Policy

COMPLETE = "times, events, offsets and weights need a number in each row: correct the values, or name another column"


@dataclass(frozen=True)
class Rows:
    """Rows of a node.

    Attributes:
        X: features (n, d), float32 once they are prepared.
        y: labels (n,): class indices, int64, once the classes are agreed; numbers, float64, for a regression.
        persons: a number for each row (n,), the same for rows of one person; None: each row is another person's.
        idle: which rows have their place and nothing else (n,): their features are NaN, and they must be neither added
            nor counted. None: no row is idle.
    """

    X: Array
    y: Array
    persons: Array | None = None
    idle: Array | None = None

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.y)

    def without_idle(self) -> "Rows":
        """Return the rows that are not idle, for what does not leave the node."""
        return self if self.idle is None else Rows(self.X[~self.idle], self.y[~self.idle])


@dataclass
class Source:
    """The database of one node: a table, or arrays.

    Attributes:
        table: the table; None if the data are arrays.
        X: features (n, d) or (n, height, width); None if the data are a table.
        y: labels (n,); None if the data are a table.
        idle: which rows are neither trained on nor evaluated, although they have their place (n,), if the rows were
            made to fit a schema. No threshold on rows then applies: it would be an answer that no noise covers.
        persons: the place of the first row of the same person (n,); None: each row is another person's.

    Raises:
        DataError: two columns of the table have the same name.
    """

    table: pd.DataFrame | None = None
    X: Array | None = None
    y: Array | None = None
    idle: Array | None = None
    persons: Array | None = None
    _read: dict[Any, Any] = field(default_factory=dict, repr=False)
    _prepared: tuple[Any, tuple[Rows, Rows]] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Name the columns by texts."""
        if self.table is not None:
            names = [str(c) for c in self.table.columns]
            if len(set(names)) < len(names):
                raise DataError("two columns of the table have the same name; rename one of them")
            if names != [*self.table.columns]:
                self.table = self.table.copy(deep=False)
                self.table.columns = pd.Index(names)

    @property
    def size(self) -> int:
        """The number of rows."""
        rows = self.X if self.table is None else self.table
        return 0 if rows is None else len(rows)

    @functools.cached_property
    def digest(self) -> bytes:
        """SHA-256 of all rows, and of who takes part, by which a node notices that its table has changed."""
        found = hashlib.sha256()
        for array in (self.idle, self.persons):
            if array is not None:
                found.update(np.ascontiguousarray(array).data)
        if self.table is None:
            for array in (self.X, self.y):
                if array is not None:
                    found.update(f"{array.dtype} {array.shape}".encode())
                    found.update(np.ascontiguousarray(array).data)
        else:
            found.update(repr([*map(str, self.table.columns)]).encode())
            found.update(pd.util.hash_pandas_object(self.table).to_numpy().data)
        return found.digest()

    def check_header(self) -> None:
        """Check that the table has a header, as far as can be told from it.

        Raises:
            DataError: the names of the columns look like a row. The text quotes none.
        """
        if self.table is None:
            return
        if "header" not in self._read:
            self._read["header"] = header.missing(self.table)
        if sign := self._read["header"]:
            raise DataError(
                f"the table seems to have no header: {sign}. Name each column in its first line; if these are their "
                f"names, the node's operator can allow them with {PREFIX}ALLOW_NUMERIC_NAMES=1"
            )

    def columns(self, spec: DataSpec) -> tuple[list[str], str]:
        """Find the columns that a job uses.

        Args:
            spec: which columns the job names.

        Returns:
            The feature columns, and the label's column; "" if there is no label.

        Raises:
            DataError: a column is missing, or the label is among the features.
        """
        if self.table is None:
            if spec.label is not None or spec.features is not None or spec.exclude or spec.special:
                raise DataError(
                    "the database holds arrays without column names; leave label, features, exclude, offset, weights, "
                    "event and time unset"
                )
            return [], "y"
        present = list(self.table.columns)
        none = not spec.supervised and spec.label is None and spec.features is not None
        label = "" if none else present[-1] if spec.label is None else spec.label
        features = (
            [c for c in present if c not in (label, *spec.exclude, *spec.special)]
            if spec.features is None
            else [*spec.features]
        )
        there = set(present)
        named = [(c, "--features") for c in features] + [(c, option_of(name)) for name, c in spec.by_role.items()]
        named += [] if none else [(label, "--label")]
        if missing := {c: option for c, option in named if c not in there}:
            # the table's names are not listed: the operator may not allow some
            options = " and ".join(dict.fromkeys(missing.values()))
            raise DataError(f"no column {', '.join(missing)} in the table; name others with {options}")
        if len(set(features)) < len(features):
            raise DataError("features names a column twice; name each column once")
        if twice := [c for c in spec.special if c in (label, *features)]:
            if spec.label is None and twice[0] == label:
                raise DataError(
                    f"the label is the last column, {label}, as none is named, but that is also the offset, weights or "
                    "event; name the label with --label"
                )
            raise DataError(
                f"{twice[0]} cannot be an offset, weights, event or time, and the label or a feature too; name another"
            )
        if label and label in spec.exclude:
            raise DataError(f"the label {label} is excluded; remove it from exclude, or name another label")
        if label in features:
            raise DataError(f"the label {label} is among the features; remove it from features, or name another label")
        if not features and spec.time is None:
            hint = "; the columns seem to be separated by semicolons or tabs: separate them by commas"
            separated = len(present) == 1 and any(separator in present[0] for separator in ";\t")
            raise DataError(
                f"no feature column; expected at least one in addition to the label{hint if separated else ''}"
            )
        return features, label

    def twins(self, columns: Sequence[str]) -> list[str]:
        """Find columns that had the same name as another in the file: pandas renames the second to NAME.1.

        Args:
            columns: columns of the table.

        Returns:
            The names in the file of those that were renamed.
        """
        assert self.table is not None
        before = {c: c.rpartition(".") for c in columns}
        return [name for name, dot, n in before.values() if dot and n.isdecimal() and name in self.table.columns]

    def features(self, spec: DataSpec) -> Features:
        """Return the features of all rows before any step; words and missing values may be among them.

        Args:
            spec: which columns the job uses.

        Returns:
            The features.

        Raises:
            DataError: the columns cannot be read.
        """
        names = None if spec.features is None else tuple(spec.features)
        categories = None if spec.categories is None else tuple(spec.categories)
        key = ("features", spec.label, names, categories, spec.supervised, tuple(spec.exclude), *spec.special)
        if key not in self._read:
            if self.table is None:
                assert self.X is not None
                X = as_features(self.X)
                self._read[key] = Features([str(i) for i in range(X.shape[1])], X, {})
            else:
                self._read[key] = read_features(self.table, self.columns(spec)[0], spec.categories)
        features: Features = self._read[key]
        return features

    def special(self, column: str) -> Features:
        """Return a column that is neither a feature nor the label.

        Args:
            column: its name.

        Returns:
            Its numbers, of all rows.

        Raises:
            DataError: values are missing, or not numbers.
        """
        assert self.table is not None
        try:
            found = read_features(self.table, [column], [])  # numbers that are text are read too
            found.check_complete()
        except UnfitColumns as error:
            raise UnfitColumns(error.problem, COMPLETE) from None
        return found

    def labels(self, spec: DataSpec) -> Array:
        """Return the labels of all rows as they are in the data.

        Args:
            spec: which columns the job uses.

        Returns:
            The labels (n,); zeros if there is no label. Times are below 0 in rows without an event, see
            ``times.signed``.

        Raises:
            DataError: they are missing or of different kinds.
        """
        key = ("labels", spec.label, spec.supervised, spec.regression, spec.event)
        if key not in self._read:
            self._read[key] = self._labels(spec)
        labels: Array = self._read[key]
        return labels

    def words(self, column: str) -> Array:
        """Return a column as words, whether it is a feature or not.

        Args:
            column: its name.

        Returns:
            The words (n,), numbers by their shortest text; None if missing.

        Raises:
            DataError: there is no such column, or it cannot be read.
        """
        if self.table is None or column not in self.table.columns:
            raise DataError(f"no column {column} in the data for subgroup; name a column of the table, or leave it out")
        return read_features(self.table, [column], [column]).words[column]

    def rows(self, spec: DataSpec) -> Rows:
        """Return all rows, for data without steps.

        Args:
            spec: which columns the job uses.

        Returns:
            The rows: features as numbers, labels as they are in the data.

        Raises:
            DataError: values are missing or not numbers. It names columns, never rows or values.
        """
        features = self.features(spec)
        features.check_complete(missing=spec.missing)
        return Rows(features.X, self.labels(spec))

    def split(self, spec: DataSpec, identity: int, step: int) -> tuple[Array | slice, Array | slice]:
        """Split the rows.

        Args:
            spec: the share of rows to hold out.
            identity: the node's, see ``identity_of``.
            step: the number of rows held out is a multiple of this.

        Returns:
            Which rows to train on, and which are held out, with idle ones among both.
        """
        if self.idle is not None:
            kept, held = split(len(self.idle), spec.holdout, identity, step)
            if self.persons is not None:  # all rows of a person go where the first one goes
                kept, held = (np.flatnonzero(np.isin(self.persons, rows)) for rows in (kept, held))
            return kept, held
        if not spec.holdout:
            return slice(None), slice(0)
        return split(len(self.labels(spec)), spec.holdout, identity, step)

    def training(self, spec: DataSpec, identity: int, policy: Policy) -> Features:
        """Return the features of the rows to train on, before any step. Words that few rows have are folded into one.

        Args:
            spec: which columns the job uses.
            identity: the node's, see ``identity_of``.
            policy: the operator's limits.

        Returns:
            The features.

        Raises:
            DataError: the columns cannot be read.
            PrivacyThresholdViolation: in a column, too few rows have a value, or words are too many to be categories.
        """
        kept, _ = self.split(spec, identity, policy.minimum_rows)
        features = self._categories(spec, policy).take(kept)
        if self.table is None or self.idle is not None:
            return features
        scarce, emptied = features.scarce(policy.minimum_rows), preprocessing.emptied(spec.preprocess)
        policy.check_values([name for name in scarce if name not in emptied])
        features = features.without([name for name in scarce if name in emptied])
        return features.folded(policy.minimum_rows_a_class, preprocessing.filled(spec.preprocess))

    def prepared(self, spec: DataSpec, identity: int, policy: Policy, trains: bool = True) -> tuple[Rows, Rows]:
        """Return the preprocessed rows, with class indices as labels. They are kept for the next call.

        Args:
            spec: which columns the job uses, and the fitted steps.
            identity: the node's, see ``identity_of``.
            policy: the operator's limits.
            trains: whether the node trains. If it only evaluates, its rows are read as for a prediction.

        Returns:
            The rows to train on, and those held out.

        Raises:
            DataError: the columns cannot be read, or values are missing after the steps.
            PrivacyThresholdViolation: in a column, too few rows have a value, or words are too many to be categories.
        """
        key = (spec, identity, policy, trains)
        if self._prepared is None or self._prepared[0] != key:
            y = self.labels(spec)
            if spec.classes is not None:
                y = encode_labels(y, spec.classes)
            kept, held = self.split(spec, identity, policy.minimum_rows)
            if spec.preprocess:
                self.features(spec).check_finite()  # even if a step would clip them
            levelling = preprocessing.Levelling(0 if self.idle is not None else policy.minimum_rows_a_side)
            features = self.training(spec, identity, policy) if trains else self._evaluated(spec, kept, kept, policy)
            X = ready(features, spec.preprocess, levelling.fit, spec.missing)
            evaluated = self._evaluated(spec, held, kept, policy)
            X_held = ready(evaluated, spec.preprocess, levelling.repeat(), spec.missing)
            persons = None if self.persons is None else self.persons[kept]
            self._prepared = key, (self._placed(X, y, kept, persons), self._placed(X_held, y, held))
        return self._prepared[1]

    def _placed(self, X: Array, y: Array, rows: Array | slice, persons: Array | None = None) -> Rows:
        """Rows of which idle ones are without numbers, but keep their place.

        The proof of how far one row moves a sum of clipped rows wants it: rows are added up in chunks, and each chunk
        is rounded. And the last bit of a row's score can depend on its place.
        """
        if self.idle is None:
            return Rows(X, y[rows], persons)
        idle = self.idle[rows]
        return Rows(np.where(idle[:, None], np.float32(np.nan), X), y[rows], persons, idle)

    def _evaluated(self, spec: DataSpec, rows: Array | slice, kept: Array | slice, policy: Policy) -> Features:
        """The features of rows that a model is only evaluated on, before any step.

        A column in which too few rows have a value counts as missing: a loss would reveal the values. Where evaluations
        are rounded, words that few of the rows ``kept`` have are replaced as in training.
        """
        every = self._categories(spec, policy)
        features = every.take(rows)
        if self.table is None or self.idle is not None:
            return features
        features = features.without(features.scarce(policy.minimum_rows))
        if not policy.round_evaluations:
            return features
        filled = preprocessing.filled(spec.preprocess)
        return features.folded(policy.minimum_rows_a_class, filled, every.take(kept))

    def _categories(self, spec: DataSpec, policy: Policy) -> Features:
        """The features of all rows, after a check that no column has too many words to be a category."""
        features = self.features(spec)
        for name, said in features.words.items():
            policy.check_classes(pd.Series(said).nunique(), f"the column {name}")
        return features

    def _labels(self, spec: DataSpec) -> Array:
        _, label = self.columns(spec)
        if not spec.supervised:
            rows = self.X if self.table is None else self.table
            assert rows is not None
            return np.zeros(len(rows))
        y = np.asarray(self.y) if self.table is None else self.table[label].to_numpy()
        if self.table is not None and self.table[label].isna().any():
            raise DataError(
                f"missing values in the label column {label} (in text, None, NA and null count as missing); expected "
                "a label in every row: take rows without one out of the hospital's table, or out of its query"
            )
        if self.table is not None and (mark := mark_of(self.table[label])) and mark not in (spec.classes or ()):
            raise DataError(
                f"the label column {label} holds numbers and {mark!r}, which stands for a missing value; expected a "
                "label in every row: remove the rows without one"
            )
        if not spec.regression:
            return checked_labels(y)
        numbers = checked_numbers(y)
        return numbers if spec.event is None else times.signed(numbers, self.special(spec.event).X[:, 0])


def held_out(n: int, holdout: float, step: int = 10) -> int:
    """Say how many of a node's rows are held out.

    Args:
        n: number of rows.
        holdout: the share to hold out.
        step: the node's minimum of rows.

    Returns:
        The multiple of ``step`` that is nearest to the share, but one step at least; 0 with fewer than two steps.
    """
    return max(step, step * round(holdout * n / step)) if holdout and n >= 2 * step else 0


def option_of(role: str) -> str:
    """Name the option that names a column which is neither a feature nor the label.

    Args:
        role: the attribute of a ``DataSpec`` that holds the column's name.

    Returns:
        The option, as a researcher types it.
    """
    return "--label" if role == "time" else f"--set {role}="


def identity_of(organization: int, policy: Policy, folder: HospitalFolder | None) -> int:
    """Return what decides which rows of a node are held out: its secret if the operator wants it.

    Otherwise it is the organization's id, which is the same everywhere. But the server gives it, and could give one
    hospital another one in each job: only that hospital's rows would differ between two sums. With a budget it is the
    secret in any case, so that in a job each row is trained on or held out, and never both.

    Args:
        organization: id of the organization.
        policy: the operator's limits.
        folder: the hospital's folder; None if there is none.

    Returns:
        The id, or a number of 256 bits.

    Raises:
        SafeError: another program has put something else in the secret's place.
        NodePermissionException: the secret cannot be read or written.
    """
    return organization if folder is None or not policy.own_split else folder.derived("rows", b"")


def split(n: int, holdout: float, identity: int, step: int = 10) -> tuple[Array, Array]:
    """Choose which rows are held out.

    Their number is a multiple of ``step``, and they are chosen in the same order in all jobs: otherwise two jobs whose
    splits differ by one row would reveal this row.

    Args:
        n: number of rows.
        holdout: the share to hold out.
        identity: the node's, see ``identity_of``.
        step: the node's minimum of rows. If there are fewer than two such steps, no row is held out.

    Returns:
        The indices of the rows to train on, and of those held out, both ascending.
    """
    held = held_out(n, holdout, step)
    order = generator(0, "holdout", identity).permutation(n)
    return np.sort(order[held:]), np.sort(order[:held])


def ready(
    features: Features,
    steps: Sequence[dict[str, Any]],
    between: Callable[[Features], Features] = lambda features: features,
    missing: bool = False,
) -> Array:
    """Prepare features for a model.

    Args:
        features: the features before any step.
        steps: fitted steps.
        between: what is done before the first step, after each, and at the end.
        missing: whether the model takes missing values, NaN.

    Returns:
        The features after the steps, (n, d) float32, read-only.

    Raises:
        DataError: values are missing, infinite or not numbers after the steps.
    """
    features = preprocessing.apply(features, steps, between)
    features.check_complete(missing=missing)
    X = np.ascontiguousarray(features.X, dtype=np.float32)
    if features.X.dtype != X.dtype:
        X = between(replace(features, X=X)).X  # again: of large numbers, float32 may tell apart only a few
    X.setflags(write=False)
    return X
