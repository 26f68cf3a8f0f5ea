"""What a method's settings declare about each other: each relation is broken once, and the error's cure is followed."""

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, get_args, get_origin

from pydantic import ValidationError

from v6_federated.base.errors import SafeError
from v6_federated.messages.common import Common, TrainingWithNoise
from v6_federated.messages.local_sgd import LocalSGD
from v6_federated.messages.relations import Needs, Relation, broken, declared
from v6_workbench.conformance.case import MethodCase
from v6_workbench.conformance.outcome import NotApplicable, require

SHARED = {**TrainingWithNoise.model_fields, **LocalSGD.model_fields}  # what relations may name everywhere
TRIED = (2, 0.5, 0.25, 1.5, 1, 0.0, None, "x", ["x", "y"], [2, 3], {"x": 1.0, "y": 2.0})


def settings_that_do_not_fit_are_refused(cases: Sequence[MethodCase]) -> None:
    """Each ``Needs`` and ``Excludes`` names settings that exist, breaking it is refused, and the error's cure works."""
    model = cases[0].schema
    relations = declared(model)
    for name, relation in relations:
        for other, accepted in relation.others.items():
            require(
                other in model.model_fields or other in SHARED,
                f"{name} {relation.kind} {other}, which is no setting; expected one of {', '.join(model.model_fields)}",
            )
            for value in accepted if other in model.model_fields else ():
                says = f"{name} {relation.kind} {other}={value}, which is refused as a value"
                require(_accepts(model, other, value), says)
        for values in _broken(model, name, relation):
            _check_refused(cases[0], name, relation, values)
    if not relations:
        raise NotApplicable("its settings declare nothing about each other")


def _check_refused(case: MethodCase, name: str, relation: Relation, values: Mapping[str, Any]) -> None:
    """Check that these settings are refused, for this relation or another that they break, and what the error tells."""
    model = case.schema
    checked = model(**values)
    shown = ", ".join(f"{key}={value}" for key, value in values.items())
    says = relation.broken(checked, name)
    require(bool(says), f"{shown}: expected to be refused, as {name} declares {type(relation).__name__}")
    try:
        case.central.check(checked)
    except SafeError as error:
        require(str(error) in broken(checked), f"{shown}: expected {says!r}, got {str(error)!r}")
    else:
        require(False, f"{shown} is accepted; expected {says!r}")
    without = model(**{key: value for key, value in values.items() if key != name})
    require(not relation.broken(without, name), f"{says}: without {name} there is the same error")
    if "leave one of them out" in says:
        for other in values.keys() & relation.others.keys():
            left = model(**{key: value for key, value in values.items() if key != other})
            require(not relation.broken(left, name), f"{says}: without {other} there is the same error")
    cure = says.rpartition("; ")[2]
    if told := dict(re.findall(r"(\w+)=([\w.]+)", cure)):
        kept = {key: value for key, value in values.items() if key != name or "in its place" not in cure}
        cured = model(**{**kept, **told})
        new = [*({*broken(cured)} - {*broken(checked)}), relation.broken(cured, name)]
        require(not any(new), f"{says}: with {told}, there is another error: {new}")


def _broken(model: type[Common], name: str, relation: Relation) -> Iterator[dict[str, Any]]:
    """Settings that break a relation: for each value of the one that declares it, and each way to break it."""
    others = {other: relation.others[other] for other in relation.known(model)}
    if not others:
        return
    default = model.model_fields[name].default
    given = relation.when or _first(value for value in _values(model, name) if value not in (default, 0, [], {}))
    ways: list[dict[str, Any]] = []
    if isinstance(relation, Needs):
        lacking = [
            _first(
                {other: value} for value in _values(model, other) if (value not in accepted if accepted else not value)
            )
            for other, accepted in others.items()
        ]
        ways = [{other: value for (way,) in lacking for other, value in way.items()}] if all(lacking) else []
    else:
        for other, accepted in others.items():
            values = accepted or _first(value for value in _values(model, other) if value and value != "none")
            ways += [{other: value} for value in values]
    require(bool(given and ways), f"no value is found by which {name} would break {relation.kind}")
    for value in given:
        for way in ways:
            yield {**_required(model), name: value, **way}


def _values(model: type[Common], name: str) -> Iterator[Any]:
    """Values that a setting can have: its words, and some others."""
    tried = (*_words(model.model_fields[name].annotation), *TRIED)
    return (value for value in tried if _accepts(model, name, value))


def _accepts(model: type[Common], name: str, value: Any) -> bool:
    """Whether a setting can have a value."""
    try:
        model(**{**_required(model), name: value})
    except ValidationError:
        return False
    return True


def _required(model: type[Common]) -> dict[str, int]:
    """Values of the settings without a default."""
    return {name: 2 for name, field in model.model_fields.items() if field.is_required()}


def _words(annotation: Any) -> tuple[Any, ...]:
    """The words of a setting that has some."""
    parts = [annotation, *get_args(annotation)]
    return tuple(word for part in parts if get_origin(part) is Literal for word in get_args(part))


def _first(values: Iterable[Any]) -> tuple[Any, ...]:
    """The first value alone, if there is one."""
    return tuple(itertools.islice(values, 1))
