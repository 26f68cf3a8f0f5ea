"""Exported models and predictions."""

import json

import numpy as np
import pandas as pd
import pytest
from helpers import ALL_STEPS, pooled, table, train
from sklearn.decomposition import PCA

from v6_federated import models
from v6_federated.data import source
from v6_federated.messages import codec
from v6_federated.messages.job import DataSpec
from v6_federated.models import metrics
from v6_federated.node.state import State
from v6_federated.rules.policy import Policy
from v6_workbench.cli import results
from v6_workbench.cli.main import main
from v6_workbench.reporting import export, prediction


def same_as_at_the_node(result, rows, predicted):
    """The scores are those that a node has for the same rows."""
    spec = DataSpec(**{**result["data"], "holdout": 0.0})
    train_rows, _ = source.Source(table=rows).prepared(spec, 1, Policy.of("trusting"), trains=False)
    model = models.build(result["model"])
    w = codec.decode(result["weights"])["weights"]
    np.testing.assert_array_equal(np.float32(predicted["score"]), model.scores(w, train_rows.X)[:, 0])
    counts = metrics.evaluate(model, w, train_rows, 2, 0)["confusion"]
    assert np.mean(predicted["prediction"] == rows["label"]) == np.trace(counts) / len(rows)


@pytest.mark.parametrize("model", ["logreg", "fnn:hidden=6"])
def test_predict_gives_the_numbers_of_the_node(clinics, tmp_path, capsys, model):
    result = train("v6_fedavg", clinics, rounds=3, model=model, preprocess=ALL_STEPS)
    (tmp_path / "result.json").write_text(json.dumps(result))
    rows = clinics[2]
    rows.loc[1, "sex"] = "never seen"
    rows.to_csv(tmp_path / "rows.csv", index=False, float_format="%.17g")
    files = [tmp_path]
    for ending in ("npz", "safetensors", "pt"):
        files.append(tmp_path / f"model.{ending}")
        assert main(["export", str(tmp_path), "--to", str(files[-1])]) == 0
    tables = []
    for file in files:
        out = tmp_path / "predictions.csv"
        assert main(["predict", str(file), "--data", str(tmp_path / "rows.csv"), "--out", str(out)]) == 0
        line = json.loads(capsys.readouterr().out.splitlines()[-1])
        tables.append(pd.read_csv(out, float_precision="round_trip"))
        assert line["rows"] == 50 and line["accuracy"] == np.mean(tables[-1]["prediction"] == rows["label"])
    for other in tables[1:]:
        pd.testing.assert_frame_equal(other, tables[0])
    if model == "logreg":
        same_as_at_the_node(result, rows, tables[0])


def test_predict_needs_no_label_and_names_classes(tmp_path):
    nodes = {
        k: table(40, classes=3, seed=k).assign(label=lambda t: t["label"].map({0: "a", 1: "b", 2: "c"})) for k in (1, 2)
    }
    result = train("v6_fedavg", nodes, rounds=3, preprocess=["standardize"])
    predicted, measured = prediction.predict(result, source.Source(table=nodes[1].drop(columns="label")))
    assert measured == {} and list(predicted) == [
        "prediction",
        *(f"{what}={c}" for what in ("score", "probability") for c in "abc"),
    ]
    assert set(predicted["prediction"]) <= {"a", "b", "c"}


def test_folded_coefficients_predict_too(hospitals, tmp_path):
    """standardize and pca are linear: coef and intercept are for features as they are in the table."""
    result = train("v6_fedavg", hospitals, rounds=5, preprocess=["standardize", "pca:3"])
    export.save(result, tmp_path / "m.npz")
    with np.load(tmp_path / "m.npz") as model:
        X = hospitals[3].iloc[:, :-1].to_numpy()
        scores = X @ model["coef"][0] + model["intercept"]
    predicted, _ = prediction.predict(result, source.Source(table=hospitals[3]))
    np.testing.assert_allclose(scores, predicted["score"], atol=1e-5)


def test_components_are_exported_and_predict(hospitals, tmp_path):
    features = ["x0", "x1", "x2", "x3"]
    result = train("v6_pca", hospitals, components=2, features=features)
    export.save(result, tmp_path / "m.npz")
    theirs = PCA(2).fit(pooled(hospitals)[features])
    with np.load(tmp_path / "m.npz") as model:
        names = {"mean", "scale", "components", "explained_variance", "explained_variance_ratio"}
        assert names <= set(model.files)
        np.testing.assert_allclose(model["components"], theirs.components_, atol=1e-6)
    again, _ = prediction.predict(export.load(tmp_path / "m.npz"), source.Source(table=hospitals[8]))
    np.testing.assert_allclose(again, theirs.transform(hospitals[8][features]), atol=1e-5)
    assert list(again) == ["pc1", "pc2"]


def test_components_far_from_zero_predict_the_nodes_projection(monkeypatch):
    """Epoch seconds: float32 would not tell them apart."""
    rng = np.random.default_rng(0)
    nodes = {k: pd.DataFrame(1.7e9 + rng.normal(size=(30, 4)) * [9, 5, 2, 1], columns=list("abcd")) for k in (1, 2)}
    kept = {}
    save = State.save
    monkeypatch.setattr(State, "save", lambda self, arrays: (kept.update(arrays), save(self, arrays))[1])
    result = train("v6_pca", {2: nodes[2], 1: nodes[1]}, components=2, features=list("abcd"))
    projected, _ = prediction.predict(result, source.Source(table=nodes[2]))
    theirs = PCA(2, svd_solver="full").fit(pooled(nodes)).transform(nodes[2])  # its default loses these digits
    np.testing.assert_allclose(projected, theirs, atol=1e-4)
    np.testing.assert_allclose(kept["projection"], theirs, atol=1e-4)


