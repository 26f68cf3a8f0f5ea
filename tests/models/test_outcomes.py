"""Losses of numbers, counts and times: gradients against statsmodels, and measures against direct computation."""

import math

import numpy as np
import pytest
import statsmodels.api as sm
from scipy.special import xlogy
from sklearn.metrics import mean_absolute_error, mean_poisson_deviance, mean_squared_error, r2_score

from v6_federated import models
from v6_federated.base.errors import SafeError
from v6_federated.data import times
from v6_federated.data.source import Rows
from v6_federated.models import metrics, outcomes

N, D = 60, 3
RNG = np.random.default_rng(5)
X = RNG.normal(size=(N, D)).astype(np.float32)
W = np.array([0.4, -0.3, 0.1, 0.2], np.float32)  # the last is the intercept
NUMBER = 100 + 30 * X[:, 0] + RNG.normal(size=N)
COUNT = RNG.poisson(20 * np.exp(0.3 * X[:, 1])).astype(float)
TIME = RNG.exponential(np.exp(-0.5 * X[:, 0])).round(1) + 0.1  # with ties
EVENT = (RNG.random(N) < 0.6).astype(float)
LABELS = {"squared": NUMBER, "poisson": COUNT, "cox": times.signed(TIME, EVENT)}
NETWORKS = ("linear", "nn_reddy:hidden=3", "mlp:hidden=4,activation=tanh,norm=layer")


def spec(loss, model="linear"):
    y = LABELS[loss]
    outcome = outcomes.of_moments(loss, float(y.mean()), float(y.std()))
    return {**models.parse(model), "features": D, "classes": 1, "loss": outcome.to_json()}


def gradient(loss, w=W):
    return models.build(spec(loss)).loss_and_gradient(w, X, LABELS[loss])[1]


def with_one(X):
    return np.column_stack([X.astype(float), np.ones(len(X))])


def test_gradient_of_numbers_by_hand():
    """Of half the mean squared error in deviations, u = (y - mean) / deviation: D^T (D w - u) / n."""
    design, u = with_one(X), (NUMBER - NUMBER.mean()) / NUMBER.std()
    np.testing.assert_allclose(gradient("squared"), design.T @ (design @ W - u) / N, atol=1e-6)


def test_gradient_of_counts_is_statsmodels_score():
    """mu = mean exp(D w) has the intercept log(mean) + b; the score of the log-likelihood is D^T (y - mu)."""
    params = W.astype(float) + np.array([0, 0, 0, math.log(COUNT.mean())])
    score = sm.GLM(COUNT, with_one(X), family=sm.families.Poisson()).score(params, scale=1.0)
    np.testing.assert_allclose(gradient("poisson"), -score / N / COUNT.mean(), atol=1e-6)


def test_gradient_and_loss_of_times_are_statsmodels():
    reference = sm.PHReg(TIME, X.astype(float), status=EVENT, ties="breslow")
    loss, g = models.build(spec("cox")).loss_and_gradient(W, X, LABELS["cox"])
    np.testing.assert_allclose(g[:-1], -reference.score(W[:-1].astype(float)) / N, atol=1e-6)
    assert g[-1] == 0  # an intercept changes no partial likelihood
    assert loss == pytest.approx(-reference.loglike(W[:-1].astype(float)) / N, abs=1e-6)


@pytest.mark.parametrize("loss", LABELS)
@pytest.mark.parametrize("model", NETWORKS)
def test_gradient_of_every_model_by_differences(loss, model):
    """The loss that is reported is ``unit`` times the one that is trained."""
    built, y = models.build(spec(loss, model)), LABELS[loss]
    w = built.init(np.random.default_rng(1)) + np.float32(0.05)
    assert built.size == models.parameters(spec(loss, model))

    def at(w):
        return built.loss_and_gradient(built.asarray(w), built.asarray(X), built.asarray(y))

    analytic = np.array([float(v) for v in at(w)[1]])
    steps = 2e-2 * np.eye(built.size, dtype=np.float32)
    numeric = [(at(w + e)[0] - at(w - e)[0]) / 4e-2 / built.outcome.unit for e in steps]
    assert np.abs(analytic - numeric).max() < 3e-3 * np.abs(analytic).max()


