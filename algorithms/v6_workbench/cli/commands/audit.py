"""``v6-federated audit``: what left a node."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from v6_federated.operator import audit
from v6_workbench.cli import console
from v6_workbench.cli.records import Command, Option


@dataclass(frozen=True, kw_only=True)
class AuditOptions:
    """Options of ``audit``."""

    file: Annotated[Path, Option("a hospital's folder, its audit.jsonl, or a task's output", "FILE", positional=True)]
    job: Annotated[str | None, Option("show every answer of the job whose key begins so", "KEY")] = None


def run(options: AuditOptions) -> int:
    """Print what left a node, by job."""
    lines, numbers = audit.shown(options.file, options.job)
    print(*lines, sep="\n")
    console.last_line(numbers)
    return console.OK


COMMAND = Command(
    "audit",
    AuditOptions,
    run,
    help="Show what left a node, by job, and what was refused.",
    example="audit hospitals/node-1",
)
