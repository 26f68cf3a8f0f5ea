"""What jobs may cost together is never exceeded, whatever happens."""

import contextlib
import errno
import multiprocessing
import os
import re
import signal
import sqlite3
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from helpers import four
from hypothesis import given, settings
from hypothesis import strategies as st

from v6_federated.base.vantage6_api import NodePermissionException
from v6_federated.noise import ledger as module
from v6_federated.noise.accountant import epsilon
from v6_federated.noise.ledger import NAME, Ledger
from v6_federated.noise.plan import Plan
from v6_federated.rules import locked

DELTA = 1e-5
T = [bytes([i] * 32) for i in range(20)]


def make(noise=10.0, steps=20, rate=1.0, evaluations=0, statistics=0):
    return Plan(
        clip=1.0,
        noise=noise,
        rate=rate,
        steps=steps,
        evaluations=evaluations,
        evaluation_noise=20.0,
        statistics=statistics,
        statistics_noise=20.0,
    )


COST = epsilon([make()], DELTA)  # 1.98


def connects(monkeypatch, function):
    """The ledger and its transactions open the file by this function."""
    for place in (module, locked):
        monkeypatch.setattr(place, "connect", function)


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path, 5.0, DELTA)


def test_jobs_reserve_until_the_budget_is_spent(ledger):
    granted = 0
    with pytest.raises(NodePermissionException, match="EPSILON"):
        while True:
            ledger.reserve(f"job {granted}", make())
            granted += 1
    assert epsilon([make()] * granted, DELTA) <= 5 < epsilon([make()] * (granted + 1), DELTA)
    spent = ledger.spent()
    assert spent.epsilon == epsilon([make()] * granted, DELTA) and (spent.budget, spent.delta) == (5, DELTA)
    assert [job.job for job in spent.jobs] == [f"job {i}" for i in range(granted)]
    assert all(job.plan == make() and job.epsilon == COST for job in spent.jobs)
    ledger.reserve("job small", make(100.0, 1))


def test_a_refusal_says_what_it_costs_and_what_fits(ledger):
    ledger.reserve("first", make())
    ledger.reserve("second", make())
    with pytest.raises(NodePermissionException) as refused:
        ledger.reserve("third", make(5.0, 100, evaluations=3))
    text = str(refused.value)
    number = r"([0-9.]+)"
    found = re.fullmatch(
        rf"the job's privacy plan costs epsilon {number} at delta 1e-05, {number} of 5 is spent "
        rf"\(V6_FEDERATED_EPSILON\), {number} is left, with the plan it would be {number}\. "
        rf"What would fit: ([0-9]+) of the 100 steps with the same noise, or the whole plan with noise "
        rf"{number} instead of 5 and evaluation_noise {number} instead of 20\. "
        r"Nothing was computed\.",
        text,
    )
    assert found, text
    cost, spent, left, together, steps, noise, evaluation_noise = map(float, found.groups())
    assert cost == pytest.approx(epsilon([make(5.0, 100, evaluations=3)], DELTA), rel=1e-3)
    assert spent == pytest.approx(epsilon([make()] * 2, DELTA), rel=1e-3) and left == pytest.approx(5 - spent, abs=2e-3)
    assert together == pytest.approx(epsilon([make(), make(), make(5.0, 100, evaluations=3)], DELTA), rel=1e-3)
    with pytest.raises(NodePermissionException):
        ledger.reserve("third", make(5.0, int(steps) + 1, evaluations=3))
    fields = make(noise, 100, evaluations=3).to_json() | {"evaluation_noise": evaluation_noise}
    ledger.reserve("what was offered", Plan.from_json(fields))
    assert 4.9 < ledger.spent().epsilon <= 5


def test_the_offered_steps_fit(ledger):
    ledger.reserve("first", make())
    with pytest.raises(NodePermissionException) as refused:
        ledger.reserve("second", make(2.0, 100, rate=0.2))
    ledger.reserve("second", make(2.0, int(re.search("([0-9]+) of the 100", str(refused.value))[1]), rate=0.2))


