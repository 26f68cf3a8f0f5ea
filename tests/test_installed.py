"""The package as it is installed, also as a wheel: every module, every method, and the commands on its results."""

import importlib
import json
import pkgutil

import numpy as np
import pandas as pd
import pytest

from v6_federated.base.vantage6_api import FIVE
from v6_workbench import registry
from v6_workbench.cli.main import main

SETTINGS = {  # what a method cannot do without, and its kind of table
    "cox": ["--set", "event=died", "--label", "days"],
    "glm": ["--set", "family=binomial", "--label", "ill"],
    "km": ["--set", "event=died", "--label", "days", "--set", "grid=100,200,300"],
    "pca": ["--set", "components=2", "--label", "ill", "--exclude", "days,died"],
}
NOTHING_TO_PREDICT = {"km", "pca"}


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Patients of three hospitals, some of whose values are missing."""
    rng = np.random.default_rng(1)
    rows = pd.DataFrame(rng.normal(size=(240, 3)).round(3), columns=["a", "b", "c"])
    rows["sex"] = ["f", "m"] * 120
    rows.loc[::9, "b"] = None
    rows["days"] = rng.integers(1, 400, size=240)
    rows["died"] = rng.integers(0, 2, size=240)
    rows["ill"] = np.where(rows["a"] + rng.normal(size=240) > 0, "yes", "no")
    path = tmp_path_factory.mktemp("table") / "patients.csv"
    rows.to_csv(path, index=False)
    return str(path)


@pytest.mark.parametrize("package", ["v6_federated", "v6_workbench", *map("v6_{}".format, registry.names())])
def test_every_module_can_be_imported(package):
    names = [found.name for found in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}.")]
    other = {f"{package}.{place}.{'four' if FIVE else 'five'}" for place in ("base.vantage6_api", "network.client")}
    for name in {*names} - other - {f"{package}.simulation.cluster.on_ray"}:  # Ray is not installed for the tests
        importlib.import_module(name)
    assert names


@pytest.mark.parametrize("method", registry.names())
def test_every_method_runs_and_its_result_can_be_used(method, table, tmp_path, capsys):
    settings = SETTINGS.get(method, ["--label", "ill", "--exclude", "days,died"])
    steps = ["--preprocess", "impute:median", "--preprocess", "onehot:drop=first", "--preprocess", "standardize"]
    out = str(tmp_path / "out")
    run = ["run", method, "--data", table, "--nodes", "3", "--rounds", "2", "--seed", "1", "--out", out]
    assert main([*run, *settings, *([] if method == "km" else steps)]) == 0, capsys.readouterr().err
    assert json.loads((tmp_path / "out" / "result.json").read_text())["method"] == method
    assert main(["report", out, "--html", str(tmp_path / "page.html")]) == 0, capsys.readouterr().err
    if method not in NOTHING_TO_PREDICT:
        model = str(tmp_path / "model.safetensors")
        assert main(["export", out, "--to", model]) == 0, capsys.readouterr().err
        assert main(["predict", model, "--data", table, "--out", str(tmp_path / "p.csv")]) == 0, capsys.readouterr().err
        assert len(pd.read_csv(tmp_path / "p.csv")) == 240
