"""The parts of a local network in the Docker engine: one server, N nodes, and all that the nodes make themselves.

Every name contains the network's name, so that networks do not meet, and so that all that a node has made (algorithm
containers, its isolated docker network, a ``...-tmpvol`` volume for each job) can be found again. Containers are
started as vantage6 4.15 starts them (``vantage6/cli/server/start.py``, ``vantage6/cli/node/start.py``).
"""

from __future__ import annotations

import contextlib
import re
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from docker.client import DockerClient
from docker.errors import APIError, DockerException
from docker.models.containers import Container

from v6_workbench.network import images
from v6_workbench.network.client import official_images

LABEL = "v6-federated.network"
SERVER_ALIAS, SERVER_PORT = "vantage6-server", 5000
REMOVE_SECONDS = 30
HOSPITAL = "hospital"  # label of the hospital's own folder, and its name in the node's folder


@dataclass(frozen=True)
class Hospital:
    """One organization and its node.

    Attributes:
        organization, node: their names.
        api_key: key with which the node signs in.
        folder: folder of the node's files on this machine: its configuration, key and database.
        database, database_type, label: the node's copy of its database, and its type and label in vantage6.
        public_key: the organization's public key as the server stores it; empty if nothing is encrypted.
        environment: the policy that the node gives to its algorithm containers.
    """

    organization: str
    node: str
    api_key: str
    folder: Path
    database: Path
    database_type: str
    label: str
    public_key: str
    environment: dict[str, str]


def node_name(network: str, number: int) -> str:
    """Return the name of a node's configuration."""
    return f"{docker_name(network)}-node-{number}"


def container_name(node: str) -> str:
    """Return the name of a node's container, by which the node finds itself.

    It is that of ``vantage6.cli.context.node.NodeContext.docker_container_name``.
    """
    return f"vantage6-{node}-user"


def server_name(network: str) -> str:
    """Return the name of the server's container."""
    return f"{docker_name(network)}-server"


def docker_name(network: str) -> str:
    """Return the name of the docker network between the server and the nodes."""
    return f"v6-federated-{network}"


def infrastructure(engine: DockerClient, official: bool, log: images.Log) -> tuple[str, str]:
    """Return the server's and the node's image.

    Args:
        engine: the Docker engine.
        official: whether to pull vantage6's published images. If they cannot be pulled, images are built from PyPI.
        log: called with each line of progress.

    Returns:
        The names of the two images.

    Raises:
        EngineError: an image cannot be built.
    """
    if official:
        server, node = official_images()
        try:
            for image in (server, node):
                log(f"pulling {image}")
                engine.images.pull(image)
            return server, node
        except DockerException as error:
            log(f"the official images cannot be pulled ({images.one_line(error)}); using images built from PyPI")
    image = images.infrastructure(log=log)
    return image, image


def run_server(engine: DockerClient, network: str, folder: Path, port: int | None, image: str) -> Container:
    """Start the server.

    Args:
        engine: the Docker engine.
        network: the network's name.
        folder: folder of the server's two files.
        port: port on this machine, which only this machine can reach; None takes a free one.
        image: the server's image.

    Returns:
        The container.
    """
    files = {
        images.RECIPES / "serve.py": "/mnt/serve.py",
        folder / "server.yaml": "/mnt/server.yaml",
        folder / "entities.yaml": "/mnt/entities.yaml",
    }
    command = ["/mnt/serve.py", "/mnt/server.yaml", "/mnt/entities.yaml", SERVER_PORT]
    return start_server(engine, network, image, command, {SERVER_PORT: port}, files)


def start_server(
    engine: DockerClient,
    network: str,
    image: str,
    command: Sequence[object],
    ports: Mapping[int, int | None],
    files: Mapping[Path, str],
) -> Container:
    """Make the docker network, and start the server in it.

    Args:
        engine: the Docker engine.
        network: the network's name.
        image: the server's image.
        command: the Python program to run, and its arguments.
        ports: ports on this machine by the server's own, which only this machine can reach; None takes a free one.
        files: where files and folders of this machine are in the container.

    Returns:
        The container.
    """
    free = _free_ports(len(ports))  # the engine would choose others after a restart
    engine.networks.create(docker_name(network), labels={LABEL: network})
    container = engine.containers.create(
        image,
        ["python", *map(str, command)],
        name=server_name(network),
        labels={LABEL: network},
        ports={
            f"{own}/tcp": ("127.0.0.1", port or other) for (own, port), other in zip(ports.items(), free, strict=True)
        },
        volumes={str(path): {"bind": target, "mode": "ro"} for path, target in files.items()},
        use_config_proxy=False,  # they talk among themselves
    )
    engine.networks.get(docker_name(network)).connect(container, aliases=[SERVER_ALIAS])
    container.start()
    container.reload()
    return container


