"""A vantage6 server, this machine's or any other, as a user's client asks it."""

import logging
import re
from typing import Any

import requests
from vantage6.client import UserClient
from vantage6.common.exceptions import AuthenticationException

from v6_workbench.errors import NetworkError
from v6_workbench.network import images

SILENT = logging.Logger("v6_federated.client", logging.CRITICAL + 1)


def sign_in(
    url: str, port: int, api_path: str, username: str, password: str, collaboration: int, private_key: str | None
) -> UserClient:
    """A client of a server: authenticated, encryption set up, collaboration chosen, silent."""
    address = f"{url}:{port}{api_path}"
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        version = requests.get(f"{address}/version", timeout=30).json()["version"]
        if version.split(".")[0] != images.VANTAGE6.split(".")[0]:
            raise NetworkError(f"the server at {address} is vantage6 {version}; expected {images.VANTAGE6} or near it")
        user = UserClient(url, port, api_path, log_level="critical")
        user.log = SILENT  # it would print what the errors below say
        user.authenticate(username, password)
        user.setup_collaboration(collaboration)
        found = user.request(f"collaboration/{collaboration}")
        if "id" not in found:
            raise NetworkError(f"{username} sees no collaboration {collaboration} at {address}: {found.get('msg')}")
        if found["encrypted"] and private_key is None:
            raise NetworkError(
                f"collaboration {collaboration} is encrypted; expected the private key of {username}'s " "organization"
            )
        user.setup_encryption(private_key)
    except AuthenticationException:
        raise NetworkError(f"the server at {address} refuses the user {username} with this password") from None
    except (requests.exceptions.RequestException, KeyError, TypeError) as error:
        raise NetworkError(f"no vantage6 server answers at {address}") from error
    finally:  # UserClient makes the root logger print to standard output
        root.handlers[:] = handlers
        root.setLevel(level)
    return user


def subtasks(client: UserClient, task: int) -> list[dict[str, Any]]:
    """What the central function of a task has asked of the nodes."""
    return _all(client, "task", parent_id=task)


def one_run(client: UserClient, task: int) -> dict[str, Any]:
    """The run of a task that one organization was sent, as the server has it."""
    [run] = _all(client, "run", task_id=task)
    return run


def nodes(client: UserClient, collaboration: int) -> list[dict[str, Any]]:
    """The nodes of a collaboration as the server tells them: organization, status, and the config that they share."""
    return _all(client, "node", collaboration_id=collaboration)


def _all(user: UserClient, endpoint: str, **filters: int) -> list[dict[str, Any]]:
    """All rows of a list of the server, page by page."""
    rows: list[dict[str, Any]] = []
    while True:
        answer = user.request(endpoint, params=filters | {"page": 1 + len(rows) // 100, "per_page": 100})
        if "data" not in answer:
            raise NetworkError(f"the server tells no {endpoint}s: {answer.get('msg') or 'it gives no reason'}")
        page = answer["data"]
        rows += page
        if len(page) < 100:
            return rows


def last_line(text: str) -> str:
    """The last line of a log, without colours."""
    lines = [line.strip() for line in re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines() if line.strip()]
    return lines[-1] if lines else ""
