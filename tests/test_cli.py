"""The command line as its users call it."""

import errno
import json
import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import requests
import torch
from helpers import table, train
from safetensors.numpy import load_file
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression

from v6_federated.base import vantage6_api
from v6_federated.base.errors import SafeError
from v6_federated.messages import codec
from v6_workbench import registry
from v6_workbench.cli import commands, console, network_commands
from v6_workbench.cli import main as command_line
from v6_workbench.cli.main import main
from v6_workbench.errors import NetworkError
from v6_workbench.network import local, submit
from v6_workbench.reporting import diagnostics
from v6_workbench.simulation.mock import MockNetwork

RUN = ["run", "fedavg", "--data", "breast-cancer", "--rounds", "2"]


FEW = {"pca": {"components": 2}, "gbdt": {"min_rows_leaf": 10}}  # what 40 rows need


def call(capsys, *arguments):
    """Exit status, last line of standard output, and standard error."""
    try:
        status = main([str(a) for a in arguments])
    except SystemExit as error:
        status = error.code
    out, err = capsys.readouterr()
    return status, json.loads(out.strip().splitlines()[-1]) if status == 0 and out.strip().endswith("}") else out, err


def test_run_writes_result_and_curves(capsys, tmp_path):
    status, line, _ = call(
        capsys, *RUN, "--preprocess", "standardize", "--out", tmp_path, "--target", "0.5", "--seed", "3"
    )
    assert status == 0
    assert list(line) == [
        "method",
        "rounds",
        "accuracy",
        "auc",
        "loss",
        "rounds_to_target",
        "uploads_to_target",
        "bytes_to_target",
        "seconds_to_target",
        "uploads",
        "bytes_up",
        "bytes_down",
        "seconds",
        "seed",
    ]
    assert (line["method"], line["rounds"], line["seed"], line["rounds_to_target"]) == ("fedavg", 2, 3, 1)
    result = json.loads((tmp_path / "result.json").read_text())
    first = result["history"][0]
    assert (line["uploads_to_target"], line["uploads"]) == (5, 10)
    assert line["bytes_to_target"] == first["bytes_up"] + first["bytes_down"]
    assert {"method", "settings", "weights", "model", "history", "per_node", "versions"} <= set(result)
    assert {"round", "participants", "loss", "accuracy", "auc", "bytes_up", "bytes_down", "seconds"} <= set(
        result["history"][0]
    )
    for name in ("curves.png", "distances.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    assert all(row["distance"] > 0 for row in result["per_node"])


def test_same_seed_same_result(capsys, tmp_path):
    results = []
    for name, processes in (("a", 1), ("b", 1), ("c", 2)):
        assert call(capsys, *RUN, "--out", tmp_path / name, "--processes", processes)[0] == 0
        result = json.loads((tmp_path / name / "result.json").read_text())
        for row in result["history"]:
            del row["seconds"]
        results.append(result)
    assert results[0] == results[1] == results[2]


def test_csv_by_column(capsys, tmp_path):
    parts = [table(30, seed=i).assign(hospital=name) for i, name in enumerate(["north", "south", "west"])]
    pd.concat(parts).sample(frac=1, random_state=0).to_csv(tmp_path / "rows.csv", index=False)
    status, line, _ = call(
        capsys,
        "run",
        "fedavg",
        "--data",
        tmp_path / "rows.csv",
        "--partition",
        "column:hospital",
        "--label",
        "label",
        "--features",
        "x0,x1,x3",
        "--set",
        "lr=0.5",
        "--set",
        "batch_size=none",
        "--rounds",
        20,
        "--out",
        tmp_path / "out",
    )
    assert status == 0 and line["accuracy"] > 0.7
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert result["data"]["features"] == ["x0", "x1", "x3"] and len(result["organizations"]) == 3


def test_a_file_a_node(capsys, tmp_path):
    """The same as one file with a column that names the node; columns may come in another order."""
    files, parts = [], []
    for i, name in enumerate(["north", "south", "west"]):
        rows = table(40, seed=i)
        parts.append(rows.assign(hospital=name))
        rows = rows[["x1", "x0", "x2", "x3", "label"]] if i == 1 else rows
        rows.to_csv(tmp_path / f"{name}.csv", index=False)
        files += ["--data", tmp_path / f"{name}.csv"]
    pd.concat(parts)[["hospital", *parts[0].columns[:-1]]].to_csv(tmp_path / "rows.csv", index=False)
    _, line, _ = call(capsys, "run", "fedavg", *files, "--out", tmp_path / "files")
    _, same, _ = call(capsys, "run", "fedavg", "--data", tmp_path / "rows.csv", "--partition", "column:hospital")
    assert line["loss"] == same["loss"]
    result = json.loads((tmp_path / "files" / "result.json").read_text())
    assert result["experiment"]["nodes"] == ["north", "south", "west"]
    assert call(capsys, "run", "fedavg", *files, "--resume", tmp_path / "files", "--rounds", 12)[0] == 0
    table(40).assign(extra=1)[["extra", "x0", "x1", "x2", "label"]].to_csv(tmp_path / "other.csv", index=False)
    (tmp_path / "b").mkdir()
    table(40).to_csv(tmp_path / "b" / "north.csv", index=False)
    table(40).rename(columns={"label": "outcome"}).to_csv(tmp_path / "last.csv", index=False)
    more = [*files, "--data"]
    for arguments, says in (
        ([*more, tmp_path / "other.csv"], "other lacks 'x3' and has besides 'extra', unlike north; expected the same"),
        ([*more, tmp_path / "b" / "north.csv"], "two files are called north"),
        ([*more, tmp_path / "last.csv"], "last and north have another last column; expected --label"),
        ([*files, "--nodes", 3], "3 times --data are as many nodes; leave the number and the partition out"),
        ([*files, "--partition", "shards"], "leave the number and the partition out"),
        ([*files, "--partition", "iid"], "leave the number and the partition out"),
        ([*files, "--label", "nobody"], "no column 'nobody' in any file"),
    ):
        status, _, err = call(capsys, "run", "fedavg", *arguments)
        assert status == 2 and says in err and len(err.strip().splitlines()) == 1
    assert call(capsys, "run", "fedavg", *more, tmp_path / "other.csv", "--features", "x0,x1")[0] == 0
    assert call(capsys, "run", "pca", *more, tmp_path / "last.csv", "--features", "x0,x1")[0] == 0
    assert call(capsys, "run", "pca", *files, "--features", "x0,label")[0] == 0
    turned = [*files[2:], *files[:2]]  # their order says nothing
    assert call(capsys, "run", "fedavg", *turned, "--resume", tmp_path / "files", "--rounds", 12)[0] == 0


def test_what_a_table_may_hide_is_said(capsys, tmp_path):
    """The label, spellings of levels, numbers that count from 1 at each node, columns that are empty at one."""
    for i, (name, male) in enumerate([("north", "M"), ("south", "m ")]):
        rows = table(40, seed=i).assign(sex=["F", male] * 20, number=range(40), crp=np.nan if i else 1.5)
        rows[["number", "crp", "sex", "x0", "x1", "label"]].to_csv(tmp_path / f"{name}.csv", index=False)
    arguments = ["run", "fedavg", "--data", tmp_path / "north.csv", "--data", tmp_path / "south.csv"]
    arguments += ["--preprocess", "impute", "--preprocess", "onehot", "--out", tmp_path / "out"]
    status = main([str(a) for a in arguments])
    out, err = capsys.readouterr()
    assert status == 0
    assert "2 nodes: 1: north (40), 2: south (40); label label (the last column), 2 classes" in out
    assert "'M', 'm' differ in spaces or capitals only; each is a level of sex of its own" in err
    assert "number: another value in every row of a node" in err
    assert "crp: no value at south" in err
    new = table(30).assign(sex=["F", "x", "x"] * 10, number=1, crp=np.nan)
    new.to_csv(tmp_path / "new.csv", index=False)
    status, _, err = call(
        capsys, "predict", tmp_path / "out", "--data", tmp_path / "new.csv", "--out", tmp_path / "p.csv"
    )
    assert status == 0 and "sex: 20 of 30 rows have a level that the model does not know" in err
    assert "crp: no value in any row" in err


def test_parquet_equals_csv(capsys, tmp_path):
    rows = table(60)
    rows.to_csv(tmp_path / "rows.csv", index=False)
    rows.to_parquet(tmp_path / "rows.parquet")
    lines = [
        call(capsys, "run", "fedavg", "--data", tmp_path / f"rows.{e}", "--nodes", 3)[1] for e in ("csv", "parquet")
    ]
    assert lines[0]["accuracy"] == lines[1]["accuracy"] is not None and lines[0]["loss"] == lines[1]["loss"]


def test_compare_of_nodes_named_by_the_last_column(capsys, tmp_path):
    parts = [table(40, seed=i).assign(hospital=name) for i, name in enumerate(["north", "south", "[/west]"])]
    pd.concat(parts).to_csv(tmp_path / "rows.csv", index=False)
    status, line, _ = call(
        capsys,
        "compare",
        "fedavg",
        "centralized:fedavg",
        "fedavg:classes=[0,1],lr=0.2",
        "fedavg",
        "--data",
        tmp_path / "rows.csv",
        "--partition",
        "column:hospital",
        "--out",
        tmp_path / "[/out]$a",
    )
    assert status == 0 and len(line) == 4
    folders = sorted(p for p in (tmp_path / "[/out]$a").iterdir() if p.is_dir())
    result = json.loads((folders[0] / "result.json").read_text())
    assert result["experiment"]["nodes"] == ["[/west]", "north", "south"]
    assert call(capsys, "report", *folders, "--out", tmp_path / "again")[0] == 0


def test_npz_with_a_test_set(capsys, tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 255, (300, 5, 5), dtype=np.uint8), np.arange(300) % 3
    x[y == 1, 0], x[y == 2, 4] = 255, 255
    np.savez(tmp_path / "d.npz", x_train=x, y_train=y, x_test=x[:90], y_test=y[:90])
    status, line, _ = call(
        capsys,
        "run",
        "fedavg",
        "--data",
        tmp_path / "d.npz",
        "--nodes",
        10,
        "--partition",
        "shards",
        "--model",
        "fnn",
        "--rounds",
        15,
        "--set",
        "epochs=3",
        "--set",
        "batch_size=10",
        "--target",
        "0.8",
        "--stop-at-target",
    )
    assert status == 0 and line["accuracy"] > 0.8 and line["rounds"] < 15


def test_one_node_equals_scikit_learn(capsys, tmp_path):
    """The exported model is the one that the command says it is, for features as they are in the table."""
    status, *_ = call(
        capsys,
        "run",
        "fedavg",
        "--data",
        "breast-cancer",
        "--nodes",
        1,
        "--model",
        "logreg:l2=0.1",
        "--rounds",
        400,
        "--holdout",
        0,
        "--set",
        "lr=0.5",
        "--preprocess",
        "standardize",
        "--out",
        tmp_path,
    )
    assert status == 0
    assert call(capsys, "export", tmp_path, "--to", tmp_path / "m.npz")[0] == 0
    X, y = load_breast_cancer(return_X_y=True)
    mean, scale = X.mean(axis=0), X.std(axis=0)
    theirs = LogisticRegression(C=1 / (0.1 * len(y)), tol=1e-8, max_iter=1000).fit((X - mean) / scale, y)
    with np.load(tmp_path / "m.npz") as model:
        assert model["coef"].shape == (1, 30) and model["intercept"].shape == (1,)
        np.testing.assert_allclose(model["coef"] * scale, theirs.coef_, atol=2e-3)
        agree = ((X @ model["coef"][0] + model["intercept"] > 0) == theirs.predict((X - mean) / scale)).mean()
    assert agree > 0.995


def test_export_formats_agree(capsys, tmp_path):
    call(capsys, "run", "fedavg", "--data", "digits", "--model", "fnn:hidden=7", "--rounds", 1, "--out", tmp_path)
    for name in ("m.npz", "m.safetensors", "m.pt"):
        assert call(capsys, "export", tmp_path / "result.json", "--to", tmp_path / name)[0] == 0
    state = torch.load(tmp_path / "m.pt", weights_only=True)
    safe, arrays = load_file(tmp_path / "m.safetensors"), np.load(tmp_path / "m.npz")
    assert state["layer1.weight"].shape == (7, 64)  # as torch.nn.Linear has it
    for name, tensor in state.items():
        np.testing.assert_array_equal(tensor.numpy(), safe[name])
        np.testing.assert_array_equal(safe[name], arrays[name])
    result = json.loads((tmp_path / "result.json").read_text())
    w = codec.decode(result["weights"])["weights"]
    np.testing.assert_array_equal(safe["layer1.weight"].T.ravel(), w[: 64 * 7])


def test_compare_and_report(capsys, tmp_path):
    status, line, _ = call(
        capsys,
        "compare",
        "fedavg",
        "fedavg:epochs=3,batch_size=10",
        "centralized:fedavg",
        "--data",
        "wine",
        "--nodes",
        3,
        "--preprocess",
        "standardize",
        "--rounds",
        3,
        "--out",
        tmp_path,
        "--target",
        "0.9",
    )
    assert status == 0 and set(line) == {"fedavg", "fedavg:epochs=3,batch_size=10", "centralized:fedavg"}
    assert (tmp_path / "comparison.png").exists()
    folders = sorted(p for p in tmp_path.iterdir() if p.is_dir())
    assert len(folders) == 3
    status, line, _ = call(capsys, "report", *folders, "--out", tmp_path / "again")
    assert status == 0 and len(line) == 3 and (tmp_path / "again" / "curves.png").exists()


def test_demo_ends_near_centralized(capsys, tmp_path):
    status, line, _ = call(capsys, "demo", "--out", tmp_path)
    assert status == 0
    assert line["accuracy"] > line["centralized"]["accuracy"] - 0.02
    assert all(line[f"hospital {k} alone"]["accuracy"] <= line["accuracy"] for k in range(1, 6))
    assert (tmp_path / "comparison.png").exists() and (tmp_path / "result.json").exists()


def test_nothing_is_left_in_the_temporary_folder(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert call(capsys, *RUN)[0] == 0
    assert call(capsys, *RUN, "--nodes", 200)[0] == 1
    assert not list(tmp_path.glob("v6-federated-*"))


def test_every_command_has_help_with_an_example(capsys):
    for name in ("demo", "run", "compare", "settings", "report", "export", "predict"):
        status, out, _ = call(capsys, name, "--help")
        assert status == 0 and f"example: v6-federated {name}" in out


SIGNED = ["--username", "u", "--collaboration", "1", "--organization", "1"]
NONSENSE = [
    (["run", "fedprox", "--data", "wine"], "unknown method 'fedprox'; expected one of "),
    ([*RUN, "--model", "resnet"], "unknown model 'resnet'; expected one of logreg"),
    ([*RUN, "--partition", "random"], "unknown partition 'random'; expected one of iid"),
    ([*RUN, "--set", "momentum=0.9"], "unknown setting 'momentum'"),
    ([*RUN, "--set", "lr"], "expected KEY=VALUE"),
    (["run", "fedavg", "--data", "nowhere.csv"], "no data 'nowhere.csv'"),
    (["run", "fedavg", "--data", "{tmp}/empty.csv"], "empty.csv is empty"),
    (["run", "fedavg", "--data", "{tmp}/noise.npz"], "cannot be read as .npz"),
    (["run", "fedavg", "--data", "{tmp}/noise.parquet"], ".parquet"),
    (["run", "fedavg", "--data", "{tmp}/table.xlsx"], "expected .csv, .parquet or .npz"),
    (["run", "fedavg", "--data", "{tmp}/hole.csv"], "missing or infinite values in the column(s) x1"),
    (["run", "fedavg", "--data", "{tmp}/words.csv"], "the column(s) x0 hold values that are not numbers"),
    ([*RUN, "--label", "diagnosis"], "diagnosis"),
    ([*RUN, "--features", "mean radius,height"], "height"),
    ([*RUN, "--partition", "column:hospital"], "no column 'hospital'"),
    ([*RUN, "--nodes", "1000"], "more than the 569 rows"),
    ([*RUN, "--nodes", "0"], "--nodes 0 is refused"),
    ([*RUN, "--set", "fraction=1.5"], "fraction=1.5 is refused"),
    ([*RUN, "--set", "fraction=-0.1"], "fraction=-0.1 is refused"),
    ([*RUN, "--set", "fraction=half"], "fraction='half' is refused"),
    ([*RUN, "--set", "fraction=nan"], "fraction='nan' is refused"),
    ([*RUN, "--set", "fraction=false"], "not true or false"),
    ([*RUN, "--set", "seed=3"], "expected --seed"),
    ([*RUN, "--set", "lr=0.1", "--set", "lr=0.2"], "given twice"),
    ([*RUN, "--set", "organizations=[]"], "organizations=[] is refused"),
    ([*RUN, "--set", "classes=[0,0,1]"], "each once"),
    ([*RUN, "--model", "fnn:hidden=0"], "expected a whole number from 1"),
    ([*RUN, "--seed", "99999999999999999999"], "is refused"),
    ([*RUN, "--features", "mean radius,mean radius"], "each once"),
    ([*RUN, "--label", "mean radius"], "expected from 2 to 100 classes"),
    ([*RUN, "--partition", "shards:1e9"], "is refused"),
    ([*RUN, "--partition", "shards:1000"], "more than the 569 rows"),
    ([*RUN, "--partition", "dirichlet:inf"], "is refused"),
    (["run", "fedavg", "--data", "{tmp}/long.csv"], "more fields than its header"),
    (["run", "fedavg", "--data", "{tmp}/wide.npz"], "expected rows of one kind"),
    (["run", "fedavg", "--data", "{tmp}/inf.npz"], "missing, infinite or of another kind"),
    (["compare", "fedavg", "centralized:fedavg", "--data", "wine", "--holdout", "0"], "no rows are held out"),
    (["compare", "fedavg", "dynavg", "--data", "wine", "--set", "epochs=2"], "dynavg: unknown setting 'epochs'"),
    ([*RUN, "--set", "epochs=0"], "epochs=0 is refused"),
    ([*RUN, "--set", "epochs=1.5"], "epochs=1.5 is refused"),
    ([*RUN, "--set", "lr=-1"], "lr=-1 is refused"),
    ([*RUN, "--rounds", "0"], "rounds=0 is refused"),
    ([*RUN, "--rounds", "many"], "invalid int value: 'many'"),
    ([*RUN, "--target", "1.2"], "--target 1.2 is refused"),
    ([*RUN, "--holdout", "1"], "holdout=1.0 is refused"),
    ([*RUN, "--preprocess", "whiten"], "preprocess="),
    ([*RUN, "--seed", "-1"], "--seed: -1 is refused"),
    ([*RUN, "--partition-seed", "-1"], "--partition-seed: -1 is refused"),
    (["run", "coop", *RUN[2:], "--speeds", "inf"], "speeds inf is refused"),
    (["run", "coop", *RUN[2:], "--speeds", "nan"], "speeds nan is refused"),
    ([*RUN, "--set", "proximal_mu=10", "--set", "batch_size=5"], "expected a product up to 0.5"),
    ([*RUN, "--model", "svm:l2=10", "--set", "batch_size=5"], "expected a product up to 0.5"),
    (
        ["submit", "fedavg", "--rounds", "1", "--server", "http://x:99999", *SIGNED],
        "--server http://x:99999 is refused",
    ),
    (["report", "{tmp}/part.json"], "is not a result"),
    (
        ["run", "fedavg", "--data", "wine", "--nodes", "100", "--partition", "sorted-unbalanced"],
        "be cut into 200 pieces",
    ),
    ([*RUN, "--features", "[1]"], "expected a,b,c or a JSON list"),
    (["network", "status", "--name", "Bad Name"], "network name is 'Bad Name'"),
    ([*RUN, "--model", "cnn_garst"], "not a square image"),
    ([*RUN, "--out", "{tmp}/noise.npz"], "is a file; expected a folder"),
    (["report", "{tmp}"], "no result"),
    ([*RUN, "--node-env", "V6_FEDERATED_MINIMUM_ROW=1"], "did you mean V6_FEDERATED_MINIMUM_ROWS?"),
    (["run", "pca", "--data", "wine", "--target", "0.9"], "--target 0.9 is an accuracy, of no use to pca"),
    (["report", "{tmp}/noise.npz"], "is not a result"),
    (["run", "fsvrg", *RUN[2:], "--model", "cnn_reddy"], "with dropout; expected model=cnn_reddy:dropout=0"),
    (["compare", "fedavg", "centralized:pca", "--data", "wine"], "centralized:pca is refused: pca trains no model"),
    (["submit", "pca", "--rounds", "9", "--target", "0.9"], "--target 0.9 is an accuracy, of no use to pca"),
    (
        ["submit", "gbdt", "--rounds", "9", "--target", "0.9", "--set", "objective=regression"],
        "--target 0.9 is an accuracy, of no use to objective=regression",
    ),
    (
        ["network", "up", "--data", "wine", "--node-env", "2:V6_FEDERATED_MINIMUM_ROW=5"],
        "is not a setting of a node; did you mean V6_FEDERATED_MINIMUM_ROWS?",
    ),
    ([*RUN, "--set", "evaluate_every=99999999999999999999"], "evaluate_every=99999999999999999999 is refused"),
    ([*RUN, "--preprocess", "impute:constant,value=1e400"], "numbers from -1e+100 to 1e+100 are expected"),
    ([*RUN, "--preprocess", "clip:lower=1e101"], "numbers from -1e+100 to 1e+100 are expected"),
    (["export", "{tmp}", "--to", "m.npz"], "no result"),
    (["fly"], "invalid choice: 'fly'"),
    ([], "COMMAND"),
]


@pytest.mark.parametrize(("arguments", "says"), NONSENSE, ids=lambda value: str(value)[-40:])
def test_nonsense_is_refused_in_one_line(capsys, tmp_path, arguments, says):
    (tmp_path / "empty.csv").touch()
    for name in ("noise.npz", "noise.parquet", "table.xlsx"):
        (tmp_path / name).write_bytes(b"noise")
    part = {"history": [{"round": 1}], "settings": {"seed": 1}, "method": "fedavg", "final": None, "per_node": []}
    (tmp_path / "part.json").write_text(json.dumps(part))
    hole = table(30)
    hole.loc[3, "x1"] = np.nan
    hole.to_csv(tmp_path / "hole.csv", index=False)
    (tmp_path / "long.csv").write_text("a,b,y\n" + "1,2,0,1\n2,1,1,0\n" * 20)
    X, y = np.ones((30, 3)), np.arange(30) % 2
    np.savez(tmp_path / "wide.npz", x_train=X, y_train=y, x_test=X[:, :2], y_test=y)
    np.savez(tmp_path / "inf.npz", x=X, y=np.where(y, np.inf, 0.0))
    table(30).assign(x0="Mr Smith").to_csv(tmp_path / "words.csv", index=False)
    status, _, err = call(capsys, *[a.replace("{tmp}", str(tmp_path)) for a in arguments])
    lines = err.strip().splitlines()
    assert status == 2, err
    assert len(lines) == 1 and says in lines[0] and "Smith" not in err


def test_a_refusal_of_a_node_is_status_1(capsys):
    status, _, err = call(capsys, "run", "fedavg", "--data", "wine", "--nodes", 30)
    assert status == 1 and len(err.strip().splitlines()) == 1
    assert "organizations 1, 2, 3" in err and "fewer than 10 rows" in err
    status, _, err = call(capsys, *RUN, "--node-env", "V6_FEDERATED_MAXIMUM_ROUNDS=1")
    assert status == 1 and "2 rounds are more than the 1 that this node allows" in err


def test_export_of_an_unknown_ending(capsys, tmp_path):
    call(capsys, *RUN, "--out", tmp_path)
    status, _, err = call(capsys, "export", tmp_path, "--to", tmp_path / "m.onnx")
    assert status == 2 and "expected an ending .npz" in err


# ---- the mock network itself


def test_mock_network_of_a_thousand_nodes():
    rows = table(60)
    nodes = {k: (rows.iloc[:, :-1].to_numpy(np.float32), rows["label"].to_numpy()) for k in range(1, 1001)}
    with MockNetwork("v6_fedavg", nodes, environment={"V6_FEDERATED_MINIMUM_ORGANIZATIONS": "1000"}) as local:
        result = local.run(rounds=1, fraction=0.01)
    assert len(result["history"][0]["participants"]) == 10


def test_mock_client_refuses_tasks_as_the_server_does(hospitals):
    with MockNetwork("v6_fedavg", hospitals) as local:
        client = local.client()
        assert "msg" in client.task.create({"method": "describe"}, [4])
        assert "msg" in client.task.create({"method": "describe"}, [])
        assert [o["id"] for o in client.organization.list()] == [3, 5, 8]


def test_node_environments_do_not_leak(hospitals, monkeypatch):
    import os

    monkeypatch.delenv("V6_FEDERATED_MINIMUM_ROWS", raising=False)
    with MockNetwork("v6_fedavg", hospitals, environments={3: {"V6_FEDERATED_MINIMUM_ROWS": "11"}}) as local:
        local.run(rounds=1)
    assert "V6_FEDERATED_MINIMUM_ROWS" not in os.environ and "TEMPORARY_FOLDER" not in os.environ


def test_a_npz_with_numbers_to_predict(tmp_path, capsys):
    """Whole-number labels, one of them only among the test rows; a result of it resumed in other ways is one line."""
    rng = np.random.default_rng(0)
    X, X_test = rng.normal(size=(200, 3)), rng.normal(size=(40, 3))
    y, y_test = (np.round(100 + 10 * x[:, 0]).astype(int) for x in (X, X_test))
    y_test[0] = 999
    np.savez(tmp_path / "days.npz", x_train=X, y_train=y, x_test=X_test, y_test=y_test)
    run = ["run", "gbdt", "--data", str(tmp_path / "days.npz"), "--nodes", "2", "--set", "min_rows_leaf=10"]
    regression = [*run, "--set", "objective=regression"]
    assert main([*regression, "--rounds", "4", "--out", str(tmp_path / "r")]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["r2"] is not None
    for arguments, says in [
        (run, "y_test holds labels that y_train does not; expected none"),
        (
            [*run, "--resume", str(tmp_path / "r"), "--set", "objective=classification"],
            "resume: a result of objective='regression'; expected the same",
        ),
        (["run", "fedavg", *run[2:4], "--resume", str(tmp_path / "r")], "resume: a result of 'gbdt'; expected one of"),
        ([*regression, "--target", "0.9"], "--target 0.9 is an accuracy, of no use to objective=regression"),
        ([*regression, "--target", "0.9", "--stop-at-target"], "--target 0.9 is an accuracy, of no use"),
        (["compare", "gbdt:classes=[0]", *regression[2:]], "classes=[0] is refused"),
    ]:
        assert main(arguments) == 2
        assert says in capsys.readouterr().err
    # on the test set, whatever is held out
    assert main([*regression, "--rounds", "2", "--holdout", "0", "--set", "early_stopping=1"]) == 0


EARLY = "early_stopping=3 needs losses on held-out rows"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", "gbdt", "--data", "wine", "--holdout", "0", "--set", "early_stopping=3"], EARLY),
        (["compare", "gbdt:early_stopping=3", "--data", "wine", "--holdout", "0"], EARLY),
        (["submit", "gbdt", "--rounds", "9", "--holdout", "0", "--set", "early_stopping=3"], EARLY),
        # the earlier task may have had evaluators: first it is asked
        (
            ["submit", "gbdt", "--rounds", "9", "--holdout", "0", "--set", "early_stopping=3", "--resume", "1"],
            "no network",
        ),
    ],
)
def test_settings_that_do_not_fit_each_other(arguments, says, capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))  # knows no network
    assert main(arguments) in (1, 2)
    assert says in capsys.readouterr().err


