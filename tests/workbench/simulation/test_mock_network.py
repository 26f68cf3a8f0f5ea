"""The mock network: many nodes, refusals like the server's, environments, and simulated time."""

import os

import numpy as np
import pytest
from helpers import OPEN, table, train

from v6_workbench.simulation.call_outcomes import CallOutcome, node_speeds
from v6_workbench.simulation.mock import MockNetwork

DESCRIBE = {"method": "describe", "kwargs": {}}


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
