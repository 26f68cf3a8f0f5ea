"""``compare --test``: scores, verdicts, and a test that goes on after it was stopped."""

import json
import shutil
from pathlib import Path

import pytest

from v6_workbench import registry, simulation
from v6_workbench.cli import cross_validation
from v6_workbench.cli.entries import Entry
from v6_workbench.simulation.cluster import remote
from v6_workbench.simulation.datasets import load
from v6_workbench.simulation.experiments import Experiment

WINE = ["--data", "wine", "--preprocess", "standardize", "--nodes", "2"]


def test_a_method_that_learns_nothing_is_worse(call, tmp_path):
    methods = ["fedavg", "fedavg:lr=0", "centralized:fedavg"]
    status, line, _ = call(
        "compare", *methods, *WINE, "--rounds", "5", "--test", "2", "--folds", "3", "--out", tmp_path
    )
    kept = json.loads((tmp_path / "test.json").read_text())
    assert status == 0 and line["pairs"] == kept["pairs"] and {len(s) for s in kept["scores"].values()} == {6}
    assert [(pair["first"], pair["second"], pair["sign"]) for pair in kept["pairs"]] == [
        ("fedavg", "fedavg:lr=0", "+"),
        ("fedavg", "centralized:fedavg", "="),
        ("fedavg:lr=0", "centralized:fedavg", "-"),
    ]
    assert (tmp_path / "posteriors.png").read_bytes().startswith(b"\x89PNG")


def test_a_test_that_was_stopped_goes_on(tmp_path, call, monkeypatch):
    """Scores outlive a failure: only new ones are trained then, with more iterations, and with one more method."""
    trained, federated = [], Experiment.federated

    def counted(self, method, values, on_round=None):
        if len(trained) == stop:
            raise OSError("no space")
        trained.append((self.seed, self.fold))
        return federated(self, method, values, on_round)

    def run(*arguments, out="a", test="1"):
        command = ["compare", "fedavg", "fedavg:lr=0", *arguments, *WINE, "--rounds", "2", "--folds", "3"]
        command += ["--test", test, "--out", tmp_path / out]
        status, _, err = call(*command, "--node-env", "V6_FEDERATED_DISALLOWED_COLUMNS=x,y,zed,w")
        said.append(err)
        return status

    monkeypatch.setattr(Experiment, "federated", counted)
    stop, said = 3, []
    assert run() == 1
    stop = None
    assert run() == 0 and trained == [(0, (f, 3)) for f in (0, 0, 1, 1, 2, 2)]
    assert f"3 of the 6 scores are already in {tmp_path / 'a'}" in said[-1]
    assert run(test="2") == 0 and run(test="2", out="b") == 0 and len(trained) == 24
    assert (tmp_path / "a" / "test.json").read_text() == (tmp_path / "b" / "test.json").read_text()
    assert run() == 0 and len(trained) == 24, "the first of two"
    assert {len(s) for s in json.loads((tmp_path / "a" / "test.json").read_text())["scores"].values()} == {3}
    assert run("scaffold") == 0 and len(trained) == 27
    assert run("--seed", "1") == 0 and len(trained) == 33
    assert run() == 0 and len(trained) == 33, "the scores of another test are kept next to it"
    with monkeypatch.context() as patch:
        patch.setattr(registry, "code", lambda method, *others: "another program")
        assert run() == 0 and len(trained) == 39
    assert run() == 0 and len(trained) == 39
    monkeypatch.setattr(remote, "versions", lambda: {"numpy": "0.1"})
    assert run() == 0 and len(trained) == 45


def test_scores_depend_on_the_files_of_the_simulation_and_on_where_they_are(tmp_path, monkeypatch):
    copy = shutil.copytree(Path(simulation.__file__).parent, tmp_path / "simulation")
    monkeypatch.setattr(simulation, "__file__", str(copy / "__init__.py"))
    experiment, entry = Experiment(load("wine"), nodes=2), Entry("", "fedavg", {"rounds": 1})

    def code():
        return cross_validation.depends_on(experiment, "fedavg", entry, 3)["code"]

    first = code()
    assert code() == first
    (copy / "dealing.py").rename(copy / "cluster" / "dealing.py")
    moved = code()
    (copy / "cluster" / "dealing.py").write_text("")
    assert len({first, moved, code()}) == 3
    assert first != registry.code("fedavg"), "an image holds no simulation"


