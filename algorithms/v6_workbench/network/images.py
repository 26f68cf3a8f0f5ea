"""Docker images, built through the engine's interface: one per method, and the local network's server and node.

The recipes are in ``docker/`` beside ``algorithms/``, so building needs a checkout of the project.
"""

from __future__ import annotations

import io
import os
import sys
import tarfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from docker.client import DockerClient
from docker.errors import BuildError, DockerException, ImageNotFound

from v6_federated.base.version import __version__
from v6_workbench.errors import EngineError

ROOT = Path(__file__).resolve().parents[3]
RECIPES = ROOT / "docker"
VANTAGE6 = "4.15.2"
INFRASTRUCTURE = f"v6-federated-infrastructure:{VANTAGE6}"
PYTHON = "python:3.11-slim-bookworm"
SOURCE = "v6-federated"  # the label of images built where pyproject.toml names no address

Log = Callable[[str], None]


@dataclass(frozen=True)
class Image:
    """One line of ``docker/images.toml``.

    Attributes:
        name: the image's name, without a tag.
        package: the method's import package; vantage6 calls the functions that its ``__init__`` exports.
        kind: base layers, ``numpy``, ``torch`` or ``lightgbm``.
    """

    name: str
    package: str
    kind: str


def engine() -> DockerClient:
    """The Docker engine of this machine; EngineError in one line where none answers."""
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
    """The images of ``docker/images.toml``, by name and in its order."""
    return {name: Image(name, **line) for name, line in _toml(RECIPES / "images.toml").items()}


def build_method(
    image: Image, *, source: Path | None = None, network: str | None = None, python: str = PYTHON, log: Log = print
) -> str:
    """Build a method's image as NAME:VERSION and NAME:latest; return the first.

    ``source`` is the method's folder where it is not ``algorithms/PACKAGE``; ``network`` the engine's network during
    the build (``host`` where containers reach no package index).
    """
    project = _toml(ROOT / "pyproject.toml")["project"]
    files = [(ROOT / name, name) for name in ("pyproject.toml", "constraints.txt", "README.md", "LICENSE")]
    packages = {"v6_federated": ROOT / "algorithms" / "v6_federated"}
    packages[image.package] = source or ROOT / "algorithms" / image.package
    files += [(folder, f"algorithms/{package}") for package, folder in packages.items()]
    tag = f"{image.name}:{__version__}"
    arguments = {
        "PYTHON": python,
        "KIND": image.kind,
        "PACKAGE": image.package,
        "VERSION": __version__,
        "SOURCE": project.get("urls", {}).get("Source", SOURCE),
    }
    build(tag, RECIPES / "Dockerfile", files, arguments, network, log)
    engine().images.get(tag).tag(image.name, "latest")
    return tag


def infrastructure(*, network: str | None = None, log: Log = print) -> str:
    """The image of the vantage6 server and node, built from PyPI where the engine does not have it."""
    try:
        engine().images.get(INFRASTRUCTURE)
    except ImageNotFound:
        constraints = RECIPES / "infrastructure.constraints.txt"
        files = [(constraints, constraints.name)]
        build(INFRASTRUCTURE, RECIPES / "infrastructure.Dockerfile", files, {"VANTAGE6": VANTAGE6}, network, log)
    return INFRASTRUCTURE


def build(
    tag: str,
    recipe: Path,
    files: Iterable[tuple[Path, str]] = (),
    arguments: Mapping[str, str] = MappingProxyType({}),
    network: str | None = None,
    log: Log = print,
) -> None:
    """Build an image of a recipe (a Dockerfile) and the files that it copies. Raises EngineError in one line.

    DOCKER_BUILD_NETWORK is the engine's network where ``network`` names none.
    """
    index = {key: os.environ[key] for key in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL") if os.environ.get(key)}
    log(f"building {tag}")
    try:
        image, _ = engine().images.build(
            fileobj=_context([(recipe, "Dockerfile"), *files]),
            custom_context=True,
            tag=tag,
            buildargs={**arguments, **index},
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


def _context(files: Iterable[tuple[Path, str]]) -> io.BytesIO:
    """A build context of just these files and folders, without caches and times: equal contents, equal layers."""

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if "__pycache__" in entry.name:
            return None
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


def _toml(path: Path) -> dict:
    if sys.version_info < (3, 11):
        raise EngineError("building images needs Python 3.11 or later on this machine, to read TOML files")
    import tomllib

    if not path.exists():
        raise EngineError(f"{path} is missing; images are built from a checkout of the project")
    return tomllib.loads(path.read_text())
