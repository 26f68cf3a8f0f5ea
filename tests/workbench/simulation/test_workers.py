"""The processes of mock nodes: what they leave to each other, and what becomes of calls that nobody waits for."""

import multiprocessing
import os
import signal
import time
from textwrap import dedent

import joblib
import numpy as np
import pytest
from helpers import OPEN, table, train

from v6_workbench.simulation.call_outcomes import CallOutcome
from v6_workbench.simulation.mock import MockNetwork

NODES = {k: (np.zeros((12, 2), np.float32), np.zeros(12, int)) for k in (3, 5, 8)}
METHOD = dedent(
    """
    import os, time
    from pathlib import Path
    from v6_federated.base import vantage6_api

    def work(mock_client, mock_data, tag, seconds, log):
        k = mock_client.organization_id
        def note(what):
            with open(log, "a") as file:
                print(what, tag, k, file=file)
        note("begin")
        time.sleep(seconds)
        state = Path(os.environ["TEMPORARY_FOLDER"]) / "state"
        state.parent.mkdir(parents=True, exist_ok=True)
        state.write_text(tag)
        note("end")
        return {"organization_id": k, "threads": os.environ.get("OMP_NUM_THREADS")}

    def central(mock_client, tag, seconds, log, fails):
        kwargs = {"tag": tag, "seconds": seconds, "log": log}
        input_ = {"method": "work", "kwargs": kwargs}
        tasks = [vantage6_api.create_task(mock_client, input_, [k], "") for k in (3, 5, 8)]
        vantage6_api.wait_for_any(mock_client, tasks)
        found = [next(vantage6_api.results(mock_client, task)) for task in tasks[: 1 if fails else 3]]
        if fails:
            raise RuntimeError("central fails")
        return {"threads": [answer["threads"] for answer in found]}
    """
)


@pytest.fixture
def slow(tmp_path, monkeypatch):
    """A method whose calls take a while and write down when they begin and end."""
    package = tmp_path / "methods" / "v6_slow"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(METHOD)
    monkeypatch.syspath_prepend(package.parent)
    log = tmp_path / "log"
    log.touch()
    return log


@pytest.mark.parametrize("processes", [1, 2])
def test_calls_of_a_job_that_failed_do_not_go_on(slow, processes):
    """The node of the first call has answered, the others are at work or wait."""
    with MockNetwork("v6_slow", NODES, processes=processes) as network:
        network.run(tag="before", seconds=0, log=str(slow), fails=False)
        with pytest.raises(RuntimeError, match="central fails"):
            network.run(tag="failed", seconds=0.3, log=str(slow), fails=True)
        left = slow.read_text()
        network.run(tag="after", seconds=0, log=str(slow), fails=False)
        assert [line for line in slow.read_text().removeprefix(left).splitlines() if "after" not in line] == []
        folder = network.folder
    assert "end failed 3" in left and "end failed 8" not in left
    time.sleep(0.4)
    assert not folder.exists()


def test_lost_calls_have_failed_and_are_not_run_by_the_next_job(slow):
    with MockNetwork("v6_slow", NODES) as network:
        client = network.client()
        kwargs = {"tag": "lost", "seconds": 0, "log": str(slow)}
        task = client.task.create({"method": "work", "kwargs": kwargs}, [3])["id"]
        with pytest.raises(TypeError):
            network.run(tag="a job that fails before it waits")
        network.run(tag="job", seconds=0, log=str(slow), fails=False)
        assert client.request(f"task/{task}/status") == {"status": "failed"}
        assert [*client.result.from_task(task)] == [] and "lost" not in slow.read_text()


@pytest.mark.parametrize("processes", [1, 2])
def test_a_node_runs_one_call_after_the_other(slow, processes):
    """The first call's end has not come when the second one is sent, so both begin together."""

    def outcomes(organization, input_):
        return CallOutcome(9.0 if input_["kwargs"]["tag"] == "one" else 0.0)

    with MockNetwork("v6_slow", NODES, processes=processes, outcomes=outcomes) as network:
        client = network.client()
        tasks = []
        for tag, seconds in (("one", 0.3), ("two", 0)):
            kwargs = {"tag": tag, "seconds": seconds, "log": str(slow)}
            tasks.append(client.task.create({"method": "work", "kwargs": kwargs}, [3])["id"])
        assert [client.request(f"task/{task}/status")["status"] for task in tasks] == ["active", "completed"]
        assert len([*client.result.from_task(tasks[1])]) == 1
        assert (network.folder / "node-3" / "tmp" / "state").read_text() == "two"
    assert slow.read_text().split() == "begin one 3 end one 3 begin two 3 end two 3".split()


@pytest.mark.parametrize("threads", ["3", None])
def test_numerical_libraries_have_as_many_threads_as_the_user_says(slow, threads, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if threads:
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
    with MockNetwork("v6_slow", NODES, processes=2) as network:
        result = network.run(tag="", seconds=0, log=str(slow), fails=False)
    assert {*result["threads"]} == {threads or str(max(1, joblib.cpu_count() // 2))}


def processes_of(nodes, processes):
    """The processes that a job on the first nodes has used."""
    hospitals = {k: table(40, seed=k) for k in range(1, nodes + 1)}
    with MockNetwork("v6_fedavg", hospitals, environment=OPEN, processes=processes) as network:
        network.run(rounds=1)
        return {process.pid for process in multiprocessing.active_children()}


def test_jobs_on_fewer_nodes_use_the_same_processes():
    """Starting others takes seconds."""
    three = processes_of(3, processes=3)
    assert [processes_of(nodes, processes=3) for nodes in (2, 3, 2)] == [three] * 3


def test_there_are_no_more_processes_than_nodes_or_than_the_user_wants():
    assert len(processes_of(3, processes=200)) == 3
    assert len(processes_of(2, processes=200)) == 3, "those of the job before"
    assert len(processes_of(3, processes=2)) == 2


def test_joblib_has_processes_of_its_own(hospitals):
    train("v6_fedavg", hospitals, 2, rounds=1)
    assert joblib.Parallel(n_jobs=2)(joblib.delayed(abs)(i) for i in (-1, -2)) == [1, 2]
    train("v6_fedavg", hospitals, 2, rounds=1)


def test_a_process_that_dies_ends_the_job_and_the_next_job_has_others(hospitals):
    settings = {"environment": OPEN, "processes": 2}
    with MockNetwork("v6_fedavg", hospitals, **settings, on_round=lambda row: None) as network:
        before = network.run(rounds=1)
        for process in multiprocessing.active_children():
            os.kill(process.pid, signal.SIGKILL)
        time.sleep(0.5)
        with pytest.raises(Exception, match="terminated"):
            network.run(rounds=1)
        assert network.run(rounds=1)["weights"] == before["weights"]
    for process in multiprocessing.active_children():  # while nobody uses them
        os.kill(process.pid, signal.SIGKILL)
    time.sleep(0.5)
    assert train("v6_fedavg", hospitals, 2, rounds=1)["weights"] == before["weights"]


def in_a_daemon(queue):
    nodes = {k: table(40, seed=k) for k in (1, 2, 3)}
    queue.put(len(train("v6_fedavg", nodes, 2, rounds=1)["history"]))


def test_a_daemon_runs_all_calls_itself():
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=in_a_daemon, args=(queue,), daemon=True)
    process.start()
    assert queue.get(timeout=60) == 1
    process.join()
