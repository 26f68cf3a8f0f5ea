"""``--resume``: a job goes on with its own settings and rows."""

import json

import numpy as np
import pandas as pd
import pytest

from v6_workbench.cli import job

RUN = ["run", "fedavg", "--data", "breast-cancer", "--rounds", "2"]


def weights(folder):
    """The weights of the result in a folder."""
    return json.loads((folder / "result.json").read_text())["weights"]


@pytest.fixture
def dealt(hospitals_csv):
    """Rows dealt to hospitals, as arguments."""
    return ["--data", hospitals_csv[0], "--partition", "column:hospital"]


@pytest.fixture
def two(dealt, call, tmp_path):
    """The folder of a job of two rounds."""
    named = ["--label", "outcome", "--features", "x,z", "--holdout", 0.3]
    settings = ["--model", "fnn", "--set", "lr=0.5", "--set", "epochs=2"]
    for rounds, name in ((4, "four"), (2, "two")):
        assert call("run", "fedavg", *named, *dealt, *settings, "--rounds", rounds, "--out", tmp_path / name)[0] == 0
    return tmp_path / "two"


def test_a_resumed_job_equals_a_straight_one(two, dealt, call, tmp_path):
    """Settings that the command does not name are those of the earlier job, and are printed."""
    status, _, err = call("run", "fedavg", *dealt, "--rounds", 4, "--resume", two, "--out", tmp_path / "again")
    assert status == 0
    (line,) = [text for text in err.splitlines() if text.startswith("taken over from the earlier job: ")]
    for taken in ("label=outcome, features=['x', 'z'], holdout=0.3, ", "lr=0.5", "epochs=2"):
        assert taken in line
    assert weights(tmp_path / "again") == weights(tmp_path / "four")


def test_other_rows_are_refused(two, dealt, hospitals_csv, refused, tmp_path):
    file, rows = hospitals_csv
    other, same_name = file.with_name("other.csv"), tmp_path / "elsewhere" / file.name
    rows.to_csv(other, index=False)
    same_name.parent.mkdir()
    rows.assign(x=rows["x"].to_numpy()[::-1]).to_csv(same_name, index=False)
    for says, *changed in [
        ("the earlier job had --data rows; use the same", "--data", other, "--partition", "column:hospital"),
        ("the earlier job had other nodes, rows or held-out rows; use the same", "--data", same_name, *dealt[2:]),
        ("the earlier job had no --speeds; use the same", *dealt, "--speeds", 5),
        ("the earlier job had --partition column:hospital; use the same", "--data", file, "--nodes", 3),
        ("holdout=0.3", *dealt, "--holdout", 0.2),
        ("features=['x', 'z']", *dealt, "--features", "x"),
    ]:
        refused(says, "run", "fedavg", *changed, "--rounds", 4, "--resume", two)


def test_another_test_set_is_refused(call, refused, tmp_path):
    rng = np.random.default_rng(0)
    arrays = {"x_train": rng.normal(size=(60, 3)), "y_train": np.arange(60) % 2}
    run = ["run", "fedavg", "--data", tmp_path / "d.npz", "--nodes", 2]

    def write():
        np.savez(tmp_path / "d.npz", **arrays, x_test=rng.normal(size=(20, 3)), y_test=np.arange(20) % 2)

    write()
    assert call(*run, "--rounds", 1, "--out", tmp_path / "one")[0] == 0
    write()
    refused("the earlier job had other nodes, rows or held-out rows", *run, "--rounds", 2, "--resume", tmp_path / "one")


def test_evaluators_are_taken_over_twice(dealt, call, tmp_path):
    run = ["run", "fedavg", *dealt, "--label", "outcome", "--features", "x,z", "--rounds"]
    assert call(*run, 2, "--set", "evaluators=3", "--out", tmp_path / "two")[0] == 0
    assert call(*run, 3, "--resume", tmp_path / "two", "--out", tmp_path / "three")[0] == 0
    assert call(*run, 4, "--resume", tmp_path / "three", "--out", tmp_path / "four")[0] == 0
    result = json.loads((tmp_path / "four" / "result.json").read_text())
    assert result["settings"]["evaluators"] == [3] and len(result["history"]) == 4


def test_only_a_federated_result_is_resumed(call, refused, tmp_path):
    compare = ["compare", "centralized:fedavg", "alone:fedavg", "--data", "wine", "--nodes", 2, "--rounds", 1]
    assert call(*compare, "--out", tmp_path)[0] == 0
    run = ["run", "fedavg", "--data", "wine", "--nodes", 2, "--rounds", 2, "--resume"]
    for folder, how in [("1-centralized-fedavg", "centralized"), ("2-1 alone-fedavg", "alone: 1")]:
        refused(f"--resume: the earlier result was trained {how}; expected a federated result", *run, tmp_path / folder)


def test_the_bar_counts_from_the_first_round(call, tmp_path):
    assert call(*RUN, "--out", tmp_path)[0] == 0
    status, _, err = call(*RUN[:-1], 5, "--resume", tmp_path)
    assert status == 0 and "fedavg: round 5 of 5 accuracy" in err


def test_a_resumed_task_has_the_rows_of_the_earlier_one(capsys):
    """``submit --resume TASK`` takes over rows, an experiment has its own."""
    rows = {"label": "y", "features": ["a"], "holdout": 0.3, "organizations": [1, 2], "evaluators": [3]}
    earlier = {"method": "fedavg", "settings": {"rounds": 5, "seed": 3, "target": 0.9, **rows}}
    asked = job.resumed(earlier, "fedavg", {"rounds": 9, "holdout": 0.1})
    assert asked == {"rounds": 9, "seed": 3, **rows, "holdout": 0.1, "resume": earlier}
    assert "organizations=[1, 2]" in capsys.readouterr().err
    own = job.resumed(earlier, "fedavg", {"rounds": 9}, {"label": "y"})
    parties = {name: rows[name] for name in ("organizations", "evaluators")}
    assert own == {"rounds": 9, "seed": 3, **parties, "resume": earlier}
    said = "taken over from the earlier job: label=y, seed=3, organizations=[1, 2], evaluators=[3]\n"
    assert capsys.readouterr().err == said


def test_columns_and_penalties_of_another_question_are_refused(call, refused, tmp_path):
    """Before anything is trained: the coefficients would be those of the earlier job."""
    rng = np.random.default_rng(2)
    rows = pd.DataFrame({"hosp": np.arange(90) % 3, **{name: rng.normal(size=90) for name in ("x", "off1", "off2")}})
    rows.assign(count=rng.poisson(2, 90)).to_csv(tmp_path / "rows.csv", index=False)
    run = ["run", "glm", "--data", tmp_path / "rows.csv", "--partition", "column:hosp", "--features", "x"]
    run += ["--label", "count", "--set", "family=poisson"]
    assert call(*run, "--set", "offset=off1", "--out", tmp_path / "one")[0] == 0
    again = [*run, "--rounds", 40, "--resume", tmp_path / "one", "--out", tmp_path / "two"]
    refused("had offset='off1'; expected the same, not 'off2'", *again, "--set", "offset=off2")
    refused("had l2=0.0; expected the same, not 1", *again, "--set", "l2=1")
    refused("had no weights; expected the same, not 'off2'", *again, "--set", "weights=off2")
    assert not (tmp_path / "two").exists()
    assert call(*again)[0] == 0
    settings = json.loads((tmp_path / "two" / "result.json").read_text())["settings"]
    assert settings["offset"] == "off1"
