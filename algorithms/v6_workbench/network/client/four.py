"""vantage6 4.15's part of ``client``."""

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from vantage6.client import UserClient
from vantage6.common.exceptions import AuthenticationException
from vantage6.common.globals import DEFAULT_DOCKER_REGISTRY, DEFAULT_NODE_IMAGE_WO_TAG, DEFAULT_SERVER_IMAGE
from vantage6.common.task_status import has_task_finished

from v6_federated.base import json_text
from v6_federated.base.errors import SafeError
from v6_workbench.errors import NetworkError
from v6_workbench.network.client.common import SILENT, Rows
from v6_workbench.network.project import VANTAGE6

NEEDED = ("username",)  # options that name a user
API = "/api"  # path of a server's interface, unless its address has one


def authenticated(
    address: str, auth: str | None, username: str | None, password: str | None, say: Callable[[str], None]
) -> UserClient:
    """Sign in. Raises NetworkError if the user is refused, and SafeError if an option is missing or does not fit."""
    if auth is not None:
        raise SafeError("--auth is for vantage6 5; remove it, since users of vantage6 4 sign in at the server itself")
    parts = urlsplit(address)
    user = UserClient(f"{parts.scheme}://{parts.hostname}", parts.port, parts.path, log_level="critical")
    user.log = SILENT  # it would print what the errors below say
    try:
        user.authenticate(username, password)
    except AuthenticationException:
        raise NetworkError(
            f"the server at {address} does not accept the user {username} with this password; check --username and "
            "V6_FEDERATED_PASSWORD"
        ) from None
    return user


def rows_for(
    client: UserClient, collaboration: int, organizations: Sequence[int], image: str, label: str, query: str | None
) -> Rows:
    """The rows of a task: each node reads its database itself."""
    return Rows([{"label": label, **({"query": query} if query else {})}])


def create_task(client: UserClient, rows: Rows, values: Mapping[str, Any], **about: Any) -> Mapping[str, Any]:
    """Send a central function to an organization, and return the server's answer; see ``submit.send``."""
    return client.task.create(input_={"method": "central", "kwargs": values}, databases=rows.databases, **about)


def arguments_of(run: Mapping[str, Any]) -> dict[str, Any]:
    """What a function was called with, as the server has kept it. Raises ValueError or KeyError if it is encrypted."""
    return json_text.parse(base64.b64decode(run["input"]))["kwargs"]


def has_ended(status: str) -> bool:
    """Whether a task or a run is over, completed or not."""
    return has_task_finished(status)


def status_of(task: Mapping[str, Any], run: Mapping[str, Any]) -> str:
    """The state of a task that has one run."""
    return task["status"]


def is_job(task: Mapping[str, Any]) -> bool:
    """Whether a user's task runs a method."""
    return True


def official_images() -> tuple[str, str]:
    """Names of the published images of server and node."""
    server = f"{DEFAULT_DOCKER_REGISTRY}/{DEFAULT_SERVER_IMAGE.split(':')[0]}:{VANTAGE6}"
    return server, f"{DEFAULT_DOCKER_REGISTRY}/{DEFAULT_NODE_IMAGE_WO_TAG}:{VANTAGE6}"
