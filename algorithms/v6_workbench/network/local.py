"""A real vantage6 network on this machine: one server and N nodes, each a container of the Docker engine.

``up`` does what ``v6 server start``, ``v6 server import`` and ``v6 node start`` of vantage6 4.15 do, for several
networks side by side; ``down`` leaves nothing behind, in the engine (``network_engine``) and in ``folder(name)``.

Organizations are ``hospital_1`` .. ``hospital_N`` with ids 1..N, each with one node. The researcher belongs to
``hospital_1``: vantage6 lets only members of a collaboration send tasks, and a member without a node never answers.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests
from docker.client import DockerClient
from docker.errors import DockerException
from docker.models.containers import Container
from vantage6.client import UserClient
from vantage6.common import bytes_to_base64s
from vantage6.common.encryption import RSACryptor

from v6_federated.base.errors import SafeError
from v6_workbench.errors import NetworkError
from v6_workbench.network import docker_engine, images, server
from v6_workbench.network.docker_engine import SERVER_ALIAS, SERVER_PORT, Hospital
from v6_workbench.network.server import last_line

HOST, API = "http://127.0.0.1", "/api"
START_SECONDS, START_SECONDS_PER_NODE = 60, 15
TYPES = {".csv": "csv", ".parquet": "parquet", ".xlsx": "excel"}
LOGGING = {
    "level": "INFO",
    "use_console": True,
    "backup_count": 1,
    "max_size": 1024,
    "format": "%(asctime)s - %(name)-14s - %(levelname)-8s - %(message)s",
    "datefmt": "%Y-%m-%d %H:%M:%S",
}


@dataclass(frozen=True)
class Network:
    """What a researcher needs to send tasks to a network that is up.

    Attributes:
        name: the network's name.
        url, port, api_path: the server, as ``UserClient`` takes them.
        username, password: a researcher of the first organization, who may send tasks and read results.
        collaboration: id of the collaboration of all organizations.
        organizations: name -> id, in the order of the databases given to ``up``.
        encrypted: whether payloads are encrypted between organizations.
        private_key: file with the key of the researcher's organization; None where not encrypted.
        label: the label under which every node has its database.
    """

    name: str
    url: str
    port: int
    api_path: str
    username: str
    password: str
    collaboration: int
    organizations: dict[str, int]
    encrypted: bool
    private_key: str | None
    label: str


def up(
    databases: Sequence[Path],
    *,
    name: str = "default",
    port: int | None = None,
    encrypted: bool = False,
    algorithm_env: Mapping[str, Any] | Sequence[Mapping[str, Any]] = (),
    node_config: Mapping[str, Any] | None = None,
    database_type: str | None = None,
    label: str = "default",
    official: bool = False,
    log: images.Log = print,
) -> Network:
    """Start a server and one node per database, wait until all nodes are online, and return the network.

    Args:
        databases: N files or folders, copied into the network's folder; node k serves the k-th.
        name: one for each network that is up at the same time.
        port: the server's port on this machine; None takes a free one.
        encrypted: make a key for each organization, and encrypt what they send each other.
        algorithm_env: policy of the nodes (``V6_FEDERATED_...``): one for all, or one mapping a node.
        node_config: further settings of every node's configuration, by their vantage6 names (``policies``, ...).
        database_type: csv, parquet, excel, other or folder; None takes it from each path.
        label: the databases' label, the same on every node.
        official: pull vantage6's published images where that works; otherwise they are built from PyPI.

    Raises SafeError for a wrong request, and EngineError or NetworkError if the network did not start; whatever had
    been started is removed, on Ctrl-C too.
    """
    sources = [Path(path) for path in databases]
    environments = _per_node(algorithm_env, len(sources))
    _check(name, label, sources)
    _past_proxies()
    engine = images.engine()
    if docker_engine.containers(engine, name):
        raise NetworkError(f"network '{name}' is there already; take it down first, or give this one another name")
    try:
        folder(name).mkdir(parents=True, mode=0o700)
    except FileExistsError:
        raise NetworkError(f"{folder(name)} is there already; take network '{name}' down first") from None
    try:
        server_image, node_image = docker_engine.infrastructure(engine, official, log)
        hospitals = _prepare(name, sources, environments, label, database_type, encrypted, node_config or {})
        network = _start(engine, name, port, hospitals, encrypted, server_image, node_image, log)
        _write(folder(name) / "network.json", _yaml(asdict(network)))
    except BaseException as error:
        down(name)
        if isinstance(error, DockerException | OSError):
            raise NetworkError(f"network '{name}' did not start: {images.one_line(error)}") from error
        raise
    log(f"network '{name}' is up at {network.url}:{network.port}")
    return network


def down(name: str = "default") -> None:
    """Remove everything of a network: containers, volumes, docker networks, files. Does nothing where it is gone."""
    _check_name(name)
    left = docker_engine.remove(images.engine(), name)
    if left:
        raise NetworkError(f"network '{name}' is not all gone; Docker does not remove {', '.join(left)}: try again")
    if folder(name).exists():
        shutil.rmtree(folder(name))


def load(name: str = "default") -> Network:
    """The network of that name; NetworkError where ``up`` has not finished one."""
    _check_name(name)
    record = folder(name) / "network.json"
    if not record.exists():
        raise NetworkError(f"no network '{name}' is up; known: {', '.join(names()) or 'none'}")
    _past_proxies()
    return Network(**json.loads(record.read_text()))


def names() -> list[str]:
    """Names of the networks that are up, in alphabetical order."""
    return sorted(record.parent.name for record in _state().glob("*/network.json"))


def status(name: str = "default") -> list[dict[str, Any]]:
    """One row for the server and one a node: role, organization, name and state of the container, online."""
    network = load(name)
    states = {it.name: it.status for it in docker_engine.containers(images.engine(), name)}
    answers = _answers(network.port)
    online = _online(client(network)) if answers else set()
    rows: list[dict[str, Any]] = [
        {"role": "server", "organization": None, "name": docker_engine.server_name(name), "online": answers}
    ]
    for organization, identity in network.organizations.items():
        node = docker_engine.container_name(docker_engine.node_name(name, identity))
        rows.append({"role": "node", "organization": organization, "name": node, "online": identity in online})
    return [row | {"container": states.get(row["name"], "missing")} for row in rows]


def client(network: Network) -> UserClient:
    """A client of the network's researcher, as ``server.sign_in`` gives it."""
    try:
        return server.sign_in(
            network.url,
            network.port,
            network.api_path,
            network.username,
            network.password,
            network.collaboration,
            network.private_key,
        )
    except NetworkError as error:
        raise NetworkError(f"network '{network.name}': {error}") from error


