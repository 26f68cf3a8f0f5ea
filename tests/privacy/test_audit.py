"""The audit log: what leaves, and what is refused, is a line in the hospital's own folder."""

import hashlib
import json

import pytest
from helpers import OPEN

from v6_federated.base.errors import SafeError
from v6_federated.base.vantage6_api import CollectResultsError, NodePermissionException
from v6_federated.messages import codec
from v6_federated.operator import audit as shown
from v6_federated.privacy import audit
from v6_federated.privacy.hospital import HospitalFolder
from v6_federated.privacy.policy import Policy
from v6_workbench.cli.main import main
from v6_workbench.simulation.mock import MockNetwork

ANSWER = {
    "organization_id": 3, "round": 1, "n": 20, "label": "ill", "features": ["age", "sex"], "loss": 0.5, "none": None,
    "arrays": codec.encode({"weights": [1.0, 2.0, 3.0]}), "evaluation": {"n": 10, "loss": 0.25},
}  # fmt: skip


@pytest.fixture
def logged(hospitals, tmp_path):
    """A job on mock nodes that have folders of their own; its result, and the entries of each node."""

    def call(package="v6_fedavg", environment=None, **settings):
        nodes = {**OPEN, **(environment or {})}
        with MockNetwork(
            package, hospitals, environment=nodes, hospital_folder=tmp_path, on_round=lambda row: None
        ) as network:
            result = network.run(**{"rounds": 2, **settings})
        return result, {k: [*audit.read(tmp_path / f"node-{k}" / audit.NAME)] for k in hospitals}

    return call


def test_the_bytes_in_the_logs_are_those_of_the_traffic(logged):
    result, logs = logged(preprocess=["standardize"])
    told = sum(row["bytes_up"] for row in [*result["history"], *result["traffic"].values()])
    assert told == sum(entry.bytes for entries in logs.values() for entry in entries) > 0


def test_a_line_says_who_what_when_and_under_which_limits(logged):
    result, logs = logged(environment={"V6_FEDERATED_PROFILE": "careful", "V6_FEDERATED_MINIMUM_ROWS": "5"})
    first, *_, last = logs[5]
    assert (first.function, first.round, first.method, first.participants) == ("describe", 0, "fedavg", 3)
    assert first.profile == "careful" and "MINIMUM_ROWS" in first.looser and "MINIMUM_ORGANIZATIONS" in first.looser
    assert last.function == "evaluate" and last.rows and last.bytes and len(last.sha256) == 64
    assert len({entry.job for entry in logs[5]}) == 1
    update = next(entry for entry in logs[5] if entry.function == "client_update")
    assert update.left["weights"] == ["float32", 5]


def test_the_digest_is_of_the_bytes_that_vantage6_sends():
    size, sha256 = audit.sent(ANSWER)
    data = json.dumps(ANSWER).encode()  # as vantage6.common.serialization.serialize
    assert (size, sha256) == (len(data), hashlib.sha256(data).hexdigest()) and size == codec.size(ANSWER)


def test_no_value_of_an_answer_is_in_the_log():
    assert audit.contents(ANSWER) == {
        "n": "int", "label": "text of 3", "features": "list of 2", "loss": "float", "none": "nothing",
        "weights": ["float32", 3], "evaluation": {"n": "int", "loss": "float"},
    }  # fmt: skip


def test_a_refusal_is_a_line_with_its_reason(hospitals, tmp_path):
    environment = {**OPEN, "V6_FEDERATED_DISALLOWED_COLUMNS": "x1"}
    with (
        MockNetwork("v6_fedavg", hospitals, environment=environment, hospital_folder=tmp_path) as network,
        pytest.raises(CollectResultsError, match="x1"),
    ):
        network.run(rounds=1)
    [entry] = {e.refused for e in audit.read(tmp_path / "node-3" / audit.NAME)}
    assert entry.startswith("the column(s) x1 may not be used at this node")


def test_without_a_log_nothing_leaves(tmp_path):
    (tmp_path / audit.NAME).mkdir()
    line = audit.entry(Policy.of("careful"), 1, "describe", 0, {})
    with pytest.raises(NodePermissionException, match="audit log of this node cannot be written .* nothing leaves"):
        audit.write(HospitalFolder(tmp_path, own=True), line)


def test_a_log_that_is_a_link_is_not_followed(tmp_path):
    (tmp_path / "elsewhere").touch()
    (tmp_path / audit.NAME).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NodePermissionException, match="audit log"):
        audit.write(HospitalFolder(tmp_path, own=True), audit.entry(Policy.of("careful"), 1, "describe", 0, {}))
    assert (tmp_path / "elsewhere").read_text() == ""


def test_what_a_task_says_cannot_command_a_terminal():
    entry = audit.entry(Policy.of("careful"), 1, "describe", "x", {"key": "\x1b[2J" + "k" * 999, "participants": 7})
    assert entry.job == "[2J" + "k" * 296 and entry.round is None and entry.participants is None


def test_the_operator_sees_what_left_by_job(logged, tmp_path, capsys):
    _, logs = logged()
    assert main(["audit", str(tmp_path / "node-3")]) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    numbers = json.loads(last)
    assert numbers["jobs"] == 1 and numbers["answers"] == len(logs[3]) and numbers["refused"] == 0
    assert any("client_update: 1 answer(s)" in line and "weights (5,) float32" in line for line in lines)
    assert main(["audit", str(tmp_path / "node-3"), "--job", logs[3][0].job[:6]]) == 0
    shown_lines = capsys.readouterr().out
    assert all(entry.sha256 in shown_lines for entry in logs[3])


def test_an_output_that_vantage6_keeps_can_be_read(tmp_path, capsys):
    file = tmp_path / "output"
    file.write_text(json.dumps(ANSWER))
    assert main(["audit", str(file)]) == 0
    out = capsys.readouterr().out
    assert "organization 3 about 20 rows" in out and audit.sent(ANSWER)[1] in out and "weights (3,) float32" in out


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("nothing", None, "there is no file"),
        ("audit.jsonl", '{"time": "now"}\n', "line 1 of audit.jsonl is not an entry"),
        ("audit.jsonl", "[" * 100_000, "line 1 of audit.jsonl is not an entry"),
        ("audit.jsonl", "\x00\x01", "line 1 of audit.jsonl is not an entry"),
        ("output", "[" * 100_000, "output is neither an audit log nor the output of a task"),
        ("output", "{}", "output is neither an audit log nor the output of a task"),
        ("output", '{"organization_id": 1, "n": 3, "arrays": {"dtype": 1, "shapes": 2, "data": 3}}', "is neither"),
    ],
)
def test_what_is_no_log_is_refused_in_one_line(tmp_path, capsys, name, content, says):
    if content is not None:
        (tmp_path / name).write_text(content)
    assert main(["audit", str(tmp_path / name)]) == 2
    err = capsys.readouterr().err
    assert says in err and len(err.splitlines()) == 1


def test_a_job_that_is_not_in_the_log(logged, tmp_path):
    logged()
    with pytest.raises(SafeError, match="no job .* has a key that begins with zz; leave --job out"):
        shown.shown(tmp_path / "node-3", "zz")
