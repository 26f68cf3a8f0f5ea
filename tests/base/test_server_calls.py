"""Calls to vantage6's server, which may be away for a moment, or for good."""

import itertools
import logging
import time
from types import SimpleNamespace

import pytest
from vantage6.algorithm.client import AlgorithmClient

from v6_federated.base import vantage6_api
from v6_federated.base.vantage6_api import CollectResultsError


def client_of(answers):
    """A client whose server gives one answer after the other; an exception is raised."""
    left = iter(answers)

    def listed():
        answer = next(left)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return SimpleNamespace(organization=SimpleNamespace(list=listed), request=None)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    monkeypatch.setattr(vantage6_api, "POLL_SECONDS", 0)


def test_a_server_that_is_away_for_a_moment_is_asked_again():
    """Already when central asks for the organizations, which it does first."""
    client = client_of([KeyError("data"), ConnectionError(), [{"id": 7}, {"id": 3}]])
    assert vantage6_api.organizations(client) == [3, 7]


def test_a_server_that_stays_away_ends_the_job_within_its_limit():
    client = client_of(itertools.repeat(ConnectionError()))
    vantage6_api.be_patient(client, 0.3)
    begun = time.monotonic()
    says = r"the server has not answered for 0\.3 s \(server_timeout\): ConnectionError; check that it runs"
    with pytest.raises(vantage6_api.ServerAway, match=says):
        vantage6_api.organizations(client)
    assert 0.3 <= time.monotonic() - begun < 3


def test_the_limit_begins_anew_once_the_server_has_answered():
    client = client_of([ConnectionError(), [{"id": 7}], ConnectionError(), [{"id": 3}]])
    vantage6_api.be_patient(client, 0.3)
    assert vantage6_api.organizations(client) == [7]
    time.sleep(0.4)
    assert vantage6_api.organizations(client) == [3]


@pytest.fixture
def at_a_node(monkeypatch):
    """A client of a container whose node's proxy is gone: vantage6's own client tries again without end."""
    client = object.__new__(AlgorithmClient)
    client._access_token = None
    of_four = {"host": "http://127.0.0.1", "port": 9, "api_path": "/api"}
    for part, value in {**of_four, "hq_url": "http://127.0.0.1:9/api"}.items():  # vantage6 5 has one address
        setattr(client, f"_ClientBase__{part}", value)
    client.log = logging.Logger("silent", logging.CRITICAL + 1)
    client.organization = AlgorithmClient.Organization(client)
    client.task = AlgorithmClient.Task(client)
    client.cryptor = None
    client.collaboration_id = client.organization_id = 1
    client.study_id = client.store_id = None
    client.image, client.databases = "v6-fedavg", []
    vantage6_api.be_patient(client, 0.5)
    return client


def test_the_clients_own_endless_retries_are_outlived(at_a_node):
    begun = time.monotonic()
    with pytest.raises(vantage6_api.ServerAway, match=r"\(server_timeout\): no answer within 1 s"):
        vantage6_api.organizations(at_a_node)
    with pytest.raises(vantage6_api.ServerAway):  # what comes later, such as the job's last words, fails at once
        vantage6_api.wait_for_any(at_a_node, [1, 2, 3])
    assert time.monotonic() - begun < 10


def test_a_task_that_the_server_refuses_is_not_sent_again():
    created = []
    task = SimpleNamespace(create=lambda **task: created.append(task) or {"msg": "no such image"})
    client = SimpleNamespace(task=task, request=None)
    with pytest.raises(CollectResultsError, match="the server refused the task 'update': no such image"):
        vantage6_api.create_task(client, {"method": "update", "kwargs": {}}, [3], "update")
    assert len(created) == 1
