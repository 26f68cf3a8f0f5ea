"""The methods that are installed, and what each says of itself; none is known here by name."""

import hashlib
import importlib
import pkgutil
import re
import sys
from pathlib import Path
from typing import Any

import v6_federated
from v6_federated import settings
from v6_federated.errors import SafeError


def names() -> list[str]:
    """The methods that are installed: packages named ``v6_METHOD``, in small letters, as nodes take them."""
    found = (m.name for m in pkgutil.iter_modules() if m.ispkg and re.fullmatch("v6_[a-z0-9_]{1,40}", m.name))
    return sorted(name.removeprefix("v6_") for name in found if name != v6_federated.__name__)


def central_of(method: str) -> Any:
    """The central function of a method. Raises SafeError for a method that is not there, as all others here."""
    if method not in names():
        raise SafeError(f"unknown method {method!r}; expected one of {', '.join(names())}")
    return importlib.import_module(f"v6_{method}").central


def code(method: str) -> str:
    """A digest of the program: the method's files, and what methods share."""
    whole = hashlib.sha256()
    for package in (v6_federated, sys.modules[central_of(method).__module__.partition(".")[0]]):
        for file in sorted(Path(str(package.__file__)).parent.rglob("*.py")):
            whole.update(f"\0{file.name}\0".encode() + file.read_bytes())
    return whole.hexdigest()


def settings_of(method: str) -> type[settings.Common]:
    """The settings of a method."""
    return central_of(method).settings


def validate(method: str, values: dict[str, Any]) -> settings.Common:
    """The values as settings of a method. Raises SafeError for one that is wrong by itself."""
    return settings.validate(settings_of(method), values)


def check(method: str, checked: settings.Common) -> None:
    """Raise SafeError for settings that do not fit each other."""
    central_of(method).check(checked)


def supervised(method: str) -> bool:
    """Whether a method needs labels."""
    return central_of(method).supervised


def told_in_full(method: str) -> bool:
    """Whether nodes are told, in each round, all that a method carries."""
    return central_of(method).told_in_full
