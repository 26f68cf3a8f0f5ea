"""What is different in a local network of vantage6 5: HQ in place of the server, Keycloak, and nodes on Kubernetes.

It has the names of ``configuration`` and ``docker_engine`` that differ; all else of theirs is used for both. HQ and
nodes are the real ones. Keycloak and Kubernetes, which no plain machine has, are small programs in ``docker/five``,
``fake_keycloak`` and ``fake_kubernetes``: the first runs in HQ's container, the second in each node's, where it starts
the algorithms' containers through the Docker engine.

A node of vantage6 5 gives the containers of a task no folder of the hospital's own, so there is no ``hospital`` here.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from docker.client import DockerClient
from docker.models.containers import Container

from v6_federated.rules.hospital import SECRET
from v6_workbench.network import configuration, docker_engine, images
from v6_workbench.network.client import API
from v6_workbench.network.docker_engine import LABEL, SERVER_ALIAS, SERVER_PORT, Hospital

KEYCLOAK_PORT, PROXY_PORT = 8080, 7654
PROGRAMS = images.RECIPES / "five"
TASKS = "tasks"  # folder of a node, in which it keeps what goes into and comes out of tasks, and the sessions


def of_node(hospital: Hospital) -> dict[str, Any]:
    """The configuration of a node.

    Args:
        hospital: the organization and its node.
    """
    return {
        "hq_url": f"http://{SERVER_ALIAS}",
        "port": SERVER_PORT,
        "api_path": API,
        "task_dir": str(hospital.folder / TASKS),
        "task_namespace": "vantage6",
        "node_proxy_port": PROXY_PORT,
        "encryption": {"enabled": bool(hospital.public_key), "private_key": ""},
        "algorithm_env": {SECRET: secrets.token_hex(32), **hospital.environment},
        "policies": {"require_algorithm_pull": False},  # images of this machine were never pushed to a registry
        "share_algorithm_logs": True,
        "production": False,  # in production a node does not start if algorithms reach the internet, as they do here
        "logging": configuration.LOGGING | {"file": "node.log", "loggers": []},
    }


def write_server(folder: Path, hospitals: Sequence[Hospital], username: str, password: str) -> None:
    """Write HQ's configuration, and what it has to know: organizations, nodes, collaboration, and the researcher.

    Args:
        folder: the network's folder.
        hospitals: the organizations and their nodes.
        username: of the researcher, a service account of the first organization.
        password: its secret.
    """
    hq = {
        "port": SERVER_PORT,
        "api_path": API,
        "hq_url": f"http://{SERVER_ALIAS}",
        "database": {"uri": "sqlite:////var/lib/vantage6.sqlite"},
        "uri": "sqlite:////var/lib/vantage6.sqlite",
        "allow_drop_all": False,
        "jwt_secret_key": configuration.secret(),
        "logging": configuration.LOGGING | {"file": "hq.log", "loggers": []},
    }
    entities = {
        "username": username,
        "password": password,
        "encrypted": bool(hospitals[0].public_key),
        "organizations": [{"name": it.organization, "public_key": it.public_key} for it in hospitals],
        "nodes": [{"name": it.node, "api_key": it.api_key} for it in hospitals],
    }
    configuration.write(folder / "server.yaml", hq)
    configuration.write(folder / "entities.yaml", entities)


def run_server(engine: DockerClient, network: str, folder: Path, port: int | None, image: str) -> Container:
    """Start HQ, with Keycloak.

    Args:
        engine: the Docker engine.
        network: the network's name.
        folder: folder of HQ's two files.
        port: HQ's port on this machine, which only this machine can reach; None takes a free one.
        image: the image of HQ and nodes.

    Returns:
        The container.
    """
    files = {
        PROGRAMS: "/mnt/five",
        folder / "server.yaml": "/mnt/server.yaml",
        folder / "entities.yaml": "/mnt/entities.yaml",
    }
    command = ["/mnt/five/hq.py", "/mnt/server.yaml", "/mnt/entities.yaml", SERVER_PORT, KEYCLOAK_PORT]
    ports = {SERVER_PORT: port, KEYCLOAK_PORT: None}
    return docker_engine.start_server(engine, network, image, command, ports, files)


def run_node(engine: DockerClient, network: str, hospital: Hospital, image: str) -> Container:
    """Start a node, on a Kubernetes that is Docker.

    Its containers are the engine's, so all folders have the paths that they have on this machine.

    Args:
        engine: the Docker engine.
        network: the network's name.
        hospital: the organization and its node.
        image: the image of HQ and nodes.

    Returns:
        The container.
    """
    node, label, kind = hospital.node, hospital.label, hospital.database_type
    tasks = hospital.folder / TASKS
    tasks.mkdir()
    database = f"/app/databases/{label}.{kind}"  # where the node looks whether the database is a file or a folder
    volumes = {
        str(PROGRAMS): {"bind": "/mnt/five", "mode": "ro"},
        str(hospital.folder / "node.yaml"): {"bind": f"/mnt/config/{node}.yaml", "mode": "ro"},
        str(tasks): {"bind": "/app/tasks", "mode": "rw"},
        str(hospital.database): {"bind": database, "mode": "ro"},
        "/var/run/docker.sock": {"bind": "/var/run/docker.sock", "mode": "rw"},
    }
    if hospital.public_key:
        volumes[str(hospital.folder / "private_key.pem")] = {"bind": "/mnt/private_key.pem", "mode": "ro"}
    name = docker_engine.container_name(node)
    return engine.containers.run(
        image,
        ["python", "-u", "/mnt/five/node.py", f"/mnt/config/{node}.yaml"],
        name=name,
        labels={LABEL: network},
        environment={
            "KEYCLOAK_URL": f"http://{SERVER_ALIAS}:{KEYCLOAK_PORT}",
            "KEYCLOAK_REALM": "vantage6",
            "V6_NODE_NAME": node,
            "V6_API_KEY": hospital.api_key,
            "V6_PROXY_HOST": f"http://{name}",
            "V6_PROXY_PORT": str(PROXY_PORT),
            "DATABASE_LABELS": label,
            f"DATABASE_{label.upper()}_URI": str(hospital.database),
            f"DATABASE_{label.upper()}_TYPE": kind,
            "PRIVATE_KEY": "/mnt/private_key.pem",
            "V6_FEDERATED_NETWORK": network,
            "V6_FEDERATED_DOCKER_NETWORK": docker_engine.docker_name(network),
            "V6_FEDERATED_SCOPE": node,
        },
        network=docker_engine.docker_name(network),
        volumes=volumes,
        use_config_proxy=False,
        detach=True,
    )