def test_a_job_has_a_limit_of_its_own(tmp_path):
    ledger = Ledger(tmp_path, 5.0, DELTA, epsilon_per_job=1.0)
    ledger.reserve("small", make(30.0))
    with pytest.raises(
        NodePermissionException, match=r"a job may cost 1 at this node \(V6_FEDERATED_EPSILON_PER_JOB\)"
    ):
        ledger.reserve("large", make())
    with pytest.raises(
        NodePermissionException, match="a job may cost 1 at this node .* with the plan it would be"
    ) as both:
        ledger.reserve("larger", make(1.0, 20))
    noise = float(re.search("whole plan with noise ([0-9.]+)", str(both.value))[1])
    assert 0.99 < epsilon([make(noise)], DELTA) <= 1
    ledger.reserve("larger", make(noise))


def test_a_budget_that_is_spent_to_the_end(tmp_path):
    ledger = Ledger(tmp_path, COST, DELTA)
    ledger.reserve("first", make())
    with pytest.raises(
        NodePermissionException, match=r", 0 is left, .*No plan fits any more\. Nothing was computed\.$"
    ):
        ledger.reserve("second", make(100.0, 20))


def test_the_same_job_twice_changes_nothing(ledger):
    ledger.reserve("job", make())
    before = ledger.spent()
    ledger.reserve("job", make())
    assert ledger.spent() == before
    with pytest.raises(
        NodePermissionException, match=r"reserved another privacy plan .* new job\. Nothing was computed\.$"
    ):
        ledger.reserve("job", make(steps=1))
    assert ledger.spent() == before


def test_other_names_of_a_job_and_other_openings_of_the_ledger_refill_nothing(ledger, tmp_path):
    for other in ("job", "JOB", "job ", "jöb"):
        with contextlib.suppress(NodePermissionException):
            Ledger(tmp_path / "." / ".." / tmp_path.name, 5.0, DELTA).reserve(other, make(8.0))
    assert ledger.spent().epsilon == epsilon([make(8.0)] * 3, DELTA) <= 5
    assert [job.job for job in ledger.spent().jobs] == ["job", "JOB", "job "]
    with pytest.raises(NodePermissionException, match="no privacy budget"):
        ledger.use("Job", make(8.0), T[0], steps=1)


def test_an_operator_can_raise_and_lower_the_budget(ledger, tmp_path):
    ledger.reserve("first", make())
    with pytest.raises(NodePermissionException, match=r"1\.9[0-9]* of 1 is spent .*, 0 is left"):
        Ledger(tmp_path, 1.0, DELTA).reserve("second", make(1e6, 1))
    Ledger(tmp_path, 50.0, DELTA).reserve("second", make(2.0))
    assert Ledger(tmp_path, 1.0, 1e-7).spent().epsilon == epsilon([make(), make(2.0)], 1e-7)


@pytest.mark.parametrize("numbers", [(0, DELTA), (-1, DELTA), (float("nan"), DELTA), (1, 0), (1, 0.5), (1, DELTA, 0)])
def test_an_operators_numbers_are_checked(numbers, tmp_path):
    with pytest.raises(
        NodePermissionException, match="^V6_FEDERATED_.* of this node must be a number above 0, of at most"
    ):
        Ledger(tmp_path, *numbers)


def test_requests_use_what_is_reserved(ledger):
    plan = make(steps=3, evaluations=1)
    with pytest.raises(NodePermissionException, match=r"reserved no privacy budget .*Nothing was computed\.$"):
        ledger.use("job", plan, T[0], steps=1)
    ledger.reserve("job", plan)
    ledger.use("job", plan, T[0], steps=2)
    for _ in range(3):
        ledger.use("job", plan, T[0], steps=2)  # the same request again
    with pytest.raises(NodePermissionException, match="counted this request with other numbers"):
        ledger.use("job", plan, T[0], steps=1)
    with pytest.raises(
        NodePermissionException, match=r"asks for 2 more steps, and of the 3 .* 2 are used; .*Nothing was"
    ):
        ledger.use("job", plan, T[1], steps=2)
    ledger.use("job", plan, T[1], steps=1, evaluations=1)
    with pytest.raises(NodePermissionException, match="1 more evaluations, and of the 1"):
        ledger.use("job", plan, T[2], evaluations=1)
    with pytest.raises(NodePermissionException, match="1 more statistics, and of the 0"):
        ledger.use("job", plan, T[2], statistics=1)
    with pytest.raises(ValueError, match="cannot use"):
        ledger.use("job", plan, T[2], steps=-1)
    [job] = ledger.spent().jobs
    assert (job.steps, job.evaluations, job.statistics) == (3, 1, 0)


