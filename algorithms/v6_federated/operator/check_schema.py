"""The schema: drafted from the hospital's own table, and compared with it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from v6_federated.base.arrays import Array
from v6_federated.base.errors import SafeError
from v6_federated.base.files import write_whole
from v6_federated.base.vantage6_api import PrivacyThresholdViolation
from v6_federated.data.columns import Features
from v6_federated.data.labels import plain
from v6_federated.data.reading import dates, kinds, marks, read_features
from v6_federated.messages.job import DataSpec
from v6_federated.operator.command_line import FAILED, OK, Found, prints
from v6_federated.operator.options import CheckSchemaOptions, NewSchemaOptions
from v6_federated.operator.own_table import opened
from v6_federated.rules import schema
from v6_federated.rules.policy import Policy
from v6_federated.rules.schema import Column, Schema

ARRAYS = "y"  # name of the label if the data are arrays
CODES = 10  # a column of numbers that has at most this many whole ones may hold codes
MOST_SHOWN = 8  # names in one line
MOST_BEYOND = 0.05  # of a column's values: if more are outside what is declared, the table does not fit


@dataclass
class _Draft:
    """What is to be said about a draft: columns by what a person must look at, in the order of the table."""

    columns: list[Column] = field(default_factory=list)
    codes: list[str] = field(default_factory=list)
    identifiers: list[str] = field(default_factory=list)
    constant: list[str] = field(default_factory=list)
    rare: list[str] = field(default_factory=list)
    omitted: dict[str, list[str]] = field(default_factory=dict)

    def omit(self, reason: str, names: Sequence[str]) -> None:
        """Leave columns out."""
        if names:
            self.omitted.setdefault(reason, []).extend(names)


def drafted(
    path: Path,
    label: str | None = None,
    *,
    regression: bool = False,
    person: str | None = None,
    policy: Policy | None = None,
) -> tuple[Schema, list[str]]:
    """Draft a schema from the hospital's own table, so that it holds no value that only few rows have.

    Bounds are the extremes of the table, rounded outward to two digits, and further than the extreme value itself where
    few rows have it. Levels and classes are those that enough rows have. The number of rows is rounded.
    """
    policy = Policy.of_node() if policy is None else policy
    source = opened(path)
    if not policy.allow_numeric_names:
        source.check_header()
    spec = DataSpec(label=None if source.table is None and label == ARRAYS else label, regression=regression)
    names, label = source.columns(spec)
    labels = source.labels(spec)
    policy.check_rows(len(labels), None)
    least, draft = policy.minimum_rows_a_class, _Draft()
    if source.table is None:
        if person is not None:
            raise SafeError("arrays have no column of persons; leave --person out")
        features = source.features(spec)
    else:
        if person is not None and person not in names:
            raise SafeError(f"--person {person} is no column of the table besides the label; name another")
        features = _features(source.table, [name for name in names if name != person], policy, draft)
    features.check_finite()
    for name, values in _by_column(features):
        _add(draft, name, values, name in features.words, policy)
    if not draft.columns:
        raise SafeError(f"no column can be used: {'; '.join(_omitted(draft))}")
    classes, bounds, rare = None, None, 0
    if regression:
        bounds = _bounds(labels.astype(np.float64), least)[:2]
    else:
        found, counts = np.unique(labels, return_counts=True)
        policy.check_classes(len(found))
        classes = tuple(plain(v) for v, count in zip(found, counts, strict=True) if count >= least)
        rare = len(found) - len(classes)
        if len(classes) < 2:
            raise SafeError(
                f"fewer than two values of the label {label!r} have {least} rows each; name another with --label, or "
                "add --regression if it is a number to predict"
            )
    rows = None if person is None or source.table is None else source.table[person].value_counts().max()
    made = Schema(
        tuple(draft.columns),
        label,
        classes,
        bounds,
        n=_rounded(len(labels)),
        person=person,
        m=None if rows is None else _at_least(int(rows)),
    )
    return made, [*_by_hand(made, draft, rare, least)]


def _features(table: pd.DataFrame, names: list[str], policy: Policy, draft: _Draft) -> Features:
    """The columns that a draft can have."""
    refused = [name for name in names if not _allowed(policy, name)]
    draft.omit("your limits do not allow", refused)
    names = [name for name in names if name not in refused]
    of_dates = dates(table, names)
    draft.omit("dates (replace each by a number, such as an age in years) are in", of_dates)
    names = [name for name in names if name not in of_dates]
    of_kind = kinds(table, names)
    marked = marks(table, [*of_kind["words"], *of_kind["mixed"]])
    draft.omit(f"numbers and {_marks(marked)} for missing values (empty those cells) are in", [*marked])
    of_kind = {kind: [name for name in found if name not in marked] for kind, found in of_kind.items()}
    draft.omit("both numbers and words (correct the table, or declare them as words) are in", of_kind["mixed"])
    draft.omit("no row has a value in", of_kind["empty"])
    left_out = {*of_kind["mixed"], *of_kind["empty"], *marked}
    features = read_features(table, [name for name in names if name not in left_out], of_kind["words"])
    scarce = features.scarce(policy.minimum_rows)
    draft.omit(f"fewer than {policy.minimum_rows} rows have a value in", scarce)
    kept = [name for name in features.names if name not in scarce]
    words = {name: said for name, said in features.words.items() if name in kept}
    return Features(kept, features.X[:, features.index(kept)], words)


def _allowed(policy: Policy, name: str) -> bool:
    try:
        policy.check_columns([name])
    except PrivacyThresholdViolation:
        return False
    return True


def _by_column(features: Features) -> Iterator[tuple[str, Array]]:
    """Each column with its values, without missing ones."""
    for i, name in enumerate(features.names):
        if name in features.words:
            said = features.words[name]
            yield name, said[~pd.isna(said)]
        else:
            numbers = features.X[:, i]
            yield name, numbers if numbers.dtype.kind != "f" else numbers[~np.isnan(numbers)]


def _add(draft: _Draft, name: str, values: Array, words: bool, policy: Policy) -> None:
    """Add a column to a draft, and say what a person must look at."""
    least = policy.minimum_rows_a_class
    if words:
        counts = pd.Series(values, dtype=object).value_counts()
        levels = sorted(str(level) for level, count in counts.items() if count >= least)
        if len(counts) > policy.maximum_classes or not levels:
            draft.omit(
                f"too many different words (names, dates or free text?), or none that {least} rows have, are in", [name]
            )
            return
        if len(levels) < len(counts):
            draft.rare.append(name)
        draft.columns.append(Column(name, "words", levels=tuple(levels)))
        return
    values = values.astype(np.float64)
    lower, upper, constant = _bounds(values, least)
    draft.columns.append(Column(name, "number", lower, upper))
    different = len(np.unique(values))
    if constant:
        draft.constant.append(name)
    elif (values == np.floor(values)).all():
        if different <= CODES:
            draft.codes.append(name)
        elif different == len(values):
            draft.identifiers.append(name)


def _bounds(values: Array, least: int) -> tuple[float, float, bool]:
    """Bounds of values (n,), and whether all are one value that many rows have."""
    low, high = float(values.min()), float(values.max())
    zero = Decimal(1).scaleb(Decimal(repr(max(abs(low), abs(high)))).adjusted() - 1)  # one unit if a bound is 0
    lower = _outward(low, -1, int((values == low).sum()) < least, zero)
    upper = _outward(high, 1, int((values == high).sum()) < least, zero)
    if lower < upper:
        return lower, upper, False
    return _outward(low, -1, True, Decimal(1)), _outward(high, 1, True, Decimal(1)), True


def _outward(value: float, sign: int, beyond: bool, zero: Decimal) -> float:
    """Round up (``sign`` 1) or down (-1) to two digits; ``beyond``: to another value than the number itself."""
    exact = Decimal(repr(value))
    unit = Decimal(1).scaleb(exact.adjusted() - 1) if exact else zero
    units = sign * exact / unit
    whole = units.to_integral_value(ROUND_CEILING)
    if beyond and whole == units:
        whole += 1
    return float(sign * whole * unit)


def _rounded(n: int) -> int:
    """A number of rows, to two digits, but at least to tens."""
    step = int(10 ** max(1, len(str(n)) - 2))
    return (n + step // 2) // step * step


def _at_least(m: int) -> int:
    """The next of 1, 2, 5, 10, 20, 50, ..."""
    power = int(10 ** (len(str(m)) - 1))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= m)


def _by_hand(made: Schema, draft: _Draft, rare: int, least: int) -> Iterator[str]:
    """What a person must look at before the draft is used."""
    yield "this is a draft; look at it before you send it to anybody:"
    if made.ranges or made.regression:
        yield (
            "- bounds come from this table's smallest and largest values, which may be one patient's. Write what the "
            "measurement can be at any hospital instead, such as 0 and 120 for an age"
        )
    if made.levels or made.classes:
        yield "- levels and classes are the ones of this table; add those that other hospitals have, in one spelling"
    if draft.rare:
        yield (
            f"- words that fewer than {least} rows have are left out, and count as unknown, in {_names(draft.rare)}; "
            "add those that are proper levels"
        )
    if rare:
        yield (
            f"- {rare} value(s) of the label that fewer than {least} rows have are left out; rows with a label that is "
            "no class stop every job: add the class, or correct these rows"
        )
    if made.classes and len(made.classes) > CODES and not isinstance(made.classes[0], str):
        yield f"- the label has {len(made.classes)} numbers as classes; if it is a number to predict, use --regression"
    if draft.codes:
        yield (
            f"- few different whole numbers are in {_names(draft.codes)}; if they are codes of categories, write "
            '"kind": "words" and their "levels", such as ["1", "2"]'
        )
    if draft.identifiers:
        yield f"- another whole number is in each row of {_names(draft.identifiers)}; remove numbers of patients"
    if draft.constant:
        yield f"- all rows have one value in {_names(draft.constant)}; remove what no hospital measures"
    yield from (f"- left out: {text}" for text in _omitted(draft))


def _omitted(draft: _Draft) -> list[str]:
    return [f"{reason} {_names(names)}" for reason, names in draft.omitted.items()]


def _marks(marked: Mapping[str, str]) -> str:
    return " or ".join(dict.fromkeys(map(repr, marked.values())))


def _names(names: Sequence[str]) -> str:
    more = len(names) - MOST_SHOWN
    return ", ".join(names[:MOST_SHOWN]) + (f" and {more} more" if more > 0 else "")


@prints
def new(options: NewSchemaOptions) -> Found:
    """Draft a schema."""
    out = options.out / schema.NAME if options.out is not None and options.out.is_dir() else options.out
    if out is not None and out.exists():
        raise SafeError(f"{out} exists already; choose another name, or move it away")
    made, lines = drafted(options.table, options.label, regression=options.regression, person=options.person)
    if out is not None:
        write_whole(out, made.text(), durable=True)
    begin = made.text().splitlines() if out is None else [f"wrote {out}: {_title(made)}"]
    return Found([*begin, *lines], {"file": None if out is None else str(out), **_numbers(made)})


@prints
def check(options: CheckSchemaOptions) -> Found:
    """Show a schema, and compare it with a table."""
    file = options.folder / schema.NAME if options.folder.is_dir() else options.folder
    try:
        found = Schema.of_file(file)
    except FileNotFoundError:
        raise SafeError(f"there is no {file}; {schema.DRAFT_IT}") from None
    lines = [f"{file}: {_title(found)}", f"digest of what all hospitals share: {found.shared_digest}"]
    own = {"n": found.n, "person": found.person, "m": found.m}
    declared = [f"{name} = {value}" for name, value in own.items() if value is not None]
    lines.append(f"this hospital's own, which stays here: {', '.join(declared) or 'nothing'}")
    problems: list[str] = []
    if options.table is not None:
        problems, notes = compared(found, options.table)
        lines += [*(f"problem: {text}" for text in problems), *(f"note: {text}" for text in notes)]
        if not problems:
            lines.append(f"{options.table} fits")
    return Found(lines, {"file": str(file), **_numbers(found), "problems": problems}, FAILED if problems else OK)


def compared(declared: Schema, path: Path) -> tuple[list[str], list[str]]:
    """Compare a schema with the hospital's own table."""
    source = opened(path)
    problems: list[str] = []
    notes: list[str] = []
    regression, supervised = declared.regression, bool(declared.label)
    if source.table is None:
        features = source.features(DataSpec())
        if declared.features != list(features.names) or declared.levels:
            problems.append(f"the arrays have {len(features.names)} columns of numbers, and the schema others")
            return problems, notes
        if declared.person is not None:
            problems.append("arrays do not say whose a row is, and the schema declares person; remove person and m")
        labels = source.labels(DataSpec(regression=regression)) if supervised else None
    else:
        there = [str(name) for name in source.table.columns]
        wanted = [*declared.features, *filter(None, [declared.label, declared.person])]
        if missing := [name for name in wanted if name not in there]:
            problems.append(f"the table has no column {_names(missing)}")
            return problems, notes
        if left := [name for name in there if name not in wanted]:
            notes.append(f"the schema does not name the column(s) {_names(left)}, which no job can then use")
        of_kind = kinds(source.table, declared.features)
        wrong = [name for name in declared.ranges if name in (*of_kind["words"], *of_kind["mixed"])]
        marked = marks(source.table, wrong)
        if marked:
            problems.append(
                f"there is {_marks(marked)} for missing values in the column(s) {_names([*marked])}; empty those cells"
            )
        if words := [name for name in wrong if name not in marked]:
            problems.append(f"there are words in the column(s) {_names(words)}, which the schema declares as numbers")
        readable = [name for name in declared.features if name not in wrong]
        features = read_features(source.table, readable, [*declared.levels])
        spec = DataSpec(label=declared.label or None, features=declared.features, regression=regression)
        labels = source.labels(spec) if supervised else None
    for name, values in _by_column(features):
        if name in features.words:
            unknown = int((~pd.Series(values, dtype=object).isin(declared.levels[name])).sum())
            if unknown:
                said = f"row(s) have an undeclared level of {name}, which counts as unknown"
                if unknown > MOST_BEYOND * len(values):
                    problems.append(
                        f"{unknown} of {len(values)} {said}; write the levels as the schema does, or agree on more"
                    )
                else:
                    notes.append(f"{unknown} {said}")
        else:
            _compare_numbers(f"a value in {name}", values, declared.ranges[name], problems, notes)
    if labels is not None:
        _compare_label(declared, labels, problems, notes)
    n = len(features)
    if declared.n is not None and not 0.8 <= declared.n / max(n, 1) <= 1.25:
        notes.append(f"own says n = {declared.n}, and the table has about {_rounded(n)} rows")
    return problems, notes


