"""The command on the page makes the result again."""

import json
import shlex

import numpy as np
import pytest
from helpers import table

from v6_federated.messages import codec
from v6_workbench.cli.main import main
from v6_workbench.reporting import page
from v6_workbench.reporting.command import OF_FILES, command_of
from v6_workbench.simulation import datasets

CASES = {
    "defaults": ["fedavg", "--data", "wine"],
    "many": [
        *("fedavg", "--data", "digits", "--nodes", "3", "--partition", "unbalanced", "--partition-seed", "4"),
        *("--model", "mlp:hidden=8,4", "--seed", "7", "--holdout", "0.3", "--preprocess", "pca:components=5"),
        *("--set", "lr=0.05", "--set", "batch_size=20", "--set", "server_optimizer=adam", "--set", "organizations=1,2"),
    ],
    "limits": [
        *(
            "fedavg",
            "--data",
            "breast-cancer",
            "--nodes",
            "4",
            "--features",
            "mean radius,mean texture",
            "--rounds",
            "2",
        ),
        *("--node-env", "V6_FEDERATED_PROFILE=careful", "--node-env", "2:V6_FEDERATED_MINIMUM_ROWS=30"),
        *("--node-env", "V6_FEDERATED_AGGREGATION=plain", "--node-env", "V6_FEDERATED_OWN_SHUFFLE=0"),
    ],
    "time": ["coop", "--data", "wine", "--nodes", "3", "--speeds", "3", "--rounds", "4"],
    "exact": ["glm", "--data", "breast-cancer", "--features", "mean radius,mean texture", "--set", "l2=0.01"],
    "trees": ["gbdt", "--data", "diabetes", "--set", "objective=regression", "--rounds", "2"],
    "components": ["pca", "--data", "wine", "--nodes", "2", "--set", "components=2"],
    "until a target": ["fedavg", "--data", "wine", "--target", "0.5", "--stop-at-target", "--until-converged", "0.1"],
}


def result_of(folder, words):
    rounds = [] if "--rounds" in words or words[0] in ("glm", "pca") else ["--rounds", "3"]
    assert main(["run", *words, *rounds, "--out", str(folder)]) == 0
    return json.loads((folder / "result.json").read_text())


@pytest.mark.parametrize("words", CASES.values(), ids=CASES)
def test_the_command_gives_the_same_result(words, tmp_path):
    first = result_of(tmp_path / "first", words)
    program, run, *again = shlex.split(command_of(first))
    assert (program, run) == ("v6-federated", "run")
    second = result_of(tmp_path / "second", again)
    assert second["settings"] == first["settings"]
    assert second["experiment"] == first["experiment"]
    for name, weights in codec.decode(first["weights"]).items():
        np.testing.assert_array_equal(codec.decode(second["weights"])[name], weights)
    assert command_of(second) == command_of(first)


def test_data_with_a_test_set_and_columns_with_commas(tmp_path):
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(90, 3)), np.arange(90) % 2
    np.savez(tmp_path / "own.npz", x_train=X[:60], y_train=y[:60], x_test=X[60:], y_test=y[60:])
    first = result_of(tmp_path / "first", ["fedavg", "--data", str(tmp_path / "own.npz"), "--nodes", "2"])
    command = command_of(first)
    assert "--data own " in command and "evaluators" not in command
    again = result_of(
        tmp_path / "second", shlex.split(command.replace("--data own", f"--data {tmp_path / 'own.npz'}"))[2:]
    )
    assert again["final"] == first["final"]
    table(60).rename(columns={"x0": "a,b"}).to_csv(tmp_path / "odd.csv", index=False)
    odd = [
        "fedavg",
        "--data",
        str(tmp_path / "odd.csv"),
        "--nodes",
        "2",
        "--features",
        '["a,b","x1"]',
        "--label",
        "label",
    ]
    first = result_of(tmp_path / "third", odd)
    words = shlex.split(command_of(first))
    assert json.loads(words[words.index("--features") + 1]) == ["a,b", "x1"]


def test_several_files_are_several_data(tmp_path):
    words = ["fedavg", "--exclude", "x2", "--rounds", "2"]
    for seed, name in enumerate(("b", "a c")):
        table(60, seed=seed).to_csv(tmp_path / f"{name}.csv", index=False)
        words += ["--data", str(tmp_path / f"{name}.csv")]
    first = result_of(tmp_path / "first", words)
    again = shlex.split(command_of(first))[2:]
    assert again[again.index("--data") :][:4] == ["--data", "a c", "--data", "b"] and "--partition" not in again
    second = result_of(
        tmp_path / "second", [str(tmp_path / f"{word}.csv") if word in ("b", "a c") else word for word in again]
    )
    assert second["experiment"] == first["experiment"] and second["weights"] == first["weights"]
    assert f"column:{datasets.FILE}" == OF_FILES


@pytest.mark.parametrize(("asked", "said"), [(["--study"], "6"), (["--study", "3"], "3")])
def test_a_study_is_made_again(asked, said, tmp_path):
    words = ["fedavg", "--data", "wine", "--nodes", "6", "--rounds", "2", *asked]
    first = result_of(tmp_path / "first", words)
    again = shlex.split(command_of(first))[2:]
    assert again[again.index("--study") + 1] == said and "aggregation=pinned" not in again
    second = result_of(tmp_path / "second", again)
    assert second["privacy"]["blocks"] == first["privacy"]["blocks"] and second["weights"] == first["weights"]
    assert "write its path after --schema" in page.page({"it": first})
    some = {**first, "privacy": {**first["privacy"], "blocks": [[1, 2, 3]]}}
    assert not command_of(some), "other blocks are not known"


def test_a_task_is_submitted_again(tmp_path):
    first = result_of(tmp_path, ["fedavg", "--data", "wine"])
    found = {"network": "network local", "task": 3, "organizations": {"1": "north"}}
    task = {**first, "experiment": found, "image": {"name": "registry/v6-fedavg:1"}}
    assert command_of(task).startswith("v6-federated submit fedavg --network local --image registry/v6-fedavg:1 ")
    elsewhere = {**first, "experiment": {**found, "network": "https://server.org"}}
    assert command_of(elsewhere).startswith("v6-federated submit fedavg --server https://server.org --")
    assert "It sends a new task" in page.page({"it": task})


def test_what_the_command_line_cannot_do_has_no_command(tmp_path):
    first = result_of(tmp_path, ["fedavg", "--data", "wine"])
    assert "<pre" in page.page({"it": first})
    for change in ({"trained": "centralized"}, {"partition": "rows of each node"}, {"partition": "function own"}):
        changed = {**first, "experiment": {**first["experiment"], **change}}
        assert not command_of(changed) and "no command for this training" in page.page({"it": changed})
    assert not command_of({**first, "method": "not-installed"})
    assert not command_of({**first, "privacy": {**first["privacy"], "aggregation": "pinned"}})
