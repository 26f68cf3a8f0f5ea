"""What a node's operator allows: read from the node's environment, checked before anything is computed or returned.

A request can make a limit stricter, never looser. No message holds a value of a row.
"""

import difflib
import os
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from v6_federated.base.vantage6_api import NodePermissionException, PrivacyThresholdViolation

PREFIX = "V6_FEDERATED_"
LIMITS = (
    "MINIMUM_ROWS",
    "MINIMUM_ROWS_A_CLASS",
    "MINIMUM_BATCH",
    "MAXIMUM_CLASSES",
    "MINIMUM_ORGANIZATIONS",
    "MAXIMUM_ROUNDS",
    "MAXIMUM_SECONDS",
    "ALLOWED_COLUMNS",
    "DISALLOWED_COLUMNS",
    "SCORE_BANDS",
    "ALLOW_QUERIES",
    "OWN_SHUFFLE",
)
OTHERS = ("DEBUG", "DEVICE", "THREADS")
RESEARCHERS = ("PASSWORD", "NETWORK")
MOST_BANDS = 10_000
# Unicode's Default_Ignorable_Code_Point where it is not of category Cf, and the empty pattern of Braille
UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u2800\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8"
    "\U000e0000-\U000e0fff]"
)


def number_of_threads() -> int:
    """``V6_FEDERATED_THREADS``, 1 where the operator sets none. Raises NodePermissionException if it cannot be read."""
    text = os.environ.get(PREFIX + "THREADS", "").strip() or "1"
    if not text.isdigit() or int(text) < 1:
        raise NodePermissionException(f"{PREFIX}THREADS of this node is not a whole number from 1; nothing is computed")
    return int(text)


