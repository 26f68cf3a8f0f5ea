"""FedAvg and the other methods of training on numbers, counts and times: by hand, and against exact regression."""

import math

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from helpers import pooled, refused, train
from vantage6.algorithm.tools.exceptions import CollectResultsError, UserInputError

from v6_federated.base.errors import SafeError
from v6_federated.base.randomness import generator
from v6_federated.messages import codec
from v6_federated.models import outcomes
from v6_workbench.reporting import export
from v6_workbench.simulation.datasets import load

FEATURES = ["x0", "x1", "x2", "x3"]
SETTINGS = {
    "squared": {"loss": "squared", "label": "number"},
    "poisson": {"loss": "poisson", "label": "count"},
    "cox": {"loss": "cox", "label": "time", "event": "event"},
}
OTHERS = ("v6_scaffold", "v6_colearning", "v6_loadaboost", "v6_dynavg", "v6_coop", "v6_fsvrg")


@pytest.fixture
def nodes(hospitals):
    """Three hospitals with a number, a count and a time as labels."""
    rng, found = np.random.default_rng(4), {}
    for k, rows in hospitals.items():
        X = rows[FEATURES]
        eta = 0.4 * X["x0"] - 0.3 * X["x1"]
        time, end = rng.exponential(np.exp(-eta)), rng.exponential(2, len(X))
        found[k] = X.assign(
            number=50 + 8 * eta + rng.normal(size=len(X)),
            count=rng.poisson(20 * np.exp(0.5 * eta)),
            event=(time <= end).astype(int),
            time=np.minimum(time, end).round(1) + 0.1,  # with ties
        )
    return found


def settings(loss, **more):
    return {**SETTINGS[loss], "features": FEATURES, "holdout": 0, **more}


def by_hand(loss, rows, mean, deviation):
    """The gradient of the trained loss at w of some rows, in float64; w's last number is the intercept."""
    design = np.column_stack([rows[FEATURES].to_numpy(np.float32).astype(float), np.ones(len(rows))])

    def gradient(w, batch):
        D, n = design[batch], len(design[batch])
        if loss == "squared":  # of half the mean squared error in deviations from the mean
            return D.T @ (D @ w - (rows["number"].to_numpy()[batch] - mean) / deviation) / n
        if loss == "poisson":  # of mu - y log mu, divided by the mean, with mu = mean exp(D w)
            return D.T @ (np.exp(D @ w) - rows["count"].to_numpy()[batch] / mean) / n
        time, event, hazard = rows["time"].to_numpy()[batch], rows["event"].to_numpy()[batch], np.exp(D @ w)
        g = np.zeros(len(w))
        for i in np.flatnonzero(event):  # of -log(hazard_i / sum of the hazards of those at risk)
            at_risk = time >= time[i]
            g += hazard[at_risk] @ D[at_risk] / hazard[at_risk].sum() - D[i]
        return g / n

    return gradient


def moments(loss, nodes):
    y = pooled(nodes)[SETTINGS[loss]["label"]].to_numpy(float)
    return y.mean(), y.std()


@pytest.mark.parametrize("loss", SETTINGS)
def test_a_round_of_fedavg_by_hand(loss, nodes):
    """Two epochs of minibatches of 10 at each node, from zero; the mean of the models weighted by rows."""
    eta, E, B, seed = 0.2, 2, 10, 11
    result = train("v6_fedavg", nodes, **settings(loss), rounds=1, epochs=E, batch_size=B, lr=eta, seed=seed)
    models, sizes = [], [len(rows) for rows in nodes.values()]
    for k, rows in nodes.items():
        gradient, shuffle, w = by_hand(loss, rows, *moments(loss, nodes)), generator(seed, "shuffle", k, 1), np.zeros(5)
        for _ in range(E):
            order = shuffle.permutation(len(rows))
            for start in range(0, len(rows), B):
                w = w - eta * gradient(w, order[start : start + B])
        models.append(w)
    expected = np.average(models, axis=0, weights=sizes)
    np.testing.assert_allclose(codec.decode(result["weights"])["weights"], expected, atol=1e-6)
    assert np.abs(expected).max() > 0.01


@pytest.mark.parametrize("loss", SETTINGS)
def test_fedsgd_is_a_step_on_the_pooled_gradient(loss, nodes):
    """The loss of times is that of hospitals as strata: the mean of their gradients by rows."""
    result = train("v6_fedavg", nodes, **settings(loss), rounds=1, lr=0.3)
    rows = pooled(nodes)
    if loss == "cox":
        g = sum(len(r) * by_hand(loss, r, 0, 1)(np.zeros(5), slice(None)) for r in nodes.values()) / len(rows)
    else:
        g = by_hand(loss, rows, *moments(loss, nodes))(np.zeros(5), slice(None))
    np.testing.assert_allclose(codec.decode(result["weights"])["weights"], -0.3 * g, atol=1e-6)


