"""``--node-env``: limits of all nodes or of one, at mock nodes, baselines and nodes of a network."""

import json

import pytest

from v6_federated.base.errors import SafeError
from v6_workbench.cli import node_environment

ROWS, ROUNDS = "V6_FEDERATED_MINIMUM_ROWS", "V6_FEDERATED_MAXIMUM_ROUNDS"
WINE = ["--data", "wine", "--nodes", 3, "--preprocess", "standardize", "--rounds", 2]


def test_a_node_has_what_all_have_and_its_own():
    found = node_environment.read([f"2:{ROWS}=30", f"{ROWS}=20", f"{ROUNDS}=5", f"12:{ROUNDS}=7"])
    assert found.of(1) == {ROWS: "20", ROUNDS: "5"}
    assert found.of(2) == {ROWS: "30", ROUNDS: "5"}
    assert found.of(12) == {ROWS: "20", ROUNDS: "7"}


@pytest.mark.parametrize(
    ("text", "every", "own"),
    [
        ("A=b", {"A": "b"}, {}),
        ("A=", {"A": ""}, {}),
        ("A=1=2", {"A": "1=2"}, {}),
        ("A=1:2", {"A": "1:2"}, {}),
        (" A = b ", {"A": "b"}, {}),
        ("3:A=http://x:1/?q=2", {}, {3: {"A": "http://x:1/?q=2"}}),
        ("03: A = b", {}, {3: {"A": "b"}}),
        ("URL=3:A=b", {"URL": "3:A=b"}, {}),
        ("x:A=b", {"x:A": "b"}, {}),
    ],
)
def test_what_is_written(text, every, own):
    found = node_environment.read([text])
    assert (found.every, found.own) == (every, own)


@pytest.mark.parametrize("text", ["A", "", "=b", "2:", "2:A", "2:=b", "2", ":", "2:\N{NO-BREAK SPACE}=b"])
def test_what_is_not_understood(text):
    with pytest.raises(SafeError) as error:
        node_environment.read([f"{ROWS}=20", text])
    assert f"--node-env {text!r} is not understood; expected NAME=VALUE, or K:NAME=VALUE for node K" in str(error.value)


def test_the_last_of_two_values_counts():
    found = node_environment.read([f"{ROWS}=20", f"{ROWS}=30", f"1:{ROWS}=40", f"1:{ROWS}=50"])
    assert found.of(1) == {ROWS: "50"} and found.of(2) == {ROWS: "30"}


def test_one_node_refuses_and_the_others_go_on(call, tmp_path):
    run = ["run", "fedavg", *WINE, "--node-env", f"2:{ROWS}=1000"]
    status, _, err = call(*run)
    assert status == 1 and "organization 2: " in err and "fewer than 1000 rows" in err
    enough = ["--set", "min_responses=0.5", "--set", "retries=0"]
    assert call(*run, *enough, "--out", tmp_path)[0] == 0
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["history"][-1]["participants"] == [1, 3]


def test_a_node_alone_has_its_own_limits_and_pooled_rows_have_none(call):
    compare = ["compare", "centralized:fedavg", "alone:fedavg", *WINE, "--node-env", f"2:{ROUNDS}=1"]
    status, _, err = call(*compare)
    assert status == 1 and err.splitlines()[-1].startswith("v6-federated: 2 alone:fedavg: ")
    assert "2 rounds are more than the 1" in err.splitlines()[-1]
    status, line, err = call("compare", "centralized:fedavg", *compare[3:])
    assert status == 0 and list(line) == ["centralized:fedavg"], err


def test_one_careful_node_makes_a_job_masked(call, tmp_path):
    run = ["run", "fedavg", *WINE, "--node-env", "3:V6_FEDERATED_PROFILE=careful", "--out", tmp_path]
    assert call(*run)[0] == 0
    assert json.loads((tmp_path / "result.json").read_text())["privacy"]["aggregation"] == "masked"
    status, _, err = call("run", "dynavg", *WINE, "--set", "delta=1", *run[-4:-2])
    [line] = err.splitlines()
    assert status == 2 and "which organizations [3] require: who communicates is decided by single answers" in line


UP = ["network", "up", "--data", "wine"]
MISTAKES = [
    (f"4:{ROWS}=20", f"--node-env '4:{ROWS}=20': there is no node 4; expected a node from 1 to 3"),
    (f"0:{ROWS}=20", f"--node-env '0:{ROWS}=20': there is no node 0; expected a node from 1 to 3"),
    (f"2:{ROWS}=many", f"--node-env: {ROWS} of this node must be a whole number"),
    (f"{ROWS}=many", f"--node-env: {ROWS} of this node must be a whole number"),
    ("2:V6_FEDERATED_AGGREGATION=hidden", "--node-env: V6_FEDERATED_AGGREGATION of this node must be "),
    (
        "2:V6_FEDERATED_PROFILE=trust",
        "--node-env: V6_FEDERATED_PROFILE=trust of this node must be trusting, careful or private",
    ),
    ("2:V6_FEDERATED_MINIMUM_ROW=20", "--node-env: V6_FEDERATED_MINIMUM_ROW is not"),
    ("2", "--node-env '2' is not understood; expected NAME=VALUE, or K:NAME=VALUE for node K"),
]


@pytest.mark.parametrize(("text", "says"), MISTAKES)
@pytest.mark.parametrize("command", [["run", "fedavg", *WINE], ["compare", "fedavg", *WINE], UP], ids=lambda c: c[0])
def test_a_mistake_is_one_line(command, text, says, refused, trained):
    refused(says, *command, "--node-env", text)
    assert not trained


@pytest.mark.parametrize("text", ["2:MINIMUM_ROWS=20", "MINIMUM_ROWS=20", "3:OPENBLAS_NUM_THREADS=1"])
def test_mock_nodes_read_limits_only(text, refused):
    name = text.partition("=")[0].rpartition(":")[2]
    refused(f"--node-env {name}: mock nodes read no such variable", "run", "fedavg", *WINE, "--node-env", text)