def test_predict_for_rows_of_any_file(tmp_path, capsys):
    """Features are enough: a file of one column, arrays without labels; of a file with a test set, that."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 1))
    y = (X[:, 0] > 0).astype(int)
    pd.DataFrame({"x": X[:, 0], "ill": y}).to_csv(tmp_path / "rows.csv", index=False)
    pd.DataFrame({"x": X[:7, 0]}).to_csv(tmp_path / "new.csv", index=False)
    np.savez(tmp_path / "all.npz", x_train=X, y_train=y, x_test=X[:11], y_test=y[:11])
    np.savez(tmp_path / "new.npz", x=X[:5])
    for kind, train_, news in [("csv", "rows.csv", {"new.csv": 7}), ("npz", "all.npz", {"all.npz": 11, "new.npz": 5})]:
        run = ["run", "fedavg", "--data", str(tmp_path / train_), "--nodes", "2", "--set", "lr=1", "--rounds", "20"]
        assert main([*run, "--out", str(tmp_path / kind)]) == 0
        for new, n in news.items():
            out = tmp_path / "p.csv"
            capsys.readouterr()
            assert main(["predict", str(tmp_path / kind), "--data", str(tmp_path / new), "--out", str(out)]) == 0
            line = json.loads(capsys.readouterr().out.splitlines()[-1])
            assert line["rows"] == n == len(pd.read_csv(out)) and ("accuracy" in line) == (new == "all.npz")
    (tmp_path / "odd.csv").write_text("x,ill\n1.0,?\n")
    assert main(["predict", str(tmp_path / "csv"), "--data", str(tmp_path / "odd.csv"), "--out", str(out)]) == 2
    assert "not among the model's 2 classes; correct them, or leave the column ill out" in capsys.readouterr().err


@pytest.fixture
def hospitals_csv(tmp_path):
    """Three hospitals, a rare class, an identifier."""
    rng = np.random.default_rng(4)
    n = 300
    x = rng.normal(size=n)
    rows = pd.DataFrame(
        {
            "id": [f"p{i}" for i in range(n)],
            "x": x,
            "z": rng.normal(size=n),
            "hospital": np.array(["Noord", "Zuid", "Oost"])[np.arange(n) % 3],
            "outcome": np.where(x > 1.6, "died", "home"),
        }
    )
    file = tmp_path / "rows.csv"
    rows.to_csv(file, index=False)
    return file, rows


def test_run_tells_nodes_and_classes_and_what_a_rare_class_hides(hospitals_csv, capsys, tmp_path):
    file, rows = hospitals_csv
    run = ["run", "fedavg", "--data", file, "--partition", "column:hospital", "--label", "outcome", "--features", "x,z"]
    assert main([str(a) for a in [*run, "--rounds", 1, "--set", "lr=0.001", "--out", tmp_path / "r"]]) == 0
    out, err = capsys.readouterr()
    died = (rows.outcome == "died").sum()
    first = (
        "3 nodes: 1: Noord (100), 2: Oost (100), 3: Zuid (100); label outcome, 2 classes: "
        f"home ({300 - died}), died ({died}); 2 features: x, z"
    )
    assert out.splitlines()[0] == first
    result = json.loads((tmp_path / "r" / "result.json").read_text())
    shown = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line.split()[0] in ("home", "died")}
    confusion = np.array(result["final"]["confusion"])
    assert [int(shown[c][0]) for c in ("died", "home")] == confusion.sum(axis=1).tolist()
    assert [int(shown[c][1]) for c in ("died", "home")] == np.diag(confusion).tolist()
    assert [int(shown[c][3]) for c in ("died", "home")] == confusion.sum(axis=0).tolist()
    assert ", where always 'home' has 0." in err
    rows.loc[:9, "hospital"] = " noord"
    rows.loc[:9, "outcome"] = "Home"
    rows.to_csv(file, index=False)
    assert main([str(a) for a in [*run, "--rounds", 1]]) == 0
    err = capsys.readouterr().err
    assert "' noord', 'Noord' differ in spaces or capitals only; each is a node of its own" in err
    assert "'home', 'Home' differ in spaces or capitals only; each is a class of its own" in err


def test_resume_keeps_rows_and_settings(hospitals_csv, capsys, tmp_path):
    """Settings that the command does not name are the earlier job's; other rows, or dealt otherwise, are refused."""
    file, rows = hospitals_csv
    run, named = ["run", "fedavg"], ["--label", "outcome", "--features", "x,z", "--holdout", 0.3]
    dealt = ["--data", file, "--partition", "column:hospital"]
    straight = [*run, *named, *dealt, "--model", "fnn", "--set", "lr=0.5", "--set", "epochs=2"]
    assert call(capsys, *straight, "--rounds", 4, "--out", tmp_path / "four")[0] == 0
    assert call(capsys, *straight, "--rounds", 2, "--out", tmp_path / "two")[0] == 0
    again = [*run, *dealt, "--rounds", 4, "--resume", tmp_path / "two", "--out", tmp_path / "again"]
    status, _, err = call(capsys, *again)
    for told in ("as in the earlier job: label=outcome, features=['x', 'z'], holdout=0.3, ", "lr=0.5", "epochs=2"):
        assert status == 0 and told in err
    weights = [json.loads((tmp_path / name / "result.json").read_text())["weights"] for name in ("four", "again")]
    assert weights[0] == weights[1]
    other, same_name = file.with_name("other.csv"), tmp_path / "elsewhere" / file.name
    rows.to_csv(other, index=False)
    same_name.parent.mkdir()
    rows.assign(x=rows["x"].to_numpy()[::-1]).to_csv(same_name, index=False)
    evaluated = [*straight, "--rounds", 2, "--set", "evaluators=3", "--out", tmp_path / "three"]
    assert call(capsys, *evaluated)[0] == 0
    more = [*run, *dealt, "--rounds", 3, "--resume", tmp_path / "three", "--out", tmp_path / "more"]
    assert (
        call(capsys, *more)[0] == 0 and call(capsys, *run, *dealt, "--rounds", 4, "--resume", tmp_path / "more")[0] == 0
    )
    for changed, says in [
        (["--data", other, "--partition", "column:hospital"], "the earlier job had --data rows; expected the same"),
        (["--data", same_name, *dealt[2:]], "the earlier job had other nodes or rows; expected the same"),
        ([*dealt, "--speeds", 5], "the earlier job had no --speeds; expected the same"),
        (["--data", file, "--nodes", 3], "the earlier job had --partition column:hospital; expected the same"),
        ([*dealt, "--holdout", 0.2], "the earlier job had holdout=0.3; expected the same, not 0.2"),
        ([*dealt, "--features", "x"], "the earlier job had features=['x', 'z']; expected the same, not ['x']"),
    ]:
        status, _, err = call(capsys, *run, *changed, "--rounds", 4, "--resume", tmp_path / "two")
        assert status == 2 and says in err