def test_jobs_do_not_use_what_others_reserved(ledger):
    ledger.reserve("a", make(30.0, steps=1))
    ledger.reserve("b", make(30.0, steps=1))
    ledger.use("a", make(30.0, steps=1), T[0], steps=1)
    with pytest.raises(NodePermissionException, match="with other numbers"):
        ledger.use("b", make(30.0, steps=1), T[0], steps=1)
    ledger.use("b", make(30.0, steps=1), T[1], steps=1)


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("noise", 0.1),
        ("rate", 1.0),
        ("clip", 2.0),
        ("holdout", 0.3),
        ("evaluation_noise", 0.1),
        ("statistics_noise", 9),
    ],
)
def test_a_request_with_another_plan_than_the_reserved_one_is_refused(ledger, name, other):
    """Once only its numbers of sums were compared: a plan with much noise was reserved, and one with little used."""
    plan = make(rate=0.5, evaluations=1)
    ledger.reserve("job", plan)
    for request in (T[0], T[1]):  # T[1] is counted before
        with pytest.raises(NodePermissionException, match=r"reserved another privacy plan .*Nothing was computed\.$"):
            ledger.use("job", replace(plan, **{name: other}), request, steps=1)
        ledger.use("job", plan, T[1], steps=1)
    assert ledger.spent().jobs[0].steps == 1


def test_a_ledger_of_nothing(ledger, tmp_path):
    empty = ledger.spent()
    assert (empty.epsilon, empty.jobs, empty.head) == (0, (), "00" * 32)
    assert not list(tmp_path.iterdir())  # it only reads
    with pytest.raises(NodePermissionException):
        ledger.use("job", make(), T[0], steps=1)
    assert ledger.spent() == empty
    (tmp_path / NAME).write_bytes(b"")
    assert ledger.spent() == empty


# Processes


def _reserve_many(folder, name, start, granted):
    start.wait()
    ledger = Ledger(folder, 5.0, DELTA)
    for i in range(6):
        with contextlib.suppress(NodePermissionException):
            ledger.reserve(f"{name} {i}", make(13.0))
            granted.put(f"{name} {i}")


def _reserve_and_die(folder):
    Ledger(folder, 5.0, DELTA).reserve("job", make())
    os.kill(os.getpid(), signal.SIGKILL)


def _use_and_die(folder):
    Ledger(folder, 5.0, DELTA).use("job", make(), T[0], steps=20)
    os.kill(os.getpid(), signal.SIGKILL)


def _die_before_the_end(folder):
    with Ledger(folder, 5.0, DELTA)._locked() as database:
        database.execute("INSERT INTO use VALUES (?, 'job', 20, 0, 0)", (T[1],))
        os.kill(os.getpid(), signal.SIGKILL)


def test_processes_at_the_same_time_never_overspend(ledger, tmp_path):
    spawn = multiprocessing.get_context("spawn")
    start, granted = spawn.Event(), spawn.Queue()
    processes = [spawn.Process(target=_reserve_many, args=(tmp_path, name, start, granted)) for name in "ab"]
    for process in processes:
        process.start()
    start.set()
    for process in processes:
        process.join(120)
    spent = ledger.spent()
    names = {granted.get(timeout=10) for _ in spent.jobs}
    assert granted.empty() and names == {job.job for job in spent.jobs}
    number = len(names)
    assert epsilon([make(13.0)] * number, DELTA) <= 5 < epsilon([make(13.0)] * (number + 1), DELTA)
    assert number < 12


def test_a_container_that_is_killed_has_spent(ledger, tmp_path):
    spawn = multiprocessing.get_context("spawn")
    for target in (_reserve_and_die, _use_and_die, _die_before_the_end):
        process = spawn.Process(target=target, args=(tmp_path,))
        process.start()
        process.join(60)
        assert process.exitcode == -signal.SIGKILL
    [job] = ledger.spent().jobs
    assert job.epsilon == COST and job.steps == 20
    ledger.use("job", make(), T[0], steps=20)  # the killed request again
    with pytest.raises(NodePermissionException, match="20 are used"):
        ledger.use("job", make(), T[2], steps=1)


