"""The policy of a node's operator: limits that are checked before anything is computed.

A request can make a limit stricter, never looser. No error quotes a value of a row.
"""

import functools
import math
import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from v6_federated.base.arrays import Array
from v6_federated.base.vantage6_api import NodePermissionException, PrivacyThresholdViolation
from v6_federated.rules.environment import read_environment
from v6_federated.rules.limits import LIMITS, MOST_MADE, PREFIX

# invisible characters: Unicode's Default_Ignorable_Code_Point that are not of category Cf, and the blank of Braille
UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u2800\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8"
    "\U000e0000-\U000e0fff]"
)

# Limits that only say whether a request is answered, before a row is read: one that is answered has the same answer
# under all of their values. An operator may change them while a job runs.
ASKED_FIRST = {
    *("aggregation", "minimum_organizations", "minimum_sample", "maximum_rounds", "maximum_rounds_a_week"),
    *("epsilon", "delta", "epsilon_per_job", "allow_queries", "own_results"),
}
JOB_SHARE = 1 / 3  # of the budget, for a job: a first job must not be able to take all of it


@dataclass(frozen=True)
class Policy:
    """The operator's limits. ``limits.LIMITS`` has what each does, and its value in each profile.

    Attributes:
        profile: the profile that sets all limits that have no variable of their own.
        aggregation: what central may see of this node's answers, one of ``limits.MODES``.
        minimum_rows: rows that a node must have to train, to evaluate and to compute statistics; rows are held out in
            multiples of it.
        minimum_rows_a_class: rows that must share a label's value before the value is sent to the server.
        classes: classes that a task may name although too few rows have them; None means all.
        maximum_classes: values that a label may have if they are to be sent to the server.
        minimum_rows_a_side: rows that must differ from all others in a column of numbers; 0 means any number.
        minimum_rows_a_column: rows for each column of a covariance; 0 means any number.
        minimum_batch: rows that a minibatch must have.
        own_shuffle: whether the node shuffles its rows by random numbers of its own instead of the job's seed.
        maximum_holdout: percentage of the rows that may be held out; None means any.
        minimum_organizations: organizations that must take part in a job.
        minimum_sample: organizations that must be asked in a round.
        maximum_local_steps: local steps that a request may ask for; None means any number.
        maximum_parameters: parameters that a model or a covariance may have; None means any number.
        round_evaluations: whether evaluations are rounded to what the number of rows can justify.
        score_bands: bands in which scores of held-out rows are counted for the AUC; 0 means that they are not counted.
        own_results: whether a result may show this hospital's own evaluation.
        maximum_rounds: rounds that a job may have; None means any number.
        maximum_rounds_a_week: requests of all jobs in seven days; None means any number.
        maximum_seconds: seconds that a task may compute; None means any number.
        epsilon: the privacy budget of all jobs; None means that none is counted.
        delta: its delta.
        epsilon_per_job: the part of it that one job may take; None means a third.
        allowed_columns: columns that a request may use; None means all.
        disallowed_columns: columns that a request may not use.
        allow_queries: whether a task may bring a query or choose a sheet.
        allow_numeric_names: whether columns may have names that look like a row of a table without a header.
    """

    profile: str
    aggregation: str
    minimum_rows: int
    minimum_rows_a_class: int
    classes: frozenset[str] | None
    maximum_classes: int
    minimum_rows_a_side: int
    minimum_rows_a_column: int
    minimum_batch: int
    own_shuffle: bool
    maximum_holdout: int | None
    minimum_organizations: int
    minimum_sample: int
    maximum_local_steps: int | None
    maximum_parameters: int | None
    round_evaluations: bool
    score_bands: int
    own_results: bool
    maximum_rounds: int | None
    maximum_rounds_a_week: int | None
    maximum_seconds: int | None
    epsilon: float | None
    delta: float | None
    epsilon_per_job: float | None
    allowed_columns: frozenset[str] | None
    disallowed_columns: frozenset[str]
    allow_queries: bool
    allow_numeric_names: bool

    @classmethod
    def of(cls, profile: str, **changes: Any) -> "Policy":
        """The limits of a profile."""
        return replace(_of_profile(profile), **changes)

    @classmethod
    def of_node(cls, environment: Mapping[str, str] | None = None) -> "Policy":
        """Read the limits of a node."""
        env = os.environ if environment is None else environment
        return _of_variables(tuple((name, text) for name, text in env.items() if name.upper().startswith(PREFIX)))

    @property
    def private(self) -> bool:
        """Whether everything that leaves must be covered by noise, and counted against a budget."""
        return self.profile == "private"

    @property
    def epsilon_of_a_job(self) -> float | None:
        """What one job may take of the budget; None without a budget."""
        return self.epsilon_per_job or (None if self.epsilon is None else self.epsilon * JOB_SHARE)

    @property
    def counts(self) -> bool:
        """Whether the limits need what a node remembers of earlier requests: their number, or its secret."""
        limited = self.maximum_rounds is not None or self.maximum_rounds_a_week is not None
        return limited or self.own_shuffle or self.profile != "trusting"

    @property
    def own_split(self) -> bool:
        """Whether which rows are held out follows from the node's secret, and not from its organization's id."""
        return self.own_shuffle or self.private

    @property
    def deciding(self) -> dict[str, Any]:
        """The limits on which the answer to a request hangs, as JSON."""
        found = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in ASKED_FIRST}
        return {name: sorted(value) if isinstance(value, frozenset) else value for name, value in found.items()}

    def looser(self) -> list[str]:
        """Name the limits that allow more than the profile does."""
        own = Policy.of(self.profile)
        named = ((limit, limit.name.lower()) for limit in LIMITS)
        return [limit.name for limit, name in named if limit.looser(getattr(self, name), getattr(own, name))]

    def check_request(self, minimum_rows: int | None, participants: int, rounds: int) -> None:
        """Refuse a request that would loosen a limit, has too few participants or too many rounds."""
        if minimum_rows is not None and minimum_rows < self.minimum_rows:
            raise PrivacyThresholdViolation(
                f"the request asks for minimum_rows={minimum_rows}, but this node requires {self.minimum_rows} rows "
                f"({PREFIX}MINIMUM_ROWS) and a request can only raise it; leave minimum_rows out"
            )
        self.check_participants(participants)
        if self.maximum_rounds is not None and rounds > self.maximum_rounds:
            raise PrivacyThresholdViolation(
                f"{rounds} rounds are more than the {self.maximum_rounds} that this node allows "
                f"({PREFIX}MAXIMUM_ROUNDS); ask for fewer rounds"
            )

    def check_holdout(self, holdout: float) -> None:
        """Refuse to hold out so many rows that few are left to train on."""
        if self.maximum_holdout is not None and holdout * 100 > self.maximum_holdout:
            raise PrivacyThresholdViolation(
                f"holdout={holdout:g} is more than the {self.maximum_holdout}% that this node allows "
                f"({PREFIX}MAXIMUM_HOLDOUT); hold out fewer rows"
            )

    def check_participants(self, participants: int) -> None:
        """Refuse a job with fewer organizations than the minimum."""
        if participants < self.minimum_organizations:
            raise PrivacyThresholdViolation(
                f"only {participants} organization(s) take part, but this node requires {self.minimum_organizations} "
                f"({PREFIX}MINIMUM_ORGANIZATIONS); ask more organizations"
            )

    def check_sample(self, asked: int, of: int) -> None:
        """Refuse rounds in which fewer organizations are asked than the minimum."""
        if asked < min(self.minimum_sample, of):  # how many may take part is another limit
            enough = math.ceil(100 * self.minimum_sample / of) / 100
            cure = f"fraction={enough:g} or more" if enough < 1 else "fraction=1"
            raise PrivacyThresholdViolation(
                f"the job's fraction asks {asked} of {of} organizations in a round, and the node where central runs "
                f"requires {self.minimum_sample} ({PREFIX}MINIMUM_SAMPLE); set {cure}"
            )

    def check_columns(self, columns: Iterable[str], twins: Iterable[str] = ()) -> None:
        """Refuse columns that the operator does not allow."""
        refused = [c for c in map(str.strip, columns) if not self._may_use(c)]
        refused += [f"{c} (twice in the file)" for c in map(str.strip, twins) if self._disallowed(c)]
        if refused:
            raise PrivacyThresholdViolation(
                f"the column(s) {', '.join(refused)} may not be used at this node ({PREFIX}ALLOWED_COLUMNS, "
                f"{PREFIX}DISALLOWED_COLUMNS); name others with --features and --label"
            )

    def permitted(self, columns: Iterable[str], twins: Callable[[Sequence[str]], Sequence[str]]) -> list[str]:
        """Choose the columns that the operator allows."""
        found = [c for c in columns if self._may_use(c.strip()) and not any(map(self._disallowed, twins([c])))]
        if not found:
            raise PrivacyThresholdViolation(
                f"no column of the table may be used at this node ({PREFIX}ALLOWED_COLUMNS, "
                f"{PREFIX}DISALLOWED_COLUMNS); ask its operator"
            )
        return found

    @functools.cached_property
    def _disallowed_alike(self) -> set[str]:
        return {_read_alike(name) for name in self.disallowed_columns}

    def _may_use(self, column: str) -> bool:
        return not self._disallowed(column) and (self.allowed_columns is None or column in self.allowed_columns)

    def _disallowed(self, column: str) -> bool:
        parts = {_read_alike(part) for part in column.split(",")} - {""}  # the list divides a name at its commas
        return bool(parts) and parts <= self._disallowed_alike

    def check_seconds(self, seconds: float) -> None:
        """End a task that takes longer than the operator allows."""
        if self.maximum_seconds is not None and seconds > self.maximum_seconds:
            raise NodePermissionException(
                f"the task takes longer than {self.maximum_seconds} s ({PREFIX}MAXIMUM_SECONDS); ask for fewer epochs "
                "or trees a round, or for a smaller model"
            )

    def least_batch(self, weights: Sequence[float]) -> int:
        """Count the rows that a minibatch of a study must have, whatever classes they have: no row decides it."""
        a, b = min(weights), max(weights)
        least = self.minimum_batch
        return least if least <= 1 else math.ceil(round(least * (a + b) ** 2 / (4 * a * b), 6))

    def check_batch(self, batch_size: int, least: int = 0) -> None:
        """Refuse minibatches of fewer rows than the minimum, as a step on one row is that row's gradient."""
        if batch_size < self.minimum_batch:
            raise PrivacyThresholdViolation(
                f"batch_size={batch_size} is below the {self.minimum_batch} rows that this node requires "
                f"({PREFIX}MINIMUM_BATCH); set batch_size={self.minimum_batch} or more"
            )
        if batch_size < least:
            raise PrivacyThresholdViolation(
                f"with these class_weights {batch_size} rows of this node count as fewer than {self.minimum_batch} "
                f"({PREFIX}MINIMUM_BATCH); set a larger batch_size, or weights that differ less"
            )

    def check_local_steps(self, steps: int | None, minibatches: bool = False) -> None:
        """Refuse more local steps than the operator allows, as a mean of several steps is no sum over rows."""
        most = self.maximum_local_steps
        if most is None or (steps is not None and steps <= most and not (minibatches and most == 1)):
            return
        if steps is not None and steps <= most:
            said, cure = "local steps on minibatches are", "leave batch_size and local_steps out, and set epochs=1"
        elif steps is None:
            said = "a batch_size without local_steps may ask for"
            cure = f"set local_steps={most}, or leave batch_size out"
        else:
            said, cure = f"{steps} local steps are", f"set epochs or local_steps to {most} or fewer"
        raise PrivacyThresholdViolation(
            f"{said} more than the {most} that this node allows a request ({PREFIX}MAXIMUM_LOCAL_STEPS); {cure}"
        )

    def check_leaf(self, min_rows_leaf: int, minimum_rows: int | None) -> int:
        """Refuse leaves of fewer rows than the minimum, as a leaf's output is a statistic of its rows."""
        required = max(self.minimum_rows, minimum_rows or 0)
        if min_rows_leaf < required:
            raise PrivacyThresholdViolation(
                f"min_rows_leaf={min_rows_leaf} is below the {required} rows that this node requires "
                f"({PREFIX}MINIMUM_ROWS, or minimum_rows of the request); set min_rows_leaf={required} or more"
            )
        return required

    @property
    def most_classes(self) -> int:
        """How many classes a task may name: at least the profile's number, which other nodes may allow."""
        return max(self.maximum_classes, Policy.of(self.profile).maximum_classes)

    def check_labels(self, rows: int, values: int, named: int) -> None:
        """Refuse a label that is not a class, even if the request names its values.

        A model has parameters of its own for each value, and those of a value that only one row has reveal the row.
        """
        if named > self.most_classes:
            raise PrivacyThresholdViolation(
                f"the request names {named} classes, but this node accepts at most {self.most_classes} "
                f"({PREFIX}MAXIMUM_CLASSES); choose a label with fewer"
            )
        if values * self.minimum_rows_a_class > rows:
            raise PrivacyThresholdViolation(
                f"the label has fewer than {self.minimum_rows_a_class} rows per value on average at this node "
                f"({PREFIX}MINIMUM_ROWS_A_CLASS); choose a column of classes"
            )

    def check_levels(self, named: int) -> None:
        """Refuse to count rows by very many levels."""
        if named > self.most_classes:
            raise PrivacyThresholdViolation(
                f"the request names {named} levels of the subgroup's column, but this node accepts at most "
                f"{self.most_classes} ({PREFIX}MAXIMUM_CLASSES); choose a column with fewer"
            )

    def check_named_classes(self, rows: Mapping[Any, int]) -> None:
        """Refuse classes that too few of the node's rows have: their parameters would single out rows.

        The error does not say which class it is or how many rows have it.
        """
        if self.classes is None:
            return
        if any(n < self.minimum_rows_a_class and str(named) not in self.classes for named, n in rows.items()):
            raise PrivacyThresholdViolation(
                f"the job has a class that fewer than {self.minimum_rows_a_class} rows to train on have at this node "
                f"({PREFIX}MINIMUM_ROWS_A_CLASS); leave this organization out, or ask its operator to allow the job's "
                f"classes ({PREFIX}CLASSES=NAME,NAME,..., or * for all)"
            )

    def check_weights(
        self, rows: Sequence[int], weights: Sequence[float], minimum_rows: int | None, whose: str = "this node's"
    ) -> float:
        """Refuse weights with which a gradient would be about few rows."""
        required = max(self.minimum_rows, minimum_rows or 0)
        total = sum(n * w for n, w in zip(rows, weights, strict=True))
        squares = sum(n * w**2 for n, w in zip(rows, weights, strict=True))
        if total**2 < required * squares:
            raise PrivacyThresholdViolation(
                f"with these class_weights {whose} rows count as fewer than {required} ({PREFIX}MINIMUM_ROWS); "
                "set weights that differ less, or class_weights=balanced"
            )
        return total**2 / squares / sum(rows) if squares else 1.0

    def check_size(self, parameters: int, what: str) -> None:
        """Refuse what has too many numbers, before it takes memory."""
        if self.maximum_parameters is not None and parameters > self.maximum_parameters:
            raise PrivacyThresholdViolation(
                f"{what} has {parameters} numbers, more than the {self.maximum_parameters} that this node allows "
                f"({PREFIX}MAXIMUM_PARAMETERS); use fewer columns or a smaller model"
            )

    def check_made(self, columns: int) -> None:
        """Refuse steps that make very many columns, before these take memory."""
        if self.maximum_parameters is not None and columns > MOST_MADE:
            raise PrivacyThresholdViolation(
                f"the job's steps make {columns} columns of levels, and this node allows {MOST_MADE}; leave out "
                "columns with many levels (--exclude)"
            )

    def check_wide(self, rows: int, columns: int) -> None:
        """Refuse covariances of more columns than the rows can justify: the rows follow from them."""
        if columns * self.minimum_rows_a_column > rows:
            raise PrivacyThresholdViolation(
                f"the covariance of {columns} columns needs {self.minimum_rows_a_column} rows for each column, and "
                f"this node has fewer ({PREFIX}MINIMUM_ROWS_A_COLUMN); name fewer columns with --features"
            )

    def check_classes(self, classes: int, column: str = "the label") -> None:
        """Refuse to name the values of a column that has too many of them to hold classes or categories."""
        if classes > self.maximum_classes:
            raise PrivacyThresholdViolation(
                f"{column} has more than {self.maximum_classes} values ({PREFIX}MAXIMUM_CLASSES); choose a column of "
                + ("classes, or name its values with classes" if column == "the label" else "categories")
            )

    def check_values(self, columns: Sequence[str]) -> None:
        """Refuse statistics of columns in which too few rows have a value."""
        if columns:
            named = ",".join(columns)
            raise PrivacyThresholdViolation(
                f"fewer than {self.minimum_rows} rows have a value in the column(s) {', '.join(columns)} "
                f"({PREFIX}MINIMUM_ROWS); leave them out (--exclude {named}), let them count as empty here "
                f"(--preprocess missing_indicator:{named} before other steps), or leave this organization out "
                "(--set organizations=...)"
            )

    def check_marks(self, column: str, marks: int) -> None:
        """Refuse a column of weights or offsets that marks few rows: in sums, these would stand for themselves."""
        if marks:
            raise PrivacyThresholdViolation(
                f"in the column {column}, fewer than {self.minimum_rows_a_side} rows differ from the value that all "
                f"others have ({PREFIX}MINIMUM_ROWS_A_SIDE); leave it out, or leave this organization out"
            )

    def check_events(self, events: int) -> None:
        """Refuse sums over few events: the gradient of a partial likelihood is one over the rows that have some."""
        if events < self.minimum_rows_a_side:
            raise PrivacyThresholdViolation(
                f"fewer than {self.minimum_rows_a_side} rows of this node have the event ({PREFIX}MINIMUM_ROWS_A_SIDE);"
                " leave this organization out (--set organizations=...)"
            )

    def check_events_of_groups(self, events: Sequence[int]) -> None:
        """Refuse counts of events by group if some group has a few. Without them, its curve would be too good."""
        if any(0 < n < self.minimum_rows_a_side for n in events):
            of_a_group = " of a group" if len(events) > 1 else ""
            groups = "leave subgroup out, name a column with larger groups, " if len(events) > 1 else ""
            raise PrivacyThresholdViolation(
                f"fewer than {self.minimum_rows_a_side} rows{of_a_group} have the event while enough of them are "
                f"followed ({PREFIX}MINIMUM_ROWS_A_SIDE); {groups}leave this organization out (--set "
                "organizations=...), or ask the hospitals for a study, whose sums hold what few rows tell"
            )

    def check_batch_events(self, events: int) -> None:
        """Refuse a step over few events, as ``check_events`` does for all rows."""
        if events < self.minimum_rows_a_side:
            raise PrivacyThresholdViolation(
                f"fewer than {self.minimum_rows_a_side} rows of a minibatch have the event "
                f"({PREFIX}MINIMUM_ROWS_A_SIDE); set a larger batch_size, or batch_size=none for all rows of a node"
            )

    def check_dominance(self, weights: Array, remedy: str) -> None:
        """Refuse sums in which few rows weigh more than all others: they would describe these rows.

        Args:
            weights: what each row weighs, from 0 (n,). Of equal weights, (sum w)^2 / sum w^2 is their number.
            remedy: why that happens, and what a researcher can do except leaving the organization out.
        """
        if self.minimum_rows_a_side and not _rows_that_weigh(weights) >= self.minimum_rows_a_side:
            raise PrivacyThresholdViolation(
                f"the sums would be about fewer than {self.minimum_rows_a_side} rows, as all others have hardly any "
                f"weight in them ({PREFIX}MINIMUM_ROWS_A_SIDE). {remedy}, or leave this organization out "
                "(--set organizations=...)"
            )

    def check_bins(self, weights: Array) -> None:
        """Refuse sums by bin in which one row weighs more than all others together.

        Args:
            weights: what each row weighs in each bin, from 0 (n, B).
        """
        if self.minimum_rows_a_side and not all(_rows_that_weigh(bin_) >= 2 for bin_ in weights.T if bin_.any()):
            raise PrivacyThresholdViolation(
                f"in some bin of time, one row would outweigh all others ({PREFIX}MINIMUM_ROWS_A_SIDE); set fewer "
                "bins, leave out columns, or leave this organization out"
            )

    def check_rows(self, rows: int, minimum_rows: int | None) -> None:
        """Refuse fewer rows than the minimum, without saying how many there are."""
        required = max(self.minimum_rows, minimum_rows or 0)
        if rows < required:
            raise PrivacyThresholdViolation(
                f"fewer than {required} rows to compute on ({PREFIX}MINIMUM_ROWS, or minimum_rows of the request); "
                "leave this organization out (--set organizations=...), or lower holdout if rows are held out"
            )


