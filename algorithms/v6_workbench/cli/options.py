"""What the options of a command ask for, checked before anything starts. All raise SafeError."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from v6_federated.base.errors import SafeError
from v6_federated.base.vantage6_api import NodePermissionException
from v6_federated.privacy.policy import Policy

# settings that have an option of their own
OWN_OPTION = {name: name for name in ("rounds", "model", "seed", "label", "features", "holdout", "preprocess")}
OWN_OPTION |= {"target": "target A --stop-at-target"}
LISTS = ("classes", "organizations", "evaluators")  # settings that a,b,c may be given to
# settings of all methods compared, and the option that says them
SAME = {"label": "--label ", "holdout": "--holdout ", **{k: f"--set {k}=" for k in ("organizations", "evaluators")}}


def experiment(options: Any) -> tuple[Any, dict[str, Any]]:
    """The experiment and the method's settings that the options ask for."""
    from v6_workbench.simulation import datasets, experiments, partitions

    values = job_values(options)
    partitions.check(options.partition or "iid")
    for name, least in (("nodes", 1), ("processes", 1)):
        if getattr(options, name) is not None and getattr(options, name) < least:
            raise SafeError(f"--{name} {getattr(options, name)} is refused; expected at least {least}")
    environment = dict(_pair(text, "--node-env") for text in options.node_env)
    check_environment(environment)
    dataset = datasets.with_names(data(options), options.partition)  # read once, not for every fold
    nodes = options.nodes if options.nodes or options.partition.startswith("column:") else 5
    holdout = experiments.Experiment.holdout if options.holdout is None else options.holdout
    made = experiments.Experiment(
        dataset,
        nodes,
        options.partition,
        options.seed or 0,
        options.partition_seed,
        options.label,
        features(options),
        holdout,
        options.processes,
        environment,
        options.speeds,
    )
    return replace(made, features=_without(made, options)) if options.exclude else made, values


def check_environment(environment: Mapping[str, str]) -> None:
    """Refuse limits that a node would refuse to work with."""
    try:
        Policy.of_node(environment)
    except NodePermissionException as error:
        raise SafeError(f"--node-env: {error}") from None


def data(options: Any) -> Any:
    """The dataset. The partition is that by file where there are several, whose nodes they are, else iid if none is
    asked for."""
    from v6_workbench import registry
    from v6_workbench.simulation import datasets

    if len(options.data) == 1:
        options.partition = options.partition or "iid"
        return datasets.load(options.data[0])
    if options.nodes is not None or options.partition is not None:
        raise SafeError(f"{len(options.data)} times --data are as many nodes; leave the number and the partition out")
    options.partition = f"column:{datasets.FILE}"
    labelled = registry.supervised(options.method) if hasattr(options, "method") else True
    columns = features(options) if getattr(options, "features", None) else None
    return datasets.load_nodes(options.data, columns, options.label, labelled)


def _without(made: Any, options: Any) -> list[str]:
    """The features that are left without those excluded."""
    excluded = names(options.exclude, "--exclude")
    if options.features is not None:
        raise SafeError("--exclude beside --features is of no use; leave those columns out of --features")
    there, _ = made.columns()
    if not there:
        raise SafeError(
            f"--exclude {options.exclude} is refused: {options.data[0]} has no columns by name; leave it out"
        )
    if wrong := [name for name in excluded if name not in there]:
        left = ", ".join(map(repr, there))
        raise SafeError(f"--exclude {', '.join(wrong)} is refused; expected some of the features {left}")
    return [c for c in there if c not in excluded]


def job_values(options: Any) -> dict[str, Any]:
    """The settings of a job that the options name."""
    check_target(options.target)
    if options.stop_at_target and options.target is None:
        raise SafeError("--stop-at-target needs a target; expected for example --target 0.97")
    values: dict[str, Any] = {"rounds": options.rounds}
    if options.model is not None:
        values["model"] = options.model
    if options.stop_at_target:
        values["target"] = options.target
    if options.preprocess:
        values["preprocess"] = options.preprocess
    for text in options.set:
        key, value = _pair(text, "--set")
        if key in OWN_OPTION:
            raise SafeError(f"--set {key} is refused; expected --{OWN_OPTION[key]}, which says the same")
        if key in values:
            raise SafeError(f"--set {key} is given twice; expected once")
        values[key] = _value(value)
        if key in LISTS and not isinstance(values[key], list | None):
            parts = [part.strip() for part in value.split(",")]
            numbers = [_value(part) for part in parts]
            # none and 1 beside 3a are words: labels are of one kind
            values[key] = (
                numbers
                if all(isinstance(v, int | float) for v in numbers)
                else [v if isinstance(v, str) else part for v, part in zip(numbers, parts, strict=True)]
            )
    return values


