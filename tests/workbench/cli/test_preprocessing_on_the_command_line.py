"""Steps and components on the command line."""

import json

from helpers import ALL_STEPS, pooled

from v6_workbench.cli.main import main


def test_run_with_steps_on_the_command_line(clinics, tmp_path, capsys):
    pooled({k: rows.assign(hospital=f"h{k}") for k, rows in clinics.items()}).to_csv(tmp_path / "rows.csv", index=False)
    steps = [text for step in ALL_STEPS for text in ("--preprocess", step)]
    call = ["run", "fedavg", "--data", str(tmp_path / "rows.csv"), "--partition", "column:hospital", "--label", "label"]
    assert main([*call, *steps, "--rounds", "10", "--set", "lr=0.5", "--out", str(tmp_path / "out")]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["accuracy"] > 0.7
    assert main([*call, "--rounds", "1"]) == 2
    assert "the column(s) sex hold values that are not numbers" in capsys.readouterr().err


def test_run_pca_on_the_command_line(tmp_path, capsys):
    call = ["run", "pca", "--data", "breast-cancer", "--nodes", "3", "--set", "components=2", "--out", str(tmp_path)]
    assert main(call) == 0
    out, err = capsys.readouterr()
    assert json.loads(out.splitlines()[-1])["method"] == "pca" and "no accuracy" not in err
    assert main(["report", str(tmp_path)]) == 0
