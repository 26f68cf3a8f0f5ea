"""Preprocessing steps: reading them from a request, sending them to nodes, applying fitted ones."""

import difflib
import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from pydantic import ValidationError

from v6_federated.base import json_text
from v6_federated.base.errors import SafeError
from v6_federated.base.text import shortened
from v6_federated.data.columns import EMPTY, FURTHEST, Features, Marks, check_scale
from v6_federated.data.columns import marked as marked_missing
from v6_federated.data.reading import DECIMAL
from v6_federated.data.step_columns import by_column, marked
from v6_federated.data.steps import LARGE, LEAST_LOADING, STEPS, MissingIndicator, OneHot, Step
from v6_federated.messages import codec, serialization, settings


def parse(step: str | Mapping[str, Any]) -> Step:
    """Read a step of a request.

    Args:
        step: for example ``"standardize"``, ``"pca:20"``, ``"impute:median,columns=age|weight"``,
            ``{"step": "pca", "components": 20}``, or the latter as JSON text.

    Returns:
        The step.

    Raises:
        SafeError: the step is unknown, or an option is wrong.
    """
    if isinstance(step, str) and step.lstrip().startswith("{"):
        try:
            step = json_text.parse(step)
        except SafeError:
            raise
        except ValueError:
            raise SafeError(f'the step {step!r} is not JSON; expected for example {{"step": "standardize"}}') from None
    if isinstance(step, str):
        name, _, rest = step.partition(":")
        _check_name(name)
        options: dict[str, Any] = {}
        for i, text in enumerate(filter(None, rest.split(","))):
            key, equals, value = text.partition("=")
            if not equals and "columns" in options:  # onehot:cp,thal and impute:median,columns=age,chol
                options["columns"] += f"|{text}"
                continue
            main = STEPS[name].main
            if not equals and not main:
                raise SafeError(f"the step {name} takes no value, and {step!r} gives it {text!r}; write {name} alone")
            if not equals and i:
                raise SafeError(
                    f"the step {step!r} cannot be read at {text!r}; expected {name}:VALUE or {name}:KEY=VALUE,..., for "
                    f"example {STEPS[name].example}"
                )
            key, value = (key, value) if equals else (main, text)
            if key in options:
                raise SafeError(f"the step {step!r} sets {key} twice; set it once")
            options[key] = value
        filled = options.get("value")
        if isinstance(filled, str) and DECIMAL.fullmatch(filled):
            options["value"] = float(filled)
    else:
        options = dict(step)
        name = str(options.pop("step", None))
        _check_name(name)
    try:
        return STEPS[name](**options)
    except ValidationError as error:
        raise SafeError(f"the step {name}: {settings.explain(STEPS[name], error, _example(name, error))}") from None


def _check_name(name: str) -> None:
    if name not in STEPS:
        near = difflib.get_close_matches(name.lower(), STEPS, n=1, cutoff=0.75)
        meant = f"; did you mean {near[0]}?" if near else ""
        raise SafeError(f"there is no step {name!r}; the steps are {', '.join(STEPS)}{meant}")


def _example(name: str, error: ValidationError) -> str:
    """A right step; with the option that is wrong, if only some words are accepted for it."""
    found, step = error.errors()[0], STEPS[name]
    option, words = found["loc"][-1:], re.findall(r"'(\w+)'", str(found.get("ctx", {}).get("expected", "")))
    return f"{name}:{option[0]}={words[0]}" if option and words and option[0] != step.main else step.example


