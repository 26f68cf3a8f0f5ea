"""Tasks as they are sent to a server."""

from types import SimpleNamespace

from v6_workbench.network import submit


def test_a_task_brings_its_query():
    sent = []
    client = SimpleNamespace(task=SimpleNamespace(create=lambda **task: sent.append(task) or {"id": 7}))
    common = {"collaboration": 1, "organization": 1, "image": "v6-fedavg", "label": "warehouse"}
    assert submit.send(client, "fedavg", {"rounds": 1}, **common, query="select 1") == 7
    submit.send(client, "fedavg", {"rounds": 2, "model": "svm"}, **common)
    assert [task["description"] for task in sent] == ["fedavg, 1 rounds", "fedavg, 2 rounds of svm"]
    assert [task["databases"] for task in sent] == [
        [{"label": "warehouse", "query": "select 1"}],
        [{"label": "warehouse"}],
    ]
