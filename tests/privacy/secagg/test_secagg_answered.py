"""A request is computed under its masks once; whoever asks again gets the stored answer or none."""

import contextlib
import sqlite3
from concurrent.futures import ThreadPoolExecutor

import pytest
from helpers import four

from v6_federated.base.vantage6_api import NodePermissionException
from v6_federated.masks.answered import KEPT, Answered
from v6_federated.rules import locked

T = [bytes([i] * 32) for i in range(20)]


@pytest.fixture
def log(tmp_path):
    (tmp_path / "hospital").mkdir()
    return lambda job="job": Answered(tmp_path / "hospital", tmp_path / job, job)


def test_a_repeated_transcript_gets_the_stored_answer(log):
    assert log().begin(T[0], 1) is None
    assert log().finish(T[0], b"answer") == b"answer"
    assert log().begin(T[0], 1) == b"answer"
    assert log().begin(T[0], 1) == b"answer"


def test_a_killed_run_is_computed_again(log):
    assert log().begin(T[0], 1) is None
    assert log().begin(T[0], 1) is None
    assert log().finish(T[0], b"answer") == b"answer"


def test_a_run_that_was_killed_after_it_has_stored_its_answer_is_not_computed_again(log, monkeypatch):
    """The answer may have been seen; so may that of a log that was put back while the request was computed."""
    log().begin(T[0], 1)

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Answered, "_remove", killed)
        log().finish(T[0], b"first")
    assert log().finish(T[0], b"second") == b"first"
    assert log().begin(T[0], 1) == b"first"


def test_a_log_that_is_older_than_the_jobs_folder_is_not_used(log, tmp_path):
    """An operator has put back a copy of the hospital's folder."""
    file = tmp_path / "hospital" / "answered.sqlite"
    log().begin(T[0], 1)
    begun = file.read_bytes()
    log().finish(T[0], b"answer")
    log().begin(T[1], 2)
    log().finish(T[1], b"answer")
    file.write_bytes(begun)
    for i, seq in ((0, 1), (1, 2), (2, 2), (3, 3)):
        with pytest.raises(NodePermissionException, match="knows fewer requests .* was put back"):
            log().begin(T[i], seq)
    assert log("other").begin(T[3], 1) is None
    for answer in log().answers.iterdir():
        answer.unlink()
    file.write_bytes(begun)
    with pytest.raises(NodePermissionException, match="was put back"):
        log().begin(T[0], 1)
    next(tmp_path.glob("job/*-last")).write_text("two")
    with pytest.raises(NodePermissionException, match="number of the last answer in the job's folder cannot be read"):
        log().begin(T[3], 3)


def test_two_runs_of_one_request_give_one_answer(log):
    """On a GPU their bits may differ: only one of them may leave."""
    assert log().begin(T[0], 1) is None
    assert log().begin(T[0], 1) is None
    assert log().finish(T[0], b"first") == b"first"
    assert log().finish(T[0], b"second") == b"first"
    assert log().begin(T[0], 1) == b"first"


@pytest.mark.parametrize("seq", [4, 5])
def test_numbers_must_rise(log, seq):
    log().begin(T[0], 5)
    with pytest.raises(NodePermissionException, match=f"request {seq} of the job, and this node has begun request 5"):
        log().begin(T[1], seq)
    assert log("other").begin(T[1], seq) is None
    assert log().begin(T[2], 9) is None
    with pytest.raises(NodePermissionException, match="must rise"):
        log().begin(T[3], 8)


@pytest.mark.parametrize("damage", ["removed", "changed", "a link"])
def test_a_stored_answer_that_is_gone_is_not_computed_again(log, damage):
    log().begin(T[0], 1)
    log().finish(T[0], b"answer")
    [file] = log().answers.iterdir()
    if damage == "changed":
        file.write_bytes(b"Answer")
    else:
        file.rename(file.with_name("moved"))
    if damage == "a link":
        file.symlink_to(file.with_name("moved"))
    for _ in range(2):
        with pytest.raises(NodePermissionException, match=r"stored answer is gone; .*Nothing was computed\.$"):
            log().begin(T[0], 1)
    with pytest.raises(NodePermissionException, match="stored answer is gone"):
        log().finish(T[0], b"another")


def test_the_newest_answers_are_kept(log):
    for i in range(10):
        log().begin(T[i], i)
        log().finish(T[i], b"%d" % i)
    assert len(list(log().answers.iterdir())) == KEPT >= 2
    for i in range(10 - KEPT, 10):
        assert log().begin(T[i], i) == b"%d" % i
    with pytest.raises(NodePermissionException, match="gone"):
        log().begin(T[0], 0)


def test_other_jobs_keep_their_answers(log, tmp_path):
    a, b = (Answered(tmp_path / "hospital", tmp_path / "shared", job) for job in "ab")
    a.begin(T[0], 1)
    a.finish(T[0], b"a")
    for i in range(1, 8):
        b.begin(T[i], i)
        b.finish(T[i], b"b")
    b.forget()
    assert a.begin(T[0], 1) == b"a"


def test_forget_removes_the_answers_and_not_the_log(log):
    log().begin(T[0], 1)
    log().finish(T[0], b"answer")
    log().forget()
    assert not list(log().answers.iterdir())
    with pytest.raises(NodePermissionException, match="gone"):
        log().begin(T[0], 1)
    with pytest.raises(NodePermissionException, match="must rise"):
        log().begin(T[1], 1)
    log("other").forget()


def test_what_was_not_begun_is_not_finished(log):
    log("other").begin(T[0], 1)
    with pytest.raises(NodePermissionException, match="was not begun"):
        log().finish(T[0], b"answer")


def test_runs_at_the_same_time_agree_on_one_answer(log):
    def ask(i: int) -> bytes:
        return log().begin(T[0], 1) or log().finish(T[0], b"%d" % i)

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(ask, range(40)))) == 1


def test_an_answer_that_cannot_be_stored_does_not_leave(log):
    log().begin(T[0], 1)
    log().answers.parent.mkdir()
    log().answers.write_text("a file in the folder's place")
    with pytest.raises(NodePermissionException, match="cannot be stored .* so nothing leaves"):
        log().finish(T[0], b"answer")
    assert log().begin(T[0], 1) is None


def test_a_log_that_cannot_be_read_refuses_everything(log):
    (log().folder / "answered.sqlite").write_text("not a database" * 100)
    with pytest.raises(NodePermissionException, match=r"log of answered requests cannot be used .* answered.sqlite"):
        log().begin(T[0], 1)


def test_a_log_that_is_locked_for_long_is_named(log, monkeypatch):
    monkeypatch.setattr(locked, "LOCK_SECONDS", 0.1)
    log().begin(T[0], 1)
    with contextlib.closing(sqlite3.connect(log().folder / "answered.sqlite", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(NodePermissionException, match="database is locked"):
            log().begin(T[1], 2)
    assert log().begin(T[1], 2) is None


@four
def test_on_a_real_node_answers_are_on_the_disk_before_they_leave(log, monkeypatch, tmp_path):
    synced = []
    monkeypatch.setenv("INPUT_FILE", str(tmp_path / "task-000000001" / "input"))
    monkeypatch.setattr("v6_federated.base.files.os.fsync", synced.append)
    log().begin(T[0], 1)
    log().finish(T[0], b"answer")
    assert len(synced) == 2  # the answer, and the number of the last
    assert log().begin(T[0], 1) == b"answer"


def test_a_job_is_known_from_its_first_request_on(log):
    assert not log().known()
    log().begin(T[0], 1)
    assert log().known() and not log("other").known()
    log().forget()
    assert log().known()
