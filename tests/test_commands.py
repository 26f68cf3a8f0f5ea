"""What commands check before anything is trained, and what they leave where an entry fails."""

import json
from pathlib import Path

import pytest

from v6_workbench.cli import console
from v6_workbench.cli.main import main

FEDAVG = ["fedavg", "--data", "wine", "--rounds", "1"]


@pytest.fixture
def trained(monkeypatch):
    """Whether anything was trained: every training shows a bar."""
    begun = []
    before = console.Bar.on_round
    monkeypatch.setattr(console.Bar, "on_round", lambda bar, row: (begun.append(row), before(bar, row)))
    return begun


@pytest.mark.parametrize("command", [["run", *FEDAVG], ["compare", *FEDAVG], ["demo"]])
@pytest.mark.parametrize(
    ("folder", "says"),
    [
        ("/dev/fd", "--out /dev/fd cannot be written to ("),  # a folder in which not even root makes a file
        (__file__, f"--out {__file__} is a file; expected a folder"),
    ],
)
def test_a_folder_that_cannot_be_written_to_is_refused_first(command, folder, says, trained, capsys):
    assert main([*command, "--out", folder]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"v6-federated: {says}") and len(err.splitlines()) == 1 and not trained


def test_trying_a_folder_leaves_nothing(tmp_path):
    assert main(["run", *FEDAVG, "--out", str(tmp_path)]) == 0
    assert {file.name for file in tmp_path.iterdir()} == {"result.json", "curves.png", "distances.png"}


def test_what_compare_has_finished_outlives_a_later_failure(capsys, tmp_path):
    compare = ["compare", "fedavg", "alone:fedavg:lr=1e300", "--data", "wine", "--nodes", "3", "--rounds", "3"]
    assert main([*compare, "--out", str(tmp_path)]) == 1
    err = capsys.readouterr().err.splitlines()
    assert err[-1].startswith("v6-federated: 1 alone:fedavg:lr=1e300: ") and "training has diverged" in err[-1]
    assert [file.parent.name for file in tmp_path.glob("*/result.json")] == ["1-fedavg"]
    assert main([*compare[:2], "fedavg:lr=1e300", *compare[3:], "--test"]) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith("v6-federated: fedavg:lr=1e300: ")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["fedavg", 'fedavg:features=["mean"]'], 'fedavg:features=["mean"]: no column mean in the table'),
        (["fedavg", "fedavg:model=cnn_garst"], "fedavg:model=cnn_garst: 13 features are not a square image"),
        (["fedavg", "fedavg:model=cnn_garst", "--preprocess", "standardize"], "13 features are not a square image"),
        (["fedavg", "centralized:fedavg", "--holdout", "0"], "centralized:fedavg: no rows are held out to compare on"),
        (["fedavg", "scaffold", "--test", "2", "--seed", "2147483647"], "seed=2147483647 is refused with iterations=2"),
        (["fedavg", "scaffold", "--test", "--folds", "18"], "18 folds of 178 rows; expected fewer folds, at most 17"),
        (
            ["fedavg", "scaffold", "--test", "--folds", "9", "--node-env", "V6_FEDERATED_MINIMUM_ROWS=20"],
            "9 folds of 178 rows; expected fewer folds, at most 8: each needs 20 rows to test on",
        ),
    ],
)
def test_entries_that_cannot_work_are_refused_first(arguments, says, trained, capsys):
    assert main(["compare", *arguments, "--nodes", "2", *FEDAVG[1:]]) == 2
    assert says in capsys.readouterr().err and not trained


def test_entries_whose_columns_steps_change_are_trained(capsys):
    """16 components are a square image; so are 16 columns of an entry's own."""
    own = json.dumps([f"pixel_{i}_{j}" for i in range(4) for j in range(4)])
    entries = ['fedavg:model=cnn_garst,preprocess=["pca:16"]', f"fedavg:model=cnn_garst,features={own}"]
    assert main(["compare", *entries, "--data", "digits", "--rounds", "1"]) == 0


def test_a_long_entry_has_a_folder(capsys, tmp_path):
    long = "fedavg:classes=[" + ",".join(map(str, range(90))) + "]"
    assert main(["compare", long, *FEDAVG, "--out", str(tmp_path)]) == 0
    names = sorted(file.parent.name for file in tmp_path.glob("*/result.json"))
    assert names == ["1-" + long.replace(":", "-")[:60], "2-fedavg"]


@pytest.mark.parametrize("ending", [".npz", ".safetensors", ".pt", ".txt"])
@pytest.mark.parametrize("part", ["weights", "model", "data"])
def test_a_result_without_a_model_is_not_exported(part, ending, capsys, tmp_path):
    assert main(["run", *FEDAVG, "--out", str(tmp_path)]) == 0
    file = tmp_path / "result.json"
    result = json.loads(file.read_text())
    file.write_text(json.dumps({name: value for name, value in result.items() if name != part}))
    capsys.readouterr()
    new = ["predict", str(file), "--data", "wine", "--out", str(tmp_path / "p.csv")]
    for command in (["export", str(file), "--to", str(tmp_path / f"m{ending}")], new):
        assert main(command) == 2
        err = capsys.readouterr().err
        says = (
            "is not a result; expected"
            if part == "data"
            else f"not a result with a model (KeyError '{part}'); expected"
        )
        assert says in err
        assert len(err.splitlines()) == 1
    assert not Path(tmp_path / f"m{ending}").exists()
