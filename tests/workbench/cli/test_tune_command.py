"""``tune``: what is tried, on which rows the best is chosen, and on which it is judged."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from helpers import table

from v6_federated.base.errors import SafeError
from v6_workbench.simulation import search
from v6_workbench.simulation.datasets import load
from v6_workbench.simulation.experiments import Experiment
from v6_workbench.simulation.search import Range

WINE = ["--data", "wine", "--preprocess", "standardize", "--nodes", 2, "--rounds", 2]


@pytest.mark.parametrize("partition", ["iid", "column:hospital"])
def test_rows_that_judge_are_not_among_those_that_choose(partition):
    rows = pd.DataFrame({"hospital": ["a", "b"] * 40, "id": np.arange(80.0), "label": [0, 0, 1, 1] * 20})
    experiment = Experiment(load(rows), nodes=2, partition=partition, holdout=0.25, label="label")
    chosen = search.choosing(experiment)
    training, judging = experiment.train_and_test()
    assert [*chosen.named()] == [*experiment.named()] and len(judging) == 20
    for node, own in zip(chosen.named().values(), training.values(), strict=True):
        assert [*node["id"]] == [*own["id"]] and not {*node["id"]} & {*judging["id"]}
    again, scored = chosen.train_and_test()
    assert sum(map(len, again.values())) + len(scored) == 60, "they are cut again"
    assert not {*scored["id"]} & {*judging["id"]}


def test_a_datasets_own_test_set_only_judges():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 2)), np.arange(60) % 2
    whole = load(X, y)
    own = type(whole)("own", whole.rows, (X[:9] + 100, y[:9]))
    found = search.choosing(Experiment(own, nodes=2, partition="iid"))
    assert found.dataset.test is None and len(found.dataset) == 60 and found.dataset.rows[0].max() < 50


def test_combinations():
    assert search.combinations({"lr": [1, 2], "epochs": [3, 4]}) == [
        {"lr": 1, "epochs": 3},
        {"lr": 1, "epochs": 4},
        {"lr": 2, "epochs": 3},
        {"lr": 2, "epochs": 4},
    ]
    assert len(search.combinations({"lr": [1, 2]}, 9)) == 2, "no more than there are"
    few = search.combinations({"lr": [1, 2, 3], "epochs": [3, 4]}, 4, seed=1)
    assert len({json.dumps(one) for one in few}) == 4
    assert few == search.combinations({"lr": [1, 2, 3], "epochs": [3, 4]}, 4, seed=1)
    assert few != search.combinations({"lr": [1, 2, 3], "epochs": [3, 4]}, 4, seed=2)


def test_ranges():
    drawn = search.combinations({"lr": Range(1e-3, 1.0), "epochs": Range(1, 9), "mu": Range(0.0, 2.0)}, 400)
    lr = np.array([one["lr"] for one in drawn])
    assert lr.min() >= 1e-3 and lr.max() <= 1
    # the logarithm is uniform over three powers of ten: 400 draws have a third in each, to 4 standard errors
    shares = np.histogram(np.log10(lr), [-3, -2, -1, 0])[0] / 400
    assert np.abs(shares - 1 / 3).max() < 4 * math.sqrt(2 / 9 / 400)
    assert {type(one["epochs"]) for one in drawn} == {int} and {one["epochs"] for one in drawn} == {*range(1, 10)}
    mu = np.array([one["mu"] for one in drawn])
    assert abs(mu.mean() - 1) < 4 * 2 / math.sqrt(12 * 400)
    with pytest.raises(SafeError, match="lr has a range, which has no end of values; add --random N"):
        search.combinations({"lr": Range(0.1, 1)})


def test_the_best_is_chosen_and_judged_on_other_rows(call, tmp_path):
    status, line, err = call("tune", "fedavg", *WINE, "--grid", "lr=0,0.5", "--grid", "epochs=1,2", "--out", tmp_path)
    assert status == 0 and line["chosen"]["lr"] == 0.5 and line["tries"] == 4, err
    found = json.loads((tmp_path / "search.json").read_text())
    assert found["chosen"] == line["chosen"] and found["spent"]["rounds"] == 8 and found["by"] == "accuracy"
    best = max(found["tries"], key=lambda one: one["scores"][0])
    assert best["settings"] == found["chosen"] and found["score"] == best["scores"][0]
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["settings"]["lr"] == 0.5 and result["final"]["accuracy"] == line["accuracy"]
    assert (tmp_path / "search.png").read_bytes().startswith(b"\x89PNG")
    assert "4 tries took 4 trainings with 8 rounds in all, and sent" in err and "too good" in err


def test_folds_and_a_search_that_goes_on(call, tmp_path, trained):
    words = ["tune", "fedavg", *WINE, "--folds", 3, "--by", "loss", "--out", tmp_path]
    assert call(*words, "--grid", "lr=0.1")[0] == 0
    assert len(trained) == 3 * 2 + 2
    status, line, err = call(*words, "--grid", "lr=0.1,0.5")
    assert status == 0 and "3 of the 6 scores are known" in err and len(trained) == 2 * (3 * 2 + 2)
    tries = json.loads((tmp_path / "search.json").read_text())["tries"]
    assert [len(one["scores"]) for one in tries] == [3, 3] and min(tries[0]["scores"]) > 0, "losses have their sign"
    means = [np.mean(one["scores"]) for one in tries]
    assert line["chosen"]["lr"] == (0.1, 0.5)[int(np.argmin(means))]


def test_a_try_that_fails_does_not_end_the_search(call):
    status, line, err = call("tune", "fedavg", *WINE, "--grid", "lr=0.5,1e39")
    assert status == 0 and line["chosen"] == {"lr": 0.5}
    assert "lr=1e+39: " in err and "training has diverged" in err
    status, _, err = call("tune", "fedavg", *WINE, "--grid", "lr=1e39")
    assert status == 1 and "no try was trained to the end" in err.splitlines()[-1]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "nothing to try; add for example --grid lr=0.01,0.1,1"),
        (["--grid", "lr"], "--grid 'lr' is not of the form KEY=VALUE"),
        (["--grid", "lr=0.1,0.1"], "expected different values with a comma between two"),
        (["--grid", "lr=0.1,"], "expected different values"),
        (["--grid", "lr=0.1", "--grid", "lr=1"], "--grid lr is given twice"),
        (["--grid", "lr=0.1..x"], "expected numbers on both sides of .."),
        (["--grid", "lr=1..0.1", "--random", 3], "1..0.1 is no range"),
        (["--grid", "lr=0.1..1"], "add --random N, or name its values"),
        (["--grid", "lr=0.1", "--random", 0], "--random 0 is out of range; expected 1 to 1000"),
        (["--grid", "lr=0.1", "--set", "lr=1"], "lr has one value already, from another option"),
        (["--grid", "seed=1,2"], "all tries have the same rows and seed"),
        (["--grid", "learning_rate=1"], "unknown setting 'learning_rate'"),
        (["--grid", "lr=-1,1"], "lr=-1: lr=-1"),
        (["--grid", "lr=1,2", "--by", "r2"], "--by r2 is refused; expected accuracy or auc or loss"),
        (["--grid", "lr=1,2", "--holdout", 0], "no rows are held out"),
        (["--grid", "event=alcohol,ash", "--set", "loss=cox"], "tries with other columns in event"),
        (["--grid", "lr=1,2", "--repeats", 3], "--repeats cannot be used with tune"),
        (["--grid", "lr=1,2", "--folds", 1], "--folds 1 is too few; expected at least 2"),
        (["--grid", "lr=1,2", "--target", 0.9, "--stop-at-target"], "a target would choose the model"),
    ],
)
def test_wrong_requests_are_one_line(words, says, refused):
    refused(says, "tune", "fedavg", *WINE, *words)


def test_a_fault_of_the_table_ends_the_search_at_the_first_try(call, tmp_path):
    rows = table(80)
    rows.loc[::9, "x1"] = np.nan
    rows.to_csv(tmp_path / "rows.csv", index=False)
    words = ["--data", tmp_path / "rows.csv", "--nodes", 2, "--preprocess", "standardize", "--rounds", 2]
    status, _, err = call("tune", "fedavg", *words, "--grid", "lr=0.1,1")
    assert status == 1 and err.count("missing values in the column(s) x1") == 1
    assert "add a step impute before it" in err and "no try was trained" not in err


def test_a_method_without_a_model_is_refused(refused):
    refused("pca trains no model that could be scored", "tune", "pca", "--data", "wine", "--grid", "n_components=1,2")


@pytest.mark.parametrize(
    ("grid", "label", "says"),
    [
        (
            "model=logreg,svm",
            "ill",
            "(model=logreg: cross-entropy, model=svm: hinge loss); use --by accuracy or --by auc",
        ),
        (
            "loss=squared,poisson",
            "count",
            "(loss=squared: squared error, loss=poisson: Poisson deviance); use --by r2",
        ),
    ],
)
def test_losses_of_different_kinds_are_not_compared(grid, label, says, call, refused, trained, tmp_path):
    """A smaller number would win for its unit; without --by, tries are scored by what they have in common."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=120)
    rows = pd.DataFrame({"x": x, "ill": (x + rng.normal(size=120) > 0).astype(int), "count": rng.poisson(np.exp(x))})
    rows[["x", label]].to_csv(tmp_path / "rows.csv", index=False)
    words = ["tune", "fedavg", "--data", tmp_path / "rows.csv", "--nodes", 2, "--rounds", 2, "--out", tmp_path / "out"]
    line = refused("--by loss cannot compare losses of different kinds", *words, "--grid", grid, "--by", "loss")
    assert line.endswith(says) and not trained
    assert call(*words, "--grid", grid)[0] == 0
    by = json.loads((tmp_path / "out" / "search.json").read_text())["by"]
    assert by == ("accuracy" if label == "ill" else "r2")
    own = ["lr=0.1,0.2", "--set", "loss=squared"] if label == "count" else ["model=logreg,mlp:hidden=4"]
    assert call(*words, "--by", "loss", "--grid", *own)[0] == 0
