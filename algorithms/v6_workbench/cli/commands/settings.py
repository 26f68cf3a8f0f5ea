"""``v6-federated settings``: the settings of a method."""

from dataclasses import dataclass

from v6_workbench import registry
from v6_workbench.cli import console
from v6_workbench.cli.options import Method
from v6_workbench.cli.records import Command


@dataclass(frozen=True, kw_only=True)
class SettingsOptions:
    """Options of ``settings``."""

    method: Method


def run(options: SettingsOptions) -> int:
    """Show the settings of a method with their defaults and meanings."""
    from v6_workbench.network import store
    from v6_workbench.reporting import tables

    (central,) = store.entry(options.method)["functions"]
    console.console().print(tables.settings_table(central["arguments"]))
    fields = registry.settings_of(options.method).model_fields
    defaults = {name: field.default for name, field in fields.items() if not field.is_required()}
    console.last_line({"method": options.method, "defaults": defaults})
    return console.OK


COMMAND = Command(
    "settings",
    SettingsOptions,
    run,
    help="Show the settings of a method with their defaults; --set changes them.",
    example="settings fedavg",
)