@pytest.mark.parametrize("method", registry.names())
def test_settings_of_a_method(method, capsys):
    """Every setting is shown once, with the default that a run without it has."""
    status = main(["settings", method])
    *lines, last = capsys.readouterr().out.splitlines()
    fields = registry.settings_of(method).model_fields
    assert status == 0 and sorted(line.split()[0] for line in lines[1:]) == sorted(fields)
    defaults = json.loads(last)["defaults"]
    assert fields.keys() - defaults.keys() <= {"rounds"}
    run = {"label", "rounds", "organizations", "evaluators"}  # which the data settle
    result = train(f"v6_{method}", {k: table(40, seed=k) for k in (1, 2)}, rounds=2, **FEW.get(method, {}))
    used = {name: value for name, value in result["settings"].items() if name not in (*run, *FEW.get(method, ()))}
    assert used == {name: defaults[name] for name in used} and len(used) >= 15


def test_a_resumed_task_has_the_rows_of_the_earlier_one(capsys):
    """Whose rows and which columns: what `submit --resume TASK` does not name."""
    rows = {"label": "y", "features": ["a"], "holdout": 0.3, "organizations": [1, 2], "evaluators": [3]}
    earlier = {"method": "fedavg", "settings": {"rounds": 5, "seed": 3, "target": 0.9, **rows}}
    asked = network_commands.resume(earlier, "fedavg", {"rounds": 9, "holdout": 0.1})
    assert asked == {"rounds": 9, "seed": 3, **rows, "holdout": 0.1, "resume": earlier}
    assert "organizations=[1, 2]" in capsys.readouterr().err
    own = network_commands.resume(earlier, "fedavg", {"rounds": 9}, {"label": "y"})
    parties = {name: rows[name] for name in ("organizations", "evaluators")}
    assert own == {"rounds": 9, "seed": 3, **parties, "resume": earlier}, "an experiment has its own columns"
    assert capsys.readouterr().err == "as in the earlier job: label=y, seed=3, organizations=[1, 2], evaluators=[3]\n"


