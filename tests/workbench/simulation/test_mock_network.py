"""The mock network: many nodes, refusals like the server's, environments, and simulated time."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from helpers import FEDAVG, JOB, OPEN, table, train

from v6_federated.central import dispatch
from v6_workbench.simulation import row_store
from v6_workbench.simulation.call_outcomes import CallOutcome, node_speeds
from v6_workbench.simulation.mock import MockNetwork

DESCRIBE = {"method": "describe", "kwargs": {}}
UPDATE = {"method": "client_update", "kwargs": {"job": JOB, "round": 1, **FEDAVG}}


def test_a_thousand_nodes():
    rows = table(60)
    nodes = {k: (rows.iloc[:, :-1].to_numpy(np.float32), rows["label"].to_numpy()) for k in range(1, 1001)}
    with MockNetwork("v6_fedavg", nodes, environment={"V6_FEDERATED_MINIMUM_ORGANIZATIONS": "1000"}) as network:
        result = network.run(rounds=1, fraction=0.01)
    assert len(result["history"][0]["participants"]) == 10


def test_tasks_are_refused_as_the_server_refuses_them(hospitals):
    with MockNetwork("v6_fedavg", hospitals) as network:
        client = network.client()
        assert client.task.create(DESCRIBE, [4]) == {"msg": "no node for organizations [4]"}
        assert client.task.create(DESCRIBE, []) == {"msg": "no node for organizations []"}
        assert [o["id"] for o in client.organization.list()] == [3, 5, 8]


def test_node_environments_do_not_leak(hospitals, monkeypatch):
    monkeypatch.delenv("V6_FEDERATED_MINIMUM_ROWS", raising=False)
    monkeypatch.setenv("TEMPORARY_FOLDER", "of the caller")
    with MockNetwork("v6_fedavg", hospitals, environments={3: {"V6_FEDERATED_MINIMUM_ROWS": "11"}}) as network:
        network.run(rounds=1)
    assert "V6_FEDERATED_MINIMUM_ROWS" not in os.environ and os.environ["TEMPORARY_FOLDER"] == "of the caller"


@pytest.mark.parametrize("processes", [1, 2])
def test_a_limit_of_the_first_node_is_not_a_limit_of_the_others(hospitals, processes):
    """Central runs at the first node, in its environment."""
    strict = {3: {"V6_FEDERATED_MINIMUM_ROWS": "1000"}}
    settings = {"rounds": 1, "min_responses": 0.5, "retries": 0}
    result = train("v6_fedavg", hospitals, processes, environments=strict, **settings)
    assert [who["organization_id"] for who in result["undescribed"]] == [3]
    assert result["history"][0]["participants"] == [5, 8]
    result = train("v6_fedavg", hospitals, processes, rounds=1)
    assert result["history"][0]["participants"] == [3, 5, 8], "nor of the nodes of a later network"


def test_networks_in_several_threads_take_turns(hospitals):
    """Nodes of one ran under the limits of the other: "this job's key is gone from the node's data volume"."""
    at_work, rounds = threading.Event(), []

    def job(profile, seconds):
        def on_round(row):
            rounds.append(profile)
            at_work.set()
            time.sleep(seconds)

        environment = {"V6_FEDERATED_PROFILE": profile}
        with MockNetwork("v6_fedavg", hospitals, environment=environment, on_round=on_round) as network:
            return network.run(rounds=3)["privacy"]["aggregation"]

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(job, "trusting", 0.3)
        at_work.wait(60)
        second = threads.submit(job, "careful", 0)
        assert [first.result(60), second.result(60)] == ["plain", "masked"]
    assert rounds == ["trusting"] * 3 + ["careful"] * 3


def test_a_job_can_run_another_one_between_its_rounds(hospitals):
    def between(row):
        assert train("v6_fedavg", hospitals, rounds=2)["weights"] == alone["weights"]

    alone = train("v6_fedavg", hospitals, rounds=2)
    with MockNetwork("v6_fedavg", hospitals, environment=OPEN, on_round=between) as network:
        assert network.run(rounds=2)["weights"] == alone["weights"]


def test_a_network_made_in_another_thread_does_not_inherit_the_limits_of_a_node_at_work(hospitals, monkeypatch):
    monkeypatch.delenv("V6_FEDERATED_MINIMUM_ROWS", raising=False)
    made, at_work = [], threading.Event()

    def make():
        at_work.wait(60)
        with MockNetwork("v6_fedavg", hospitals) as network:
            made.append(dict(network.nodes[3].environment))

    def on_round(row):
        at_work.set()
        thread.join(0.3)

    thread = threading.Thread(target=make)
    thread.start()
    strict = {"V6_FEDERATED_MINIMUM_ROWS": "11"}
    with MockNetwork("v6_fedavg", hospitals, environment=strict, on_round=on_round) as network:
        network.run(rounds=1)
    thread.join(60)
    assert made and "V6_FEDERATED_MINIMUM_ROWS" not in made[0]


@pytest.mark.parametrize("nodes", [1, 3])
def test_a_method_without_the_function_is_an_error_of_its_developer(nodes, monkeypatch):
    """It is not taken for a node that fails, or for a server that does not answer for a moment."""
    monkeypatch.delattr("v6_fedavg.client_update")
    with pytest.raises(AttributeError, match="v6_fedavg/__init__.py does not export client_update; add it there"):
        train("v6_fedavg", {k: table(seed=k) for k in range(1, nodes + 1)}, rounds=1, retries=0)


@pytest.mark.parametrize(
    ("databases", "processes", "says"),
    [({}, 1, "databases is empty; expected the rows of at least one"), ({1: None}, 0, "processes=0 is too few")],
)
def test_a_network_without_nodes_or_workers_is_refused(databases, processes, says):
    with pytest.raises(ValueError, match=says):
        MockNetwork("v6_fedavg", databases, processes=processes)


class Library:
    """A cluster's library, which says whether it was left."""

    def __init__(self, address):
        self.left = 0

    def close(self):
        self.left += 1


