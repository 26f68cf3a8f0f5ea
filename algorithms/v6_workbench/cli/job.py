"""The settings of a job from the options of a command, and what a job takes over from the one that it resumes."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from v6_federated.base.errors import SafeError
from v6_federated.messages.common import Common
from v6_federated.messages.job import SPECIAL
from v6_federated.messages.settings import Settings
from v6_workbench import registry
from v6_workbench.cli import values
from v6_workbench.cli.console import say
from v6_workbench.cli.options import ColumnOptions, JobOptions

# settings that have an option of their own
OWN_OPTION = {
    name: f"--{name}" for name in ("rounds", "model", "seed", "label", "features", "exclude", "holdout", "preprocess")
}
OWN_OPTION |= {"target": "--target A --stop-at-target", "until_converged": "--until-converged TOL"}
OWN = ("rounds", "target", "until_converged", "resume")  # settings that a job does not take from the earlier one
ROWS = ("label", "features", "holdout")  # settings that an experiment has itself
WITH_NAMES = ("organizations", "evaluators")  # settings that the command line also takes by name

Options = TypeVar("Options", bound=JobOptions)


def with_rounds(options: Options, method: str) -> Options:
    """Fill in the number of rounds, unless the options name it: see ``registry.rounds``.

    Args:
        options: the options.
        method: the method's name.

    Returns:
        The options.
    """
    return options if options.rounds is not None else replace(options, rounds=registry.rounds(method))


def with_ids(settings: Mapping[str, Any], ids: Mapping[str, int]) -> dict[str, Any]:
    """Put ids in the place of the names of organizations.

    Args:
        settings: a job's settings.
        ids: of the organizations, by name.

    Returns:
        The settings; ``organizations`` and ``evaluators`` hold ids.

    Raises:
        SafeError: there is no organization of such a name.
    """
    found = dict(settings)
    for setting in WITH_NAMES:
        named = found.get(setting) or []
        if not has_names({setting: named}):
            continue
        numbers = [int(n) if isinstance(n, str) and n not in ids and n.isdecimal() else n for n in named]  # 1,north
        if absent := [name for name in numbers if isinstance(name, str) and name not in ids]:
            there = ", ".join(f"{name} ({k})" for name, k in ids.items()) or "organizations that you may see"
            raise SafeError(f"{setting}: there is no {', '.join(absent)}; expected names or ids of {there}")
        found[setting] = [ids[name] if isinstance(name, str) else name for name in numbers]
    return found


def has_names(settings: Mapping[str, Any]) -> bool:
    """Say whether settings name organizations in place of their ids."""
    lists = [settings.get(setting) for setting in WITH_NAMES]
    return any(isinstance(name, str) for named in lists if isinstance(named, list) for name in named)


def settings_of(options: JobOptions) -> dict[str, Any]:
    """Return the settings that the options name, except seed and rows.

    Args:
        options: the options; without rounds, there are ``registry.ROUNDS``.

    Returns:
        Values by the names of the settings.

    Raises:
        SafeError: an option is wrong by itself.
    """
    values.check_target(options.target)
    if options.stop_at_target and options.target is None:
        raise SafeError("--stop-at-target needs an accuracy to stop at; add for example --target 0.97")
    found: dict[str, Any] = {"rounds": registry.ROUNDS if options.rounds is None else options.rounds}
    if options.model is not None:
        found["model"] = options.model
    if options.stop_at_target:
        found["target"] = options.target
    if options.until_converged is not None:
        found["until_converged"] = options.until_converged
    if options.preprocess:
        found["preprocess"] = list(options.preprocess)
    for text in options.settings:
        key, written = values.pair(text, "--set", "lr=0.1")
        if key in OWN_OPTION:
            raise SafeError(f"--set {key} has an option of its own; use {OWN_OPTION[key]}")
        if key in found:
            raise SafeError(f"--set {key} is given twice; remove one")
        found[key] = values.setting(key, written)
    return found


def seed_of(options: JobOptions) -> dict[str, int]:
    """Return the seed as a setting, if the options name one: a resumed job otherwise keeps its seed."""
    return {} if options.seed is None else {"seed": options.seed}


def features_of(options: ColumnOptions) -> list[str] | None:
    """Return the features that the options name, if any. Raises SafeError."""
    return None if options.features is None else values.names(options.features, "--features")


def columns_named(settings: Mapping[str, Any]) -> list[str]:
    """Return the columns that settings name, whether they are features or not, such as ``event`` and ``subgroup``."""
    return [column for name in (*SPECIAL, "subgroup") if isinstance(column := settings.get(name), str)]


def excluded_of(options: ColumnOptions) -> list[str] | None:
    """Return the columns that the options exclude, if any. Raises SafeError."""
    if options.exclude is None:
        return None
    if options.features is not None:
        raise SafeError("--exclude cannot be used with --features; remove those columns from --features instead")
    return values.names(options.exclude, "--exclude")


def check_has_accuracy(method: str, checked: Common, target: float | None) -> None:
    """Check that a job with a target has an accuracy.

    Args:
        method: the method's name.
        checked: its settings.
        target: the target.

    Raises:
        SafeError: the job has no accuracy.
    """
    if target is None:
        return
    if checked.regression:
        raise SafeError(f"--target {target:g} is an accuracy, which a number to predict does not have; remove it")
    if not registry.supervised(method):
        raise SafeError(f"--target {target:g} is an accuracy, which {method} does not have; remove it")


def with_rows_of(options: Options, earlier: Mapping[str, Any]) -> tuple[Options, dict[str, Any]]:
    """Fill in label, features and holdout of an earlier job, unless the options name them.

    Args:
        options: the options of the command that resumes it.
        earlier: the earlier result.

    Returns:
        The options, and what was filled in that is not a default.
    """
    settings = earlier["settings"]
    taken = {name: settings[name] for name in ROWS if getattr(options, name) is None and settings.get(name) is not None}
    written: dict[str, Any] = {name: json.dumps(v) if name == "features" else v for name, v in taken.items()}
    return replace(options, **written), {k: v for k, v in taken.items() if v != Common.model_fields[k].default}


def resumed(
    earlier: dict[str, Any], method: str, settings: dict[str, Any], rows: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return the settings of a job that resumes an earlier one, and print those that it takes over.

    Args:
        earlier: the earlier result.
        method: the method's name.
        settings: the settings of the command; all others are those of the earlier job.
        rows: what an experiment took over; it then has label, features and holdout itself. None: a task has them.

    Returns:
        The settings, with the earlier result as ``resume``.
    """
    same = earlier.get("method") == method  # otherwise the job is refused later, with a better reason
    kept = _inherited(earlier, registry.settings_of(method), settings) if same else {}
    if rows is not None:
        kept = {name: value for name, value in kept.items() if name not in ROWS}
    if taken := {**(rows or {}), **kept}:
        say("taken over from the earlier job: " + ", ".join(f"{name}={_short(value)}" for name, value in taken.items()))
    return {**kept, **settings, "resume": earlier}


def _inherited(earlier: Mapping[str, Any], accepted: type[Settings], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of an earlier job that differ from their defaults and that the new job does not name."""
    before = earlier.get("settings")
    return {
        name: before[name]
        for name, field in accepted.model_fields.items()
        if isinstance(before, dict)
        and name in before
        and name not in (*OWN, *settings)
        and before[name] != field.default
    }


def _short(value: Any) -> str:
    """A setting in a form that fits in a line."""
    return f"[{', '.join(map(str, value[:10]))}, ...]" if isinstance(value, list) and len(value) > 10 else str(value)
