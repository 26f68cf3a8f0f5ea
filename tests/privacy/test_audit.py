"""The audit log: what leaves, and what is refused, is a line in the hospital's own folder."""

import hashlib
import json
import os
from dataclasses import replace

import numpy as np
import pytest
from helpers import OPEN, crafted, four, table

from v6_federated.base.errors import SafeError
from v6_federated.base.logs import last_words, said_no
from v6_federated.base.vantage6_api import CollectResultsError, NodePermissionException
from v6_federated.messages import codec, serialization
from v6_federated.operator import show_audit as shown
from v6_federated.rules import audit
from v6_federated.rules.hospital import HospitalFolder
from v6_federated.rules.policy import Policy
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
    result, logs = logged(
        environment={
            "V6_FEDERATED_PROFILE": "careful",
            "V6_FEDERATED_AGGREGATION": "plain",
            "V6_FEDERATED_MINIMUM_ROWS": "5",
        }
    )
    first, *_, last = logs[5]
    assert (first.function, first.round, first.method, first.participants) == ("describe", 0, "fedavg", 3)
    assert first.profile == "careful" and "MINIMUM_ROWS" in first.looser and "MINIMUM_ORGANIZATIONS" in first.looser
    assert last.function == "evaluate" and last.rows and last.bytes and len(last.sha256) == 64
    assert len({entry.job for entry in logs[5]}) == 1
    assert (last.rows, last.evaluated) == (first.rows, 10) and first.evaluated is None
    update = next(entry for entry in logs[5] if entry.function == "client_update")
    assert update.left["weights"] == ["float32", 5]


def test_the_digest_is_of_the_bytes_that_vantage6_sends():
    size, sha256 = audit.sent(ANSWER)
    data = json.dumps(ANSWER).encode()  # as vantage6.common.serialization.serialize
    assert (size, sha256) == (len(data), hashlib.sha256(data).hexdigest()) and size == serialization.size(ANSWER)


def test_no_value_of_an_answer_is_in_the_log():
    assert audit.contents(ANSWER) == {
        "n": "int", "label": "text of 3", "features": "list of 2", "loss": "float", "none": "nothing",
        "weights": ["float32", 3], "evaluation": {"n": "int", "loss": "float"},
    }  # fmt: skip


def test_both_parts_of_a_masked_answer_are_in_the_log():
    words = {"y32": np.ones(5, np.uint32), "y64": np.ones(2, np.uint64)}
    answer = {"organization_id": 1, "round": 1, "T": 64 * "0", **{k: codec.encode_words(y) for k, y in words.items()}}
    assert audit.contents(answer) == {"T": "text of 64", "y32": ["uint32", 5], "y64": ["uint64", 2]}


@pytest.mark.parametrize("steps", [["onehot"], ["impute:most_frequent", "onehot"]])
def test_no_level_of_a_category_is_in_the_log(tmp_path, steps):
    """A level is a value of rows, and where levels are counted it is a name in the answer."""
    rows = {k: table(40, seed=k).assign(x1=["rosemary", "thyme"] * 20) for k in (1, 2, 3)}
    with MockNetwork("v6_fedavg", rows, environment=OPEN, hospital_folder=tmp_path, on_round=str) as network:
        network.run(rounds=1, preprocess=steps)
    log = (tmp_path / "node-1" / audit.NAME).read_text()
    assert '"levels": {"x1": "list of 2"}' in log and "rosemary" not in log


def test_the_values_of_lists_in_lists_are_counted():
    answer = {"confusion": [[1, 2], [3, 4]], "bands": [[0] * 127] * 2, "empty": [], "named": [{"a": [1, 2]}, {}]}
    assert audit.contents(answer) == {
        "confusion": "list of 4", "bands": "list of 254", "empty": "list of 0", "named": "list of 2"
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


@pytest.mark.parametrize("limit", [{}, {"V6_FEDERATED_MINIMUM_ORGANIZATIONS": "9"}])
def test_a_node_without_a_log_refuses_in_its_own_name(hospitals, tmp_path, limit):
    """Such a refusal, too, begins with the organization: central does not ask again."""
    (tmp_path / audit.NAME).mkdir()
    environment = {**OPEN, **limit, "HOSPITAL_DATABASE_URI": str(tmp_path)}
    status, log = crafted(hospitals, "describe", environment=environment, raw=False)
    assert status == "crashed" and said_no(last_words(log)) and "the audit log of this node cannot be written" in log


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
    assert any("client_update: 1 answer(s)" in line and "weights (5 numbers)" in line for line in lines)
    assert main(["audit", str(tmp_path / "node-3"), "--job", logs[3][0].job[:6]]) == 0
    shown_lines = capsys.readouterr().out
    assert all(entry.sha256 in shown_lines for entry in logs[3])


def test_an_output_that_vantage6_keeps_can_be_read(tmp_path, capsys):
    file = tmp_path / "output"
    file.write_text(json.dumps(ANSWER))
    assert main(["audit", str(file)]) == 0
    out = capsys.readouterr().out
    assert "organization 3 about 20 rows" in out and audit.sent(ANSWER)[1] in out and "weights (3 numbers)" in out


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("nothing", None, "there is no file"),
        ("audit.jsonl", '{"time": "now"}\n', "no line of audit.jsonl is an entry"),
        ("audit.jsonl", "[" * 100_000, "no line of audit.jsonl is an entry"),
        ("audit.jsonl", "\x00\x01", "no line of audit.jsonl is an entry"),
        ("output", "[" * 100_000, "output is neither an audit log nor the output of a partial"),
        ("output", '{"organization_id": "a", "n": {}}', "output is neither an audit log nor the output of a partial"),
        ("output", "{}", "output is neither an audit log nor the output of a partial"),
        ("output", '{"organization_id": 1, "n": 3, "arrays": {"dtype": 1, "shapes": 2, "data": 3}}', "is neither"),
    ],
)
def test_what_is_no_log_is_refused_in_one_line(tmp_path, capsys, name, content, says):
    if content is not None:
        (tmp_path / name).write_text(content)
    assert main(["audit", str(tmp_path / name)]) == 2
    err = capsys.readouterr().err
    assert says in err and len(err.splitlines()) == 1


