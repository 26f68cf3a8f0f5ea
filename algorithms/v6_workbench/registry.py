"""The methods that are installed, and what each declares about itself. No method is known here by name.

A method registers by an entry point of the group ``v6_federated.methods``: its name, its central function, and in
brackets the extra of this project that it needs (``torch``).
"""

import difflib
import functools
import hashlib
import importlib.util
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import v6_federated
from v6_federated.base.errors import SafeError

if TYPE_CHECKING:  # slow to import
    from v6_federated.messages.common import Common

GROUP = "v6_federated.methods"
ROUNDS = 10  # of methods that have no number of their own


@functools.cache
def _registered() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in sorted(entry_points(group=GROUP))}


def names() -> list[str]:
    """List the methods that are installed, in alphabetical order."""
    return list(_registered())


def package_of(method: str) -> ModuleType:
    """Import a method.

    Args:
        method: the method's name.

    Returns:
        Its import package.

    Raises:
        SafeError: the method is not installed.
    """
    if method not in names():
        raise SafeError(f"unknown method {method!r}; expected one of {', '.join(names())}{_meant(method)}")
    try:
        return importlib.import_module(_registered()[method].module)
    except Exception as error:  # a package from elsewhere may fail in any way
        raise SafeError(
            f"the method {method} cannot be imported ({type(error).__name__}: {error}); correct or remove its package "
            f"{_registered()[method].module}"
        ) from error


def _working() -> Iterator[str]:
    """The methods that can be imported: a broken one is an error for those who name it, and for nobody else."""
    for method in names():
        try:
            central_of(method)
        except (SafeError, AttributeError):
            continue
        yield method


def _meant(name: str) -> str:
    """What a wrong name may mean, for the end of an error."""
    for method in _working():
        if (options := central_of(method).known_as.get(name.lower())) is not None:
            return f"; {name} is `{' '.join(filter(None, [method, options]))}`"
    near = difflib.get_close_matches(name.lower(), names(), n=1, cutoff=0.75)
    return f"; did you mean {near[0]}?" if near else ""


def is_here(method: str) -> bool:
    """Say whether a method is one of this project, of which all files are tested together.

    Args:
        method: the method's name.

    Returns:
        Whether it is; False if there is no such method.
    """
    entry = _registered().get(method)
    return entry is not None and entry.dist is not None and entry.dist.name == "v6-federated"


def folder_of(method: str) -> Path:
    """Find the code of a method.

    Args:
        method: the method's name.

    Returns:
        The folder of its import package.

    Raises:
        SafeError: the method is not installed.
    """
    if not is_here(method):  # only its own package knows where its code is
        return Path(str(package_of(method).__file__)).parent
    found = importlib.util.find_spec(_registered()[method].module)
    return Path(str(found and found.origin)).parent


def extras_of(method: str) -> list[str]:
    """List the extras of this project that a method needs, as its entry point names them.

    Args:
        method: the name of a method that is installed.

    Returns:
        The extras' names.
    """
    return list(_registered()[method].extras)


def central_of(method: str) -> Any:
    """Import the server of a method.

    Args:
        method: the method's name.

    Returns:
        Its central function.

    Raises:
        SafeError: the method is not installed.
    """
    return package_of(method).central


def code(method: str, *others: ModuleType) -> str:
    """Digest the program: the method's files, and those that methods share.

    Args:
        method: the method's name.
        others: further packages whose files count.

    Returns:
        SHA-256 of all files and of where they are in their packages, in hexadecimal digits.

    Raises:
        SafeError: the method is not installed.
    """
    whole = hashlib.sha256()
    for package in (v6_federated, sys.modules[central_of(method).__module__.partition(".")[0]], *others):
        folder = Path(str(package.__file__)).parent
        for file in sorted(folder.rglob("*.py")):
            whole.update(f"\0{package.__name__}/{file.relative_to(folder).as_posix()}\0".encode() + file.read_bytes())
    return whole.hexdigest()


def settings_of(method: str) -> "type[Common]":
    """Find the settings of a method.

    Args:
        method: the method's name.

    Returns:
        A pydantic model of them.

    Raises:
        SafeError: the method is not installed.
    """
    return central_of(method).settings


def validate(method: str, values: dict[str, Any]) -> "Common":
    """Check the settings of a method one by one.

    Args:
        method: the method's name.
        values: settings by their names.

    Returns:
        All settings of the method, with defaults.

    Raises:
        SafeError: a setting is unknown or out of range, or the method is not installed.
    """
    from v6_federated.messages import settings

    return settings.validate(settings_of(method), values)


def check(method: str, checked: "Common") -> None:
    """Check that the settings of a method fit each other.

    Args:
        method: the method's name.
        checked: its settings, from ``validate``.

    Raises:
        SafeError: they do not, or the method is not installed.
    """
    central_of(method).check(checked)


