"""Requests of a user's client to a vantage6 server, on this machine or elsewhere."""

import functools
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import requests

from v6_federated.base.logs import COLOUR
from v6_federated.base.patience import Silence
from v6_workbench.errors import NetworkError, ServerGone
from v6_workbench.network.client import UserClient, authenticated, forget_other_keys
from v6_workbench.network.project import VANTAGE6

PAGE = 100  # rows of a list that are asked for at once
PATIENCE = 300.0  # seconds that a server may not answer, where nobody says how many


def sign_in(
    url: str,
    port: int,
    api_path: str,
    username: str | None,
    password: str | None,
    collaboration: int,
    private_key: str | None,
    auth: str | None = None,
    say: Callable[[str], None] = print,
    patience: float = PATIENCE,
) -> UserClient:
    """Sign in at a server.

    Args:
        url: the server's address without its port, for example https://server.org.
        port: its port.
        api_path: path of its interface, for example /api.
        username: the user's name, in vantage6 5 that of a service account; None: the user signs in with a browser.
        password: the user's password, in vantage6 5 the secret of the service account.
        collaboration: id of the collaboration.
        private_key: file of the private key of the user's organization; None if nothing is encrypted.
        auth: the address of Keycloak (vantage6 5); None if users sign in at the server (vantage6 4).
        say: called with where to sign in with a browser, and if the server does not answer for some seconds.
        patience: seconds that the server may not answer, whatever it is asked.

    Returns:
        A client that is authenticated, has encryption set up and a collaboration chosen, and prints nothing. Its
        requests raise ServerGone if the server has not answered for ``patience``.

    Raises:
        NetworkError: the server does not answer, or refuses the user.
        SafeError: the server needs something that is missing.
    """
    address = f"{url}:{port}{api_path}"
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        version = requests.get(f"{address}/version", timeout=30).json()["version"]
        if version.split(".")[0] != VANTAGE6.split(".")[0]:
            raise NetworkError(f"the server at {address} is vantage6 {version}; expected vantage6 {VANTAGE6}")
        user = authenticated(address, auth, username, password, say)
        limit(user, address, patience, say)
        user.setup_collaboration(collaboration)
        found = user.request(f"collaboration/{collaboration}")
        if "id" not in found:
            raise NetworkError(
                f"{username or 'this user'} cannot see collaboration {collaboration} at {address}: {found.get('msg')}; "
                "check --collaboration"
            )
        if found["encrypted"] and private_key is None:
            raise NetworkError(
                f"collaboration {collaboration} is encrypted; give the private key of {username or 'this user'}'s "
                "organization with --key"
            )
        forget_other_keys()
        user.setup_encryption(private_key)
    except (requests.exceptions.RequestException, KeyError, TypeError) as error:
        raise NetworkError(f"no vantage6 server answers at {address}; check the address, and that it runs") from error
    finally:  # UserClient makes the root logger print to standard output
        root.handlers[:] = handlers
        root.setLevel(level)
    return user


def limit(user: UserClient, address: str, patience: float, say: Callable[[str], None]) -> None:
    """Let every request of a client end: vantage6's client itself tries a lost connection again without end.

    Args:
        user: the client.
        address: the server's address.
        patience: seconds that the server may not answer.
        say: called once in each silence of some seconds.
    """
    notice = f"the server at {address} does not answer; trying again for up to {patience:g} s"
    silence, ask = Silence(patience, lambda: say(notice)), user.request

    def request(*words: Any, **named: Any) -> Any:
        try:
            return silence.listen(functools.partial(ask, *words, **named))
        except Exception as error:
            if isinstance(error, TimeoutError) or silence.over:
                raise ServerGone(
                    f"the server at {address} has not answered for {patience:g} s (--server-timeout)"
                ) from None
            if type(error) is Exception or type(error).__module__.startswith("keycloak"):  # no new token at the moment
                raise requests.exceptions.RequestException(str(error)) from None
            raise

    user.request = request


def subtasks(client: UserClient, task: int) -> list[dict[str, Any]]:
    """List the tasks that the central function of a task has sent to nodes.

    Args:
        client: a client that is signed in.
        task: id of the task.

    Returns:
        The tasks as the server describes them.

    Raises:
        NetworkError: the server does not list them.
    """
    return [*rows(client, "task", parent_id=task)]


def runs(client: UserClient, task: int) -> list[dict[str, Any]]:
    """List the runs of a task: status, times and log of each organization's. Raises NetworkError."""
    return [*rows(client, "run", task_id=task)]


def one_run(client: UserClient, task: int) -> dict[str, Any]:
    """Return the run of a task that was sent to one organization. Raises NetworkError."""
    [run] = runs(client, task)
    return run


def nodes(client: UserClient, collaboration: int) -> list[dict[str, Any]]:
    """List the nodes of a collaboration: organization, status, and the configuration that they share.

    Args:
        client: a client that is signed in.
        collaboration: id of the collaboration.

    Returns:
        The nodes as the server describes them.

    Raises:
        NetworkError: the server does not list them.
    """
    return [*rows(client, "node", collaboration_id=collaboration)]


def organizations(client: UserClient) -> dict[int, str]:
    """Return the names of the organizations of the client's collaboration.

    Args:
        client: a client that is signed in.

    Returns:
        Names by id; empty if the server does not show them to this user.
    """
    try:
        found = [*rows(client, "organization", collaboration_id=client.collaboration_id)]
    except NetworkError:
        return {}
    return {row["id"]: row["name"] for row in found}


def rows(client: UserClient, endpoint: str, **filters: int | str) -> Iterator[dict[str, Any]]:
    """Go through a list of the server, page by page.

    Args:
        client: a client that is signed in.
        endpoint: the list: ``task``, ``run`` or ``node``.
        filters: which rows of it, as the server's interface names them; ``sort`` is their order.

    Yields:
        The rows as the server describes them.

    Raises:
        NetworkError: the server does not list them.
    """
    page, more = 1, True
    while more:
        answer = client.request(endpoint, params=filters | {"page": page, "per_page": PAGE})
        if "data" not in answer:
            raise NetworkError(f"the server does not list its {endpoint}s: {reason(answer)}")
        yield from answer["data"]
        page, more = page + 1, len(answer["data"]) == PAGE


def reason(answer: Mapping[str, Any]) -> str:
    """Return why a server refused a request."""
    return str(answer.get("msg") or "it gives no reason")


def last_line(text: str) -> str:
    """Return the last line of a log, without colours."""
    lines = [line.strip() for line in COLOUR.sub("", text).splitlines() if line.strip()]
    return lines[-1] if lines else ""
