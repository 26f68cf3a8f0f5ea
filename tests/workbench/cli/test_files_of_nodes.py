"""``--data`` given several times: each file is a node."""

import json

import numpy as np
import pandas as pd
import pytest
from helpers import table

NAMES = ["north", "south", "west"]


@pytest.fixture
def files(tmp_path):
    """Three files, the columns of one in another order; as arguments."""
    arguments = []
    for i, name in enumerate(NAMES):
        rows = table(40, seed=i)
        rows = rows[["x1", "x0", "x2", "x3", "label"]] if i == 1 else rows
        rows.to_csv(tmp_path / f"{name}.csv", index=False)
        arguments += ["--data", tmp_path / f"{name}.csv"]
    return arguments


def test_files_of_nodes_equal_one_file_with_a_column_that_names_the_node(files, call, tmp_path):
    parts = [table(40, seed=i).assign(hospital=name) for i, name in enumerate(NAMES)]
    pd.concat(parts)[["hospital", *parts[0].columns[:-1]]].to_csv(tmp_path / "rows.csv", index=False)
    _, line, _ = call("run", "fedavg", *files, "--out", tmp_path / "files")
    _, same, _ = call("run", "fedavg", "--data", tmp_path / "rows.csv", "--partition", "column:hospital")
    assert line["loss"] == same["loss"]
    result = json.loads((tmp_path / "files" / "result.json").read_text())
    assert result["experiment"]["nodes"] == NAMES
    for same_files in (files, [*files[2:], *files[:2]]):  # their order says nothing
        assert call("run", "fedavg", *same_files, "--resume", tmp_path / "files", "--rounds", 12)[0] == 0


def test_files_that_do_not_fit_together_are_refused(files, refused, tmp_path):
    table(40).assign(extra=1)[["extra", "x0", "x1", "x2", "label"]].to_csv(tmp_path / "other.csv", index=False)
    (tmp_path / "b").mkdir()
    table(40).to_csv(tmp_path / "b" / "north.csv", index=False)
    table(40).rename(columns={"label": "outcome"}).to_csv(tmp_path / "last.csv", index=False)
    more = [*files, "--data"]
    for says, *arguments in (
        ("other lacks 'x3' and also has 'extra', unlike north; expected the same", *more, tmp_path / "other.csv"),
        ("two files are called north; each file is a node", *more, tmp_path / "b" / "north.csv"),
        (
            "the last columns of last and north differ; name the label's column with --label",
            *more,
            tmp_path / "last.csv",
        ),
        ("--data is given 3 times, and each file is a node; remove the number of nodes", *files, "--nodes", 3),
        ("remove the number of nodes and the partition", *files, "--partition", "shards"),
        ("remove the number of nodes and the partition", *files, "--partition", "iid"),
        ("no file has a column 'nobody'; expected some of 'x0'", *files, "--label", "nobody"),
        ("wine", *more, "wine.csv"),
    ):
        refused(says, "run", "fedavg", *arguments)


def test_only_the_columns_that_are_used_must_be_the_same(files, call, tmp_path):
    table(40).assign(extra=1)[["extra", "x0", "x1", "x2", "label"]].to_csv(tmp_path / "other.csv", index=False)
    table(40).rename(columns={"label": "outcome"}).to_csv(tmp_path / "last.csv", index=False)
    more = [*files, "--data"]
    assert call("run", "fedavg", *more, tmp_path / "other.csv", "--features", "x0,x1")[0] == 0
    assert call("run", "pca", *more, tmp_path / "last.csv", "--features", "x0,x1")[0] == 0, "it uses no label"
    assert call("run", "pca", *files, "--features", "x0,label")[0] == 0


