"""Tables for people: no cell is a formula."""

import csv
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from v6_workbench import Experiment, load
from v6_workbench.reporting import spreadsheets, subgroups


def cells(path):
    with path.open(newline="") as file:
        return [*csv.reader(file)]


@pytest.mark.parametrize("text", ["=1+1", "+1 2", "-x", "@SUM(A1)", "\tx", "\rx", "\n=1", "  =1", "\uff1dcmd", "-1;=1"])
def test_a_formula_is_written_as_text(tmp_path, text):
    spreadsheets.write(pd.DataFrame({text: [text, "a"], "b": [1, 2]}), tmp_path / "t.csv")
    assert cells(tmp_path / "t.csv") == [[f"'{text}", "b"], [f"'{text}", "1"], ["a", "2"]]


def test_numbers_stay_numbers(tmp_path):
    table = pd.DataFrame({"x": [-1.5, np.nan], "n": [-3, 4], "kept": ["-1.5", "+7E-2"], "id": ["007", np.nan]})
    table["x"] = table["x"].astype(np.float32) - np.float32(0.1)
    spreadsheets.write(table, tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_text() == '"x","n","kept","id"\n-1.6,-3,"-1.5","007"\n"",4,"+7E-2",""\n'
    pd.testing.assert_frame_equal(
        pd.read_csv(tmp_path / "t.csv", dtype={"x": np.float32, "kept": str, "id": str}), table
    )


@pytest.mark.parametrize("separator", [";", "\t", "\r", "\n"])
def test_no_separator_within_a_text_begins_a_cell(tmp_path, separator):
    """A European Excel divides cells at semicolons, and every Excel begins a row at a carriage return."""
    spreadsheets.write(pd.DataFrame({"a": [f"x{separator}=cmd"]}), tmp_path / "t.csv")
    assert f'"x{separator}=cmd"'.encode() in (tmp_path / "t.csv").read_bytes()


def test_two_columns_of_one_name_and_no_rows(tmp_path):
    spreadsheets.write(pd.DataFrame([[1, "=2"]], columns=["a", "a"]), tmp_path / "t.csv")
    assert cells(tmp_path / "t.csv") == [["a", "a"], ["1", "'=2"]]
    spreadsheets.write(pd.DataFrame(columns=["a", "b"]), tmp_path / "t.csv")
    assert cells(tmp_path / "t.csv") == [["a", "b"]]


def test_a_full_disk_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    (tmp_path / "t.csv").write_text("before")
    monkeypatch.setattr(pd.DataFrame, "to_csv", full)
    with pytest.raises(OSError, match="No space left"):
        spreadsheets.write(pd.DataFrame({"a": [1]}), tmp_path / "t.csv")
    assert [file.name for file in tmp_path.iterdir()] == ["t.csv"] and (tmp_path / "t.csv").read_text() == "before"


def test_subgroups_have_what_the_table_has(tmp_path):
    """Recalls by hand: 8 of 10, and no row of the second class; Wilson's interval of 8 of 10."""
    row = {"level": "f", "evaluated": 10, "accuracy": 0.8, "confusion": [[8, 2], [0, 0]]}
    result = {
        "method": "fedavg",
        "settings": {"seed": 0},
        "data": {"classes": ["no", "yes"]},
        "history": [],
        "per_node": [],
        "weights": {},
        "organizations": [1],
        "final": {"evaluated": 10, "accuracy": 0.8},
        "subgroups": {"column": "sex", "rows": [row], "suppressed": []},
        "coefficients": [{"name": "x", "estimate": 1.0}],
    }
    assert subgroups.recalls(row) == [0.8, None]
    lower, upper = subgroups.interval(result, row)
    z = 1.959964
    centre, half = (0.8 + z**2 / 20) / (1 + z**2 / 10), z * np.sqrt(0.016 + z**2 / 400) / (1 + z**2 / 10)
    np.testing.assert_allclose([lower, upper], [centre - half, centre + half], atol=1e-6)
    names = ["result", "column", "level", "evaluated", "accuracy", "accuracy_interval_lower", "accuracy_interval_upper"]
    found = spreadsheets.subgroup_rows("r", result)
    assert [*found[0]] == [*names, "recall no", "recall yes"]


def test_curves_and_baselines_have_a_line_for_each_bin(tmp_path):
    rng = np.random.default_rng(2)
    rows = pd.DataFrame({"age": rng.normal(size=90), "arm": rng.choice(["a", "=b"], 90)})
    rows["died"], rows["months"] = rng.integers(0, 2, 90), rng.integers(1, 9, 90)
    experiment = Experiment(load(rows), nodes=3, label="months", features=["age"])
    curves = replace(experiment, features=None).federated("km", event="died", grid=[2, 4, 6], subgroup="arm")
    one = experiment.federated("cox", event="died", strata="none", grid=[2, 4, 6])
    spreadsheets.write_all({"km": curves, "cox": one}, tmp_path)
    survival, baseline = (
        pd.read_csv(tmp_path / f"{name}.csv", float_precision="round_trip") for name in ("survival", "baseline")
    )
    a, b = (found["rows"] for found in sorted(curves["curves_of_survival"], key=lambda found: found["group"] != "a"))
    assert survival[survival["group"] == "a"].drop(columns=["result", "group"]).to_dict("records") == a
    assert survival[survival["group"] == "'=b"]["survival"].tolist() == [row["survival"] for row in b]
    assert {*survival["result"]} == {"km"} and {*baseline["result"]} == {"cox"}
    assert [*baseline] == ["result", "end", "events", "hazard", "survival"] and len(baseline) == 4
    assert baseline["hazard"].tolist() == one["baseline"]["hazard"] and np.isnan(baseline["end"].iloc[-1])
    assert baseline["survival"].tolist()[:3] == one["baseline"]["survival"]
    spreadsheets.write_all({"cox": experiment.federated("cox", event="died")}, tmp_path)
    assert not (tmp_path / "survival.csv").exists() and not (tmp_path / "baseline.csv").exists()
