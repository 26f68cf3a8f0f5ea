"""Runs the HQ of vantage6 5 in its container, and a fake Keycloak with it: HQ_CONFIG ENTITIES PORT KEYCLOAK_PORT.

HQ is the real one, on SQLite, and without RabbitMQ, since one process serves everybody. What an administrator would
enter (organizations, nodes, collaboration, researcher) is written to its database when it starts for the first time,
organizations first, so that their ids are 1..N.
"""

from gevent import monkey

monkey.patch_all()  # before anything else is imported, so what follows stands below it (E402)

import json  # noqa: E402
import os  # noqa: E402
import secrets  # noqa: E402
import sys  # noqa: E402
import uuid  # noqa: E402
from pathlib import Path  # noqa: E402

import fake_keycloak  # noqa: E402
from gevent.pywsgi import WSGIServer  # noqa: E402
from vantage6.hq import db, run_hq  # noqa: E402
from vantage6.hq.default_roles import DefaultRole  # noqa: E402
from vantage6.hq.model.rule import Operation, Scope  # noqa: E402

ADMIN, HQ = "admin", "hq"  # HQ's own administrator, as whom nobody signs in, and HQ itself


def main(config: str, entities: str, port: str, keycloak_port: str) -> None:
    said = json.loads(Path(entities).read_text(encoding="utf-8"))
    secret = secrets.token_hex()
    accounts = {
        ADMIN: {"id": ADMIN, "secret": secrets.token_hex(), "kind": "user"},
        HQ: {"id": HQ, "secret": secret, "kind": "admin"},
        f"{said['username']}-user-client": {"id": said["username"], "secret": said["password"], "kind": "user"},
        **{
            f"{node['name']}-node-client": {"id": node["name"], "secret": node["api_key"], "kind": "node"}
            for node in said["nodes"]
        },
    }
    service = fake_keycloak.service(accounts, Path("/var/lib/keycloak.pem"))
    WSGIServer(("0.0.0.0", int(keycloak_port)), service, log=None).start()
    os.environ.update(
        KEYCLOAK_URL=f"http://127.0.0.1:{keycloak_port}",
        KEYCLOAK_REALM=fake_keycloak.REALM,
        KEYCLOAK_ADMIN_USERNAME=ADMIN,
        KEYCLOAK_ADMIN_PASSWORD=str(uuid.uuid4()),
        KEYCLOAK_ADMIN_CLIENT=HQ,
        KEYCLOAK_ADMIN_CLIENT_SECRET=secret,
    )
    hq = run_hq(config, system_folders=False)
    new = not db.Organization.get()  # HQ that is restarted has them
    if new:
        for one in said["organizations"]:
            db.Organization(name=one["name"], public_key=one["public_key"]).save()
    hq.ensure_db_initialized()  # roles, and the organization of its administrator
    if new:
        enter(said)
    hq.socketio.run(hq.app, host="0.0.0.0", port=int(port), log_output=False)


def enter(said: dict) -> None:
    """Enter the collaboration with its nodes, and the researcher."""
    organizations = [db.Organization.get_by_name(one["name"]) for one in said["organizations"]]
    collaboration = db.Collaboration(name="hospitals", encrypted=said["encrypted"], organizations=organizations)
    collaboration.save()
    for organization, node in zip(organizations, said["nodes"], strict=True):
        known = {"keycloak_id": node["name"], "status": "offline"}
        db.Node(name=node["name"], organization=organization, collaboration=collaboration, **known).save()
    db.User(
        username=said["username"],
        keycloak_id=said["username"],
        is_service_account=True,
        organization=organizations[0],
        roles=[db.Role.get_by_name(DefaultRole.RESEARCHER.value)],
        rules=[db.Rule.get_by_("event", Scope.COLLABORATION, Operation.SEND)],  # to stop tasks
    ).save()


main(*sys.argv[1:])
