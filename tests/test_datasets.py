"""Tables and archives as files hold them: what is read as text, what is refused."""

import json

import numpy as np
import pandas as pd
import pytest
from helpers import table

from v6_federated.base.errors import SafeError
from v6_federated.base.vantage6_api import DataError
from v6_federated.data import source
from v6_workbench.cli.main import main
from v6_workbench.simulation import datasets, partitions


@pytest.fixture
def csv(tmp_path):
    """Writes a table to rows.csv, as pandas does."""

    def write(rows):
        file = tmp_path / "rows.csv"
        rows.to_csv(file, index=False)
        return file

    return write


@pytest.fixture
def model(csv, tmp_path):
    """A result that predicts the label from x0 to x3."""
    out = tmp_path / "result"
    assert main(["run", "fedavg", "--data", str(csv(table(60))), "--nodes", "2", "--out", str(out)]) == 0
    return out


# ---- names of columns


@pytest.mark.parametrize("header", ["outcome,age,bmi,outcome", '\ufeffoutcome,age,bmi,"outcome"', "outcome,,,outcome"])
def test_a_column_named_twice_is_refused(tmp_path, capsys, model, header):
    file = tmp_path / "twice.csv"
    file.write_text(header + "\n" + "1,30,20,1\n0,40,21,0\n" * 20)
    capsys.readouterr()
    for command in (["run", "fedavg"], ["predict", str(model), "--out", str(tmp_path / "p.csv")]):
        assert main([*command, "--data", str(file)]) == 2
        err = capsys.readouterr().err
        says = "the first line of twice.csv has outcome more than once; expected each column's name once"
        assert says in err and len(err.splitlines()) == 1


def test_a_first_line_of_numbers_is_not_quoted(tmp_path):
    """Which may be a patient's, of a table without a header."""
    (tmp_path / "rows.csv").write_text("5.125,3,1,5.125\n" * 30)
    with pytest.raises(SafeError, match="has a number more than once") as told:
        datasets.load(str(tmp_path / "rows.csv"))
    assert "5.125" not in str(told.value)


def test_a_column_may_honestly_be_called_as_pandas_calls_a_second(tmp_path):
    (tmp_path / "rows.csv").write_text("a,a.1,,,a.2\n1,2,3,4,5\n")
    assert datasets.load(str(tmp_path / "rows.csv")).rows.iloc[0].tolist() == [1, 2, 3, 4, 5]


def test_a_first_line_that_is_a_patient_is_refused(tmp_path):
    (tmp_path / "rows.csv").write_text("84.5,3.25,0\n" + "80.5,3.5,1\n79.25,4.5,0\n" * 20)
    with pytest.raises(SafeError, match="most columns of rows.csv are called by numbers; expected their names") as told:
        datasets.load(str(tmp_path / "rows.csv"))
    assert "84.5" not in str(told.value)
    (tmp_path / "rows.csv").write_text("0,1,label\n" + "80.5,3.5,1\n79.25,4.5,0\n" * 20)  # as pandas writes arrays
    assert len(datasets.load(str(tmp_path / "rows.csv"))) == 40


def test_a_long_file_has_one_kind_of_value_a_column(tmp_path, recwarn):
    """Pandas reads long files in pieces, and would make numbers of codes in those pieces that hold no others."""
    names = [f"x{i}" for i in range(30)]
    line = ",".join(["0.5"] * 30)
    with (tmp_path / "rows.csv").open("w") as file:
        file.write(",".join([*names, "code"]) + "\n")
        file.writelines(f"{line},{250 if i < 36_000 else 'V27'}\n" for i in range(40_000))
    rows = datasets.load(str(tmp_path / "rows.csv")).rows
    assert {type(code) for code in rows["code"]} == {str} and not recwarn.list


# ---- rows to predict for


@pytest.mark.parametrize("y", [(30, 1), (1,), (20,), ()])
def test_labels_of_other_rows_are_refused(model, tmp_path, capsys, y):
    """Numpy would compare a column of labels with each prediction."""
    np.savez(tmp_path / "new.npz", x=np.ones((30, 4)), y=np.zeros(y))
    capsys.readouterr()
    for command in (["predict", str(model), "--out", str(tmp_path / "p.csv")], ["run", "fedavg"]):
        assert main([*command, "--data", str(tmp_path / "new.npz")]) == 2
        err = capsys.readouterr().err
        assert "do not fit; expected (n, ...) features and (n,) labels" in err and len(err.splitlines()) == 1


@pytest.mark.parametrize("x", [(), (30,)])
def test_features_that_are_no_table_are_refused(model, tmp_path, capsys, x):
    np.savez(tmp_path / "new.npz", x=np.ones(x))
    capsys.readouterr()
    assert main(["predict", str(model), "--out", str(tmp_path / "p.csv"), "--data", str(tmp_path / "new.npz")]) == 2
    assert "new.npz: x is no table; expected (n, ...) features" in capsys.readouterr().err
    np.savez(tmp_path / "new.npz", x=np.ones(x), y=np.ones(30))
    with pytest.raises(DataError, match="x and y do not fit"):
        source.read_npz(tmp_path / "new.npz")


