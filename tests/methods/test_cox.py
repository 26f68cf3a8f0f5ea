"""Proportional hazards against statsmodels on the pooled rows, and by hand."""

import warnings

import helpers
import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from helpers import OPEN, crafted, missing, train
from scipy import optimize, stats
from vantage6.algorithm.tools.exceptions import CollectResultsError, UserInputError

from v6_cox import likelihood
from v6_federated.base.errors import SafeError
from v6_federated.central import checkpoint
from v6_federated.data import times
from v6_federated.data.source import Source
from v6_federated.messages import codec
from v6_workbench.conformance import MethodCase, conformance_tests
from v6_workbench.conformance.interruptions import lost_and_started_again
from v6_workbench.conformance.jobs import difference
from v6_workbench.reporting import diagnostics, pictures, prediction, tables
from v6_workbench.simulation.call_outcomes import CallOutcome
from v6_workbench.simulation.mock import MockNetwork, StudyPlan

CUTS = (0, 40, 160, 230, 400)  # four hospitals of unequal sizes
N = CUTS[-1]
HOSPITAL = np.repeat(range(4), np.diff(CUTS))


def of_one_stratum(rows):
    """Newton's method with statsmodels' derivatives on all rows, which all have the event; then a 0."""
    model, beta = sm.PHReg(rows.y, rows.X.astype(np.float64), ties="efron"), np.zeros(rows.X.shape[1])
    for _ in range(rows.rounds):
        beta = beta - np.linalg.solve(model.hessian(beta), model.score(beta))
    return np.append(beta, 0.0)


BINS = 3


def ends_of(time, event, step=3):
    """Bins as central chooses them, from one hospital's counts, which are multiples of the step."""
    counts, _ = times.upto(time, event, None, step)
    (end,) = times.quantiles(counts, times.cells(None), np.ones(1))
    return times.quantiles(times.upto(time, event, end, step)[0], times.cells(end), np.arange(1, BINS) / BINS)


def of_one_baseline(rows):
    """Newton's method for coefficients under hazards of three bins, which each step predicts; then a 0."""
    X, t = rows.X.astype(np.float64), rows.y.astype(np.float64)[:, None]
    ends = np.array(ends_of(t[:, 0], np.ones(len(t))))
    begins, last = np.append(0, ends), np.append(ends, np.inf)
    spent, died = np.clip(t - begins, 0, last - begins), ((begins < t) & (t <= last)).sum(axis=0)
    beta, hazard = np.zeros(X.shape[1]), died / spent.sum(axis=0)
    for _ in range(rows.rounds - 1):
        at_risk = spent * np.exp(X @ beta)[:, None]
        means = at_risk.T @ X / at_risk.sum(axis=0)[:, None]
        g = X.sum(axis=0) - died @ means
        expected = hazard * at_risk.sum(axis=0)
        step = np.linalg.solve(X.T @ ((at_risk @ hazard)[:, None] * X) - means.T @ (expected[:, None] * means), g)
        hazard = died / at_risk.sum(axis=0) * np.exp(-means @ step)
        beta = beta + step
    return np.append(beta, 0.0)


NOTHING_HELD_OUT = "it holds no rows out and evaluates none, see the page"
test_conformance = conformance_tests(
    MethodCase(
        "cox",
        centralized=of_one_stratum,
        exceptions={
            "rows_held_out_are_not_trained_on": NOTHING_HELD_OUT,
            "as_many_rounds_as_a_node_allows": NOTHING_HELD_OUT,
            "preprocessing_comes_first": NOTHING_HELD_OUT,
        },
    ),
    MethodCase(
        "cox",
        name="one baseline",
        settings={"strata": "none", "bins": BINS},
        centralized=of_one_baseline,
        exceptions={
            "rows_held_out_are_not_trained_on": NOTHING_HELD_OUT,
            "as_many_rounds_as_a_node_allows": NOTHING_HELD_OUT,
            "preprocessing_comes_first": NOTHING_HELD_OUT,
        },
    ),
)


def patients(n=N, seed=1):
    """Patients whose columns' sizes differ by orders of magnitude, with tied times and censoring."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"age": rng.normal(60, 10, n), "year": rng.integers(2000, 2020, n) * 1.0})
    X["dose"], X["ill"] = rng.exponential(1e-3, n), rng.integers(0, 2, n) * 1.0
    eta = 0.03 * (X.age - 60) + 0.02 * (X.year - 2010) + 200 * (X.dose - 1e-3) + 0.5 * X.ill
    event, censored = rng.exponential(10 * np.exp(-eta)), rng.exponential(12, n)
    return X.assign(dead=(event <= censored) * 1, months=np.ceil(2 * np.minimum(event, censored)) / 2)


def dealt(rows):
    """The rows at four hospitals."""
    return {k: rows.iloc[a:b].reset_index(drop=True) for k, a, b in zip((2, 3, 5, 9), CUTS, CUTS[1:], strict=False)}


def fit(rows, **settings):
    """The result of a job; rows may be those of single hospitals."""
    nodes = rows if isinstance(rows, dict) else dealt(rows)
    return train("v6_cox", nodes, **{"label": "months", "event": "dead", **settings})


def theirs(rows, ties="efron", strata=HOSPITAL):
    """statsmodels' fit to the pooled rows, on standardised columns; its coefficients and errors."""
    X = rows.drop(columns=["months", "dead"]).astype(float)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = sm.PHReg(rows.months, (X - X.mean()) / X.std(), status=rows.dead, ties=ties, strata=strata)
        fitted = model.fit(disp=0, gtol=1e-12)
    return fitted, fitted.params / X.std().to_numpy(), fitted.bse / X.std().to_numpy()


