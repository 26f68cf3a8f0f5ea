"""``v6-federated settings``: the settings of a method."""

import functools
from dataclasses import dataclass

from v6_workbench import registry
from v6_workbench.cli import console
from v6_workbench.cli.options import Method
from v6_workbench.cli.records import Command

POSSIBLE = "Secure aggregation is possible: aggregation=masked, or pinned in a study that the hospitals have accepted."


@dataclass(frozen=True, kw_only=True)
class SettingsOptions:
    """Options of ``settings``."""

    method: Method


def run(options: SettingsOptions) -> int:
    """Show the settings that a method uses, with defaults and meanings, and whether central may see sums only."""
    from rich.markup import escape

    from v6_federated.messages import relations
    from v6_workbench.network import store
    from v6_workbench.reporting import tables

    (central,) = store.entry(options.method)["functions"]
    unused = registry.unused(options.method)
    arguments = [argument for argument in central["arguments"] if argument["name"] not in unused]
    fits = functools.partial(relations.words, registry.settings_of(options.method))
    console.console().print(tables.settings_table(arguments, fits))
    reason = registry.single_answers(options.method)
    say = store.needs_single(reason) if reason else POSSIBLE
    console.console().print(escape(say))
    fields = registry.settings_of(options.method).model_fields
    defaults = {name: field.default for name, field in fields.items() if not field.is_required() and name not in unused}
    allowed = next(a["allowed_values"] for a in central["arguments"] if a["name"] == "aggregation")
    console.last_line({"method": options.method, "defaults": defaults, "aggregation": allowed})
    return console.OK


COMMAND = Command(
    "settings",
    SettingsOptions,
    run,
    help="Show the settings of a method with their defaults; --set changes them.",
    example="settings fedavg",
)