def take_over(options: Any, earlier: Mapping[str, Any]) -> dict[str, Any]:
    """Give the options the label, the features and the share held out of an earlier job where they name none; returns
    what they got that is not the default."""
    from v6_federated.messages.common import Common

    settings = earlier["settings"]
    asked = {"label": options.label, "features": options.features, "holdout": options.holdout}
    taken = {name: settings[name] for name in asked if asked[name] is None and settings.get(name) is not None}
    for name, value in taken.items():
        setattr(options, name, json.dumps(value) if name == "features" else value)
    return {name: value for name, value in taken.items() if value != Common.model_fields[name].default}


def check_same_experiment(before: Mapping[str, Any], new: Any) -> None:
    """Refuse an earlier result of other rows, or of rows dealt otherwise: rows that it was trained on would be among
    those held out."""
    now = new.description()
    for name in now:
        if name in before and before[name] != now[name]:
            option = f"--{name.replace('_', '-')}"
            was = f"no {option}" if before[name] is None else f"{option} {before[name]}"
            was = "other nodes or rows" if name in ("nodes", "rows", "digest") else was
            if name == "trained":
                raise SafeError(f"--resume: a result that was trained {before[name]}; expected a federated one")
            raise SafeError(f"--resume: the earlier job had {was}; expected the same")


def check(method: str, values: Mapping[str, Any], on: Any, options: Any) -> None:
    """Refuse what can be seen to be wrong with a method and its settings on an experiment."""
    from v6_federated.central import resume
    from v6_workbench import registry

    known = {**on.common(), "holdout": on.holdout}
    if on.dataset.test is not None:
        known["evaluators"] = [0]  # who has all the rows that are held out
    checked = registry.validate(method, {**known, **values})
    if values.get("resume"):
        resume.check_kind(values["resume"], method, checked)
    steps = values.get("preprocess") or (values.get("resume") or {}).get("data", {}).get("preprocess")
    check_target_of(method, checked, options.target)
    registry.check(method, checked)
    regression = getattr(checked, "objective", None) == "regression"
    on.check(steps=bool(steps), supervised=registry.supervised(method), regression=regression)
    on.deal()


def seed(options: Any) -> dict[str, int]:
    """The seed that the options name: none is that of the job resumed, else 0."""
    return {} if options.seed is None else {"seed": options.seed}


def features(options: Any) -> list[str] | None:
    """The columns that the options name, if any."""
    return None if options.features is None else names(options.features, "--features")


def names(text: str, option: str) -> list[str]:
    """Names of columns: a,b,c, or a JSON list where one holds a comma or begins with a space."""
    found = _value(text) if text.lstrip().startswith("[") else [name.strip() for name in text.split(",")]
    if not isinstance(found, list) or not all(isinstance(name, str) and name for name in found):
        raise SafeError(f"{option} {text or repr(text)} is refused; expected a,b,c or a JSON list of names")
    return found


def method_with_settings(text: str) -> tuple[str, str, dict[str, Any]]:
    """Where it is trained ("" at all nodes, "centralized", "alone"), the method and its own settings."""
    from v6_workbench import registry

    kind, _, rest = text.partition(":")
    if kind not in ("centralized", "alone"):
        kind, rest = "", text
    method, _, settings = rest.partition(":")
    if not method:
        raise SafeError(f"{text!r} names no method; expected for example {text.rstrip(':')}:fedavg")
    if not kind and settings.partition(":")[0] in registry.names():
        raise SafeError(f"{text!r} is refused; expected centralized:{settings} or alone:{settings}")
    own: dict[str, Any] = {}
    for pair in re.split(r",(?=\w+=)", settings) if settings else ():
        key, value = _pair(pair, text)
        if key in SAME:
            raise SafeError(
                f"{text}: {key} of one method is refused, all are compared on the same rows; expected "
                f"{SAME[key]}{value} for all"
            )
        if key in own:
            raise SafeError(f"{text}: {key} is given twice; expected once")
        own[key] = _value(value)
    return kind, method, own


def _pair(text: str, where: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        example = "V6_FEDERATED_MINIMUM_ROWS=20" if where == "--node-env" else "lr=0.1"
        raise SafeError(f"{where} {text!r} is refused; expected KEY=VALUE, for example {example}")
    return key.strip(), value.strip()


def _value(text: str) -> Any:
    if text.lower() in ("none", "null"):
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text


def check_target_of(method: str, checked: Any, target: float | None) -> None:
    """Refuse an accuracy of a job that has none."""
    from v6_workbench import registry

    if target is None:
        return
    if getattr(checked, "objective", None) == "regression":
        raise SafeError(f"--target {target:g} is an accuracy, of no use to objective=regression; leave it out")
    if not registry.supervised(method):
        raise SafeError(f"--target {target:g} is an accuracy, of no use to {method}; leave it out")


def check_target(target: float | None) -> None:
    """Refuse an accuracy that there is not."""
    if target is not None and not 0 < target <= 1:
        raise SafeError(f"--target {target:g} is refused; expected an accuracy above 0 and at most 1, for example 0.97")
