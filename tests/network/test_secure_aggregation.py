"""Masked sums in a study, on a real network of four careful hospitals in an encrypted collaboration: the bits of mock
nodes, lies of a central, which no node believes, and what happens if something stops in the middle of a round."""

import json
import sqlite3
import time
import uuid
from collections import Counter, defaultdict
from contextlib import closing

import numpy as np
import pandas as pd
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from disturbed import Disturbed, kill, read, without_seconds
from four_hospitals import TRAINING
from leftovers import once
from vantage6.common.task_status import has_task_finished

from v6_federated.masks import answered, keys
from v6_federated.masks.summands import Count, Layout
from v6_federated.masks.summing import Sums
from v6_federated.messages import codec
from v6_federated.messages.job import DataSpec, Job
from v6_federated.rules.schema import Column, Schema
from v6_workbench.cli.main import main
from v6_workbench.network import docker_engine, local, server

NODES = [1, 2, 3, 4]
SAME_ORDER = ["--node-env", "V6_FEDERATED_OWN_SHUFFLE=0"]  # or each node shuffles its rows by a secret of its own
JOB = [*TRAINING]
DECLARED = {
    "label",
    "mode",
    "entry",
    "hospital_totals",
    "block",
    "score_bands",
    "features",
    "classes",
    "bounds",
}  # what describe answers in a study with a schema
SLOW = ["--rounds", "4", "--set", "epochs=20000"]  # a container trains for a second or two


@pytest.fixture(scope="module")
def in_a_study(tmp_path_factory):
    """Options that give nodes one block of all hospitals, and a schema."""
    columns = tuple(Column(name, "number", -10.0, 10.0) for name in ("a", "b", "c"))
    file = tmp_path_factory.mktemp("schema") / "schema.json"
    file.write_text(Schema(columns, "outcome", ("ill", "well")).text())
    return ["--study", "--schema", str(file), *SAME_ORDER]


@pytest.fixture(scope="module")
def hospitals(engine, state, table, named, image_of, in_a_study):
    name = named("study")
    image_of("fedavg")
    try:
        up = ["network", "up", "--name", name, "--data", str(table), "--partition", "column:hospital", "--encrypted"]
        assert main([*up, *in_a_study]) == 0
        yield name
    finally:
        local.down(name)


@pytest.fixture(scope="module")
def on_mock_nodes(table, in_a_study, tmp_path_factory):
    """The result of a job on mock nodes with a study of their own: other keys, and the same sums."""
    policy = ["--node-env", "V6_FEDERATED_PROFILE=careful", "--set", "aggregation=auto"]  # as ``submit`` asks

    def run(*arguments):
        out = tmp_path_factory.mktemp("mock")
        command = ["run", "fedavg", "--data", str(table), "--partition", "column:hospital", *in_a_study]
        command += [*policy, *JOB, *arguments]
        assert main([*command, "--out", str(out)]) == 0
        return read(out)

    return run


@pytest.fixture(scope="module")
def two_rounds(hospitals, audited, tmp_path_factory):
    """The result of the first job on the network, and what the audit logs say after it."""
    out = tmp_path_factory.mktemp("real")
    assert main(["submit", "fedavg", "--network", hospitals, *JOB, "--out", str(out)]) == 0
    return read(out), {k: audited(hospitals, k) for k in NODES}


@pytest.fixture(scope="module")
def undisturbed(on_mock_nodes):
    return on_mock_nodes(*SLOW)


@pytest.fixture
def job(engine, hospitals, capsys, tmp_path, image_of):
    return Disturbed(engine, hospitals, capsys, tmp_path / "out", image_of, [*JOB, *SLOW])


def own_folder(network: str, node: int):
    return local.folder(network) / docker_engine.node_name(network, node) / docker_engine.HOSPITAL


def requests(network: str, node: int) -> list[tuple[str, int, bytes, bytes | None]]:
    """The log of answered requests: job, number, transcript, and the answer's digest if it was answered."""
    file = own_folder(network, node) / answered.NAME
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=10)) as database:
        found = database.execute("SELECT job, seq, T, answer FROM request ORDER BY job, seq").fetchall()
    return [(name.partition("-")[0], *rest) for name, *rest in found]


