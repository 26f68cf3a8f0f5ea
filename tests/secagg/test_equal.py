"""Masks change nothing: a job gives the same bits with masks as with masks of zero, and the plain job's numbers."""

import functools

import numpy as np
import pandas as pd
import pytest
from masked_jobs import QUICK, apart, in_blocks, learned, nodes, run, without_masks

from v6_federated.gate import under_masks
from v6_federated.messages import result as results
from v6_workbench.conformance.jobs import without_times

METHODS = {
    "fedsgd": ("v6_fedavg", {**QUICK, "rounds": 5}),
    "fedavg": ("v6_fedavg", {**QUICK, "rounds": 5, "local_steps": 4, "batch_size": 10, "model": "fnn:hidden=5"}),
    "scaffold": ("v6_scaffold", {**QUICK, "local_steps": 4, "batch_size": 10}),
    "fsvrg": ("v6_fsvrg", {"rounds": 3, "classes": [0, 1]}),
    "colearning": ("v6_colearning", {**QUICK, "epochs": 2}),
    "pca": ("v6_pca", {"components": 3, "features": ["x0", "x1", "x2", "x3"]}),
    "pca subspace": ("v6_pca", {"components": 2, "solver": "subspace", "features": ["x0", "x1", "x2", "x3"]}),
    "pca scaled": ("v6_pca", {"components": 3, "scale": True, "features": ["x0", "x1", "x2", "x3"]}),
}
STEPS = [
    ["impute:mean", "impute:most_frequent", "onehot", "standardize"],
    ["impute:median", "impute:most_frequent", "onehot", "clip:0.05", "standardize", "pca:3"],
    ["impute:mean", "impute:constant,value=none", "onehot", "clip:0.1", "standardize", "pca:5"],
]


def agreed(K: int, tmp_path) -> dict:
    """How K hospitals agree: without a study, or in blocks of five."""
    return {"mode": "masked"} if K == 3 else {"mode": "pinned", "folder": tmp_path, "size": 5}


def same(result: dict, other: dict) -> bool:
    """Whether results are the same but for times and keys."""
    return without_times(result) == without_times(other)


def close(result: dict, plain: dict, within: float = 1e-5) -> None:
    """Check learned arrays and evaluations."""
    for name, array in learned(plain).items():
        mine = learned(result)[name]
        if name == "weights" and result["method"] == "pca":  # components, up to their signs
            mine = mine * np.sign(np.sum(mine * array, axis=-1, keepdims=True))
        assert apart(mine, array) < within, name
    rows = [*zip(result["history"], plain["history"], strict=True)]
    for mine, row in rows:
        assert mine["participants"] == row["participants"] and mine["n"] == row["n"]
        for name in ("loss", "train_loss", "auc", "accuracy"):
            assert (mine[name] is None) == (row[name] is None), name
            assert mine[name] is None or abs(mine[name] - row[name]) < 1e-4, name
    for name in ("evaluated", "confusion"):
        assert plain["final"] is None or result["final"].get(name) == plain["final"].get(name)


def check(package: str, databases: dict, settings: dict, tmp_path, monkeypatch, within: float = 1e-5) -> dict:
    """Run a job masked, with masks of zero, and plain."""
    how = agreed(len(databases), tmp_path)
    result = run(package, databases, **how, **settings)
    assert result["privacy"]["aggregation"] == how["mode"]
    assert result["privacy"]["blocks"] == in_blocks(len(databases), 5 if len(databases) > 3 else 3)
    with monkeypatch.context() as patch:
        patch.setattr(under_masks.keystreams, "masked", without_masks)
        assert same(run(package, databases, **how, **settings), result)
    close(result, run(package, databases, "plain", **settings), within)
    return result


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("K", [3, 10])
def test_every_method(method, K, tmp_path, monkeypatch):
    package, settings = METHODS[method]
    check(package, nodes(K), settings, tmp_path, monkeypatch)


def test_fifty_hospitals_in_ten_blocks(tmp_path, monkeypatch):
    check("v6_fedavg", nodes(50), QUICK, tmp_path, monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize("method", METHODS)
def test_every_method_with_fifty_hospitals(method, tmp_path, monkeypatch):
    package, settings = METHODS[method]
    check(package, nodes(50), settings, tmp_path, monkeypatch)


@functools.cache
def clinics(K: int) -> dict[int, pd.DataFrame]:
    """Hospitals with words, missing values, and columns of very different sizes; few have the level z."""
    found = {}
    for k, rows in nodes(K, 60).items():
        rng = np.random.default_rng(k)
        rows = rows.assign(chol=rng.normal(2.4e5, 3e4, len(rows)), tiny=rng.normal(1e-4, 1e-5, len(rows)))
        rows.insert(0, "sex", rng.choice(["m", "f", "z"] if k == 2 else ["m", "f"], len(rows)).astype(object))
        rows.loc[rng.random(len(rows)) < 0.1, "chol"] = np.nan
        rows.loc[rng.random(len(rows)) < 0.1, "x1"] = np.nan
        rows.loc[rng.random(len(rows)) < 0.1, "sex"] = None
        found[k] = rows[[*rows.columns.drop("label"), "label"]]
    return found


@pytest.mark.parametrize("K", [3, 10, pytest.param(50, marks=pytest.mark.long)])
@pytest.mark.parametrize("steps", STEPS, ids=" ".join)
def test_preprocessing(steps, K, tmp_path, monkeypatch):
    settings, within = {**QUICK, "rounds": 2, "preprocess": steps}, 1e-5
    if K > 3:  # in a study central rounds the sum of histograms and not each node its own, so that quantiles are finer
        settings["environment"], within = {"V6_FEDERATED_MINIMUM_ROWS_A_CLASS": "1"}, 1e-4
    result = check("v6_fedavg", clinics(K), settings, tmp_path, monkeypatch, within)
    assert [step["step"] for step in result["data"]["preprocess"]] == [step.split(":")[0] for step in steps]


def test_the_evaluation_is_that_of_all_rows(tmp_path):
    """Counts are exact: losses differ by rounding only, and the confusion not at all if the model is the same."""
    settings = {**QUICK, "lr": 0.0, "rounds": 1}  # the model stays the initial one
    plain = run("v6_fedavg", nodes(10), "plain", **settings)["final"]
    found = run("v6_fedavg", nodes(10), "pinned", tmp_path, size=5, **settings)["final"]
    for name in ("evaluated", "accuracy", "auc", "confusion"):
        assert found[name] == plain[name]
    assert found["loss"] == pytest.approx(plain["loss"], abs=5 * 2**-12 / plain["evaluated"])  # ten half units


def test_of_very_many_classes_the_sums_are_of_right_and_wrong():
    """Text of 1,001 words: nodes send counts of two numbers, and no bands, under masks too."""
    rng = np.random.default_rng(0)
    databases = {k: (rng.integers(0, 5, (30, 4)), rng.integers(0, 5, 30)) for k in (1, 2, 3)}
    settings = {"model": "lstm_word:hidden=2", "rounds": 2, "lr": 1.0, "holdout": 0.5, "classes": [*range(1001)]}
    environment = {"V6_FEDERATED_MAXIMUM_CLASSES": "1001", "V6_FEDERATED_MINIMUM_ROWS_A_CLASS": "1"}
    masked, plain = (
        run("v6_fedavg", databases, how, environment=environment, **settings) for how in ("masked", "plain")
    )
    close(masked, plain)
    for result in (masked, plain):
        ((right, wrong),) = result["final"]["confusion"]
        assert right + wrong == result["final"]["evaluated"] and result["final"]["auc"] is None
        results.check(result)