@pytest.fixture
def followed(tmp_path):
    """Three files of times; the last lacks a column of words that the others have."""
    arguments = []
    for i, name in enumerate(NAMES):
        rng = np.random.default_rng(i)
        rows = pd.DataFrame({"age": rng.normal(size=60), "size": rng.normal(size=60)})
        rows["arm"], rows["sex"] = rng.choice(["a", "b"], 60), rng.choice(["f", "m"], 60)
        rows["died"], rows["months"] = rng.integers(0, 2, 60), rng.exponential(size=60).round(2) + 0.01
        rows = rows.drop(columns="sex") if name == "west" else rows
        rows.to_csv(tmp_path / f"{name}.csv", index=False)
        arguments += ["--data", tmp_path / f"{name}.csv"]
    return arguments


@pytest.mark.parametrize(
    "words",
    [
        ["cox", "--label", "months", "--set", "event=died"],
        ["glm", "--label", "died", "--set", "offset=size"],
        ["fedavg", "--label", "months", "--set", "loss=cox", "--set", "event=died"],
        ["fedavg", "--label", "died", "--set", "subgroup=arm"],
    ],
)
def test_columns_that_settings_name_are_kept_whatever_the_features_are(words, followed, call):
    by_name = call("run", *words, *followed, "--features", "age", "--rounds", 10)
    assert by_name[0] == 0, by_name[2]
    others = ",".join(c for c in ("arm", "sex", "size", "died", "months") if c not in words)
    same = call("run", *words, *followed, "--exclude", others, "--rounds", 10)
    assert same[0] == 0, same[2]
    without = ("bytes_down", "seconds")  # central names the features in one case
    kept = [{k: v for k, v in line.items() if k not in without} for _, line, _ in (by_name, same)]
    assert kept[0] == kept[1]


def test_a_resumed_job_has_the_columns_that_it_named(followed, call, tmp_path):
    words = ["run", "fedavg", *followed, "--rounds"]
    named = ["--label", "months", "--features", "age", "--set", "loss=cox", "--set", "event=died"]
    assert call(*words, 1, *named, "--out", tmp_path / "one")[0] == 0
    assert call(*words, 2, "--resume", tmp_path / "one")[0] == 0


def test_methods_that_look_at_times_need_no_other_columns(followed, call, refused):
    km = ["run", "km", *followed, "--label", "months", "--set", "event=died"]
    assert call(*km)[1]["method"] == "km"
    assert call(*km, "--set", "subgroup=arm")[0] == 0
    refused(
        "west has no column 'sex', which a setting (--set) names; name a column that all", *km, "--set", "subgroup=sex"
    )
    refused("label is missing: name the column of times", "run", "km", *followed)


def test_the_column_of_files_is_shown_to_nobody(followed, refused):
    cox = ["run", "cox", *followed, "--features", "age", "--label", "months", "--set"]
    assert "file of the node" not in refused("no file has a column 'deid'; expected some of 'age'", *cox, "event=deid")


def test_rows_that_cannot_be_used_are_looked_for_in_the_file_that_is_named(files, refused, tmp_path):
    def with_fourth(**columns):
        table(40, seed=4).assign(**columns).to_csv(tmp_path / "x.csv", index=False)
        return ["run", "fedavg", *files, "--data", tmp_path / "x.csv"]

    labels = table(40, seed=4)["label"]
    kinds = "labels that are neither all words nor all numbers; expected one kind: they are words at x and numbers at "
    refused(kinds + "north, south, west", *with_fourth(label=labels.map({0: "no", 1: "yes"})))
    refused("x: missing values in the label column label", *with_fourth(label=labels.where(labels.index != 3)))
    refused("x: missing values in the column(s) x1", *with_fourth(x1=labels.where(labels.index != 3)))
    line = refused("x: some values in the column(s) x1 are not numbers", *with_fourth(x1="12.0 mg/l"))
    assert "mg" not in line
    for name in NAMES:
        table(40).assign(x1="words").to_csv(tmp_path / f"{name}.csv", index=False)
    line = refused("the column(s) x1 hold values that are not numbers", *with_fourth(x1="words"))
    assert line.startswith("v6-federated: the column(s)"), "all files are alike"
