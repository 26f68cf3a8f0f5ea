"""Evaluations rounded to what the number of rows can justify."""

import re
from pathlib import Path

import numpy as np
import pytest

from v6_federated.data.source import Rows
from v6_federated.models import LinearModel, details, metrics
from v6_federated.rules.policy import Policy
from v6_federated.rules.rounding import Rounding, rounded_loss

M = 5


@pytest.mark.parametrize("seed", range(30))
def test_counts_add_up_and_none_is_small(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(M, 200))
    counts = rng.multinomial(n, rng.dirichlet(np.full(12, 0.3)))
    for u in range(M):
        rounded = Rounding(M, u).counts(counts)
        assert rounded.sum() == n
        assert all(count == 0 or count >= M for count in rounded)
        assert (np.sort(rounded)[:-1] % M == 0).all(), "all but the largest, which has the rest of n"
        # a sum of neighbours is off by less than M, and by the rest of n
        assert np.abs(np.cumsum(rounded) - np.cumsum(counts)).max() < M + n % M


def test_the_page_shows_how_counts_are_rounded():
    found = {tuple(Rounding(M, u).counts(np.array([7, 4, 2, 1])).tolist()) for u in range(M)}
    page = (Path(__file__).parents[2] / "docs" / "usage.md").read_text()
    said = re.search(r"\[7, 4, 2, 1\] becomes \[(.*?)\] at one\s+node and \[(.*?)\] at another", page)
    assert said and {tuple(map(int, text.split(","))) for text in said.groups()} < found


def test_by_subgroup_the_exact_number_of_rows_of_each_value_leaves():
    rng = np.random.default_rng(3)
    X, y, said = rng.normal(size=(60, 2)), rng.integers(0, 2, 60), np.repeat(["f", "m"], [37, 23])
    model, policy = LinearModel("logistic", 2, 2), Policy.of("careful")
    w = np.array([1.0, -0.5, 0.2], np.float32)
    found = details.by_level(model, w, X, y, said, ["f", "m"], 2, policy, Rounding.of(M, 3))
    assert found.sum(axis=(1, 2)).tolist() == [37, 23]
    assert [int((level % M > 0).sum()) for level in found] == [1, 1], "the largest of each"


def test_counts_are_right_in_the_mean_over_offsets():
    """sum over u of m floor((C + u) / m) = m C, for whole C: so each cumulated count is right in the mean."""
    rng = np.random.default_rng(1)
    counts = rng.multinomial(20 * M, rng.dirichlet(np.full(9, 0.3)))
    mean = np.mean([Rounding(M, u).counts(counts) for u in range(M)], axis=0)
    np.testing.assert_allclose(mean, counts, atol=1e-12)


def test_nodes_have_offsets_that_are_spread_evenly():
    assert sorted(Rounding.of(M, k).offset for k in range(1, 6)) == [0, 1, 2, 3, 4]
    many = np.bincount([Rounding.of(M, k).offset for k in range(1, 101)])
    assert many.min() >= 19 and many.max() <= 21


def test_secrets_have_offsets_that_are_spread_evenly():
    """In floating point, all multiples of a secret of 256 bits were whole: every count of every hospital was cut."""
    rng = np.random.default_rng(6)
    offsets = [Rounding.of(M, int.from_bytes(rng.bytes(32), "big")).offset for _ in range(5000)]
    assert np.bincount(offsets, minlength=M).min() > 850


def test_counts_are_right_in_the_mean_whatever_is_left_of_the_rows():
    """The largest count, of right predictions, has what is left, and was one or two rows too large for it."""
    rng = np.random.default_rng(8)
    apart = []
    for _ in range(4000):
        n = int(rng.integers(30, 60))
        right = rng.binomial(n, 0.85)
        confusion = np.array([[right, n - right], [0, 0]])
        apart.append(int(np.trace(Rounding(M, int(rng.integers(M))).confusion(confusion))) - right)
    assert abs(np.mean(apart)) < 0.4


def test_the_number_of_right_predictions_is_rounded_once():
    rng = np.random.default_rng(2)
    for _ in range(50):
        confusion = rng.multinomial(70, rng.dirichlet(np.full(100, 0.1))).reshape(10, 10)
        found = Rounding(M, int(rng.integers(M))).confusion(confusion)
        assert abs(np.trace(found) - np.trace(confusion)) < M and found.sum() == 70


@pytest.mark.parametrize("n", [10, 91, 455, 60_000])
@pytest.mark.parametrize("loss", [0.0, 1e-9, 0.01, 0.12, 0.5, 0.693, 1.7, 30.0, 1e7, 1e90])
def test_losses_are_rounded_to_their_standard_error_once(loss, n):
    found = rounded_loss(loss, n)
    assert rounded_loss(found, n) == found
    assert abs(found - loss) <= max(loss, 1 / np.sqrt(n)) / np.sqrt(n) * (1 + 1e-12)  # at most one part in sqrt(n)


