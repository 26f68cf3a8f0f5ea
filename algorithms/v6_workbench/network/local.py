"""A real vantage6 network on this machine: one server and N nodes, each a container of the Docker engine.

``up`` does what ``v6 server start``, ``v6 server import`` and ``v6 node start`` of vantage6 4.15 do, for several
networks at the same time; ``down`` leaves nothing behind, in the engine (``docker_engine``) and in ``folder(name)``.
With vantage6 5 installed, it is a network of 5 (``five``).

Organizations have ids 1..N and one node each; without names, they are ``hospital_1`` .. ``hospital_N``. The researcher
belongs to the first: vantage6 lets only members of a collaboration send tasks, and a member without a node never
answers.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests
from docker.client import DockerClient
from docker.errors import DockerException
from docker.models.containers import Container

from v6_federated.base.errors import SafeError
from v6_federated.rules.policy import Policy
from v6_workbench.errors import NetworkError
from v6_workbench.network import configuration, docker_engine, five, images, server
from v6_workbench.network.client import API, FIVE, UserClient
from v6_workbench.network.docker_engine import SERVER_PORT, Hospital
from v6_workbench.simulation import studies
from v6_workbench.simulation.studies import StudyPlan

# what differs between the networks of vantage6 4 and 5
of_node = five.of_node if FIVE else configuration.of_node
write_server = five.write_server if FIVE else configuration.write_server
run_server = five.run_server if FIVE else docker_engine.run_server
run_node = five.run_node if FIVE else docker_engine.run_node

HOST = "http://127.0.0.1"
START_SECONDS, START_SECONDS_PER_NODE = 60, 15
# what the engine says when each range of addresses belongs to a network; newer ones say the second
NO_ADDRESSES = ("non-overlapping ipv4 address pool", "address pools have been fully subnetted")


@dataclass(frozen=True)
class Network:
    """What a researcher needs to send tasks to a network that is up.

    Attributes:
        name: the network's name.
        url, port, api_path: the server, as ``UserClient`` takes them.
        username, password: a researcher of the first organization, who may send tasks and read results.
        collaboration: id of the collaboration of all organizations.
        organizations: ids by name, in the order of the databases given to ``up``.
        encrypted: whether payloads are encrypted between organizations.
        private_key: file of the private key of the researcher's organization; None if nothing is encrypted.
        label: label of the database at every node.
        auth: the address where the user signs in (vantage6 5); None if it is the server's own.
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
    auth: str | None = None


def up(
    databases: Sequence[Path],
    *,
    organizations: Sequence[str] | None = None,
    name: str = "default",
    port: int | None = None,
    encrypted: bool = False,
    algorithm_env: Mapping[str, Any] | Sequence[Mapping[str, Any]] = (),
    node_config: Mapping[str, Any] | None = None,
    database_type: str | None = None,
    label: str = "default",
    official: bool = False,
    study: StudyPlan | None = None,
    log: images.Log = print,
) -> Network:
    """Start a server and a node for each database, and wait until all nodes are online.

    Args:
        databases: N files or folders, copied into the network's folder; node k serves the k-th.
        organizations: a name for each node's organization; None: ``hospital_1`` and so on.
        name: the network's name; networks that are up at the same time have different names.
        port: the server's port on this machine; None takes a free one.
        encrypted: make a key for each organization, and encrypt what they send each other.
        algorithm_env: policy of the nodes (``V6_FEDERATED_...``): one mapping for all, or one for each node. Without a
            profile, nodes are ``careful``, as all real nodes are.
        node_config: further settings of every node's configuration, by their vantage6 names (``policies``, ...).
        database_type: csv, parquet, excel, other or folder; None takes it from each path.
        label: the databases' label, the same at every node.
        official: (vantage6 4) pull vantage6's published images if possible; otherwise they are built from PyPI.
        study: a study that the nodes have accepted, whose hospitals are named as the organizations; None: there is
            none. The node's operator requires it with ``V6_FEDERATED_AGGREGATION=pinned``.
        log: called with each line of progress.

    Returns:
        The network.

    Raises:
        SafeError: the request is wrong.
        NodePermissionException: with ``study``, a node's limit cannot be read.
        EngineError: the Docker engine does not answer.
        NetworkError: the network did not start. What had been started is removed, after Ctrl-C too.
    """
    sources = [Path(path) for path in databases]
    environments = _per_node(algorithm_env, len(sources))
    _check(name, label, sources)
    named = [f"hospital_{k}" for k in range(1, len(sources) + 1)] if organizations is None else [*organizations]
    _check_organizations(named, len(sources))
    least = 0 if study is None else max(Policy.of_node(it).minimum_organizations for it in environments)
    if study is not None:
        studies.dealt([str(path) for path in sources], study.size, least)
        if FIVE:
            raise SafeError(
                "a study needs a folder of the hospital's own, which vantage6 5 does not give to tasks; use vantage6 "
                "4, or leave --study out"
            )
    bypass_proxies()
    engine = images.engine()
    if docker_engine.containers(engine, name):
        raise NetworkError(f"network '{name}' exists already; {_other(name)}")
    try:
        folder(name).mkdir(parents=True, mode=0o700)
    except FileExistsError:
        raise NetworkError(f"the folder {folder(name)} exists already; {_other(name)}") from None
    try:
        server_image, node_image = docker_engine.infrastructure(engine, official, log)
        hospitals = [
            configuration.write_node(
                folder(name) / docker_engine.node_name(name, number),
                organization,
                source,
                environment=environment,
                label=label,
                database_type=database_type,
                encrypted=encrypted,
                settings=node_config or {},
                described=of_node,
            )
            for number, (organization, source, environment) in enumerate(
                zip(named, sources, environments, strict=True), start=1
            )
        ]
        if study is not None:
            studies.make({it.organization: it.folder / docker_engine.HOSPITAL for it in hospitals}, study, least)
        network = _start(engine, name, port, hospitals, encrypted, server_image, node_image, log)
        configuration.write(folder(name) / "network.json", asdict(network))
    except BaseException as error:
        log(f"removing what was started of network '{name}'; this takes up to a minute")
        down(name)
        if isinstance(error, DockerException) and _lacks_addresses(str(error)):
            raise _no_addresses() from error
        if isinstance(error, DockerException | OSError):
            raise NetworkError(f"network '{name}' did not start: {images.one_line(error)}") from error
        raise
    log(f"network '{name}' is up at {network.url}:{network.port}")
    return network


