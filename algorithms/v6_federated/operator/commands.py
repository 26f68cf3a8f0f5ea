"""All commands of operators, in the order in which they are listed."""

from typing import Any

from v6_federated.operator import audit, keys, limits, results, schema, sizes, stop, study
from v6_federated.operator.command_line import Command, Group

COMMANDS: tuple[Command[Any] | Group, ...] = (
    audit.COMMAND,
    results.COMMAND,
    stop.COMMAND,
    limits.COMMAND,
    Group("keys", (keys.NEW, keys.SHOW), "Make or show this hospital's identity key."),
    Group("schema", (schema.NEW, schema.CHECK), "Draft or check what the hospitals agree on about their tables."),
    Group(
        "study", (study.NEW, study.CHECK, study.ACCEPT, sizes.COMMAND), "Agree with other hospitals on who takes part."
    ),
)
