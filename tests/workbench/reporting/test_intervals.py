"""95% intervals of accuracy and AUC: against formulas written out again, and in simulated federations."""

import math
import os

import numpy as np
import pandas as pd
import pytest
from helpers import train
from scipy import optimize, stats
from sklearn.metrics import roc_auc_score

from v6_federated.data.source import Rows, Source
from v6_federated.models import metrics
from v6_federated.rules.rounding import Rounding
from v6_workbench.reporting import intervals, prediction, tables

FEDERATIONS = int(os.environ.get("COVERAGE_FEDERATIONS", "100"))  # 1000 in ``make test-long``


class Scores:
    """A model whose score is the only column."""

    def scores(self, w, X):
        return X

    def loss(self, scores, y):
        return 0.5


def counted(nodes, step=None):
    """A result of nodes with these (scores, labels); with ``step``, they round their counts."""
    answers = [
        metrics.evaluate(Scores(), None, Rows(z[:, None].astype(np.float32), y), 2, 255, step and Rounding.of(step, k))
        for k, (z, y) in nodes.items()
    ]
    return {"final": metrics.combine(answers), "settings": {}}


@pytest.mark.parametrize(("right", "n"), [(0, 7), (3, 10), (94, 100), (40, 40), (7001, 12000)])
def test_wilson_equals_scipy(right, n):
    exact = stats.binomtest(right, n).proportion_ci(method="wilson")
    found = intervals.accuracy_interval({"final": {"accuracy": right / n, "evaluated": n}})
    assert found == pytest.approx([exact.low, exact.high], abs=1e-12)


@pytest.mark.parametrize(("n0", "n1", "ties"), [(40, 31, True), (200, 90, False)])
def test_delong_equals_its_definition_row_by_row(n0, n1, ties):
    """DeLong et al. 1988: variances of V10 and V01, a row's share of the other class that it is ordered rightly to."""
    rng = np.random.default_rng(n0)
    z, y = rng.normal(size=n0 + n1), np.repeat([0, 1], [n0, n1])
    z = np.round(2 * (z + y)) if ties else z + y
    final = counted({1: (z, y)})["final"]
    half = 127  # the bands as ``metrics`` documents them: r / (1 + r) of the way out, r = |z|^(1/5)
    r = np.abs(z.astype(np.float32).astype(float)) ** 0.2
    band = np.rint(half * np.sign(z) * r / (1 + r))
    psi = np.sign(band[y == 1][:, None] - band[y == 0][None, :]) / 2 + 0.5  # a tie counts half
    v10, v01 = psi.mean(axis=1), psi.mean(axis=0)
    variance = v10.var(ddof=1) / n1 + v01.var(ddof=1) / n0
    assert (final["auc"], final["auc_variance"]) == pytest.approx((psi.mean(), variance), rel=1e-12)
    A, logit = psi.mean(), np.log(psi.mean() / (1 - psi.mean()))
    ends = logit + 1.959963985 * np.array([-1, 1]) * np.sqrt(variance) / (A * (1 - A))
    assert intervals.auc_interval({"final": final}) == pytest.approx(1 / (1 + np.exp(-ends)), abs=1e-9)


def test_hanley_and_mcneil_of_few_rows():
    """Their formula, with Q1 and Q2 as the AUC of a negative exponential model gives them."""
    final = {"auc": 0.8, "auc_variance": 1e-9, "evaluated": 100, "confusion": [[70, 10], [5, 15]]}
    q1, q2 = 0.8 / 1.2, 2 * 0.64 / 1.8
    error = math.sqrt((0.8 * 0.2 + 19 * (q1 - 0.64) + 79 * (q2 - 0.64)) / (80 * 20))
    ends = np.log(4) + np.array([-1, 1]) * 1.959963985 * error / 0.16
    result = {"final": {**final, "accuracy": 0.85}}
    assert intervals.auc_interval(result) == pytest.approx(1 / (1 + np.exp(-ends)), abs=1e-9)
    assert any("a class has fewer than 30 held-out rows (20)" in line for line in intervals.explained(result))
    many = {"final": {**final, "confusion": [[60, 10], [5, 25]], "accuracy": 0.85}}
    assert intervals.auc_interval(many) == pytest.approx([0.8, 0.8], abs=1e-3), "DeLong's from 30 rows"
    assert not any("a class has" in line for line in intervals.explained(many))


def test_classes_that_the_scores_separate():
    """The lowest AUC from which 1 is not further away than 1.96 standard deviations."""
    z = np.r_[np.linspace(-3, -1, 40), np.linspace(1, 3, 35)]
    result = counted({1: (z, (z > 0).astype(int))})
    lowest = optimize.brentq(lambda A: 1 - A - 1.959963985 * math.sqrt(intervals.hanley_mcneil(A, 40, 35)), 0.5, 0.9999)
    assert result["final"]["auc"] == 1 and 0.9 < lowest < 0.99
    assert intervals.auc_interval(result) == pytest.approx([lowest, 1], abs=1e-9)
    turned = counted({1: (z, (z < 0).astype(int))})
    assert intervals.auc_interval(turned) == pytest.approx([0, 1 - lowest], abs=1e-9)


def test_what_has_no_interval():
    assert intervals.accuracy_interval({"final": None}) is None
    assert intervals.accuracy_interval({"final": {"evaluated": 0, "accuracy": None}}) is None
    assert intervals.auc_interval({"final": {"auc": 0.9, "confusion": [[5, 0, 0], [0, 5, 0], [0, 0, 5]]}}) is None
    assert intervals.auc_interval({"final": {"auc": 0.9, "confusion": [[5, 5], [0, 0]]}}) is None
    regression = {"final": {"evaluated": 20, "loss": 1.0, "accuracy": None, "auc": None, "r2": 0.5}}
    assert tables.intervals_table({"gbdt": regression}) is None and intervals.explained(regression) == []