def test_predictions_beside_an_identifier(hospitals_csv, capsys, tmp_path):
    file, rows = hospitals_csv
    run = ["run", "fedavg", "--data", file, "--label", "outcome", "--features", "x,z", "--nodes", 3]
    assert call(capsys, *run, "--out", tmp_path / "r")[0] == 0
    predict = ["predict", tmp_path / "r", "--data", file]
    assert call(capsys, *predict, "--out", tmp_path / "p.csv", "--keep", "id,hospital")[0] == 0
    told = pd.read_csv(tmp_path / "p.csv")
    assert [*told.columns] == ["id", "hospital", "prediction", "score", "probability=died", "probability=home"]
    assert told["id"].tolist() == rows["id"].tolist()
    np.testing.assert_allclose(told["probability=home"], 1 / (1 + np.exp(-told["score"])), rtol=1e-6)
    np.testing.assert_allclose(told["probability=died"] + told["probability=home"], 1)
    assert (told["prediction"] == np.where(told["probability=home"] > 0.5, "home", "died")).all()
    for arguments, says in [
        (["--out", tmp_path / "p.csv", "--keep", "name"], "--keep name is refused; expected columns of"),
        (["--out", file], "is the file of --data, which would be lost; expected another"),
    ]:
        status, _, err = call(capsys, *predict, *arguments)
        assert status == 2 and says in err and len(err.splitlines()) == 1
    assert len(pd.read_csv(file)) == 300


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--data", "wine", "--partition", "alcohol"], "or column:alcohol if it is a column"),
        (
            ["--data", "wine", "--partition", "classes:9"],
            "classes:9 is refused: the label has 3 classes; expected from 1",
        ),
        (
            ["--data", "wine", "--partition", "column:town"],
            "no column 'town' to tell the nodes by; expected one of 'alcohol',",
        ),
        (["--data", "diabetes"], "or for a number to predict gbdt with --set objective=regression"),
        (["--data", "wine", "--node-env", "FOO"], "expected KEY=VALUE, for example V6_FEDERATED_MINIMUM_ROWS=20"),
        (
            ["--data", "wine", "--node-env", "V6_FEDERATED_MINIMUM_ROW=3"],
            "V6_FEDERATED_MINIMUM_ROW is not a setting of a node; did you mean V6_FEDERATED_MINIMUM_ROWS? Nothing was",
        ),
        (
            ["--data", "wine", "--node-env", "V6_FEDERATED_FOO=3"],
            "V6_FEDERATED_FOO is not a setting of a node; the limits are V6_FEDERATED_MINIMUM_ROWS, V6_FEDERATED_MINI",
        ),
        (["--data", "wine", "--node-env", "V6_FEDERATED_SCORE_BANDS=10001"], "is refused; expected 10000 at most"),
        (["--data", "wine", "--node-env", "V6_FEDERATED_DEVICE=gpu"], "of this node must be cpu, cuda or cuda:NUMBER"),
        (["--data", "wine", "--features", ""], "--features '' is refused; expected a,b,c or a JSON list of names"),
    ],
)
def test_refusals_say_what_would_be_right(arguments, says, capsys):
    status, _, err = call(capsys, "run", "fedavg", *arguments)
    assert status in (1, 2) and says in err and len(err.splitlines()) == 1


