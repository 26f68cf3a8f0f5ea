"""vantage6 5's part of ``client``.

Users sign in at Keycloak, whose address is not the server's. A person does it in a browser: Keycloak gives an address
to open, and this program waits. A program, or a local network's researcher, has a service account and its secret.

A task computes on a data frame, which is in a session. ``rows_for`` opens a session for each job, which its owner alone
may use, and has the nodes extract their database into it with the function ``extract`` of the method's image. The frame
stays at the nodes, in vantage6's folder of the session, even if the session is deleted.
"""

import base64
import json
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from keycloak import KeycloakConnectionError, KeycloakError, KeycloakOpenID
from vantage6.client import UserClient
from vantage6.common.enum import RunStatus, TaskStatus
from vantage6.common.serialization import serialize

from v6_federated.base import json_text
from v6_federated.base.errors import SafeError
from v6_workbench.errors import NetworkError
from v6_workbench.network.client.common import SILENT, Rows

NEEDED = ("auth",)  # options that name a user, who otherwise signs in with a browser
API = "/hq"  # path of a server's interface, unless its address has one
CENTRAL, EXTRACT = "central_compute", "extract"
DEVICE = "urn:ietf:params:oauth:grant-type:device_code"


def authenticated(
    address: str, auth: str | None, username: str | None, password: str | None, say: Callable[[str], None]
) -> UserClient:
    """Sign in. Raises NetworkError if the user is refused, and SafeError if an address is missing."""
    if auth is None:
        raise SafeError("users of vantage6 5 sign in at Keycloak; add its address, such as --auth https://auth.org")
    user = UserClient(address, auth, log_level="critical")
    user.log = SILENT  # it would print what the errors below say
    try:
        if username is None:
            token = _in_a_browser(user.kc_openid, say)
        else:
            user.initialize_service_account(password, username=username)
            token = user.kc_openid.token(grant_type="client_credentials")
    except KeycloakConnectionError:
        raise NetworkError(f"no Keycloak answers at {auth}; check --auth, and that it runs") from None
    except KeycloakError as error:
        who = "your sign-in" if username is None else f"the service account {username} with this secret"
        raise NetworkError(
            f"Keycloak at {auth} does not accept {who}: {_words(error)}; check --auth, --username and "
            "V6_FEDERATED_PASSWORD, or sign in with a browser by leaving out --username"
        ) from None
    user._access_token = token["access_token"]
    known = user.request("user/me", retry=False)
    if "id" not in known:
        raise NetworkError(
            f"the server at {address} does not know this user of Keycloak at {auth}: {known.get('msg')}; ask its "
            "administrator to add you"
        )
    user._finalize_successful_authentication(token)
    return user


def _in_a_browser(keycloak: KeycloakOpenID, say: Callable[[str], None]) -> dict[str, Any]:
    """A token for the person who signs in at the address that Keycloak gives."""
    device = keycloak.device(scope="openid")
    say(
        f"sign in at {device.get('verification_uri_complete') or device['verification_uri']} (code "
        f"{device['user_code']}); waiting"
    )
    pause = device.get("interval", 5)
    while True:
        time.sleep(pause)
        try:
            return keycloak.token(grant_type=DEVICE, device_code=device["device_code"])
        except KeycloakError as error:
            why = _said(error).get("error")
            if why not in ("authorization_pending", "slow_down"):  # expired, or denied
                raise
            pause += 5 * (why == "slow_down")


def _said(error: KeycloakError) -> dict[str, Any]:
    try:
        return json.loads(error.response_body or b"")
    except ValueError:
        return {}


def _words(error: KeycloakError) -> str:
    said = _said(error)
    return str(said.get("error_description") or said.get("error") or " ".join(str(error).split()))


def rows_for(
    client: UserClient, collaboration: int, organizations: Sequence[int], image: str, label: str, query: str | None
) -> Rows:
    """Have nodes extract the rows of a task; they are ready once the task that does it is completed."""
    about = {"name": f"v6-federated {uuid.uuid4()}", "collaboration_id": collaboration, "scope": "own"}
    session = _made(client.request("session", method="post", json=about), "a session")["id"]
    arguments = serialize({} if query is None else {"query": query})
    asked = []
    for organization in organizations:
        key = client.request(f"organization/{organization}").get("public_key")
        asked.append({"id": organization, "arguments": client.cryptor.encrypt_bytes_to_str(arguments, key)})
    task = {"image": image, "method": EXTRACT, "organizations": asked}
    answer = client.request(f"session/{session}/dataframe", method="post", json={"label": label, "task": task})
    frame = _made(answer, "a data frame")
    return Rows([{"dataframe_id": frame["id"]}], session, frame["last_session_task"]["id"])


def _made(answer: Mapping[str, Any], what: str) -> Mapping[str, Any]:
    if "id" not in answer:
        raise SafeError(f"the server refused {what}: {answer.get('msg') or 'it gives no reason'}")
    return answer


def create_task(client: UserClient, rows: Rows, values: Mapping[str, Any], **about: Any) -> Mapping[str, Any]:
    """Send a central function to an organization, and return the server's answer; see ``submit.send``."""
    return client.task.create(
        method="central", arguments=values, session=rows.session, databases=rows.databases, action=CENTRAL, **about
    )


def arguments_of(run: Mapping[str, Any]) -> dict[str, Any]:
    """What a function was called with, as the server has kept it. Raises ValueError or KeyError if it is encrypted."""
    return json_text.parse(base64.b64decode(run["arguments"]))


def has_ended(status: str) -> bool:
    """Whether a task or a run is over, completed or not."""
    return TaskStatus.has_finished(status) or RunStatus.has_finished(status)


def status_of(task: Mapping[str, Any], run: Mapping[str, Any]) -> str:
    """The state of a task that has one run. That of the task itself is just completed, failed or awaiting."""
    return run["status"]


def is_job(task: Mapping[str, Any]) -> bool:
    """Whether a user's task runs a method, and does not extract rows for one."""
    return task["action"] == CENTRAL


def official_images() -> tuple[str, str]:
    """Published images of HQ and node run on Kubernetes only. Raises SafeError."""
    raise SafeError(
        "official=True is for vantage6 4, since the published images of vantage6 5 need a Kubernetes cluster; leave it "
        "out, and they are built from PyPI"
    )