def down(name: str = "default") -> None:
    """Remove everything of a network: containers, volumes, docker networks, files. It need not exist.

    Args:
        name: the network's name.

    Raises:
        NetworkError: Docker does not remove something.
    """
    _check_name(name)
    engine = images.engine()
    docker_engine.empty(engine, name, folder(name))
    left = docker_engine.remove(engine, name)
    if left:
        raise NetworkError(
            f"Docker has not removed all of network '{name}': {', '.join(left)} still exist; run `v6-federated network "
            f"down --name {name}` again"
        )
    if folder(name).exists():
        shutil.rmtree(folder(name))


def unused_image() -> tuple[str, int] | None:
    """Return the image of server and nodes, if this machine keeps it and no network is up.

    Returns:
        Its name and its size in megabytes; None if there is none, or it is used.
    """
    return None if names() else images.kept_infrastructure()


def load(name: str = "default") -> Network:
    """Return a network that is up.

    Args:
        name: the network's name.

    Returns:
        The network.

    Raises:
        NetworkError: no network of this name is up.
    """
    _check_name(name)
    record = folder(name) / "network.json"
    if not record.exists():
        known = f"running networks: {', '.join(names())}" if names() else "start one with `v6-federated network up`"
        raise NetworkError(f"no network '{name}' is running; {known}")
    bypass_proxies()
    return Network(**json.loads(record.read_text(encoding="utf-8")))


def names() -> list[str]:
    """List the names of the networks that are up, in alphabetical order."""
    return sorted(record.parent.name for record in _state().glob("*/network.json"))


def status(name: str = "default") -> list[dict[str, Any]]:
    """Return the state of a network.

    Args:
        name: the network's name.

    Returns:
        A row for the server and for each node: role, organization, name and state of the container, online.

    Raises:
        NetworkError: no network of this name is up.
    """
    network = load(name)
    states = {it.name: it.status for it in docker_engine.containers(images.engine(), name)}
    answers = _answers(network)
    online = _online(client(network)) if answers else set()
    rows: list[dict[str, Any]] = [
        {"role": "server", "organization": None, "name": docker_engine.server_name(name), "online": answers}
    ]
    for organization, identity in network.organizations.items():
        node = docker_engine.container_name(docker_engine.node_name(name, identity))
        rows.append({"role": "node", "organization": organization, "name": node, "online": identity in online})
    return [row | {"container": states.get(row["name"], "missing")} for row in rows]


def client(network: Network, say: Callable[[str], None] = print, patience: float = server.PATIENCE) -> UserClient:
    """Sign in as the network's researcher; see ``server.sign_in`` for the arguments and what it raises."""
    try:
        return server.sign_in(
            network.url,
            network.port,
            network.api_path,
            network.username,
            network.password,
            network.collaboration,
            network.private_key,
            network.auth,
            say,
            patience,
        )
    except NetworkError as error:
        raise NetworkError(f"network '{network.name}': {error}") from error


def folder(name: str) -> Path:
    """Return the folder of a network's files: under XDG_STATE_HOME, readable by this user only."""
    return _state() / name