@functools.lru_cache(maxsize=64)
def _of_variables(variables: tuple[tuple[str, str], ...]) -> Policy:
    profile, values = read_environment(dict(variables))
    return Policy(profile, **values)


@functools.cache
def _of_profile(profile: str) -> Policy:
    budget = {PREFIX + "EPSILON": "1", PREFIX + "DELTA": "1e-5"} if profile == "private" else {}
    return replace(Policy.of_node({PREFIX + "PROFILE": profile, **budget}), epsilon=None, delta=None)


def _rows_that_weigh(weights: Array) -> float:
    """(sum w)^2 / sum w^2, for weights of any size; 0 if all are 0, or some not finite."""
    largest = float(weights.max(initial=0.0))
    if not 0 < largest < math.inf:
        return 0.0
    relative = weights / largest  # squares of very small or large weights could not be told from 0, or compared
    return float(relative.sum()) ** 2 / float(relative @ relative)


def _read_alike(column: str) -> str:
    """The same text for all names that look alike: of another case, or with invisible characters."""
    plain = unicodedata.normalize("NFKC", UNSEEN.sub("", column))
    seen = "".join(c for c in plain if unicodedata.category(c) not in ("Cc", "Cf"))
    return unicodedata.normalize("NFKC", seen.casefold()).strip()
