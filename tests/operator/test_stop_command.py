"""``stop``: what the operator of a node has stopped is refused there, and ``audit`` shows it."""

import json

import pytest
from helpers import OPEN, table

from v6_federated.base.vantage6_api import CollectResultsError
from v6_federated.rules import audit
from v6_federated.rules.stopped import NAME, Stopped
from v6_workbench.conformance.tables import three
from v6_workbench.simulation.mock import MockNetwork, StudyPlan

STOPPED = "the operator of this node has stopped this job"


def key_of(folder):
    """The key of the newest job in a hospital's log."""
    return [*audit.read(folder / audit.NAME)][-1].job


@pytest.fixture
def job(tmp_path):
    """Runs a job on mock nodes with folders of their own. ``after`` is called with each finished round: that is when
    the next round has been answered."""

    def run(after=lambda row: None, **settings):
        with MockNetwork("v6_fedavg", three(), environment=OPEN, hospital_folder=tmp_path, on_round=after) as network:
            return network.run(**{"rounds": 4, "retries": 0, **settings})

    return run


def test_a_running_job_ends_in_one_clear_line(job, call, tmp_path):
    def after(row):
        if row["round"] == 1:
            assert call("stop", tmp_path / "node-5", key_of(tmp_path / "node-5")[:8])[0] == 0

    result = job(after)
    assert result["stopped"].count(STOPPED) == 1 and "organization 5" in result["stopped"]
    assert [row["round"] for row in result["history"]] == [1, 2], "the model of the last finished round is there"
    *_, last = audit.read(tmp_path / "node-5" / audit.NAME)
    assert last.refused == STOPPED
    assert all(entry.refused is None for entry in audit.read(tmp_path / "node-3" / audit.NAME))


def test_a_job_goes_on_without_the_hospital_if_it_may(job, call, tmp_path):
    def after(row):
        if row["round"] == 1:
            call("stop", tmp_path / "node-5", key_of(tmp_path / "node-5"))
        if row["round"] == 2:
            call("stop", tmp_path / "node-5", key_of(tmp_path / "node-5"), "--undo")

    result = job(after, min_responses=0.5, rounds=5)
    assert "stopped" not in result
    assert [row["participants"] for row in result["history"]] == [[3, 5, 8]] * 2 + [[3, 8]] + [[3, 5, 8]] * 2
    assert [why["reason"] for why in result["history"][2]["missing"]] == [STOPPED]


def test_other_jobs_run_unless_all_are_stopped(job, call, tmp_path):
    folder = tmp_path / "node-5"
    job()
    assert call("stop", folder, key_of(folder)[:5])[0] == 0
    assert "stopped" not in job()
    status, lines, numbers, _ = call("stop", folder, "--all")
    assert status == 0 and numbers["all"] and lines[1].startswith("every job is stopped since 20")
    with pytest.raises(CollectResultsError, match=STOPPED):
        job()
    assert "every job is stopped since" in "\n".join(call("audit", folder)[1])
    assert call("stop", folder, "--all", "--undo")[2] == {"stopped": {}, "all": None}
    assert "stopped" not in job()


def test_an_answer_that_was_being_computed_does_not_leave(tmp_path, monkeypatch):
    """Stopped between the first check and the last."""
    from v6_federated.node.request import Request

    checks = []

    def check(self):
        checks.append(self.entry.function)
        if len(checks) == 2:  # before the first answer leaves
            Stopped(all=audit.now()).write(self.folder.path)
        original(self)

    original = Request.check_stopped
    monkeypatch.setattr(Request, "check_stopped", check)
    with (
        MockNetwork("v6_fedavg", three(), environment=OPEN, hospital_folder=tmp_path) as network,
        pytest.raises(CollectResultsError, match=STOPPED),
    ):
        network.run(rounds=1, retries=0)
    [entry] = audit.read(tmp_path / "node-3" / audit.NAME)
    assert entry.refused == STOPPED and not entry.bytes


