"""What a hospital refuses, and what fails, as the researcher sees it. No message holds a value of a row."""

import re
import signal
import subprocess
import sys
import time

import pandas as pd
import pytest
from four_hospitals import STRICT, THREE, TRAINING, complaint, selected, three

from v6_workbench.cli.main import main
from v6_workbench.network import docker_engine, images, local, server

# what is asked, and what the strict hospital says
REFUSED = {
    "rows": ([], "fewer than 1000 rows"),
    "lower": (["--set", "minimum_rows=20"], "asks for minimum_rows=20, but this node requires 1000 rows"),
    "column": (["--features", "a,b,FEDAVGXX"], "column(s) FEDAVGXX may not be used"),
    "rounds": (["--rounds", "9"], "9 rounds are more than the 8"),
}
FAILED = {
    "text": (["--features", "a,name"], "the column(s) name hold values that are not numbers"),
    "rare": (["--label", "rare"], "labels that are not among the 2 classes of the job"),
    "few": (["--set", "organizations=[1,2]"], "only 2 organization(s) take part, but this node requires 3"),
    "no-image": (["--image", "v6-no-such-image"], "organization 1: its node does not find the image v6-no-such-image"),
    "other-method": (["--image", "v6-toy", "--rounds", "1"], "the image v6-toy does not hold fedavg; check --image"),
    "no-algorithm": (
        ["--image", images.INFRASTRUCTURE],
        "ended without a result; expected the image of a vantage6 algorithm",
    ),
}


@pytest.fixture(scope="module")
def refusals(at_once, toy, request):
    """Jobs that fail, all at once."""
    refused, failed = (
        selected(request, f"test_{name}") for name in ("the_strict_hospital_refuses", "a_failed_task_is_one_line")
    )
    asked = {name: [*STRICT, *REFUSED[name][0]] for name in refused}
    asked |= {name: [*three(FAILED[name][0]), *FAILED[name][0]] for name in failed}
    return {name: at_once("fedavg", *arguments) for name, arguments in asked.items()}


@pytest.mark.parametrize("name", REFUSED)
def test_the_strict_hospital_refuses(refusals, name):
    process = refusals[name].result()
    line = complaint(process.stderr)
    assert process.returncode == 1, process.stderr
    assert "organization 4: " in line and REFUSED[name][1] in line and "V6_FEDERATED_" in line
    assert "organization 1" not in line and "organization 2" not in line


@pytest.mark.parametrize("name", FAILED)
def test_a_failed_task_is_one_line(refusals, name):
    process = refusals[name].result()
    assert process.returncode == 1, process.stderr
    assert FAILED[name][1] in complaint(process.stderr)


@pytest.mark.parametrize(
    ("method", "arguments", "says"),
    [
        (
            "fedavg",
            ["--set", "organizations=[1,2,9]"],
            "organizations 9 have no node in the collaboration; expected some of 1 (",
        ),
        ("fedavg", ["--set", "speed=3"], "unknown setting 'speed'; expected one of "),
        ("fedavg", ["--model", "vgg"], "unknown model 'vgg'; expected one of "),
        ("nothing", [], "unknown method 'nothing'; expected one of "),
    ],
    ids=["organization", "setting", "model", "method"],
)
def test_a_wrong_request_is_one_line_and_no_task(hospitals, submit, method, arguments, says):
    status, _, err = submit(method, *three(arguments), *arguments)
    assert status == 2, err
    assert says in complaint(err)
    assert "was sent to" not in err


def test_a_database_that_no_node_has(engine, hospitals, submit):
    tell_labels(engine, hospitals)
    status, _, err = submit("fedavg", *THREE, "--database", "nothing")
    assert status == 2, err
    assert "its node has no database 'nothing'; use --database default" in complaint(err)
    assert "was sent to" not in err


