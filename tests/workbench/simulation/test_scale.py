"""What many mock nodes cost: one file for the rows of all, nothing per node until it is needed, short messages."""

import os
import time
import tracemalloc

import numpy as np
import pandas as pd
import pytest
from helpers import OPEN, table

from v6_workbench import Experiment, load
from v6_workbench.conformance.jobs import Tape
from v6_workbench.simulation import mock_client, mock_node, row_store
from v6_workbench.simulation.mock import MockNetwork
from v6_workbench.simulation.row_store import RowStore


def network_of(nodes, **options):
    X, y = np.random.default_rng(0).normal(size=(20, 3)), np.arange(20) % 2
    return MockNetwork(
        "v6_fedavg", {k: (X, y) for k in range(1, nodes + 1)}, environment=OPEN, on_round=lambda row: None, **options
    )


def test_the_number_of_files_does_not_grow_with_the_nodes():
    found = {}
    for nodes in (5, 200):
        with network_of(nodes) as network:
            network.run(rounds=1, fraction=0.01, holdout=0.0)
            found[nodes] = sorted(str(file.relative_to(network.folder)) for file in network.folder.rglob("*"))
    # central runs at the first node, and had its checkpoint there
    assert found[5] == found[200] == ["node-1", "node-1/tmp", "rows"]


def test_thousands_of_nodes_are_set_up_in_seconds():
    started = time.monotonic()
    with network_of(5000) as network:
        assert len(network.nodes) == 5000
    assert time.monotonic() - started < 20  # 0.5 on an idle machine; 7 when each node had its own files


def test_a_round_that_asks_few_of_many_nodes_sends_short_messages():
    tape = Tape()
    with network_of(300, outcomes=tape) as network:
        network.run(rounds=1, fraction=0.01, holdout=0.0, evaluate_every=2)
    wave = next(wave for wave in tape.waves() if wave.function == "client_update")
    assert len(wave.organizations) == 3
    assert next(call for call in tape.calls if call.own).message["kwargs"]["job"]["participants"] == [[1, 300]]


def test_calls_whose_answers_were_taken_need_hardly_any_memory():
    """Of 10,000 nodes and 100 rounds, they took half a gigabyte."""
    with network_of(100) as network:
        settings = {"classes": [0, 1], "holdout": 0.0}
        network.run(**settings, rounds=2)
        client = network.client()
        before = client.calls
        tracemalloc.start()
        try:
            network.run(**settings, rounds=20)
            kept = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, mock_client.__file__)])
        finally:
            tracemalloc.stop()
        assert client.calls - before >= 2000
        assert sum(trace.size for trace in kept.traces) < 50 * (client.calls - before)  # 500 once


def test_experiments_read_the_limits_of_equal_nodes_once(monkeypatch):
    from v6_federated.rules.policy import Policy

    read, of_node = [], Policy.of_node
    monkeypatch.setattr(Policy, "of_node", classmethod(lambda cls, env=None: read.append(1) or of_node(env)))
    monkeypatch.setattr(MockNetwork, "run", lambda self, **values: {"history": []})
    counts = []
    for nodes in (10, 100):
        read.clear()
        Experiment(load(table(2000)), nodes=nodes, processes=1).federated("fedavg", rounds=1)
        counts.append(len(read))
    assert counts[0] == counts[1]


# ---- the rows of all nodes in one file


def test_rows_are_read_as_they_were_and_cannot_be_changed(tmp_path):
    mixed = table(30).assign(
        word=["a", "b", None] * 10, day=pd.Timestamp("2026-01-01"), level=pd.Categorical(["x"] * 30)
    )
    mixed["object"] = pd.Series(["a", 1, None] * 10, dtype=object)  # from pandas 3 on, words have a type of their own
    X = np.arange(24.0).reshape(12, 2)
    kept = [mixed, mixed.iloc[:0], mixed.iloc[3:9], (X, np.arange(12)), (X[::2, ::-1], X[::2, 0])]
    kept += [(np.asfortranarray(X), np.array(["yes", "no"] * 6)), (X.astype(np.uint8), np.array(["a", 1] * 6, object))]
    store = RowStore(tmp_path / "rows")
    records = [mock_node.stored(1, rows, store) for rows in kept]
    store.flush()
    for rows, record in zip(kept, records, strict=True):
        found = mock_node.source_of(record.open())
        if isinstance(rows, pd.DataFrame):
            pd.testing.assert_frame_equal(found.table, rows)
            numbers = [found.table[name].to_numpy() for name in ("x0", "object", "label")]
        else:
            assert (rows[0] == found.X).all() and found.X.shape == rows[0].shape
            assert found.y.dtype == rows[1].dtype and (found.y == rows[1]).all()
            numbers = [found.X, found.y]
        assert not any(array.flags.writeable for array in numbers if array.size)
        assert all(array.flags.aligned for array in numbers)
    nothing = store.add(X[:0])
    store.flush()
    assert nothing.open()[0].shape == (0, 2)
    assert len([*tmp_path.iterdir()]) == 1
    store.close()


def test_tables_of_words_alone_are_told_apart(tmp_path):
    """They leave nothing in the file, and the caller's table stays as it is."""
    store = RowStore(tmp_path / "rows")
    words = pd.DataFrame({"word": ["a", "b"]}, dtype=object)
    records = [mock_node.stored(k, words.assign(word=[f"a{k}", "b"]), store) for k in range(3)]
    records.append(mock_node.stored(3, words, store))
    store.flush()
    assert len({*records}) == 4
    assert [mock_node.source_of(record.open()).table["word"][0] for record in records] == ["a0", "a1", "a2", "a"]
    words.loc[:, "word"] = "c"
    assert mock_node.source_of(records[3].open()).table["word"].tolist() == ["a", "b"]
    store.close()


@pytest.mark.parametrize("processes", [1, 2])
def test_a_node_cannot_change_its_rows_for_the_next_call(processes, monkeypatch):
    rows = {k: table(40, seed=k) for k in (1, 2)}
    with MockNetwork("v6_fedavg", rows, environment=OPEN, processes=processes) as network:
        found = mock_node.source_of(network.nodes[1].rows.open()).table
        for name in ("x0", "label"):
            with pytest.raises(ValueError, match="read-only"):
                found[name].to_numpy()[:] = 0
        pd.testing.assert_frame_equal(mock_node.source_of(network.nodes[1].rows.open()).table, rows[1])


def test_open_databases_take_one_file_descriptor(tmp_path):
    """A process has about a thousand of them, some of which notebooks need."""
    store = RowStore(tmp_path / "rows")
    records = [store.add(np.full((3, 2), k, np.float32), np.arange(3)) for k in range(50)]
    store.flush()
    before = len(os.listdir("/proc/self/fd"))
    opened = [record.open() for record in records]
    assert len(os.listdir("/proc/self/fd")) <= before + 1
    assert all((k == X).all() for k, (X, _) in enumerate(opened))
    store.close()
    row_store.forget()
