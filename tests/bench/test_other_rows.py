"""Tables of rows that take long, and are therefore run in parts or not at all: they say which."""

import json

import numpy as np
import pytest
from benchmarks import mcmahan2017, mcmahan2017_figures, mcmahan2017_shakespeare, nilsson2018, reddy2020, runs

from v6_workbench.simulation import datasets, partitions


@pytest.fixture
def few(digits, tmp_path, monkeypatch):
    """3,000 rows, for 100 nodes of 30; runs are kept apart from the real ones."""
    monkeypatch.setattr(runs, "RESULTS", tmp_path)
    digits = datasets.load(str(digits))
    return datasets.Dataset("digits", digits.take(np.arange(3000) % 700), digits.test)


def cells(lines):
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines if str(line).startswith("| ")]


def test_figures_3_and_8(few, tmp_path, monkeypatch):
    """The loss is that on all training rows; a decay takes the place of constant E; what takes hours is named."""
    monkeypatch.setattr(mcmahan2017_figures, "RATES_8", {"iid": 0.1})
    monkeypatch.setattr(mcmahan2017_figures, "ROUNDS_8", {1: 2, 25: 2, 400: 2})
    dataset = mcmahan2017_figures.on_training_rows(few)
    rows = {row[2]: row for row in cells(mcmahan2017_figures.table_8(dataset, True))[2:]}
    assert rows["E = 400"][3] == "not tried" and "E = 25" in rows
    kept = [json.loads(file.read_text()) for file in tmp_path.glob("mcmahan2017_figures/*.json")]
    assert {run["settings"]["data"].split()[0] for run in kept} == {"digits-training"}
    assert {f"{run['history'][-1][1]:.4f}" for run in kept} == {row[-2] for row in rows.values() if row[-2] != "-"}
    assert sum("epochs_decay_round" in run["settings"] for run in kept) == 1 and len(kept) == 4
    assert (tmp_path / "mcmahan2017_figures-8.png").exists()


def test_figure_6(few, tmp_path, monkeypatch):
    monkeypatch.setattr(mcmahan2017_figures, "ROUNDS_6", {None: {1: 10}})
    dataset = mcmahan2017_figures.on_training_rows(few)
    lines = [*mcmahan2017_figures.table_6(dataset, True)]
    rows = cells(lines)[2:]
    assert [row[:3] for row in rows] == [[p, "E = 1, B = all", "0.464"] for p in ("iid", "shards")]
    assert all(row[3] == row[-1] and row[-2] == "10" for row in rows)  # the loss after round 10 is the last
    assert lines[-1] == "![training loss by round, Figure 6](mcmahan2017_figures-6.png)"


def test_figure_3_names_what_needs_a_gpu(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "RESULTS", tmp_path)
    monkeypatch.setattr(runs, "only_kept", True)
    X, y = np.arange(320).reshape(4, 80) % 7, np.arange(4)
    plays = mcmahan2017_shakespeare.Plays("plays", (X, y), (X, y), roles=np.array([0, 0, 1, 1]))
    rows = cells(mcmahan2017_shakespeare.figure_3(plays))[2:]
    tried = {(rows, str(E)) for rows, E, B in mcmahan2017_shakespeare.TRIED if B == 10}
    assert {(row[0], row[1]) for row in rows if row[2] == "not run yet"} == tried
    assert len(rows) == 12 and {row[2] for row in rows} == {"not run yet", "not tried"}
    monkeypatch.setenv("V6_FEDERATED_DEVICE", "cuda")
    assert {row[2] for row in cells(mcmahan2017_shakespeare.figure_3(plays))[2:]} == {"not run yet"}


def test_unbalanced_nodes(few, monkeypatch):
    row = mcmahan2017.Row(("2nn", "iid", 0.1, 1, 10), {}, 3, (0.1,), (1, 2))
    monkeypatch.setattr(mcmahan2017, "UNBALANCED_ROWS", [row])
    monkeypatch.setattr(mcmahan2017, "UNBALANCED", {"iid": "size:0.1"})
    monkeypatch.setattr(mcmahan2017, "TARGET", {"2nn": 0.2})
    twice = datasets.Dataset("digits", few.take(np.arange(6000) % 700), few.test)
    (found,) = cells(mcmahan2017.unbalanced(twice))[2:]
    sizes = [len(p) for p in partitions.partition("size:0.1", mcmahan2017.labels_of(twice), 100, 1)]
    assert found[:2] == ["iid", "1"] and found[3] == "size:0.1" and found[5] == f"{min(sizes)} and {max(sizes)}"
    assert all(len(cell.split(", ")) == 2 for cell in (found[2], found[6]))


def test_the_other_rows_of_nilssons_searches(few, monkeypatch):
    """What is not kept is not run yet; what differs from the paper by its rounds is not counted."""
    monkeypatch.setattr(runs, "only_kept", True)
    lines = [*nilsson2018.searched(few)]
    compared = [line for line in lines if not isinstance(line, str)]
    assert len(compared) == 2 * len(nilsson2018.SEARCHED) == 18 and all(c.ours is None for c in compared)
    assert len({c.cell for c in compared}) == 18
    assert {bool(c.not_counted) for c in compared if c.table == "Table 4"} == {True}
    assert all("not run yet" in row for row in cells(line for line in lines if isinstance(line, str))[2:])
    monkeypatch.setattr(runs, "only_kept", False)
    method, partition, settings, *rest = nilsson2018.SEARCHED[0]
    monkeypatch.setattr(nilsson2018, "SEARCHED", [(method, partition, {**settings, "rounds": 2}, *rest)])
    ran = [line for line in nilsson2018.searched(few) if not isinstance(line, str)]
    assert [c.seeds for c in ran] == [1, 1] and ran[0].ours >= ran[1].ours


def test_more_nodes_and_passes_of_reddy(few, monkeypatch):
    """Bytes are counted against rho = 1 with the same nodes: rho = 20 communicates a twentieth as often."""
    monkeypatch.setattr(reddy2020, "PARTITIONS", ("balanced",))
    monkeypatch.setattr(reddy2020, "NODES", (3,))
    monkeypatch.setattr(reddy2020, "MORE_NODES", ())
    monkeypatch.setattr(reddy2020, "OPTIMIZERS", {"sgd": reddy2020.OPTIMIZERS["sgd"]})
    (row,) = cells(reddy2020.more_nodes(few))[2:]
    assert row[:2] == ["balanced", "3"] and len(row) == 2 + 5 + 4
    assert [cell.split(" ")[1] for cell in row[2:7]] == ["(1)", "(10)", "(20)", "(50)", "(100)"]
    monkeypatch.setattr(runs, "only_kept", True)
    monkeypatch.setattr(reddy2020, "NODES", (4,))
    (row,) = cells(reddy2020.more_nodes(few))[2:]
    assert row == ["balanced", "4", *"-" * 9]
