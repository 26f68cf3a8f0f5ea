"""The node counts requests itself: by job, whatever round a task says, and by week, whatever job."""

import contextlib
import sqlite3
from concurrent.futures import ThreadPoolExecutor

import pytest
from helpers import FEDAVG, JOB

from v6_federated.base.vantage6_api import NodePermissionException, PrivacyThresholdViolation
from v6_federated.rules import locked, quota
from v6_federated.rules.hospital import HospitalFolder
from v6_federated.rules.policy import Policy
from v6_workbench.simulation.mock import MockNetwork

DAY = 24 * 3600.0


@pytest.fixture
def ask(tmp_path):
    """Count a request; each is new unless its digest is given."""
    policy = Policy.of("careful", maximum_rounds=3, maximum_rounds_a_week=6)
    numbers = iter(range(1000))

    def call(job="a", function="client_update", digest=None, now=0.0, policy=policy):
        digest = digest or bytes([next(numbers)])
        quota.count(policy, HospitalFolder(tmp_path, own=True), job, function, digest, now)

    return call


def test_a_job_has_its_rounds_and_one_evaluation_more(ask):
    for _ in range(4):
        ask()
    with pytest.raises(PrivacyThresholdViolation, match="called client_update 4 times, and this node allows 3 rounds"):
        ask()
    ask(function="evaluate")
    ask(job="b")


def test_a_week_has_so_many_requests_of_all_jobs(ask):
    for i in range(6):
        ask(job=str(i), now=i * DAY)
    with pytest.raises(PrivacyThresholdViolation, match="6 requests .* room again from 1970-01-08 00:00 UTC"):
        ask(job="x", now=6.9 * DAY)
    ask(job="x", now=7.1 * DAY)
    with pytest.raises(PrivacyThresholdViolation, match="room again from 1970-01-09 00:00 UTC"):
        ask(job="y", now=7.2 * DAY)


def test_a_request_that_is_repeated_counts_once(ask):
    for _ in range(10):
        ask(digest=b"same")
    for i in range(3):
        ask(digest=bytes([i]))
    ask(digest=b"same")


def test_what_reads_no_rows_is_not_counted(ask):
    for function in ("describe", "keep_steps", "forget"):
        for _ in range(20):
            ask(function=function)


def test_tasks_that_are_counted_at_the_same_time_are_all_counted(tmp_path):
    policy, folder = Policy.of("careful", maximum_rounds_a_week=20), HospitalFolder(tmp_path, own=True)

    def ask(number: int) -> bool:
        try:
            quota.count(policy, folder, str(number), "client_update", number.to_bytes(4, "big"), 0.0)
        except PrivacyThresholdViolation:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(ask, range(40))) == 20


def test_counters_that_cannot_be_read_refuse_everything(ask, tmp_path):
    (tmp_path / "requests.sqlite").write_text("not a database" * 100)
    with pytest.raises(NodePermissionException, match="counters of this node's limits cannot be used"):
        ask()


def test_a_week_of_no_requests_has_no_room_ever(ask):
    with pytest.raises(PrivacyThresholdViolation, match="answers no request .V6_FEDERATED_MAXIMUM_ROUNDS_A_WEEK=0.$"):
        ask(policy=Policy.of("careful", maximum_rounds_a_week=0))


def test_a_clock_that_is_set_back_makes_no_room(ask):
    for i in range(6):
        ask(job=str(i), now=100 * DAY)
    with pytest.raises(PrivacyThresholdViolation, match="room again from 1970-04-18"):
        ask(job="x", now=50 * DAY)


def test_counters_that_are_locked_for_long_are_named(ask, tmp_path, monkeypatch):
    monkeypatch.setattr(locked, "LOCK_SECONDS", 0.1)
    ask()
    with contextlib.closing(sqlite3.connect(tmp_path / "requests.sqlite", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(NodePermissionException, match="cannot be used .database is locked.; send the task again"):
            ask()
    ask()


def test_a_limit_on_rounds_that_is_set_holds_under_trusting_too(hospitals):
    environment = {"V6_FEDERATED_PROFILE": "trusting", "V6_FEDERATED_MAXIMUM_ROUNDS_A_WEEK": "2"}
    with MockNetwork("v6_fedavg", hospitals, environment=environment) as network:
        assert "V6_FEDERATED_MAXIMUM_ROUNDS_A_WEEK" in network.run(rounds=3)["stopped"]


def test_a_trusting_node_on_a_laptop_keeps_nothing(hospitals):
    with MockNetwork("v6_fedavg", hospitals, environment={"V6_FEDERATED_PROFILE": "trusting"}) as network:
        network.run(rounds=1, holdout=0)
        assert not (network.folder / "hospitals").exists()


def test_a_task_cannot_lift_the_limit_by_saying_another_round(hospitals, tmp_path):
    """The same job key, and round 1 in every task."""
    environment = {
        "V6_FEDERATED_PROFILE": "careful",
        "V6_FEDERATED_AGGREGATION": "plain",
        "V6_FEDERATED_MAXIMUM_ROUNDS": "3",
    }
    with MockNetwork("v6_fedavg", hospitals, environment=environment, hospital_folder=tmp_path) as network:
        answers = [_step(network, lr) for lr in (0.1, 0.2, 0.3, 0.4, 0.5)]
    assert [status for status, _ in answers] == ["completed"] * 4 + ["crashed"]
    assert "V6_FEDERATED_MAXIMUM_ROUNDS" in answers[-1][1]
    with sqlite3.connect(tmp_path / "node-3" / "requests.sqlite") as database:
        assert database.execute("SELECT COUNT(*) FROM request").fetchone() == (4,)


def _step(network, lr):
    """A task of round 1, as a dishonest researcher sends it."""
    client = network.client()
    kwargs = {"job": JOB, "round": 1, "local": {"lr": lr}, "arrays": FEDAVG["arrays"]}
    task = client.task.create({"method": "client_update", "kwargs": kwargs}, [3])
    client.wait_for_results(task["id"])
    run = client.run.from_task(task["id"])[0]
    return run["status"], run["log"]


def test_the_week_is_counted_over_jobs(hospitals, tmp_path):
    limits = {
        "V6_FEDERATED_PROFILE": "careful",
        "V6_FEDERATED_AGGREGATION": "plain",
        "V6_FEDERATED_MAXIMUM_ROUNDS_A_WEEK": "4",
    }
    with MockNetwork("v6_fedavg", hospitals, environment=limits, hospital_folder=tmp_path) as network:
        network.run(rounds=2)  # two rounds and the last evaluation
    with MockNetwork("v6_fedavg", hospitals, environment=limits, hospital_folder=tmp_path) as network:
        result = network.run(rounds=2)
    assert "V6_FEDERATED_MAXIMUM_ROUNDS_A_WEEK" in result["stopped"]
