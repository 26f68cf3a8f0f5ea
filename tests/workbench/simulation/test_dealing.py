"""Rows dealt to nodes, by a column that names the nodes."""

import json

import numpy as np
import pandas as pd
import pytest
from helpers import table

from v6_federated.base.errors import SafeError
from v6_workbench.cli.main import main
from v6_workbench.simulation import datasets, dealing, partitions


@pytest.fixture
def csv(tmp_path):
    """Writes a table to rows.csv, as pandas does."""

    def write(rows):
        file = tmp_path / "rows.csv"
        rows.to_csv(file, index=False)
        return file

    return write


def test_each_text_of_the_column_is_a_node(csv, capsys, tmp_path):
    """01 and 1 are two hospitals, as is NA; the other columns are read as always."""
    names = ["01", "1", "NA", "1.0"]
    rows = table(120).assign(site=np.tile(names, 30))
    file = csv(rows)
    dataset = datasets.load(str(file))
    dealt = dealing.deal(dataset, "column:site", None, 0, "label")
    for named in (dealt, dealing.deal_fold(dataset, "column:site", None, 0, "label", 0, 4)[0]):
        assert sorted(named) == sorted(names)
    for name, own in dealt.items():
        expected = rows[rows["site"] == name].drop(columns="site").reset_index(drop=True)
        pd.testing.assert_frame_equal(own, expected)
    run = ["run", "fedavg", "--data", str(file), "--label", "label", "--partition", "column:site"]
    assert main([*run, "--out", str(tmp_path / "r")]) == 0
    assert "4 nodes: 1: 01 (30), 2: 1 (30), 3: 1.0 (30), 4: NA (30)" in capsys.readouterr().out
    assert json.loads((tmp_path / "r" / "result.json").read_text())["experiment"]["nodes"] == sorted(names)


def test_an_empty_cell_does_not_name_a_node(csv):
    dataset = datasets.load(str(csv(table(40).assign(site=["NA", "2", "", "3"] * 10))))
    with pytest.raises(SafeError, match="the column site has missing values; expected a node's name in every row"):
        dealing.deal(dataset, "column:site", None, 0, "label")


def test_the_number_of_nodes_is_that_of_the_column(csv):
    dataset = datasets.load(str(csv(table(40).assign(site=["1", "2"] * 20))))
    assert len(dealing.deal(dataset, "column:site", 2, 0, "label")) == 2
    with pytest.raises(SafeError, match="--nodes is 3, but the column site names 2 nodes; remove --nodes"):
        dealing.deal(dataset, "column:site", 3, 0, "label")


def test_arrays_have_no_column_that_names_nodes():
    dataset = datasets.Dataset("d", (np.ones((20, 2)), np.arange(20) % 2))
    with pytest.raises(SafeError, match="no column 'site': d holds arrays; expected another partition, or a table"):
        dealing.deal(dataset, "column:site", None, 0, None)


@pytest.mark.parametrize("name", ["column:", "column"])
def test_a_partition_by_a_column_names_the_column(name):
    with pytest.raises(SafeError, match=f"the partition '{name}' lacks a name; expected column:NAME"):
        partitions.check(name)


def test_a_column_may_be_called_self(csv):
    rows = table(60)
    rows["self"] = ["01", "1"] * 30
    assert sorted(dealing.deal(datasets.load(str(csv(rows))), "column:self", None, 0, None)) == ["01", "1"]
