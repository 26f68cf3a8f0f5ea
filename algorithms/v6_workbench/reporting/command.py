"""The command that makes a result again."""

import contextlib
import json
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic_core import PydanticUndefined

from v6_federated.messages.job import HIDDEN
from v6_federated.operator.show_limits import written
from v6_federated.rules.limits import LIMITS, PREFIX
from v6_workbench import registry
from v6_workbench.reporting.summary import Result

OWN = ("model", "rounds", "label", "holdout", "seed", "preprocess", "target", "until_converged", "features", "exclude")
LOCAL = "network "  # before the name of a local network
OF_FILES = "column:file of the node"  # the partition of several files, see ``simulation.datasets.FILE``


def command_of(result: Result) -> str:
    """Write the command whose result this is.

    Args:
        result: the result.

    Returns:
        The command; empty if the command line has none: for baselines, partitions of a developer's own, studies of
        which not all blocks took part, and methods that are not installed.
    """
    experiment, settings = result.get("experiment") or {}, result["settings"]
    if result["method"] not in registry.names():
        return ""
    if "task" in experiment:
        network = str(experiment["network"])
        where = ["--network", network.removeprefix(LOCAL)] if network.startswith(LOCAL) else ["--server", network]
        usual = f"v6-{result['method']}"
        image = str((result.get("image") or {}).get("name") or usual)
        where += [] if image == usual else ["--image", image]
        words = ["submit", result["method"], *where]
    else:
        partition = experiment.get("partition") or ""
        of_files, blocks = partition == OF_FILES, _blocks(result)
        if experiment.get("trained") != "federated" or (" " in partition and not of_files) or blocks == []:
            return ""
        names = experiment["nodes"] if of_files else [experiment["data"]]
        words = ["run", result["method"], *(word for name in names for word in ("--data", str(name)))]
        if not partition.startswith("column:"):
            words += ["--nodes", str(len(experiment["nodes"]))]
        words += [] if of_files else ["--partition", partition]
        if blocks:  # dealing makes as many blocks again
            words += ["--study", str(min(map(len, blocks)))]
            words += ["--hospital-totals", HIDDEN] if result["privacy"].get("hospital_totals") == HIDDEN else []
        if blocks and settings.get("clip") is not None:  # noise needs one
            words += ["--schema", "schema.json"]
        if experiment["partition_seed"]:
            words += ["--partition-seed", str(experiment["partition_seed"])]
        if experiment.get("speeds") is not None:
            words += ["--speeds", f"{experiment['speeds']:g}"]
        words += _limits(experiment.get("limits") or ())
    return shlex.join(
        ["v6-federated", *words, *_settings(result["method"], settings, len(experiment.get("nodes") or ()))]
    )


def _blocks(result: Result) -> list[list[int]] | None:
    """The blocks of the study that a job was in; none if it does not tell all of them, None if there was no study."""
    privacy = result.get("privacy") or {}
    if privacy.get("aggregation") != "pinned":
        return None
    blocks, nodes = privacy.get("blocks") or [], len((result.get("experiment") or {}).get("nodes") or ())
    return blocks if sorted(k for block in blocks for k in block) == [*range(1, nodes + 1)] else []


def _limits(groups: Any) -> Iterator[str]:
    """Limits of nodes that are not those of ``trusting``, or of the profile that is named."""
    for group in groups:
        nodes = [""] if len(groups) == 1 else [f"{k}:" for k in group["organizations"]]
        profile = group["limits"]["profile"]
        values = {} if profile == "trusting" else {"PROFILE": profile}
        for limit in LIMITS:
            value = group["limits"].get(limit.name.lower())
            usual = limit.value(profile)
            if value is None or written(value) in (written(usual), "none") or limit.name == "MINIMUM_ORGANIZATIONS":
                continue
            if not (isinstance(value, bool) and int(value) == usual):
                values[limit.name] = written(value)
        for node in nodes:
            for name, text in values.items():
                yield from ("--node-env", f"{node}{PREFIX}{name}={text}")


def _settings(method: str, settings: Mapping[str, Any], nodes: int) -> Iterator[str]:
    """The settings that are not those without options; ``nodes`` are those of an experiment, or none."""
    tested = nodes > 0 and settings.get("evaluators") == [nodes + 1]  # the node that has the data's own test set
    left_out = ("organizations", "evaluators") if tested else ()
    fields = registry.settings_of(method).model_fields
    for name in ("model", "rounds", "label", "holdout", "seed", "until_converged"):
        value, field = settings.get(name), fields.get(name)
        usual = None if field is None or field.default is PydanticUndefined else field.default
        if value is not None and field is not None and (value != usual or name == "seed"):
            yield from (f"--{name.replace('_', '-')}", f"{value:g}" if isinstance(value, float) else str(value))
    for name in ("features", "exclude"):
        if settings.get(name):
            plain = all("," not in column and column == column.strip() for column in settings[name])
            yield from (f"--{name}", ",".join(settings[name]) if plain else json.dumps(settings[name]))
    for step in settings.get("preprocess") or ():
        yield from ("--preprocess", step)
    if settings.get("target") is not None:
        yield from ("--target", f"{settings['target']:g}", "--stop-at-target")
    for name, field in fields.items():
        value = settings.get(name)
        if (name, value) == ("aggregation", "pinned") and nodes:
            continue  # --study says so
        if name not in (*OWN, *left_out) and value is not None and value != field.default:
            yield from (
                "--set",
                f"{name}={value if isinstance(value, str) and not _is_json(value) else json.dumps(value)}",
            )


def _is_json(text: str) -> bool:
    """Whether the command line would read a text as something else."""
    with contextlib.suppress(ValueError):
        json.loads(text)
        return True
    return text.lower() in ("none", "null")