def called(method: str) -> str:
    """Say how results call a method: a package may offer the central function of another one.

    Args:
        method: the method's name.

    Returns:
        The name of the method whose central function it is.

    Raises:
        SafeError: the method is not installed.
    """
    return central_of(method).__module__.partition(".")[0].removeprefix("v6_")


def supervised(method: str) -> bool:
    """Say whether a method needs labels.

    Args:
        method: the method's name.

    Returns:
        Whether it does.

    Raises:
        SafeError: the method is not installed.
    """
    return central_of(method).supervised


def recoverable(method: str) -> bool:
    """Say whether a method sends nodes, in each round, all that it carries from round to round.

    Args:
        method: the method's name.

    Returns:
        Whether it does.

    Raises:
        SafeError: the method is not installed.
    """
    return central_of(method).recoverable


def single_answers(method: str) -> str:
    """Say why a method's defaults need single answers, so that they cannot run where central learns sums only.

    Args:
        method: the method's name.

    Returns:
        The reason; empty if sums suffice.

    Raises:
        SafeError: the method is not installed.
    """
    from v6_federated.messages import settings

    central = central_of(method)
    required = {"rounds": 1} if central.settings.model_fields["rounds"].is_required() else {}
    return str(central.why_single(settings.validate(central.settings, required)))


def rounds(method: str) -> int:
    """Say how many rounds a job of a method has, unless its settings say it.

    Args:
        method: the method's name.

    Returns:
        The method's own number, or ``ROUNDS``.

    Raises:
        SafeError: the method is not installed.
    """
    field = settings_of(method).model_fields["rounds"]
    return ROUNDS if field.is_required() else int(field.default)


def times_only(method: str) -> bool:
    """Say whether a method looks at times, events and groups only, and at no features.

    Args:
        method: the method's name.

    Returns:
        Whether it does.

    Raises:
        SafeError: the method is not installed.
    """
    return settings_of(method).times_only


def holdout(method: str) -> float:
    """Say which share of the rows a method holds out by default.

    Args:
        method: the method's name.

    Returns:
        The share; 0 if the method evaluates no model.

    Raises:
        SafeError: the method is not installed.
    """
    return float(settings_of(method).model_fields["holdout"].default) if evaluates(method) else 0.0


def evaluates(method: str) -> bool:
    """Say whether a method trains models that are evaluated on rows that are held out.

    Args:
        method: the method's name.

    Returns:
        Whether it does.

    Raises:
        SafeError: the method is not installed.
    """
    return supervised(method) and settings_of(method).evaluates


def unused(method: str) -> set[str]:
    """List the settings that a method does not use: it refuses them, or they have one value.

    Args:
        method: the method's name.

    Returns:
        Their names.

    Raises:
        SafeError: the method is not installed.
    """
    return unused_by(central_of(method))


def unused_by(central: Any) -> set[str]:
    """List the settings that a central function does not use, see ``unused``.

    Args:
        central: the function.

    Returns:
        Their names.
    """
    types = {name: field.annotation for name, field in central.settings.model_fields.items()}
    fixed = {name for name, kind in types.items() if get_origin(kind) is Literal and len(get_args(kind)) == 1}
    return {*central.settings.unused} | fixed


def takes_missing(method: str) -> bool:
    """Say whether a method's model takes missing values as they are.

    Args:
        method: the method's name.

    Returns:
        Whether it does.

    Raises:
        SafeError: the method is not installed.
    """
    return central_of(method).missing


def predict_numbers(method: str | None = None) -> list[str]:
    """List the settings with which methods predict a number in place of a class, each with these methods.

    Args:
        method: the method that a user has chosen; its own setting comes first.

    Returns:
        A phrase for each setting.
    """
    found: dict[str, list[str]] = {}
    for name in _working():
        if setting := settings_of(name).for_numbers:
            found.setdefault(setting, []).append(name)
    own = settings_of(method).for_numbers if method else ""
    first = [f"--set {own}"] if own else []
    return [*first, *(f"{_listed(able)} with --set {setting}" for setting, able in found.items() if setting != own)]


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def measured_by(method: str, values: Mapping[str, Any]) -> str:
    """Name the measure of how good a job's models are: ``accuracy``, or ``r2`` or ``c_index`` of numbers.

    Args:
        method: the method's name.
        values: settings by names.

    Returns:
        The measure's name in a history.

    Raises:
        SafeError: the method is not installed.
    """
    return settings_of(method).measured_by(values)


def predicts_numbers(method: str, values: Mapping[str, Any]) -> bool:
    """Say whether a job predicts a number in place of a class.

    Args:
        method: the method's name.
        values: settings by their names.

    Returns:
        Whether it does.

    Raises:
        SafeError: the method is not installed.
    """
    return settings_of(method).predicts_numbers(values)