def check_one_answer_each(audited, network: str, key: str) -> int:
    """All nodes have answered the same requests of a job, each with one answer; how many answers left twice."""
    by_node = {k: [row for row in requests(network, k) if row[0] == key] for k in NODES}
    for rows in by_node.values():
        assert [seq for _, seq, _, _ in rows] == [*range(1, len(rows) + 1)]
        assert all(digest is not None for *_, digest in rows)
        assert [T for _, _, T, _ in rows] == [T for _, _, T, _ in by_node[1]]
        assert len({digest for *_, digest in rows}) == len(rows)
    again = 0
    for k in NODES:
        left = defaultdict(list)
        for entry in audited(network, k):
            if entry.job == key and not entry.refused:
                left[entry.function, entry.round].append(entry.sha256)
        assert all(len({*digests}) == 1 for digests in left.values())
        again += sum(len(digests) - 1 for digests in left.values())
    return again


# ---- a job to which nothing happens


def test_the_bits_are_those_of_mock_nodes(two_rounds, on_mock_nodes):
    ours, theirs = two_rounds[0], on_mock_nodes()
    assert ours["weights"] == theirs["weights"]
    assert without_seconds(ours) == without_seconds(theirs)
    assert ours["traffic"] == theirs["traffic"]
    assert ours["final"] == theirs["final"]
    assert ours["privacy"] == theirs["privacy"]
    assert (ours["privacy"]["aggregation"], ours["privacy"]["blocks"]) == ("pinned", [NODES])


def test_only_transcripts_and_masked_words_have_left(two_rounds):
    result, logs = two_rounds
    for entries in logs.values():
        assert Counter(entry.function for entry in entries) == {
            "describe": 1, "confirm": 1, "count_rows": 1, "client_update": 2, "evaluate": 1,
        }  # fmt: skip
        for entry in entries:
            said = {"describe": DECLARED, "confirm": {"tags", "colluders", "hospitals_a_person"}}
            expected = said.get(entry.function, {"T", "y32", "y64"})
            assert {*entry.left} == expected and not entry.refused
        assert all(entry.looser == ["OWN_SHUFFLE"] for entry in entries)
    traffic = sum(row["bytes_up"] for row in [*result["history"], *result["traffic"].values()])
    assert sum(entry.bytes for entries in logs.values() for entry in entries) == traffic


def test_nothing_is_left_of_a_job_that_has_ended(two_rounds, engine, hospitals):
    assert left_in_volumes(engine, hospitals) == []


# ---- lies of a central


class Liar:
    """A researcher and the server together, who can send any task to any node as part of one job.

    A researcher alone cannot: the server gives each task of a user a job of its own, and so a new volume at the nodes.
    """

    def __init__(self, engine, network: str):
        self.network = local.load(network)
        self.user = local.client(self.network)
        self.server = engine.containers.get(docker_engine.server_name(network))
        self.job_id = None  # the server's number of the job
        self.job = Job(
            method="fedavg",
            key=uuid.uuid4().hex,
            seed=3,
            participants=NODES,
            evaluators=[],
            rounds=2,
            model={"name": "logreg", "features": 3, "classes": 2},
            data=DataSpec("outcome", ["a", "b", "c"], ["ill", "well"]),
            minimum_rows=None,
            precision="float32",
            aggregation="pinned",
        ).to_json()

    def ask(self, function: str, organizations: list[int], **arguments) -> dict[int, dict]:
        """What each answers; or the last line of its log, as text."""
        if self.job_id is not None:  # the next task gets the number after the highest
            update = f"UPDATE task SET job_id = {self.job_id - 1} WHERE job_id = {self.job_id}"
            script = (
                f"import sqlite3; d = sqlite3.connect('/var/lib/vantage6.sqlite'); d.execute('{update}'); d.commit()"
            )
            assert self.server.exec_run(["python", "-c", script]).exit_code == 0
        sent = self.user.task.create(
            collaboration=self.network.collaboration,
            organizations=organizations,
            name=function,
            image="v6-fedavg",
            description="",
            input_={"method": function, "kwargs": {"job": self.job, "round": 0, **arguments}},
            databases=[{"label": self.network.label}],
        )
        assert self.job_id in (None, sent["job_id"])
        task, self.job_id = sent["id"], sent["job_id"]
        deadline = time.monotonic() + 120
        while not has_task_finished(self.user.request(f"task/{task}/status")["status"]):
            assert time.monotonic() < deadline
            time.sleep(0.3)
        results = [json.loads(row["result"]) for row in self.user.result.from_task(task)["data"] if row["result"]]
        said = {row["organization"]["id"]: server.last_line(row["log"] or "") for row in server.runs(self.user, task)}
        return said | {result["organization_id"]: result for result in results}

    def refused(self, function: str, node: int, **arguments) -> str:
        """The one line in which a node refuses."""
        line = self.ask(function, [node], **arguments)[node]
        assert isinstance(line, str), f"node {node} has answered {line}"
        return line[line.index(f"organization {node}: ") :]