def losses_of(w, rows):
    """What a node with 40 rows answers about a model of two classes, exact and rounded."""
    model = LinearModel("logistic", 2, 2)
    return [metrics.evaluate(model, w, rows, 2, 127, rounding) for rounding in (None, Rounding.of(M, 3))]


def held_out():
    rng = np.random.default_rng(4)
    return Rows(rng.normal(size=(40, 2)).astype(np.float32), rng.integers(0, 2, 40))


def test_an_answer_is_always_the_same_and_is_accepted():
    w = np.array([1.0, -0.5, 0.2], np.float32)
    exact, rounded = losses_of(w, held_out())
    assert rounded == losses_of(w, held_out())[1] and rounded != exact
    assert metrics.is_evaluation(rounded, 2)
    found = metrics.combine([rounded])
    assert found["evaluated"] == 40 and sum(map(sum, found["confusion"])) == 40


def test_the_result_says_how_exact_its_accuracy_is():
    """The spread of the rounded accuracy over all numbers of right predictions, at five nodes of 20 rows."""
    rng = np.random.default_rng(7)
    errors = []
    for _ in range(2000):
        right = rng.integers(5, 16, 5)
        exact = [np.array([[r, 20 - r], [0, 0]]) for r in right]
        rounded = [Rounding(M, int(rng.integers(M))).confusion(c) for c in exact]
        errors.append(sum(int(np.trace(c)) for c in rounded) / 100 - right.sum() / 100)
    answers = [{"n": 20, "loss": 1.0, "confusion": c.tolist(), "bands": [], "step": M} for c in rounded]
    assert metrics.is_evaluation(answers[0], 2) and not metrics.is_evaluation({**answers[0], "step": 0}, 2)
    assert metrics.combine(answers)["accuracy_error"] == pytest.approx(np.std(errors), rel=0.1)
    assert "accuracy_error" not in metrics.combine([{k: v for k, v in a.items() if k != "step"} for a in answers])


def test_the_loss_of_one_row_that_weights_single_out_keeps_few_digits():
    """The attack: all rows but one lie far on the right side, so the loss is 1/n of this row's, to all digits."""
    rng = np.random.default_rng(5)
    X = np.abs(rng.normal(size=(40, 2))).astype(np.float32) + 1
    X[7] = [-3.21987, 2]
    rows = Rows(X, np.ones(40, np.int64))
    w = np.array([1e6, 0, 0], np.float32)
    exact, rounded = losses_of(w, rows)
    assert 40 * exact["loss"] / 1e6 == pytest.approx(3.21987, rel=1e-6)
    told = 40 * rounded["loss"] / 1e6
    step = 2.0 ** (np.ceil(np.log2(exact["loss"])) - 3)  # 8 is the next power of two above sqrt(40)
    assert rounded["loss"] / step == round(exact["loss"] / step)
    assert told != pytest.approx(3.21987, rel=1e-3)


def test_one_row_rarely_changes_a_count():
    """A model that puts one row more on the other side: 1 of 5 counts changes, by 5; the others say nothing."""
    rows, changes = held_out(), []
    order = np.sort(rows.X[:, 0])
    for a, b, c in zip(order, order[1:], order[2:], strict=False):
        one, two = (np.array([1, 0, -(p + q) / 2], np.float32) for p, q in ((a, b), (b, c)))
        before, after = (np.asarray(losses_of(w, rows)[1]["confusion"]) for w in (one, two))
        changes.append(np.abs(after - before).sum())
    assert set(changes) <= {0, 10, 20} and np.mean(np.array(changes) > 0) < 0.5


def test_a_regression_is_rounded_in_the_labels_own_unit():
    class Line:
        def scores(self, w, X):
            return X @ w

        def loss(self, scores, y):
            return float(np.mean((scores - y) ** 2))

    rng = np.random.default_rng(6)
    X = np.column_stack([rng.normal(size=100), np.ones(100)])
    y = 1e6 * X[:, 0] + rng.normal(size=100) * 1e5 + 5e6
    exact, rounded = (metrics.evaluate_regression(Line(), np.array([1e6, 5e6]), Rows(X, y), r) for r in (False, True))
    assert metrics.is_evaluation(rounded, None)
    for part, error in (("loss", 0.3), ("squares", 0.2), ("mean", 0.1)):
        assert rounded[part] != exact[part] and rounded[part] == pytest.approx(exact[part], rel=error)
    for number in (rounded["loss"], rounded["squares"] / 100):
        assert number / 2.0 ** (np.ceil(np.log2(number)) - 4) % 1 == 0, "a multiple of 1/16 of the power of two above"
    r2 = [metrics.combine_regression([found])["r2"] for found in (exact, rounded)]
    assert r2[1] == pytest.approx(r2[0], abs=0.02)