def _compare_label(declared: Schema, labels: Array, problems: list[str], notes: list[str]) -> None:
    if declared.bounds is not None:
        _compare_numbers("a label", labels, declared.bounds, problems, notes)
        return
    values, counts = np.unique(labels, return_counts=True)
    known = set(declared.classes or ())
    if unknown := sum(int(count) for v, count in zip(values, counts, strict=True) if plain(v) not in known):
        problems.append(f"{unknown} row(s) have a label that is none of the classes")


def _compare_numbers(
    what: str, values: Array, bounds: tuple[float, float], problems: list[str], notes: list[str]
) -> None:
    """Say how many values are outside of their bounds: many are another unit, few may be mistakes."""
    lower, upper = bounds
    below, above = int((values < lower).sum()), int((values > upper).sum())
    if not below + above:
        return
    said = f"row(s) have {what} outside {lower:g} to {upper:g}"
    if below + above > MOST_BEYOND * len(values):
        problems.append(
            f"{below + above} of {len(values)} {said} ({below} below, {above} above); is it in another unit? Convert "
            "it in the table, correct these values, or agree on wider bounds"
        )
    else:
        notes.append(f"{below + above} {said}; correct these values, or agree on wider bounds")


def _title(made: Schema) -> str:
    words, numbers = len(made.levels), len(made.ranges)
    label = f"label {made.label!r}" if made.label else "no label"
    values = "" if made.classes is None else f" with {len(made.classes)} classes"
    return f"{len(made.columns)} columns ({numbers} of numbers, {words} of words), {label}{values}"


def _numbers(made: Schema) -> Mapping[str, Any]:
    return {"columns": len(made.columns), "label": made.label, "digest": made.shared_digest}