def _other(name: str) -> str:
    return f"remove it with `v6-federated network down --name {name}`, or choose another --name"


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
    write_server(folder(name), hospitals, username, password)

    log("starting the server")
    running = run_server(engine, name, folder(name), port, server_image)
    ports = {own: int(bound[0]["HostPort"]) for own, bound in running.ports.items()}
    sign_in = ports.get(f"{five.KEYCLOAK_PORT}/tcp")
    network = Network(
        name=name,
        url=HOST,
        port=ports[f"{SERVER_PORT}/tcp"],
        api_path=API,
        username=username,
        password=password,
        collaboration=1,
        organizations={hospital.organization: number for number, hospital in enumerate(hospitals, start=1)},
        encrypted=encrypted,
        private_key=str(hospitals[0].folder / "private_key.pem") if encrypted else None,
        label=hospitals[0].label,
        auth=f"{HOST}:{sign_in}" if sign_in else None,
    )
    _wait("the server", [running], lambda: _answers(network))

    log(f"starting {len(hospitals)} node{'s' * (len(hospitals) > 1)}")
    started_nodes = [run_node(engine, name, hospital, node_image) for hospital in hospitals]
    user = client(network)
    online: set[int] = set()

    def all_online() -> bool:
        for identity in sorted(_online(user) - online):
            online.add(identity)
            log(f"node {len(online)} of {len(started_nodes)} is online after {time.monotonic() - started:.0f} s")
        return len(online) == len(started_nodes)

    _wait("the nodes", [running, *started_nodes], all_online)
    return network


def _wait(what: str, containers: list[Container], ready: Callable[[], bool]) -> None:
    """Wait until ``ready``; NetworkError with a container's last line if one stops, or if it takes too long."""
    seconds = START_SECONDS + START_SECONDS_PER_NODE * len(containers)
    deadline = time.monotonic() + seconds
    while not ready():
        for container in containers:
            container.reload()
            if container.status != "running":
                said = container.logs(tail=50).decode(errors="replace")
                if _lacks_addresses(said):
                    raise _no_addresses()
                line = server.last_line(said)
                raise NetworkError(f"{container.name} stopped while starting {what}: {line or 'it printed nothing'}")
        if time.monotonic() > deadline:
            lines = "; ".join(
                f"{it.name}: {server.last_line(it.logs(tail=5).decode(errors='replace'))}" for it in containers
            )
            raise NetworkError(f"{what} did not come online within {seconds} s; last lines: {lines}")
        time.sleep(0.25)


def _lacks_addresses(text: str) -> bool:
    return any(said in text.lower() for said in NO_ADDRESSES)


def _no_addresses() -> NetworkError:
    running = f" (running: {', '.join(names())})" if names() else ""
    return NetworkError(
        "Docker has no free address range for the networks of the nodes; remove networks that are not needed: "
        f"`v6-federated network down --name NAME`{running}, or `docker network prune`, which removes all that no "
        "container uses"
    )


def bypass_proxies() -> None:
    """Reach a server on this machine directly, even if other addresses are reached through a proxy."""
    here = urlsplit(HOST).hostname or HOST
    said = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""  # requests reads the first
    if said.strip() != "*":
        others = [host for host in said.split(",") if host and host != here]
        os.environ["no_proxy"] = os.environ["NO_PROXY"] = ",".join([*others, here])


def _answers(network: Network) -> bool:
    try:
        return requests.get(f"{network.url}:{network.port}{network.api_path}/version", timeout=2).ok
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
    if not label.isidentifier() or label.lower() in ("data", "tmp", "log", "config", docker_engine.HOSPITAL):
        raise SafeError(
            f"label '{label}' is not accepted; expected letters, digits and _, not data, tmp, log, config or hospital"
        )
    if not sources:
        raise SafeError("there are no databases; expected a file or folder for each node")
    for source in sources:
        if not source.exists():
            raise SafeError(f"database {source} does not exist; expected a file or folder for each node")


def _check_organizations(named: Sequence[str], nodes: int) -> None:
    if len(named) != nodes or len({*named}) < nodes or not all(name.strip() == name != "" for name in named):
        raise SafeError(f"organizations={named}: expected {nodes} different names, without spaces at their ends")


def _check_name(name: str) -> None:
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,30}", name):
        raise SafeError(
            f"network name '{name}' is not accepted; expected up to 31 lowercase letters, digits and -, such as default"
        )


def _per_node(environment: Mapping[str, Any] | Sequence[Mapping[str, Any]], nodes: int) -> list[dict[str, str]]:
    """One mapping for each node, its values as text, with what this shell says of the kernels to compute with."""
    each = [environment] * nodes if isinstance(environment, Mapping) else list(environment) or [{}] * nodes
    if len(each) != nodes:
        raise SafeError(
            f"algorithm_env has {len(each)} entries for {nodes} nodes; expected one mapping, or one for each node"
        )
    # mock nodes compute in this shell; with other kernels of its linear algebra, the last bits would differ
    kernels = {name: value for name, value in os.environ.items() if name.startswith("OPENBLAS_")}
    return [kernels | {key: str(value) for key, value in one.items()} for one in each]
