"""Every method as its researcher uses it, on one real network of four nodes.

The fourth hospital is strict; methods train at the other three (test_refusals.py). The methods are those of
tests/methods.
"""

import json
import runpy
import shutil
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import pytest
from four_hospitals import FEATURES, GENES, ROWS, THREE, selected, training
from PIL import Image

from v6_federated.data import source
from v6_federated.messages.settings import Role
from v6_workbench.cli.main import main
from v6_workbench.conformance import MethodCase, cases_in
from v6_workbench.network import images, local
from v6_workbench.registry import names
from v6_workbench.simulation import datasets
from v6_workbench.simulation.experiments import Experiment
from v6_workbench.simulation.mock import TRUSTING, CallOutcome, MockNetwork

METHODS = Path(__file__).parents[1] / "methods"
CASES = [case for name in names() for case in cases_in(METHODS / f"test_{name}.py")]
ROUNDS = "2"


def asked(case: MethodCase) -> list[str]:
    """A case as options of the command line, with small minibatches and rows that standardize has prepared."""
    values = {**dict.fromkeys(case.having(Role.BATCH), 7), **case.settings}
    values.pop("label", None)
    held_out = ["--holdout", str(values.pop("holdout"))] if "holdout" in values else []
    texts = [f"{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in values.items()]
    options = [option for text in texts for option in ("--set", text)]
    # the text of trees has no place for it, and curves of survival are about no column
    steps = [] if case.short_name in ("gbdt", "km") else ["--preprocess", "standardize"]
    return [
        *options,
        *held_out,
        *steps,
        *(["--label", "b", "--features", "a,c"] if case.regression and case.short_name not in ("cox", "km") else []),
        "--rounds",
        ROUNDS,
    ]


# dynavg by loss also trains from other nodes' models; on a network that calls nothing else. The table has no column of
# numbers above 0, as a gamma regression needs
SYNCHRONOUS = {
    str(case).replace(" ", "-"): case
    for case in CASES
    if not case.asynchronous and "train_from" not in case.settings and case.settings.get("family") != "gamma"
}

FIRST = {case.short_name: name for name, case in reversed(SYNCHRONOUS.items())}  # a job takes minutes on a real network


@pytest.fixture(scope="module")
def jobs(at_once, request, tmp_path_factory):
    """A job of each method, and the folder of its result."""
    names, folder = selected(request, "test_the_weights_are_those_of_run"), tmp_path_factory.mktemp("jobs")
    cases = {name: SYNCHRONOUS[name] for name in names}
    return {
        name: (at_once(case.short_name, *asked(case), *THREE, "--out", folder / name), folder / name)
        for name, case in cases.items()
    }


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * (name not in FIRST.values())) for name in SYNCHRONOUS]
)
def test_the_weights_are_those_of_run(jobs, table, tmp_path, name):
    method, settings = SYNCHRONOUS[name].short_name, asked(SYNCHRONOUS[name])
    future, real = jobs[name]
    mock, process = tmp_path / "mock", future.result()
    assert process.returncode == 0, process.stderr
    if method not in ("pca", "km"):  # one ends once it has all components, the other has one round
        assert json.loads(process.stdout.splitlines()[-1])["rounds"] == int(ROUNDS)
    run = ["run", method, "--data", str(table), "--partition", "column:hospital", *training(method), *settings, *THREE]
    assert main([*run, "--out", str(mock)]) == 0
    ours, theirs = (json.loads((folder / "result.json").read_text()) for folder in (real, mock))
    assert ours["weights"] == theirs["weights"]
    for result in (ours, theirs):
        for row in result["history"]:
            del row["seconds"]
    assert ours["history"] == theirs["history"]
    assert ours["per_node"] == theirs["per_node"]
    assert (real / "curves.png").exists() == (method not in ("pca", "cox", "km"))  # of which nothing is evaluated
    picture = {"pca": "components.png", "cox": "coefficients.png", "km": "survival.png"}.get(method, "curves.png")
    assert (real / picture).read_bytes().startswith(b"\x89PNG")
    if method == "gbdt":
        assert main(["export", str(real), "--to", str(tmp_path / "model.txt")]) == 0
        assert (tmp_path / "model.txt").read_text().startswith("tree\nversion=v4\n")
        return
    if method == "km":  # its curves are no model
        return
    assert main(["export", str(real), "--to", str(tmp_path / "model.npz")]) == 0
    with np.load(tmp_path / "model.npz") as model:
        assert model["components" if method == "pca" else "coef"].shape[1] == (2 if SYNCHRONOUS[name].regression else 3)


