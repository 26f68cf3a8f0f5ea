"""``compare``: its entries, its files, and what it refuses before anything is trained."""

import json

import numpy as np
import pandas as pd
import pytest
from helpers import table

WINE = ["--data", "wine", "--rounds", "1"]


def test_compare_writes_a_folder_for_each_result(call, tmp_path):
    methods = ["fedavg", "fedavg:epochs=3,batch_size=10", "centralized:fedavg"]
    rows = ["--data", "wine", "--nodes", 3, "--preprocess", "standardize", "--rounds", 3]
    status, line, _ = call("compare", *methods, *rows, "--out", tmp_path, "--target", "0.9")
    assert status == 0 and list(line) == methods
    folders = ["1-fedavg", "2-fedavg-epochs=3,batch_size=10", "3-centralized-fedavg"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [*folders, "comparison.png"]
    assert all((tmp_path / folder / "result.json").exists() for folder in folders)
    status, line, _ = call("report", *(tmp_path / folder for folder in folders), "--out", tmp_path / "again")
    assert status == 0 and len(line) == 3 and (tmp_path / "again" / "curves.png").exists()


def test_entries_and_nodes_may_have_any_name(call, tmp_path):
    parts = [table(40, seed=i).assign(hospital=name) for i, name in enumerate(["north", "south", "[/west]"])]
    pd.concat(parts).to_csv(tmp_path / "rows.csv", index=False)
    out = tmp_path / "[/out]$a"
    rows = ["--data", tmp_path / "rows.csv", "--partition", "column:hospital", "--out", out]
    status, line, _ = call("compare", "fedavg", "centralized:fedavg", "fedavg:classes=[0,1],lr=0.2", "fedavg", *rows)
    assert status == 0
    assert list(line) == ["fedavg", "centralized:fedavg", "fedavg:classes=[0,1],lr=0.2", "fedavg again"]
    folders = sorted(p for p in out.iterdir() if p.is_dir())
    result = json.loads((folders[0] / "result.json").read_text())
    assert result["experiment"]["nodes"] == ["[/west]", "north", "south"]
    assert call("report", *folders, "--out", tmp_path / "again")[0] == 0


def test_lists_in_an_entry_need_no_brackets(call):
    status, line, err = call("compare", "fedavg:classes=0,1,2,lr=0.1", *WINE)
    assert status == 0 and list(line) == ["fedavg:classes=0,1,2,lr=0.1"], err


def test_a_long_entry_has_a_short_folder(call, tmp_path):
    long = "fedavg:classes=[" + ",".join(map(str, range(90))) + "]"
    assert call("compare", long, "fedavg", *WINE, "--out", tmp_path)[0] == 0
    names = sorted(file.parent.name for file in tmp_path.glob("*/result.json"))
    assert names == ["1-" + long.replace(":", "-")[:60], "2-fedavg"]


def test_what_has_finished_outlives_a_later_failure(call, tmp_path):
    compare = ["compare", "fedavg", "alone:fedavg:lr=1e300", "--data", "wine", "--nodes", "3", "--rounds", "3"]
    status, _, err = call(*compare, "--out", tmp_path)
    assert status == 1
    last = err.splitlines()[-1]
    assert last.startswith("v6-federated: 1 alone:fedavg:lr=1e300: ") and "diverged" in last
    assert [file.parent.name for file in tmp_path.glob("*/result.json")] == ["1-fedavg"]
    status, _, err = call(*compare[:2], "fedavg:lr=1e300", *compare[3:], "--test")
    assert status == 1 and err.splitlines()[-1].startswith("v6-federated: fedavg:lr=1e300: ")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["fedavg", 'fedavg:features=["mean"]'], 'fedavg:features=["mean"]: '),
        (["fedavg", "fedavg:model=cnn_garst"], "fedavg:model=cnn_garst: 13 features are not a square image"),
        (["fedavg", "fedavg:model=cnn_garst", "--preprocess", "standardize"], "13 features are not a square image"),
        (["fedavg", "centralized:fedavg", "--holdout", "0"], "centralized:fedavg: no rows are held out to compare on"),
        (["fedavg", "dynavg:nesterov=2"], "dynavg:nesterov=2: unknown setting 'nesterov'"),
        (["centralized:fedavg:clip=1,epsilon=3"], "a baseline evaluates without noise, and has none in training"),
        (["fedavg", "centralized:fedavg", "--preprocess", "scale"], "a baseline has no study, whose schema the step"),
        (["fedavg", "centralized:pca"], "centralized:pca: pca trains no model; expected a method that does"),
        (["fedavg", "fedprox"], "unknown method 'fedprox'; expected one of"),
        (["fedavg", "pooled:fedavg"], "unknown word 'pooled'; expected centralized:fedavg or alone:fedavg"),
        (["alone"], "'alone' does not name a method; expected for example alone:fedavg"),
        (["centralized:"], "'centralized:' does not name a method; expected for example centralized:fedavg"),
        ([":fedavg"], "':fedavg' does not name a method; expected for example fedavg"),
        ([":"], "':' does not name a method; expected for example fedavg"),
        (["fedavg:"], "'fedavg:' ends with a colon and no setting; expected fedavg, or fedavg:lr=0.1"),
        (["fedavg:lr=0.1,holdout=0.5"], "so holdout cannot be set for one of them; use --holdout 0.5 for all"),
        (["alone:fedavg:evaluators=[1]"], "use --set evaluators=[1] for all"),
        (["fedavg:lr=0.1,lr=5"], "fedavg:lr=0.1,lr=5: lr is given twice; remove one"),
        (["fedavg:lr"], "fedavg:lr: 'lr' is not of the form KEY=VALUE; expected for example lr=0.1"),
        (
            ["fedavg", "alone:fedavg", "--set", "organizations=1,2"],
            "alone:fedavg cannot be compared with --set organizations, since it would be trained on other rows",
        ),
        (["fedavg", "--folds", "3"], "--folds and --rope need --test; add --test, or remove them"),
    ],
)
def test_entries_that_cannot_work_are_refused_before_any_is_trained(arguments, says, trained, refused):
    refused(says, "compare", *arguments, "--nodes", "2", *WINE)
    assert not trained


