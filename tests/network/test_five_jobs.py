"""Jobs on a real network of vantage6 5, from ``submit`` to the exported model, and what the network leaves behind."""

import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from v6_workbench.cli.main import main
from v6_workbench.network import client, docker_engine, local, server

DATA = ["--data", "breast-cancer", "--nodes", "3"]
PROGRAM = [sys.executable, "-m", "v6_workbench.cli.main"]


@pytest.fixture(scope="module")
def network(engine, state, named, image_of):
    name = named("five-jobs")
    for method in ("gbdt", "glm", "pca"):
        image_of(method)
    try:
        assert main(["network", "up", "--name", name, *DATA, "--profile", "trusting"]) == 0
        yield name
    finally:
        local.down(name)


def names_in_engine(engine, name: str) -> list[str]:
    things = [*engine.containers.list(all=True, ignore_removed=True), *engine.networks.list(), *engine.volumes.list()]
    return [thing.name for thing in things if f"-{name}-" in f"{thing.name}-"]


def algorithms(engine, network: str) -> list[str]:
    """Names of the containers of algorithms at the nodes of a network."""
    return [it.name for it in docker_engine.containers(engine, network) if "-run-" in it.name]


def wait_until(ready, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < deadline, f"it does not happen in {seconds} s"
        time.sleep(0.2)


def test_all_nodes_are_online(network):
    rows = local.status(network)
    assert [row["role"] for row in rows] == ["server", "node", "node", "node"]
    assert all(row["online"] and row["container"] == "running" for row in rows)
    assert local.load(network).organizations == {f"hospital_{k}": k for k in (1, 2, 3)}


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("fedavg", ["--rounds", "2", "--set", "aggregation=masked"]),
        ("scaffold", ["--rounds", "2", "--set", "aggregation=masked"]),
        ("pca", []),
        ("glm", ["--rounds", "3", "--set", "l2=0.1"]),
        ("gbdt", ["--rounds", "3", "--set", "mode=cyclic"]),
    ],
)
def test_a_model_equals_that_of_mock_nodes(call, image_of, method, options, tmp_path):
    """From ``submit`` to the exported model, to the last bit."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    image_of(method)
    status, _, err = call("submit", method, *options, "--seed", 3, "--out", ours)
    assert status == 0, err
    assert "the nodes extract their rows" in err and "organization 1 has extracted its rows" in err
    assert main(["run", method, *DATA, *options, "--seed", "3", "--out", str(theirs)]) == 0
    for out in (ours, theirs):
        assert main(["export", str(out), "--to", f"{out}.npz"]) == 0
    with np.load(f"{ours}.npz") as one, np.load(f"{theirs}.npz") as other:
        assert one.files == other.files
        assert all(np.array_equal(one[name], other[name], equal_nan=one[name].dtype.kind == "f") for name in one.files)


def test_a_task_is_found_again_and_fetched(call, engine, network, tmp_path):
    """Those in which nodes extract rows are not among the jobs. A server that was restarted has all of them."""
    status, _, err = call("submit", "pca", "--rounds", 2, "--out", tmp_path / "first")
    assert status == 0, err
    task = int(re.search(r"task (\d+) was sent", err)[1])
    [newest, *_] = call("tasks")[1]["tasks"]
    assert (newest["task"], newest["method"], newest["status"], newest["rounds"]) == (task, "pca", "completed", 2)
    assert {row["method"] for row in call("tasks")[1]["tasks"]} <= {"gbdt", "glm", "pca"}
    assert call("status", task)[1]["finished"] == 2
    code, _, err = call("status", task - 1)
    assert code == 2 and f"task {task - 1} " in err and "is not one of v6-federated" in err
    engine.containers.get(docker_engine.server_name(network)).restart(timeout=2)
    wait_until(lambda: all(row["online"] for row in local.status(network)), 120)
    assert call("fetch", task, "--out", tmp_path / "again")[0] == 0
    first, again = (tmp_path / name / "result.json" for name in ("first", "again"))
    assert first.read_bytes() == again.read_bytes()


def test_a_task_is_cancelled(call, engine, network, tmp_path):
    command = ["submit", "glm", "--network", network, "--rounds", "20", "--out", str(tmp_path)]
    with subprocess.Popen([*PROGRAM, *command], stderr=subprocess.PIPE, text=True) as process:
        try:
            task = next(int(it[1]) for line in process.stderr if (it := re.match(r"task (\d+) was sent", line)))
        finally:
            process.kill()
    code, line, err = call("cancel", task)
    assert code == 0 and line["cancelled"], err
    wait_until(lambda: not algorithms(engine, network), 60)
    assert call("status", task)[1]["status"] == "killed by user"
    code, _, err = call("fetch", task, "--out", tmp_path)
    assert code == 1 and f"task {task}: organization 1: the task was stopped" in err


def test_an_encrypted_network_that_is_taken_down_leaves_nothing(engine, named, databases, image_of, capsys):
    name = named("five-encrypted")
    image_of("pca")
    tables = [word for path in databases for word in ("--data", str(path))]
    try:
        assert main(["network", "up", "--name", name, *tables, "--encrypted", "--profile", "trusting"]) == 0
        network = local.load(name)
        assert main(["submit", "pca", "--network", name, "--features", "x,z", "--rounds", "2"]) == 0
        user = local.client(network)
        [task] = [row["id"] for row in server.rows(user, "task", is_user_created=1) if client.is_job(row)]
        [subtask, *_] = server.subtasks(user, task)
        with pytest.raises(ValueError):
            client.arguments_of(server.runs(user, subtask["id"])[0])
        begun = [*PROGRAM, "submit", "pca", "--network", name]
        with subprocess.Popen(begun, stderr=subprocess.DEVNULL) as process:  # taken down in the middle of a task
            wait_until(lambda: algorithms(engine, name), 60)
            local.down(name)
            process.send_signal(signal.SIGKILL)
    finally:
        local.down(name)
    assert names_in_engine(engine, name) == [] and not local.folder(name).exists() and name not in local.names()
