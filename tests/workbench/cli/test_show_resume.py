"""What a command says of a job that has stopped: how to resume it, unless it would only stop again."""

import numpy as np
import pandas as pd

from v6_workbench.cli.main import main


def test_a_job_that_would_only_stop_again_is_not_said_to_be_resumable(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    age = np.random.default_rng(0).normal(60, 10, 200)
    pd.DataFrame({"age": age, "old": (age > 60) * 1}).to_csv("rows.csv", index=False)
    job = ["run", "glm", "--data", "rows.csv", "--nodes", "4", "--out", "out"]
    for careful in ([], ["--node-env", "V6_FEDERATED_PROFILE=careful"]):
        assert main([*job, *careful]) == 1
        last = capsys.readouterr().err.strip().splitlines()[-1]
        assert "; the model is that of round" in last and "resume" not in last and "age" in last
        assert main(["run", "glm", "--data", "rows.csv", "--nodes", "4", "--rounds", "50", "--resume", "out"]) != 0
        capsys.readouterr()
