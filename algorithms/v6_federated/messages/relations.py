"""What settings declare about each other: what one needs, and what it cannot be used with.

It stands where the setting is declared, beside its type, its range and its ``Role``:
``Annotated[float, Field(gt=0, le=1, description=...), Number, Needs(compression="topk")]``. One check reads it, and
``v6-federated settings``, the page of settings and the store's forms show it.

A setting is *set* if it has a value other than null, false, 0, none and an empty list.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from v6_federated.base.errors import SafeError
from v6_federated.messages.settings import LINE, changed


class Relation:
    """What one setting declares about others. It says nothing of settings that a method does not have.

    Attributes:
        others: the values in question of other settings, by name; empty: whatever sets them.
        when: the values of the setting that this holds for; empty: all but its default.
        because: the reason, for the error.
        instead: what to do, for the error.
    """

    kind = ""  # in a list of settings

    def __init__(self, *names: str, when: Any = (), because: str = "", instead: str = "", **values: Any) -> None:
        """Declare a relation."""
        self.others = {**dict.fromkeys(names, ()), **{name: _several(value) for name, value in values.items()}}
        self.when, self.because, self.instead = _several(when), because, instead

    def broken(self, checked: BaseModel, name: str) -> str:
        """Say what is wrong, what is accepted and what to do, if the setting that declares it is given; or nothing."""
        value, known = getattr(checked, name), self.known(type(checked))
        given = value in self.when if self.when else value not in (None, [], {}) and changed(checked, [name])
        met = [other for other in known if self._matches(other, getattr(checked, other))]
        if not given or not known or not (wrong := self._wrong(checked, name, met)):
            return ""
        says, cure = wrong
        text = f"{name}={value}"
        shown = text if isinstance(value, str | int | float) and len(text) <= LINE else name
        return f"{shown} {says}{f': {self.because}' if self.because else ''}; {cure}"

    def known(self, model: type[BaseModel]) -> list[str]:
        """Name the other settings that a method has and uses."""
        return [other for other in self.others if other in model.model_fields and other not in _unused(model)]

    def named(self, other: str, between: str = " or ") -> str:
        """Name another setting with the values in question."""
        values = between.join(map(str, self.others[other]))
        return f"{other}={values}" if values else other

    def _matches(self, other: str, value: Any) -> bool:
        return value in self.others[other] if self.others[other] else bool(value) and value != "none"

    def _wrong(self, checked: BaseModel, name: str, met: Sequence[str]) -> tuple[str, str] | None:
        """What is wrong and what to do, if these others have a value in question."""
        raise NotImplementedError


class Needs(Relation):
    """This setting has a meaning only with others: ``Needs(compression="topk")``, ``Needs("batch_size")``.

    Of several others, one suffices.
    """

    kind = "needs"

    def _wrong(self, checked: BaseModel, name: str, met: Sequence[str]) -> tuple[str, str] | None:
        if met:
            return None
        first, *_ = known = self.known(type(checked))
        field = type(checked).model_fields[first]
        values = [*self.others[first], *(field.examples or ()), field.default]
        good = next((value for value in values if self._matches(first, value)), None)
        cure = self.instead or f"set {first if good is None else f'{first}={good}'}"
        return f"needs {' or '.join(map(self.named, known))}", f"{cure}, or leave {name} out"


class Excludes(Relation):
    """This setting cannot be used with others: ``Excludes("clip", because="its plan counts epochs")``.

    Of several others, none may be set.
    """

    kind = "not with"

    def _wrong(self, checked: BaseModel, name: str, met: Sequence[str]) -> tuple[str, str] | None:
        if not met:
            return None
        there = [f"{other}={getattr(checked, other)}" if self.others[other] else other for other in met]
        cure = f"{self.instead}, or leave {name} out" if self.instead else "leave one of them out"
        return f"cannot be used with {' and '.join(there)}", cure


def declared(model: type[BaseModel]) -> list[tuple[str, Relation]]:
    """List the relations of a method's settings, each with the setting that declares it; what is excluded first.

    What a later error tells to set is then not excluded next.
    """
    fields = [(name, field) for name, field in model.model_fields.items() if name not in _unused(model)]
    found = [(name, part) for name, field in fields for part in field.metadata if isinstance(part, Relation)]
    return sorted(found, key=lambda one: isinstance(one[1], Needs))


def broken(checked: BaseModel) -> Iterator[str]:
    """Say what settings break of what they declare, a sentence for each relation."""
    return filter(None, (relation.broken(checked, name) for name, relation in declared(type(checked))))


def check(checked: BaseModel, method: str) -> None:
    """Reject settings that do not fit each other, or the method, with a SafeError of one sentence."""
    unused = _unused(type(checked))
    if idle := changed(checked, unused):
        why = unused[idle[0]]
        same = ", ".join(name for name in idle if unused[name] == why)
        raise SafeError(f"{same} has no effect on {method}, {why}; leave it out")
    for wrong in broken(checked):
        raise SafeError(wrong)


def words(model: type[BaseModel], name: str, mark: str = "") -> str:
    """Say in a few words what a setting needs and what it cannot be used with, ``mark`` around names; or nothing."""
    found: dict[str, list[str]] = {}
    default = model.model_fields[name].default
    for relation in (relation for declarer, relation in declared(model) if declarer == name):
        when = f"if {mark}{'/'.join(map(str, relation.when))}{mark}: " if relation.when else ""
        if not when and isinstance(default, str) and isinstance(relation, Excludes):  # this word goes with all
            when = f"if not {mark}{default}{mark}: "
        if others := " or ".join(f"{mark}{relation.named(other, '/')}{mark}" for other in relation.known(model)):
            found.setdefault(f"{when}{relation.kind}", []).append(others)
    return "; ".join(f"{head} {(', and ' if head.endswith('needs') else ' or ').join(found[head])}" for head in found)


def _unused(model: type[BaseModel]) -> Mapping[str, str]:
    """The settings that the method refuses, and why: see ``Common``."""
    found: Mapping[str, str] = getattr(model, "unused", {})
    return found


def _several(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)
