"""Settings: each has one name, one type and one range wherever it appears.

A method's ``central`` declares its settings by annotating its keyword arguments. The same annotations check a
researcher's task and the command line's ``--set``, and write the entry for the algorithm store.

Settings that belong together are the fields of a ``Record``. Methods pass the record as one argument; researchers set
its fields by their own names.
"""

import difflib
import inspect
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum, auto
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, ValidationError, create_model

from v6_federated.base.errors import SafeError

LARGE = 2**31 - 1
# what other libraries and papers call a setting
CALLED = {"learning_rate": "lr", "eta": "lr", "step_size": "lr", "mu": "proximal_mu", "batch": "batch_size"}
LINE = 300  # letters of a wrong value that an error quotes
Settings = TypeVar("Settings", bound=BaseModel)

# a container starts sooner if validators are built only when they are needed
CHECKED = ConfigDict(extra="forbid", protected_namespaces=(), defer_build=True)


class Role(Enum):
    """What a setting does in a local step w <- w - rate (g + pull (w - w_0)), g the mean gradient of a minibatch.

    By its settings' roles a node recognises steps that would single out rows, whatever the settings are called.
    """

    BATCH = auto()  # rows of a minibatch
    RATE = auto()
    ROW_RATE = auto()  # the rate of a step on one row, times the node's number of rows
    PULL = auto()
    MOMENTUM = auto()
    OPTIMIZER = auto()
    EPOCHS = auto()  # passes over a node's rows
    STEPS = auto()  # how many steps a node takes, whatever its number of rows
    KEPT = auto()  # the rounds in which nodes, or blocks, kept what the function loads
    OTHER = auto()  # does not make a step longer


class Record(BaseModel):
    """Settings that belong together: one argument of a method's functions, single settings for researchers.

    Declare the fields as pydantic does, each with a description, a default and, if a node trains with it, a ``Role``.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    def replace(self, **values: Any) -> "Any":
        """The same record with some other values.

        Args:
            **values: new values by field.

        Returns:
            A new record.

        Raises:
            pydantic.ValidationError: a value is wrong or a field unknown.
        """
        return type(self)(**{**dict(self), **values})


def no_truth(value: Any) -> Any:
    """Reject True and False, which Python takes for numbers. Use it as the validator ``Number``."""
    if isinstance(value, bool):
        raise ValueError("it must be a number, not true or false")
    return value


def _distinct(values: list[Any] | None) -> list[Any] | None:
    plain = all(isinstance(v, str | int) or (isinstance(v, float) and math.isfinite(v)) for v in values or [])
    if values is not None and (not plain or len(set(values)) < len(values)):
        raise ValueError("it must list texts or finite numbers, each once")
    return values


Number = BeforeValidator(no_truth)
Distinct = AfterValidator(_distinct)


def changed(checked: BaseModel, names: Iterable[str]) -> list[str]:
    """Which settings differ from their defaults.

    Args:
        checked: settings of a method.
        names: the settings to look at.

    Returns:
        The names of those that differ.
    """
    fields = type(checked).model_fields
    return [name for name in names if getattr(checked, name) != fields[name].default]


def settings_of(central: Callable[..., Any], common: type[Settings]) -> type[Settings]:
    """The settings of a method."""
    fields: dict[str, Any] = {}
    for name, p in _keywords(central):
        if p.annotation is p.empty:
            raise TypeError(
                f"{central.__name__}: the setting {name} has no type; annotate it, for example {name}: Fraction"
            )
        if is_record(p.annotation):
            record = p.annotation() if p.default is p.empty else p.default
            types = get_type_hints(p.annotation, include_extras=True)
            fields |= {field: (types[field], getattr(record, field)) for field in type(record).model_fields}
        else:
            fields[name] = (p.annotation, ... if p.default is p.empty else p.default)
    return create_model("Settings", __base__=common, **fields)


def arguments(central: Callable[..., Any], checked: BaseModel) -> dict[str, Any]:
    """The keyword arguments of a central function."""
    return {
        name: p.annotation(**{field: getattr(checked, field) for field in p.annotation.model_fields})
        if is_record(p.annotation)
        else getattr(checked, name)
        for name, p in _keywords(central)
    }


def _keywords(function: Callable[..., Any]) -> list[tuple[str, inspect.Parameter]]:
    parameters = inspect.signature(function, eval_str=True).parameters
    return [(name, p) for name, p in parameters.items() if p.kind is p.KEYWORD_ONLY]


def is_record(annotation: Any) -> bool:
    """Whether an argument's type is a ``Record``."""
    # in Python 3.10, list[int] counts as a type
    return isinstance(annotation, type) and get_origin(annotation) is None and issubclass(annotation, Record)


