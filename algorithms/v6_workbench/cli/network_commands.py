"""The commands that need a Docker engine or a vantage6 server: ``network up|status|down`` and ``submit``."""

import contextlib
import getpass
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pandas as pd
from rich.console import Console
from rich.table import Table

from v6_federated.base.errors import SafeError
from v6_federated.base.version import __version__


def up(options: Any) -> int:
    """Deal the data to files, one a node, and start a network whose nodes hold them."""
    from v6_workbench.cli import options as request
    from v6_workbench.network import local
    from v6_workbench.simulation import datasets

    if options.nodes is not None and options.nodes < 1:
        raise SafeError(f"--nodes {options.nodes} is refused; expected at least 1")
    dataset = request.data(options)
    nodes = options.nodes if options.nodes or options.partition.startswith("column:") else 3
    parts = datasets.deal(dataset, options.partition, nodes, options.partition_seed, options.label)
    if dataset.test is not None:
        _say(f"{dataset.name}: the test set stays here; nodes evaluate on rows that they hold out")
    environments: list[dict[str, str]] = [{} for _ in parts]
    for text in options.node_env:
        _set_environment(environments, text)
    for environment in environments:
        request.check_environment(environment)
    with tempfile.TemporaryDirectory() as folder:
        files = [_write(part, Path(folder) / f"node-{k}") for k, part in enumerate(parts.values(), start=1)]
        found = local.up(
            files,
            name=options.name,
            port=options.port,
            encrypted=options.encrypted,
            algorithm_env=environments,
            log=_say,
        )
    print(json.dumps({"network": found.name, "url": f"{found.url}:{found.port}", "organizations": found.organizations}))
    return 0


def status(options: Any) -> int:
    """A line for the server and for each node."""
    from v6_workbench.network import local

    rows = local.status(options.name)
    table = Table(box=None, pad_edge=False)
    for heading in ("role", "organization", "container", "online"):
        table.add_column(heading)
    for row in rows:
        table.add_row(row["role"], row["organization"] or "", row["container"], "yes" if row["online"] else "no")
    Console().print(table)
    print(json.dumps({"network": options.name, "online": all(row["online"] for row in rows)}))
    return 0


def down(options: Any) -> int:
    """Remove a network."""
    from v6_workbench.network import local

    local.down(options.name)
    print(json.dumps({"network": options.name, "down": True}))
    return 0


def submit(options: Any, values: dict[str, Any], on_round: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Send the task, show its rounds, return its result. Ctrl-C asks whether the nodes shall stop too."""
    from v6_workbench import registry
    from v6_workbench.network import submit as sending

    client, collaboration, organization, label, where = _connect(options)
    label = options.database or label
    asked = values.get("organizations")
    asked = asked and sorted({organization, *asked, *(values.get("evaluators") or [])})
    for offline in sending.check_nodes(client, collaboration, label, asked):
        _say(f"organization {offline}: its node is offline; the task waits for it")
    if options.resume is not None and options.resume.isdigit():
        values = resume(sending.earlier(client, int(options.resume), options.method), options.method, values)
        registry.check(options.method, registry.validate(options.method, values))
    task_id = sending.send(
        client,
        options.method,
        values,
        collaboration=collaboration,
        organization=organization,
        image=options.image or f"v6-{options.method}",
        label=label,
        query=options.query,
    )
    _say(f"task {task_id} is on its way to {where}")
    try:
        result = sending.follow(client, task_id, options.method, on_round)
    except KeyboardInterrupt:
        _ask_to_stop(client, task_id)
        raise
    if (version := result["versions"]["v6-federated"]) != __version__:
        _say(f"the image holds v6-federated {version}, here is {__version__}")
    return {**result, "experiment": {"network": where, "task": task_id}}


def resume(
    earlier: dict[str, Any], method: str, values: dict[str, Any], rows: dict[str, Any] | None = None
) -> dict[str, Any]:
    """The settings of a job that goes on from ``earlier``: those of the command, all others as they were; told.

    ``rows``: what was taken over for an experiment, which then has label, features and share held out.
    """
    from v6_federated.central import resume
    from v6_workbench import registry

    same = earlier.get("method") == method  # else it is refused later, for the better reason
    kept = resume.inherited(earlier, registry.settings_of(method), values) if same else {}
    if rows is not None:
        kept = {name: value for name, value in kept.items() if name not in ("label", "features", "holdout")}
    if told := {**(rows or {}), **kept}:
        _say("as in the earlier job: " + ", ".join(f"{name}={_short(value)}" for name, value in told.items()))
    return {**kept, **values, "resume": earlier}


def _short(value: Any) -> str:
    """A setting as a line can hold it."""
    return f"[{', '.join(map(str, value[:10]))}, ...]" if isinstance(value, list) and len(value) > 10 else str(value)


def _connect(options: Any) -> tuple[Any, int, int, str, str]:
    """Client, collaboration, organization where central runs, database label, and the server's name."""
    from v6_workbench.network import local, server

    if options.server is None:
        found = local.load(options.network)
        ids = sorted(found.organizations.values())
        organization = ids[0] if options.organization is None else options.organization
        return local.client(found), found.collaboration, organization, found.label, f"network {found.name}"
    needed = {name: getattr(options, name) for name in ("username", "collaboration", "organization")}
    missing = [f"--{name}" for name, value in needed.items() if value is None]
    if missing:
        raise SafeError(f"--server needs {', '.join(missing)} too")
    address, port = urlsplit(options.server), None
    with contextlib.suppress(ValueError):  # of a port that is none
        port = address.port or (443 if address.scheme == "https" else 80)
    if address.scheme not in ("http", "https") or not address.hostname or port is None:
        raise SafeError(f"--server {options.server} is refused; expected for example https://server.org:443/api")
    password = os.environ.get("V6_FEDERATED_PASSWORD") or getpass.getpass("password: ")
    client = server.sign_in(
        f"{address.scheme}://{address.hostname}",
        port,
        address.path.rstrip("/") or "/api",
        options.username,
        password,
        options.collaboration,
        None if options.key is None else str(options.key),
    )
    return client, options.collaboration, options.organization, "default", options.server


def _ask_to_stop(client: Any, task_id: int) -> None:
    """The task goes on at the nodes unless the researcher says otherwise."""
    print(f"\nStop task {task_id} at the nodes as well? [y/N]", file=sys.stderr, flush=True)
    try:
        answer = sys.stdin.readline()
    except KeyboardInterrupt:
        answer = ""
    if answer.strip().lower().startswith("y"):
        client.task.kill(task_id)
        _say(f"task {task_id} is being stopped")
    else:
        _say(f"task {task_id} goes on")


def _set_environment(environments: list[dict[str, str]], text: str) -> None:
    who, colon, rest = text.partition(":")
    pair = rest if colon and who.isdigit() else text
    name, equals, value = pair.partition("=")
    if not equals or not name or (pair is rest and not 1 <= int(who) <= len(environments)):
        raise SafeError(f"--node-env {text!r} is refused; expected NAME=VALUE or K:NAME=VALUE with a node K")
    for environment in environments if pair is text else [environments[int(who) - 1]]:
        environment[name] = value


def _write(database: Any, stem: Path) -> Path:
    import numpy as np

    if isinstance(database, pd.DataFrame):
        path = stem.with_suffix(".csv")
        database.to_csv(path, index=False)
    else:
        path = stem.with_suffix(".npz")
        np.savez(path, x=database[0], y=database[1])
    return path


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
