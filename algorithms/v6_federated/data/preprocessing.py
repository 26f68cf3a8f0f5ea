"""What is done with the steps of preprocessing: reading a request, what is sent to nodes, applying fitted steps."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pydantic import ValidationError

from v6_federated.base.errors import SafeError
from v6_federated.data.columns import DECIMAL, Features
from v6_federated.data.steps import LARGE, STEPS, OneHot, Step, by_column
from v6_federated.messages import codec


def parse(step: str | Mapping[str, Any]) -> Step:
    """A step from ``"standardize"``, ``"pca:20"``, ``"impute:median,columns=age|weight"``, ``{"step": "pca", ...}`` or
    the same as JSON text. Raises SafeError."""
    if isinstance(step, str) and step.lstrip().startswith("{"):
        try:
            step = json.loads(step)
        except ValueError:
            raise SafeError(f'the step {step!r} is not JSON; expected for example {{"step": "standardize"}}') from None
    if isinstance(step, str):
        name, _, rest = step.partition(":")
        options: dict[str, Any] = {}
        for i, text in enumerate(filter(None, rest.split(","))):
            key, equals, value = text.partition("=")
            main = STEPS[name].main if name in STEPS else ""
            if not equals and (i or not main):
                raise SafeError(
                    f"the step {step!r} is not understood at {text!r}; expected NAME, NAME:VALUE or KEY=VALUE"
                )
            key, value = (key, value) if equals else (main, text)
            if key in options:
                raise SafeError(f"the step {step!r} gives {key} twice; expected once")
            options[key] = value
        filled = options.get("value")
        if isinstance(filled, str) and DECIMAL.fullmatch(filled):
            options["value"] = float(filled)
    else:
        options = dict(step)
        name = str(options.pop("step", None))
    if name not in STEPS:
        raise SafeError(f"unknown step {name!r}; expected one of {', '.join(STEPS)}")
    try:
        return STEPS[name](**options)
    except ValidationError as error:
        first = error.errors()[0]
        where = f"{first['loc'][0]}: " if first["loc"] else ""
        raise SafeError(f"the step {name} is refused: {where}{first['msg'].removeprefix('Value error, ')}") from None


def large(steps: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The fitted steps that go to a node once, for it to keep."""
    return [step for step in steps if codec.size(step) >= LARGE]


def reference(step: Mapping[str, Any]) -> dict[str, Any]:
    """What stands for a fitted step that the nodes keep: its name and its digest."""
    digest = hashlib.sha256(json.dumps(step, sort_keys=True).encode()).hexdigest()
    return {"step": step["step"], "kept": digest}


def layout(names: Sequence[str], categories: Sequence[str]) -> Features:
    """Columns without rows: what central knows of the features on their way through the steps."""
    return Features(list(names), np.empty((0, len(names))), {c: np.empty(0, dtype=object) for c in categories})


def names_after(steps: Sequence[Mapping[str, Any]], names: Sequence[str], categories: Sequence[str]) -> list[str]:
    """The columns that a model sees, from those of the table; none of arrays, which have no names."""
    return [] if not names else list(apply(layout(names, categories), steps).names)


def categories(steps: Sequence[Step], told: Mapping[int, Mapping[str, Sequence[str]]], columns: Sequence[str]) -> list:
    """The columns of words, from what each organization tells by ``kinds``. Raises SafeError that names columns."""
    named = {c for step in steps if isinstance(step, OneHot) for c in step.columns or ()}
    every = any(isinstance(step, OneHot) and step.columns is None for step in steps)
    for organization, found in sorted(told.items()):
        if wrong := [c for c in found["mixed"] if c not in named]:
            raise SafeError(
                f"organization {organization}: the column(s) {', '.join(wrong)} hold both numbers and words; expected "
                "numbers (with a decimal point, no signs like <, and nothing where one is missing), or, if they are "
                f"categories, a step onehot that names them (onehot:{'|'.join(wrong)})"
            )
        if not every and (wrong := [c for c in found["words"] if c not in named]):
            raise SafeError(
                f"organization {organization}: the column(s) {', '.join(wrong)} hold values that are not numbers; "
                "expected numbers, or a step onehot"
            )
    words = {c for found in told.values() for c in found["words"]}
    for organization, found in sorted(told.items()):
        if wrong := sorted(words - named - {c for kind in found.values() for c in kind}):
            raise SafeError(
                f"organization {organization}: the column(s) {', '.join(wrong)} hold numbers, elsewhere words; "
                f"expected one kind, or a step onehot that names them (onehot:{'|'.join(wrong)})"
            )
    return [c for c in columns if c in named | words]


def filled(steps: Sequence[Mapping[str, Any]]) -> set[str]:
    """The columns whose missing values fitted steps fill."""
    fitted = [by_column(s.get("fitted"), "values", lambda _: True) for s in steps if s.get("step") == "impute"]
    return {name for values in fitted for name in values}


def apply(features: Features, steps: Sequence[Mapping[str, Any]]) -> Features:
    """The features after fitted steps, each ``{"step": NAME, "fitted": ...}``. Raises SafeError for an unknown one."""
    for step in steps:
        if step.get("step") not in STEPS:
            raise SafeError(f"unknown step {step.get('step')!r}; expected one of {', '.join(STEPS)}")
        features = STEPS[step["step"]].apply(step["fitted"], features)
    return features