def test_a_folder_of_several_nodes_is_refused_with_the_name_of_one(tmp_path):
    (tmp_path / "node-1").mkdir()
    line(tmp_path / "node-1")
    with pytest.raises(SafeError, match=f"name the folder of one node, such as {tmp_path / 'node-1'}$"):
        shown.shown(tmp_path)


def test_a_job_that_is_not_in_the_log(logged, tmp_path):
    logged()
    with pytest.raises(SafeError, match="no job .* has a key that begins with zz; leave --job out"):
        shown.shown(tmp_path / "node-3", "zz")


def line(folder, **changes):
    """Write a line to the log of a folder."""
    entry = audit.entry(Policy.of("careful"), 1, "describe", 0, {"key": "a" * 32, "method": "fedavg"})
    audit.write(HospitalFolder(folder, own=True), replace(entry, **{"rows": 20, **changes}))


def test_half_a_line_hides_no_other(tmp_path, capsys):
    line(tmp_path)
    with (tmp_path / audit.NAME).open("a") as stream:
        stream.write('{"time": "2026-')  # a power cut
    line(tmp_path, bytes=7)
    assert [entry and entry.bytes for entry in audit.read(tmp_path / audit.NAME)] == [0, None, 7]
    assert main(["audit", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "2 answer(s) of 7 bytes left" in out and "1 line(s) cannot be read: 2." in out


@pytest.mark.parametrize("broken", [b"\xff\xfe\n", b"[" * 3_000_000 + b"\n", b"\n", b'{"time": 3}\n'], ids=range(4))
def test_a_broken_line_is_counted_and_the_rest_shown(tmp_path, broken):
    (tmp_path / audit.NAME).write_bytes(broken)
    line(tmp_path)
    lines, numbers = shown.shown(tmp_path)
    assert numbers["answers"] == 1 and numbers["broken"] == 1 and "1 line(s) cannot be read: 1." in lines[1]


def test_on_a_full_disk_no_half_line_stays(tmp_path, monkeypatch):
    line(tmp_path)
    before = (tmp_path / audit.NAME).read_bytes()
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:10]))
    with pytest.raises(NodePermissionException, match="No space left on device"):
        line(tmp_path)
    assert (tmp_path / audit.NAME).read_bytes() == before


def test_a_reason_can_neither_command_a_terminal_nor_fill_a_disk(hospitals, tmp_path, capsys):
    names = ["\x1b[2J\nline" + "x" * 100_000]
    with (
        MockNetwork("v6_fedavg", hospitals, environment=OPEN, hospital_folder=tmp_path) as network,
        pytest.raises(CollectResultsError),
    ):
        network.run(rounds=1, features=names)
    [reason] = {entry.refused for entry in audit.read(tmp_path / "node-3" / audit.NAME)}
    assert reason.startswith("no column [2J linexxx") and len(reason) < 2000
    file = tmp_path / audit.NAME
    line(tmp_path, refused="\x1b[2J\nline", rows=None)  # of another program
    assert main(["audit", str(file)]) == 0
    assert "\x1b" not in (out := capsys.readouterr().out) and "refused 1 time(s): [2Jline\n" in out


def test_many_jobs_have_a_line_each(tmp_path):
    for number in range(30):
        line(tmp_path, job=f"{number:032x}", bytes=number)
    lines, numbers = shown.shown(tmp_path)
    assert numbers["jobs"] == 30 and len(lines) == 33
    assert "fedavg" in lines[-1] and lines[-1].endswith("1 answer(s) of 29 bytes left, 0 request(s) refused")


@four
def test_the_log_names_the_method_of_the_image_and_the_database(tmp_path, monkeypatch):
    monkeypatch.setenv("INPUT_FILE", str(tmp_path / "task-000000012" / "input"))
    monkeypatch.setenv("PKG_NAME", "v6_fsvrg")
    monkeypatch.setenv("USER_REQUESTED_DATABASE_LABELS", "default,other")
    entry = audit.entry(Policy.of("careful"), 1, "gradient", 1, {"method": "fedavg"})
    assert (entry.method, entry.database, entry.run) == ("fsvrg", "default", 12)


def test_what_answers_under_masks_hold_is_in_words(tmp_path):
    """Once for a job, whatever the number of its answers; nothing of it for answers that are plain."""
    entry = dict.fromkeys("SED", "text of 64")
    line(tmp_path, job="aa", function="describe", left={"mode": "text of 6", "entry": entry, "block": "list of 3"})
    line(tmp_path, job="aa", function="confirm", left={"tags": {64 * "a": "text of 64", 64 * "b": "text of 64"}})
    line(tmp_path, job="aa", function="sums", left={"T": "text of 64", "y32": ["uint32", 7], "y64": ["uint64", 5]})
    line(tmp_path, job="bb", left={"T_cells": ["float32", 7], "weights": ["float32", 7]})
    lines, _ = shown.shown(tmp_path)
    assert any("tags (2 values)" in said for said in lines) and not any(64 * "a" in said for said in lines)
    meant = [said.strip() for said in lines if said.startswith("    ")]
    assert [said.partition(":")[0] for said in meant] == ["mode", "entry", "block", "tags", "T", "y32", "y64"]
    assert "random by themselves, they tell only the sum over all hospitals of the block" in meant[5]
