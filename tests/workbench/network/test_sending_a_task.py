"""Tasks as they are sent to a server."""

from types import SimpleNamespace

import pytest

from v6_federated.base.vantage6_api import FIVE
from v6_workbench.network import submit


@pytest.mark.skipif(FIVE, reason="in vantage6 5 nodes extract their rows first: test_rows_of_a_task")
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