def column(result, name):
    return np.array([row[name] for row in result["coefficients"]], dtype=float)


@pytest.mark.parametrize("aggregation", ["plain", "masked"])
@pytest.mark.parametrize("ties", ["efron", "breslow"])
def test_coefficients_and_errors_equal_statsmodels(ties, aggregation):
    rows = patients()
    result = fit(rows, ties=ties, aggregation=aggregation)
    fitted, estimates, errors = theirs(rows, ties)
    assert result["converged"] and len(result["history"]) <= 7
    assert [row["name"] for row in result["coefficients"]] == ["age", "year", "dose", "ill"]
    np.testing.assert_allclose(column(result, "estimate"), estimates, rtol=1e-8)
    np.testing.assert_allclose(column(result, "std_error"), errors, rtol=1e-8)
    np.testing.assert_allclose(column(result, "p"), 2 * stats.norm.sf(np.abs(estimates / errors)), rtol=1e-6)
    np.testing.assert_allclose(column(result, "hazard_ratio"), np.exp(estimates), rtol=1e-8)
    upper = np.exp(estimates + stats.norm.ppf(0.975) * errors)
    np.testing.assert_allclose(column(result, "hazard_ratio_upper"), upper, rtol=1e-8)
    assert result["log_likelihood"] == pytest.approx(fitted.llf, rel=1e-10)
    null = fitted.model.loglike(np.zeros(4))
    assert result["null_log_likelihood"] == pytest.approx(null, rel=1e-10)
    test = result["likelihood_ratio_test"]
    assert test["p"] == pytest.approx(stats.chi2(4).sf(2 * (fitted.llf - null)), rel=1e-6) and test["df"] == 4
    assert result["wald_test"]["statistic"] == pytest.approx(
        fitted.params @ np.linalg.solve(fitted.cov_params(), fitted.params), rel=1e-7
    )
    assert result["aic"] == pytest.approx(2 * 4 - 2 * fitted.llf)
    assert (result["n"], result["events"]) == (N, rows.dead.sum())


def test_gradient_and_hessian_of_a_hospital_equal_statsmodels():
    """Each of them, not only the fit, and at coefficients that are not the best ones."""
    rows = patients(80)
    X, beta = rows[["age", "ill"]].to_numpy(), np.array([0.02, -0.7])
    for ties in ("efron", "breslow"):
        model = sm.PHReg(rows.months, X, status=rows.dead, ties=ties)
        found = likelihood.of_stratum(X, rows.months.to_numpy(), rows.dead.to_numpy(float), beta, ties)
        np.testing.assert_allclose(found["gradient"], model.score(beta), rtol=1e-9)
        np.testing.assert_allclose(found["hessian"], -model.hessian(beta), rtol=1e-9)
        assert found["log_likelihood"] == pytest.approx(model.loglike(beta), rel=1e-12)
        assert found["working"].sum() == pytest.approx(rows.dead.sum())


def test_a_round_by_hand():
    """Efron's likelihood of five patients at coefficient 0: three at risk at time 2, of whom two die."""
    x = np.array([[4.0], [1.0], [3.0], [2.0], [7.0]])
    time, event = np.array([1.0, 2, 2, 1, 3]), np.array([0.0, 1, 1, 1, 0])
    found = likelihood.of_stratum(x, time, event, np.zeros(1), "efron")
    first, second, third = x.mean(), (1 + 3 + 7) / 3, ((1 + 3) / 2 + 7) / 2
    assert found["gradient"][0] == pytest.approx((2 - first) + (1 - second) + (3 - third))
    spread = (16 + 1 + 9 + 4 + 49) / 5 - first**2 + (1 + 9 + 49) / 3 - second**2 + ((1 + 9) / 2 + 49) / 2 - third**2
    assert found["hessian"][0, 0] == pytest.approx(spread)
    assert found["log_likelihood"] == pytest.approx(-np.log(5 * 3 * 2))


def test_rounds_by_hand():
    rows = patients()[["age", "ill", "dead", "months"]]
    beta, likelihoods = np.zeros(2), []
    for _ in range(3):
        g, H, total = np.zeros(2), np.zeros((2, 2)), 0.0
        for hospital in range(4):
            own = rows[hospital == HOSPITAL]
            for _, died in own[own.dead == 1].iterrows():
                at_risk = own[own.months >= died.months]
                X = at_risk[["age", "ill"]].to_numpy()
                w = np.exp(X @ beta)
                mean = w @ X / w.sum()
                g += died[["age", "ill"]].to_numpy(float) - mean
                H += X.T @ (w[:, None] * X) / w.sum() - np.outer(mean, mean)
                total += float(died[["age", "ill"]].to_numpy(float) @ beta) - np.log(w.sum())
        likelihoods.append(total)
        beta = beta + np.linalg.solve(H, g)
    result = fit(rows, ties="breslow", rounds=3)
    np.testing.assert_allclose([row["log_likelihood"] for row in result["history"]], likelihoods, rtol=1e-12)
    np.testing.assert_allclose(column(result, "estimate"), beta, rtol=1e-9)


def test_without_a_column_of_events_all_times_are_events():
    rows = patients()
    without = fit(rows.drop(columns="dead"), event=None)
    _, estimates, _ = theirs(rows.assign(dead=1))
    np.testing.assert_allclose(column(without, "estimate"), estimates, rtol=1e-8)
    assert without["events"] == without["n"]


