"""Settings: one name, one type and one range each, wherever a setting appears.

A method's ``central`` declares what it uses by annotating its keyword arguments with these types. The same annotations
check a researcher's task, the command line's ``--set`` and the entry for the algorithm store.

Settings that belong together are fields of one ``Record``: methods pass it whole, researchers set its fields by name.
"""

import inspect
import math
from collections.abc import Callable, Iterable, Iterator
from enum import Enum, auto
from typing import Any, TypeVar, get_type_hints

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, ValidationError, create_model

from v6_federated.base.errors import SafeError

LARGE = 2**31 - 1
Settings = TypeVar("Settings", bound=BaseModel)

# a container starts sooner if validators are built when they are first needed
CHECKED = ConfigDict(extra="forbid", protected_namespaces=(), defer_build=True)


class Role(Enum):
    """What a setting does in a local step w <- w - rate (g + pull (w - w_0)), g the mean gradient of a minibatch.

    From the roles a node knows which steps would single out rows, whatever the settings are called.
    """

    BATCH = auto()  # rows of a minibatch
    RATE = auto()
    ROW_RATE = auto()  # the rate of a step on one row, times the node's rows
    PULL = auto()
    MOMENTUM = auto()
    OPTIMIZER = auto()
    OTHER = auto()  # makes no step longer


class Record(BaseModel):
    """Settings that belong together: one argument of a method's functions, flat names for researchers."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    def replace(self, **values: Any) -> "Any":
        """The same record with other values, checked again."""
        return type(self)(**{**dict(self), **values})


def no_truth(value: Any) -> Any:
    """Part of a validator: reject True and False, which Python takes for numbers."""
    if isinstance(value, bool):
        raise ValueError("a number is expected, not true or false")
    return value


def _distinct(values: list[Any] | None) -> list[Any] | None:
    plain = all(isinstance(v, str | int) or (isinstance(v, float) and math.isfinite(v)) for v in values or [])
    if values is not None and (not plain or len(set(values)) < len(values)):
        raise ValueError("plain values are expected, each once")
    return values


Number = BeforeValidator(no_truth)
Distinct = AfterValidator(_distinct)


def changed(checked: BaseModel, names: Iterable[str]) -> list[str]:
    """Those of the settings ``names`` that differ from their default."""
    fields = type(checked).model_fields
    return [name for name in names if getattr(checked, name) != fields[name].default]


def settings_of(central: Callable, common: type[Settings]) -> type[Settings]:
    """The settings of a method: those of ``common``, and the keyword arguments of its ``central``, records unfolded."""
    fields: dict[str, Any] = {}
    for name, p in _keywords(central):
        if p.annotation is p.empty:
            raise TypeError(f"{central.__name__}: {name} has no type; expected one of v6_federated.messages")
        if is_record(p.annotation):
            record = p.annotation() if p.default is p.empty else p.default
            types = get_type_hints(p.annotation, include_extras=True)
            fields |= {field: (types[field], getattr(record, field)) for field in type(record).model_fields}
        else:
            fields[name] = (p.annotation, ... if p.default is p.empty else p.default)
    return create_model("Settings", __base__=common, **fields)


def arguments(central: Callable, checked: BaseModel) -> dict[str, Any]:
    """The keyword arguments of ``central`` from its checked settings, records put together again."""
    return {
        name: p.annotation(**{field: getattr(checked, field) for field in p.annotation.model_fields})
        if is_record(p.annotation)
        else getattr(checked, name)
        for name, p in _keywords(central)
    }


def _keywords(function: Callable) -> list[tuple[str, inspect.Parameter]]:
    parameters = inspect.signature(function, eval_str=True).parameters
    return [(name, p) for name, p in parameters.items() if p.kind is p.KEYWORD_ONLY]


def is_record(annotation: Any) -> bool:
    """Whether an argument's type is a ``Record``."""
    return isinstance(annotation, type) and issubclass(annotation, Record)


def settings_of_partial(partial: Callable) -> type[BaseModel]:
    """The keyword arguments of a partial function: a node checks them too, whoever sent them."""
    fields: dict[str, Any] = {
        name: (Any if p.annotation is p.empty else p.annotation, ... if p.default is p.empty else p.default)
        for name, p in _keywords(partial)
    }
    model = create_model("Arguments", __config__=CHECKED, **fields)
    roles = dict(_roles(model))
    if Role.BATCH in roles.values():
        for name, role in roles.items():
            if role is None:
                raise TypeError(
                    f"{partial.__name__}: {name!r} has no Role, so a node cannot check steps on minibatches; expected "
                    "Annotated[..., Role.OTHER] or another role, not a union with more"
                )
    return model


def _roles(model: type[BaseModel]) -> Iterator[tuple[str, Role | None]]:
    """Each setting's role, those inside records too; None if it has none."""
    for name, field in model.model_fields.items():
        if is_record(field.annotation):
            assert field.annotation is not None
            yield from _roles(field.annotation)
        else:
            yield name, next((part for part in field.metadata if isinstance(part, Role)), None)


def with_role(checked: BaseModel, role: Role) -> list[Any]:
    """The values of the settings with a role, those inside records too."""
    found = []
    for name, field in type(checked).model_fields.items():
        value = getattr(checked, name)
        if isinstance(value, Record):
            found += with_role(value, role)
        elif role in field.metadata:
            found.append(value)
    return found


def validate(model: type[Settings], values: dict[str, Any]) -> Settings:
    """Check ``values``. Raises SafeError with one line that names the setting, its value and what is accepted."""
    try:
        return model(**values)
    except ValidationError as error:
        raise SafeError(_explain(model, error.errors()[0])) from None


def _explain(model: type[BaseModel], error: Any) -> str:
    place = [part for part in error["loc"] if isinstance(part, str)]
    name = place[0] if place else "settings"
    if len(place) > 1 and name in model.model_fields and is_record(model.model_fields[name].annotation):
        record = model.model_fields[name].annotation
        assert record is not None
        return _explain(record, {**error, "loc": place[1:]})
    if error["type"] == "extra_forbidden":
        return f"unknown setting {name!r}; expected one of {', '.join(sorted(model.model_fields))}"
    if error["type"] == "missing":
        return f"the setting {name!r} is missing"
    field = model.model_fields[name]
    problem = error["msg"].removeprefix("Value error, ")
    problem = problem[0].lower() + problem[1:]
    default = "" if field.is_required() or field.default in (None, []) else f", for example {name}={field.default}"
    meaning = f"; {name} is {field.description}" if field.description else ""
    return f"{name}={error['input']!r} is refused: {problem}{meaning}{default}"
