"""How far a model is from where its rounds lead, and jobs that end when little is left."""

import math
import re
from itertools import pairwise

import numpy as np
import pytest
from helpers import pooled, table, train
from sklearn.linear_model import LogisticRegression

from v6_federated.central import convergence
from v6_federated.messages import codec
from v6_workbench.reporting import diagnostics
from v6_workbench.simulation import datasets
from v6_workbench.simulation.experiments import Experiment


def changes(*found):
    return [{"round": t, "change": c} for t, c in enumerate(found, start=1)]


def test_what_is_left_is_the_sum_of_changes_that_shrink():
    """w_t = 1 - r^t, so c_t = r^t (1 - r) / w_t of the model, and r^(t + 1) (1 - r) + ... = r^t r of it are left."""
    w = [1 - 0.9**t for t in range(1, 101)]
    found = changes(*((b - a) / a for a, b in pairwise(w)))
    assert convergence.remaining(found) == pytest.approx((1 - w[-1]) / w[-1], rel=1e-2)
    assert not convergence.settled(found[:40], 0.01) and convergence.settled(found[:50], 0.01)


def test_changes_that_do_not_shrink_never_end():
    assert convergence.remaining(changes(0.01, 0.02, 0.01, 0.01)) == math.inf
    assert not convergence.settled(changes(*[0.01] * 50), 0.5)
    assert convergence.remaining(changes(None, 0.5)) is None, "the first change of a model of zeros is none"
    assert convergence.settled(changes(0.1, 0.0, 0.0, 0.0, 0.0), 1e-5), "nothing but rounding is left"


def test_a_change_is_relative_to_the_model_before():
    assert convergence.change(np.array([3.0, 4.0]), np.array([3.0, 5.0])) == pytest.approx(0.2)
    assert convergence.change(np.zeros(2), np.ones(2)) is None
    assert convergence.change(np.ones(2), np.ones(3)) is None, "an ensemble that grows"


def test_a_job_ends_when_its_model_has_converged():
    nodes = {k: table(60, seed=k) for k in (1, 2, 3)}
    settings = {"rounds": 1000, "lr": 1.0, "model": "logreg:l2=0.1", "holdout": 0}
    result = train("v6_fedavg", nodes, until_converged=0.001, **settings)
    rounds = result["converged_in"]
    assert rounds == len(result["history"]) < 200 and diagnostics.unconverged(result) == []
    X, y = pooled(nodes).iloc[:, :-1].to_numpy(), pooled(nodes).iloc[:, -1].to_numpy()
    right = LogisticRegression(C=1 / (0.1 * len(y)), tol=1e-12).fit(X, y)
    reference = np.append(right.coef_[0], right.intercept_)
    w = codec.decode(result["weights"])["weights"]
    assert np.linalg.norm(w - reference) < 0.002 * np.linalg.norm(reference)
    # the change of the last round is that of the models themselves
    before = train("v6_fedavg", nodes, **{**settings, "rounds": rounds - 1})
    w_before = codec.decode(before["weights"])["weights"]
    change = np.linalg.norm(w - w_before) / np.linalg.norm(w_before)
    assert result["history"][-1]["change"] == pytest.approx(change, rel=1e-6)
    assert "converged_in" not in before and before["history"][0]["change"] is None


@pytest.mark.parametrize("method", ["scaffold", "fsvrg", "coop", "colearning", "loadaboost"])
def test_every_method_that_averages_models_knows_their_changes(method):
    nodes = {k: table(60, seed=k) for k in (1, 2, 3)}
    assert train(f"v6_{method}", nodes, rounds=3)["history"][-1]["change"] > 0


def test_what_looks_like_convergence_is_refused():
    with pytest.raises(Exception, match="lr_decay_round=0.9 cannot be used with until_converged: steps that shrink"):
        train("v6_fedavg", {1: table(60)}, rounds=3, until_converged=0.01, lr_decay_round=0.9)
    with pytest.raises(Exception, match="until_converged=0.01 cannot be used with clip: noise"):
        train("v6_fedavg", {1: table(60)}, rounds=3, until_converged=0.01, clip=1.0, epsilon=1.0)
    with pytest.raises(Exception, match="which adds trees in every round .early_stopping ends it"):
        train("v6_gbdt", {1: table(60)}, rounds=3, until_converged=0.01)
    with pytest.raises(Exception, match="model stays as it is between averages"):
        train("v6_dynavg", {1: table(60)}, rounds=3, until_converged=0.01)
    with pytest.raises(Exception, match="until_converged has no effect on pca"):
        train("v6_pca", {1: table(60)}, until_converged=0.01)


def test_what_the_remark_says_makes_coefficients_right():
    """To 2%, against scikit-learn on the same rows; those of ten rounds are a quarter of the right ones."""
    data = datasets.load("breast-cancer")
    experiment = Experiment(data, 3, "iid", 0, 0, holdout=0)

    def run(**settings):
        return experiment.federated("fedavg", {"preprocess": ["standardize"], **settings}, lambda row: None)

    (warning,) = diagnostics.unconverged(run(rounds=10, model="logreg:l2=0.02"))
    typed = dict(re.findall(r"--set (\w+)=([\d.]+)", warning)) | dict(re.findall(r"--(\w[\w-]*) ([\d.]+)", warning))
    assert [*typed] == ["server_momentum", "rounds", "until-converged"]
    settings = {"rounds": int(typed["rounds"]), "until_converged": float(typed["until-converged"])}
    result = run(model="logreg:l2=0.02", **settings, server_momentum=float(typed["server_momentum"]))
    assert result["converged_in"] < 1000 and diagnostics.unconverged(result) == []
    X, y = data.rows.iloc[:, :-1].to_numpy(), data.rows.iloc[:, -1].to_numpy()
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    right = LogisticRegression(C=1 / (0.02 * len(y)), tol=1e-12, max_iter=10_000).fit(X, y)
    w = codec.decode(result["weights"])["weights"][:-1]
    assert np.linalg.norm(w - right.coef_[0]) < 0.02 * np.linalg.norm(right.coef_[0])
