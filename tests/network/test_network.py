"""The real network: it comes up, runs tasks, reports failures, stands beside others, and leaves nothing behind."""

import base64
import json
import socket
import time
from pathlib import Path

import pandas as pd
import pytest

from v6_workbench.errors import EngineError, NetworkError
from v6_workbench.network import local, server
from v6_workbench.simulation.mock import TRUSTING, MockNetwork

FINISHED = ("completed", "failed", "crashed", "not allowed", "non-existing Docker image", "killed by user")


def send(user, task_of: local.Network, function: str, /, image: str = "v6-toy", **arguments) -> int:
    task = user.task.create(
        collaboration=task_of.collaboration,
        organizations=[1],
        name=function,
        image=image,
        description="",
        input_={"method": function, "kwargs": arguments},
        databases=[{"label": task_of.label}],
    )
    return task["id"]


def ask(task_of: local.Network, function: str, /, **arguments) -> tuple[str, dict | None, list[dict]]:
    """The outcome of a task for the first organization."""
    return outcome(task_of, send(local.client(task_of), task_of, function, **arguments))


def outcome(task_of: local.Network, task: int) -> tuple[str, dict | None, list[dict]]:
    """Status, result and runs of a task and of its subtasks, with the last line of each one's log, once it is over."""
    user = local.client(task_of)
    deadline = time.monotonic() + 120
    while (status := user.request(f"task/{task}/status")["status"]) not in FINISHED:
        assert time.monotonic() < deadline, f"task {task} is still {status}"
        time.sleep(0.2)
    results = [row["result"] for row in user.result.from_task(task)["data"] if row["result"]]
    tasks = [task, *(subtask["id"] for subtask in server.subtasks(user, task))]
    runs = [
        {
            "task": k,
            "organization_id": run["organization"]["id"],
            "status": run["status"],
            "log": server.last_line(run.get("log") or ""),
        }
        for k in tasks
        for run in user.run.from_task(k)["data"]
    ]
    return status, json.loads(results[0]) if results else None, runs


def names_in_engine(engine, name: str) -> list[str]:
    things = [*engine.containers.list(all=True, ignore_removed=True), *engine.networks.list(), *engine.volumes.list()]
    return [thing.name for thing in things if f"-{name}-" in f"{thing.name}-"]


def test_all_nodes_are_online(three):
    rows = local.status(three.name)
    assert [row["role"] for row in rows] == ["server", "node", "node", "node"]
    assert all(row["online"] and row["container"] == "running" for row in rows)
    assert [row["organization"] for row in rows[1:]] == list(three.organizations)
    assert local.load(three.name) == three
    assert three.name in local.names()


def test_each_node_has_its_own_database_and_policy(three):
    status, result, runs = ask(three, "central", method="column_sum", column="x")
    assert status == "completed"
    assert {k: v["sum"] for k, v in result["answers"].items()} == {"1": 20.0, "2": 40.0, "3": 60.0}
    assert {k: v["limit"] for k, v in result["answers"].items()} == {"1": "a, b", "2": "ABCDEFGH", "3": ""}
    assert sorted(row["organization_id"] for row in runs) == [1, 1, 2, 3]


def test_a_round_takes_seconds(three):
    _, result, _ = ask(three, "central", rounds=3)
    print("seconds a round:", [round(seconds, 1) for seconds in result["seconds"]])
    assert sorted(result["answers"]) == ["1", "2", "3"]
    assert min(result["seconds"]) < 20


def test_a_crash_shows_its_last_line(three):
    _, result, runs = ask(three, "central", method="crash")
    assert result["answers"] == {}
    crashed = [row for row in runs if row["status"] == "crashed"]
    assert sorted(row["organization_id"] for row in crashed) == [1, 2, 3]
    assert all("this partial always fails" in row["log"] for row in crashed)


def test_an_image_that_is_not_there(three):
    _, result, runs = ask(three, "central", image="v6-no-such-image")
    assert result is None
    assert [row["status"] for row in runs] == ["non-existing Docker image"]


def test_files_are_for_this_user_alone(three):
    folder = local.folder(three.name)
    assert folder.stat().st_mode & 0o077 == 0
    secret = [folder / "network.json", folder / "server.yaml", folder / "entities.yaml", *folder.glob("*/node.yaml")]
    assert len(secret) == 6
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in secret)


