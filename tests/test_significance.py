"""Which of two methods is better: folds as Nilsson deals them, the Bayesian correlated t-test, ``compare --test``."""

import json

import numpy as np
import pandas as pd
import pytest
from helpers import table
from scipy import stats

from v6_federated.base.errors import SafeError
from v6_workbench import registry
from v6_workbench.cli.main import main
from v6_workbench.reporting import report
from v6_workbench.simulation import datasets, model_comparison
from v6_workbench.simulation.datasets import Dataset
from v6_workbench.simulation.experiments import Experiment


def numbered(n, classes=10):
    """Rows that can be told from each other, every class as often."""
    y = np.arange(n) % classes
    return Dataset("numbered", (np.column_stack([np.arange(n), y]).astype(float), y))


def test_every_row_is_tested_once_and_never_trained_on_then():
    data, tested = numbered(1003), []
    for fold in range(5):
        training, (X, _) = datasets.deal_fold(data, "iid", 4, 3, None, fold, 5)
        rows = np.concatenate([X_k[:, 0] for X_k, _ in training.values()])
        assert len(rows) == 800 and len(X) == 200 and not set(rows) & set(X[:, 0])
        assert {len(X_k) for X_k, _ in training.values()} == {200}
        tested += X[:, 0].tolist()
    assert len(set(tested)) == 1000, "three rows are left out: the folds are equal"


def test_shards_are_at_the_same_positions_of_every_fold():
    """Nilsson et al. 2018, section 4.2: most nodes have two labels, though they have shards of every fold.

    With folds that hold each label as often, shards at one position hold the same labels in every fold.
    """
    y = np.repeat(np.arange(10), 700)
    data = Dataset("labels", (np.zeros((len(y), 1)), y))
    training, (_, y_test) = datasets.deal_fold(data, "shards", 100, 1, None, 2, 5)
    labels = [len(np.unique(y_k)) for _, y_k in training.values()]
    assert [len(y_k) for _, y_k in training.values()] == [56] * 100 and len(y_test) == 1400
    assert np.mean(np.array(labels) <= 3) > 0.8
    other, _ = datasets.deal_fold(data, "shards", 100, 1, None, 3, 5)
    assert np.mean([set(a[1]) == set(b[1]) for a, b in zip(training.values(), other.values(), strict=True)]) > 0.5


def test_folds_take_in_the_test_set_and_keep_hospitals_apart():
    data = Dataset("two", numbered(80).rows, numbered(20).rows)
    training, test = datasets.deal_fold(data, "iid", 2, 0, None, 0, 5)
    assert sum(len(y) for _, y in training.values()) == 80 and len(test[1]) == 20
    rows = table(90).assign(hospital=np.repeat(["a", "b", "c"], 30))
    rows = rows[["hospital", *[c for c in rows if c != "hospital"]]]
    training, test = datasets.deal_fold(Dataset("t", rows), "column:hospital", None, 0, None, 1, 3)
    assert list(training) == ["a", "b", "c"] and "hospital" not in test.columns
    for name, own in training.items():
        assert set(own["x0"]) <= set(rows.loc[rows["hospital"] == name, "x0"])
    assert len(pd.concat([*training.values(), test])) == 90