@pytest.mark.parametrize(
    "wrong",
    [
        ["--rope", "2"],
        ["--rope", "2", "--test"],
        ["--test", "--folds", "1"],
        ["--test", "--folds", "99"],
        ["--test", "0"],
        ["--test", "--target", "0.9"],
        ["alone:fedavg", "--test"],
        ["fedavg:target=0.9", "--test"],
    ],
    ids=" ".join,
)
def test_a_refused_command_deletes_nothing(wrong, refused, tmp_path):
    earlier = {"comparison.png": b"1", "test.json": b"2", "posteriors.png": b"3"}
    for name, content in earlier.items():
        (tmp_path / name).write_bytes(content)
    refused("v6-federated: ", "compare", "fedavg", "fedavg:lr=1", *WINE, *wrong, "--out", tmp_path)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == earlier


def test_a_refused_command_makes_no_folder(refused, tmp_path):
    refused("--rope 2", "compare", "fedavg", "fedavg:lr=1", *WINE, "--test", "--rope", "2", "--out", tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "scores",
    ["[]", "5", "{", '{"a": 5}', '{"a": ["0.9"]}', '{"a": [NaN]}', '{"a": [7]}', '{"a": [[0.5]]}', '{"a": [true]}'],
)
def test_a_file_without_scores_is_refused(scores, tmp_path, refused):
    (tmp_path / "folds.json").write_text(scores)
    says = (
        "folds.json does not hold scores that `v6-federated compare --test` or `tune` wrote; remove it, or change --out"
    )
    refused(says, "compare", "fedavg", "scaffold", "--data", "wine", "--test", "--out", tmp_path)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["fedavg", "--test"], "1 method cannot be compared; expected two or more"),
        (["fedavg", "fedavg:lr=1", "--test", "0"], "--test 0 is too few; expected at least 1"),
        (["fedavg", "fedavg:lr=1", "--test", "--folds", "1"], "--folds 1 is too few; expected at least 2"),
        (["fedavg", "fedavg:lr=1", "--test", "--rope", "2"], "--rope 2 is out of range; expected a difference from 0"),
        (["--test", "fedavg", "scaffold"], "'fedavg' is not a number of cross-validations; write --test I after"),
        (["fedavg", "gbdt:early_stopping=3", "--test"], "gbdt:early_stopping=3: early_stopping would choose the model"),
        (
            ["gbdt:objective=regression", "gbdt", "--test"],
            "methods that predict classes, numbers or times cannot be compared",
        ),
        (["fedavg", "scaffold", "--test", "--target", "0.9"], "--target cannot be used with --test"),
        (["fedavg", "pca", "--test"], "pca trains no model that could be tested"),
        (["fedavg", "alone:fedavg", "--test"], "alone:fedavg cannot be used with --test, which compares methods"),
        (
            ["fedavg", "scaffold", "--test", "2", "--seed", "2147483647"],
            "--seed 2147483647 is too large for --test 2, as each cross-validation takes the next seed",
        ),
        (
            ["fedavg", "scaffold", "--test", "--folds", "18"],
            "178 rows are too few for 18 folds of 10 rows to test on; expected --folds 17 or fewer",
        ),
        (
            ["fedavg", "scaffold", "--test", "--folds", "9", "--node-env", "V6_FEDERATED_MINIMUM_ROWS=20"],
            "178 rows are too few for 9 folds of 20 rows to test on; expected --folds 8 or fewer",
        ),
    ],
)
def test_tests_that_cannot_work_are_refused_before_any_method_is_trained(arguments, says, trained, refused):
    refused(says, "compare", *arguments, "--data", "wine", "--rounds", "2", "--nodes", "2")
    assert not trained
