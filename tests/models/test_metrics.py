"""Metrics from counts against metrics from scores."""

import numpy as np
import pytest
from helpers import table
from sklearn.metrics import log_loss, roc_auc_score

from v6_federated import models
from v6_federated.data import source
from v6_federated.models import metrics
from v6_federated.noise import units
from v6_federated.rules.rounding import Rounding


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("name", ["logreg", "svm", "fnn"])
def test_metrics_from_counts_equal_those_from_scores(name, classes):
    rng = np.random.default_rng(0)
    model = models.build({"name": name, "features": 4, "classes": classes})
    w = rng.normal(size=model.size).astype(np.float32)
    rows = table(3000, classes=classes)
    X, y = rows.iloc[:, :-1].to_numpy(np.float32), rows["label"].to_numpy()
    parts = [slice(0, 1000), slice(1000, 3000)]
    found = metrics.combine([metrics.evaluate(model, w, source.Rows(X[p], y[p]), classes, 255) for p in parts])
    scores = model.scores(w, X).astype(float)
    assert found["accuracy"] == np.mean(model.predict(w, X) == y)
    assert found["loss"] == pytest.approx(model.loss(model.scores(w, X), y), rel=1e-5)
    if classes == 2:
        exact = roc_auc_score(y, scores[:, -1] - (scores[:, 0] if scores.shape[1] == 2 else 0))
    else:
        p = np.exp(scores - scores.max(axis=1, keepdims=True))
        exact = roc_auc_score(y, p / p.sum(axis=1, keepdims=True), multi_class="ovr")
    assert found["auc"] == pytest.approx(exact, abs=0.002)
    assert np.sum(found["confusion"]) == 3000
    if name == "logreg" and classes == 3:
        assert found["loss"] == pytest.approx(log_loss(y, p / p.sum(axis=1, keepdims=True)), rel=1e-4)


def _exact_auc(scores, y):
    if scores.shape[1] == 1:
        return roc_auc_score(y, scores[:, 0])
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    return roc_auc_score(y, p / p.sum(axis=1, keepdims=True), multi_class="ovr")


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("spread", [1e-4, 1e-2, 1.0, 100.0])
@pytest.mark.parametrize("classes", [2, 3])
def test_bands_are_narrow_where_the_scores_are(classes, spread, intercept):
    """Scores of a rare class lie about its log-odds, far from 0; those of a new model lie close together."""
    rng = np.random.default_rng(3)
    y = rng.choice(classes, 4000, p=[0.93, 0.07] if classes == 2 else [0.8, 0.15, 0.05])
    X = (rng.normal(size=(4000, classes)) * 0.4 + 0.3 * np.eye(classes)[y]).astype(np.float32) * np.float32(spread)
    model = models.build({"name": "logreg", "features": classes, "classes": classes})
    prior = intercept * np.log(np.bincount(y) / len(y))
    w = np.array([-1, 1, prior[1] - prior[0]] if classes == 2 else [*np.eye(3).flatten(), *prior], np.float32)
    answer = metrics.evaluate(model, w, source.Rows(X, y), classes, 255)
    found = metrics.combine([answer])
    off = abs(found["auc"] - _exact_auc(model.scores(w, X).astype(float), y))
    assert off <= found["auc_error"] + 1e-9, "the largest error that the bands allow"
    assert off < 0.003 and found["auc_error"] < 0.03
    assert metrics.is_evaluation(answer, classes)


@pytest.mark.parametrize("tied", [0.45, 0.8, 0.95])
@pytest.mark.parametrize("scale", [1e-3, 2.0])
def test_tied_scores_do_not_make_the_others_coarse(tied, scale):
    """The scores of a column that is mostly zero."""
    rng = np.random.default_rng(5)
    z = np.where(rng.random(6000) < tied, 0.0, rng.normal(size=6000))
    y = (rng.random(6000) < 1 / (1 + np.exp(-2 * z))).astype(int)
    model = models.build({"name": "logreg", "features": 1, "classes": 2})
    rows = source.Rows(z[:, None].astype(np.float32), y)
    answer = metrics.evaluate(model, np.array([scale, 0.3], np.float32), rows, 2, 255)
    assert metrics.combine([answer])["auc"] == pytest.approx(roc_auc_score(y, z), abs=0.002)