def _free_ports(number: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(number)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def run_node(engine: DockerClient, network: str, hospital: Hospital, image: str) -> Container:
    """Start a node as ``v6 node start`` does, without the volumes for VPN, SSH tunnels and proxy.

    Args:
        engine: the Docker engine.
        network: the network's name.
        hospital: the organization and its node.
        image: the node's image.

    Returns:
        The container.
    """
    node, file = hospital.node, hospital.database.name
    data = engine.volumes.create(f"{container_name(node)}-vol", labels={LABEL: network})
    volumes = {
        str(hospital.folder / "node.yaml"): {"bind": f"/mnt/config/{node}.yaml", "mode": "ro"},
        str(hospital.database): {"bind": f"/mnt/{file}", "mode": "ro"},
        str(hospital.folder / HOSPITAL): {"bind": f"/mnt/{HOSPITAL}", "mode": "rw"},
        data.name: {"bind": "/mnt/data", "mode": "rw"},
        "/var/run/docker.sock": {"bind": "/var/run/docker.sock", "mode": "rw"},
    }
    if hospital.public_key:
        volumes[str(hospital.folder / "private_key.pem")] = {"bind": "/mnt/private_key.pem", "mode": "ro"}
    return engine.containers.run(
        image,
        f"vnode-local start -c /mnt/config/{node}.yaml -n {node} --dockerized --user",
        name=container_name(node),
        labels={LABEL: network, "vantage6-type": "node", "name": node, "system": "False"},
        environment={
            "DATA_VOLUME_NAME": data.name,
            "PRIVATE_KEY": "/mnt/private_key.pem",
            f"{hospital.label.upper()}_DATABASE_URI": file,
            f"{HOSPITAL.upper()}_DATABASE_URI": HOSPITAL,
        },
        network=docker_name(network),
        volumes=volumes,
        detach=True,
    )


def remove(engine: DockerClient, network: str) -> list[str]:
    """Remove everything of a network from the engine.

    Args:
        engine: the Docker engine.
        network: the network's name.

    Returns:
        The names of what could not be removed in time.
    """
    deadline = time.monotonic() + REMOVE_SECONDS
    while things := _things(engine, network):
        if time.monotonic() > deadline:
            break
        for _, delete in things:
            try:
                delete()
            except APIError:  # already gone, or still in use for a moment: the next pass tries again
                time.sleep(0.1)
    return [name for name, _ in things]


def empty(engine: DockerClient, network: str, folder: Path) -> None:
    """Stop a network's containers, and remove what they wrote as root to its folder on this machine.

    Args:
        engine: the Docker engine.
        network: the network's name.
        folder: the network's folder.
    """
    existing = containers(engine, network)
    if existing and folder.exists():
        for container in existing:
            with contextlib.suppress(APIError):  # it does not run
                container.kill()
        command = ["sh", "-c", "rm -rf /network/*/*"]
        volumes = {str(folder): {"bind": "/network", "mode": "rw"}}
        labels = {LABEL: network}  # if this is interrupted, ``remove`` finds it
        engine.containers.run(existing[0].image, command, entrypoint=[], volumes=volumes, labels=labels, remove=True)


def containers(engine: DockerClient, network: str) -> list[Container]:
    """List the containers of the server and the nodes, running or not."""
    return engine.containers.list(all=True, filters={"label": f"{LABEL}={network}"}, ignore_removed=True)


def _algorithms(engine: DockerClient, network: str) -> list[Container]:
    node = re.compile(node_name(network, 0)[:-1] + r"\d+")
    every = engine.containers.list(all=True, filters={"label": "vantage6-type"}, ignore_removed=True)
    return [container for container in every if node.fullmatch(container.labels.get("node", ""))]


def _things(engine: DockerClient, network: str) -> list[tuple[str, Callable[[], object]]]:
    """Name and removal of everything, nodes first: a running node would start another algorithm container."""
    made_by_node = re.compile(container_name(node_name(network, 0)).replace("-0-user", r"-\d+-user-(net|\d+-tmpvol)"))

    def ours(name: str, labels: Mapping[str, str] | None) -> bool:
        return (labels or {}).get(LABEL) == network or made_by_node.fullmatch(name) is not None

    running = containers(engine, network) + _algorithms(engine, network)
    networks = [it for it in engine.networks.list() if ours(it.name, it.attrs.get("Labels"))]
    volumes = [it for it in engine.volumes.list() if ours(it.name, it.attrs.get("Labels"))]
    return [
        *((it.name, partial(it.remove, force=True, v=True)) for it in running),
        *((it.name, it.remove) for it in networks),
        *((it.name, partial(it.remove, force=True)) for it in volumes),
    ]
