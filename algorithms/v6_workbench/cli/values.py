"""Values from the text of options: KEY=VALUE, settings, lists of names."""

from typing import Any

from v6_federated.base import json_text
from v6_federated.base.errors import SafeError

LISTS = ("classes", "organizations", "evaluators", "grid")  # settings that accept a,b,c without brackets
SHOWN = 100  # letters of a wrong value


def pair(text: str, option: str, example: str) -> tuple[str, str]:
    """Split KEY=VALUE.

    Args:
        text: the text.
        option: the option that it is from, for errors.
        example: a right value, for errors.

    Returns:
        The key and the value, without spaces around them.

    Raises:
        SafeError: there is no key or no equals sign.
    """
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise SafeError(f"{option} {text!r} is not of the form KEY=VALUE; expected for example {example}")
    return key.strip(), value.strip()


def value(text: str) -> Any:
    """Read a value: none, JSON, or else the text itself. Raises SafeError if it is nested too deeply."""
    if text.lower() in ("none", "null"):
        return None
    try:
        return json_text.parse(text)
    except SafeError:
        raise
    except ValueError:
        return text


def setting(key: str, text: str) -> Any:
    """Read the value of a setting.

    Args:
        key: the setting's name.
        text: its text; of ``LISTS`` also a,b,c without brackets.

    Returns:
        The value, as JSON has it.

    Raises:
        SafeError: it is nested too deeply, or holds too large a number.
    """
    try:
        found = value(text)
    except SafeError as error:
        shown = text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
        raise SafeError(f"{key}={shown} is refused: {error}") from None
    if key not in LISTS or isinstance(found, list | None):
        return found
    parts = [part.strip() for part in text.split(",")]
    values = [value(part) for part in parts]
    if all(isinstance(v, int | float) for v in values):
        return values
    # labels are of one type: none, and 1 next to 3a, are words
    return [v if isinstance(v, str) else part for v, part in zip(values, parts, strict=True)]


def names(text: str, option: str) -> list[str]:
    """Read names of columns.

    Args:
        text: a,b,c, or a JSON list for names with a comma or a space at their beginning.
        option: the option that it is from, for errors.

    Returns:
        The names.

    Raises:
        SafeError: the text is not a list of names.
    """
    found = value(text) if text.lstrip().startswith("[") else [name.strip() for name in text.split(",")]
    if not isinstance(found, list) or not all(isinstance(name, str) and name for name in found):
        raise SafeError(f"{option} {text or repr(text)} is not a list of names; expected a,b,c or a JSON list of names")
    return found


def check_target(target: float | None) -> None:
    """Raise SafeError if a target is not an accuracy."""
    if target is not None and not 0 < target <= 1:
        raise SafeError(f"--target {target:g} is out of range; expected an accuracy above 0 and up to 1, such as 0.97")