def large(steps: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Find fitted steps that are sent to a node once, which keeps them.

    Args:
        steps: fitted steps.

    Returns:
        Those whose message is large.
    """
    return [step for step in steps if serialization.size(step) >= LARGE]


def reference(step: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is sent instead of a fitted step that the nodes keep.

    Args:
        step: the fitted step.

    Returns:
        Its name, and its SHA-256 digest as ``kept``.
    """
    digest = hashlib.sha256(json.dumps(step, sort_keys=True).encode()).hexdigest()
    return {"step": step["step"], "kept": digest}


def layout(names: Sequence[str], categories: Sequence[str]) -> Features:
    """Return features without rows: what central knows about the columns.

    Args:
        names: names of the columns.
        categories: names of those that hold words.

    Returns:
        The features, of 0 rows.
    """
    return Features(list(names), np.empty((0, len(names))), {c: np.empty(0, dtype=object) for c in categories})


def check_order(steps: Sequence[Step]) -> None:
    """Check that indicators come first: no step before may fill what they mark, or be fitted to what they empty.

    Args:
        steps: the steps of the request.

    Raises:
        SafeError: a step comes before an indicator.
    """
    marks = [isinstance(step, MissingIndicator) for step in steps]
    if marks != sorted(marks, reverse=True):
        raise SafeError("missing_indicator must come before all other steps; write its --preprocess first")


def emptied(steps: Sequence[Mapping[str, Any]]) -> set[str]:
    """Find columns that count as empty at a node where few rows have a value.

    Args:
        steps: fitted steps.

    Returns:
        The columns whose missing values a step marks.

    Raises:
        SafeError: such a step is malformed.
    """
    fitted = [marked(s.get("fitted")) for s in steps if s.get("step") == "missing_indicator"]
    return {name for columns in fitted for name in columns}


def categories(
    steps: Sequence[Step],
    kinds_of: Mapping[int, Mapping[str, Sequence[str]]],
    columns: Sequence[str],
    marks_of: Mapping[int, Mapping[str, str]],
) -> list[str]:
    """Agree on the columns of words.

    Args:
        steps: the steps of the request.
        kinds_of: what ``reading.kinds`` returned at each organization.
        columns: the features' columns.
        marks_of: what ``reading.marks`` returned there.

    Returns:
        The columns that all nodes read as words, in the order of ``columns``.

    Raises:
        SafeError: a column holds words and numbers, or words that no step turns into numbers. It names the columns.
    """
    named = {c for step in steps if isinstance(step, OneHot) for c in step.columns or ()}
    check_order(steps)
    every = any(isinstance(step, OneHot) and step.columns is None for step in steps)
    words = {c for found in kinds_of.values() for c in found["words"]}
    for organization, found in sorted(kinds_of.items()):
        if marks := {c: mark for c, mark in marks_of[organization].items() if c not in named}:
            raise SafeError(f"organization {organization}: {marked_missing(marks)}; {EMPTY}")
        if wrong := [c for c in found["mixed"] if c not in named]:
            raise SafeError(
                f"organization {organization}: the column(s) {', '.join(wrong)} hold both numbers and words, or "
                "numbers with commas or signs; expected numbers (with a decimal point, no signs like <, and nothing "
                "for a missing value), or, if they are "
                f"categories, a step onehot that names them (--preprocess onehot:{','.join(wrong)})"
            )
    _check_one_kind([c for c in columns if c in words - named], kinds_of)
    for organization, found in sorted(kinds_of.items()):
        if not every and (wrong := [c for c in found["words"] if c not in named]):
            raise SafeError(
                f"organization {organization}: the column(s) {', '.join(wrong)} hold values that are not numbers; "
                "expected numbers, or a step onehot (--preprocess onehot)"
            )
    return [c for c in columns if c in named | words]


def _check_one_kind(words: Sequence[str], kinds_of: Mapping[int, Mapping[str, Sequence[str]]]) -> None:
    """Refuse a column of words at some organizations that holds numbers at others. The fewest are named first."""
    for column in words:
        with_words = [k for k, found in sorted(kinds_of.items()) if column in found["words"]]
        others = [k for k, found in sorted(kinds_of.items()) if all(column not in kind for kind in found.values())]
        if others:
            sides = sorted([(with_words, "words"), (others, "numbers")], key=lambda side: len(side[0]))
            held = (f"{kind} at organization{'s' * (len(at) > 1)} {shortened(at)}" for at, kind in sides)
            raise SafeError(
                f"the column(s) {column} hold {' and '.join(held)}; expected one kind: numbers everywhere (with a "
                "decimal point, and no unit or sign), or, if they are categories, a step onehot that names them "
                f"(--preprocess onehot:{column})"
            )


def filled(steps: Sequence[Mapping[str, Any]]) -> set[str]:
    """Find columns whose missing values are filled.

    Args:
        steps: fitted steps.

    Returns:
        The columns that a step ``impute`` fills.

    Raises:
        SafeError: such a step is malformed.
    """
    fitted = [by_column(s.get("fitted"), "values", lambda _: True) for s in steps if s.get("step") == "impute"]
    return {name for values in fitted for name in values}


def made(steps: Sequence[Mapping[str, Any]]) -> int:
    """Count the columns that steps make, before they take memory.

    Args:
        steps: fitted steps.

    Returns:
        The levels of all columns together, and the columns that mark missing values.

    Raises:
        SafeError: a step is malformed.
    """
    fitted = [by_column(s.get("fitted"), "levels", lambda _: True) for s in steps if s.get("step") == "onehot"]
    levels = sum(len(found) if isinstance(found, list) else 0 for levels in fitted for found in levels.values())
    return levels + len(emptied(steps))


def check_foreseen(
    steps: Sequence[Mapping[str, Any]], columns: Sequence[str], levels: Mapping[str, Sequence[str]]
) -> None:
    """Refuse steps that make more columns than a schema foresees, before the rows are looked at.

    How many hospitals have too few rows for the columns of a covariance would be seen, for as many columns as a task
    invents levels. With these checks, their number follows from the schema.

    Args:
        steps: fitted steps.
        columns: the schema's columns.
        levels: the levels of each column of words.

    Raises:
        SafeError: a step is malformed, or makes columns of levels or of missing values that the schema does not have;
            or two steps fill one column with different words that the schema does not have.
    """
    filled: dict[str, set[str]] = {}
    for step in steps:
        name, fitted = step.get("step"), step.get("fitted")
        if name == "impute":
            for column, value in by_column(fitted, "values", lambda _: True).items():
                if column in levels and value not in levels[column]:
                    filled.setdefault(column, set()).add(str(value))
        if name == "missing_indicator" and (strange := [c for c in marked(fitted) if c not in columns]):
            raise SafeError(f"missing_indicator marks {', '.join(strange)}; expected columns of the study's schema")
        if name == "onehot":
            for column, named in by_column(fitted, "levels", lambda own: isinstance(own, list)).items():
                known = {*levels.get(column, ()), *filled.get(column, ())}
                if column not in levels or not {*map(str, named)} <= known:
                    raise SafeError(
                        f"onehot names levels of the column {column} that are not in the study's schema; declare them "
                        "there, or leave them out"
                    )
    if twice := [column for column, words in filled.items() if len(words) > 1]:
        raise SafeError(
            f"steps fill the column(s) {', '.join(twice)} with several words that are not in the study's schema; fill "
            "each column once"
        )


def check_reach(steps: Sequence[Mapping[str, Any]]) -> None:
    """Refuse steps that together divide or multiply by what no columns need, see ``check_scale``. No row is read.

    Args:
        steps: fitted steps.

    Raises:
        SafeError: a number of a step is too large or too small, or those of all steps together are.
    """
    least = most = 0.0  # powers of two by which steps multiply, over all columns
    for step in steps:
        if step.get("step") not in ("standardize", "scale", "pca"):
            continue
        try:
            arrays = codec.decode(step["fitted"])
            mean, scale = codec.whole(arrays, "mean"), np.abs(arrays["scale"].astype(np.float64))
            components = np.abs(arrays.get("components", np.ones(1)).astype(np.float64))
        except (KeyError, AttributeError, TypeError, ValueError):
            continue  # it is refused where it is applied
        check_scale(mean, scale, components[components >= LEAST_LOADING])
        least -= math.log2(scale.max(initial=1.0))
        most -= math.log2(scale.min(initial=1.0))
        used = components[components >= LEAST_LOADING]
        least, most = least + math.log2(used.min(initial=1.0)), most + math.log2(max(1.0, used.sum()))
    if max(-least, most) > 2 * math.log2(FURTHEST):
        raise SafeError(
            "the fitted steps together multiply a column by a number beyond 1e60 or below 1e-60; leave some out"
        )


class Levelling:
    """Makes columns constant that mark few training rows, before the first step and after each.

    A column marks few rows if all others have one value: a task could clip a column so that one patient differs from
    all others, whose other values the covariances and the model's weights would then hold.

    Args:
        least: how many rows are no longer few; with 0, no column is changed.
    """

    def __init__(self, least: int) -> None:
        self.least = least
        self._found: list[Marks] = []

    def fit(self, features: Features) -> Features:
        """Find such columns among the training rows, and make them constant.

        Args:
            features: the training rows between two steps.

        Returns:
            The rows with these columns made constant.
        """
        self._found.append(features.marks(self.least))
        return features.without_marks(self._found[-1])

    def repeat(self) -> Callable[[Features], Features]:
        """Return what makes the same columns constant in other rows, which are sent through the same steps.

        Returns:
            A function like ``fit``.
        """
        found = iter(self._found)
        return lambda features: features.without_marks(next(found))


def apply(
    features: Features,
    steps: Sequence[Mapping[str, Any]],
    between: Callable[[Features], Features] = lambda features: features,
) -> Features:
    """Apply fitted steps.

    Args:
        features: the features before them.
        steps: fitted steps, each ``{"step": NAME, "fitted": ...}``.
        between: what is done before the first step and after each.

    Returns:
        The features after them.

    Raises:
        SafeError: a step is unknown or malformed, or does not fit the columns.
        DataError: values are missing or infinite.
    """
    features = between(features)
    for step in steps:
        if step.get("step") not in STEPS:
            raise SafeError(f"unknown step {step.get('step')!r}; expected one of {', '.join(STEPS)}")
        features = between(STEPS[step["step"]].apply(step["fitted"], features))
    return features
