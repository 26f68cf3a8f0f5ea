"""What settings declare about each other: what one needs, and what it cannot be used with.

It stands where the setting is declared, beside its type, its range and its ``Role``:
``Annotated[float, Field(gt=0, le=1, description=...), Number, Needs(compression="topk")]``. One check reads it, and
``v6-federated settings``, the page of settings and the store's forms show it.

A setting is *set* if it has a value other than null, false, 0, none and an empty list.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from v6_federated.base.errors import SafeError
from v6_federated.messages.settings import LINE, changed


class Relation:
    """What one setting declares about others. It says nothing of settings that a method does not have.

    Attributes:
        others: the accepted, or excluded, values of the other settings by name; empty: whatever sets them.
        when: the values of the setting that this holds for; empty: all but its default.
        because: the reason, for the error.
        instead: what to do, for the error.
    """

    says = kind = ""  # in an error, and in a list

    def __init__(self, *names: str, when: Any = (), because: str = "", instead: str = "", **values: Any) -> None:
        """Declare a relation.

        Args:
            *names: other settings, if it matters only whether they are set.
            when: the value, or values, of this setting that it holds for; left out, all but its default.
            because: the reason, as half a sentence.
            instead: what to do in place of it, as ``set epochs``; left out, it follows from the relation.
            **values: other settings, and the value or values in question.
        """
        self.others = {**dict.fromkeys(names, ()), **{name: _several(value) for name, value in values.items()}}
        self.when, self.because, self.instead = _several(when), because, instead

    def _known(self, model: type[BaseModel]) -> list[str]:
        """The other settings that a method has."""
        return [other for other in self.others if other in model.model_fields and other not in _unused(model)]

    def _met(self, checked: BaseModel) -> list[str]:
        """The other settings that have a value in question."""
        return [other for other in self._known(type(checked)) if self._matches(other, getattr(checked, other))]

    def _matches(self, other: str, value: Any) -> bool:
        return value in self.others[other] if self.others[other] else bool(value) and value != "none"

    def _concerns(self, checked: BaseModel, name: str) -> bool:
        """Whether the setting that declares it is given, with a value that it holds for."""
        value = getattr(checked, name)
        return value not in (None, [], {}) and (value in self.when if self.when else bool(changed(checked, [name])))

    def broken(self, checked: BaseModel, name: str) -> str:
        """Say how settings break it.

        Args:
            checked: settings of a method.
            name: the setting that declares it.

        Returns:
            A sentence: what is wrong, what is accepted and what to do; empty if they do not.
        """
        if not self._known(type(checked)) or not self._concerns(checked, name):
            return ""
        return self._wrong(checked, name, self._met(checked))

    def _wrong(self, checked: BaseModel, name: str, met: list[str]) -> str:
        """What is wrong, if some of the others, or none, have a value in question."""
        raise NotImplementedError

    def words(self, model: type[BaseModel], name: str, mark: str = "") -> str:
        """Say in a few words what it declares, for a list of settings.

        Args:
            model: the method's settings.
            name: the setting that declares it.
            mark: what stands around settings and values.

        Returns:
            The words; empty if the method has none of the other settings.
        """
        default = model.model_fields[name].default
        when = f"if {mark}{'/'.join(map(str, self.when))}{mark}: " if self.when else ""
        if not when and isinstance(default, str) and isinstance(self, Excludes):  # this word goes with all
            when = f"if not {mark}{default}{mark}: "
        named = [f"{mark}{self._named(other, '/')}{mark}" for other in self._known(model)]
        return f"{when}{self.kind} {' or '.join(named)}" if named else ""

    def _named(self, other: str, between: str = " or ") -> str:
        """Name another setting with the values in question."""
        values = between.join(map(str, self.others[other]))
        return f"{other}={values}" if values else other

    def _sentence(self, checked: BaseModel, name: str, others: str, cure: str) -> str:
        because = f": {self.because}" if self.because else ""
        return f"{_shown(name, getattr(checked, name))} {self.says} {others}{because}; {cure}"


class Needs(Relation):
    """This setting has a meaning only with others: ``Needs(compression="topk")``, ``Needs("batch_size")``.

    Of several others, one suffices.
    """

    says = kind = "needs"

    def _wrong(self, checked: BaseModel, name: str, met: list[str]) -> str:
        if met:
            return ""
        needed = " or ".join(map(self._named, self._known(type(checked))))
        cure = self.instead or f"set {self._example(type(checked))}"
        return self._sentence(checked, name, needed, f"{cure}, or leave {name} out")

    def _example(self, model: type[BaseModel]) -> str:
        """The first of the others with a value that suffices, as far as one is known."""
        other = self._known(model)[0]
        field = model.model_fields[other]
        values = [*self.others[other], *(field.examples or ()), field.default]
        good = [value for value in values if isinstance(value, str | int | float) and self._matches(other, value)]
        return f"{other}={good[0]}" if good else other


class Excludes(Relation):
    """This setting cannot be used with others: ``Excludes("clip", because="its plan counts epochs")``.

    Of several others, none may be set.
    """

    says, kind = "cannot be used with", "not with"

    def _wrong(self, checked: BaseModel, name: str, met: list[str]) -> str:
        if not met:
            return ""
        named = [f"{other}={getattr(checked, other)}" if self.others[other] else other for other in met]
        cure = f"{self.instead}, or leave {name} out" if self.instead else "leave one of them out"
        return self._sentence(checked, name, " and ".join(named), cure)


def declared(model: type[BaseModel]) -> list[tuple[str, Relation]]:
    """List what the settings of a method declare about each other.

    Args:
        model: the method's settings.

    Returns:
        Relations, each with the setting that declares it; first what is excluded, so that what a later error tells to
        set is not excluded next.
    """
    found = [
        (name, part)
        for name, field in model.model_fields.items()
        if name not in _unused(model)
        for part in field.metadata
        if isinstance(part, Relation)
    ]
    return sorted(found, key=lambda one: isinstance(one[1], Needs))


def broken(checked: BaseModel) -> Iterator[str]:
    """Say what settings break of what they declare.

    Args:
        checked: settings of a method.

    Yields:
        A sentence for each relation.
    """
    for name, relation in declared(type(checked)):
        if wrong := relation.broken(checked, name):
            yield wrong


def check(checked: BaseModel, method: str) -> None:
    """Reject settings that do not fit each other, or the method.

    Args:
        checked: the method's settings.
        method: its name.

    Raises:
        SafeError: they do not fit.
    """
    unused = _unused(type(checked))
    if idle := changed(checked, unused):
        why = unused[idle[0]]
        same = ", ".join(name for name in idle if unused[name] == why)
        raise SafeError(f"{same} has no effect on {method}, {why}; leave it out")
    for wrong in broken(checked):
        raise SafeError(wrong)


def words(model: type[BaseModel], name: str, mark: str = "") -> str:
    """Say in a few words what a setting needs, and what it cannot be used with.

    Args:
        model: the method's settings.
        name: the setting.
        mark: what stands around settings and values.

    Returns:
        The words; empty if it fits all others.
    """
    own = [relation.words(model, name, mark) for declarer, relation in declared(model) if declarer == name]
    return "; ".join(filter(None, own))


def _unused(model: type[BaseModel]) -> Mapping[str, str]:
    """The settings that the method refuses, and why: see ``Common``."""
    found: Mapping[str, str] = getattr(model, "unused", {})
    return found


def _several(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _shown(name: str, value: Any) -> str:
    """A setting with its value, if that is short."""
    text = f"{name}={value}"
    return text if isinstance(value, str | int | float) and len(text) <= LINE else name