def test_what_the_intervals_mean_is_said():
    three = {"accuracy": 0.9, "evaluated": 30, "auc": 0.9, "confusion": [[9, 1, 0], [0, 9, 1], [1, 0, 9]]}
    first, why = intervals.explained({"final": three})
    assert "new rows of these hospitals" in first and "the AUC of more than two classes has no interval" in why
    rounded = {"final": {"accuracy": 0.9, "evaluated": 100, "auc": None, "accuracy_error": 0.03}}
    assert "nodes have rounded their counts" in intervals.explained(rounded)[1]
    lower, upper = intervals.wilson(0.9, 100)
    error = 1.959963985 * 0.03
    wide = [0.9 - math.hypot(0.9 - lower, error), min(1, 0.9 + math.hypot(upper - 0.9, error))]
    assert intervals.accuracy_interval(rounded) == pytest.approx(wide)
    stopped = {"final": {"accuracy": 0.9, "evaluated": 100, "auc": None}, "settings": {"target": 0.9}}
    assert intervals.explained(stopped)[1].startswith("target chose the round by the held-out rows")
    tied = {**three, "auc": 0.5, "auc_error": 0.5, "auc_variance": 0.0, "confusion": [[50, 0], [50, 0]]}
    assert "can move the AUC by 0.50" in intervals.explained({"final": tied})[1]


def federation(rng, shares, rows, d):
    """Nodes whose scores are normal: mean -0.7 outside the class, d more inside; positive scores predict the class."""
    nodes = {}
    for k, (share, n) in enumerate(zip(shares, rows, strict=True), start=1):
        y = (rng.random(n) < share).astype(int)
        nodes[k] = (rng.normal(-0.7 + d * y), y)
    return nodes


def check_coverage(held, federations, most):
    """Between 93% and 97% (``most``) of the intervals hold the truth, within what so few federations can tell."""
    chance = 0 if federations >= 1000 else 3 * math.sqrt(0.95 * 0.05 / federations)
    covered = {name: count / federations for name, count in held.items()}
    print(covered)
    assert all(0.93 - chance <= share <= most[name] + chance for name, share in covered.items()), covered


@pytest.mark.parametrize("d", [1.0, 2.2], ids=["AUC .76", "AUC .94"])
@pytest.mark.parametrize(
    ("shares", "rows", "step", "most"),
    [
        ((0.4, 0.4, 0.4, 0.4), (50, 50, 50, 50), None, 0.97),
        ((0.2, 0.3, 0.5, 0.6), (60, 90, 30, 100), None, 0.97),
        ((0.1, 0.1, 0.15, 0.1), (50, 50, 50, 50), None, 1),
        ((0.4, 0.4, 0.4, 0.4, 0.4), (70, 70, 70, 70, 70), 5, 1),
    ],
    ids=["alike", "different", "few cases", "rounded"],
)
def test_95_of_100_intervals_hold_the_truth(shares, rows, step, most, d):
    """With few cases or rounded counts, intervals of the AUC are a little wider than they need to be."""
    rng, share = np.random.default_rng(8), np.dot(shares, rows) / sum(rows)
    right = share * stats.norm.cdf(d - 0.7) + (1 - share) * stats.norm.cdf(0.7)
    truth, held = {"accuracy": right, "auc": stats.norm.cdf(d / math.sqrt(2))}, {"accuracy": 0, "auc": 0}
    for _ in range(FEDERATIONS):
        nodes = {}
        for k, (inside, n) in enumerate(zip(shares, rows, strict=True), start=1):
            y = (rng.random(n) < inside).astype(int)
            nodes[k] = (rng.normal(-0.7 + d * y), y)  # positive scores predict the class
        result = counted(nodes, step)
        for name, of in (("accuracy", intervals.accuracy_interval), ("auc", intervals.auc_interval)):
            lower, upper = of(result)
            held[name] += lower <= truth[name] <= upper
    check_coverage(held, FEDERATIONS, {"accuracy": 0.97 if step is None else 1, "auc": most})


def clinic(rng, k, n):
    """Rows of hospital k: its patients are older, and more of them have the outcome, than those of hospital k - 1."""
    X = rng.normal(size=(n, 4)) + 0.3 * k
    y = rng.random(n) < 1 / (1 + np.exp(-(X @ [1.0, -0.8, 0.5, 0.0] + 0.2 * k - 0.6)))
    return pd.DataFrame(X, columns=list("abcd")).assign(label=y.astype(int))


@pytest.mark.parametrize("federations", [10, pytest.param(1000, marks=pytest.mark.long)])
def test_intervals_of_trained_models_hold_what_new_rows_of_the_hospitals_give(federations):
    """Each federation trains a model of its own; its truth is what that model gets on 40,000 new rows."""
    rng, held = np.random.default_rng(3), {"accuracy": 0, "auc": 0}
    new = pd.concat([clinic(rng, k, 10_000) for k in range(4)])
    for _ in range(federations):
        result = train("v6_fedavg", {k + 1: clinic(rng, k, 250) for k in range(4)}, rounds=3, lr=0.5)
        told, _ = prediction.predict(result, Source(table=new))
        truth = {
            "accuracy": np.mean(told["prediction"].astype(int).to_numpy() == new["label"].to_numpy()),
            "auc": roc_auc_score(new["label"], told["score"]),
        }
        for name, of in (("accuracy", intervals.accuracy_interval), ("auc", intervals.auc_interval)):
            lower, upper = of(result)
            held[name] += lower <= truth[name] <= upper
    check_coverage(held, federations, {"accuracy": 0.97, "auc": 0.97})