def test_lists_of_settings_without_brackets(capsys):
    assert call(capsys, *RUN, "--set", "organizations=1,2,4")[0] == 0
    assert call(capsys, *RUN, "--set", "organizations=[1, 2, 4]", "--set", "classes=0,1")[0] == 0


def test_files_as_a_european_excel_writes_them(tmp_path, capsys):
    for content, says in [
        (b"a;b;y\n1,5;2;0\n2,5;3;1\n", "its header has semicolons: save it with commas between columns and points"),
        (b"a;b;y\n1;2;0\n2;3;1\n", "its header has semicolons: save it with commas between columns and points"),
        ("ä,y\n1,0\n2,1\n".encode("latin-1"), "is not in UTF-8; expected it saved as CSV UTF-8"),
    ]:
        (tmp_path / "rows.csv").write_bytes(content)
        status, _, err = call(capsys, "run", "fedavg", "--data", tmp_path / "rows.csv")
        assert status == 2 and says in err and len(err.splitlines()) == 1


def test_classes_and_columns_that_look_like_something_else(tmp_path, capsys):
    """None is a class like another, and so are 1 and 2 beside 3a; a column's name may hold a comma."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 2))
    rows = pd.DataFrame({"weight (kg), first": x[:, 0], "b": x[:, 1]})
    rows.assign(stage=np.where(x[:, 0] > 1, "3a", np.where(x[:, 1] > 0, "1", "2"))).to_csv(
        tmp_path / "a.csv", index=False
    )
    run = ["run", "fedavg", "--data", tmp_path / "a.csv", "--nodes", 2, "--rounds", 1]
    for classes in ("1,2,3a", '"1","2","3a"', '["1","2","3a"]'):
        status, line, err = call(capsys, *run, "--set", f"classes={classes}", "--out", tmp_path / "out")
        assert status == 0, err
        result = json.loads((tmp_path / "out" / "result.json").read_text())
        assert result["data"]["classes"] == ["1", "2", "3a"]
    status, line, err = call(capsys, *run, "--features", '["weight (kg), first"]', "--out", tmp_path / "out")
    assert status == 0, err
    assert json.loads((tmp_path / "out" / "result.json").read_text())["data"]["features"] == ["weight (kg), first"]
    status, _, err = call(capsys, *run, "--set", "classes=none,severe")
    assert status == 1 and "not among the 2 classes of the job" in err


def test_trees_that_cannot_split_say_why(capsys):
    status, _, err = call(capsys, "run", "gbdt", "--data", "wine", "--rounds", 2)
    assert status == 0 and "with min_rows_leaf=20 a node needs 40 training rows or more" in err
    status, _, err = call(capsys, "run", "gbdt", "--data", "wine", "--rounds", 2, "--set", "min_rows_leaf=10")
    assert status == 0 and "no tree has a split" not in err


@pytest.mark.parametrize(
    "named", [{}, {"NO_PROXY": "docker.hospital"}, {"no_proxy": "a", "NO_PROXY": "b"}, {"no_proxy": "*"}]
)
def test_the_local_server_is_not_asked_through_a_proxy(monkeypatch, named):
    """Nor is anything else that was not before."""
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", "http://proxy.hospital:3128")
    for name, value in named.items():
        monkeypatch.setenv(name, value)
    before = [requests.utils.should_bypass_proxies(f"http://{host}", None) for host in ("docker.hospital", "a", "c")]
    local._past_proxies()
    after = [requests.utils.should_bypass_proxies(f"http://{host}", None) for host in ("docker.hospital", "a", "c")]
    assert before == after and requests.utils.should_bypass_proxies("http://127.0.0.1:5000", None)


def test_an_error_of_the_connection_has_words(capsys, monkeypatch):
    def lost(options):
        raise requests.exceptions.ReadTimeout("the server did not answer in time")

    monkeypatch.setattr(commands, "submit", lost)
    status, _, err = call(capsys, "submit", "fedavg", "--rounds", 1)
    assert status == 1 and err == "v6-federated: ReadTimeout: the server did not answer in time\n"


def test_a_diverged_training_is_told_and_drawn(capsys, tmp_path):
    """Its distances would overflow in float32; what came out is there all the same."""
    diverged = ["--model", "2nn", "--data", "breast-cancer", "--rounds", 5, "--out"]
    status, line, _ = call(capsys, "run", "fedavg", "--set", "lr=10", *diverged, tmp_path / "a")
    assert status == 0 and line["rounds"] == 5
    per_node = json.loads((tmp_path / "a" / "result.json").read_text())["per_node"]
    assert max(row["distance"] for row in per_node) > 2e19  # whose square float32 does not hold
    status, line, _ = call(capsys, "compare", "fedavg:lr=0.1", "fedavg:lr=10", *diverged, tmp_path / "b")
    assert status == 0 and len(line) == 2 and (tmp_path / "b" / "comparison.png").exists()


def test_an_interruption_tells_what_is_there(capsys, tmp_path, monkeypatch):
    def interrupted(options):
        if options.target is not None:
            options.out.joinpath("1-fedavg").mkdir()
            options.out.joinpath("1-fedavg", "result.json").touch()
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, "compare", interrupted)
    tmp_path.joinpath("result.json").touch()  # of an earlier command
    compare = ["compare", "fedavg", "--data", "wine"]
    assert call(capsys, *compare) == (130, "", "v6-federated: interrupted\n")
    assert call(capsys, *compare, "--out", tmp_path) == (130, "", "v6-federated: interrupted\n")
    said = f"v6-federated: interrupted; what was finished is in {tmp_path}\n"
    assert call(capsys, *compare, "--out", tmp_path, "--target", "0.5") == (130, "", said)


def test_an_interruption_while_libraries_are_imported(capsys, monkeypatch):
    """``main`` imports what is slow, so that it is there to take Ctrl-C."""
    slow = "import sys, v6_federated.cli; sys.exit(bool({'numpy', 'pandas', 'rich'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", slow], check=False).returncode == 0

    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(command_line, "build_parser", interrupted)
    assert call(capsys, "demo") == (130, "", "v6-federated: interrupted\n")


def test_compare_with_each_node_alone(hospitals_csv, capsys, tmp_path):
    """On the same held-out rows of all; what a hospital has to gain."""
    file, _ = hospitals_csv
    compare = [
        "compare",
        "fedavg",
        "alone:fedavg:epochs=2",
        "--data",
        file,
        "--partition",
        "column:hospital",
        "--label",
        "outcome",
        "--features",
        "x,z",
        "--rounds",
        2,
    ]
    status, line, _ = call(capsys, *compare, "--out", tmp_path)
    assert status == 0
    assert list(line) == ["fedavg", *(f"{name} alone:fedavg:epochs=2" for name in ("Noord", "Oost", "Zuid"))]
    results = [json.loads((folder / "result.json").read_text()) for folder in sorted(tmp_path.glob("[0-9]-*"))]
    assert len(results) == 4 and len({result["final"]["evaluated"] for result in results}) == 1
    for arguments, says in [
        ([*compare, "--test"], "alone:fedavg:epochs=2 is refused with --test"),
        (["compare", "alone", "--data", file], "'alone' names no method; expected for example alone:fedavg"),
        (["compare", "centralized:", "--data", file], "expected for example centralized:fedavg"),
        (["compare", "fedavg:lr=0.1,holdout=0.5", "--data", file], "on the same rows; expected --holdout 0.5 for all"),
        (["compare", "alone:fedavg:evaluators=[1]", "--data", file], "expected --set evaluators=[1] for all"),
        ([*compare, "--set", "organizations=1,2"], "--set organizations is of no use to a job that is not federated"),
        (["compare", "fedavg:lr=0.1,lr=5", "--data", file], "fedavg:lr=0.1,lr=5: lr is given twice; expected once"),
    ]:
        status, _, err = call(capsys, *arguments)
        assert status == 2 and says in err and len(err.splitlines()) == 1


class Server:
    """What `submit` asks of a server's nodes: one answer after another, then the last again and again."""

    def __init__(self, *answers):
        self.answers = list(answers)

    def request(self, endpoint, params=None):
        assert endpoint == "node"
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def nodes(*told):
    """Nodes of organizations 1, 2, ...: their status and the labels that they tell."""
    return {
        "data": [
            {
                "organization": {"id": k},
                "status": status,
                "config": [{"key": "database_labels", "value": label} for label in labels],
            }
            for k, (status, labels) in enumerate(told, start=1)
        ]
    }


