"""What nodes say of their data before the first round, and what all of them agree on: columns, classes and levels."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from v6_federated.base.errors import SafeError
from v6_federated.base.tables import MARKS
from v6_federated.base.text import MOST_TEXT, shortened
from v6_federated.base.vantage6_api import CollectResultsError
from v6_federated.central.answer import Answer, Expected
from v6_federated.central.calls import Group
from v6_federated.data.reading import KINDS
from v6_federated.masks.agreement import Entry
from v6_federated.masks.study import TOTALS
from v6_federated.messages.job import MODES, Job
from v6_federated.messages.result import MOST_CROSSED, crossed
from v6_federated.rules.limits import MOST_BANDS
from v6_federated.rules.policy import Policy

Ask = Callable[[Group], list[Answer]]  # returns usable answers, enough of them, by ascending id
OF_DATA = ("label", "features", "kinds", "marks", "classes", "levels", "bounds", "absent", "subgroup")
OF_BLOCKS = ("mode", "entry", "block", "score_bands", "hospital_totals")


def describe(job: Job, raw: bool, ask: Ask, organizations: Sequence[int] | None = None) -> list[Answer]:
    """Have the nodes describe their data."""
    asked = job.data.supervised and not job.data.regression and job.data.classes is None
    most = Policy.of_node().most_classes  # the limit of the node where central runs
    expected = Expected(
        parts=frozenset((*OF_DATA, *OF_BLOCKS)),
        minimum_rows=job.minimum_rows or 1,
        validate=lambda answer: _wrong(answer.values, raw, asked, most),
        without_rows=job.aggregation != "plain",
    )
    who = job.participants if organizations is None else organizations
    return ask(Group("describe", who, job, {"raw": raw}, expected=expected))


# ---- what one node says


def _wrong(values: Mapping[str, Any], raw: bool, classes_asked: bool, most: int) -> str | None:
    """What is wrong with a node's answer to ``describe``, if anything."""
    features = values.get("features")
    names = {name for name in features if isinstance(name, str)} if isinstance(features, list) else set()
    named = isinstance(features, list) and len(names) == len(features)
    classes = values.get("classes", None if classes_asked else [])
    proper = isinstance(classes, list) and all(map(_is_class, classes))
    if proper and len(classes) > most:
        return f"named {len(classes)} classes; expected {most} at most (MAXIMUM_CLASSES at the node where central runs)"
    if not (named or type(features) is int) or not proper or not isinstance(values.get("label"), str | None):
        return "sent a malformed data description; expected features, label and classes"
    return (
        (_wrong_kinds(values.get("kinds"), names) if raw and named else None)
        or _wrong_names(values.get("subgroup", []), values.get("absent", []), most)
        or _wrong_greeting(values)
        or _wrong_marks(values.get("marks", {}), names)
    )


def _wrong_kinds(kinds: Any, names: Collection[str]) -> str | None:
    if not (isinstance(kinds, dict) and sorted(kinds) == sorted(KINDS)):
        return "did not sort its columns into words, mixed and empty; expected kinds"
    if not all(isinstance(columns, list) and {*map(str, columns)} <= {*names} for columns in kinds.values()):
        return "sent the kind of columns that are not its features; expected some of them"
    return None


def _wrong_names(levels: Any, absent: Any, most: int) -> str | None:
    if not isinstance(levels, list) or not all(map(_is_text, levels)):
        return "sent malformed levels of the subgroup's column; expected texts"
    if len(levels) > most:
        return f"named {len(levels)} levels of the subgroup's column; expected {most} at most"
    return None if isinstance(absent, list) else "did not say which excluded columns it lacks; expected a list"


def _wrong_greeting(values: Mapping[str, Any]) -> str | None:
    mode = values.get("mode", "plain")
    if mode not in MODES or (mode != "plain" and not _is_hello(values)):
        return "sent a malformed greeting; expected mode, entry, block and score_bands"
    return None


def _wrong_marks(marks: Any, names: Collection[str]) -> str | None:
    if not isinstance(marks, dict) or not {*marks} <= {*names} or not all(mark in MARKS for mark in marks.values()):
        return "sent marks for missing values that are none, or of columns that are not its features"
    return None


