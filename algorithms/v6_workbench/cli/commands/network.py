"""``v6-federated network up|status|down``: a real vantage6 network on this machine."""

import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd

from v6_federated.base.errors import SafeError
from v6_federated.rules.limits import PREFIX, PROFILES
from v6_workbench import registry
from v6_workbench.cli import console, job, node_environment, study
from v6_workbench.cli.experiment import dataset_of, with_columns
from v6_workbench.cli.options import NetworkOptions, UpOptions
from v6_workbench.simulation import dealing
from v6_workbench.simulation.mock_node import Database

NODES = 3
LONGEST = 60  # letters of an organization's name


def up(options: UpOptions) -> int:
    """Deal the data to files, one for each node, and start a network whose nodes hold them."""
    if sys.platform == "win32":
        raise SafeError("network up needs Linux; on Windows, run it in WSL (`wsl --install` installs it)")
    from v6_workbench.network import images, local

    if options.nodes is not None and options.nodes < 1:
        raise SafeError(f"--nodes {options.nodes} is too few; expected at least 1")
    if options.profile not in PROFILES:
        accepted = f"{', '.join(PROFILES[:-1])} or {PROFILES[-1]}"
        raise SafeError(f"--profile {options.profile} is not a profile; expected {accepted}")
    plan = study.plan_of(options)
    environment = node_environment.read(options.node_env)
    base = {f"{PREFIX}PROFILE": options.profile} | ({} if plan is None else {f"{PREFIX}AGGREGATION": "pinned"})
    environment.check(base)
    features, excluded = job.features_of(options), job.excluded_of(options)
    dataset, partition = dataset_of(options, features, options.label, excluded=excluded)
    if len(options.data) == 1:
        dataset = with_columns(dataset, partition, options.label, features, excluded)
    nodes = options.nodes if options.nodes or partition.startswith("column:") else NODES
    parts = dealing.deal(dataset, partition, nodes, options.partition_seed, options.label)
    if dataset.test is not None:
        console.say(f"{dataset.name}: its test set is not used; nodes evaluate on rows that they hold out")
    environment.check_nodes(len(parts))
    with tempfile.TemporaryDirectory() as folder:
        files = [_write(part, Path(folder) / f"node-{k}") for k, part in enumerate(parts.values(), start=1)]
        found = local.up(
            files,
            organizations=_organizations(parts) if partition.startswith("column:") else None,
            name=options.name,
            port=options.port,
            encrypted=options.encrypted,
            algorithm_env=[base | environment.of(k) for k in range(1, len(parts) + 1)],
            study=plan,
            log=console.say,
        )
    if old := images.stale(images.of_method(method) for method in registry.names()):
        console.say(images.STALE.format(names=", ".join(old)))
    console.last_line({"network": found.name, "url": f"{found.url}:{found.port}", "organizations": found.organizations})
    return console.OK


def status(options: NetworkOptions) -> int:
    """Show a line for the server and for each node."""
    from rich.table import Table

    from v6_workbench.network import local

    rows = local.status(options.name)
    table = Table(box=None, pad_edge=False)
    for heading in ("role", "organization", "container", "online"):
        table.add_column(heading)
    for row in rows:
        table.add_row(row["role"], row["organization"] or "", row["container"], "yes" if row["online"] else "no")
    console.console().print(table)
    console.last_line({"network": options.name, "online": all(row["online"] for row in rows)})
    return console.OK


def down(options: NetworkOptions) -> int:
    """Remove a network."""
    from v6_workbench.network import local

    local.down(options.name)
    if (left := local.unused_image()) is not None:
        console.say(
            f"the image {left[0]} ({left[1]} MB) stays for the next network; `docker image rm {left[0]}` removes it"
        )
    console.last_line({"network": options.name, "down": True})
    return console.OK


def _organizations(values: Iterable[str]) -> list[str]:
    """Names of organizations from the values of a column: of one line, not too long, and each once."""
    found: list[str] = []
    for k, value in enumerate(values, start=1):
        name = " ".join("".join(c if c.isprintable() else " " for c in value).split())[:LONGEST] or f"hospital_{k}"
        found.append(name if name not in found else f"{name} ({k})")
    return found


def _write(database: Database, stem: Path) -> Path:
    if isinstance(database, pd.DataFrame):
        path = stem.with_suffix(".csv")
        # rows for a node, not for a person: every text stays as it is
        database.to_csv(path, index=False, encoding="utf-8", lineterminator="\n")
    else:
        path = stem.with_suffix(".npz")
        np.savez(path, x=database[0], y=database[1])
    return path
