"""Calls to vantage6's server, which may be away for a moment."""

from types import SimpleNamespace

import pytest

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


def test_a_server_that_stays_away_ends_the_job():
    client = client_of([ConnectionError()] * vantage6_api.PATIENCE + [[{"id": 7}]])
    with pytest.raises(CollectResultsError, match=r"did not answer 60 requests in a row \(ConnectionError\)"):
        vantage6_api.organizations(client)


def test_a_task_that_the_server_refuses_is_not_sent_again():
    created = []
    task = SimpleNamespace(create=lambda **task: created.append(task) or {"msg": "no such image"})
    client = SimpleNamespace(task=task, request=None)
    with pytest.raises(CollectResultsError, match="the server refused the task 'update': no such image"):
        vantage6_api.create_task(client, {"method": "update", "kwargs": {}}, [3], "update")
    assert len(created) == 1