@pytest.fixture(scope="module")
def liar(engine, hospitals):
    return Liar(engine, hospitals)


@pytest.fixture(scope="module")
def roster(liar):
    """The entries of all nodes, by organization."""
    return {k: answer["entry"] for k, answer in liar.ask("describe", NODES, raw=False).items()}


@pytest.fixture(scope="module")
def sums(liar, roster):
    """The first sum that central may ask for, after honest agreement."""
    confirmed = liar.ask("confirm", NODES, roster=[*roster.values()])
    tags = {roster[k]["S"]: answer["tags"] for k, answer in confirmed.items()}
    return Sums.of(Layout(tuple(Count().items("n", None))), 1, 1, None, tags=tags).to_json()


def test_a_roster_of_invented_hospitals_is_refused(liar, roster):
    """With three peers whose keys central knows, it could remove the mask."""

    def invented():
        S, E = (keys.public_of(X25519PrivateKey.generate()).hex() for _ in "SE")
        return {**roster[2], "S": S, "E": E}

    line = liar.refused("confirm", 2, roster=[roster[2], *(invented() for _ in range(3))])
    print(line)
    assert "the roster is not this node's block of the study: 3 keys too many, 3 missing" in line


def test_a_request_under_a_number_that_was_used_is_refused(liar, sums, hospitals):
    """Two different answers under the masks of one number would show their difference."""
    first = liar.ask("count_rows", [2], sums=sums)[2]
    assert {*first} == {"organization_id", "round", "T", "y32", "y64"}
    again = liar.ask("count_rows", [2], sums=sums)[2]
    assert again == first
    line = liar.refused("count_rows", 2, sums={**sums, "block": 2})
    print(line)
    assert "this is request 1 of the job, and this node has begun request 1 with other contents" in line
    assert "the numbers of a job's requests must rise" in line
    mine = [row for row in requests(hospitals, 2) if row[0] == liar.job["key"]]
    assert [(seq, T.hex()) for _, seq, T, _ in mine] == [(1, first["T"])]


@pytest.mark.parametrize(
    ("aggregation", "says"),
    [
        ("plain", "this node's operator requires aggregation=pinned (V6_FEDERATED_AGGREGATION), and the job asks for"),
        ("pinned", "evaluate is asked for this node's own answer, and this job only has masked ones"),
    ],
)
def test_a_request_for_a_single_answer_is_refused(liar, aggregation, says):
    line = liar.refused("evaluate", 2, job={**liar.job, "aggregation": aggregation})
    print(line)
    assert says in line and "Nothing was computed" in line


def test_a_table_that_has_changed_is_refused(liar, sums, engine, hospitals):
    """Without its last row, the difference of two sums would be that row."""
    node = engine.containers.get(docker_engine.container_name(docker_engine.node_name(hospitals, 3)))
    table = "/mnt/data/default.csv"  # the copy that a node makes when it starts
    try:
        assert node.exec_run(["sed", "-i", "$ d", table]).exit_code == 0
        line = liar.refused("count_rows", 3, sums=sums)
    finally:
        assert node.exec_run(["cp", "/mnt/default.csv", table]).exit_code == 0
    print(line)
    assert "the table of this node, or a limit that decides its answers, has changed since the job began" in line
    assert [row for row in requests(hospitals, 3) if row[0] == liar.job["key"]] == []


# ---- what can fail; what restarts nodes comes last, since the server takes them for offline for a minute