def test_the_exported_model_predicts_what_the_nodes_counted(submit, table, tmp_path, capsys):
    """standardize, pca:20 and logistic regression in one job; the accuracy on the rows that each node held out."""
    steps = ["--preprocess", "standardize", "--preprocess", "pca:20", "--features", ",".join(GENES)]
    status, line, err = submit("fedavg", *steps, *THREE, "--set", "lr=0.5", "--rounds", "2", "--out", tmp_path)
    assert status == 0, err
    databases = Experiment(datasets.load(str(table)), None, "column:hospital").deal()
    held = [databases[k].iloc[source.split(ROWS, 0.2, k)[1]] for k in (1, 2, 3)]
    pd.concat(held).to_csv(tmp_path / "held.csv", index=False)
    assert main(["export", str(tmp_path), "--to", str(tmp_path / "model.npz")]) == 0
    capsys.readouterr()
    call = ["predict", str(tmp_path / "model.npz"), "--data", str(tmp_path / "held.csv")]
    assert main([*call, "--out", str(tmp_path / "predictions.csv")]) == 0
    predicted = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert predicted["rows"] == json.loads((tmp_path / "result.json").read_text())["final"]["evaluated"] == 30
    assert predicted["accuracy"] == pytest.approx(json.loads(line)["accuracy"], abs=1e-9)
    assert predicted["accuracy"] > 0.6


def test_the_merges_of_coop_replayed(submit, table, tmp_path):
    """On a real network answers are merged as they arrive. Mock nodes that answer in the same order: the same bits."""
    status, _, err = submit("coop", *THREE, "--rounds", "2", "--out", tmp_path)
    assert status == 0, err
    real = json.loads((tmp_path / "result.json").read_text())
    arrivals = sorted(real["per_node"], key=lambda row: (row["round"], row["place"]))
    times: dict[int, list[float]] = {k: [] for k in (1, 2, 3)}
    for time_, row in enumerate(arrivals, start=1):
        times[row["organization_id"]].append(float(time_))
    waits = {k: iter(np.diff([0.0, *at, 1e6])) for k, at in times.items()}

    def outcomes(organization, input_):
        return CallOutcome(float(next(waits[organization])) if input_["method"] == "client_update" else 0.0)

    experiment = Experiment(
        datasets.load(str(table)), None, "column:hospital", 3, 0, "outcome", FEATURES.split(","), outcomes=outcomes
    )
    mock = experiment.federated("coop", {"rounds": 2, "organizations": [1, 2, 3]})
    assert mock["weights"] == real["weights"]
    assert mock["per_node"] == real["per_node"]


def test_every_image_is_tried():
    assert {f"v6-{case.short_name}" for case in CASES} == set(images.listed())


def test_the_example_for_a_notebook(three, image_of, monkeypatch, tmp_path):
    image_of("fedavg")
    matplotlib.use("Agg")
    monkeypatch.setenv("V6_FEDERATED_NETWORK", three.name)
    monkeypatch.chdir(tmp_path)
    ran = runpy.run_path(str(images.ROOT / "examples" / "user_client.py"))
    assert [row["round"] for row in ran["result"]["history"]] == [1, 2, 3]
    assert (tmp_path / "model.npz").exists()


def test_images_in_a_folder_and_arrays(engine, state, named, image_of, tmp_path):
    """Two hospitals with folders of pictures and one with a .npz: a network with convolutions, the same bits."""
    image_of("fedavg")
    name, rng = named("scans"), np.random.default_rng(0)
    arrays, paths = {}, []
    for k in (1, 2, 3):
        y = np.repeat(["ill", "well"], 15)
        X = rng.integers(0, 256, size=(30, 12, 12), dtype=np.uint8)
        X[:15, :6] //= 4
        arrays[k], folder = (X, y), tmp_path / f"node-{k}"
        for i, (x, label) in enumerate(zip(X, y, strict=True)):
            file = folder / label / f"{i:02d}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(x).save(file)
        paths.append(folder)
    np.savez(tmp_path / "node-3.npz", x=arrays[3][0], y=arrays[3][1])
    shutil.rmtree(paths.pop())
    local.up([*paths, tmp_path / "node-3.npz"], name=name, algorithm_env=TRUSTING, label="scans")
    try:
        command = ["submit", "fedavg", "--network", name, "--model", "cnn_garst", "--rounds", "1", "--seed", "2"]
        assert main([*command, "--set", "batch_size=10", "--out", str(tmp_path / "out")]) == 0
    finally:
        local.down(name)
    ours = json.loads((tmp_path / "out" / "result.json").read_text())
    with MockNetwork("v6_fedavg", arrays) as mock:
        theirs = mock.run(model="cnn_garst", rounds=1, seed=2, batch_size=10)
    assert ours["weights"] == theirs["weights"]
    assert main(["export", str(tmp_path / "out"), "--to", str(tmp_path / "model.pt")]) == 0
