"""Warnings about results."""

import numpy as np
import pytest

from v6_federated import codec
from v6_workbench.reporting import diagnostics
from v6_workbench.simulation import datasets
from v6_workbench.simulation.experiments import Experiment


def trained(*losses, steps=(), classes=("a", "b"), lr=0.2):
    """A result with a round for each (loss in training, loss on held-out rows)."""
    history = [{"round": t, "train_loss": a, "loss": b} for t, (a, b) in enumerate(losses, start=1)]
    data = {"classes": [*classes], "preprocess": [{"step": step} for step in steps]}
    return {"history": history, "data": data, "settings": {"lr": lr}}


@pytest.mark.parametrize(
    ("result", "says"),
    [
        (
            trained((1.0, 1.0), (0.5, 2.0)),
            "the loss on held-out rows grew while the training loss fell: train for fewer rounds; if the columns have "
            "outliers, add --preprocess clip:0.01",
        ),
        (
            trained((1.0, 1.0), (0.5, 2.0), steps=["clip"]),
            "the loss on held-out rows grew while the training loss fell: train for fewer rounds",
        ),
        (
            trained((1.0, 1.0), (2.0, 2.0)),
            "the loss on held-out rows grew: try a smaller lr (--set lr=0.05), or --preprocess standardize",
        ),
        (
            trained((1.0, 1.0), (2.0, 2.0), steps=["standardize"]),
            "the loss on held-out rows grew: try a smaller lr (--set lr=0.05)",
        ),
        (
            trained((1.0, 1.0), (2.0, 2.0), steps=["standardize"], lr=1e9),
            "the loss on held-out rows grew: try a smaller lr (--set lr=0.1)",
        ),
        (
            trained((1.0, 7.0), steps=["standardize"]),  # 10 log 2 = 6.93
            "the loss on held-out rows is far above that of guessing: try a smaller lr (--set lr=0.05)",
        ),
    ],
)
def test_a_loss_that_grows_is_noticed(result, says):
    assert diagnostics.growing(result) == [says]


@pytest.mark.parametrize("losses", [((1.0, 2.0), (0.5, 1.0)), ((1.0, 1.0), (1.0, 1.04)), ((1.0, 6.9),), ((1.0, None),)])
def test_a_loss_that_does_not_grow_is_not_noticed(losses):
    assert diagnostics.growing(trained(*losses)) == []


@pytest.fixture(scope="module")
def breast_cancer():
    """Trains on standardized rows of five hospitals."""
    experiment = Experiment(datasets.load("breast-cancer"), 5, "iid", 0, 0)

    def run(method="fedavg", **settings):
        return experiment.federated(method, {"preprocess": ["standardize"], **settings}, lambda row: None)

    return run


def moved(run, **settings):
    """By how much twice the rounds change the coefficients of a job, relative to their length; and its warnings."""
    result = run(**settings)
    once, twice = (
        codec.decode(r["weights"])["weights"] for r in (result, run(**{**settings, "rounds": 2 * settings["rounds"]}))
    )
    return np.linalg.norm(twice - once) / np.linalg.norm(once), diagnostics.warnings_about(result)


def test_coefficients_that_still_change_are_not_to_be_read(breast_cancer):
    change, warnings = moved(breast_cancer, lr=0.1, rounds=10)
    assert change > 0.3 and warnings == [
        "not converged: about 34% of the model is left to change; do not read the coefficients; use --set "
        "server_momentum=0.9 --rounds 1000 --until-converged 0.005, and --model logreg:l2=0.01 if classes can be "
        "separated"
    ]
    change, warnings = moved(breast_cancer, lr=0.001, rounds=20)
    assert change > 0.5, "also where a very small rate hides that the loss falls"
    assert "about 81% of the model is left to change" in warnings[0]
    assert (
        "separated" in diagnostics.unconverged(breast_cancer(lr=1.0, rounds=300))[0]
    ), "these coefficients have no end"
    change, warnings = moved(breast_cancer, lr=0.1, rounds=10, batch_size=500)
    assert change > 0.3 and "the training loss still falls by 5.8% a round; do not read" in warnings[0]
    change, warnings = moved(breast_cancer, lr=1.0, rounds=100, model="logreg:l2=0.1")
    assert change < 0.01 and warnings == []
    assert diagnostics.unconverged(falling((1.0, 0.5), (0.4, 0.2), (0.4, 0.2), (0.4, 0.2))) == [], "the first round"
    assert "or a higher stepsize" in diagnostics.unconverged(breast_cancer("fsvrg", rounds=5))[0]


def test_noise_does_not_look_like_a_loss_that_falls(breast_cancer):
    noisy = breast_cancer(lr=1.0, rounds=60, model="logreg:l2=0.1", fraction=0.4, batch_size=20)
    losses = [row["train_loss"] for row in noisy["history"][-15:]]
    # over 8 seeds the deviation is .005 to .010, and none is said to be unconverged
    assert np.std(losses) > 0.003 and diagnostics.unconverged(noisy) == []