def tell_labels(engine, hospitals: str) -> None:
    """Until every node has told the server its labels; one that does not is started again.

    A node whose connection breaks and that is back before the server notices is forgotten: when the server ends the old
    connection, a minute later, it deletes what was told by the new one.
    """
    found, deadline = local.load(hospitals), time.monotonic() + 90
    user = local.client(found)

    def silent() -> list[int]:
        nodes = server.nodes(user, found.collaboration)
        return sorted(n["organization"]["id"] for n in nodes if n["status"] != "online" or not n["config"])

    for number in silent():
        name = docker_engine.container_name(docker_engine.node_name(hospitals, number))
        engine.containers.get(name).restart(timeout=5)
    while who := silent():
        assert time.monotonic() < deadline, f"nodes {who} do not tell their labels"
        time.sleep(0.5)


def test_a_database_that_nodes_do_not_tell(hospitals, submit):
    """With ``share_config: false`` only the program at the node can say that a label is wrong."""
    found = local.load(hospitals)
    user = local.client(found)
    task = user.task.create(
        collaboration=1,
        organizations=[1],
        name="label",
        image="v6-fedavg",
        description="",
        input_={"method": "central", "kwargs": {"rounds": 1, "organizations": [1, 2, 3]}},
        databases=[{"label": "no"}],
    )["id"]
    while user.request(f"task/{task}/status")["status"] in ("pending", "initializing", "active"):
        time.sleep(0.5)
    central = server.one_run(user, task)
    said = "organizations 1, 2, 3: this node has no database 'no'; use a label of its configuration"
    assert said in central["log"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"--username": "nobody"}, "does not accept the user nobody with this password"),
        ({"--collaboration": "7"}, "cannot see collaboration 7"),
        ({"--server": "http://127.0.0.1:9/api"}, "no vantage6 server answers at http://127.0.0.1:9/api"),
        (
            {"--server": "server.org"},
            "--server server.org is not an address; expected for example https://server.org:443/api",
        ),
    ],
    ids=["user", "collaboration", "server", "address"],
)
def test_another_server(hospitals, capsys, monkeypatch, change, says):
    found = local.load(hospitals)
    monkeypatch.setenv("V6_FEDERATED_PASSWORD", found.password)
    there = {
        "--server": f"{found.url}:{found.port}/api",
        "--username": found.username,
        "--collaboration": "1",
        "--organization": "1",
    }
    options = [text for pair in (there | change).items() for text in pair]
    assert main(["submit", "fedavg", *TRAINING, *options]) in (1, 2)
    out, err = capsys.readouterr()
    assert says in complaint(err)
    assert out == ""


@pytest.mark.parametrize(("answer", "status"), [("y", "killed by user"), ("n", "active")])
def test_control_c_asks(hospitals, image_of, answer, status):
    image_of("fedavg")
    command = ["submit", "fedavg", "--network", hospitals, *TRAINING, *THREE, "--rounds", "50"]
    with subprocess.Popen(
        [sys.executable, "-m", "v6_workbench.cli.main", *command],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a test run in the background ignores it
    ) as process:
        for line in process.stderr:
            if found := re.match(r"task (\d+) was sent to", line):
                break
        user, task = local.client(local.load(hospitals)), found[1]
        while user.request(f"task/{task}/status")["status"] != "active":
            time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(answer + "\n", timeout=30)
    assert f"Stop task {task} at the nodes too? [y/N]" in err
    assert process.returncode == 130 and out == "" and "Traceback" not in err
    time.sleep(2)
    try:
        assert user.request(f"task/{task}/status")["status"] == status
    finally:
        user.task.kill(int(task))


def test_no_value_of_a_row_is_told(hospitals, table, engine):
    """Runs last of those on this network: what all of the above has left in logs and results."""
    user = local.client(local.load(hospitals))
    tasks = user.request("task", params={"per_page": 1000})["data"]
    if len(tasks) < 20:
        pytest.skip("looks at what the tests above have left, and they did not run")
    logs = [run["log"] or "" for task in tasks for run in user.request("run", params={"task_id": task["id"]})["data"]]
    for container in engine.containers.list(all=True, ignore_removed=True):
        if hospitals in container.name:
            logs.append(container.logs().decode(errors="replace"))
    told = "\n".join(logs)
    assert "organization 4: " in told
    rows = pd.read_csv(table)
    numbers = [str(abs(value))[:9] for value in rows[["a", "b", "c", "FEDAVGXX"]].to_numpy().ravel()]
    leaked = [text for text in [*numbers, *rows["name"], "unheard-of"] if text in told]
    assert leaked == []