def test_a_network_that_is_closed_without_a_context_leaves_its_cluster(hospitals, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr("v6_workbench.simulation.cluster.on_dask.DaskCluster", Library)
    network = MockNetwork("v6_fedavg", hospitals, cluster="dask:tcp://10.0.0.1:8786")
    assert network.folder.exists()
    for _ in range(2):
        network.close()
    assert not network.folder.exists()
    assert network._workers._library.left == 1


class Seen:
    """The workers of a network, which note what happens."""

    def __init__(self, monkeypatch):
        self.events, work = [], MockNetwork.work

        def noted(network, calls):
            self.events.append(("begin", [organization for _, organization, _ in calls]))
            try:
                for ended in work(network, calls):
                    self.events.append(("end", calls[0][2] if len(calls) == 1 else ended.number - calls[0][2]))
                    yield ended
            finally:
                self.events.append(("gone", None))

        monkeypatch.setattr(MockNetwork, "work", noted)


@pytest.mark.parametrize("processes", [1, 2])
def test_a_result_is_read_while_others_are_awaited(hospitals, processes, monkeypatch):
    seen = Seen(monkeypatch)
    with MockNetwork("v6_fedavg", hospitals, environment=OPEN, processes=processes) as network:
        client = network.client()
        tasks = [client.task.create(UPDATE, [k])["id"] for k in hospitals]
        assert [client.request(f"task/{task}/status")["status"] for task in tasks] == ["completed"] * 3
        assert seen.events in ([("begin", [*hospitals])], [])  # a generator begins when it is first asked
        for i, task in enumerate(tasks):
            [result] = client.result.from_task(task)
            assert result["organization_id"] == [*hospitals][i]
            assert [event for event in seen.events if event[0] == "end"] == [("end", j) for j in range(i + 1)]
        client.finish()
        assert seen.events[-1] == ("gone", None) and not [*network.folder.glob("task-*")]


def test_calls_that_begin_later_have_messages_of_their_own(hospitals):
    """The second call of the same input is made while the first ones are at work: their message goes with them."""
    with MockNetwork("v6_fedavg", hospitals, environment=OPEN) as network:
        client = network.client()
        first = [client.task.create(UPDATE, [k])["id"] for k in (3, 5)]
        [one] = client.result.from_task(first[0])
        again = client.task.create(UPDATE, [3])["id"]
        assert [*client.result.from_task(again)] == [one]
        assert len([*client.result.from_task(first[1])]) == 1


@pytest.mark.parametrize("keep", [False, True])
def test_the_server_still_knows_a_task_whose_answers_were_taken(hospitals, keep):
    """An answer can be taken once, unless the network keeps it."""
    with MockNetwork("v6_fedavg", hospitals, environment=OPEN, keep=keep) as network:
        client = network.client()
        tasks = [client.task.create(UPDATE, organizations)["id"] for organizations in ([8, 3], [5])]
        answers = client.wait_for_results(tasks[0])
        assert [answer["organization_id"] for answer in answers] == [8, 3]
        assert client.wait_for_results(tasks[0]) == (answers if keep else [])
        for task, organizations in zip(tasks, ([8, 3], [5]), strict=True):
            runs = client.run.from_task(task)
            assert [run["organization"]["id"] for run in runs] == organizations
            assert {(run["status"], run["log"], run["node"]["status"]) for run in runs} == {("completed", "", "online")}
            assert client.request(f"task/{task}/status") == {"status": "completed"}
        assert [run["id"] for task in tasks for run in client.run.from_task(task)] == [1, 2, 3]
        assert len(client.wait_for_results(tasks[1])) == 1 and client.calls == 3


@pytest.mark.parametrize("processes", [1, 2])
def test_calls_are_dropped_when_a_job_fails(hospitals, processes, monkeypatch):
    seen = Seen(monkeypatch)

    def take(self, task, call):
        raise KeyboardInterrupt

    monkeypatch.setattr(dispatch.Dispatcher, "take", take)
    with MockNetwork("v6_fedavg", hospitals, environment=OPEN, processes=processes) as network:
        with pytest.raises(KeyboardInterrupt):
            network.run(rounds=1)
        assert "end" not in {event for event, _ in seen.events} and not [*network.folder.glob("task-*")]


def test_simulated_time_passes_as_calls_end(hospitals):
    """Calls of 5, 2 and 9 seconds: the clock jumps from one end to the next, up to the time that is waited for."""
    seconds = {3: 5.0, 5: 2.0, 8: 9.0}

    def outcomes(organization, input_):
        return CallOutcome(seconds[organization], status="crashed")

    with MockNetwork("v6_fedavg", hospitals, environment=OPEN, outcomes=outcomes) as network:
        client = network.client()
        task = client.task.create(DESCRIBE, [3, 5, 8])
        clocks = []
        for until in (100.0, 4.0, 100.0, 100.0):
            client.pause(until)
            clocks.append((client.clock(), [run["status"] for run in client.run.from_task(task["id"])]))
        assert clocks == [
            (2.0, ["active", "crashed", "active"]),
            (4.0, ["active", "crashed", "active"]),
            (5.0, ["crashed", "crashed", "active"]),
            (9.0, ["crashed"] * 3),
        ]
        with pytest.raises(
            ValueError, match="no call on the mock network will ever end, so the job would wait forever"
        ):
            client.pause(float("inf"))


def test_speeds_are_spread_evenly_between_the_fastest_and_the_slowest():
    speeds = node_speeds([1, 2, 3], 9, spread=0.0, seed=1)
    seconds = [speeds(k, {"method": "client_update"}).seconds for k in (1, 1, 2, 2, 3, 3)]
    assert seconds[::2] == seconds[1::2] and sorted(seconds[::2]) == pytest.approx([1, 3, 9])
    assert [speeds(k, {"method": "evaluate"}).seconds for k in (1, 2, 3)] == [0, 0, 0]
    assert speeds(4, {"method": "client_update"}).seconds == 0, "its time is not simulated"


def test_a_node_has_a_folder_of_its_hospital_if_its_own_limits_need_one(hospitals):
    careful, open_ = {"V6_FEDERATED_PROFILE": "careful"}, {"V6_FEDERATED_PROFILE": "trusting"}
    for every, own in ((careful, open_), (open_, careful)):
        with MockNetwork("v6_fedavg", hospitals, environment=every, environments={3: own}) as network:
            has = {k: "HOSPITAL_DATABASE_URI" in node.environment for k, node in network.nodes.items()}
        assert has == {3: own is careful, 5: every is careful, 8: every is careful}


def test_the_rows_of_nodes_can_be_removed_where_a_mapped_file_cannot(hospitals, monkeypatch):
    """On Windows, where the file of patients' rows would stay in the temporary folder: it is read, and not mapped."""
    with MockNetwork("v6_fedavg", hospitals) as network:
        expected = network.run(rounds=2, seed=1)
    monkeypatch.setattr(row_store, "MAPPED", False)
    monkeypatch.setattr(row_store.mmap, "mmap", None)  # is not called
    with MockNetwork("v6_fedavg", hospitals) as network:
        found = network.run(rounds=2, seed=1)
    assert found["model"] == expected["model"] and not network.folder.exists()