def folder(name: str) -> Path:
    """Where a network keeps its files: under XDG_STATE_HOME, for this user alone."""
    return _state() / name


def _prepare(
    name: str,
    sources: list[Path],
    environments: list[dict[str, str]],
    label: str,
    database_type: str | None,
    encrypted: bool,
    node_config: Mapping[str, Any],
) -> list[Hospital]:
    """Write each node's folder: its database, its key and its configuration."""
    hospitals = []
    for number, (source, environment) in enumerate(zip(sources, environments, strict=True), start=1):
        node = docker_engine.node_name(name, number)
        home = folder(name) / node
        home.mkdir()
        database = home / (label + source.suffix)
        (shutil.copytree if source.is_dir() else shutil.copy)(source, database)
        hospital = Hospital(
            organization=f"hospital_{number}",
            node=node,
            api_key=str(uuid.uuid4()),
            folder=home,
            database=database,
            database_type=database_type or ("folder" if source.is_dir() else TYPES.get(source.suffix, "other")),
            label=label,
            public_key=_key(home / "private_key.pem") if encrypted else "",
            environment=environment,
        )
        _write(home / "node.yaml", _yaml(_node_config(hospital) | dict(node_config)))
        hospitals.append(hospital)
    return hospitals


def _node_config(hospital: Hospital) -> dict[str, Any]:
    database = {"label": hospital.label, "uri": str(hospital.database), "type": hospital.database_type}
    if hospital.database.is_dir():
        database["mount_mode"] = "ro"  # a container would leave files in it that only root can remove
    return {
        "api_key": hospital.api_key,
        "server_url": f"http://{SERVER_ALIAS}",
        "port": SERVER_PORT,
        "api_path": API,
        "task_dir": "/mnt/data",
        "databases": [database],
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
        "uri": "sqlite:////root/vantage6.sqlite",
        "allow_drop_all": False,
        "jwt_secret_key": secrets.token_hex(32),
        "logging": LOGGING | {"file": "server.log"},
    }


def _entities(hospitals: list[Hospital], username: str, password: str) -> dict[str, Any]:
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


def _key(path: Path) -> str:
    """Make a private key at ``path``; return the public key as the server stores it."""
    path.touch(mode=0o600)
    return bytes_to_base64s(RSACryptor.create_public_key_bytes(RSACryptor.create_new_rsa_key(path)))


