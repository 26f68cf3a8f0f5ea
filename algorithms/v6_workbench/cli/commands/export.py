"""``v6-federated export``: a result's model as a file."""

from v6_workbench.cli import console, results
from v6_workbench.cli.options import ExportOptions


def run(options: ExportOptions) -> int:
    """Write a result's model to a file."""
    from v6_workbench.reporting import export

    result = results.read(options.result)
    results.check_file(options.to, "--to")
    export.save(result, options.to)
    console.last_line({"model": str(options.to)})
    return console.OK