def test_a_node_that_has_just_come_online_is_asked_again(monkeypatch):
    """It tells its labels a moment after it is online; nodes that never tell them do not hinder a task."""
    monkeypatch.setattr(submit, "TELLING_SECONDS", 0)
    silent, told = nodes(("online", []), ("online", [])), nodes(("online", []), ("online", ["default"]))
    with pytest.raises(SafeError, match="organization 2: its node has no database 'other'; expected default"):
        submit.check_nodes(Server(silent, told), 1, "other", None)
    assert submit.check_nodes(Server(silent), 1, "other", None) == []
    assert submit.check_nodes(Server(nodes(("offline", []), ("online", ["other"]))), 1, "other", None) == [1]


def test_pooled_rows_are_evaluated_as_their_nodes_evaluate_them(capsys, tmp_path):
    """One of the ten rows that a node holds out lacks x1, so x1 counts as empty there: told, and pooled too."""
    rows = table(150)
    holes = rows.assign(x1=rows["x1"].where(np.arange(150) % 9 > 0))
    holes.assign(hospital=np.arange(150) % 3).to_csv(tmp_path / "rows.csv", index=False)
    compare = [
        "compare",
        "fedavg",
        "centralized:fedavg",
        "--data",
        tmp_path / "rows.csv",
        "--label",
        "label",
        "--partition",
        "column:hospital",
        "--preprocess",
        "impute",
        "--rounds",
        3,
    ]
    status, found, err = call(capsys, *compare)
    assert status == 0 and "x1: empty in the rows held out of 0, of which fewer than 10 have a value" in err
    federated, pooled = found.values()
    assert federated["accuracy"] == pooled["accuracy"] and federated["loss"] == pytest.approx(pooled["loss"], rel=1e-5)


