"""Metrics from counts against metrics from scores."""

import numpy as np
import pytest
from helpers import table
from sklearn.metrics import log_loss, roc_auc_score

from v6_federated import models
from v6_federated.data import source
from v6_federated.models import metrics


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("name", ["logreg", "svm", "fnn"])
def test_metrics_from_counts_equal_those_from_scores(name, classes):
    rng = np.random.default_rng(0)
    model = models.build({"name": name, "features": 4, "classes": classes})
    w = rng.normal(size=model.size).astype(np.float32)
    rows = table(3000, classes=classes)
    X, y = rows.iloc[:, :-1].to_numpy(np.float32), rows["label"].to_numpy()
    parts = [slice(0, 1000), slice(1000, 3000)]
    placed = metrics.next_bands([metrics.evaluate(model, w, source.Rows(X, y), classes, 64)], metrics.SCALE, None)
    found = metrics.combine([metrics.evaluate(model, w, source.Rows(X[p], y[p]), classes, 64, *placed) for p in parts])
    scores = model.scores(w, X).astype(float)
    assert found["accuracy"] == np.mean(model.predict(w, X) == y)
    assert found["loss"] == pytest.approx(model.loss(model.scores(w, X), y), rel=1e-5)
    if classes == 2:
        exact = roc_auc_score(y, scores[:, -1] - (scores[:, 0] if scores.shape[1] == 2 else 0))
    else:
        p = np.exp(scores - scores.max(axis=1, keepdims=True))
        exact = roc_auc_score(y, p / p.sum(axis=1, keepdims=True), multi_class="ovr")
    assert found["auc"] == pytest.approx(exact, abs=0.005)
    assert np.sum(found["confusion"]) == 3000
    if name == "logreg" and classes == 3:
        assert found["loss"] == pytest.approx(log_loss(y, p / p.sum(axis=1, keepdims=True)), rel=1e-4)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("spread", [1.0, 0.01])
@pytest.mark.parametrize("classes", [2, 3])
def test_bands_follow_the_scores(classes, spread, intercept):
    """Scores of rows of which few have the class lie about its odds, far from even, or, of a model that has just begun,
    all close together: there the bands get fine."""
    rng = np.random.default_rng(3)
    y = rng.choice(classes, 4000, p=[0.93, 0.07] if classes == 2 else [0.8, 0.15, 0.05])
    X = (rng.normal(size=(4000, classes)) * 0.4 + 0.3 * np.eye(classes)[y]).astype(np.float32) * np.float32(spread)
    model = models.build({"name": "logreg", "features": classes, "classes": classes})
    prior = intercept * np.log(np.bincount(y) / len(y))
    w = np.array([-1, 1, prior[1] - prior[0]] if classes == 2 else [*np.eye(3).flatten(), *prior], np.float32)
    rows = source.Rows(X, y)
    scores = model.scores(w, X).astype(float)
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    exact = roc_auc_score(y, scores[:, 0] if classes == 2 else p / p.sum(axis=1, keepdims=True), multi_class="ovr")
    placement, answers = (metrics.SCALE, None), []
    for _ in range(4):
        answers.append(metrics.evaluate(model, w, rows, classes, 64, *placement))
        off = abs(metrics.combine(answers[-1:])["auc"] - exact)
        assert off <= metrics.blur(answers[-1:]) + 1e-9, "what the bands leave open"
        placement = metrics.next_bands(answers[-1:], *placement)
        assert metrics.is_placement(*placement, classes) and metrics.is_evaluation(answers[-1], classes)
    assert off < 0.001 and metrics.blur(answers[-1:]) < 0.012 and len({np.sum(a["bands"]) for a in answers}) == 1
    share = p / p.sum(axis=1, keepdims=True)
    odds = scores[:, 0] if classes == 2 else np.log(share / (1 - share))
    np.testing.assert_allclose(placement[1], np.median(odds.reshape(4000, -1), axis=0), atol=0.02 * spread)


@pytest.mark.parametrize("tied", [0.45, 0.6, 0.8, 0.95])
def test_tied_scores_do_not_make_the_others_coarse(tied):
    """Of a column that is mostly zero: what shares a band cannot be told apart, however fine the bands are there."""
    rng = np.random.default_rng(5)
    z = np.where(rng.random(6000) < tied, 0.0, rng.normal(size=6000))
    y = (rng.random(6000) < 1 / (1 + np.exp(-2 * z))).astype(int)
    model = models.build({"name": "logreg", "features": 1, "classes": 2})
    rows, w, placement = (
        source.Rows(z[:, None].astype(np.float32), y),
        np.array([2, 0.3], np.float32),
        (metrics.SCALE, None),
    )
    for _ in range(6):
        answer = metrics.evaluate(model, w, rows, 2, 64, *placement)
        assert metrics.combine([answer])["auc"] == pytest.approx(roc_auc_score(y, z), abs=0.003)
        placement = metrics.next_bands([answer], *placement)


def test_no_rows_or_one_class_give_no_auc():
    assert metrics.combine([{"n": 0}])["accuracy"] is None
    model = models.build({"name": "logreg", "features": 1, "classes": 2})
    rows = source.Rows(np.ones((5, 1), np.float32), np.ones(5, np.int64))
    assert metrics.combine([metrics.evaluate(model, np.ones(2, np.float32), rows, 2, 64)])["auc"] is None


def test_rounds_to_target_is_mcmahans():
    # best so far .5 .8 .8 .9: crosses .85 halfway from round 3 to round 4
    assert metrics.rounds_to_target([0.5, 0.8, 0.7, 0.9], [1, 2, 3, 4], 0.85) == pytest.approx(3.5)
    assert metrics.rounds_to_target([0.5, 0.5, 0.9], [0, 0, 5], 0.8) == pytest.approx(3.75), "rounds without uploads"
    assert metrics.rounds_to_target([0.9], [1], 0.85) == 1
    assert metrics.rounds_to_target([0.5, None, 0.9], [1, 2, 3], 0.7) == pytest.approx(2)
    assert metrics.rounds_to_target([0.5], [1], 0.85) is None