# Disks and locks


def test_a_full_disk_refuses_and_changes_nothing(ledger, monkeypatch):
    ledger.reserve("first", make(30.0))
    before, connect = ledger.spent(), module.connect

    def full(*args):
        database = connect(*args)
        database.execute("PRAGMA max_page_count = 1")
        return database

    connects(monkeypatch, full)
    with pytest.raises(NodePermissionException, match=r"cannot be used \(.*full\); .*Nothing was computed\.$"):
        for i in range(100):
            ledger.reserve(f"{i} {'x' * 10_000}", make(1e5))
    monkeypatch.undo()
    assert ledger.spent().jobs[0] == before.jobs[0]
    assert all(len(job.job) > 10_000 for job in ledger.spent().jobs[1:])
    ledger.reserve("second", make(30.0))


def test_a_disk_that_is_full_at_the_end_of_a_transaction(ledger, monkeypatch, tmp_path):
    class Full(sqlite3.Connection):
        def execute(self, statement, *args):
            if statement == "COMMIT":
                raise sqlite3.OperationalError("database or disk is full")
            return super().execute(statement, *args)

    ledger.reserve("first", make(30.0))
    connects(monkeypatch, lambda file, query="": sqlite3.connect(file, isolation_level=None, factory=Full))
    with pytest.raises(NodePermissionException, match="disk is full"):
        ledger.reserve("second", make(30.0))
    monkeypatch.undo()
    assert [job.job for job in ledger.spent().jobs] == ["first"]
    ledger.reserve("second", make(30.0))


