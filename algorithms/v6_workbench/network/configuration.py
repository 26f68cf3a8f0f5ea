"""The files that a local network's server and nodes read: configurations, keys, databases, organizations.

vantage6 reads YAML; the files are JSON, which is a part of YAML.
"""

from __future__ import annotations

import json
import secrets
import shutil
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from v6_federated.base.tables import KINDS, suffix
from v6_workbench.network.client import new_key
from v6_workbench.network.docker_engine import HOSPITAL, SERVER_ALIAS, SERVER_PORT, Hospital

API = "/api"
LOGGING = {
    "level": "INFO",
    "use_console": True,
    "backup_count": 1,
    "max_size": 1024,
    "format": "%(asctime)s - %(name)-14s - %(levelname)-8s - %(message)s",
    "datefmt": "%Y-%m-%d %H:%M:%S",
}


def write_node(
    folder: Path,
    organization: str,
    source: Path,
    *,
    environment: dict[str, str],
    label: str,
    database_type: str | None,
    encrypted: bool,
    settings: Mapping[str, Any],
    described: Callable[[Hospital], dict[str, Any]],
) -> Hospital:
    """Write a node's folder: its database, the hospital's own folder, its key and its configuration.

    Args:
        folder: the folder, which is created; its name is the node's name.
        organization: name of the organization.
        source: the database, a file or a folder.
        environment: environment variables of the node's algorithms.
        label: label of the database.
        database_type: vantage6's type of the database; None takes it from the path.
        encrypted: whether the organization has a key.
        settings: further settings of the configuration.
        described: makes the node's configuration.

    Returns:
        The organization and its node.
    """
    folder.mkdir()
    (folder / HOSPITAL).mkdir(mode=0o700)
    database = folder / (label + (source.suffix if source.is_dir() else suffix(source)))
    (shutil.copytree if source.is_dir() else shutil.copy)(source, database)
    hospital = Hospital(
        organization=organization,
        node=folder.name,
        api_key=str(uuid.uuid4()),
        folder=folder,
        database=database,
        database_type=database_type or ("folder" if source.is_dir() else KINDS.get(suffix(source), "other")),
        label=label,
        public_key=new_key(folder / "private_key.pem") if encrypted else "",
        environment=environment,
    )
    write(folder / "node.yaml", described(hospital) | dict(settings))
    return hospital


def write_server(folder: Path, hospitals: Sequence[Hospital], username: str, password: str) -> None:
    """Write the server's configuration, and the organizations, the researcher and the collaboration that it imports.

    Args:
        folder: the network's folder.
        hospitals: the organizations and their nodes.
        username: of the researcher, who belongs to the first organization.
        password: of the researcher.
    """
    write(folder / "server.yaml", _server_config())
    write(folder / "entities.yaml", _entities(hospitals, username, password))


def write(path: Path, content: Mapping[str, Any]) -> None:
    """Write a file that only this user can read: it may hold a password or a key.

    Args:
        path: the file.
        content: its content.
    """
    path.touch(mode=0o600)
    path.write_text(json.dumps(content, indent=2), encoding="utf-8")


def secret() -> str:
    """Make a secret that a server signs with."""
    return secrets.token_hex(32)


def of_node(hospital: Hospital) -> dict[str, Any]:
    """The configuration of a node of vantage6 4.

    Args:
        hospital: the organization and its node.
    """
    database = {"label": hospital.label, "uri": str(hospital.database), "type": hospital.database_type}
    own = {"label": HOSPITAL, "uri": str(hospital.folder / HOSPITAL), "type": "folder"}
    if hospital.database.is_dir():
        database["mount_mode"] = "ro"  # a container would leave files in it that only root can remove
    return {
        "api_key": hospital.api_key,
        "server_url": f"http://{SERVER_ALIAS}",
        "port": SERVER_PORT,
        "api_path": API,
        "task_dir": "/mnt/data",
        "databases": [database, own],
        "encryption": {"enabled": bool(hospital.public_key), "private_key": ""},
        "algorithm_env": hospital.environment,
        "policies": {"require_algorithm_pull": False},  # images of this machine were never pushed to a registry
        "share_algorithm_logs": True,
        "logging": LOGGING,
    }


def _server_config() -> dict[str, Any]:
    return {
        "description": "local network",
        "ip": "0.0.0.0",
        "port": SERVER_PORT,
        "api_path": API,
        "uri": "sqlite:////var/lib/vantage6.sqlite",
        "allow_drop_all": False,
        "jwt_secret_key": secret(),
        "logging": LOGGING | {"file": "server.log"},
    }


def _entities(hospitals: Sequence[Hospital], username: str, password: str) -> dict[str, Any]:
    """Organizations, the researcher and the collaboration, as ``vserver-local import`` reads them."""
    address = dict.fromkeys(("domain", "address1", "address2", "zipcode", "country"), "")
    organizations: list[dict[str, Any]] = [
        {**address, "name": hospital.organization, "public_key": hospital.public_key} for hospital in hospitals
    ]
    researcher = {"username": username, "password": password, "firstname": username, "lastname": "", "email": username}
    organizations[0]["users"] = [researcher]
    collaboration = {
        "name": "hospitals",
        "encrypted": bool(hospitals[0].public_key),
        "participants": [{"name": it.organization, "api_key": it.api_key} for it in hospitals],
    }
    return {"organizations": organizations, "collaborations": [collaboration]}