@pytest.mark.parametrize(
    ("mode", "study", "settings"),
    [
        ("pinned", StudyPlan(3), {"min_responses": 0.5}),
        ("pinned", StudyPlan(3), {}),
        ("masked", None, {"min_responses": 0.5}),  # all nodes are one block
    ],
)
def test_a_masked_job_goes_on_without_the_block_or_ends_in_one_clear_line(call, tmp_path, mode, study, settings):
    folder = tmp_path / "node-2"

    def after(row):
        if row["round"] == 1:
            call("stop", folder, key_of(folder)[:6])

    rows = {k: table(20, seed=k) for k in range(1, 7)}
    with MockNetwork(
        "v6_fedavg", rows, environment=OPEN, hospital_folder=tmp_path, on_round=after, study=study
    ) as network:
        result = network.run(rounds=3, classes=[0, 1], aggregation=mode, retries=0, **settings)
    if study and settings:
        assert "stopped" not in result
        assert [row["participants"] for row in result["history"]] == [[1, 2, 3, 4, 5, 6]] * 2 + [[4, 5, 6]]
        assert any(STOPPED in why["reason"] for why in result["history"][2]["missing"])
    else:
        assert result["stopped"].count(STOPPED) == 1 and len(result["history"]) == 2
    assert [*audit.read(folder / audit.NAME)][-1].refused == STOPPED


def test_what_is_stopped_is_shown(job, call, tmp_path):
    folder = tmp_path / "node-5"
    job()
    key = key_of(folder)
    status, lines, numbers, _ = call("stop", folder, key[:4])
    assert status == 0 and list(numbers["stopped"]) == [key]
    assert lines[0].startswith(f"job {key}: fedavg, stopped 20") and "what has left before is not undone" in lines[1]
    assert call("stop", folder, "--list")[1] == lines[:1]
    _, shown, found, _ = call("audit", folder)
    assert found["stopped"] == [key] and any(line.startswith("  stopped by this node's operator, 20") for line in shown)
    again = call("stop", folder, key)[2]
    assert again == numbers, "the first time is kept"
    assert call("stop", folder, key[:4], "--undo")[1] == ["no job is stopped"]
    assert call("audit", folder)[2]["stopped"] == []


def test_a_job_that_has_not_come_yet_is_stopped_by_its_whole_key(call, folders):
    key = "0123456789abcdef" * 2
    status, lines, numbers, _ = call("stop", folders["A"], key)
    assert status == 0 and list(numbers["stopped"]) == [key]
    assert lines[0].startswith(f"job {key}: not in the audit log, stopped 20")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "expected jobs or --all, and not both"),
        (["2f", "--all"], "expected jobs or --all, and not both"),
        (["zz"], "no job has a key that begins with zz; expected one that is in the audit log"),
        ([""], "no job has a key that begins with an empty word"),
        (["zz", "--undo"], "no job has a key that begins with zz; expected one that is stopped here, see --list"),
        (["--list", "--all"], "--list only shows what is stopped"),
    ],
)
def test_a_wrong_request_is_refused_in_one_line(call, folders, arguments, says):
    status, _, _, err = call("stop", folders["A"], *arguments)
    assert status == 2 and says in err
    assert not (folders["A"] / NAME).exists()


def test_two_jobs_with_the_same_beginning(call, folders):
    for end in "ab":
        call("stop", folders["A"], "0" * 31 + end)
    status, _, _, err = call("stop", folders["A"], "000", "--undo")
    assert status == 2 and "2 jobs have keys that begin with 000" in err


@pytest.mark.parametrize("content", ["", "{", "[]", '{"jobs": 3}', '{"all": 7}'])
def test_a_list_that_cannot_be_read_stops_every_job(job, call, tmp_path, content):
    folder = tmp_path / "node-5"
    folder.mkdir()
    (folder / NAME).write_text(content)
    with pytest.raises(CollectResultsError, match=r"the list of jobs that the operator .* cannot be read"):
        job()
    assert f"{NAME} cannot be read, so this node refuses every request" in "\n".join(call("audit", folder)[1])
    status, _, _, err = call("stop", folder, "--list")
    assert status == 2 and "cannot be read" in err


def test_the_list_is_a_small_file_of_json(call, folders):
    call("stop", folders["A"], "ab" * 16)
    assert [*json.loads((folders["A"] / NAME).read_text())["jobs"]] == ["ab" * 16]
