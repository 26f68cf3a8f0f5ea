"""``v6-federated export``: a result's model as a file."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from v6_workbench.cli import console, results
from v6_workbench.cli.records import Command, Option


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """Options of ``export``."""

    result: Annotated[Path, Option("a result.json, or the folder that it is in", "RESULT", positional=True)]
    to: Annotated[Path, Option("model.npz, .safetensors or .pt; for trees also model.txt, LightGBM's format", "FILE")]


def run(options: ExportOptions) -> int:
    """Write a result's model to a file."""
    from v6_workbench.reporting import export

    result = results.read(options.result)
    results.check_file(options.to, "--to")
    export.save(result, options.to)
    console.last_line({"model": str(options.to)})
    return console.OK


COMMAND = Command(
    "export",
    ExportOptions,
    run,
    help="Write a result's model to a file.",
    example="export DIR/result.json --to model.npz",
)