def test_a_job_whose_key_is_lost_ends_with_its_last_model(job, engine, hospitals, undisturbed):
    def lose(job):
        newest = max(job_volumes(engine, hospitals, 3), key=lambda volume: int(volume.split("-")[-2]))
        volumes = {newest: {"bind": "/mnt/tmp", "mode": "rw"}}
        engine.containers.run(
            "v6-fedavg",
            ["sh", "-c", "find /mnt/tmp -name '*-keys.sealed' -delete"],
            volumes=volumes,
            remove=True,
            labels=once(),
        )

    status, result, err = job.submit("fedavg", disturb=lose, in_round=2)
    print(err)
    assert status != 0 and "organization 3: this job's key is gone from the node's data volume; start a new job" in err
    finished = len(result["history"])
    assert 1 <= finished < 4 and "this job's key is gone" in result["stopped"]
    assert [row["train_loss"] for row in result["history"]] == [
        row["train_loss"] for row in undisturbed["history"][:finished]
    ]
    out = job.out.parent / "resumed"
    command = ["submit", "fedavg", "--network", hospitals, *job.options, "--resume", str(job.out), "--out", str(out)]
    assert main(command) == 0
    resumed = codec.decode(read(out)["weights"])["weights"]
    assert np.allclose(resumed, codec.decode(undisturbed["weights"])["weights"], atol=1e-5)  # in other units


def test_no_request_has_two_answers_whatever_happens(job, hospitals, undisturbed, audited):
    """A run is killed while it trains, then a node is restarted, then the node of central: what was asked is asked
    again, and the answer is the one that was given, or the only one."""
    killed = {}

    def kill_while_it_trains(job):
        """As soon as the node has begun the request, and before it answers."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            unanswered = [row for row in requests(hospitals, 2) if row[3] is None]
            if unanswered:
                kill(job.algorithm(2))
                [killed["request"]] = [row for row in requests(hospitals, 2) if row[3] is None]
                return
            time.sleep(0.02)
        raise AssertionError("node 2 has not begun to train")

    def restart(number):
        def stop_and_start(job):
            time.sleep(1.5)
            job.node(number).stop(timeout=5)
            job.start(number)

        return stop_and_start

    happens = {1: kill_while_it_trains, 2: restart(3), 3: restart(1)}
    status, result, err = job.submit("fedavg", disturb=happens)
    assert status == 0, err
    assert result["weights"] == undisturbed["weights"]
    assert [row["round"] for row in result["history"]] == [1, 2, 3, 4]
    key, seq, T, _ = killed["request"]
    [(*_, digest)] = [row for row in requests(hospitals, 2) if row[:3] == (key, seq, T)]
    assert digest is not None
    again = check_one_answer_each(audited, hospitals, key)
    print("answers that left twice:", again)
    assert again, "central was restarted, and asked again for the round that had begun"


def test_no_value_of_a_row_is_told(hospitals, table, engine):
    """Runs last: what all of the above has left in logs."""
    user = local.client(local.load(hospitals))
    logs = [run["log"] or "" for run in server.rows(user, "run")]
    if len(logs) < 20:
        pytest.skip("looks at what the tests above have left, and they did not run")
    for container in engine.containers.list(all=True, ignore_removed=True):
        if hospitals in container.name:
            logs.append(container.logs().decode(errors="replace"))
    told = "\n".join(logs)
    rows = pd.read_csv(table)
    numbers = [str(abs(value))[:9] for value in rows[["a", "b", "c", "FEDAVGXX"]].to_numpy().ravel()]
    assert [text for text in [*numbers, *rows["name"], "unheard-of"] if text in told] == []


def job_volumes(engine, network: str, node: int) -> list[str]:
    prefix = docker_engine.container_name(docker_engine.node_name(network, node))
    return [v.name for v in engine.volumes.list() if v.name.startswith(f"{prefix}-") and v.name.endswith("-tmpvol")]


def left_in_volumes(engine, network: str) -> list[str]:
    """Files in the folders of jobs, at all nodes."""
    volumes = [volume for k in NODES for volume in job_volumes(engine, network, k)]
    mounts = {volume: {"bind": f"/jobs/{volume}", "mode": "ro"} for volume in volumes}
    printed = engine.containers.run(
        "v6-fedavg", ["find", "/jobs", "-type", "f"], volumes=mounts, remove=True, labels=once()
    )
    assert volumes
    return printed.decode().split()