def test_an_operating_system_that_refuses(ledger, monkeypatch):
    def no_space(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    connects(monkeypatch, no_space)
    with pytest.raises(NodePermissionException, match=r"cannot be used \(No space left on device\)"):
        ledger.reserve("job", make())


@pytest.mark.parametrize("fault", ["no database", "a folder", "no folder"])
def test_a_ledger_that_cannot_be_read_refuses_everything(ledger, fault, tmp_path):
    if fault == "no database":
        (tmp_path / NAME).write_text("no database" * 100)
    elif fault == "a folder":
        (tmp_path / NAME).mkdir()
    else:
        ledger = Ledger(tmp_path / "nowhere", 5.0, DELTA)
    with pytest.raises(NodePermissionException, match=r"ledger .* cannot be used \(.*\); .*Nothing was computed\.$"):
        ledger.reserve("job", make())
    with pytest.raises(NodePermissionException, match="cannot be used"):
        ledger.use("job", make(), T[0], steps=1)
    if fault != "no folder":
        with pytest.raises(NodePermissionException, match="cannot be used"):
            ledger.spent()


@pytest.fixture
def unchecked():
    module._check_locks.cache_clear()
    yield
    module._check_locks.cache_clear()


def test_a_folder_without_locks_is_refused(ledger, unchecked, monkeypatch):
    """SQLite's own file system without locks: what a network share without them does."""

    def lockless(file: Path, query=""):
        return sqlite3.connect(f"{file.as_uri()}?vfs=unix-none", isolation_level=None, uri=True)

    connects(monkeypatch, lockless)
    for _ in range(2):
        with pytest.raises(
            NodePermissionException, match="file locks work, .* two programs could write at once; its op"
        ):
            ledger.reserve("job", make())


def test_locks_that_cannot_be_tested_are_refused(ledger, unchecked, monkeypatch):
    monkeypatch.setattr(module, "CHILD", "raise SystemExit('something else')")
    with pytest.raises(NodePermissionException, match="the test of them failed"):
        ledger.reserve("job", make())

    def slow(*args, **kwargs):
        raise subprocess.TimeoutExpired("python", 30)

    monkeypatch.setattr(module.subprocess, "run", slow)
    with pytest.raises(NodePermissionException, match=r"cannot be used \(no answer\)"):
        ledger.reserve("job", make())


def test_locks_are_tested_once(ledger, unchecked, monkeypatch):
    ledger.reserve("a", make(30.0))
    monkeypatch.setattr(module.subprocess, "run", None)
    ledger.reserve("b", make(30.0))


def test_a_ledger_that_is_locked_for_long_is_named(ledger, monkeypatch, tmp_path):
    ledger.reserve("a", make(30.0))
    monkeypatch.setattr(locked, "LOCK_SECONDS", 0.1)
    with contextlib.closing(sqlite3.connect(tmp_path / NAME, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(NodePermissionException, match="database is locked"):
            ledger.use("a", make(30.0), T[0], steps=1)
        assert len(ledger.spent().jobs) == 1  # reading needs no lock
    ledger.use("a", make(30.0), T[0], steps=1)


@four
def test_on_a_real_node_the_disk_has_it_before_anything_is_computed(ledger, monkeypatch, tmp_path):
    said = []

    class Watched(sqlite3.Connection):
        def execute(self, statement, *args):
            said.append(statement)
            return super().execute(statement, *args)

    monkeypatch.setenv("INPUT_FILE", str(tmp_path / "task-000000001" / "input"))
    connects(monkeypatch, lambda file, query="": sqlite3.connect(file, isolation_level=None, factory=Watched))
    ledger.reserve("job", make())
    assert "PRAGMA synchronous = EXTRA" in said and said[-1] == "COMMIT"


# The chain


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE reservation SET plan = replace(plan, '10.0', '90.0') WHERE seq = 0",
        "UPDATE reservation SET job = 'x' WHERE seq = 1",
        "UPDATE reservation SET at = 'x' WHERE seq = 1",
        "UPDATE reservation SET at = NULL WHERE seq = 1",
        "UPDATE reservation SET plan = 'x' WHERE seq = 1",
        "UPDATE reservation SET digest = zeroblob(32) WHERE seq = 2",
        "UPDATE reservation SET previous = zeroblob(32) WHERE seq = 2",
        "UPDATE reservation SET seq = 5 WHERE seq = 2",
        "DELETE FROM reservation WHERE seq = 0",
        "DELETE FROM reservation WHERE seq = 1",
    ],
)
def test_a_broken_chain_is_refused(tmp_path, change):
    ledger = Ledger(tmp_path, 10.0, DELTA)
    for i in range(3):
        ledger.reserve(str(i), make())
    with contextlib.closing(sqlite3.connect(tmp_path / NAME, isolation_level=None)) as database:
        assert database.execute(change).rowcount == 1
    for call in (lambda: ledger.reserve("3", make()), lambda: ledger.use("2", make(), T[0], steps=1), ledger.spent):
        with pytest.raises(
            NodePermissionException, match=r"has been changed: reservation [1-3] of [23] does not follow"
        ):
            call()


def test_the_head_shows_what_the_chain_cannot(ledger, tmp_path):
    heads = [ledger.spent().head]
    for i in range(3):
        ledger.reserve(str(i), make(30.0))
        heads.append(ledger.spent().head)
    assert len(set(heads)) == 4
    with contextlib.closing(sqlite3.connect(tmp_path / NAME, isolation_level=None)) as database:
        database.execute("DELETE FROM reservation WHERE seq = 2")
    assert ledger.spent().head == heads[2]  # the chain is sound, and the operator's note says heads[3]


@settings(deadline=None, max_examples=25)
@given(
    plans=st.lists(
        st.builds(
            make,
            st.floats(0.5, 60),
            st.integers(0, 200),
            st.sampled_from([1.0, 1.0, 0.3, 0.05]),
            st.integers(0, 9),
            st.integers(0, 3),
        ),
        max_size=8,
    ),
    budget=st.floats(0.3, 12),
    per_job=st.one_of(st.none(), st.floats(0.1, 6)),
)
def test_what_is_granted_never_exceeds_the_budget(tmp_path_factory, plans, budget, per_job):
    ledger, granted, refused = Ledger(tmp_path_factory.mktemp("l"), budget, DELTA, per_job), [], []
    ledger._refusal = lambda *_: "refused"  # what would fit is tested above, and slow
    for i, plan in enumerate(plans):
        try:
            ledger.reserve(str(i), plan)
        except NodePermissionException:
            refused.append((plan, list(granted)))
        else:
            granted.append(plan)
    assert epsilon(granted, DELTA) <= budget and ledger.spent().epsilon == epsilon(granted, DELTA)
    assert per_job is None or all(epsilon([plan], DELTA) <= per_job for plan in granted)
    for plan, before in refused:
        assert epsilon([*before, plan], DELTA) > budget or epsilon([plan], DELTA) > per_job
