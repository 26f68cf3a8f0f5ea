"""``v6-federated submit``: a method as a task on a vantage6 server."""

from __future__ import annotations

import contextlib
import getpass
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

from v6_federated.base.errors import SafeError
from v6_federated.base.version import __version__
from v6_workbench import registry
from v6_workbench.cli import console, job, results, show
from v6_workbench.cli.options import JobOptions, Method, ResultFolder
from v6_workbench.cli.records import Command, Option

if TYPE_CHECKING:
    from vantage6.client import UserClient


@dataclass(frozen=True, kw_only=True)
class SubmitOptions(JobOptions):
    """Options of ``submit``."""

    method: Method
    out: ResultFolder = None
    resume: Annotated[
        str | None,
        Option("resume an earlier result.json, or a task by its id, up to --rounds in total", "RESULT|TASK"),
    ] = None
    image: Annotated[str | None, Option("the method's image (v6-METHOD)")] = None
    network: Annotated[str, Option("a local network ({default})", "NAME")] = "default"
    server: Annotated[
        str | None, Option("another server in place of a local network, such as https://server.org:443/api", "URL")
    ] = None
    username: Annotated[
        str | None, Option("your name at that server; the password is V6_FEDERATED_PASSWORD, or asked for")
    ] = None
    collaboration: Annotated[int | None, Option("a collaboration at that server", "ID")] = None
    organization: Annotated[int | None, Option("where central runs (the first organization)", "ID")] = None
    database: Annotated[str | None, Option("label of the nodes' database (default)", "LABEL")] = None
    query: Annotated[str | None, Option("query for an SQL or SPARQL database, if the nodes allow queries", "SQL")] = (
        None
    )
    key: Annotated[Path | None, Option("private key, if the collaboration is encrypted", "FILE")] = None

    @property
    def resumed_task(self) -> int | None:
        """The task to resume, if ``resume`` is the id of one."""
        return int(self.resume) if self.resume is not None and self.resume.isdecimal() else None


@dataclass(frozen=True)
class Place:
    """Where a task goes.

    Attributes:
        client: a client that is signed in.
        collaboration: id of the collaboration.
        organization: id of the organization where central runs.
        label: label of the nodes' database.
        name: the server or network, as the user calls it.
    """

    client: UserClient
    collaboration: int
    organization: int
    label: str
    name: str


def run(options: SubmitOptions) -> int:
    """Send a method as a task, show its rounds, and bring the result."""
    features = job.features_of(options)
    rows = {"label": options.label, "features": features, "holdout": options.holdout}
    settings = {name: value for name, value in rows.items() if value is not None}
    settings |= {**job.seed_of(options), **job.settings_of(options)}
    if options.resume is not None and options.resumed_task is None:
        settings = job.resumed(results.read(Path(options.resume)), options.method, settings)
    checked = registry.validate(options.method, settings)
    job.check_has_accuracy(options.method, checked, options.target)
    if options.resumed_task is None:  # otherwise it is checked with the settings of the earlier task
        registry.check(options.method, checked)
    results.check_folder(options.out)
    with console.Bar(options.rounds, options.method, one_job=True) as bar:
        result = _send(options, settings, bar.on_round)
    return show.finish(result, options.out, options.target)


def _send(
    options: SubmitOptions, settings: dict[str, Any], on_round: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """Send the task, show its rounds, return its result. Ctrl-C asks whether the nodes should stop too."""
    from v6_workbench.network import earlier_tasks
    from v6_workbench.network import submit as tasks

    place = _connect(options)
    asked = settings.get("organizations")
    asked = asked and sorted({place.organization, *asked, *(settings.get("evaluators") or [])})
    for offline in tasks.check_nodes(place.client, place.collaboration, place.label, asked):
        console.say(f"organization {offline}: its node is offline; the task waits for it")
    if options.resumed_task is not None:
        earlier = earlier_tasks.result_of(place.client, options.resumed_task, options.method)
        settings = job.resumed(earlier, options.method, settings)
        registry.check(options.method, registry.validate(options.method, settings))
    task = tasks.send(
        place.client,
        options.method,
        settings,
        collaboration=place.collaboration,
        organization=place.organization,
        image=options.image or f"v6-{options.method}",
        label=place.label,
        query=options.query,
    )
    console.say(f"task {task} was sent to {place.name}")
    try:
        result = tasks.follow(place.client, task, options.method, on_round)
    except KeyboardInterrupt:
        _ask_to_stop(place.client, task)
        raise
    if (version := result["versions"]["v6-federated"]) != __version__:
        console.say(f"the image holds v6-federated {version}, and this machine has {__version__}")
    return {**result, "experiment": {"network": place.name, "task": task}}


def _connect(options: SubmitOptions) -> Place:
    """Sign in at the server that the options name, or at a local network."""
    from v6_workbench.network import local

    if options.server is not None:
        return _connect_to(options, options.server)
    found = local.load(options.network)
    first = min(found.organizations.values())
    return Place(
        local.client(found),
        found.collaboration,
        first if options.organization is None else options.organization,
        options.database or found.label,
        f"network {found.name}",
    )


def _connect_to(options: SubmitOptions, server: str) -> Place:
    from v6_workbench.network import server as servers

    username, collaboration, organization = options.username, options.collaboration, options.organization
    if username is None or collaboration is None or organization is None:
        needed = {"--username": username, "--collaboration": collaboration, "--organization": organization}
        missing = [option for option, value in needed.items() if value is None]
        raise SafeError(f"--server also needs {', '.join(missing)}")
    address, port = urlsplit(server), None
    with contextlib.suppress(ValueError):  # the port is not a number from 0 to 65535
        port = address.port or (443 if address.scheme == "https" else 80)
    if address.scheme not in ("http", "https") or not address.hostname or port is None:
        raise SafeError(f"--server {server} is not an address; expected for example https://server.org:443/api")
    password = os.environ.get("V6_FEDERATED_PASSWORD") or getpass.getpass("password: ")
    client = servers.sign_in(
        f"{address.scheme}://{address.hostname}",
        port,
        address.path.rstrip("/") or "/api",
        username,
        password,
        collaboration,
        None if options.key is None else str(options.key),
    )
    return Place(client, collaboration, organization, options.database or "default", server)


def _ask_to_stop(client: UserClient, task: int) -> None:
    """Stop the task at the nodes if the user says so; it goes on otherwise."""
    console.say(f"\nStop task {task} at the nodes too? [y/N]")
    try:
        answer = sys.stdin.readline()
    except KeyboardInterrupt:
        answer = ""
    if answer.strip().lower().startswith("y"):
        client.task.kill(task)
        console.say(f"stopping task {task}")
    else:
        console.say(f"task {task} goes on")


COMMAND = Command(
    "submit",
    SubmitOptions,
    run,
    help="Send a method as a task to a vantage6 server, by default to the local network.",
    example="submit fedavg --model logreg --rounds 5 --seed 1 --out DIR",
)
