"""What store entries and images say of this project: the releases of vantage6 that it is for, and where its code is."""

from dataclasses import dataclass
from importlib import metadata


@dataclass(frozen=True)
class Release:
    """A release of vantage6 that this project runs on.

    Attributes:
        version: its version.
        python: the base image of algorithms for it.
        suffix: what the tags of images for it end with.
        store: the file of a method's entry for its algorithm store.
        server_python: the base image of a local network's server and nodes.
        server_packages: what is installed in it, a file of ``docker``.
    """

    version: str
    python: str
    suffix: str
    store: str
    server_python: str
    server_packages: str


FOUR = Release(
    "4.15.2",
    "python:3.11-slim-bookworm",
    "",
    "algorithm_store.json",
    "python:3.10-slim-bookworm",
    "infrastructure.requirements.txt",
)
FIVE = Release(
    "5.0.3",
    "python:3.13-slim-bookworm",
    "-v5",
    "algorithm_store_5.json",
    "python:3.13-slim-bookworm",
    "five/requirements.txt",
)
RELEASES = {release.version.partition(".")[0]: release for release in (FOUR, FIVE)}
INSTALLED = RELEASES[metadata.version("vantage6-common").partition(".")[0]]
VANTAGE6 = INSTALLED.version


def source_url() -> str:
    """The address of the project's code; its name as long as ``pyproject.toml`` has no address."""
    urls = dict(line.split(", ", 1) for line in metadata.metadata("v6-federated").get_all("Project-URL") or [])
    return urls.get("Source", "v6-federated")