def test_a_band_by_hand():
    """4 bands on each side of the middle one: r = |z|^(1/5) is 1/2, 1 and 2, 4 r / (1 + r) is 4/3, 2 and 8/3."""
    z = np.array([0, 1 / 32, -1 / 32, 1, -1, 32, -32, 1e30, -1e30], np.float32)
    model = models.build({"name": "logreg", "features": 1, "classes": 2})
    w = np.array([1, 0.5], np.float32)  # a row of zeros has the score 0.5, about which the bands lie
    (problem,) = metrics.evaluate(model, w, source.Rows(z[:, None], (z > 0).astype(int)), 2, 9)["bands"]
    assert problem == [[1, 1, 1, 1, 1, -4], [-5, 1, 1, 1, 1]], "runs of zeros are packed"
    assert [metrics.unpacked(side).tolist() for side in problem] == [[1] * 5 + [0] * 4, [0] * 5 + [1] * 4]


@pytest.mark.parametrize("numbers", [[0.5], [[1]], [2**70], [-10_001], [-9_999, -2], [1] * 10_001, "12"])
def test_malformed_counts_are_rejected(numbers):
    with pytest.raises(ValueError):
        metrics.unpacked(numbers)


def test_scores_in_one_band_leave_the_auc_open():
    model = models.build({"name": "logreg", "features": 1, "classes": 2})
    rows = source.Rows(np.ones((6, 1), np.float32), np.array([0, 0, 0, 1, 1, 1]))
    found = metrics.combine([metrics.evaluate(model, np.zeros(2, np.float32), rows, 2, 255)])
    assert (found["auc"], found["auc_error"]) == (0.5, 0.5)


def test_no_rows_or_one_class_give_no_auc():
    assert metrics.combine([{"n": 0}])["accuracy"] is None
    model = models.build({"name": "logreg", "features": 1, "classes": 2})
    rows = source.Rows(np.ones((5, 1), np.float32), np.ones(5, np.int64))
    assert metrics.combine([metrics.evaluate(model, np.ones(2, np.float32), rows, 2, 64)])["auc"] is None


MANY = 1001  # classes, one more than are counted by true and predicted class


def test_of_very_many_classes_only_right_and_wrong_are_counted():
    """A model of logits that are the features: row i says class 3, 5 and 7; the labels are 3, 5 and 8."""
    model = models.build({"name": "logreg", "features": MANY, "classes": MANY})
    w = np.concatenate([np.eye(MANY).ravel(), np.zeros(MANY)]).astype(np.float32)
    rows = source.Rows(9 * np.eye(MANY, dtype=np.float32)[[3, 5, 7]], np.array([3, 5, 8]))
    answer = metrics.evaluate(model, w, rows, MANY, 255)
    assert answer["confusion"] == [[2, 1]] and answer["bands"] == []
    assert metrics.is_evaluation(answer, MANY) and not metrics.is_evaluation(answer, MANY - 1)
    for wrong in ([[2, 2]], [[2], [1]], [[4, -1]], np.zeros((MANY, MANY), int).tolist()):
        assert not metrics.is_evaluation({**answer, "confusion": wrong}, MANY)
    found = metrics.combine([answer, answer])
    assert found["accuracy"] == 2 / 3 and found["evaluated"] == 6 and found["confusion"] == [[4, 2]]
    assert found["auc"] is None and found["auc_variance"] is None
    sums = metrics.to_sums(answer, MANY, 255)
    assert sums["bands"].shape == (0, 2, 255)
    assert metrics.of_sums(sums) == {**answer, "steps": 0}
    rounded = metrics.evaluate(model, w, rows, MANY, 255, Rounding.of(3, 1))
    assert np.sum(rounded["confusion"]) == 3 and metrics.is_evaluation(rounded, MANY)
    counts = {name: units.COUNT * np.asarray(sums[name]) for name in ("confusion", "bands")}
    noisy = metrics.of_noisy_sums({"n": 3, **counts}, 1.0)
    assert noisy["confusion"] == [[2.0, 1.0]] and metrics.is_noisy_evaluation(noisy, MANY)
    assert not metrics.is_noisy_evaluation(noisy, 3)
    # as with fewer classes, but for the diagonal's length: the variance of what is on it
    assert metrics.combine([noisy])["accuracy_error"] == pytest.approx(1 / 3)


def test_of_as_many_classes_as_are_crossed_all_are_counted():
    model = models.build({"name": "logreg", "features": 2, "classes": MANY - 1})
    rows = source.Rows(np.ones((3, 2), np.float32), np.array([3, 5, 8]))
    answer = metrics.evaluate(model, model.init(np.random.default_rng(0)), rows, MANY - 1, 3)
    assert np.shape(answer["confusion"]) == (MANY - 1, MANY - 1) and len(answer["bands"]) == MANY - 1