@pytest.mark.parametrize(
    ("package", "loss"),  # fsvrg refuses cox, see the next test
    [(m, loss) for m in OTHERS for loss in SETTINGS if m != "v6_coop" and (m, loss) != ("v6_fsvrg", "cox")],
)
def test_one_hospital_is_gradient_descent(loss, package, nodes):
    """Without minibatches every method takes one step on all rows in each round, if there is one hospital."""
    own = {"v6_fsvrg": {"stepsize": 0.2}, "v6_loadaboost": {"epochs": 1}}.get(package, {"epochs": 1})
    rate = {} if package == "v6_fsvrg" else {"lr": 0.2}
    if package == "v6_colearning":
        own |= {"lr_cycle": 1.0}
    result = train(package, {1: nodes[5]}, **settings(loss), rounds=3, batch_size=None, **rate, **own)
    gradient, w = by_hand(loss, nodes[5], *moments(loss, {1: nodes[5]})), np.zeros(5)
    epochs = [row.get("epochs") or 1 for row in result["history"]]
    for e in epochs if package == "v6_colearning" else [1] * 3:
        for _ in range(int(e)):
            w = w - 0.2 * gradient(w, slice(None))
    np.testing.assert_allclose(codec.decode(result["weights"])["weights"], w, atol=2e-6)


@pytest.mark.parametrize("package", OTHERS)
@pytest.mark.parametrize("loss", SETTINGS)
def test_every_method_learns_numbers_counts_and_times(loss, package, nodes):
    if (package, loss) == ("v6_fsvrg", "cox"):
        refused("loss=cox cannot be used with fsvrg", nodes, package, **settings(loss), batch_size=10)
        return
    rates = {"stepsize": 0.5} if package == "v6_fsvrg" else {"lr": 0.1}
    rounds = 40 if package == "v6_coop" else 15
    own = settings(loss, holdout=0.3, batch_size=10, preprocess=["standardize"])
    result = train(package, nodes, **own, rounds=rounds, **rates)
    final = result["final"]
    assert final["c_index" if loss == "cox" else "r2"] > (0.55 if loss == "cox" else 0.5)
    assert {*final} >= ({"c_index"} if loss == "cox" else {"r2", "rmse", "mae"})
    assert final["loss"] < result["history"][0]["loss"]


@pytest.mark.parametrize("model", ["fnn:hidden=6", "mlp:hidden=6,activation=tanh,norm=layer"])
@pytest.mark.parametrize("loss", SETTINGS)
def test_networks_learn_numbers_counts_and_times(loss, model, nodes):
    own = settings(loss, holdout=0.3, batch_size=10, preprocess=["standardize"], model=model)
    result = train("v6_fedavg", nodes, **own, rounds=20, lr=0.1)
    # over 12 seeds .58 to .78 (.5 by chance), and .51 to .97 (0 for the mean)
    assert result["final"]["c_index" if loss == "cox" else "r2"] > (0.5 if loss == "cox" else 0.2)


# ---- exact regression on real tables


def thirds(rows):
    return {k: rows.iloc[k - 1 :: 3].reset_index(drop=True) for k in (1, 2, 3)}


def converged(rows, loss, label, **more):
    """Coefficients of the columns as they are, from FedSGD with momentum."""
    own = {"loss": loss, "label": label, "holdout": 0, "preprocess": ["standardize"], **more}
    result = train("v6_fedavg", thirds(rows), **own, rounds=400, lr=0.1, server_momentum=0.9)
    return export.tensors(result), result


def exact(package, rows, **more):
    result = train(package, thirds(rows), holdout=0, preprocess=["standardize"], **more)
    return {row["name"]: row["estimate"] for row in result["coefficients"]}, result


def near(parts, names, expected, tolerance):
    np.testing.assert_allclose(parts["coef"][0], [expected[name] for name in names], **tolerance)
    if "intercept" in expected:
        assert parts["intercept"][0] == pytest.approx(expected["intercept"], rel=1e-3, abs=1e-3)


def test_fedavg_of_numbers_approaches_exact_regression():
    """scikit-learn's diabetes, six of its columns."""
    rows = load("diabetes").rows
    rows = rows[[*["age", "sex", "bmi", "bp", "s3", "s5"], rows.columns[-1]]]
    parts, _ = converged(rows, "squared", rows.columns[-1])
    expected, _ = exact("v6_glm", rows, family="gaussian", rounds=10)
    near(parts, rows.columns[:-1], expected, {"rtol": 1e-3})