def test_an_encrypted_network_beside_the_other(three, engine, databases, image_of, named):
    name = named("encrypted")
    second = local.up(databases, name=name, encrypted=True, algorithm_env=TRUSTING)
    try:
        assert second.port != three.port
        assert {second.name, three.name} <= {*local.names()}
        status, result, _ = ask(second, "central", method="column_sum", column="x")
        assert status == "completed"
        assert {k: v["sum"] for k, v in result["answers"].items()} == {"1": 20.0, "2": 40.0, "3": 60.0}

        user = local.client(second)
        stored = user.request("run", params={"task_id": 2})["data"]
        assert len(stored) == 3
        for run in stored:
            sent = [base64.b64decode(part) for part in run["input"].split("$")]
            assert not any(b"column_sum" in part for part in sent)

        settings = {"rounds": 1, "seed": 4, "lr": 0.01}
        task = send(user, second, "central", image=image_of("fedavg"), **settings)
        _, ours, _ = outcome(second, task)
        tables = {k: pd.read_csv(path) for k, path in enumerate(databases, start=1)}
        with MockNetwork("v6_fedavg", tables) as mock:
            assert ours["weights"] == mock.run(**settings)["weights"]

        send(user, second, "central", rounds=100)  # taken down in the middle of a task
        time.sleep(6)
        assert len(names_in_engine(engine, name)) > 10
    finally:
        local.down(name)
    assert names_in_engine(engine, name) == []
    assert not local.folder(name).exists()
    assert name not in local.names()
    local.down(name)  # again: nothing to do, no error
    assert all(row["online"] for row in local.status(three.name))
    assert ask(three, "central")[0] == "completed"


def test_the_operator_decides_which_image_and_what_is_told(engine, toy, databases, tmp_path, named):
    folder = tmp_path / "scans"
    folder.mkdir()
    policies = {"allowed_algorithms": ["^v6-fedavg"], "require_algorithm_pull": False}
    config = {"policies": policies, "share_algorithm_logs": False}
    name = named("strict")
    strict = local.up([folder], name=name, node_config=config, label="scans")
    try:
        status, result, runs = ask(strict, "central")
        assert result is None
        assert [row["status"] for row in runs] == ["not allowed"]
    finally:
        local.down(name)
    assert names_in_engine(engine, name) == []


@pytest.mark.parametrize(
    ("request_", "error", "says"),
    [
        ({"databases": []}, ValueError, "there are no databases; expected a file or folder for each node"),
        ({"databases": [Path("/no/such/file.csv")]}, ValueError, "/no/such/file.csv does not exist"),
        ({"name": "Not A Name"}, ValueError, "lowercase letters"),
        ({"label": "my-data"}, ValueError, "letters, digits and _"),
        ({"algorithm_env": [{}]}, ValueError, "1 entries for 3 nodes"),
    ],
)
def test_a_wrong_request_says_what_would_be_right(databases, request_, error, says):
    arguments = {"databases": databases, "name": "wrong"} | request_
    with pytest.raises(error, match=says) as caught:
        local.up(arguments.pop("databases"), **arguments)
    assert "\n" not in str(caught.value)
    assert not local.folder("wrong").exists()


def test_a_network_that_is_up_is_not_started_again(three, databases):
    with pytest.raises(NetworkError, match="exists already; remove it with `v6-federated network down --name"):
        local.up(databases, name=three.name)
    assert all(row["online"] for row in local.status(three.name))


def test_a_start_that_fails_leaves_nothing(engine, databases, named):
    name = named("failing")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(EngineError, match="did not start") as caught:
            local.up(databases, name=name, port=taken.getsockname()[1])
    assert "\n" not in str(caught.value)
    assert names_in_engine(engine, name) == []
    assert not local.folder(name).exists()


def test_a_node_that_stops_is_named_with_its_last_line(engine, databases, named):
    name = named("stopping")
    with pytest.raises(NetworkError, match=r"node-1-user stopped while starting the nodes: .+") as caught:
        local.up(databases[:1], name=name, node_config={"encryption": {"enabled": True, "private_key": ""}})
    assert "\n" not in str(caught.value)
    assert names_in_engine(engine, name) == []
    assert not local.folder(name).exists()


def test_an_unknown_network(engine):
    with pytest.raises(NetworkError, match="no network 'nobody' is running; "):
        local.load("nobody")
    local.down("nobody")
