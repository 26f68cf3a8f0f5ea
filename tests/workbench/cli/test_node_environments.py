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
        ("_a1=b", {"_a1": "b"}, {}),
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


@pytest.mark.parametrize(
    ("text", "who"),
    [
        ("a:A=b", "a"),
        ("-1:A=b", "-1"),
        ("2,3:A=b", "2,3"),
        ("1-2:A=b", "1-2"),
        (":A=b", ""),
        ("1:2:A=b", "1:2"),
        (f"{'9' * 5000}:A=b", "9" * 5000),
        ("\N{SUPERSCRIPT TWO}:A=b", "\N{SUPERSCRIPT TWO}"),
    ],
    ids=lambda text: text[:10],
)
def test_what_is_not_the_number_of_a_node(text, who):
    with pytest.raises(SafeError) as error:
        node_environment.read([text])
    said = f"--node-env {text!r}: {who!r} is not the number of a node; expected NAME=VALUE, or K:NAME=VALUE for node K"
    assert str(error.value).startswith(said) and "once for each such node" in str(error.value)


@pytest.mark.parametrize("name", ["A B", "1A", "A-B", "\N{LATIN SMALL LETTER E WITH ACUTE}", "2;A"])
def test_what_is_not_the_name_of_a_variable(name):
    with pytest.raises(SafeError, match=f"'{name}' is not the name of a variable, which has letters, digits and _"):
        node_environment.read([f"2:{name}=b"])


@pytest.mark.parametrize(
    ("texts", "which"),
    [([f"{ROWS}=20", f"{ROWS}=30"], ROWS), ([f"1:{ROWS}=40", f"{ROWS}=20", f"01:{ROWS}=40"], f"1:{ROWS}")],
)
def test_a_variable_is_given_once(texts, which):
    with pytest.raises(SafeError, match=f"^--node-env {which} is given twice; remove one$"):
        node_environment.read(texts)


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
WHOLE = "must be a whole number of at most 15 digits\n"
MISTAKES = [
    (
        f"4:{ROWS}=20",
        f"--node-env '4:{ROWS}=20': there is no node 4; expected a node from 1 to 3, or {ROWS}=20 for all nodes",
    ),
    (f"0:{ROWS}=20", f"--node-env '0:{ROWS}=20': there is no node 0; expected a node from 1 to 3"),
    (f"2:{ROWS}=many", f"--node-env, node 2: {ROWS} {WHOLE}"),
    (f"{ROWS}=many", f"--node-env: {ROWS} {WHOLE}"),
    (
        "2:V6_FEDERATED_AGGREGATION=hidden",
        "--node-env, node 2: V6_FEDERATED_AGGREGATION must be plain, masked, auto or pinned\n",
    ),
    (
        "2:V6_FEDERATED_PROFILE=trust",
        "--node-env, node 2: V6_FEDERATED_PROFILE=trust must be trusting, careful or private\n",
    ),
    (
        "V6_FEDERATED_PROFIL=careful",
        "--node-env: V6_FEDERATED_PROFIL is not a setting of a node; did you mean V6_FEDERATED_PROFILE?\n",
    ),
    ("2:V6_FEDERATED_MINIMUM_ROW=20", "--node-env, node 2: V6_FEDERATED_MINIMUM_ROW is not"),
    ("V6_FEDERATED_THREADS=0", "--node-env: V6_FEDERATED_THREADS must be a whole number from 1\n"),
    ("2", "--node-env '2' is not understood; expected NAME=VALUE, or K:NAME=VALUE for node K"),
    ("a:b=c", "--node-env 'a:b=c': 'a' is not the number of a node; expected NAME=VALUE, or K:NAME=VALUE for node K"),
    ("", "--node-env '' is not understood; expected NAME=VALUE, or K:NAME=VALUE for node K"),
]


@pytest.mark.parametrize(("text", "says"), MISTAKES)
@pytest.mark.parametrize("command", [["run", "fedavg", *WINE], ["compare", "fedavg", *WINE], UP], ids=lambda c: c[0])
def test_a_mistake_is_one_line(command, text, says, refused, trained):
    """The line is about the option, and does not send the reader to the configuration of a node."""
    line = refused(says.rstrip("\n"), *command, "--node-env", text)
    assert not says.endswith("\n") or line.endswith(says.rstrip("\n"))
    assert not trained


@pytest.mark.parametrize(
    ("name", "means"),
    [
        ("MINIMUM_ROWS", f"did you mean {ROWS}?"),
        ("profile", "did you mean V6_FEDERATED_PROFILE?"),
        ("v6_federated_profile", "did you mean V6_FEDERATED_PROFILE?"),
        ("V6_FEDERATE_MINIMUM_ROWS", f"did you mean {ROWS}?"),
        ("OPENBLAS_NUM_THREADS", "expected NAME=VALUE, or K:NAME=VALUE for node K, for example 2:V6_FED"),
    ],
)
def test_a_name_that_mock_nodes_do_not_read(name, means, refused):
    refused(
        f"--node-env {name}: mock nodes read no such variable; {means}",
        "run",
        "fedavg",
        *WINE,
        "--node-env",
        f"2:{name}=5",
    )
