"""Docker images, built through the engine's interface: one per method, and the local network's server and node.

The recipes are in ``docker/`` beside ``algorithms/``, so building needs a checkout of the project.
"""

from __future__ import annotations

import io
import os
import re
import tarfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from docker.client import DockerClient
from docker.errors import BuildError, DockerException, ImageNotFound
from docker.utils import parse_repository_tag

from v6_federated.base.errors import SafeError
from v6_federated.base.version import __version__
from v6_workbench import registry
from v6_workbench.errors import EngineError
from v6_workbench.network.project import INSTALLED, VANTAGE6, source_url

ROOT = Path(__file__).resolve().parents[3]
RECIPES = ROOT / "docker"
INFRASTRUCTURE = f"v6-federated-infrastructure:{VANTAGE6}"
CODE = "v6-federated.code"  # label of an image: ``registry.code`` of what it was built from
OWN = re.compile(r"v6-([^:@/]+)(:[^/@]+)?")  # name of an image that this machine has built
STALE = (
    "built from other code than this machine has: {names}; results may differ, and newer settings are refused as "
    "unknown; build again with `make images`"
)

Log = Callable[[str], None]


@dataclass(frozen=True)
class Image:
    """The image of a method.

    Attributes:
        name: the image's name, without a tag.
        folder: the method's import package; vantage6 calls the functions that its ``__init__`` exports.
        kind: the packages below it: the name of a file of ``docker/requirements/``.
    """

    name: str
    folder: Path
    kind: str = "numpy"


def engine() -> DockerClient:
    """The Docker engine of this machine. Raises EngineError, of one line, if none answers."""
    try:
        client = DockerClient.from_env(timeout=600)
        client.ping()
    except DockerException as error:
        raise EngineError(
            "no Docker engine answers; a running engine that this user may use is needed: start Docker and check "
            "with `docker info`"
        ) from error
    return client


def listed() -> dict[str, Image]:
    """The images of the installed methods, by name. The extra that a method's entry point names is its kind."""
    return {
        f"v6-{method}": Image(f"v6-{method}", registry.folder_of(method), *registry.extras_of(method)[:1])
        for method in registry.names()
    }


def of_method(method: str) -> str:
    """The name of the image that this machine has built last of a method, for the vantage6 that is installed."""
    return f"v6-{method}" + (f":latest{INSTALLED.suffix}" if INSTALLED.suffix else "")


def build_method(image: Image, *, network: str | None = None, python: str = INSTALLED.python, log: Log = print) -> str:
    """Build a method's image as NAME:VERSION and NAME:latest, for the vantage6 that is installed; for 5 with ``-v5``.

    Args:
        image: what to build.
        network: the engine's network during the build (``host`` if containers reach no package index).
        python: the base image. A tag is replaced by the digest that its registry serves, if there is one.
        log: called with each line of progress.

    Returns:
        The image's name with its version as the tag.

    Raises:
        EngineError: the image was not built.
    """
    tag = f"{image.name}:{__version__}{INSTALLED.suffix}"
    files = [
        (RECIPES / "requirements" / f"{image.kind}.txt", f"requirements/{image.kind}.txt"),
        (ROOT / "constraints.txt", "constraints.txt"),
        (ROOT / "LICENSE", "LICENSE"),
        (ROOT / "algorithms" / "v6_federated", "algorithms/v6_federated"),
        (image.folder, f"algorithms/{image.folder.name}"),
    ]
    arguments = {
        "PYTHON": _base(python),
        "KIND": image.kind,
        "PACKAGE": image.folder.name,
        "VERSION": __version__,
        "SOURCE": source_url(),
    }
    method = image.name.removeprefix("v6-")
    labels = {CODE: registry.code(method)} if method in registry.names() else {}
    build(tag, RECIPES / "Dockerfile", files, arguments, network, log, labels)
    engine().images.get(tag).tag(image.name, f"latest{INSTALLED.suffix}")
    return tag


def push(image: str, name: str, *, log: Log = print) -> str:
    """Push an image of this machine to a registry, to which the engine is signed in (``docker login``).

    Args:
        image: its name here.
        name: its name there, REGISTRY/NAME:TAG.
        log: called with each line of progress.

    Returns:
        Its name there with its digest, REGISTRY/NAME@sha256:DIGEST.

    Raises:
        EngineError: the registry did not take it.
    """
    repository, tag = parse_repository_tag(name)
    client = engine()
    try:
        client.images.get(image).tag(repository, tag)
        log(f"pushing {name}")
        for line in client.api.push(repository, tag, stream=True, decode=True):
            if "error" in line:
                raise EngineError(f"image {name} was not pushed: {line['error']}")
    except DockerException as error:
        raise EngineError(f"image {name} was not pushed: {one_line(error)}") from error
    with_digest = _with_digest(name)
    assert with_digest is not None  # the engine keeps the digest of what it has pushed
    return with_digest