@pytest.mark.parametrize("steps", [["standardize"], ["onehot:sex,drop=first", "standardize", "pca:5"]], ids=len)
def test_coefficients_are_those_of_the_table_s_columns(steps):
    rows = patients()
    sex = np.where(np.arange(N) % 3 == 0, "f", "m")
    coded = rows
    if len(steps) > 1:
        coded = rows.assign(**{"sex=m": (sex == "m") * 1.0})
        rows = rows.assign(sex=sex)
    result = fit(rows, preprocess=steps)
    _, estimates, errors = theirs(coded)
    found = {row["name"]: row for row in result["coefficients"]}
    names = [*coded.columns.drop(["months", "dead"])]
    np.testing.assert_allclose([found[name]["estimate"] for name in names], estimates, rtol=1e-5)
    np.testing.assert_allclose([found[name]["std_error"] for name in names], errors, rtol=1e-5)


def pairs_by_hand(time, event, eta):
    """Comparable and concordant pairs of rows, one by one."""
    pairs = concordant = 0.0
    for i in np.flatnonzero(event):
        for j in range(len(time)):
            if time[j] > time[i] or (time[j] == time[i] and not event[j]):
                pairs += 1
                concordant += 1.0 if eta[i] > eta[j] else 0.5 if eta[i] == eta[j] else 0.0
    return pairs, concordant


def test_concordance_counts_pairs_of_one_hospital():
    rng = np.random.default_rng(3)
    for n in (1, 2, 60):
        time, event, eta = rng.integers(1, 9, n), rng.integers(0, 2, n), rng.integers(0, 6, n) / 2
        assert times.concordance(time, event, eta) == pairs_by_hand(time, event, eta)
    rows = patients()
    result = fit(rows)
    eta = rows[["age", "year", "dose", "ill"]].to_numpy() @ column(result, "estimate")
    counted = [
        pairs_by_hand(rows.months[own].to_numpy(), rows.dead[own].to_numpy(), eta[own])
        for own in (hospital == HOSPITAL for hospital in range(4))
    ]
    pairs, concordant = np.sum(counted, axis=0)
    assert result["concordance"] == pytest.approx(concordant / pairs, abs=1e-4)


def test_a_step_that_is_too_long_is_halved():
    """One row with a huge value: the first step, of a quadratic at 0, goes too far."""
    rng = np.random.default_rng(0)
    x = np.where(np.arange(N) % 40 == 0, 60.0, rng.normal(size=N))
    months = np.where(x == 60, 0.01, 1.0) * rng.exponential(1, N)
    rows = pd.DataFrame({"x": x, "dead": 1, "months": months})
    result = fit(rows)
    likelihoods = [row["log_likelihood"] for row in result["history"]]
    assert result["converged"] and np.diff(likelihoods).min() < -1  # some step was too long

    def minus(beta):
        parts = [rows[hospital == HOSPITAL] for hospital in range(4)]
        arrays = [(r[["x"]].to_numpy(), r.months.to_numpy(), r.dead.to_numpy(float)) for r in parts]
        return -sum(likelihood.of_stratum(*a, np.array([beta]), "efron")["log_likelihood"] for a in arrays)

    best = optimize.minimize_scalar(minus, bounds=(0, 3), method="bounded", options={"xatol": 1e-10})
    assert column(result, "estimate")[0] == pytest.approx(best.x, rel=1e-6)


def test_predictions_are_log_hazard_ratios():
    rows = patients()
    result = fit(rows, preprocess=["standardize"])
    table, _ = prediction.predict(result, Source(table=rows))
    X = rows[["age", "year", "dose", "ill"]].to_numpy()
    expected = (X - X.mean(axis=0)) @ column(result, "estimate")
    np.testing.assert_allclose(table["prediction"], expected, atol=1e-4)


def stopped(nodes, **settings):
    """Why a job ends without coefficients."""
    environment = {**OPEN, **settings.pop("environment", {})}
    with MockNetwork("v6_cox", nodes, environment=environment, on_round=lambda row: None) as network:
        try:
            return network.run(**{"label": "months", "event": "dead", **settings})["stopped"]
        except (CollectResultsError, UserInputError, SafeError) as error:
            return str(error)


REFUSED = {
    "no events": ({"dead": lambda r: 0}, {}, "no row has the event"),
    "other events": ({"dead": lambda r: 2 * r.dead}, {}, "the column of events holds other numbers than 0 and 1"),
    "missing events": ({"dead": lambda r: r.dead.where(r.dead == 1)}, {}, "missing values in the column(s) dead"),
    "the label as event": ({}, {"event": "months"}, "months cannot be an offset, weights, event or time"),
    "a copy": ({"twice": lambda r: 2 * r.age}, {}, "the column twice follows from age"),
    "of the hospital": ({"beds": lambda r: HOSPITAL * 100.0}, {}, "the column beds has one value at each hospital"),
    "a level without events": (
        {"cured": lambda r: 1.0 - r.dead},
        {},
        "the column(s) cured predict with certainty who has the event first",
    ),
    "one round": ({}, {"rounds": 1}, "rounds=1 are too few"),
    "bins of strata": ({}, {"bins": 10}, "bins=10 needs strata=none"),
    "ties in bins": ({}, {"strata": "none", "ties": "breslow"}, "ties=breslow needs strata=hospital"),
    "bins and their ends": ({}, {"strata": "none", "bins": 9, "grid": [1]}, "bins=9 cannot be used with grid"),
    "ends that fall": ({}, {"strata": "none", "grid": [3, 2]}, "the ends of bins do not increase"),
    "times below 0": ({"months": lambda r: r.months - 1}, {"strata": "none"}, "the label holds times below 0"),
    "no time": ({"months": lambda r: 0 * r.months}, {"strata": "none", "grid": [1]}, "the label is 0 in all rows"),
    "too few to choose": ({"dead": lambda r: 1 * (r.index < 2)}, {"strata": "none"}, "too few rows with the event"),
    "a constant": ({"one": lambda r: 2e5}, {"strata": "none"}, "the column one has one value at all hospitals"),
    "a copy in bins": ({"twice": lambda r: 2 * r.age}, {"strata": "none"}, "the column twice follows from age"),
    "another end": ({}, {"until_converged": 0.01}, "until_converged has no effect on cox"),
    "rows to evaluate": ({}, {"holdout": 0.2}, "holdout"),
    "evaluators": ({}, {"evaluators": [9]}, "evaluators has no effect on cox"),
    "subgroups": ({}, {"subgroup": "ill"}, "subgroup has no effect on cox, which evaluates no model; leave it out"),
    "words": ({"sex": lambda r: "f"}, {}, "sex"),
}


