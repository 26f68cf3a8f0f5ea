"""``submit``: what it asks of a server before a task is sent, and how it follows one."""

import json
from types import SimpleNamespace

import pytest

from v6_federated.base import logs
from v6_federated.base.errors import SafeError
from v6_federated.base.vantage6_api import CollectResultsError
from v6_workbench.cli import console
from v6_workbench.errors import NetworkError, ServerGone
from v6_workbench.network import submit


class Server:
    """A server that lists its nodes: one answer after another, then the last again and again."""

    def __init__(self, *answers):
        self.answers = list(answers)

    def request(self, endpoint, params=None):
        assert endpoint == "node"
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def nodes(*known):
    """Nodes of organizations 1, 2, ...: their status and the labels of their databases."""
    return {
        "data": [
            {
                "organization": {"id": k},
                "status": status,
                "config": [{"key": "database_labels", "value": label} for label in labels],
            }
            for k, (status, labels) in enumerate(known, start=1)
        ]
    }


def test_a_node_that_has_just_come_online_is_asked_again(monkeypatch):
    """It sends its labels a moment after it is online; nodes that never send them do not hinder a task."""
    monkeypatch.setattr(submit, "LABELS_SECONDS", 0)
    silent, known = nodes(("online", []), ("online", [])), nodes(("online", []), ("online", ["default"]))
    with pytest.raises(SafeError, match="organization 2: its node has no database 'other'; use --database default"):
        submit.check_nodes(Server(silent, known), 1, "other", None)
    assert submit.check_nodes(Server(silent), 1, "other", None) == []
    assert submit.check_nodes(Server(nodes(("offline", []), ("online", ["other"]))), 1, "other", None) == [1]


def test_an_organization_outside_the_collaboration_is_refused_with_the_names_of_those_inside(monkeypatch):
    here = nodes(("online", ["default"]), ("online", ["default"]))
    monkeypatch.setattr(submit.server, "organizations", lambda client: {1: "north"})  # the other one is not shown
    with pytest.raises(
        SafeError, match=r"organizations 3 have no node in the collaboration; expected some of 1 \(north\), 2"
    ):
        submit.check_nodes(Server(here), 1, "default", [1, 3])


def test_a_server_that_refuses_is_one_line():
    says = "^the server does not list its nodes: You lack the permission to do that!$"
    with pytest.raises(NetworkError, match=says):
        submit.check_nodes(Server({"msg": "You lack the permission to do that!"}), 1, "default", None)


def task(status, log="", result=None):
    """A client of a server with one task, whose run is number 9 at organization 4."""
    run = {"id": 9, "status": status, "log": log, "organization": {"id": 4}}
    return SimpleNamespace(
        task=SimpleNamespace(get=lambda task: {"image": "v6-a", "name": "v6-federated fedavg"}),
        result=SimpleNamespace(from_task=lambda task: {"data": [{"result": result}]}),
        request=lambda endpoint, params=None: {
            "run/9": {"log": log},
            "run": {"data": [run]},
            "task/1/status": {"status": status},
        }[endpoint],
    )


@pytest.mark.parametrize(
    ("client", "says"),
    [
        (task("non-existing Docker image"), "organization 4: its node does not find the image v6-a; expected one that"),
        (task("not allowed"), "organization 4: its node's policies do not allow the image v6-a"),
        (task("start failed"), "organization 4: its node could not start a container of the image v6-a; send the task"),
        (task("unknown error"), "organization 4: its node has lost the container of the task; send the task again"),
        (task("killed by user"), "organization 4: the task was stopped"),
        (task("completed"), "organization 4: the image v6-a ended without a result; expected the image of a vantage6"),
        (task("failed"), "organization 4: its run is failed, and its node does not share the log"),
        (
            task("failed", "a\nError encountered while calling central: 2 rounds are too many\n"),
            "2 rounds are too many",
        ),
        (
            task("failed", "Error encountered while calling central: unknown setting 'lr'; expected one of epochs\n"),
            "unknown setting 'lr'; expected one of epochs; this machine knows that setting, so the image v6-a holds "
            "older code than is here: build it again (`make images`)",
        ),
        (task("completed", result='{"method": "pca"}'), "the image v6-a does not hold fedavg; check --image"),
    ],
)
def test_a_task_without_a_result_says_why(client, says):
    with pytest.raises(CollectResultsError) as caught:
        submit.follow(client, 1, "fedavg", lambda row: None)
    assert str(caught.value).startswith(f"task 1: {says}")


def test_each_round_of_a_task_is_shown_once(monkeypatch, capsys):
    """Even of one that is resumed, and if central was started again; the bar counts from the first round."""
    rows = [{"round": t, "accuracy": 0.5} for t in range(1, 7)]
    log = [logs.ROUND + json.dumps(row) + "\n" for row in rows]
    result = {"method": "fedavg", "history": rows}
    # what the log holds at each look: rounds 4 and 5; a new log; the last line on its way; the task has ended
    looks = [log[3], "".join(log[3:5]), log[3], "".join(log[3:6])[:-2], "".join(log[3:6])[:-2]]

    class Researcher:
        result = SimpleNamespace(from_task=lambda task: {"data": [{"result": json.dumps(result)}]})

        def request(self, endpoint, params=None):
            if endpoint == "run":
                return {"data": [{"id": 9}]}
            return {"log": looks.pop(0)} if endpoint == "run/9" else {"status": "active" if looks[1:] else "completed"}

    monkeypatch.setattr(submit, "POLL_SECONDS", 0)
    shown = []
    with console.Bar(6, "fedavg", one_job=True) as bar:
        assert submit.follow(Researcher(), 1, "fedavg", lambda row: (shown.append(row["round"]), bar.on_round(row)))
    assert shown == [4, 5, 6]
    assert capsys.readouterr().err == "fedavg: round 6 of 6 accuracy 0.5000\n"


def test_a_server_that_no_longer_tells_the_status_ends_it_with_its_words(monkeypatch):
    """It answers, so the client's own limit does not count: for example if its database is gone."""
    monkeypatch.setattr(submit, "POLL_SECONDS", 0.05)
    client = SimpleNamespace(
        request=lambda endpoint, params=None: {"data": [{"id": 9}]} if endpoint == "run" else {"msg": "no database"}
    )
    says = r"^the server has not told the task's status for 0\.3 s \(--server-timeout\): no database$"
    with pytest.raises(ServerGone, match=says):
        submit.follow(client, 1, "fedavg", lambda row: None, patience=0.3)