def test_fedavg_of_counts_approaches_exact_regression():
    """Doctors' visits of the RAND experiment (Deb and Trivedi 2002), which statsmodels ships."""
    rows = sm.datasets.randhie.load_pandas().data.iloc[:1500][["lncoins", "disea", "hlthg", "physlm", "mdvis"]]
    parts, result = converged(rows, "poisson", "mdvis")
    expected, glm = exact("v6_glm", rows, family="poisson", rounds=20)
    near(parts, rows.columns[:-1], expected, {"rtol": 1e-3, "atol": 1e-4})
    assert result["history"][-1]["train_loss"] == pytest.approx(glm["deviance"] / len(rows), rel=1e-5)


def test_fedavg_of_times_approaches_exact_regression():
    """Survival after a heart transplant (Miller 1976), which statsmodels ships; hospitals are strata."""
    rows = sm.datasets.heart.load_pandas().data
    noise = np.random.default_rng(0).normal(size=len(rows))
    rows = rows.assign(noise=noise)[["age", "noise", "survival", "censors"]]
    parts, result = converged(rows, "cox", "survival", event="censors")
    expected, cox = exact("v6_cox", rows, label="survival", event="censors", ties="breslow", rounds=20)
    near(parts, ["age", "noise"], expected, {"rtol": 1e-3})
    assert result["history"][-1]["train_loss"] * len(rows) == pytest.approx(-cox["log_likelihood"], rel=1e-5)


# ---- exports and predictions


@pytest.mark.parametrize("loss", SETTINGS)
@pytest.mark.parametrize("model", ["linear", "fnn:hidden=5"])
def test_exports_are_on_the_labels_own_scale(loss, model, nodes):
    from v6_federated.data.source import Source
    from v6_workbench.reporting.prediction import predict

    result = train("v6_fedavg", nodes, **settings(loss, model=model), rounds=3, lr=0.2)
    rows, parts = pooled(nodes), export.tensors(result)
    X = rows[FEATURES].to_numpy()
    if model == "linear":
        z = X @ parts["coef"][0] + parts["intercept"][0]
    else:
        hidden = np.maximum(X @ parts["layer1.weight"].T + parts["layer1.bias"], 0)
        z = (hidden @ parts["layer2.weight"].T + parts["layer2.bias"])[:, 0]
    table, measured = predict(result, Source(table=rows))
    expected = np.exp(z) if loss == "poisson" else z
    np.testing.assert_allclose(table["prediction"], expected, rtol=1e-4, atol=1e-5)
    if loss == "cox":
        assert {*measured} == {"c_index"}
        assert predict(result, Source(table=rows.drop(columns="event")))[1] == {}
    else:
        y = rows[SETTINGS[loss]["label"]].to_numpy()
        assert measured["rmse"] == pytest.approx(math.sqrt(np.mean((y - expected) ** 2)), rel=1e-4)


# ---- what is refused


@pytest.mark.parametrize(
    ("loss", "change", "more", "says"),
    [
        ("poisson", {"count": -1}, {}, "the label's mean is -1; expected counts"),
        ("poisson", {"count": 1.5}, {}, "expected counts: whole numbers from 0"),
        ("poisson", {"count": 0}, {}, "expected counts, some of them above 0"),
        ("squared", {"number": 3}, {}, "the label is the same in all rows"),
        ("squared", {"number": "high"}, {}, "labels that are not numbers"),
        ("cox", {"time": -1.0}, {}, "times below 0"),
        ("cox", {"time": -1.0}, {"event": None}, "times below 0"),
        ("cox", {"event": 2}, {}, "other numbers than 0 and 1"),
        ("cox", {"event": "yes"}, {}, "event"),
        ("cox", {}, {"batch_size": 1}, "minibatches of one row have no partial likelihood"),
        ("squared", {}, {"event": "event"}, "event=event needs loss=cox"),
        ("squared", {}, {"classes": [0, 1]}, "loss=squared cannot be used with classes"),
        ("squared", {}, {"target": 0.9}, "loss=squared cannot be used with target"),
        ("squared", {}, {"class_weights": "balanced"}, "loss=squared cannot be used with class_weights"),
        ("squared", {}, {"subgroup": "x0"}, "loss=squared cannot be used with subgroup"),
        ("squared", {}, {"model": "logreg"}, "choose linear, mlp"),
        ("squared", {}, {"model": "svm"}, "choose linear, mlp"),
        ("squared", {}, {"clip": 1.0, "noise": 1.0}, "loss=squared cannot be used with clip"),
        ("cross_entropy", {}, {"model": "linear"}, "set loss=squared, loss=poisson or loss=cox"),
    ],
)
def test_what_is_no_number_count_or_time(loss, change, more, says, nodes):
    spoilt = {k: rows.assign(**change) for k, rows in nodes.items()}
    if change == {"count": 1.5}:  # of one row alone
        spoilt = {k: rows.assign(count=rows["count"] + 0.5 * (np.arange(len(rows)) == 0)) for k, rows in nodes.items()}
    values = {**settings(loss), **more} if loss in SETTINGS else {"label": "event", "features": FEATURES, **more}
    with pytest.raises((SafeError, CollectResultsError, UserInputError)) as caught:
        train("v6_fedavg", spoilt, rounds=1, **values)
    assert says in str(caught.value) and "\n" not in str(caught.value)