@pytest.mark.parametrize("changed, settings, said", REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_fitted_is_named(changed, settings, said):
    problem = stopped(dealt(patients().assign(**changed)), **settings)
    assert said in problem and "\n" not in problem and "l2" not in problem  # which cox does not have


CAREFUL = {"V6_FEDERATED_PROFILE": "careful", "V6_FEDERATED_AGGREGATION": "plain"}


def test_few_events_are_refused_by_careful_hospitals():
    rows = patients()
    rows.loc[np.flatnonzero(HOSPITAL == 0)[4:], "dead"] = 0
    assert "fewer than 5 rows of this node have the event" in stopped(dealt(rows), environment=CAREFUL)


OF_COX = {
    "participants": [2, 3, 5, 9],
    "model": {"name": "cox", "features": 2, "classes": 1},
    "precision": "float64",
    "data": {
        **{"label": "months", "features": ["age", "ill"], "event": "dead", "classes": None, "holdout": 0.0},
        **{"preprocess": [], "regression": True},
    },
}


@pytest.mark.parametrize("profile", ["trusting", "careful"])
def test_a_row_that_outweighs_all_others_is_refused_by_careful_hospitals(profile):
    """With coefficients of choice the row with the largest value, while it is at risk, is the mean of all at risk."""
    arrays = codec.encode({"weights": np.array([50.0, 0.0, 0.0])}, "float64")
    environment = {**OPEN, **(CAREFUL if profile == "careful" else {})}
    status, log = crafted(
        dealt(patients()), "newton", OF_COX, "v6_cox", environment=environment, arrays=arrays, ties="efron"
    )
    assert (status == "completed") == (profile == "trusting"), log
    assert profile == "trusting" or ("about fewer than 5 rows" in log and "leave out columns, or leave this" in log)


# ---- one baseline hazard, on bins of time


def split_rows(rows, ends):
    """A row for each patient and bin of time in which the patient is at risk: time there, and whether the event is."""
    begins, last = np.array([0.0, *ends]), np.array([*ends, np.inf])
    t, dead = rows.months.to_numpy()[:, None], rows.dead.to_numpy()[:, None]
    spent, died = np.clip(t - begins, 0, last - begins), (begins < t) & (t <= last) & (dead == 1)
    i, b = np.nonzero(spent > 0)
    X = rows.drop(columns=["months", "dead"]).to_numpy(float)[i]
    return X, b, spent[i, b], died[i, b] * 1.0


@pytest.mark.parametrize("aggregation", ["plain", "masked"])
def test_without_strata_the_model_is_a_poisson_one_on_split_rows(aggregation, tmp_path):
    rows, ends = patients(), [1.0, 2.5, 4, 8]
    result = fit(rows, strata="none", grid=ends, aggregation=aggregation)
    X, b, time, died = split_rows(rows, ends)
    Z = np.column_stack([(X - X.mean(axis=0)) / X.std(axis=0), np.eye(len(ends) + 1)[b]])
    fitted = sm.GLM(died, Z, sm.families.Poisson(), offset=np.log(time)).fit(tol=1e-12)
    assert result["converged"] and len(result["history"]) <= 8
    np.testing.assert_allclose(column(result, "estimate"), fitted.params[:4] / X.std(axis=0), rtol=1e-8)
    errors = np.sqrt(np.diag(np.linalg.inv(Z.T @ (fitted.mu[:, None] * Z))))[:4]  # theirs lack the last step
    np.testing.assert_allclose(errors, fitted.bse[:4], rtol=1e-6)
    np.testing.assert_allclose(column(result, "std_error"), errors / X.std(axis=0), rtol=1e-8)
    assert result["log_likelihood"] == pytest.approx(fitted.llf - died @ np.log(time), rel=1e-10)
    baseline, at = result["baseline"], column(result, "estimate")
    zero = np.exp(fitted.params[4:] - fitted.params[:4] @ (X.mean(axis=0) / X.std(axis=0)))
    np.testing.assert_allclose(np.array(baseline["hazard"]) * np.exp(-baseline["prediction"]), zero, rtol=1e-8)
    mean = time @ X / time.sum()
    assert baseline["prediction"] == pytest.approx(mean @ at)
    survival = np.exp(-np.cumsum(np.array(baseline["hazard"][:-1]) * np.diff([0, *ends])))
    np.testing.assert_allclose(baseline["survival"], survival)
    assert baseline["events"] == np.bincount(b, died).tolist() and baseline["ends"] == [*ends, None]
    picture = tmp_path / "baseline.png"
    assert pictures.write(pictures.baseline(result), picture) and picture.stat().st_size > 5000
    assert pictures.baseline({**result, "baseline": None}) is None


def test_rounds_on_bins_by_hand():
    """Newton's method for the logarithms of the hazards and the coefficients together, on sums over all rows."""
    rows, ends = patients()[["age", "ill", "dead", "months"]], [2.0, 6.0]
    X, b, time, died = split_rows(rows, ends)
    Z, here = np.column_stack([X, np.eye(3)[b]]), np.zeros(5)
    here[2:] = np.log(np.bincount(b, died) / np.bincount(b, time))  # what the first round tells
    likelihoods = []
    for _ in range(3):
        mu = time * np.exp(Z @ here)
        beta = here[:2]
        exposed = np.bincount(b, time * np.exp(X @ beta))
        best = np.log(np.bincount(b, died) / exposed)  # central knows the best hazards at these coefficients
        likelihoods.append(died @ (X @ beta + best[b]) - died.sum())
        here = here + np.linalg.solve(Z.T @ (mu[:, None] * Z), Z.T @ (died - mu))
    result = fit(rows, strata=None, grid=ends, rounds=4)  # as --set strata=none is read
    assert result["strata"] == "none"
    found = [row["log_likelihood"] for row in result["history"]]
    np.testing.assert_allclose(found[1:3], likelihoods[:2], rtol=1e-9)
    assert found[0] == pytest.approx(found[1], rel=1e-12)
    np.testing.assert_allclose(found[3], likelihoods[2], rtol=1e-6)


def without_ties(n, seed):
    """Patients whose hazard rises with time; all times differ."""
    rng = np.random.default_rng(seed)
    rows = patients(n, seed)
    eta = 0.03 * (rows.age - 60) + 0.02 * (rows.year - 2010) + 200 * (rows.dose - 1e-3) + 0.5 * rows.ill
    event, censored = 10 * rng.weibull(1.5, n) * np.exp(-eta / 1.5), rng.exponential(12, n)
    return rows.assign(dead=(event <= censored) * 1, months=np.minimum(event, censored))


@pytest.mark.parametrize(
    "bins, profile, least, most",
    [(5, "trusting", 0.2, 0.5), (50, "trusting", 0.0, 0.1), (50, "careful", 0.0, 0.15)],
)
def test_coefficients_come_near_those_of_cox_with_more_bins(bins, profile, least, most):
    """Errors are in standard errors of Cox's model with one stratum, with Efron's ties, on the pooled rows."""
    rows = without_ties(1500, 2)
    nodes = {k: rows[k::4].reset_index(drop=True) for k in range(4)}
    nodes = {k + 2: table for k, table in nodes.items()}
    result = fit(nodes, strata="none", bins=bins, environment={"V6_FEDERATED_PROFILE": profile})
    _, estimates, errors = theirs(rows, strata=None)
    off = np.abs((column(result, "estimate") - estimates) / errors).max()
    assert least <= off <= most
    np.testing.assert_allclose(column(result, "std_error"), errors, rtol=0.01)
    assert len(result["baseline"]["ends"]) <= bins and sum(result["baseline"]["events"]) == pytest.approx(
        rows.dead.sum()
    )


@pytest.mark.parametrize(
    "weights, hazard",
    [
        ([5.0, 0.0, 0.0], [0.1, 0.1, 0.1]),  # the oldest patient weighs all
        ([0.0, 0.0, 0.0], [0.0, 0.0, 1e6]),  # fine: a hazard of choice selects bins with many rows
    ],
    ids=["steep", "one bin"],
)
def test_bins_about_few_rows_are_refused_by_careful_hospitals(weights, hazard):
    bins = codec.encode({"ends": np.array([2.0, 4.0]), "hazard": np.array(hazard)}, "float64")
    arrays = codec.encode({"weights": np.array(weights), "center": np.array([60.0, 0, 0])}, "float64")
    environment = {**OPEN, **CAREFUL}
    tables = dealt(patients())
    asked = {"environment": environment, "arrays": arrays, "bins": bins, "even": True}
    status, log = crafted(tables, "newton_on_grid", OF_COX, "v6_cox", **asked)
    assert (status == "completed") == (weights[0] == 0), log
    assert weights[0] == 0 or "about fewer than 5 rows" in log


# ---- nodes that are missing in some rounds


def with_gaps(nodes, outcomes, study=None, **settings):
    """The same as of ``helpers``, for these patients."""
    return helpers.with_gaps("v6_cox", nodes, outcomes, study, **{"label": "months", "event": "dead", **settings})


FOR_EVER, LATE = range(2, 99), range(3, 99)
GAPS = {  # rounds that organization 3 misses, and whether it is back
    "round 1": ([1], True),
    "round 2": ([2], True),
    "round 3": ([3], True),
    "rounds 1 and 3": ([1, 3], True),
    "rounds 2 to 4": ([2, 3, 4], True),
    "from round 2 on": (FOR_EVER, False),
    "from round 3 on": (LATE, False),
}
TESTS = ("likelihood_ratio_test", "score_test", "wald_test")


@pytest.mark.parametrize("rounds, back", GAPS.values(), ids=GAPS)
def test_a_node_that_misses_rounds_leaves_the_fit_of_those_that_are_there(rounds, back):
    """Tests compare with coefficients 0 on the same rows, which are asked for once more in the end if need be."""
    rows = patients()
    result = with_gaps(dealt(rows), missing(rounds))
    some, strata = (rows, HOSPITAL) if back else (rows[HOSPITAL != 1], HOSPITAL[HOSPITAL != 1])
    fitted, estimates, errors = theirs(some, strata=strata)
    assert result["converged"] and len(result["history"]) <= 14 and "left_out" not in result
    np.testing.assert_allclose(column(result, "estimate"), estimates, rtol=1e-7)
    np.testing.assert_allclose(column(result, "std_error"), errors, rtol=1e-7)
    null, g = fitted.model.loglike(np.zeros(4)), fitted.model.score(np.zeros(4))
    assert result["log_likelihood"] == pytest.approx(fitted.llf, rel=1e-10)
    assert result["null_log_likelihood"] == pytest.approx(null, rel=1e-10)
    expected = [
        2 * (fitted.llf - null),
        g @ np.linalg.solve(-fitted.model.hessian(np.zeros(4)), g),
        fitted.params @ np.linalg.solve(fitted.cov_params(), fitted.params),
    ]
    assert [result[name]["statistic"] for name in TESTS] == pytest.approx(expected, rel=1e-6)
    assert (result["n"], result["events"]) == (len(some), some.dead.sum())
    assert result["fitted_on"] == ([2, 3, 5, 9] if back else [2, 5, 9])
    said = [line for line in diagnostics.warnings_about(result) if "the coefficients are not those of all rows" in line]
    assert [line.partition(": ")[2][:14] for line in said] == ([] if back else ["3 took no part"])


@pytest.mark.parametrize("rounds, back", GAPS.values(), ids=GAPS)
def test_on_bins_the_hazards_are_those_of_the_nodes_that_are_there(rounds, back):
    """The result is that of a job which these nodes run alone, in all parts."""
    nodes, settings = dealt(patients()), {"strata": "none", "grid": [1.0, 2.5, 4, 8]}
    result = with_gaps(nodes, missing(rounds), **settings)
    alone = fit(nodes if back else {k: nodes[k] for k in (2, 5, 9)}, **settings)
    assert result["converged"] and len(result["history"]) <= 18 and "left_out" not in result
    for name in ("estimate", "std_error"):
        np.testing.assert_allclose(column(result, name), column(alone, name), rtol=1e-7)
    for name in ("log_likelihood", "null_log_likelihood", "aic", "n", "events", "concordance", "fitted_on"):
        assert result[name] == pytest.approx(alone[name], rel=1e-8), name
    for name in TESTS:
        assert result[name]["statistic"] == pytest.approx(alone[name]["statistic"], rel=1e-6), name
    for name in ("hazard", "survival", "prediction", "events"):
        np.testing.assert_allclose(result["baseline"][name], alone["baseline"][name], rtol=1e-7, err_msg=name)


def test_without_missing_nodes_a_tolerant_job_has_the_same_bits():
    nodes = dealt(patients())
    for settings in ({}, {"strata": "none", "grid": [2.0, 6.0]}):
        strict, tolerant = fit(nodes, **settings), with_gaps(nodes, None, **settings)
        for part in ("weights", "state", "coefficients", "score_test", "likelihood_ratio_test"):
            assert strict[part] == tolerant[part]


@pytest.mark.parametrize("strata", ["hospital", "none"])
@pytest.mark.parametrize("who", [(2,), (2, 5, 9)], ids=["one", "too many"])
def test_tests_are_left_out_if_the_same_rows_do_not_answer_for_coefficients_0(strata, who):
    """Organization 3 is gone from round 3 on; others are gone, too, once the coefficients have converged."""
    nodes, grid = dealt(patients()), {"grid": [1.0, 2.5, 4, 8]} if strata == "none" else {}
    settings = {"strata": strata, **grid}
    whole = with_gaps(nodes, missing(LATE), **settings)
    extra = 2 if strata == "none" else 1
    fitted = len(whole["history"]) - extra

    def outcomes(k, input_):
        at = missing(LATE), missing(range(fitted + 1, 99), who)
        return next((found for one in at if (found := one(k, input_)).status == "failed"), CallOutcome())

    result = with_gaps(nodes, outcomes, **settings)
    assert result["converged"] and result["coefficients"] == whole["coefficients"]
    for name in ("n", "events", "log_likelihood", "aic", "wald_test", "fitted_on", "concordance"):
        assert result[name] == whole[name]
    assert result["null_log_likelihood"] is result["likelihood_ratio_test"] is result["score_test"] is None
    assert result["left_out"].endswith("no later round brought the sums of the same rows for tests")
    assert any(result["left_out"] in line for line in diagnostics.warnings_about(result))
    assert "likelihood-ratio" in tables.fit_of(whole) and "likelihood-ratio" not in tables.fit_of(result)
    assert len(result["history"]) == fitted + (len(who) == 1)
    # when they are back, a job that resumes it asks for the rest only
    again = {**settings, "rounds": 50, "resume": result}
    resumed = with_gaps(nodes, missing(range(99)), **again)
    assert "left_out" not in resumed and resumed["coefficients"] == whole["coefficients"]
    for name in TESTS:
        assert resumed[name] == pytest.approx(whole[name])


def test_a_score_test_is_left_out_if_only_the_likelihood_is_known():
    """On bins, coefficients 0 need two rounds: the first tells the hazards."""
    nodes, settings = dealt(patients()), {"strata": "none", "grid": [1.0, 2.5, 4, 8]}
    whole = with_gaps(nodes, missing(LATE), **settings)
    result = with_gaps(nodes, missing(LATE), **settings, rounds=len(whole["history"]) - 1)
    assert result["likelihood_ratio_test"] == whole["likelihood_ratio_test"]
    assert result["score_test"] is None and "left_out" in result


def test_rounds_that_are_used_up_leave_tests_out():
    result = with_gaps(dealt(patients()), missing([1]), rounds=2)
    assert not result["converged"] and result["likelihood_ratio_test"] is None and result["fitted_on"] == [2, 3, 5, 9]
    assert result["n"] == N and result["log_likelihood"] == result["history"][-1]["log_likelihood"]


def test_on_bins_a_round_of_other_rows_brings_a_step_and_no_errors():
    """The hazards are those of the nodes that answered before."""
    nodes, settings = dealt(patients()), {"strata": "none", "grid": [1.0, 2.5, 4, 8]}
    result = with_gaps(nodes, missing([1]), **settings, rounds=2)
    assert result["fitted_on"] == [2, 3, 5, 9] and result["n"] == N and not result["converged"]
    _, estimates, errors = theirs(patients(), strata=None)
    assert (np.abs(column(result, "estimate") - estimates) < 2 * errors).all()
    assert all(row["std_error"] is row["p"] is None for row in result["coefficients"])
    assert result["wald_test"] is result["score_test"] is None
    assert result["left_out"].endswith("for standard errors and tests")
    null = fit(nodes, **settings)["null_log_likelihood"]
    assert result["null_log_likelihood"] == pytest.approx(null, rel=1e-12)


@pytest.mark.parametrize("rounds", [[2], FOR_EVER], ids=["round 2", "from round 2 on"])
@pytest.mark.parametrize("strata", ["hospital", "none"])
def test_a_block_that_misses_rounds_leaves_the_fit_of_the_others(strata, rounds):
    rows = patients()
    nodes = {k: rows.iloc[50 * (k - 1) : 50 * k].reset_index(drop=True) for k in range(1, 9)}
    settings = {"strata": strata, **({"grid": [1.0, 2.5, 4, 8]} if strata == "none" else {})}
    result = with_gaps(nodes, missing(rounds), StudyPlan(size=4), aggregation="pinned", **settings)
    blocks = result["privacy"]["blocks"]
    assert sorted(map(len, blocks)) == [4, 4]
    there = sorted(k for block in blocks if not (rounds == FOR_EVER and 3 in block) for k in block)
    alone = fit({k: nodes[k] for k in there}, aggregation="plain", **settings)
    assert result["converged"] and result["fitted_on"] == there and result["n"] == 50 * len(there)
    for name in ("estimate", "std_error"):
        np.testing.assert_allclose(column(result, name), column(alone, name), rtol=1e-7)
    for name in TESTS:
        assert result[name]["statistic"] == pytest.approx(alone[name]["statistic"], rel=1e-6), name


def test_columns_that_only_missing_rows_determine_are_named():
    rows = patients()
    rows["mri"] = ((HOSPITAL == 1) & (np.arange(N) % 2 == 0)) * 1
    with MockNetwork(
        "v6_cox", dealt(rows), environment=OPEN, on_round=lambda row: None, outcomes=missing([3])
    ) as network:
        said = network.run(label="months", event="dead", min_responses=0.5, retries=0)["stopped"]
    assert "the column mri has one value at each hospital that answered" in said


@pytest.mark.parametrize("strata", ["hospital", "none"])
def test_a_central_that_is_lost_remembers_which_nodes_its_sums_are_from(strata):
    """Also while it asks for coefficients 0 once more."""
    nodes, gap = dealt(patients()), missing(LATE)
    settings = {"label": "months", "event": "dead", "min_responses": 0.5, "retries": 0, "strata": strata}
    settings |= {"grid": [1.0, 2.5, 4, 8]} if strata == "none" else {}
    whole = with_gaps(nodes, gap, **settings)
    rounds = len(whole["history"])
    for last in (rounds - 3, rounds - 2, rounds - 1):
        again = lost_and_started_again(
            "v6_cox",
            nodes,
            plan=lambda call: gap(call.organization, call.message),
            lost_once_kept=lambda snapshot, last=last: len(snapshot["history"]) == last,
            **settings,
        )
        assert difference({**whole, "traffic": 0}, {**again.result, "traffic": 0}) == ""


@pytest.mark.parametrize("profile", ["trusting", "careful"])
def test_on_bins_in_a_study_two_deals_of_the_same_rows_bring_the_same_fit(profile):
    """Bins were joined by each hospital's own counts: sums told how rows are dealt."""
    rows, found = patients(600, seed=2), []
    for part in (np.random.default_rng(0).integers(0, 4, 600), np.argsort(np.argsort(rows.months)) * 4 // 600):
        tables = {k + 1: rows[part == k].reset_index(drop=True) for k in range(4)}
        own = {"environment": {"V6_FEDERATED_PROFILE": profile}, "study": StudyPlan(), "on_round": lambda row: None}
        with MockNetwork("v6_cox", tables, **own) as network:
            found.append(network.run(label="months", event="dead", strata="none", bins=20, aggregation="pinned"))
    one, other = ({row["name"]: row for row in result["coefficients"]} for result in found)
    for name, row in one.items():
        np.testing.assert_allclose(
            [row["estimate"], row["std_error"]], [other[name]["estimate"], other[name]["std_error"]], rtol=1e-8
        )
    assert found[0]["baseline"]["ends"] == found[1]["baseline"]["ends"]
    np.testing.assert_allclose(found[0]["baseline"]["survival"], found[1]["baseline"]["survival"], rtol=1e-8)
    least = 0 if profile == "trusting" else 5
    assert all(n == 0 or n >= least for n in found[0]["baseline"]["events"])


def heavy(n=160, seed=4):
    """Few late patients, of whom one is alone at risk at last, and of an age that nobody else has."""
    rows = patients(n, seed)
    rows.loc[0, ["months", "dead", "age"]] = 300.0, 1, 99.5
    return rows


def tied(n=240, seed=5):
    """Times in whole years, of which the first ones have no event."""
    rows = patients(n, seed)
    return rows.assign(months=np.ceil(rows.months / 4) * 4, dead=rows.dead * (rows.months > 2))


GRIDS = {
    "the last row at risk": (heavy, {"grid": [5.0, 299.0]}),
    "one time": (heavy, {"grid": [7.25]}),
    "narrow ones": (heavy, {"grid": [float(t) for t in np.arange(0.25, 20, 0.25)]}),
    "no events at first": (tied, {"grid": [0.5, 1.0, 8.0, 400.0]}),
    "many bins": (heavy, {"bins": 100}),
    "many bins and ties": (tied, {"bins": 60}),
}


@pytest.mark.parametrize("made, settings", GRIDS.values(), ids=GRIDS)
def test_no_number_of_a_study_s_result_is_about_few_rows(made, settings):
    """A grid that ended after all times but one wrote this patient's columns as the means of the open bin."""
    rows = made()
    tables = {k + 1: rows.iloc[k::4].reset_index(drop=True) for k in range(4)}
    own = {"environment": {"V6_FEDERATED_PROFILE": "careful"}, "study": StudyPlan(), "on_round": lambda row: None}
    with MockNetwork("v6_cox", tables, **own) as network:
        result = network.run(label="months", event="dead", strata="none", aggregation="pinned", **settings)
    state = checkpoint.from_json(result["state"])
    ends = np.array(state["ends"])
    assert result["baseline"]["ends"] == [*ends, None] and result["converged"]
    months, dead = rows.months.to_numpy(), rows.dead.to_numpy()
    died = np.bincount(np.searchsorted(ends, months), dead, len(ends) + 1)[:-1]
    assert died.min() >= 5 and (months > ends[-1]).sum() >= 10 and result["events"] == died.sum()
    spent = np.clip(months[:, None] - np.append(0, ends[:-1]), 0, np.diff(ends, prepend=0))
    X = rows.drop(columns=["months", "dead"]).to_numpy(float)
    for sums in (state["shared"], state["stepping"]["good"]["shared"], state["stepping"]["first"]["shared"]):
        weights = spent * np.exp((X - sums["center"]) @ np.array(sums["b"]))[:, None]
        at_risk = weights.T @ X / weights.sum(axis=0)[:, None]
        np.testing.assert_allclose(sums["events"], [*died, 0], atol=1e-6)
        np.testing.assert_allclose(np.array(sums["means"])[:-1] + sums["center"], at_risk, rtol=1e-6)
        assert not np.any(sums["means"][-1]) and sums["hazard"][-1] == 0
        assert (weights.sum(axis=0) ** 2 / (weights**2).sum(axis=0)).min() >= 5, "few rows outweigh others in a bin"
    by_bin = {name for name, size in sizes({**result, "state": state}) if size in (len(ends), len(ends) + 1)}
    assert len(ends) < 8 or by_bin == {"ends", "events", "hazard", "means", "survival"}


def sizes(value, name=""):
    """The names and lengths of all lists of numbers, wherever they are."""
    found = {(name, len(value))} if isinstance(value, list) else set()
    parts = value.items() if isinstance(value, dict) else [(name, part) for part in value]
    return found.union(*(sizes(part, inner) for inner, part in parts if isinstance(part, dict | list)))


def test_careful_hospitals_follow_rows_to_the_last_end_of_a_grid_and_count_their_events_only():
    """Single answers were rejected: they counted all events, and summed those in bins."""
    rows = patients()
    settings = {"strata": "none", "grid": [2.0, 6.0], "aggregation": "plain"}
    result = fit(rows, environment={"V6_FEDERATED_PROFILE": "careful", "V6_FEDERATED_AGGREGATION": "plain"}, **settings)
    assert result["events"] == rows.dead[rows.months <= 6].sum() < rows.dead.sum()


def test_a_long_tail_is_not_said_to_be_certain():
    """The first step put nearly all of the hazard on the row with the largest value."""
    rng = np.random.default_rng(3)
    rows = patients(240)[["age", "months", "dead"]].assign(bili=np.exp(1.6 * rng.normal(size=240)))
    rows["months"] = rows.months / (1 + 1.5 * np.minimum(rows.bili, 6))
    nodes = {k + 1: rows.iloc[k::3].reset_index(drop=True) for k in range(3)}
    own = {"label": "months", "event": "dead", "environment": {"V6_FEDERATED_PROFILE": "careful"}}
    result = train("v6_cox", nodes, strata="none", stops=True, **own)
    assert "Often, few rows with extreme values outweigh all others after a step" in result["stopped"]
    for cure in ({"preprocess": ["clip:0.1"], "strata": "none"}, {"strata": "hospital"}):
        assert train("v6_cox", nodes, **own, **cure)["converged"], cure