def test_what_was_not_trained_federated_is_not_resumed(capsys, tmp_path):
    compare = ["compare", "centralized:fedavg", "alone:fedavg", "--data", "wine", "--nodes", 2, "--rounds", 1]
    assert call(capsys, *compare, "--out", tmp_path)[0] == 0
    run = ["run", "fedavg", "--data", "wine", "--nodes", 2, "--rounds", 2, "--resume"]
    for folder, how in [("1-centralized-fedavg", "centralized"), ("2-1 alone-fedavg", "alone: 1")]:
        status, _, err = call(capsys, *run, tmp_path / folder)
        assert status == 2 and f"--resume: a result that was trained {how}; expected a federated one" in err
        call(capsys, "report", tmp_path / folder)
    assert main(["report", str(tmp_path)]) == 0
    assert "fedavg, centralized on wine" in capsys.readouterr().out


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_simulated_time_is_that_of_nodes_that_train(seed, capsys):
    """One of two nodes is ten times slower than the other, whoever evaluates; alone each takes its own time."""
    data = ["--data", "wine", "--nodes", 2, "--rounds", 4, "--partition-seed", seed, "--speeds", 10]
    status, found, _ = call(capsys, "compare", "fedavg", "centralized:fedavg", "alone:fedavg", *data)
    seconds = {name: line["seconds"] for name, line in found.items()}
    assert status == 0 and 2.5 < seconds["centralized:fedavg"] < 6.5
    alone = sorted([seconds["1 alone:fedavg"], seconds["2 alone:fedavg"]])
    assert 2.5 < alone[0] < 6.5 and 25 < alone[1] < 65 and seconds["fedavg"] == pytest.approx(alone[1], rel=0.3)


def test_a_run_beside_a_comparison_is_reported_too(capsys, tmp_path):
    assert call(capsys, *RUN, "--out", tmp_path)[0] == 0
    assert call(capsys, "compare", "fedavg", "scaffold", *RUN[2:], "--out", tmp_path)[0] == 0
    status, line, _ = call(capsys, "report", tmp_path)
    assert status == 0
    assert [*line] == [str(tmp_path), str(tmp_path / "1-fedavg"), str(tmp_path / "2-scaffold")]


def test_steps_that_are_much_too_long_are_told_after_one_round(capsys, tmp_path):
    table(120).assign(x1=table(120)["x1"] * 1e9).to_csv(tmp_path / "rows.csv", index=False)
    status, _, err = call(capsys, "run", "fedavg", "--data", tmp_path / "rows.csv", "--nodes", 2, "--rounds", 1)
    assert status == 0 and "far beyond that of guessing: a smaller lr, or --preprocess standardize, may help" in err


def test_each_round_of_a_task_is_shown_once(monkeypatch, capsys):
    """Also of one that is resumed, and where central was started again; a bar counts from the very beginning."""
    rows = [{"round": t, "accuracy": 0.5} for t in range(1, 7)]
    log = [vantage6_api.ROUND + json.dumps(row) + "\n" for row in rows]
    result = {"method": "fedavg", "history": rows}
    # what the log holds at each look: rounds 4 and 5; begun anew; the last line on its way; the task has ended
    looks = [log[3], "".join(log[3:5]), log[3], "".join(log[3:6])[:-2], "".join(log[3:6])[:-2]]

    class Researcher:
        run = SimpleNamespace(from_task=lambda task: {"data": [{"id": 9}]})
        result = SimpleNamespace(from_task=lambda task: {"data": [{"result": json.dumps(result)}]})

        def request(self, endpoint, params=None):
            return {"log": looks.pop(0)} if endpoint == "run/9" else {"status": "active" if looks[1:] else "completed"}

    monkeypatch.setattr(submit, "POLL_SECONDS", 0)
    shown = []
    with console.Bar(6, "fedavg", one_job=True) as bar:
        assert submit.follow(Researcher(), 1, "fedavg", lambda row: (shown.append(row["round"]), bar.on_round(row)))
    assert shown == [4, 5, 6]
    assert capsys.readouterr().err == "fedavg: round 6 of 6 accuracy 0.5000\n"