@dataclass(frozen=True)
class Policy:
    """The operator's limits.

    Attributes:
        minimum_rows: rows a node must train, evaluate or compute statistics on; held-out rows come in multiples of it.
        minimum_rows_a_class: rows that must have a label's value before it is named to the server.
        minimum_batch: rows that a minibatch must be asked to have.
        maximum_classes: values a label may have for them to be named.
        minimum_organizations: participants a job must have.
        maximum_rounds: rounds a job may have; None is any number.
        maximum_seconds: that the training of one task may take; None is any number.
        allowed_columns, disallowed_columns: columns a request may, may not name; allowed None is all.
        score_bands: bands in which the scores of held-out rows are counted for the AUC; 0 is none.
        own_shuffle: whether rows are shuffled by chance of the node's own, and not from the job's seed.
    """

    minimum_rows: int = 10
    minimum_rows_a_class: int = 3
    maximum_classes: int = 100
    minimum_batch: int = 1
    minimum_organizations: int = 3
    maximum_rounds: int | None = None
    maximum_seconds: int | None = None
    allowed_columns: frozenset[str] | None = None
    disallowed_columns: frozenset[str] = frozenset()
    score_bands: int = 64
    own_shuffle: bool = False

    @classmethod
    def of_node(cls, environment: Mapping[str, str] | None = None) -> "Policy":
        """The limits in the environment. Raises NodePermissionException if one cannot be read."""
        env = os.environ if environment is None else environment
        known = (*LIMITS, *OTHERS, *RESEARCHERS)
        for unknown in sorted(n for n in env if n.startswith(PREFIX) and n.removeprefix(PREFIX) not in known):
            # a limit that is misspelt limits nothing, and its operator would not know
            near = difflib.get_close_matches(unknown.removeprefix(PREFIX), (*LIMITS, *OTHERS), n=1) or LIMITS
            expected = ", ".join(PREFIX + name for name in near)
            raise NodePermissionException(f"{unknown} is no limit of a node; expected {expected}; nothing is computed")

        def number(name: str, default: int | None) -> int | None:
            text = env.get(PREFIX + name, "").strip()
            if not text:
                return default
            if not text.isdigit():
                raise NodePermissionException(
                    f"{PREFIX}{name} of this node is not a whole number from 0; nothing is computed"
                )
            return int(text)

        def columns(name: str) -> frozenset[str] | None:
            text = env.get(PREFIX + name, "")
            return frozenset(c.strip() for c in text.split(",") if c.strip()) if text.strip() else None

        score_bands = number("SCORE_BANDS", cls.score_bands) or 0
        if score_bands > MOST_BANDS:
            raise NodePermissionException(
                f"{PREFIX}SCORE_BANDS={score_bands} of this node is refused; expected {MOST_BANDS} at most"
            )

        if not re.fullmatch("|cpu|cuda(:[0-9]+)?", device := env.get(PREFIX + "DEVICE", "")):
            raise NodePermissionException(f"{PREFIX}DEVICE={device} of this node is refused; expected cpu or cuda")
        return cls(
            minimum_rows=number("MINIMUM_ROWS", cls.minimum_rows) or 1,
            minimum_rows_a_class=number("MINIMUM_ROWS_A_CLASS", cls.minimum_rows_a_class) or 1,
            minimum_batch=number("MINIMUM_BATCH", cls.minimum_batch) or 1,
            maximum_classes=number("MAXIMUM_CLASSES", cls.maximum_classes) or 0,
            minimum_organizations=number("MINIMUM_ORGANIZATIONS", cls.minimum_organizations) or 1,
            maximum_rounds=number("MAXIMUM_ROUNDS", None),
            maximum_seconds=number("MAXIMUM_SECONDS", None),
            allowed_columns=columns("ALLOWED_COLUMNS"),
            disallowed_columns=columns("DISALLOWED_COLUMNS") or frozenset(),
            score_bands=score_bands,
            own_shuffle=bool(number("OWN_SHUFFLE", 0)),
        )

    def check_request(self, minimum_rows: int | None, participants: int, rounds: int) -> None:
        """Refuse a request that asks to loosen a limit, has too few participants or too many rounds."""
        if minimum_rows is not None and minimum_rows < self.minimum_rows:
            raise PrivacyThresholdViolation(
                f"the request asks for a minimum of {minimum_rows} rows, this node's is {self.minimum_rows} "
                f"({PREFIX}MINIMUM_ROWS) and a request can only raise it"
            )
        self.check_participants(participants)
        if self.maximum_rounds is not None and rounds > self.maximum_rounds:
            raise PrivacyThresholdViolation(
                f"{rounds} rounds are more than the {self.maximum_rounds} this node allows ({PREFIX}MAXIMUM_ROUNDS)"
            )

    def check_participants(self, participants: int) -> None:
        """Refuse a job with fewer organizations than the minimum."""
        if participants < self.minimum_organizations:
            raise PrivacyThresholdViolation(
                f"{participants} organization(s) take part, at least {self.minimum_organizations} must "
                f"({PREFIX}MINIMUM_ORGANIZATIONS)"
            )

    def check_columns(self, columns: Iterable[str], twins: Iterable[str] = ()) -> None:
        """Refuse columns that the operator does not allow, and those that had the name of one before pandas renamed
        them (``twins``)."""

        listed = {_read_alike(column) for column in self.disallowed_columns}

        def disallowed(column: str) -> bool:
            parts = {_read_alike(part) for part in column.split(",")} - {""}  # a name with a comma is listed in parts
            return bool(parts) and parts <= listed

        refused = [
            c
            for c in map(str.strip, columns)
            if disallowed(c) or (self.allowed_columns is not None and c not in self.allowed_columns)
        ]
        refused += [f"{c} (twice in the file)" for c in map(str.strip, twins) if disallowed(c)]
        if refused:
            raise PrivacyThresholdViolation(
                f"the column(s) {', '.join(refused)} may not be used at this node "
                f"({PREFIX}ALLOWED_COLUMNS, {PREFIX}DISALLOWED_COLUMNS)"
            )

    def check_seconds(self, seconds: float) -> None:
        """End a task that takes longer than the operator allows."""
        if self.maximum_seconds is not None and seconds > self.maximum_seconds:
            raise NodePermissionException(
                f"the task takes longer than {self.maximum_seconds} s ({PREFIX}MAXIMUM_SECONDS); expected fewer epochs "
                "or trees a round, or a smaller model"
            )

    def check_batch(self, batch_size: int) -> None:
        """Refuse minibatches of fewer rows than the minimum: a step on one row is that row's gradient."""
        if batch_size < self.minimum_batch:
            raise PrivacyThresholdViolation(
                f"batch_size={batch_size} is below the {self.minimum_batch} this node asks for ({PREFIX}MINIMUM_BATCH)"
            )

    def check_leaf(self, min_rows_leaf: int, minimum_rows: int | None) -> int:
        """Refuse leaves of fewer rows than the minimum, and return that: a leaf's output is a statistic of its rows."""
        required = max(self.minimum_rows, minimum_rows or 0)
        if min_rows_leaf < required:
            raise PrivacyThresholdViolation(
                f"min_rows_leaf={min_rows_leaf} is below the {required} rows that this node asks for "
                f"({PREFIX}MINIMUM_ROWS or the request's minimum_rows)"
            )
        return required

    @property
    def most_classes(self) -> int:
        """How many classes a task may name: other nodes may have named as many as they do without a limit."""
        return max(self.maximum_classes, Policy.maximum_classes)

    def check_labels(self, rows: int, values: int, named: int) -> None:
        """Refuse a label that is no class, also where the request names its values: a model has parameters of its own
        for each, from which a row could be read that is the only one of its value."""
        if named > self.most_classes:
            raise PrivacyThresholdViolation(
                f"the request names {named} classes; expected {self.most_classes} at most ({PREFIX}MAXIMUM_CLASSES)"
            )
        if values * self.minimum_rows_a_class > rows:
            raise PrivacyThresholdViolation(
                f"the label has fewer than {self.minimum_rows_a_class} rows a value on the average at this node "
                f"({PREFIX}MINIMUM_ROWS_A_CLASS); expected a column of classes"
            )

    def check_classes(self, classes: int, column: str = "the label") -> None:
        """Refuse to name the values of a label, or of a column, that has too many of them to be one of categories."""
        if classes > self.maximum_classes:
            raise PrivacyThresholdViolation(
                f"{column} has more than {self.maximum_classes} values ({PREFIX}MAXIMUM_CLASSES); expected "
                + ("classes, or their values in the request's `classes`" if column == "the label" else "categories")
            )

    def check_values(self, columns: Sequence[str]) -> None:
        """Refuse statistics of columns in which some, but too few, rows have a value."""
        if columns:
            raise PrivacyThresholdViolation(
                f"fewer than {self.minimum_rows} rows have a value in the column(s) {', '.join(columns)} "
                f"({PREFIX}MINIMUM_ROWS); leave the columns out"
            )

    def check_rows(self, rows: int, minimum_rows: int | None) -> None:
        """Refuse fewer rows than the minimum, without saying how many there are."""
        required = max(self.minimum_rows, minimum_rows or 0)
        if rows < required:
            raise PrivacyThresholdViolation(
                f"fewer than {required} rows to compute on ({PREFIX}MINIMUM_ROWS or the request's minimum_rows)"
            )


def _read_alike(column: str) -> str:
    """The same text for names that a reader takes for one: of other case, with signs that are not seen."""
    plain = unicodedata.normalize("NFKC", UNSEEN.sub("", column))
    seen = "".join(c for c in plain if unicodedata.category(c) not in ("Cc", "Cf"))
    return unicodedata.normalize("NFKC", seen.casefold()).strip()