def test_an_experiment_on_a_fold():
    """Trained on the other folds, evaluated on the fold's rows; centralized on the same."""
    one = Experiment(datasets.load("wine"), 2, fold=(1, 4))
    values = {"rounds": 3, "lr": 0.1, "preprocess": ["standardize"]}
    federated, centralized = one.federated("fedavg", values), one.centralized("fedavg", values)
    assert federated["final"]["evaluated"] == centralized["final"]["evaluated"] == 178 // 4
    assert federated["history"][0]["n"] == centralized["history"][0]["n"] == 3 * (178 // 4)
    assert federated["final"]["accuracy"] == centralized["final"]["accuracy"], "one pass over all rows: the same model"
    other = Experiment(datasets.load("wine"), 2, fold=(0, 4)).federated("fedavg", values)
    assert other["weights"] != federated["weights"]


def test_the_posterior_by_hand():
    """Corani and Benavoli 2015: differences d of I x k folds; given them, the mean difference is a Student distribution
    of I k - 1 degrees of freedom, mean(d), and variance var(d) (1 / (I k) + 1 / (k - 1)): a fold has 1 / (k - 1)
    of the rows trained on, and trainings overlap."""
    rng = np.random.default_rng(0)
    x = 0.9 + 0.01 * rng.standard_normal(15)
    y = x - 0.012 + 0.004 * rng.standard_normal(15)
    found = model_comparison.verdicts({"a": x, "b": y}, 3)["a", "b"]
    d = x - y
    posterior = stats.t(14, d.mean(), np.sqrt(d.var(ddof=1) * (1 / 15 + 1 / 4)))
    assert found.difference == pytest.approx(d.mean())
    assert found.better == pytest.approx(posterior.sf(0.01))
    assert found.worse == pytest.approx(posterior.cdf(-0.01))
    assert found.equal == pytest.approx(posterior.cdf(0.01) - posterior.cdf(-0.01))
    other = model_comparison.verdicts({"b": y, "a": x}, 3)["b", "a"]
    assert (other.better, other.worse) == (pytest.approx(found.worse), pytest.approx(found.better))


def test_signs():
    rng = np.random.default_rng(1)
    good, noise = 0.95 + 0.001 * rng.standard_normal(5), rng.standard_normal(5)
    scores = {"good": good, "same": good + 0.0005 * noise, "bad": good - 0.1, "wild": good + 0.02 * noise}
    found = model_comparison.verdicts({k: v.tolist() for k, v in scores.items()}, 1)
    assert [found["good", other].sign for other in ("same", "bad", "wild")] == ["=", "+", "?"]
    assert model_comparison.verdicts({"a": [0.5] * 5, "b": [0.5] * 5}, 1)["a", "b"].sign == "=", "no variance at all"
    drawn = report.signs(found, scores)
    cells = [list(column.cells) for column in drawn.columns[3:]]
    assert cells[0] == ["", "=", "-", "?"] and cells[2] == ["+", "+", "", "+"]


def test_compare_with_a_test(tmp_path, capsys):
    """lr 0 learns nothing: practically worse than what learns."""
    run = ["compare", "fedavg", "fedavg:lr=0", "centralized:fedavg", "--data", "wine", "--preprocess", "standardize"]
    assert main([*run, "--rounds", "5", "--nodes", "2", "--test", "2", "--folds", "3", "--out", str(tmp_path)]) == 0
    line = json.loads(capsys.readouterr().out.splitlines()[-1])
    kept = json.loads((tmp_path / "test.json").read_text())
    assert line["pairs"] == kept["pairs"] and {len(s) for s in kept["scores"].values()} == {6}
    assert [pair["sign"] for pair in kept["pairs"]] == ["+", "=", "-"]
    assert (tmp_path / "posteriors.png").read_bytes().startswith(b"\x89PNG")


def test_a_test_that_was_stopped_goes_on(tmp_path, capsys, monkeypatch):
    """Scores outlive a failure: only what is new is trained then, with more iterations, and with one more method."""
    trained, federated = [], Experiment.federated

    def counted(self, method, values, on_round=None):
        if len(trained) == stop:
            raise OSError("no space")
        trained.append((self.seed, self.fold))
        return federated(self, method, values, on_round)

    def run(*arguments, out="a", test="1"):
        command = ["compare", "fedavg", "fedavg:lr=0", *arguments, "--data", "wine", "--preprocess", "standardize"]
        command += ["--nodes", "2", "--rounds", "2", "--folds", "3", "--test", test, "--out", str(tmp_path / out)]
        return main([*command, "--node-env", "V6_FEDERATED_DISALLOWED_COLUMNS=x,y,zed,w"])

    monkeypatch.setattr(Experiment, "federated", counted)
    stop = 3
    assert run() == 1
    stop = None
    assert run() == 0 and trained == [(0, (f, 3)) for f in (0, 0, 1, 1, 2, 2)]
    assert "3 of the 6 scores are in" in capsys.readouterr().err
    assert run(test="2") == 0 and run(test="2", out="b") == 0 and len(trained) == 24
    assert (tmp_path / "a" / "test.json").read_text() == (tmp_path / "b" / "test.json").read_text()
    assert run() == 0 and len(trained) == 24, "the first of two"
    assert {len(s) for s in json.loads((tmp_path / "a" / "test.json").read_text())["scores"].values()} == {3}
    assert run("scaffold") == 0 and len(trained) == 27
    assert run("--seed", "1") == 0 and len(trained) == 33
    assert run() == 0 and len(trained) == 33, "another test's are kept beside it"
    monkeypatch.setattr(registry, "code", lambda method: "another program")
    assert run() == 0 and len(trained) == 39


@pytest.mark.parametrize(
    "scores",
    ["[]", "5", "{", '{"a": 5}', '{"a": ["0.9"]}', '{"a": [NaN]}', '{"a": [7]}', '{"a": [[0.5]]}', '{"a": [true]}'],
)
def test_scores_that_are_none_are_refused(scores, tmp_path, capsys):
    (tmp_path / "folds.json").write_text(scores)
    assert main(["compare", "fedavg", "scaffold", "--data", "wine", "--test", "--out", str(tmp_path)]) == 2
    assert "folds.json is not the scores of a test; expected what `compare --test` wrote" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["fedavg", "--test"], "1 method(s) cannot be compared; expected two or more"),
        (["fedavg", "fedavg:lr=1", "--test", "0"], "iterations=0 is refused; expected at least 1"),
        (["fedavg", "fedavg:lr=1", "--test", "--folds", "1"], "folds=1 is refused; expected at least 2"),
        (["fedavg", "fedavg:lr=1", "--test", "--rope", "2"], "rope=2 is refused; expected a difference in score"),
        (["fedavg", "fedavg:lr=1", "--test", "--folds", "500"], "500 folds of 178 rows; expected fewer folds"),
        (["fedavg", "fedavg:lr=1", "--folds", "3"], "--folds and --rope are of use with --test only"),
        (["--test", "fedavg", "scaffold"], "'fedavg' is no number of cross-validations; expected --test I, after"),
        (["fedavg", "gbdt:early_stopping=3", "--test"], "gbdt:early_stopping=3: early_stopping is refused with --test"),
        (["gbdt:objective=regression", "gbdt", "--test"], "classes and numbers to predict cannot be compared"),
        (["fedavg", "scaffold", "--test", "--target", "0.9"], "--target 0.9 is of no use with --test"),
        (["fedavg", "pca", "--test"], "pca trains no model that could be tested"),
    ],
)
def test_tests_that_are_none(arguments, says, capsys):
    try:
        assert main(["compare", *arguments, "--data", "wine", "--rounds", "1"]) == 2
    except SystemExit as stopped:  # argparse
        assert stopped.code == 2
    assert says in capsys.readouterr().err


def test_scores_that_do_not_fit():
    with pytest.raises(SafeError, match=r"scores of lengths \[5, 6\]"):
        model_comparison.verdicts({"a": [1.0] * 5, "b": [1.0] * 6}, 1)
    with pytest.raises(SafeError, match="in 2 iteration"):
        model_comparison.verdicts({"a": [1.0] * 5, "b": [1.0] * 5}, 2)
