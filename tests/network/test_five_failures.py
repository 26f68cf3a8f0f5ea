"""What a researcher sees on a network of vantage6 5 of careful nodes: refusals, crashes, nodes that are offline."""

import re
import subprocess
import sys
import threading
import time

import pytest

from v6_workbench.cli.main import main
from v6_workbench.network import docker_engine, local

RANDOM = ["gbdt", "--rounds", "2", "--set", "mode=random"]


@pytest.fixture(scope="module")
def careful(engine, state, named, image_of):
    """Three careful nodes. The second does not allow more than five rounds."""
    name = named("five-careful")
    image_of("gbdt")
    up = ["network", "up", "--name", name, "--data", "breast-cancer", "--nodes", "3"]
    try:
        assert main([*up, "--node-env", "2:V6_FEDERATED_MAXIMUM_ROUNDS=5"]) == 0
        yield name
    finally:
        local.down(name)


@pytest.fixture
def submit(careful, capsys):
    """``submit``: its exit status and standard error."""

    def call(*words):
        capsys.readouterr()
        status = main(["submit", *map(str, words), "--network", careful])
        err = capsys.readouterr().err
        assert "Traceback" not in err
        return status, err

    return call


def node(engine, network: str, number: int):
    return engine.containers.get(docker_engine.container_name(docker_engine.node_name(network, number)))


def test_careful_nodes_grow_trees_of_random_splits(submit, tmp_path):
    status, err = submit(*RANDOM, "--out", tmp_path / "out")
    assert status == 0, err
    assert main(["export", str(tmp_path / "out"), "--to", str(tmp_path / "trees.npz")]) == 0


def test_a_refusal_is_one_line(submit):
    status, err = submit("gbdt", "--rounds", 6, "--set", "mode=random")
    assert status == 1
    assert re.search(r"v6-federated: task \d+: .*organization 2: .*V6_FEDERATED_MAXIMUM_ROUNDS", err), err


def test_an_image_that_is_not_there(submit):
    status, err = submit(*RANDOM, "--image", "v6-no-such-image")
    assert status == 1 and "nothing was trained" in err
    assert re.search(r"organization \d: its node does not find the image v6-no-such-image; expected one", err)


def test_a_database_that_nodes_do_not_have(submit):
    status, err = submit(*RANDOM, "--database", "other")
    assert status == 2 and "organization 1: its node has no database 'other'; use --database default" in err


def test_a_run_that_is_lost(engine, careful, submit):
    """Its container is killed, as when a node's memory runs out."""
    scope = f"{docker_engine.node_name(careful, 2)}-vantage6-run-"
    seen: set[str] = set()
    over = threading.Event()

    def kill():
        while not over.wait(0.1):
            for container in docker_engine.containers(engine, careful):
                if container.name.startswith(scope) and container.status == "running":
                    seen.add(container.name)
                    if len(seen) > 1:  # the first extracts the rows
                        container.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        status, err = submit(*RANDOM)
    finally:
        over.set()
        killer.join()
    assert status == 1 and re.search(r"v6-federated: task \d+: round 0, describe: organization 2: ", err), err
    assert "LOGS of POD" not in err  # which the node writes above each log


def test_a_node_that_is_offline_is_waited_for(engine, careful, tmp_path):
    node(engine, careful, 3).stop(timeout=2)
    deadline = time.monotonic() + 90
    while local.status(careful)[3]["online"]:
        assert time.monotonic() < deadline, "the server does not see that the node is offline"
        time.sleep(1)
    command = ["submit", *RANDOM, "--network", careful, "--out", str(tmp_path / "out")]
    with subprocess.Popen(
        [sys.executable, "-m", "v6_workbench.cli.main", *command], stderr=subprocess.PIPE, text=True
    ) as process:
        said = []
        for line in process.stderr:
            said.append(line)
            if "(2 of 3)" in line:
                node(engine, careful, 3).start()
    assert process.returncode == 0, said
    assert "organization 3: its node is offline; the task waits for it\n" in said
