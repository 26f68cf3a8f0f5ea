"""Runs a node of vantage6 5 in its container, on a fake Kubernetes: NODE_CONFIG."""

import sys

import fake_kubernetes

fake_kubernetes.install()  # before the node imports it

from pathlib import Path  # noqa: E402

from vantage6.cli.context.node import NodeContext  # noqa: E402
from vantage6.node import run  # noqa: E402


def main(config: str) -> None:
    run(NodeContext(Path(config).stem, False, config, in_container=True))


main(*sys.argv[1:])
