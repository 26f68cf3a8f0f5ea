"""What tests on a real network make in the Docker engine, told apart by a label, so that nothing of it is left."""

import os
import re
from collections.abc import Callable

from v6_workbench.network import images
from v6_workbench.network.docker_engine import LABEL, remove

RUN = "V6_TESTS"  # variable: the process that began this run of the tests, whose workers know it too
REQUIRED = os.environ.get("REQUIRE_DOCKER") == "1"


def named(name: str) -> str:
    """The name of a network of this run, which no other run on this machine uses."""
    return f"test-{os.environ[RUN]}-{name}"


def once() -> dict[str, str]:
    """Labels of a container that runs one command."""
    return {LABEL: named("once")}


def clear(whose: Callable[[str], bool]) -> None:
    """Remove all that runs of the tests have made, if ``whose`` says so of the process that began them."""
    engine, label = images.engine(), {"label": LABEL}
    there = [(it.labels or {})[LABEL] for it in engine.containers.list(all=True, filters=label, ignore_removed=True)]
    for thing in [*engine.networks.list(filters=label), *engine.volumes.list(filters=label)]:
        there.append(thing.attrs["Labels"][LABEL])
    for name in sorted({*there}):
        began = re.match(r"test-(\d+)-", name)
        if began and whose(began[1]) and (left := remove(engine, name)):
            print(f"Docker has not removed {', '.join(left)}")
