"""A task's life on a real network of three hospitals: sent, left, found again, watched, cancelled, resumed, and fetched
after the server was restarted."""

import json
import re
import shlex
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests
from vantage6.common.task_status import has_task_finished

from v6_workbench.cli.main import main
from v6_workbench.network import docker_engine, local, server

ROUNDS = 8
TRAINING = ["--rounds", str(ROUNDS), "--seed", "3", "--set", "batch_size=7"]
PROGRAM = [sys.executable, "-m", "v6_workbench.cli.main"]


@pytest.fixture(scope="module")
def network(engine, state, named, image_of):
    name = named("tasks")
    image_of("fedavg")
    try:
        up = ["network", "up", "--name", name, "--data", "breast-cancer", "--nodes", "3", "--profile", "trusting"]
        assert main(up) == 0
        yield name
    finally:
        local.down(name)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The result of the same job on mock nodes."""
    out = tmp_path_factory.mktemp("undisturbed")
    assert main(["run", "fedavg", "--data", "breast-cancer", "--nodes", "3", *TRAINING, "--out", str(out)]) == 0
    return read(out)


def read(out: Path) -> dict:
    return json.loads((out / "result.json").read_text())


@contextmanager
def sent(network: str, out: Path, *options: str):
    """``submit`` in another process, as soon as a node has begun to train in round 3, and the id of its task."""
    command = ["submit", "fedavg", "--network", network, *TRAINING, *options, "--out", str(out)]
    with subprocess.Popen(
        [*PROGRAM, *command],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a test run in the background ignores it
    ) as process:
        try:
            found = None
            for line in process.stderr:
                if found := re.match(r"task (\d+) was sent to network", line):
                    break
            assert found, "submit ended before it had sent the task"
            task, user = int(found[1]), local.client(local.load(network))
            begun, deadline = "fedavg client_update, round 3", time.monotonic() + 300  # a busy machine
            while not any(row["name"].startswith(f"{begun},") for row in server.subtasks(user, task)):
                assert process.poll() is None and time.monotonic() < deadline, "round 3 does not begin"
                time.sleep(0.2)
            yield process, task
        finally:
            if process.poll() is None:
                process.kill()


def algorithms(engine, network: str) -> list[str]:
    """Names of the containers of algorithms at the nodes of a network."""
    nodes = {docker_engine.node_name(network, number) for number in (1, 2, 3)}
    every = engine.containers.list(filters={"label": "vantage6-type=algorithm"}, ignore_removed=True)
    return [container.name for container in every if container.labels.get("node") in nodes]


def await_end_of_algorithms(engine, network: str, seconds: float) -> None:
    """Wait until no node of a network runs a container of an algorithm."""
    deadline = time.monotonic() + seconds
    while left := algorithms(engine, network):
        assert time.monotonic() < deadline, f"{left} still run"
        time.sleep(0.5)


def restart_server(engine, network: str) -> None:
    """Restart the server, or start it, and wait until it answers."""
    engine.containers.get(docker_engine.server_name(network)).restart(timeout=2)
    found, deadline = local.load(network), time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            if requests.get(f"{found.url}:{found.port}{found.api_path}/version", timeout=2).ok:
                return
        except requests.exceptions.RequestException:
            pass
        time.sleep(0.5)
    raise AssertionError("the server does not come back")


def test_a_task_that_was_left_is_watched_and_fetched(engine, network, call, tmp_path, undisturbed):
    with sent(network, tmp_path / "first") as (process, task):
        process.send_signal(signal.SIGINT)
        _, err = process.communicate("n\n", timeout=60)
    assert process.returncode == 130 and "Traceback" not in err
    fetch = f"v6-federated fetch {task} --network {network} --out {tmp_path / 'first'}"
    assert f"task {task} goes on; this brings its result:\n{fetch}\n" in err

    _, listed, _ = call("tasks")
    newest = listed["tasks"][0]
    assert (newest["task"], newest["method"], newest["user"], newest["rounds"]) == (
        task,
        "fedavg",
        "researcher",
        ROUNDS,
    )
    assert newest["status"] == "active" and 2 <= newest["finished"] < ROUNDS and newest["ended"] is None
    code, seen, err = call("status", task)
    assert code == 0 and seen["status"] == "active" and newest["finished"] <= seen["finished"] < ROUNDS
    code, _, err = call("fetch", task, "--out", tmp_path / "too-early")
    assert code == 2 and f"task {task} is still running (active, " in err
    child = server.subtasks(local.client(local.load(network)), task)[-1]["id"]
    code, _, err = call("status", child)
    assert code == 2 and f"task {child} is a step of task {task}; use {task}" in err

    watched = tmp_path / "watched"
    command = [*PROGRAM, "watch", str(task), "--network", network, "--out", str(watched)]
    other = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert other.returncode == 0, other.stderr
    assert f"fedavg: round {ROUNDS} of {ROUNDS} accuracy" in other.stderr
    assert read(watched)["weights"] == undisturbed["weights"]

    restart_server(engine, network)
    assert main(shlex.split(fetch)[1:]) == 0
    assert (tmp_path / "first" / "result.json").read_bytes() == (watched / "result.json").read_bytes()
    assert {file.name for file in watched.iterdir()} == {file.name for file in (tmp_path / "first").iterdir()}
    kept = read(watched)
    assert kept["experiment"]["organizations"] == {str(k): f"hospital_{k}" for k in (1, 2, 3)}
    assert kept["image"] == {"name": "v6-fedavg", "digest": engine.images.get("v6-fedavg").id}
    assert kept["started"] < kept["ended"]
    [ended] = [row for row in call("tasks")[1]["tasks"] if row["task"] == task]
    assert (ended["status"], ended["finished"]) == ("completed", ROUNDS) and ended["ended"]


def test_a_task_is_cancelled_from_elsewhere_and_resumed(engine, network, call, tmp_path, undisturbed):
    wait_until_online(network)  # after a restart of the server nodes come back one by one
    with sent(network, tmp_path / "never") as (process, task):
        code, line, err = call("cancel", task)
        _, said = process.communicate(timeout=60)
    assert code == 0 and line["cancelled"] and 2 <= line["rounds"] < ROUNDS
    assert process.returncode == 1 and f"v6-federated: task {task}: organization 1: the task was stopped" in said
    assert not (tmp_path / "never" / "result.json").exists()

    await_end_of_algorithms(engine, network, 30)
    user = local.client(local.load(network))
    calls = server.subtasks(user, task)
    time.sleep(3)
    assert len(server.subtasks(user, task)) == len(calls) and not algorithms(engine, network)
    assert all(has_task_finished(row["status"]) for row in server.subtasks(user, task))
    assert call("status", task)[1]["status"] == "killed by user"
    code, _, again = call("cancel", task)
    assert code == 2 and "has ended already (killed by user); there is nothing to stop" in again

    [resume] = re.findall(r"to go on from there: v6-federated (.+)", err)
    out = tmp_path / "resumed"
    assert main([*shlex.split(resume), "--out", str(out)]) == 0
    assert read(out)["weights"] == undisturbed["weights"]
    assert [row["round"] for row in read(out)["history"]] == [*range(1, ROUNDS + 1)]


@pytest.mark.long  # it waits for limits of time
def test_a_server_that_is_gone_ends_submit_and_central_which_goes_on_later(
    engine, network, call, tmp_path, undisturbed
):
    wait_until_online(network)
    out = tmp_path / "gone"
    with sent(network, out, "--server-timeout", "5", "--set", "server_timeout=15") as (process, task):
        engine.containers.get(docker_engine.server_name(network)).kill()
        _, err = process.communicate(timeout=60)
    assert process.returncode == 1 and "Traceback" not in err
    assert f"has not answered for 5 s (--server-timeout); task {task} may go on at the nodes" in err
    fetch = f"v6-federated fetch {task} --network {network} --out {out}"
    assert err.endswith(f"Once the server answers again, this brings its result: {fetch}\n")
    await_end_of_algorithms(engine, network, 60)  # central too ends by itself

    restart_server(engine, network)
    code, _, err = call("watch", task, "--out", tmp_path / "watched")
    assert code == 0, err
    assert main(shlex.split(fetch)[1:]) == 0
    assert read(out)["weights"] == undisturbed["weights"]
    asked = [row["name"] for row in server.subtasks(local.client(local.load(network)), task)]
    assert asked.count("fedavg client_update, round 2, organization 1") == 1, "central goes on from its checkpoint"


def test_a_task_of_another_program(network, toy, call, tmp_path):
    user = local.client(local.load(network))
    task = user.task.create(
        collaboration=1,
        organizations=[1],
        name="toy",
        image=toy,
        description="",
        input_={"method": "central", "kwargs": {}},
        databases=[{"label": "default"}],
    )["id"]
    for command in ("status", "watch", "cancel"):
        code, _, err = call(command, task)
        assert code == 2 and f"task {task} (toy) is not one of v6-federated: its image is v6-toy" in err
    assert task not in [row["task"] for row in call("tasks")[1]["tasks"]]
    code, _, err = call("fetch", 10**6, "--out", tmp_path)
    assert code == 2 and f"there is no task {10**6}; " in err


def wait_until_online(network: str) -> None:
    found, deadline = local.load(network), time.monotonic() + 120
    while not all(row["online"] for row in local.status(found.name)):
        assert time.monotonic() < deadline, "a node does not come online again"
        time.sleep(1)