def settings_of_partial(partial: Callable[..., Any]) -> type[BaseModel]:
    """The settings of a partial function, which a node checks again, as any task may have been forged."""
    fields: dict[str, Any] = {
        name: (Any if p.annotation is p.empty else p.annotation, ... if p.default is p.empty else p.default)
        for name, p in _keywords(partial)
    }
    model: type[BaseModel] = create_model("Arguments", __config__=CHECKED, **fields)
    roles = dict(_roles(model))
    if Role.BATCH in roles.values():
        for name, role in roles.items():
            if role is None:
                raise TypeError(
                    f"{partial.__name__}: {name!r} has no Role, so a node cannot check steps on minibatches; annotate "
                    "it with Annotated[..., Role.OTHER] or another role, outside of any union"
                )
    return model


def _roles(model: type[BaseModel]) -> Iterator[tuple[str, Role | None]]:
    """Name and role of each setting, those in records too; None for one without a role."""
    for name, field in model.model_fields.items():
        if is_record(field.annotation):
            assert field.annotation is not None
            yield from _roles(field.annotation)
        else:
            yield name, next((part for part in field.metadata if isinstance(part, Role)), None)


def with_role(checked: BaseModel, role: Role) -> list[Any]:
    """The values of the settings that have a role, those in records too."""
    found = []
    for name, field in type(checked).model_fields.items():
        value = getattr(checked, name)
        if isinstance(value, Record):
            found += with_role(value, role)
        elif role in field.metadata:
            found.append(value)
    return found


def validate(model: type[Settings], values: dict[str, Any]) -> Settings:
    """Check settings."""
    try:
        return model(**with_words(model, values))
    except ValidationError as error:
        raise SafeError(explain(model, error)) from None


def with_words(model: type[BaseModel], values: Mapping[str, Any]) -> dict[str, Any]:
    """Replace null by the word none: a command line, and JSON, have one null, which is this word of some settings."""
    words = {name for name, field in model.model_fields.items() if "none" in get_args(field.annotation)}
    return {name: "none" if value is None and name in words else value for name, value in values.items()}


def explain(model: type[BaseModel], error: ValidationError, example: str = "") -> str:
    """Say in one line what pydantic found first."""
    found = error.errors()
    first = next((e for e in found if e["type"] == "extra_forbidden"), found[0])  # misspelt, so another one is missing
    return _explain(model, first, f", for example {example}" if example else "")


def problem_of(error: Any) -> str:
    """Say what is wrong with a value."""
    text = re.sub(r"^\w+ should", "it should", error["msg"].removeprefix("Value error, "))
    return (
        re.sub(" after validation| or instance of \\w+", "", text)
        .replace("Field required", "it is missing")
        .replace("an instance of Sequence", "a valid list")
    )


def _explain(model: type[BaseModel], error: Any, example: str) -> str:
    place = [part for part in error["loc"] if isinstance(part, str)]
    problem = problem_of(error)
    if not place:  # settings that do not fit each other
        return problem if "for example" in problem else f"{problem}{example}"
    name = place[0]
    if len(place) > 1 and name in model.model_fields and is_record(model.model_fields[name].annotation):
        record = model.model_fields[name].annotation
        assert record is not None
        return _explain(record, {**error, "loc": place[1:]}, example)
    if error["type"] == "extra_forbidden":
        there = ", ".join(sorted(model.model_fields))
        return f"unknown setting {name!r}; expected one of {there}{example}{_meant(model, name)}"
    if error["type"] == "missing":
        return f"the setting {name!r} is missing; it has no default{example}"
    field = model.model_fields[name]
    if not example and not field.is_required() and field.default not in (None, []):
        example = f", for example {name}={field.default}"
    meaning = f"; {name}: {field.description}" if field.description else ""
    return f"{name}={_short(error['input'])} is refused: {problem}{meaning}{example}"


def _meant(model: type[BaseModel], name: str) -> str:
    """What an unknown name may mean, for the end of an error."""
    there, spelt = [*model.model_fields], name.lower().replace("-", "_")
    near = [CALLED[spelt]] if spelt in CALLED else difflib.get_close_matches(spelt, there, n=1, cutoff=0.75)
    return f"; did you mean {near[0]}?" if near and near[0] in there else ""


def _short(value: Any) -> str:
    """A value's text, cut to what fits in a line: a request may hold thousands of numbers."""
    text = repr(value)
    return text if len(text) <= LINE else f"{text[:LINE]}..."