def _is_hello(values: Mapping[str, Any]) -> bool:
    """Whether a description holds the node's keys, and levels by column."""
    block, levels = values.get("block"), values.get("levels", {})
    texts = isinstance(block, list) and all(isinstance(S, str) for S in block)
    bands = values.get("score_bands")
    counted = type(bands) is int and 0 <= bands <= MOST_BANDS
    named = isinstance(levels, dict) and all(
        isinstance(found, list) and all(map(_is_text, found)) for found in levels.values()
    )
    try:
        Entry.from_json(values.get("entry"))
    except SafeError:
        return False
    return texts and named and counted and values.get("hospital_totals") in (None, *TOTALS)


def _is_class(value: Any) -> bool:
    # JSON readers differ on larger numbers
    return type(value) is bool or _is_text(value) or (type(value) in (int, float) and abs(value) < 2**63)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MOST_TEXT


# ---- what all agree on


def same_features(answers: Sequence[Answer]) -> Any:
    """The features, if all nodes have the same ones, in any order."""
    first = answers[0]
    mine = first.values["features"]
    columns = sorted(mine) if isinstance(mine, list) else mine
    for a in answers[1:]:
        other = a.values["features"]
        if columns != (sorted(other) if isinstance(other, list) else other):
            raise CollectResultsError(_difference(answers))
        if first.values["label"] != a.values["label"]:
            raise CollectResultsError(
                f"organizations {first.organization_id} and {a.organization_id} have different last columns; name the "
                "label's column in `label`"
            )
    return mine


def _difference(answers: Sequence[Answer]) -> str:
    """Say which columns some nodes lack, or that nodes hold arrays of different shapes."""
    held = {a.organization_id: a.values["features"] for a in answers}
    if not all(isinstance(own, list) for own in held.values()):
        return "the nodes hold arrays of different shapes, or tables and arrays; expected as many features at all nodes"
    named = {organization: {*own} for organization, own in held.items()}
    shown = []
    for column in sorted(set().union(*named.values())):
        if absent := [organization for organization, own in named.items() if column not in own]:
            shown.append(f"{column!r} is missing at organization{'s' * (len(absent) > 1)} {shortened(absent, 5)}")
    return (
        f"the nodes hold different features: {shortened(shown, 5)}. Name those that all have in `features`, or leave "
        "out the others with `exclude`"
    )


def agreed_classes(answers: Sequence[Answer]) -> list[Any]:
    """The union of the label values that nodes name, sorted."""
    union = {value for a in answers for value in a.values["classes"]}
    if len({isinstance(value, str) for value in union}) > 1:
        raise CollectResultsError(
            "labels are words at some nodes and numbers at others; expected one kind: name another column in `label`"
        )
    if len(union) < 2:
        raise CollectResultsError(
            f"the nodes named {len(union)} class(es) of the label; expected at least 2. A node names a class that "
            "enough of its rows have (V6_FEDERATED_MINIMUM_ROWS_A_CLASS): name all classes in `classes`"
        )
    if len(union) > (most := Policy.of_node().most_classes):
        raise CollectResultsError(
            f"the label has {len(union)} values; expected at most {most} classes (V6_FEDERATED_MAXIMUM_CLASSES at the "
            "node where central runs): name another column in `label`"
        )
    return sorted(union)


def agreed_levels(subgroup: str, classes: Collection[Any], answers: Sequence[Answer]) -> list[str]:
    """The union of the levels that nodes name of the subgroup's column, sorted."""
    levels = sorted({level for a in answers for level in a.values.get("subgroup", ())})
    if not levels:
        raise SafeError(f"subgroup={subgroup}: no organization has a value of it in enough rows; leave it out")
    if len(levels) > (most := Policy.of_node().most_classes):  # who named most may not be honest
        first = max(answers, key=lambda a: len(a.values.get("subgroup", ())))
        raise CollectResultsError(
            f"subgroup={subgroup}: the organizations name {len(levels)} levels in all, and {most} are accepted "
            f"(MAXIMUM_CLASSES at the node where central runs); organization {first.organization_id} names most, "
            f"{len(first.values['subgroup'])}: leave it out (organizations), or choose a column with fewer levels"
        )
    if len(classes) > MOST_CROSSED:
        raise SafeError(crossed(subgroup))
    return levels
