"""Which of two methods is better: the Bayesian correlated t-test."""

import numpy as np
import pytest
from scipy import stats

from v6_federated.base.errors import SafeError
from v6_workbench.reporting import tables
from v6_workbench.simulation import model_comparison


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
    drawn = tables.signs(found, scores)
    cells = [list(column.cells) for column in drawn.columns[3:]]
    assert cells[0] == ["", "=", "-", "?"] and cells[2] == ["+", "+", "", "+"]


def test_without_a_region_of_equivalence_nothing_is_equal():
    found = model_comparison.verdicts({"a": [0.5, 0.6, 0.7], "b": [0.4, 0.55, 0.6]}, 1, rope=0)["a", "b"]
    assert found.equal == 0 and found.better + found.worse == pytest.approx(1)


@pytest.mark.parametrize(
    ("lengths", "iterations", "says"),
    [
        ((5, 6), 1, r"the methods have \[5, 6\] scores in 1 iteration"),
        ((5, 5), 2, r"the methods have \[5\] scores in 2 iteration.* a multiple of the iterations"),
        ((1, 1), 1, r"the methods have \[1\] scores"),
    ],
)
def test_scores_that_do_not_fit(lengths, iterations, says):
    scores = {name: [1.0] * length for name, length in zip("ab", lengths, strict=True)}
    with pytest.raises(SafeError, match=says):
        model_comparison.verdicts(scores, iterations)