def test_a_quantity_as_a_class_is_refused_with_the_cure(nodes):
    refused("loss=squared of other methods", nodes, label="number", features=FEATURES)


def test_no_hospital_has_an_event(nodes):
    """Nothing is learned, and nothing is measured."""
    result = train("v6_fedavg", {k: rows.assign(event=0) for k, rows in nodes.items()}, **settings("cox"), rounds=2)
    assert not codec.decode(result["weights"])["weights"].any()
    assert result["history"][-1]["train_loss"] == 0


# ---- masks and limits

CAREFUL = {"V6_FEDERATED_PROFILE": "careful"}


@pytest.mark.parametrize("loss", SETTINGS)
def test_sums_under_masks_are_those_without(loss, nodes):
    own = settings(loss, holdout=0.3, preprocess=["standardize"], rounds=4, lr=0.3)
    plain, masked = (train("v6_fedavg", nodes, **own, aggregation=mode) for mode in ("plain", "masked"))
    weights = [codec.decode(result["weights"])["weights"] for result in (plain, masked)]
    np.testing.assert_allclose(weights[1], weights[0], atol=1e-6)
    for name, value in plain["final"].items():
        assert masked["final"][name] == (pytest.approx(value, rel=1e-5) if isinstance(value, float) else value)


@pytest.mark.parametrize("loss", SETTINGS)
def test_careful_nodes_train_and_measure(loss, nodes):
    larger = {k: pd.concat([rows, rows.assign(x0=rows["x0"] + 0.1)], ignore_index=True) for k, rows in nodes.items()}
    own = settings(loss, holdout=0.3, preprocess=["standardize"], rounds=6, lr=0.3)
    result = train("v6_fedavg", larger, **own, environment=CAREFUL)
    assert result["privacy"]["aggregation"] == "masked"
    assert result["final"]["c_index" if loss == "cox" else "r2"] is not None


def test_careful_nodes_refuse_steps_about_few_rows(nodes):
    larger = {k: pd.concat([rows] * 2, ignore_index=True) for k, rows in nodes.items()}
    plain = {**CAREFUL, "V6_FEDERATED_AGGREGATION": "plain"}
    few = {k: rows.assign(event=(np.arange(len(rows)) < 3).astype(int)) for k, rows in larger.items()}
    refused("rows of this node have the event", few, **settings("cox"), environment=plain)
    refused("rows of a minibatch have the event", larger, **settings("cox", batch_size=10), environment=plain)
    far = {k: rows.assign(x0=np.where(np.arange(len(rows)) == 0, 40, rows["x0"])) for k, rows in larger.items()}
    stopped = train("v6_fedavg", far, **settings("poisson", lr=0.3), rounds=3, environment=plain, stops=True)
    assert "the sums would be about fewer than 5 rows" in stopped["stopped"]
    assert "--preprocess standardize), lower lr, or leave this organization out" in stopped["stopped"]
    rare = {k: rows.assign(count=(np.arange(len(rows)) < 2).astype(int)) for k, rows in larger.items()}
    refused("in the column count, fewer than", rare, **settings("poisson"), environment=plain)


@pytest.mark.parametrize("seed", range(3))
def test_no_loss_is_below_0(seed):
    """Of the last row at risk, log(exp(eta)) - eta is 0, and -6e-17 with rounding, which central would refuse."""
    rng = np.random.default_rng(seed)
    y = np.array([*-np.arange(1.0, 40), 50])  # all are censored but the last
    for _ in range(200):
        losses, _ = outcomes.Time().losses_and_slopes(rng.normal(scale=0.3, size=len(y)), y)
        assert losses.min() == 0
    counts = rng.integers(0, 50, 10_000).astype(float)
    assert outcomes.Count().losses(counts * (1 + rng.normal(scale=1e-15, size=len(counts))), counts).min() == 0
