"""What store entries and images say of this project: the version of vantage6 that it is for, and where its code is."""

from importlib import metadata

VANTAGE6 = "4.15.2"


def source_url() -> str:
    """The address of the project's code; its name as long as ``pyproject.toml`` has no address."""
    urls = dict(line.split(", ", 1) for line in metadata.metadata("v6-federated").get_all("Project-URL") or [])
    return urls.get("Source", "v6-federated")
