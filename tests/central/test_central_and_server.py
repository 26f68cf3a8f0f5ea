"""What ends a job besides its nodes: a server that is away, and an error of the method's own."""

import re
import time

import pytest
from four_nodes import NODES, run
from helpers import OPEN

from v6_federated import Answers
from v6_federated.base import vantage6_api
from v6_workbench.simulation.mock import MockNetwork


def test_a_task_is_created_again_if_the_server_is_away_for_a_moment(monkeypatch):
    monkeypatch.setattr(vantage6_api, "POLL_SECONDS", 0.0)
    with MockNetwork("v6_fedavg", NODES, environment=OPEN, on_round=lambda row: None) as network:
        tasks = type(network.client().task)
        create, calls = tasks.create, []

        def fails(self, **arguments):
            calls.append(1)
            if len(calls) in (3, 7, 8):
                return {"msg": "Request failed, see node logs. Endpoint: task"}
            if len(calls) == 9:
                raise ConnectionError
            return create(self, **arguments)

        monkeypatch.setattr(tasks, "create", fails)
        result = network.run(rounds=2)
    assert len(calls) > 9 and "stopped" not in result and len(result["history"]) == 2


def test_a_server_that_is_gone_ends_the_job(monkeypatch):
    monkeypatch.setattr(vantage6_api, "POLL_SECONDS", 0.0)
    with MockNetwork("v6_fedavg", NODES, environment=OPEN, on_round=lambda row: None) as network:
        client = network.client()
        request, calls = client.request, []

        def gone(endpoint):
            calls.append(1)
            if len(calls) > 20:
                raise ConnectionError
            return request(endpoint)

        monkeypatch.setattr(client, "request", gone, raising=False)
        result = network.run(rounds=5, server_timeout=1)
    assert result["stopped"].startswith("the server has not answered for 1 s (server_timeout): ConnectionError; check")
    assert 1 <= len(result["history"]) < 5


def test_central_goes_on_when_vantage6_starts_it_again_after_the_server_was_gone(monkeypatch):
    """The nodes of vantage6 4.15 lose a result that they cannot hand over, and start open tasks again."""
    monkeypatch.setattr(vantage6_api, "POLL_SECONDS", 0.05)
    job = {"rounds": 5, "seed": 3, "server_timeout": 1}
    with MockNetwork("v6_scaffold", NODES, environment=OPEN) as network:
        undisturbed = network.run(**job)
    shown = []
    with MockNetwork("v6_scaffold", NODES, environment=OPEN, on_round=lambda row: None, keep=True) as network:
        client = network.client()
        request = client.request

        def gone(endpoint):
            if len(shown) >= 2:
                raise ConnectionError
            return request(endpoint)

        network.on_round = client.on_round = shown.append
        with monkeypatch.context() as away:
            away.setattr(client, "request", gone, raising=False)
            first = network.run(**job)
        assert "(server_timeout)" in first["stopped"] and first["state_left"] == "the server is away"
        again = network.run(**job)
    assert "stopped" not in again and again["weights"] == undisturbed["weights"]
    rounds = [row["round"] for row in shown]
    assert rounds[:2] == [1, 2] and rounds[-1] == 5 and rounds.count(1) == 1


def test_a_server_that_takes_no_task_ends_the_job_once_not_once_for_each_node(monkeypatch):
    monkeypatch.setattr(vantage6_api, "POLL_SECONDS", 0.05)
    with MockNetwork("v6_fedavg", NODES, environment=OPEN, on_round=lambda row: None) as network:
        tasks = type(network.client().task)
        create, calls = tasks.create, []

        def gone(self, **arguments):
            calls.append(1)
            return create(self, **arguments) if len(calls) < 8 else {"msg": "Request failed, see node logs"}

        monkeypatch.setattr(tasks, "create", gone)
        begun = time.monotonic()
        with pytest.raises(vantage6_api.ServerAway, match=r"\(server_timeout\): Request failed, see node logs; check"):
            network.run(rounds=5, server_timeout=1)
    assert len(calls) > 8 and time.monotonic() - begun < 1.9  # and not 1 s for each of four nodes


@pytest.fixture
def broken(monkeypatch):
    """A method that meets an error nobody foresaw in round 2."""
    weighted_mean, calls = Answers.weighted_mean, []

    def fails(answers, name):
        calls.append(name)
        if len(calls) % 2 == 0:
            raise NameError("nobody knows it")
        return weighted_mean(answers, name)

    monkeypatch.setattr(Answers, "weighted_mean", fails)


def test_an_unforeseen_error_at_central_says_where_it_was(broken):
    result = run()
    found = r"NameError at the coordinator, in test_central_and_server\.py, line \d+: nobody knows it"
    assert re.search(found, result["stopped"]) and len(result["history"]) == 1


def test_a_developer_sees_an_unforeseen_error_at_central_itself(broken, monkeypatch):
    monkeypatch.setenv("V6_FEDERATED_DEBUG", "1")
    with pytest.raises(NameError, match="nobody knows it"):
        run()
