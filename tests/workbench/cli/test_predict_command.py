"""``predict``: predictions for new rows."""

import numpy as np
import pandas as pd
import pytest
from helpers import table

from v6_federated.base import files


@pytest.fixture
def model(call, tmp_path):
    """A result that predicts the label from x0 to x3."""
    table(60).to_csv(tmp_path / "train.csv", index=False)
    out = tmp_path / "result"
    assert call("run", "fedavg", "--data", tmp_path / "train.csv", "--nodes", 2, "--out", out)[0] == 0
    return out


def test_features_are_enough(call, refused, tmp_path):
    """A file of one column, arrays without labels; of a file with a test set, its test set."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 1))
    y = (X[:, 0] > 0).astype(int)
    pd.DataFrame({"x": X[:, 0], "ill": y}).to_csv(tmp_path / "rows.csv", index=False)
    pd.DataFrame({"x": X[:7, 0]}).to_csv(tmp_path / "new.csv", index=False)
    np.savez(tmp_path / "all.npz", x_train=X, y_train=y, x_test=X[:11], y_test=y[:11])
    np.savez(tmp_path / "new.npz", x=X[:5])
    out = tmp_path / "p.csv"
    for kind, rows, news in [("csv", "rows.csv", {"new.csv": 7}), ("npz", "all.npz", {"all.npz": 11, "new.npz": 5})]:
        run = ["run", "fedavg", "--data", tmp_path / rows, "--nodes", 2, "--set", "lr=1", "--rounds", 20]
        assert call(*run, "--out", tmp_path / kind)[0] == 0
        for new, n in news.items():
            status, line, _ = call("predict", tmp_path / kind, "--data", tmp_path / new, "--out", out)
            assert status == 0 and line["rows"] == n == len(pd.read_csv(out))
            assert ("accuracy" in line) == (new == "all.npz")
            if "accuracy" in line:  # exact, from the rows themselves
                lower, upper = line["accuracy_interval"]
                assert lower < line["accuracy"] <= upper and 0 < line["auc_interval"][0] < line["auc"] <= 1
    (tmp_path / "odd.csv").write_text("x,ill\n1.0,?\n")
    says = "some labels are not among the model's 2 classes; correct them, or remove the column ill"
    refused(says, "predict", tmp_path / "csv", "--data", tmp_path / "odd.csv", "--out", out)


def test_a_file_without_rows_is_refused(model, refused, tmp_path):
    (tmp_path / "none.csv").write_text("x0,x1,x2,x3\n")
    refused("none.csv has no rows", "predict", model, "--data", tmp_path / "none.csv", "--out", tmp_path / "p.csv")


@pytest.mark.parametrize("y", [(30, 1), (1,), (20,), ()])
def test_labels_of_other_rows_are_refused(model, refused, tmp_path, y):
    """numpy would compare a column of labels with each prediction."""
    np.savez(tmp_path / "new.npz", x=np.ones((30, 4)), y=np.zeros(y))
    for command in (["predict", model, "--out", tmp_path / "p.csv"], ["run", "fedavg"]):
        refused("expected (n, ...) features and (n,) labels", *command, "--data", tmp_path / "new.npz")


@pytest.mark.parametrize("x", [(), (30,)])
def test_features_that_are_not_a_table_are_refused(model, refused, tmp_path, x):
    np.savez(tmp_path / "new.npz", x=np.ones(x))
    says = f"new.npz: x has {len(x)} dimension(s); expected two or more, (n, ...) features"
    refused(says, "predict", model, "--out", tmp_path / "p.csv", "--data", tmp_path / "new.npz")


def test_what_the_new_rows_may_hide_is_printed(call, tmp_path):
    for i, name in enumerate(["north", "south"]):
        rows = table(40, seed=i).assign(sex=["F", "M"] * 20, crp=1.5)
        rows[["crp", "sex", "x0", "x1", "label"]].to_csv(tmp_path / f"{name}.csv", index=False)
    data = ["--data", tmp_path / "north.csv", "--data", tmp_path / "south.csv"]
    steps = ["--preprocess", "impute", "--preprocess", "onehot"]
    assert call("run", "fedavg", *data, *steps, "--out", tmp_path / "out")[0] == 0
    table(30).assign(sex=["F", "x", "x"] * 10, crp=np.nan).to_csv(tmp_path / "new.csv", index=False)
    new = ["--data", tmp_path / "new.csv", "--out", tmp_path / "p.csv"]
    status, _, err = call("predict", tmp_path / "out", *new)
    assert status == 0 and "sex: 20 of 30 rows have a level that the model does not know" in err
    assert "crp: no row has a value" in err


def test_the_level_that_a_regression_compares_with_is_known(call, tmp_path):
    rows = table(80).assign(sex=["F", "M"] * 40)[["sex", "x0", "x1", "label"]]
    rows.to_csv(tmp_path / "rows.csv", index=False)
    data = ["--data", tmp_path / "rows.csv"]
    assert call("run", "fedavg", *data, "--nodes", 2, "--preprocess", "onehot:drop=first", "--out", tmp_path)[0] == 0
    status, _, err = call("predict", tmp_path, *data, "--out", tmp_path / "p.csv")
    assert status == 0 and "level" not in err
    rows.assign(sex=["F", "x"] * 40).to_csv(tmp_path / "rows.csv", index=False)
    _, _, err = call("predict", tmp_path, *data, "--out", tmp_path / "p.csv")
    assert "sex: 40 of 80 rows have a level that the model does not know; they count as F" in err


def test_kept_columns_come_first(hospitals_csv, call, refused, tmp_path):
    file, rows = hospitals_csv
    run = ["run", "fedavg", "--data", file, "--label", "outcome", "--features", "x,z", "--nodes", 3]
    assert call(*run, "--out", tmp_path / "r")[0] == 0
    predict = ["predict", tmp_path / "r", "--data", file]
    assert call(*predict, "--out", tmp_path / "p.csv", "--keep", "id,hospital")[0] == 0
    found = pd.read_csv(tmp_path / "p.csv")
    assert [*found.columns] == ["id", "hospital", "prediction", "score", "probability=died", "probability=home"]
    assert found["id"].tolist() == rows["id"].tolist()
    np.testing.assert_allclose(found["probability=home"], 1 / (1 + np.exp(-found["score"])), rtol=1e-6)
    np.testing.assert_allclose(found["probability=died"] + found["probability=home"], 1)
    assert (found["prediction"] == np.where(found["probability=home"] > 0.5, "home", "died")).all()
    keep = [*predict, "--out", tmp_path / "p.csv", "--keep"]
    refused("--keep name: no such column in", *keep, "name")
    refused("is the file of --data, which would be overwritten; choose another --out", *predict, "--out", file)
    assert len(pd.read_csv(file)) == 300
    np.savez(tmp_path / "new.npz", x=rows[["x", "z"]].to_numpy())
    refused("--keep names columns, and ", *predict[:3], tmp_path / "new.npz", *keep[4:], "id")


WRITTEN = ["00001", "1E2", "1.10", "7", "", "NA", " 1", '"', "a,b"]


def test_kept_columns_have_the_text_of_the_file(model, call, tmp_path):
    rows = table(len(WRITTEN)).assign(id=WRITTEN, number=["07", "", *["7"] * 7])
    new, out = tmp_path / "new.csv", tmp_path / "p.csv"
    rows.to_csv(new, index=False)
    assert call("predict", model, "--data", new, "--keep", "number,id,x1", "--out", out)[0] == 0
    found = pd.read_csv(out, dtype=str, keep_default_na=False)
    predicted = ["prediction", "score", "probability=0", "probability=1"]
    assert list(found) == ["number", "id", "x1", *predicted]
    assert found["id"].tolist() == WRITTEN and found["number"].tolist() == rows["number"].tolist()
    assert call("predict", model, "--data", new, "--out", tmp_path / "plain.csv")[0] == 0
    plain = pd.read_csv(tmp_path / "plain.csv", dtype=str)
    pd.testing.assert_frame_equal(found[predicted], plain)  # a kept column is still a feature


def test_an_exported_model_predicts_as_its_result(model, call, tmp_path):
    assert call("export", model, "--to", tmp_path / "m.npz")[0] == 0
    lines = []
    for source in (model, tmp_path / "m.npz"):
        out = tmp_path / f"{source.name}.csv"
        assert call("predict", source, "--data", tmp_path / "train.csv", "--out", out)[0] == 0
        lines.append(out.read_text())
    assert lines[0] == lines[1]


def test_formulas_in_names_of_classes_and_in_kept_columns_are_escaped(call, tmp_path):
    """The names of classes come from nodes, and a spreadsheet would run them."""
    rows = table(60)
    rows["label"] = rows["label"].map({0: '=HYPERLINK("http://evil","no")', 1: "@yes"})
    rows.insert(0, "=id", [f"+{i}" if i else "=1+1" for i in range(60)])
    rows.to_csv(tmp_path / "rows.csv", index=False)
    features = "x0,x1,x2,x3"
    run = ["run", "fedavg", "--data", tmp_path / "rows.csv", "--nodes", 2, "--features", features]
    assert call(*run, "--out", tmp_path / "r")[0] == 0
    new = ["--data", tmp_path / "rows.csv", "--keep", "=id", "--out", tmp_path / "p.csv"]
    assert call("predict", tmp_path / "r", *new)[0] == 0
    found = pd.read_csv(tmp_path / "p.csv", dtype=str)
    assert found.columns[0] == "'=id" and found["'=id"][:2].tolist() == ["'=1+1", "+1"]
    assert {*found["prediction"]} <= {'\'=HYPERLINK("http://evil","no")', "'@yes"}
    assert found["score"].str.startswith("-").any()


def test_a_full_disk_is_one_line_and_the_file_stays(model, call, tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    (tmp_path / "p.csv").write_text("before")
    monkeypatch.setattr(files.os, "replace", full)
    status, _, err = call("predict", model, "--data", tmp_path / "train.csv", "--out", tmp_path / "p.csv")
    assert status == 1 and err.startswith(f"v6-federated: --out {tmp_path}/p.csv cannot be written (No space left on")
    assert len(err.splitlines()) == 1 and (tmp_path / "p.csv").read_text() == "before"


def test_an_accuracy_says_which_rows_it_holds_for(model, call, tmp_path):
    """A model does not say which rows it was trained on. Without labels there is nothing to say."""
    says = "hold for rows that the model was not trained on"
    assert says in call("predict", model, "--data", tmp_path / "train.csv", "--out", tmp_path / "p.csv")[2]
    table(9).drop(columns="label").to_csv(tmp_path / "new.csv", index=False)
    assert says not in call("predict", model, "--data", tmp_path / "new.csv", "--out", tmp_path / "p.csv")[2]


def test_cells_that_cannot_be_used_are_named_by_their_rows(model, refused, tmp_path):
    def says(text, **cells):
        rows = table(20).drop(columns="label").astype(object)
        for column, wrong in cells.items():
            for row, value in wrong.items():
                rows.loc[row - 1, column] = value
        rows.to_csv(tmp_path / "new.csv", index=False)
        out = tmp_path / "p.csv"
        line = refused(text, "predict", model, "--data", tmp_path / "new.csv", "--out", out)
        assert "mg" not in line and "n.a." not in line, "a value"

    says("missing values in the column(s) x1 (x1: rows 3, 17); a prediction needs", x1={3: None, 17: None})
    says("are not numbers (x2: row 4); a prediction needs", x2={4: "12 mg/l", 9: None}, x1={2: None})
    says("infinite values (or beyond 3.4e38) in the column(s) x0 (x0: row 2)", x0={2: 1e300}, x1={5: None})
    many = dict.fromkeys(range(1, 13), "n.a. ")
    says("(x0: rows 1, 2, 3, 4, 5, ... (12 rows); x3: row 7)", x0=dict.fromkeys(many), x3={7: None})


def test_missing_values_that_a_step_fills_are_not_named(call, refused, tmp_path):
    train = table(60).assign(sex=["f", "m"] * 30)[["x0", "x1", "sex", "label"]]
    train.to_csv(tmp_path / "train.csv", index=False)
    steps = ["--preprocess", "impute", "--preprocess", "onehot", "--out", tmp_path / "r"]
    assert call("run", "fedavg", "--data", tmp_path / "train.csv", "--nodes", 2, *steps)[0] == 0
    train.assign(x0=np.nan, sex=["f", None, "m"] * 20).to_csv(tmp_path / "new.csv", index=False)
    predict = ["predict", tmp_path / "r", "--data", tmp_path / "new.csv", "--out", tmp_path / "p.csv"]
    refused("in the column(s) sex (sex: rows 2, 5, 8, 11, 14, ... (20 rows)); a prediction needs", *predict)