def test_components_trees_and_one_round_do_not_converge_by_their_loss(breast_cancer):
    assert diagnostics.unconverged(breast_cancer("pca", rounds=3, components=2)) == []
    trees = breast_cancer("gbdt", rounds=5)
    assert trees["history"][-1]["train_loss"] < 0.95 * trees["history"][-2]["train_loss"], "over 12 seeds 0.80 to 0.89"
    assert diagnostics.warnings_about(trees) == []
    assert diagnostics.unconverged(breast_cancer(rounds=1)) == []


def falling(*losses, **more):
    """A result of no linear model with these losses: (in training, on held-out rows)."""
    return {**trained(*losses), "settings": {"lr": 0.1}, **more}


def test_models_without_coefficients_converge_on_held_out_rows():
    """The training loss of a network may fall for ever."""
    assert diagnostics.unconverged(falling(*((1 / t, 0.5) for t in range(1, 21)))) == []
    (warning,) = diagnostics.unconverged(falling(*((1 / t, 1 - t / 100) for t in range(1, 21))))
    assert warning == (
        "not converged: the loss on held-out rows still falls by 1.2% a round; use more --rounds or a higher lr"
    )
    (warning,) = diagnostics.unconverged(falling(*((1 / t, None) for t in range(1, 21))))
    assert "the training loss still falls by 5.6% a round" in warning
    grew = falling((1.0, 1.0), (0.5, 1.5), (0.2, 1.4), weights={}, final={})
    assert [w for w in diagnostics.warnings_about(grew) if "not converged" in w] == [], "the loss grew: fewer rounds"


def evaluated(confusion, **final):
    """A result with these counts of held-out rows."""
    rows = sum(map(sum, confusion))
    right = sum(confusion[i][i] for i in range(len(confusion)))
    final = {"confusion": confusion, "accuracy": right / rows if rows else None, "evaluated": rows, **final}
    return {**trained((1.0, 1.0), classes=("died", "home")), "final": final, "weights": {}}


def test_a_model_that_is_no_better_than_one_class_is_noticed():
    poor, good = evaluated([[0, 10], [0, 90]]), evaluated([[10, 0], [0, 90]])
    says = "the accuracy is 0.9000, and always predicting 'home' has 0.9000: look at the classes one by one"
    assert diagnostics.poor(poor) == [says] and diagnostics.warnings_about(poor) == [says]
    assert diagnostics.poor(good) == [] and diagnostics.poor_ones({"good": good}) == []
    assert diagnostics.poor_ones({"a": poor, "good": good, "b": poor}) == [
        "a, b: hardly more accurate than one class (always predicting 'home' has 0.9000); compare AUC and loss"
    ]
    assert diagnostics.poor({"final": {"r2": 0.01}}) == [
        "R squared is 0.0100: hardly better than always predicting the mean of the labels, which has 0"
    ]


def test_rounding_is_not_blamed_on_the_model():
    """Of 20 rows at each of three nodes, a loss is rounded in steps of up to 2 / sqrt(20) = 0.45 of it."""
    steady = {**evaluated([[20, 10], [0, 30]], accuracy_error=0.06), "organizations": [1, 2, 3]}
    up = {**steady, "history": [{"train_loss": 1.0, "loss": 1.0}, {"train_loss": 1.0, "loss": 1.4}]}
    assert diagnostics.growing(up) == [] and len(diagnostics.growing({**up, "final": {}})) == 1
    assert len(diagnostics.growing({**up, "history": [up["history"][0], {"train_loss": 1.0, "loss": 1.6}]})) == 1
    [poor] = diagnostics.poor(evaluated([[0, 30], [0, 30]], accuracy_error=0.06))
    assert poor.endswith("has 0.5000: both are rounded; look at AUC and loss, which are rounded too")


def test_rounding_moves_the_auc_too():
    """Counts in multiples of 5 rows at each of four nodes move 170 rows' accuracy by sqrt(4 * 4) / 170."""
    [line] = diagnostics.rounded(evaluated([[60, 20], [20, 70]], auc=0.8, accuracy_error=4 / 170))
    assert "on 170 held-out rows" in line and "the accuracy is exact to about 0.02, the AUC to about 0.03" in line
    assert "hold out more rows" in line and "compare losses" not in line
    [line] = diagnostics.rounded(evaluated([[60, 20], [20, 70]], accuracy_error=4 / 170))
    assert "AUC" not in line, "there is none"
    assert diagnostics.rounded(evaluated([[6000, 20], [20, 7000]], auc=0.8, accuracy_error=0.003)) == []
    [line] = diagnostics.rounded(evaluated([[970, 20], [5, 5]], auc=0.8, accuracy_error=0.008))
    assert "the AUC to about 0.32" in line, "0.4 * 8 rows of a class of 10"


def test_a_model_that_was_not_evaluated_is_noticed():
    (warning,) = diagnostics.warnings_about(evaluated([[0, 0], [0, 0]]))
    assert warning.startswith("the model was not evaluated: no rows were held out")