def _start(
    engine: DockerClient,
    name: str,
    port: int | None,
    hospitals: list[Hospital],
    encrypted: bool,
    server_image: str,
    node_image: str,
    log: images.Log,
) -> Network:
    """Start the server, then all nodes, and wait for both."""
    started = time.monotonic()
    username, password = "researcher", secrets.token_urlsafe(24)
    _write(folder(name) / "server.yaml", _yaml(_server_config()))
    _write(folder(name) / "entities.yaml", _yaml(_entities(hospitals, username, password)))

    log("starting the server")
    server = docker_engine.run_server(engine, name, folder(name), port, server_image)
    network = Network(
        name=name,
        url=HOST,
        port=int(server.ports[f"{SERVER_PORT}/tcp"][0]["HostPort"]),
        api_path=API,
        username=username,
        password=password,
        collaboration=1,
        organizations={hospital.organization: number for number, hospital in enumerate(hospitals, start=1)},
        encrypted=encrypted,
        private_key=str(hospitals[0].folder / "private_key.pem") if encrypted else None,
        label=hospitals[0].label,
    )
    _wait("the server", [server], lambda: _answers(network.port))

    log(f"starting {len(hospitals)} node{'s' * (len(hospitals) > 1)}")
    started_nodes = [docker_engine.run_node(engine, name, hospital, node_image) for hospital in hospitals]
    user = client(network)
    online: set[int] = set()

    def all_online() -> bool:
        for identity in sorted(_online(user) - online):
            online.add(identity)
            log(f"node {len(online)} of {len(started_nodes)} is online after {time.monotonic() - started:.0f} s")
        return len(online) == len(started_nodes)

    _wait("the nodes", [server, *started_nodes], all_online)
    return network


def _wait(what: str, containers: list[Container], ready: Callable[[], bool]) -> None:
    """Until ``ready``; NetworkError with a container's last line where one stops, or when it takes too long."""
    seconds = START_SECONDS + START_SECONDS_PER_NODE * len(containers)
    deadline = time.monotonic() + seconds
    while not ready():
        for container in containers:
            container.reload()
            if container.status != "running":
                line = last_line(container.logs(tail=50).decode(errors="replace"))
                raise NetworkError(f"{container.name} stopped while {what} started: {line or 'it printed nothing'}")
        if time.monotonic() > deadline:
            lines = "; ".join(f"{it.name}: {last_line(it.logs(tail=5).decode(errors='replace'))}" for it in containers)
            raise NetworkError(f"{what} did not come online within {seconds} s; last lines: {lines}")
        time.sleep(0.25)


def _past_proxies() -> None:
    """A server on this machine is spoken to directly, also where other addresses are behind a proxy."""
    here = urlsplit(HOST).hostname or HOST
    said = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""  # the first is the one that is read
    if said.strip() != "*":
        others = [host for host in said.split(",") if host and host != here]
        os.environ["no_proxy"] = os.environ["NO_PROXY"] = ",".join([*others, here])


def _answers(port: int) -> bool:
    try:
        return requests.get(f"{HOST}:{port}{API}/version", timeout=2).ok
    except requests.exceptions.RequestException:
        return False


def _online(user: UserClient) -> set[int]:
    """Ids of the organizations whose node is online."""
    return {
        node["organization"]["id"] for node in server.nodes(user, user.collaboration_id) if node["status"] == "online"
    }


def _state() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "v6-federated" / "networks"


def _check(name: str, label: str, sources: list[Path]) -> None:
    _check_name(name)
    if not label.isidentifier() or label in ("data", "tmp", "log", "config"):
        raise SafeError(f"label is '{label}'; it must be letters, digits and _, and none of data, tmp, log, config")
    if not sources:
        raise SafeError("no databases are given; expected one file or folder per node")
    for source in sources:
        if not source.exists():
            raise SafeError(f"database {source} does not exist; expected a file or folder per node")


def _check_name(name: str) -> None:
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,30}", name):
        raise SafeError(f"network name is '{name}'; it must be up to 31 small letters, digits and -, such as default")


def _per_node(environment: Mapping[str, Any] | Sequence[Mapping[str, Any]], nodes: int) -> list[dict[str, str]]:
    """One mapping a node, its values as text."""
    each = [environment] * nodes if isinstance(environment, Mapping) else list(environment) or [{}] * nodes
    if len(each) != nodes:
        raise SafeError(f"algorithm_env has {len(each)} entries for {nodes} nodes; give one mapping, or one a node")
    return [{key: str(value) for key, value in one.items()} for one in each]


def _yaml(content: Mapping[str, Any]) -> str:
    """vantage6 reads YAML, of which JSON is a part."""
    return json.dumps(content, indent=2)


def _write(path: Path, text: str) -> None:
    """Write a file that only this user can read: it may hold a password or a key of the server."""
    path.touch(mode=0o600)
    path.write_text(text)
