"""Warnings about results."""

import pytest

from v6_workbench.reporting import diagnostics


def trained(*losses, steps=(), classes=("a", "b")):
    """A result with a round for each (loss in training, loss on held-out rows)."""
    history = [{"train_loss": a, "loss": b} for a, b in losses]
    return {"history": history, "data": {"classes": [*classes], "preprocess": [{"step": step} for step in steps]}}


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
            "the loss on held-out rows grew: try a smaller lr, or --preprocess standardize",
        ),
        (trained((1.0, 1.0), (2.0, 2.0), steps=["standardize"]), "the loss on held-out rows grew: try a smaller lr"),
        (
            trained((1.0, 7.0), steps=["standardize"]),  # 10 log 2 = 6.93
            "the loss on held-out rows is far above that of guessing: try a smaller lr",
        ),
    ],
)
def test_a_loss_that_grows_is_noticed(result, says):
    assert diagnostics.growing(result) == [says]


@pytest.mark.parametrize("losses", [((1.0, 2.0), (0.5, 1.0)), ((1.0, 1.0), (1.0, 1.04)), ((1.0, 6.9),), ((1.0, None),)])
def test_a_loss_that_does_not_grow_is_not_noticed(losses):
    assert diagnostics.growing(trained(*losses)) == []


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
    assert poor.endswith("has 0.5000: both are rounded, so compare AUC and loss")


def test_a_model_that_was_not_evaluated_is_noticed():
    (warning,) = diagnostics.warnings_about(evaluated([[0, 0], [0, 0]]))
    assert warning.startswith("the model was not evaluated: no rows were held out")


def test_long_lists_are_shortened():
    assert (
        diagnostics.shortened(list("abcd"), 3) == "a, b, c, ..." and diagnostics.shortened(list("abc"), 3) == "a, b, c"
    )