def test_a_broken_picture_names_no_file(tmp_path):
    (tmp_path / "ill").mkdir()
    (tmp_path / "ill" / "Smith.png").write_bytes(b"noise")
    with pytest.raises(DataError, match="an image that cannot be read") as told:
        source.read_images(tmp_path)
    assert "Smith" not in str(told.value)


# ---- text as it stands


WRITTEN = ["00001", "1E2", "1.10", "7", "", "NA", " 1", '"', "a,b"]


def test_kept_columns_stand_as_they_are_in_the_file(csv, model, tmp_path):
    rows = table(len(WRITTEN)).assign(id=WRITTEN, number=["07", "", *["7"] * 7])
    new, out = csv(rows), tmp_path / "p.csv"
    assert main(["predict", str(model), "--data", str(new), "--keep", "number,id,x1", "--out", str(out)]) == 0
    told = pd.read_csv(out, dtype=str, keep_default_na=False)
    assert list(told) == ["number", "id", "x1", "prediction", "score", "probability=0", "probability=1"]
    assert told["id"].tolist() == WRITTEN and told["number"].tolist() == rows["number"].tolist()
    plain = tmp_path / "plain.csv"
    assert main(["predict", str(model), "--data", str(new), "--out", str(plain)]) == 0
    pd.testing.assert_frame_equal(
        told[["prediction", "score", "probability=0", "probability=1"]], pd.read_csv(plain, dtype=str)
    )  # x1 is still a feature


def test_each_text_of_the_partitions_column_is_a_node(csv, capsys, tmp_path):
    """01 and 1 are two hospitals, as is NA; the other columns are read as ever."""
    names = ["01", "1", "NA", "1.0"]
    rows = table(120).assign(site=np.tile(names, 30))
    file = csv(rows)
    dataset = datasets.load(str(file))
    for dealt in (
        datasets.deal(dataset, "column:site", None, 0, "label"),
        datasets.deal_fold(dataset, "column:site", None, 0, "label", 0, 4)[0],
    ):
        assert sorted(dealt) == sorted(names)
    for name, own in datasets.deal(dataset, "column:site", None, 0, "label").items():
        expected = rows[rows["site"] == name].drop(columns="site").reset_index(drop=True)
        pd.testing.assert_frame_equal(own, expected)
    run = ["run", "fedavg", "--data", str(file), "--label", "label", "--partition", "column:site"]
    assert main([*run, "--out", str(tmp_path / "r")]) == 0
    assert "4 nodes: 1: 01 (30), 2: 1 (30), 3: 1.0 (30), 4: NA (30)" in capsys.readouterr().out
    assert json.loads((tmp_path / "r" / "result.json").read_text())["experiment"]["nodes"] == sorted(names)


def test_an_empty_cell_names_no_node(csv):
    dataset = datasets.load(str(csv(table(40).assign(site=["NA", "2", "", "3"] * 10))))
    with pytest.raises(SafeError, match="missing values in the column site; expected a node's name in every row"):
        datasets.deal(dataset, "column:site", None, 0, "label")


@pytest.mark.parametrize("name", ["column:", "column"])
def test_a_partition_by_no_column(name):
    with pytest.raises(SafeError, match="expected column:COLUMN, for example column:hospital"):
        partitions.check(name)


# ---- archives


def test_an_npy_by_the_name_of_an_npz(tmp_path):
    np.save(tmp_path / "z.npy", np.ones((4, 2)))
    file = (tmp_path / "z.npy").rename(tmp_path / "z.npz")
    says = "z.npz is a .npy, one array without a name; expected .npz, as numpy.savez writes it"
    for read, error in ((source.open_source, DataError), (lambda path: datasets.load(str(path)), SafeError)):
        with pytest.raises(error, match=says):
            read(file)


# ---- which rows a result is of


def test_lists_in_a_column_that_is_not_used(tmp_path):
    rows = table(60)
    rows.insert(0, "notes", [[f"note {k}"] for k in range(60)])
    rows.to_parquet(tmp_path / "rows.parquet")
    run = ["run", "fedavg", "--data", str(tmp_path / "rows.parquet"), "--features", "x0,x1", "--rounds", "1"]
    assert main([*run, "--nodes", "2"]) == 0


def test_another_test_set_is_not_gone_on_with(tmp_path, capsys):
    rng = np.random.default_rng(0)
    arrays = {"x_train": rng.normal(size=(60, 3)), "y_train": np.arange(60) % 2}
    run = ["run", "fedavg", "--data", str(tmp_path / "d.npz"), "--nodes", "2"]
    for test in (1, 2):
        held = {"x_test": rng.normal(size=(20, 3)), "y_test": np.arange(20) % 2}
        np.savez(tmp_path / "d.npz", **arrays, **held)
        again = ["--resume", str(tmp_path / "one")] if test == 2 else ["--out", str(tmp_path / "one")]
        status = main([*run, "--rounds", str(test), *again])
        assert status == 2 * (test - 1)
    assert "the earlier job had other nodes or rows" in capsys.readouterr().err


def test_a_partition_by_a_column_called_self(tmp_path):
    rows = table(60)
    rows["self"] = ["01", "1"] * 30
    rows.to_csv(tmp_path / "rows.csv", index=False)
    named = datasets.deal(datasets.load(str(tmp_path / "rows.csv")), "column:self", None, 0, None)
    assert sorted(named) == ["01", "1"]
