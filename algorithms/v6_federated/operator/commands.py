"""All commands of operators, in the order in which they are listed."""

from typing import Any

from v6_federated.operator import check_schema, make_keys, results, show_audit, show_limits, sizes, stop, studies
from v6_federated.operator.command_line import Command, Group

COMMANDS: tuple[Command[Any] | Group, ...] = (
    show_audit.COMMAND,
    results.COMMAND,
    stop.COMMAND,
    show_limits.COMMAND,
    Group("keys", (make_keys.NEW, make_keys.SHOW), "Make or show this hospital's identity key."),
    Group(
        "schema",
        (check_schema.NEW, check_schema.CHECK),
        "Draft or check what the hospitals agree on about their tables.",
    ),
    Group(
        "study",
        (studies.NEW, studies.CHECK, studies.ACCEPT, sizes.COMMAND),
        "Agree with other hospitals on who takes part.",
    ),
)