def allowed(name: str) -> str:
    """The entry of a node's ``allowed_algorithms`` that allows this name, with its tag or digest, and nothing else."""
    return f"'^{re.escape(name)}$'".replace(r"\-", "-")


def infrastructure(*, network: str | None = None, log: Log = print) -> str:
    """The image of the vantage6 server and node, built from PyPI unless the engine has it."""
    try:
        engine().images.get(INFRASTRUCTURE)
    except ImageNotFound:
        files = [(RECIPES / INSTALLED.server_packages, "requirements.txt")]
        arguments = {"VANTAGE6": VANTAGE6, "PYTHON": INSTALLED.server_python}
        build(INFRASTRUCTURE, RECIPES / "infrastructure.Dockerfile", files, arguments, network, log)
    return INFRASTRUCTURE


def kept_infrastructure() -> tuple[str, int] | None:
    """The name of the image of the vantage6 server and node, and its size in megabytes, if the engine has it."""
    try:
        return INFRASTRUCTURE, round(engine().images.get(INFRASTRUCTURE).attrs["Size"] / 1e6)
    except DockerException:
        return None


def build(
    tag: str,
    recipe: Path,
    files: Iterable[tuple[Path, str]] = (),
    arguments: Mapping[str, str] = MappingProxyType({}),
    network: str | None = None,
    log: Log = print,
    labels: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Build an image of a recipe (a Dockerfile) and the files that it copies. Raises EngineError in one line.

    DOCKER_BUILD_NETWORK is the engine's network if ``network`` names none.
    """
    index = {key: os.environ[key] for key in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL") if os.environ.get(key)}
    log(f"building {tag}")
    try:
        image, _ = engine().images.build(
            fileobj=_context([(recipe, "Dockerfile"), *files]),
            custom_context=True,
            tag=tag,
            buildargs={**arguments, **index},
            labels=dict(labels),
            network_mode=network or os.environ.get("DOCKER_BUILD_NETWORK"),
            rm=True,
            forcerm=True,
        )
    except BuildError as error:
        output = "".join(line.get("stream", "") for line in error.build_log).strip().splitlines()
        cause = next((line for line in reversed(output) if "rror" in line), one_line(error))
        raise EngineError(f"image {tag} was not built: {cause.strip()}") from error
    except DockerException as error:
        raise EngineError(f"image {tag} was not built: {one_line(error)}") from error
    log(f"built {tag}, {image.attrs['Size'] / 1e6:.0f} MB")


def _base(python: str) -> str:
    """A base image by the digest that its registry serves; by its tag if it is an image of this machine alone."""
    if "@" in python:
        return python
    client = engine()
    try:
        client.images.get(python)
    except ImageNotFound:
        try:
            client.images.pull(python)
        except DockerException as error:
            raise EngineError(
                f"the base image {python} is not there and cannot be pulled: {one_line(error)}"
            ) from error
    return _with_digest(python) or python


def digest(name: str) -> str | None:
    """The digest of an image that the engine of this machine has.

    Args:
        name: the image's name, with a tag or without.

    Returns:
        The digest of a registry, or else of the image itself, ``sha256:...``; None if there is no such image or engine.
    """
    try:
        image = engine().images.get(name)
    except (DockerException, EngineError):
        return None
    known = _with_digest(name)
    return str(image.id) if known is None else known.partition("@")[2]


def stale(names: Iterable[str]) -> list[str]:
    """Find images that do not hold the code of this machine, for example as it was updated after they were built.

    Args:
        names: names of images, with a tag or without.

    Returns:
        Those that this machine has built from other code. Images that the engine does not have, or that another machine
        has built, are not among them.
    """
    found = []
    for name in names:
        own = OWN.fullmatch(name)
        if own is None or own[1] not in registry.names():
            continue
        try:
            if engine().images.get(name).labels.get(CODE) != registry.code(own[1]):
                found.append(name)
        except (DockerException, EngineError, SafeError):  # no engine, no image, or a method that cannot be imported
            continue
    return found


def _with_digest(name: str) -> str | None:
    """REPOSITORY@sha256:DIGEST of an image that is REPOSITORY:TAG here, if the registry's digest is known."""
    repository, _ = parse_repository_tag(name)
    digests = engine().images.get(name).attrs["RepoDigests"]
    return next((digest for digest in digests if digest.partition("@")[0] == repository), None)


def _context(files: Iterable[tuple[Path, str]]) -> io.BytesIO:
    """A build context of just these files and folders, without caches and times: equal contents, equal layers."""

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if any(part == "__pycache__" or part.startswith(".") for part in Path(entry.name).parts):
            return None
        entry.mode = 0o755 if entry.isdir() else 0o644
        entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = 0, 0, 0, "", ""
        return entry

    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for path, name in files:
            if not path.exists():
                raise EngineError(f"{path} is missing; images are built from a checkout of the project")
            archive.add(path, name, filter=plain)
    stream.seek(0)
    return stream


def one_line(error: Exception) -> str:
    """The text of an error of the engine, which may have several lines, as one."""
    return " ".join(str(error).split())