def test_a_comparison_over_an_earlier_one_says_so(call, tmp_path):
    compare = ["compare", "fedavg", *WINE, "--out", tmp_path]
    assert "replacing" not in call(*compare)[2]
    assert f"replacing earlier results of the same name in {tmp_path}" in call(*compare)[2]


def test_models_are_checked_after_the_columns_of_an_entry(call):
    """16 components are a square image; so are 16 columns of an entry's own."""
    own = json.dumps([f"pixel_{i}_{j}" for i in range(4) for j in range(4)])
    entries = ['fedavg:model=cnn_garst,preprocess=["pca:16"]', f"fedavg:model=cnn_garst,features={own}"]
    assert call("compare", *entries, "--data", "digits", "--rounds", "1")[0] == 0


def test_compare_with_each_node_alone(hospitals_csv, call, tmp_path):
    """All are evaluated on the same held-out rows of all nodes."""
    file, _ = hospitals_csv
    rows = ["--data", file, "--partition", "column:hospital", "--label", "outcome", "--features", "x,z", "--rounds", 2]
    status, line, err = call("compare", "fedavg", "fedavg:lr=0", "alone:fedavg:epochs=2", *rows, "--out", tmp_path)
    assert status == 0
    alone = [f"{name} alone:fedavg:epochs=2" for name in ("Noord", "Oost", "Zuid")]
    assert list(line) == ["fedavg", "fedavg:lr=0", *alone]
    results = [json.loads((folder / "result.json").read_text()) for folder in sorted(tmp_path.glob("[0-9]-*"))]
    assert len(results) == 5 and len({result["final"]["evaluated"] for result in results}) == 1
    assert "hardly more accurate than one class (always predicting 'home' has 0.9" in err
    (warning,) = [text for text in err.splitlines() if "hardly more accurate" in text]
    assert "fedavg:lr=0, " in warning
    assert (tmp_path / "1-fedavg" / "distances.png").exists()
    assert not (
        tmp_path / "3-Noord alone-fedavg-epochs=2" / "distances.png"
    ).exists(), "a single node is the global model"


def test_baselines_run_under_careful_and_are_in_no_hospitals_log(call, tmp_path):
    """A baseline has one node, which is no hospital's: no minimum of organizations holds for it."""
    careful = ["--node-env", "V6_FEDERATED_PROFILE=careful", "--hospital-folder", tmp_path / "hospitals"]
    status, line, _ = call("compare", "fedavg", "centralized:fedavg", "alone:fedavg", *WINE, "--nodes", 3, *careful)
    assert status == 0 and len(line) == 5
    logs = sorted((tmp_path / "hospitals").glob("*/audit.jsonl"))
    assert [log.parent.name for log in logs] == ["node-1", "node-2", "node-3"]
    assert {json.loads(text)["participants"] for log in logs for text in log.read_text().splitlines()} == {3}


def test_pooled_rows_are_evaluated_as_their_nodes_evaluate_them(call, tmp_path):
    """One of the ten rows that a node holds out lacks x1, so x1 counts as empty there: pooled too."""
    rows = table(150)
    holes = rows.assign(x1=rows["x1"].where(np.arange(150) % 9 > 0))
    holes.assign(hospital=np.arange(150) % 3).to_csv(tmp_path / "rows.csv", index=False)
    data = ["--data", tmp_path / "rows.csv", "--label", "label", "--partition", "column:hospital"]
    status, found, err = call("compare", "fedavg", "centralized:fedavg", *data, "--preprocess", "impute", "--rounds", 3)
    assert status == 0 and "x1: fewer than 10 of the rows held out at 0 have a value" in err
    federated, pooled = found.values()
    assert federated["accuracy"] == pooled["accuracy"] and federated["loss"] == pytest.approx(pooled["loss"], rel=1e-5)