def test_rows_without_a_label_are_predicted_and_not_counted(hospitals):
    result = train("v6_fedavg", hospitals, rounds=3)
    rows = hospitals[3].astype({"label": object})
    rows.loc[rows.index[:10], "label"] = None
    whole, _ = prediction.predict(result, source.Source(table=hospitals[3]))
    some, measured = prediction.predict(result, source.Source(table=rows))
    np.testing.assert_array_equal(whole["score"], some["score"])
    right = (whole["prediction"] == hospitals[3]["label"])[10:]
    assert measured["accuracy"] == pytest.approx(right.mean())
    assert prediction.predict(result, source.Source(table=rows.assign(label=None)))[1] == {}


def test_predict_on_arrays(tmp_path, capsys):
    rng = np.random.default_rng(0)
    nodes = {k: (rng.random((30, 5)), np.arange(30) % 2) for k in (1, 2)}
    result = train("v6_fedavg", nodes, rounds=1, preprocess=["standardize", "pca:2"])
    (tmp_path / "result.json").write_text(json.dumps(result))
    np.savez(tmp_path / "rows.npz", x=nodes[1][0], y=nodes[1][1])
    np.savez(tmp_path / "wide.npz", x=np.ones((30, 6)), y=np.arange(30) % 2)
    call = ["predict", str(tmp_path), "--out", str(tmp_path / "p.csv"), "--data"]
    assert main([*call, str(tmp_path / "rows.npz")]) == 0
    assert main([*call, str(tmp_path / "wide.npz")]) == 2
    assert "rows of 6 columns do not fit the model" in capsys.readouterr().err


@pytest.mark.parametrize("step", ["standardize", "clip:0.05", "impute:median", "pca:2"])
def test_arrays_have_no_names_of_columns(step, tmp_path, capsys):
    """Their models are exported, and their components shown, with whatever steps."""
    rng = np.random.default_rng(0)
    nodes = {k: (rng.random((30, 4)), np.arange(30) % 2) for k in (1, 2)}
    for package, model in (("v6_fedavg", "logreg"), ("v6_fedavg", "fnn:hidden=3"), ("v6_pca", "logreg")):
        results.write(tmp_path, train(package, nodes, rounds=2, preprocess=[step], model=model))
        assert main(["report", str(tmp_path)]) == 0
        assert ("column " in capsys.readouterr().out) == (package == "v6_pca")
        assert main(["export", str(tmp_path), "--to", str(tmp_path / "m.npz")]) == 0
        capsys.readouterr()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda rows: rows.drop(columns="x1"),
            "no column x1 in the table, with which the model was trained; the table has 'sex', 'x0', 'unit', 'x2', ",
        ),
        (
            lambda rows: rows.assign(x0="Smith"),
            "the column(s) x0 hold values that are not numbers (x0: all rows); a prediction",
        ),
        (
            lambda rows: rows.assign(x0=np.inf),
            "infinite values (or beyond 3.4e38) in the column(s) x0 (x0: all rows); a pred",
        ),
        (lambda rows: rows.assign(label=7), "some labels are not among the model's 2 classes"),
    ],
)
def test_predict_refuses_in_one_line(clinics, tmp_path, capsys, change, says):
    (tmp_path / "result.json").write_text(json.dumps(train("v6_fedavg", clinics, rounds=1, preprocess=ALL_STEPS)))
    change(clinics[2]).to_csv(tmp_path / "rows.csv", index=False)
    out = tmp_path / "p.csv"
    assert main(["predict", str(tmp_path), "--data", str(tmp_path / "rows.csv"), "--out", str(out)]) == 2
    err = capsys.readouterr().err
    assert says in err and "Smith" not in err and err.count("\n") == 1 and not out.exists()


def test_a_cell_that_no_step_fills_is_refused_with_what_a_reader_of_results_can_do(hospitals, tmp_path, capsys):
    (tmp_path / "result.json").write_text(json.dumps(train("v6_fedavg", hospitals, rounds=1)))
    hospitals[5].loc[3, "x2"] = np.nan
    hospitals[5].to_csv(tmp_path / "rows.csv", index=False)
    call = ["predict", str(tmp_path), "--data", str(tmp_path / "rows.csv"), "--out", str(tmp_path / "p.csv")]
    assert main(call) == 2
    assert capsys.readouterr().err == (
        "v6-federated: missing values in the column(s) x2 (x2: row 4); a prediction needs a usable value in each of "
        "the model's columns: correct these rows of --data, or remove them\n"
    )


def test_predict_needs_a_model(tmp_path, capsys):
    (tmp_path / "noise.npz").write_bytes(b"noise")
    np.savez(tmp_path / "other.npz", x=np.ones(3))
    for file, says in [
        (
            "noise.npz",
            "noise.npz cannot be read as .npz (broken archive); save it again with numpy.savez",
        ),
        (
            "other.npz",
            "other.npz is not an exported model (KeyError); expected a file that `v6-federated export` wrote",
        ),
        ("none.npz", "none.npz; expected a result.json, or a file that `v6-federated export` wrote"),
        ("none.json", "none.json; expected a result.json that `v6-federated run --out DIR` wrote"),
    ]:
        call = ["predict", str(tmp_path / file), "--data", "wine", "--out", str(tmp_path / "p.csv")]
        assert main(call) == 2
        assert says in capsys.readouterr().err