def test_a_resumed_run_shows_its_rounds(capsys, tmp_path):
    assert call(capsys, *RUN, "--out", tmp_path)[0] == 0
    status, _, err = call(capsys, *RUN[:-1], 5, "--resume", tmp_path)
    assert status == 0 and "fedavg: round 5 of 5 accuracy" in err


def test_a_disk_that_is_full_is_one_line(capsys, monkeypatch):
    def full(options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(commands, "settings", full)
    assert call(capsys, "settings", "fedavg") == (1, "", "v6-federated: No space left on device\n")


def test_a_target_between_percents(capsys, tmp_path):
    call(capsys, *RUN, "--out", tmp_path)
    assert main(["report", str(tmp_path), "--target", "0.995"]) == 0
    assert "rounds to 99.5%" in capsys.readouterr().out


def test_a_server_that_refuses_is_one_line():
    with pytest.raises(NetworkError, match="^the server tells no nodes: You lack the permission to do that!$"):
        submit.check_nodes(Server({"msg": "You lack the permission to do that!"}), 1, "default", None)


@pytest.mark.parametrize("method", ["fedavg", "scaffold"])
def test_ctrl_c_keeps_the_last_round(method, hospitals_csv, tmp_path):
    """And the job goes on from there as if it had not been interrupted."""
    file, _ = hospitals_csv
    out = tmp_path / "out"
    run = ["run", method, "--data", file, "--label", "outcome", "--features", "x,z", "--nodes", "3", "--rounds"]
    command = [sys.executable, "-m", "v6_workbench.cli.main", *map(str, run), "100000", "--out", str(out)]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # shells have jobs in the background ignore it
    )
    while "round" not in (line := process.stderr.readline()):
        assert line or process.poll() is None
    process.send_signal(signal.SIGINT)
    told, err = process.communicate(timeout=60)
    finished = json.loads((out / "result.json").read_text())
    rounds = len(finished["history"])
    assert process.returncode == 130 and f"interrupted; the model is that of round {rounds}; --resume {out}" in err
    assert json.loads(told.splitlines()[-1])["rounds"] == rounds > 0
    if method == "fedavg":
        assert main([str(a) for a in [*run, rounds + 2, "--resume", out, "--out", tmp_path / "on"]]) == 0
        assert len(json.loads((tmp_path / "on" / "result.json").read_text())["history"]) == rounds + 2


def test_ctrl_c_while_methods_are_compared(hospitals_csv, capsys, tmp_path, monkeypatch):
    file, _ = hospitals_csv
    rounds = []

    def interrupt(row):
        rounds.append(row)
        if len(rounds) == 5:
            raise KeyboardInterrupt

    monkeypatch.setattr(console.Bar, "on_round", lambda self, row: interrupt(row))
    run = ["compare", "fedavg", "scaffold", "--data", file, "--label", "outcome", "--features", "x,z", "--nodes", 3]
    status, _, err = call(capsys, *run, "--rounds", 3, "--out", tmp_path)
    assert status == 130 and f"interrupted; what was finished is in {tmp_path}" in err
    kept = [len(json.loads(file.read_text())["history"]) for file in sorted(tmp_path.glob("*/result.json"))]
    assert kept == [3, 2], "the first is whole; the second ended after its second round"


def test_columns_that_are_no_features(hospitals_csv, capsys, tmp_path):
    """A patient's number is told, and can be left out; so is the column that names the hospital."""
    file, rows = hospitals_csv
    rows.assign(id=range(1000, 1300)).to_csv(file, index=False)
    run = ["run", "fedavg", "--data", file, "--label", "outcome", "--partition", "column:hospital", "--rounds", 1]
    assert "id: another value in every row of a node, as identifiers and numbers of rows have" in call(capsys, *run)[2]
    status, _, err = call(capsys, *run, "--exclude", "id", "--out", tmp_path / "a")
    assert status == 0 and "another value" not in err
    assert json.loads((tmp_path / "a" / "result.json").read_text())["data"]["features"] == ["x", "z"]
    for more, says in [
        (["--exclude", "id", "--features", "x,z"], "--exclude beside --features is of no use"),
        (["--exclude", "name"], "--exclude name is refused; expected some of the features 'id', 'x', 'z'"),
        (["--exclude", "outcome"], "--exclude outcome is refused"),
        (["--exclude", "hospital"], "--exclude hospital is refused"),
        (["--exclude", "id", "--resume", tmp_path / "a"], "--exclude beside --resume is refused"),
    ]:
        status, _, err = call(capsys, *run, *more)
        assert status == 2 and says in err and len(err.splitlines()) == 1, err


def test_a_folder_of_results_is_reported(hospitals_csv, capsys, tmp_path):
    file, _ = hospitals_csv
    run = ["--data", file, "--label", "outcome", "--features", "x,z", "--nodes", 3, "--rounds", 2]
    methods_ = ["fedavg", "fedavg:lr=0", "alone:fedavg"]
    status, _, err = call(capsys, "compare", *methods_, *run, "--out", tmp_path)
    assert status == 0 and "fedavg:lr=0, 1 alone:fedavg, " in err
    assert "3 alone:fedavg: accuracy about that of one class, always 'home' has 0.9" in err
    status, line, _ = call(capsys, "report", tmp_path, "--out", tmp_path / "again")
    folders = ["1-fedavg", "2-fedavg-lr=0", "3-1 alone-fedavg", "4-2 alone-fedavg", "5-3 alone-fedavg"]
    assert status == 0 and [*line] == [str(tmp_path / name) for name in folders]
    assert (tmp_path / "1-fedavg" / "distances.png").exists()
    assert not (tmp_path / "3-1 alone-fedavg" / "distances.png").exists(), "one node's model is the global one"


def test_methods_compared_on_simulated_time(capsys, tmp_path):
    run = ["--data", "digits", "--nodes", 4, "--rounds", 3, "--target", 0.3, "--out", tmp_path]
    assert main(["compare", "coop", "fedavg", *map(str, run), "--speeds", "10"]) == 0
    out = capsys.readouterr().out
    found = json.loads(out.splitlines()[-1])
    assert "s to 30%" in out
    for line, folder in zip(found.values(), ("1-coop", "2-fedavg"), strict=True):
        result = json.loads((tmp_path / folder / "result.json").read_text())
        assert result["experiment"]["speeds"] == 10 and line["seconds"] == pytest.approx(
            sum(row["seconds"] for row in result["history"]), abs=1e-3
        )
        assert 0 < line["seconds_to_target"] <= line["seconds"]
    assert found["coop"]["seconds"] < found["fedavg"]["seconds"], "who waits for the slowest takes longest"
    assert main(["run", "fedavg", "--speeds", "10", *map(str, run)]) == 0
    assert "s of simulated time" in capsys.readouterr().out


def test_what_the_loss_says(capsys):
    for lines, says in [
        ([(1.0, 1.0), (0.5, 2.0)], "has grown while that in training fell: too many rounds, or outliers among them"),
        ([(1.0, 1.0), (2.0, 2.0)], "the loss has grown: a smaller lr, or --preprocess standardize, may help"),
        ([(1.0, 2.0), (0.5, 1.0)], ""),
    ]:
        history = [{"train_loss": a, "loss": b} for a, b in lines]
        diagnostics.growing({"history": history, "data": {"preprocess": []}})
        err = capsys.readouterr().err
        assert says in err and bool(err) == bool(says)
        done = [{"step": "standardize"}, {"step": "clip"}]
        diagnostics.growing({"history": history, "data": {"preprocess": done}})
        assert "--preprocess" not in capsys.readouterr().err


def test_whoever_reads_may_have_enough():
    command = f"{sys.executable} -m v6_federated.cli settings fedavg | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.stdout.split()[0] == "setting" and not done.stderr
