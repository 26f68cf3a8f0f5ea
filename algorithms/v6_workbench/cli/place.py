"""Where tasks are sent: sign in at the server that the options name, or at a local network."""

from __future__ import annotations

import contextlib
import getpass
import os
import shlex
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from v6_federated.base.errors import SafeError
from v6_federated.base.version import __version__
from v6_workbench.cli import console
from v6_workbench.cli.options import ServerOptions
from v6_workbench.errors import ServerGone

if TYPE_CHECKING:
    from v6_workbench.network.client import UserClient
    from v6_workbench.network.local import Network


@dataclass(frozen=True)
class Place:
    """A collaboration at a server.

    Attributes:
        client: a client that is signed in.
        collaboration: id of the collaboration.
        name: the server or network, as the user calls it.
        options: the words of the command line that name it.
        network: the local network, if it is one.
    """

    client: UserClient
    collaboration: int
    name: str
    options: tuple[str, ...]
    network: Network | None = None

    @property
    def encrypted(self) -> bool:
        """Whether what is sent is encrypted."""
        return "--key" in self.options if self.network is None else self.network.encrypted

    @property
    def names(self) -> dict[int, str]:
        """Names of the collaboration's organizations by id; empty if the server does not show them to this user."""
        from v6_workbench.network import server

        return server.organizations(self.client)

    @property
    def ids(self) -> dict[str, int]:
        """The same the other way round."""
        return {name: k for k, name in self.names.items()}

    def command(self, *words: object, after: tuple[object, ...] = ()) -> str:
        """Return a command for this place, for the user to copy.

        Args:
            words: the command and what it is about.
            after: what follows the options that name the place.
        """
        return shlex.join(["v6-federated", *map(str, words), *self.options, *map(str, after)])

    def fetch(self, task_id: int, out: Path | None) -> str:
        """Return the command that brings a task's result.

        Args:
            task_id: the task's id.
            out: the folder for it; None chooses one.
        """
        return self.command("fetch", task_id, after=("--out", out or f"runs/task-{task_id}"))

    def without(self, error: ServerGone, task_id: int, out: Path | None) -> ServerGone:
        """Say how to come back to a task whose server is gone.

        Args:
            error: what the server did not answer.
            task_id: the task's id.
            out: the folder for its result.
        """
        return ServerGone(
            f"{error}; task {task_id} may go on at the nodes. Once the server answers again, this brings its result: "
            f"{self.fetch(task_id, out)}"
        )

    def labelled(self, result: dict[str, Any], task_id: int) -> dict[str, Any]:
        """Say in a result where it is from, and on standard error if the image holds another version.

        Args:
            result: the result of a task that has ended.
            task_id: the task's id.

        Returns:
            The result, with the place, the task and the organizations' names as ``experiment``, when the task ran, and
            its image. All this is as the server has kept it, the same whenever the task is fetched.

        Raises:
            NetworkError: the server does not show the task.
        """
        from v6_workbench.network import tasks

        if (version := result["versions"]["v6-federated"]) != __version__:
            console.say(f"the image holds v6-federated {version}, and this machine has {__version__}")
        task, names = tasks.find(self.client, task_id), self.names
        took_part = {*result["organizations"], *(result["settings"].get("evaluators") or ())}
        named = {str(k): name for k, name in names.items() if k in took_part}
        times = {"started": task.started or task.sent, "ended": task.ended}
        return {
            **result,
            **{name: time.isoformat(timespec="seconds") for name, time in times.items() if time is not None},
            "image": {"name": task.image} | ({"digest": task.digest} if task.digest else {}),
            "experiment": {"network": self.name, "task": task_id, "organizations": named},
        }


def connect(options: ServerOptions, **needed: object) -> Place:
    """Sign in at the server that the options name, or at a local network.

    Args:
        options: the options.
        needed: values of further options that a command needs with ``--server``, by their names.

    Returns:
        The place.

    Raises:
        SafeError: the options do not name a server.
        NetworkError: the server does not answer or refuses the user, or no network of this name is up.
    """
    from v6_workbench.network import local

    if options.server_timeout < 1:
        raise SafeError(f"--server-timeout {options.server_timeout:g} is too short; expected at least 1 second")
    if options.server is not None:
        return _connect_to(options.server, options, needed)
    found = local.load(options.network)
    name = f"network {found.name}"
    client = local.client(found, console.say, options.server_timeout)
    return Place(client, found.collaboration, name, ("--network", found.name), found)


def _connect_to(server: str, options: ServerOptions, needed: dict[str, object]) -> Place:
    from v6_workbench.network import client as clients
    from v6_workbench.network import server as servers

    username, collaboration = options.username, options.collaboration
    to_sign_in = {option: getattr(options, option) for option in clients.NEEDED}
    values = {**to_sign_in, "collaboration": collaboration, **needed}
    missing = [f"--{option}" for option, value in values.items() if value is None]
    if collaboration is None or missing:
        raise SafeError(f"--server also needs {', '.join(missing)}")
    address, port = urlsplit(server), None
    with contextlib.suppress(ValueError):  # the port is not a number from 0 to 65535
        port = address.port or (443 if address.scheme == "https" else 80)
    if address.scheme not in ("http", "https") or not address.hostname or port is None:
        raise SafeError(
            f"--server {server} is not an address; expected for example https://server.org:443{clients.API}"
        )
    password = None
    if username is not None:
        password = os.environ.get("V6_FEDERATED_PASSWORD") or _asked_for()
    key = None if options.key is None else str(options.key)
    client = servers.sign_in(
        f"{address.scheme}://{address.hostname}",
        port,
        address.path.rstrip("/") or clients.API,
        username,
        password,
        collaboration,
        key,
        options.auth,
        console.say,
        options.server_timeout,
    )
    named = {"server": server, "auth": options.auth, "username": username, "collaboration": collaboration, "key": key}
    words = tuple(word for name, value in named.items() if value is not None for word in (f"--{name}", str(value)))
    return Place(client, collaboration, server, words)


def _asked_for() -> str:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", getpass.GetPassWarning)  # the password would be shown
            return getpass.getpass("password: ")
    except (EOFError, getpass.GetPassWarning):
        raise SafeError("there is no terminal to ask for the password; set V6_FEDERATED_PASSWORD") from None