def test_losses_are_on_the_labels_own_scale():
    for loss, by in (("squared", mean_squared_error), ("poisson", mean_poisson_deviance)):
        built, y = models.build(spec(loss)), LABELS[loss]
        prediction = built.scores(W, X)
        assert built.loss(prediction, y) == pytest.approx(by(y, prediction[:, 0]))
        assert built.loss_and_gradient(W, X, y)[0] == pytest.approx(by(y, prediction[:, 0]))
    zero = np.zeros(4, np.float32)
    for loss in ("squared", "poisson"):  # a new model predicts the mean
        np.testing.assert_allclose(models.build(spec(loss)).scores(zero, X), LABELS[loss].mean())


def test_rates_and_gradients_do_not_depend_on_the_labels_unit():
    outcome = outcomes.of_moments("squared", 1000 * float(NUMBER.mean()), 1000 * float(NUMBER.std()))
    large = models.build({**spec("squared"), "loss": outcome.to_json()})
    np.testing.assert_allclose(large.loss_and_gradient(W, X, 1000 * NUMBER)[1], gradient("squared"), atol=1e-5)


def test_penalty_is_reported_in_the_unit_of_the_loss():
    y, w = LABELS["squared"], W.astype(float)
    plain, ridge = (models.build(spec("squared", f"linear:l2={l2}")) for l2 in (0, 0.5))
    loss, g = ridge.loss_and_gradient(W, X, y)
    assert loss - plain.loss_and_gradient(W, X, y)[0] == pytest.approx(
        2 * NUMBER.var() * 0.25 * (w[:-1] @ w[:-1]), rel=1e-5
    )
    np.testing.assert_allclose(g - gradient("squared"), [*0.5 * w[:-1], 0], atol=1e-6)


def measured(loss, parts=4, rounding=False, least=0):
    model = models.build(spec(loss))
    rows = [Rows(X[i::parts], LABELS[loss][i::parts]) for i in range(parts)]
    return model, rows, [metrics.evaluate_regression(model, W, part, rounding, least) for part in rows]


@pytest.mark.parametrize("loss", ["squared", "poisson"])
def test_measures_of_numbers_are_scikit_learns(loss):
    model, _, found = measured(loss)
    y, prediction = LABELS[loss], model.scores(W, X)[:, 0]
    by_sums = [
        metrics.regression_of_sums({name: sum(part[name] for part in parts) for name in parts[0]})
        for parts in [[metrics.regression_to_sums(one, loss) for one in found]]
    ]
    for evaluations in (found, by_sums):
        combined = metrics.combine_regression(evaluations, loss)
        assert combined["r2"] == pytest.approx(r2_score(y, prediction))
        assert combined["mae"] == pytest.approx(mean_absolute_error(y, prediction))
        assert combined["rmse"] == pytest.approx(math.sqrt(mean_squared_error(y, prediction)))
        assert combined["loss"] == pytest.approx(model.loss(model.scores(W, X), y))


def test_c_index_counts_pairs_within_nodes():
    """Of each pair of rows of a node, of which one is known to have had its event first, directly."""
    _, rows, found = measured("cox")
    pairs = concordant = 0.0
    for part in rows:
        time, event = times.parted(part.y)
        z = part.X @ W[:-1]
        for i in range(len(z)):
            for j in range(len(z)):
                if event[i] and (time[i] < time[j] or (time[i] == time[j] and not event[j])):
                    pairs, concordant = pairs + 1, concordant + (z[i] > z[j]) + 0.5 * (z[i] == z[j])
    combined = metrics.combine_regression(found, "cox")
    assert combined["c_index"] == pytest.approx(concordant / pairs)
    assert combined["loss"] == pytest.approx(np.mean([one["loss"] for one in found]))
    assert "c_index_error" not in combined and "r2" not in combined


