"""``v6-federated settings``: the settings of a method."""

from typing import Any

from v6_workbench import registry
from v6_workbench.cli import console
from v6_workbench.cli.options import SettingsOptions

POSSIBLE = "Secure aggregation is possible: aggregation=masked, or pinned in a study that the hospitals have accepted."


def run(options: SettingsOptions) -> int:
    """Show the settings that a method uses, with defaults and meanings, and whether central may see sums only."""
    from rich.markup import escape

    from v6_workbench.reporting import tables

    central, defaults, single = _known(options.method) if registry.is_here(options.method) else _asked(options.method)
    console.console().print(tables.settings_table(central["arguments"]))
    console.console().print(escape(single or POSSIBLE))
    allowed = next(a["allowed_values"] for a in central["arguments"] if a["name"] == "aggregation")
    console.last_line({"method": options.method, "defaults": defaults, "aggregation": allowed})
    return console.OK


def _known(method: str) -> tuple[dict[str, Any], dict[str, Any], str]:
    """The entry of a method of this project, its defaults, and why it cannot run with secure aggregation."""
    from v6_workbench.network import stored

    central = stored.central(method)
    return central, stored.defaults(central), stored.single(central)


def _asked(method: str) -> tuple[dict[str, Any], dict[str, Any], str]:
    """The same of a method from elsewhere, whose code is asked."""
    from v6_workbench.network import store

    (central,) = store.entry(method)["functions"]
    fields = registry.settings_of(method).model_fields
    defaults = {a["name"]: fields[a["name"]].default for a in central["arguments"] if a["has_default_value"]}
    reason = registry.single_answers(method)
    return central, defaults, store.needs_single(reason) if reason else ""
