"""The rows of a task of vantage6 5: nodes extract them in a task of its own, before the method's."""

from types import SimpleNamespace

import pytest

from v6_federated.base.vantage6_api import CollectResultsError
from v6_workbench.network import submit
from v6_workbench.network.client import Rows


def run(organization, status, log=""):
    return {"id": organization, "organization": {"id": organization}, "status": status, "log": log}


@pytest.fixture
def server(monkeypatch):
    """A server that answers with these runs, one list after another; what it was asked to stop, and what was sent."""
    monkeypatch.setattr(submit, "POLL_SECONDS", 0)
    monkeypatch.setattr(submit, "rows_for", lambda *asked: Rows([{"dataframe_id": 3}], session=5, task=7))
    stopped, sent, looks = [], [], []

    def request(endpoint, method="get", json=None, params=None):
        if endpoint == "kill/task":
            stopped.append(json["id"])
            return {}
        assert endpoint == "run" and params["task_id"] == 7
        return {"data": looks.pop(0)}

    def create(client, rows, values, **about):
        sent.append(rows)
        return {"id": 8}

    monkeypatch.setattr(submit, "create_task", create)
    client = SimpleNamespace(request=request, task=SimpleNamespace(get=lambda task: {"image": "v6-a", "name": ""}))
    return SimpleNamespace(client=client, looks=looks, stopped=stopped, sent=sent, said=[])


def send(server):
    about = {"collaboration": 1, "organization": 1, "organizations": [1, 2], "image": "v6-a", "label": "default"}
    return submit.send(server.client, "fedavg", {"rounds": 1}, **about, say=server.said.append)


def test_the_task_is_sent_once_all_nodes_have_their_rows(server):
    server.looks += [
        [run(1, "pending"), run(2, "active")],
        [run(1, "pending"), run(2, "completed")],
        [run(1, "completed"), run(2, "completed")],
    ]
    assert send(server) == 8
    assert [rows.session for rows in server.sent] == [5] and not server.stopped
    assert server.said[1:] == [
        "organization 2 has extracted its rows (1 of 2)",
        "organization 1 has extracted its rows (2 of 2)",
    ]


@pytest.mark.parametrize(
    ("runs", "says"),
    [
        (
            [run(1, "failed", "Marked as failed because sibling run id=2 failed"), run(2, "crashed", "x")],
            "task 7: x; nothing was trained",
        ),
        (
            [
                run(1, "active"),
                run(2, "crashed", "Error encountered while calling extract: organization 2: no\n"),
            ],
            "task 7: organization 2: no; nothing was trained. Correct this, or name the other organizations with --set",
        ),
        ([run(1, "not allowed")], "task 7: organization 1: its node's policies do not allow the image v6-a, or"),
        ([run(1, "unexpected output")], "task 7: organization 1: the image v6-a extracted no table; expected the"),
        ([run(1, "crashed")], "task 7: organization 1: its run is crashed, and its node does not share the log"),
    ],
)
def test_a_node_that_cannot_extract_its_rows_ends_it(server, runs, says):
    server.looks.append(runs)
    with pytest.raises(CollectResultsError) as caught:
        send(server)
    assert str(caught.value).startswith(says) and "\n" not in str(caught.value)
    assert server.stopped == [7] and not server.sent