def test_what_nodes_with_limits_measure():
    """Rounded: near the exact measures, and few events are not evaluated."""
    for loss in LABELS:
        exact, rounded = (metrics.combine_regression(measured(loss, 2, r)[2], loss) for r in (False, True))
        name = "c_index" if loss == "cox" else "r2"
        assert rounded[name] == pytest.approx(exact[name], rel=0.1)
        assert rounded != exact
    assert rounded["c_index_error"] < 0.02
    assert metrics.combine_regression(measured("cox", 4, True, least=100)[2], "cox")["c_index"] is None


def test_a_row_cannot_outweigh_all_others_in_an_evaluation_with_limits():
    """A crafted count's model, with a forged mean: one row's exponential would be the sum."""
    model = models.build({**spec("poisson"), "loss": {"name": "poisson", "mean": 9e29}})
    crafted = np.array([1000.0, 0, 0, 0], np.float32)
    rows = Rows(X, COUNT)
    most = outcomes.Count(mean=COUNT.mean()).within_reach(np.array([np.inf]), COUNT)[0]
    assert most == pytest.approx(COUNT.mean() * math.exp(5))
    with np.errstate(over="ignore"):
        found = metrics.evaluate_regression(model, crafted / 100, rows, rounding=True)
    worst = 2 * (xlogy(COUNT, COUNT) - xlogy(COUNT, COUNT.mean() * math.exp(-5)) - COUNT + most).max()
    assert found["loss"] <= 2 * worst


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"loss": {"name": "squared", "mean": 0.0, "scale": 0.0}}, "a malformed loss"),
        ({"loss": {"name": "squared", "mean": math.nan, "scale": 1.0}}, "a malformed loss"),
        ({"loss": {"name": "squared", "mean": 1e30, "scale": 1.0}}, "a malformed loss"),
        ({"loss": {"name": "squared", "mean": 0.0, "scale": 1e-31}}, "a malformed loss"),
        ({"loss": {"name": "squared", "mean": 0.0, "scale": 1.0, "guard": 1}}, "a malformed loss"),
        ({"loss": {"name": "poisson", "mean": -1.0}}, "a malformed loss"),
        ({"loss": {"name": "hinge"}}, "a malformed loss"),
        ({"loss": "squared"}, "a malformed loss"),
        ({"classes": 2}, "has classes"),
        ({"name": "logreg"}, "tells classes apart"),
        ({"name": "svm"}, "choose linear, mlp"),
    ],
)
def test_what_is_no_model_of_numbers(change, says):
    with pytest.raises(SafeError, match=says):
        models.build({**spec("squared"), **change})


def test_the_linear_model_needs_a_loss_of_numbers():
    with pytest.raises(SafeError, match="set loss=squared"):
        models.build({"name": "linear", "features": D, "classes": 2})
    with pytest.raises(SafeError, match="use --set loss=squared"):
        models.parse("linear:loss=squared")


def test_labels_that_a_loss_does_not_describe():
    assert outcomes.Count().problem(np.array([0.0, 2])) == ""
    for wrong in (-1.0, 0.5):
        assert "counts" in outcomes.Count().problem(np.array([wrong]))
    for name, mean, deviation, says in (("poisson", 0.0, 0.0, "above 0"), ("squared", 3.0, 0.0, "the same in all")):
        with pytest.raises(SafeError, match=says):
            outcomes.of_moments(name, mean, deviation)


def test_extreme_hazard_ratios_give_finite_gradients():
    y = LABELS["cox"]
    for scale in (1e3, 1e6):
        losses, slopes = outcomes.Time().losses_and_slopes(scale * X[:, 0], y)
        assert np.isfinite(losses).all() and np.isfinite(slopes).all() and abs(slopes.sum()) < 1e-6
    losses, slopes = outcomes.Time().losses_and_slopes(X[:, 0], -np.abs(y))  # no events
    assert not losses.any() and not slopes.any()
