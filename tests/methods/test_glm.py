"""Generalised linear models against statsmodels on the pooled rows, and by hand."""

import functools
import warnings
from types import SimpleNamespace

import helpers
import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from helpers import OPEN, crafted, missing, pooled, train
from scipy import stats
from sklearn.linear_model import LogisticRegression
from vantage6.algorithm.tools.exceptions import CollectResultsError, UserInputError

from v6_federated.base.errors import SafeError
from v6_federated.data.source import Rows, Source
from v6_federated.messages import codec
from v6_federated.node.node import Node
from v6_glm.families import Glm, newton_sums
from v6_workbench.conformance import MethodCase, conformance_tests
from v6_workbench.conformance.interruptions import lost_and_started_again
from v6_workbench.conformance.jobs import difference
from v6_workbench.reporting import diagnostics, page, pictures, prediction, spreadsheets, tables
from v6_workbench.simulation import data_checks
from v6_workbench.simulation.datasets import load
from v6_workbench.simulation.experiments import Experiment
from v6_workbench.simulation.mock import MockNetwork, StudyPlan

F, L = sm.families, sm.families.links
CUTS = (0, 25, 160, 230, 400)  # four hospitals of unequal sizes
N = CUTS[-1]


def penalised(rows):
    """scikit-learn's coefficients of logistic regression on all rows; the kit's classes are far apart."""
    fitted = LogisticRegression(C=1 / (rows.settings["l2"] * len(rows.y)), tol=1e-12, max_iter=10_000)
    fitted.fit(rows.X.astype(np.float64), rows.y)
    return np.append(fitted.coef_[0], fitted.intercept_)


def of_gamma(rows):
    """statsmodels' coefficients on all rows: of the columns, then the intercept."""
    D = np.column_stack([rows.X.astype(np.float64), np.ones(len(rows.y))])
    return sm.GLM(rows.y, D, family=F.Gamma(L.Log())).fit(tol=1e-14, tol_criterion="params", maxiter=99).params


test_conformance = conformance_tests(
    MethodCase(
        "glm",
        {"holdout": 0.2, "l2": 0.1},
        most_classes=2,
        centralized=penalised,
        noisy={"rounds": 4, "holdout": 0.0, "l2": 0.0},
    ),
    MethodCase("glm", {"holdout": 0.2, "family": "gamma"}, "gamma", centralized=of_gamma),
)


def dealt(rows):
    """The rows at four hospitals."""
    return {k: rows.iloc[a:b].reset_index(drop=True) for k, a, b in zip((2, 3, 5, 9), CUTS, CUTS[1:], strict=False)}


def columns():
    """Columns whose sizes differ by orders of magnitude, and the linear predictor of their labels."""
    rng = np.random.default_rng(1)
    X = pd.DataFrame({"age": rng.normal(60, 10, N), "year": rng.integers(2000, 2020, N) * 1.0})
    X["dose"], X["ill"] = rng.exponential(1e-3, N), rng.integers(0, 2, N) * 1.0
    return X, -1 + 0.05 * (X.age - 60) + 0.05 * (X.year - 2010) + 300 * (X.dose - 1e-3) + 0.5 * X.ill, rng


def labels(family, eta, rng):
    """Labels of a family with its mean as an inverse link of eta."""
    match family:
        case "binomial":
            return (rng.random(N) < 1 / (1 + np.exp(-eta))).astype(int)
        case "poisson":
            return rng.poisson(np.exp(0.5 * eta + 1))
        case "gamma":
            return rng.gamma(5, (1 + np.log1p(np.exp(eta))) / 5) + 1e-3
    return 3 + np.exp(0.3 * eta) + 0.1 * rng.normal(size=N)


KINDS = {
    ("binomial", "logit"): F.Binomial(),
    ("binomial", "probit"): F.Binomial(L.Probit()),
    ("binomial", "cloglog"): F.Binomial(L.CLogLog()),
    ("gaussian", "identity"): F.Gaussian(),
    ("gaussian", "log"): F.Gaussian(L.Log()),
    ("poisson", "log"): F.Poisson(),
    ("gamma", "log"): F.Gamma(L.Log()),
    ("gamma", "inverse"): F.Gamma(L.InversePower()),
}


def theirs(rows, kind, start=None, **options):
    """statsmodels' fit to the pooled rows, on centred columns; its coefficients and errors, the intercept first."""
    D = sm.add_constant(rows.drop(columns=["y", *options.pop("special", [])]).astype(float))
    scale = np.where(D.std() > 0, D.std(), 1.0)
    center = np.where(D.std() > 0, D.mean(), 0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # InversePower and the domain of Gamma
        model = sm.GLM(rows.y.astype(float), (D - center) / scale, family=KINDS[kind], **options)
        fitted = model.fit(tol=1e-14, tol_criterion="params", maxiter=200)
    T = np.diag(1 / scale)
    T[0, 1:] = -(center / scale)[1:]
    return fitted, T @ fitted.params.to_numpy(), np.sqrt(np.diag(T @ fitted.cov_params().to_numpy() @ T.T))


def column(result, name):
    return np.array([row[name] for row in result["coefficients"]], dtype=float)


def aic_of_r(rows, kind, fitted):
    """AIC as R's families compute it: the dispersion is a parameter, of gamma estimated from the deviance."""
    y, mu, n, p = rows.y.to_numpy(float), fitted.mu, N, len(fitted.params)
    match kind[0]:
        case "binomial":
            return fitted.deviance + 2 * p
        case "poisson":
            return -2 * stats.poisson.logpmf(y, mu).sum() + 2 * p
        case "gaussian":
            return -2 * stats.norm.logpdf(y, mu, np.sqrt(fitted.deviance / n)).sum() + 2 * (p + 1)
    phi = fitted.deviance / n
    return -2 * stats.gamma.logpdf(y, 1 / phi, scale=mu * phi).sum() + 2 * (p + 1)


@pytest.mark.parametrize("aggregation", ["plain", "masked"])
@pytest.mark.parametrize("kind", KINDS, ids="-".join)
def test_coefficients_and_errors_equal_statsmodels(kind, aggregation):
    X, eta, rng = columns()
    rows = X.assign(y=labels(kind[0], eta, rng))
    result = train("v6_glm", dealt(rows), family=kind[0], link=kind[1], aggregation=aggregation)
    fitted, estimates, errors = theirs(rows, kind)
    assert result["converged"] and [row["name"] for row in result["coefficients"]] == ["intercept", *X.columns]
    np.testing.assert_allclose(column(result, "estimate"), estimates, rtol=1e-8)
    np.testing.assert_allclose(column(result, "std_error"), errors, rtol=1e-8)
    np.testing.assert_allclose(column(result, "z"), estimates / errors, rtol=1e-7)
    free = N - len(estimates)
    t = stats.t(free) if kind[0] in ("gaussian", "gamma") else stats.norm()
    np.testing.assert_allclose(column(result, "p"), 2 * t.sf(np.abs(estimates / errors)), rtol=1e-6)
    np.testing.assert_allclose(column(result, "upper"), estimates + t.ppf(0.975) * errors, rtol=1e-7)
    for name, value in (("deviance", fitted.deviance), ("null_deviance", fitted.null_deviance)):
        assert result[name] == pytest.approx(value, rel=1e-9), name
    assert result["dispersion"] == pytest.approx(fitted.scale, rel=1e-8)
    assert result["aic"] == pytest.approx(aic_of_r(rows, kind, fitted), rel=1e-9)
    assert (result["n"], result["df_residual"]) == (N, free)
    assert len(result["history"]) <= 11  # links that are not canonical converge linearly


@pytest.mark.parametrize("aggregation", ["plain", "masked"])
def test_offset_and_weights_equal_statsmodels(aggregation):
    X, eta, rng = columns()
    exposure = rng.uniform(0.5, 20, N)
    rows = X.assign(log_t=np.log(exposure), w=rng.integers(1, 4, N), y=rng.poisson(exposure * np.exp(0.3 * eta)))
    common = {"family": "poisson", "offset": "log_t", "weights": "w", "aggregation": aggregation}
    result = train("v6_glm", dealt(rows), **common)
    special = {"special": ["log_t", "w"], "offset": rows.log_t, "var_weights": rows.w}
    fitted, estimates, errors = theirs(rows, ("poisson", "log"), **special)
    np.testing.assert_allclose(column(result, "estimate"), estimates, rtol=1e-8)
    np.testing.assert_allclose(column(result, "std_error"), errors, rtol=1e-8)
    assert result["null_deviance"] == pytest.approx(fitted.null_deviance, rel=1e-7)
    assert result["data"]["features"] == [*X.columns]
    predicted, _ = prediction.predict(result, Source(table=rows))
    np.testing.assert_allclose(predicted["prediction"], fitted.mu, rtol=2e-4)  # of a model in float32


def test_weights_of_a_gaussian_are_prior_weights():
    """As R's: the dispersion is Pearson's X^2 over n - p, and rows of weight 0 do not count."""
    X, eta, rng = columns()
    rows = X.assign(w=rng.integers(0, 3, N), y=labels("gaussian", eta, rng))
    result = train("v6_glm", dealt(rows), family="gaussian", weights="w")
    some = rows[rows.w > 0]
    _, estimates, errors = theirs(some, ("gaussian", "identity"), special=["w"], var_weights=some.w)
    np.testing.assert_allclose(column(result, "estimate"), estimates, rtol=1e-8)
    np.testing.assert_allclose(column(result, "std_error"), errors, rtol=1e-8)
    assert result["n"] == len(some)


def test_rounds_by_hand():
    """Round 1 solves weighted least squares at mu = (y + 1/2) / 2, and each later round is a Newton step."""
    X, eta, rng = columns()
    rows = X[["age", "ill"]].assign(y=labels("binomial", eta, rng))
    D, y = np.column_stack([rows[["age", "ill"]], np.ones(N)]), rows.y.to_numpy(float)
    mu = (y + 0.5) / 2
    W = mu * (1 - mu)
    working = np.log(mu / (1 - mu)) + (y - mu) / W
    beta, deviances = np.linalg.solve(D.T @ (W[:, None] * D), D.T @ (W * working)), []
    for _ in range(3):
        mu = 1 / (1 + np.exp(-D @ beta))
        deviances.append(-2 * (y @ np.log(mu) + (1 - y) @ np.log(1 - mu)))
        beta = beta + np.linalg.solve(D.T @ ((mu * (1 - mu))[:, None] * D), D.T @ (y - mu))
    result = train("v6_glm", dealt(rows), rounds=4)
    np.testing.assert_allclose([row["deviance"] for row in result["history"][1:]], deviances, rtol=1e-12)
    np.testing.assert_allclose(column(result, "estimate"), beta[[2, 0, 1]], rtol=1e-10)
    assert not result["converged"]
    np.testing.assert_allclose(codec.decode(result["weights"])["weights"], beta, rtol=1e-6)


def test_rounds_of_a_link_that_is_not_canonical_by_hand():
    """From the third step on, the Hessian is corrected so that it says what the gradient did along earlier steps."""
    X, eta, rng = columns()
    rows = X[["age", "ill"]].assign(y=labels("binomial", eta, rng))
    D, y = np.column_stack([rows[["age", "ill"]], np.ones(N)]), rows.y.to_numpy(float)

    def sums(eta, mu):
        """The gradient of the log-likelihood by beta, and its expected Hessian: probit's mu' is the normal density."""
        slope = stats.norm.pdf(eta)
        s, W = (y - mu) * slope / (mu * (1 - mu)), slope**2 / (mu * (1 - mu))
        return D.T @ s, D.T @ (W[:, None] * D), W

    mu = (y + 0.5) / 2
    g, H, W = sums(stats.norm.ppf(mu), mu)
    beta = np.linalg.solve(H, g + D.T @ (W * stats.norm.ppf(mu)))
    before, known, deviances = None, [], []
    for _ in range(4):
        mu = stats.norm.cdf(D @ beta)
        deviances.append(-2 * (y @ np.log(mu) + (1 - y) @ np.log(1 - mu)))
        g, H, _ = sums(D @ beta, mu)
        if before is not None:
            known.append((beta - before[0], before[1] - g))
        for step, change in known:
            off = change - H @ step
            H = H + np.outer(off, off) / (off @ step)
        before, beta = (beta, g), beta + np.linalg.solve(H, g)
    result = train("v6_glm", dealt(rows), link="probit", rounds=5)
    np.testing.assert_allclose([row["deviance"] for row in result["history"][1:]], deviances, rtol=1e-12)
    np.testing.assert_allclose(column(result, "estimate"), beta[[2, 0, 1]], rtol=1e-8)


@pytest.mark.parametrize(("family", "link", "most"), [("gamma", "log", 7), ("binomial", "cloglog", 9)])
def test_links_that_are_not_canonical_need_few_rounds(family, link, most):
    """Fisher scoring alone needs 8 and 11 on these rows."""
    X, eta, rng = columns()
    rows = X.assign(y=labels(family, eta, rng))
    result = train("v6_glm", dealt(rows), family=family, link=link)
    assert result["converged"] and result["iterations"] <= most


@pytest.mark.parametrize(
    "steps",
    [
        ["standardize"],
        ["impute:mean", "standardize", "onehot:sex,drop=first"],
        ["onehot:sex,drop=first", "standardize", "pca:5"],
        ["onehot:sex,drop=first", "clip:lower=-1e9", "standardize"],
    ],
    ids="+".join,
)
def test_coefficients_and_errors_are_those_of_the_table_s_columns(steps):
    """Whatever affine steps come first; ``pca`` of as many components as columns is a rotation."""
    X, eta, rng = columns()
    sex = rng.choice(["f", "m"], N)
    rows = X.assign(y=labels("binomial", eta, rng))
    if len(steps) > 1:
        rows.insert(0, "sex", sex)
    result = train("v6_glm", dealt(rows), preprocess=steps)
    coded = rows.assign(**{"sex=m": sex == "m"}).drop(columns="sex") if len(steps) > 1 else rows
    _, estimates, errors = theirs(coded, ("binomial", "logit"))
    names = ["intercept", *coded.columns.drop("y")]
    found = {row["name"]: row for row in result["coefficients"]}
    assert {*found} == {*names}
    np.testing.assert_allclose([found[name]["estimate"] for name in names], estimates, rtol=1e-5)
    np.testing.assert_allclose([found[name]["std_error"] for name in names], errors, rtol=1e-5)
    assert found["age"]["odds_ratio"] == pytest.approx(np.exp(found["age"]["estimate"]))


def test_after_a_clip_of_standardized_columns_coefficients_are_of_the_clipped_ones():
    X, eta, rng = columns()
    rows = X[["age"]].assign(y=labels("binomial", eta, rng))
    result = train("v6_glm", dealt(rows), preprocess=["standardize", "clip:lower=-1,upper=1"])
    age = (rows.age - rows.age.mean()) / rows.age.std(ddof=0)
    _, estimates, errors = theirs(rows.assign(age=age.clip(-1, 1)), ("binomial", "logit"))
    np.testing.assert_allclose(column(result, "estimate"), estimates, rtol=1e-5)
    np.testing.assert_allclose(column(result, "std_error"), errors, rtol=1e-5)


def test_a_step_that_is_too_long_is_halved():
    """With the inverse link a step can lead to means below 0; the deviance then never rises."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 2, N)
    rows = pd.DataFrame({"x": x, "y": rng.gamma(1, 1 / (0.1 + x))})
    result = train("v6_glm", dealt(rows), family="gamma", link="inverse")
    b0, b1 = column(result, "estimate")
    mu = 1 / (b0 + b1 * x)  # statsmodels, which halves no step, ends elsewhere
    assert (mu > 0).all() and result["converged"]
    for score in (rows.y - mu, (rows.y - mu) * x):  # the score equations of a canonical link
        assert abs(score.sum()) < 1e-8 * np.abs(score).sum()
    assert any(row["deviance"] is None for row in result["history"][1:])


def stopped(rows, **settings):
    """Why a job ends without coefficients."""
    with MockNetwork("v6_glm", dealt(rows), environment=OPEN, on_round=lambda row: None) as network:
        try:
            return network.run(**settings)["stopped"]
        except (CollectResultsError, UserInputError, SafeError) as error:
            return str(error)


def with_rows(**changed):
    X, eta, rng = columns()
    rows = X.assign(y=labels(changed.pop("family", "binomial"), eta, rng))
    for name, made in changed.items():
        rows[name] = made(rows)
    return rows[[*rows.columns.drop("y"), "y"]]


REFUSED = {
    "separation": (
        {"y": lambda r: (r.dose > 1e-3).astype(int)},
        {},
        "the column(s) dose separate the labels",
    ),
    "a level without events": (
        {"rare": lambda r: (np.arange(N) % 8 == 0) * 1.0, "y": lambda r: np.where(r.rare == 1, 0, r.y)},
        {},
        "the column(s) rare separate the labels",
    ),
    "a copy": ({"twice": lambda r: 2 * r.age}, {}, "the column twice follows from age, so that"),
    "a sum": ({"both": lambda r: r.age + r.year}, {}, "the column both follows from age, year, so that"),
    "a constant": ({"unit": lambda r: 3.0}, {}, "the column unit has one value in all rows"),
    "all levels": (
        {"sex": lambda r: np.where(np.arange(N) % 3 == 0, "f", "m")},
        {"preprocess": ["onehot"]},
        "the column sex=m follows from sex=f, so that their coefficients are not determined; leave one of them out "
        "(--exclude), or one level of each category (--preprocess onehot:drop=first)",
    ),
    "half counts": ({"y": lambda r: np.arange(N) / 2}, {"family": "poisson"}, "expected counts: whole numbers from 0"),
    "negative counts": ({"y": lambda r: np.arange(N) - 1}, {"family": "poisson"}, "expected counts"),
    "zeros": ({"y": lambda r: np.arange(N) * 1.0}, {"family": "gamma"}, "expected numbers above 0"),
    "no counts": ({"y": lambda r: 0}, {"family": "poisson"}, "all counts are 0"),
    "one class": ({"y": lambda r: 0}, {"classes": [0, 1]}, "all rows have the same class"),
    "three classes": ({"y": lambda r: np.arange(N) % 3}, {}, "family=binomial needs a label of two classes"),
    "a wrong link": ({}, {"link": "log"}, "link=log cannot be used with family=binomial; expected logit or probit"),
    "negative weights": ({"w": lambda r: np.arange(N) - 5.0}, {"weights": "w"}, "expected weights from 0"),
    "missing weights": (
        {"w": lambda r: np.where(np.arange(N) % 5, 1.0, np.nan)},
        {"weights": "w"},
        "missing values in the column(s) w",
    ),
    "no such column": ({}, {"offset": "there"}, "no column there in the table"),
    "the label": ({}, {"offset": "y"}, "the label is the last column, y, as none is named"),
    "rows to evaluate": (
        {},
        {"offset": "age", "holdout": 0.2},
        "offset=age cannot be used with holdout",
    ),
    "subgroups of rows with an offset": (
        {},
        {"offset": "age", "subgroup": "year"},
        "offset=age cannot be used with subgroup",
    ),
    "subgroups of numbers": (
        {},
        {"family": "gaussian", "subgroup": "year", "holdout": 0.2},
        "family=gaussian cannot be used with subgroup: the label is then a number",
    ),
    "one round": ({}, {"rounds": 1}, "rounds=1 are too few"),
    "a start": ({}, {"start_from": "w.npz"}, "start_from has no effect on glm"),
    "a change": ({}, {"until_converged": 0.01}, "(tolerance ends its rounds); leave it out"),
}


@pytest.mark.parametrize("changed, settings, said", REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_fitted_is_named(changed, settings, said):
    problem = stopped(with_rows(**changed), **settings)
    assert said in problem and "\n" not in problem


def test_a_penalty_fits_what_is_separated_and_has_no_standard_errors():
    rows = with_rows(y=lambda r: (r.dose > 1e-3).astype(int))
    result = train("v6_glm", dealt(rows), l2=0.01, preprocess=["standardize"])
    assert result["converged"] and column(result, "estimate").all()
    assert all(row["std_error"] is row["p"] is row["lower"] is None for row in result["coefficients"])
    assert result["aic"] is None and result["iterations"] == len(result["history"])


def test_masks_change_nothing():
    X, eta, rng = columns()
    nodes = dealt(X.assign(y=labels("poisson", eta, rng)))
    plain, masked = (train("v6_glm", nodes, family="poisson", aggregation=how) for how in ("plain", "masked"))
    for name in ("estimate", "std_error"):
        np.testing.assert_allclose(column(masked, name), column(plain, name), rtol=1e-10)
    assert not masked["per_node"]


def test_held_out_rows_are_evaluated_and_predicted_on_the_scale_of_the_label():
    X, eta, rng = columns()
    rows = X.assign(y=labels("poisson", eta, rng))
    result = train("v6_glm", dealt(rows), family="poisson", holdout=0.25)
    table, measured = prediction.predict(result, Source(table=rows))
    b = dict(zip(["intercept", *X.columns], column(result, "estimate"), strict=True))
    mu = np.exp(b["intercept"] + sum(b[name] * X[name] for name in X))
    np.testing.assert_allclose(table["prediction"], mu, rtol=2e-3)
    assert result["final"]["r2"] == pytest.approx(measured["r2"], abs=0.1) and result["final"]["evaluated"] > 80


def test_predicted_probabilities_are_those_of_the_link():
    X, eta, rng = columns()
    rows = X.assign(y=labels("binomial", eta, rng))
    result = train("v6_glm", dealt(rows), link="probit", preprocess=["standardize"])
    fitted, _, _ = theirs(rows, ("binomial", "probit"))
    table, _ = prediction.predict(result, Source(table=rows))
    np.testing.assert_allclose(table["probability=1"], fitted.mu, atol=1e-5)
    assert list(table["prediction"]) == [*(fitted.mu > 0.5).astype(int)]


def test_all_rows_of_all_nodes_are_used():
    rows = with_rows()
    assert train("v6_glm", dealt(rows))["n"] == len(pooled(dealt(rows))) == N


def test_tables_picture_and_page_show_coefficients_with_intervals(tmp_path):
    result = train("v6_glm", dealt(with_rows()))
    table = tables.coefficients_table(result)
    first = next(row for row in result["coefficients"] if row["name"] == "age")
    cells = [[*column.cells][1] for column in table.columns]
    places = len(cells[1].rpartition(".")[2])  # as many in all rows of a column
    assert cells[:2] == ["age", f"{first['estimate']:.{places}f}"] and places >= 2
    assert all(len([*column.cells][2].rpartition(".")[2]) == places for column in table.columns[1:2])
    assert cells[4] in ("<0.001", f"{first['p']:.3f}")
    places = len(cells[6].partition(" ")[0].rpartition(".")[2])
    assert f"{first['odds_ratio']:.{places}f} ({first['odds_ratio_lower']:.{places}f} to" in cells[6]
    assert "400 rows, 395 degrees of freedom; deviance" in tables.fit_of(result)
    assert pictures.write(pictures.coefficients(result), tmp_path / "coefficients.png")
    written = page.page({"glm": result})
    assert "odds ratio of y=1\n(95% interval)" in written and "They have no intervals" not in written
    spreadsheets.write_all({"glm": result}, tmp_path)
    assert list(pd.read_csv(tmp_path / "coefficients.csv")["std_error"]) == pytest.approx(column(result, "std_error"))
    [about_nodes] = diagnostics.warnings_about(result)
    assert "can differ from those of pooled rows" in about_nodes, "nobody has told the result what nodes leave out"
    few = train("v6_glm", dealt(with_rows()), rounds=3)
    assert "not converged: do not read the coefficients" in diagnostics.warnings_about(few)[0]


@pytest.mark.parametrize("classes", [(0, 1), (1, 0)])
def test_the_class_that_coefficients_are_about_is_named_everywhere(tmp_path, classes):
    result = train("v6_glm", dealt(with_rows()), classes=list(classes))
    ends = f"y={classes[1]}"
    assert {(row["label"], row["class"]) for row in result["coefficients"]} == {("y", classes[1])}
    assert tables.coefficients_table(result).columns[-1].header == f"odds ratio of {ends}\n(95% interval)"
    assert tables.fit_of(result).startswith(f"odds of {ends}; binomial")
    assert pictures.coefficients(result).axes[0].get_xlabel() == f"odds ratio of {ends}, by one unit, with 95% interval"
    assert f"odds of {ends}" in page.page({"glm": result})
    spreadsheets.write_all({"glm": result}, tmp_path)
    written = pd.read_csv(tmp_path / "coefficients.csv")
    assert {*written["label"]} == {"y"} and {*written["class"]} == {classes[1]}


def test_a_link_that_has_no_ratio_names_the_class_too():
    result = train("v6_glm", dealt(with_rows()), link="probit")
    assert tables.fit_of(result).startswith("probability of y=1; binomial, link probit")
    assert pictures.coefficients(result).axes[0].get_xlabel().startswith("coefficient of y=1, by one unit")


def test_a_number_has_no_class():
    result = train("v6_glm", dealt(with_rows(family="poisson")), family="poisson")
    assert "class" not in result["coefficients"][0]
    assert tables.fit_of(result).startswith("poisson")
    assert pictures.coefficients(result).axes[0].get_xlabel() == "rate ratio, by one unit, with 95% interval"


def test_errors_of_numbers_are_not_added_up_under_masks():
    """With a log link, coefficients can be chosen under which one row's squared error is nearly the whole sum."""
    rows = with_rows(family="poisson")
    asked = {"family": "poisson", "holdout": 0.25, "aggregation": "masked"}
    with pytest.raises(UserInputError, match="squared errors of a number's predictions can tell single rows"):
        train("v6_glm", dealt(rows), **asked)


@pytest.mark.parametrize(("aggregation", "refused"), [("masked", True), ("plain", False)])
def test_a_node_refuses_to_evaluate_numbers_under_masks(aggregation, refused, monkeypatch):
    """Central could skip its own check: the node's stands by itself."""
    X, y = np.ones((9, 2), np.float32), np.arange(9.0)
    source = SimpleNamespace(split=lambda *o: (0, 1))
    job = SimpleNamespace(data=SimpleNamespace(regression=True), aggregation=aggregation)
    policy = SimpleNamespace(round_evaluations=False, minimum_rows=3, minimum_rows_a_side=0)
    model = Glm(2, 1, "poisson", "log")
    node = SimpleNamespace(noising=None, job=job, model=model, source=source, policy=policy, identity=1)
    node.rounds_means = node.adds_losses = False
    node._prepared = lambda: (Rows(X, y), Rows(X, y))
    if refused:
        with pytest.raises(SafeError, match="aggregation=plain only; leave out holdout"):
            Node.evaluate(node, model.init(np.random.default_rng(0)), "held_out")
    else:
        assert Node.evaluate(node, model.init(np.random.default_rng(0)), "held_out")["n"] == 9


def test_black_cherry_trees():
    """Volume by girth of 31 trees: the table of R's ``trees``, which v6-glm-py's tests print to seven digits."""
    girth = "8.3 8.6 8.8 10.5 10.7 10.8 11 11 11.1 11.2 11.3 11.4 11.4 11.7 12 12.9 12.9 13.3 13.7 13.8 14 14.2 14.5 16"
    volume = "10.3 10.3 10.2 16.4 18.8 19.7 15.6 18.2 22.6 19.9 24.2 21 21.4 21.3 19.1 22.2 33.8 27.4 25.7 24.9 34.5"
    X = [float(x) for x in f"{girth} 16.3 17.3 17.5 17.9 18 18 20.6".split()]
    y = [float(v) for v in f"{volume} 31.7 36.3 38.3 42.6 55.4 55.7 58.3 51.5 51 77".split()]
    trees = pd.DataFrame({"girth": X, "label": y})
    result = train("v6_glm", {k: trees.iloc[k - 1 :: 3].reset_index(drop=True) for k in (1, 2, 3)}, family="gaussian")
    found = {row["name"]: row for row in result["coefficients"]}
    for name, estimate, error, z, p in (
        ("intercept", -36.94346, 3.36514, -10.97827, 7.621448e-12),
        ("girth", 5.0658564, 0.247376, 20.47828, 8.64433e-19),
    ):
        assert found[name]["estimate"] == pytest.approx(estimate, rel=2e-7)
        assert found[name]["std_error"] == pytest.approx(error, rel=5e-6)  # theirs are cut off
        assert found[name]["z"] == pytest.approx(z, rel=1e-6)
        assert found[name]["p"] == pytest.approx(p, rel=1e-6)
    assert result["deviance"] == pytest.approx(524.3025, rel=1e-7)


@pytest.mark.parametrize("family", ["binomial", "poisson"])
def test_under_dither_sums_of_zeros_are_zero(family):
    """Under careful, hospitals dither masked values by 2^-76: a flag that none has set must not seem to be set."""
    rows = pd.concat([part.assign(hospital=k) for k, part in dealt(with_rows(family=family)).items()])
    job = {"family": family, "holdout": 0.0}
    found = [
        Experiment(
            load(rows[["hospital", *rows.columns[:-1]]]), partition="column:hospital", environment=own
        ).federated("glm", job, **({} if own else {"aggregation": "masked"}))
        for own in ({}, {"V6_FEDERATED_PROFILE": "careful"})
    ]
    assert [result["privacy"]["aggregation"] for result in found] == ["masked", "masked"]
    assert found[0]["iterations"] == found[1]["iterations"]
    np.testing.assert_allclose(column(found[0], "estimate"), column(found[1], "estimate"), rtol=1e-9)


# ---- sums of few rows


def of_ages(family="binomial"):
    """60 patients: one of 90 years, six of 80, the others younger; their exposures are far apart."""
    rng = np.random.default_rng(5)
    age = np.r_[90.0, [80.0] * 6, rng.integers(30, 75, 53)]
    ill = (rng.random(60) < 0.4) * 1
    ill[:2] = 1, 0
    y = {
        "binomial": ill,
        "poisson": rng.poisson(2, 60),
        "gamma": rng.gamma(3, 1, 60),
        "certain": (age > 85) | (age < 77),
    }
    return pd.DataFrame({"age": age, "area": rng.exponential(100, 60).round(3), "y": y[family] * 1})


SAME = {"age": lambda r: r.area}  # the model with columns takes the offset back
TIMES = {"w": lambda r: np.where(r.age > 85, 1e6, r.age / 60)}
CRAFTED = {  # coefficients of age and intercept, other arguments, columns added, what the node says
    "ordinary": ("binomial", [0.0, 0.0], {"null": 0.0}, {}, ""),
    "no row weighs in the Hessian": (
        "binomial",
        [0.0, 1e4],
        {"null": 0.0},
        {},
        "the columns predict nearly all labels",
    ),
    "offsets are a window in the null model": (
        "binomial",
        [-1.0, 0.0],
        {"null": -1000.0},
        SAME,
        "the offsets are too far",
    ),
    "no row weighs, and offsets are a window": (
        "binomial",
        [0.0, 1e4],
        {"null": -1000.0},
        {},
        "about fewer than 5 rows",
    ),
    "the null model has no row that weighs": ("binomial", [0.0, 0.0], {"null": 1e4}, {}, "about fewer than 5 rows"),
    "weights whose squares are 0": ("poisson", [2.0, -700.0], {"null": 0.0}, {}, "means that the columns predict"),
    "the oldest alone has a mean near 1": ("binomial", [6.0, -510.0], {"null": 0.0}, {}, "predict nearly all labels"),
    "the oldest alone has a mean near 0": ("binomial", [-6.0, 510.0], {"null": 0.0}, {}, "predict nearly all labels"),
    "all labels fit but one": ("certain", [-2.0, 154.0], {"null": 0.0}, {}, "predict nearly all labels"),
    "the smallest mean divides a label": ("gamma", [-1.0, 0.0], {"null": 0.0}, {}, "means that the columns predict"),
    "weights, and an impossible mean": (
        "poisson",
        [1e3, 0.0],
        {"null": 0.0},
        TIMES,
        "the column of weights is too uneven",
    ),
    "weights": ("poisson", [0.0, 0.0], {"null": 0.0}, TIMES, "the column of weights is too uneven"),
}


@pytest.mark.parametrize("family, weights, arguments, added, said", CRAFTED.values(), ids=CRAFTED)
@pytest.mark.parametrize("profile", ["trusting", "careful"])
def test_sums_of_few_rows_are_refused_by_careful_hospitals(profile, family, weights, arguments, added, said):
    """Each of the sums that leave: a task can choose coefficients under which all rows but one weigh nothing."""
    rows = of_ages(family).assign(**added)
    offset = {"offset": "area"} if "offsets" in said or arguments["null"] == -1000 else {}
    data = {"label": "y", "features": ["age"], "classes": None, "holdout": 0.0, "preprocess": [], "regression": True}
    named = family if family != "certain" else "binomial"
    if named == "binomial":
        data |= {"classes": [0, 1], "regression": False}
    job = {
        "model": {"name": "glm", "features": 1, "classes": 2 if named == "binomial" else 1, "family": named},
        "precision": "float64",
        "data": {**data, **offset, **({"weights": "w"} if "w" in added else {})},
    }
    arrays = {"weights": np.array(weights), "center": np.zeros(2), "scale": np.ones(2)}
    environment = {**OPEN, "V6_FEDERATED_PROFILE": profile, "V6_FEDERATED_AGGREGATION": "plain"}
    nodes = {k: rows for k in (3, 5, 8)}
    status, log = crafted(
        nodes, "newton", job, "v6_glm", environment=environment, arrays=codec.encode(arrays, "float64"), **arguments
    )
    assert (status == "completed") == (profile == "trusting" or not said), log
    if status != "completed":
        assert said in log.lower() and "V6_FEDERATED_MINIMUM_ROWS_A_SIDE" in log


@pytest.mark.parametrize("family", ["binomial", "poisson", "gamma"])
def test_pearson_s_statistic_leaves_only_where_a_dispersion_is_estimated(family):
    """Under chosen coefficients it is that of the worst row: (1 - mu) / mu for a label of 1, exp(-eta)."""
    rows = of_ages(family)
    D, one = np.column_stack([rows.age - 60, np.ones(60)]), np.ones(60)
    found = newton_sums(Glm(1, 1 + (family == "binomial"), family), D, rows.y, one, 0 * one, np.array([-0.2, 0.0]))
    assert (found["pearson"] > 0) == (family == "gamma")


# ---- nodes that are missing in some rounds


with_gaps = functools.partial(helpers.with_gaps, "v6_glm")

GAPS = {
    "round 1": [1],
    "round 2": [2],
    "round 3": [3],
    "round 4": [4],
    "rounds 2 and 4": [2, 4],
    "rounds 3 to 5": [3, 4, 5],
    "from round 2 on": range(2, 99),
    "from round 3 on": range(3, 99),
}


@pytest.mark.parametrize("rounds", GAPS.values(), ids=GAPS)
@pytest.mark.parametrize("kind", [("binomial", "logit"), ("binomial", "probit"), ("gamma", "log")], ids="-".join)
def test_a_node_that_misses_rounds_leaves_the_fit_of_those_that_are_there(kind, rounds):
    """Deviances of more rows are larger, so that those of other nodes cannot be compared."""
    X, eta, rng = columns()
    rows = X.assign(y=labels(kind[0], eta, rng))
    result = with_gaps(dealt(rows), missing(rounds), family=kind[0], link=kind[1])
    gone = 99 - 1 in rounds
    some = rows.drop(index=range(CUTS[1], CUTS[2])) if gone else rows
    fitted, estimates, errors = theirs(some, kind)
    assert result["converged"] and len(result["history"]) <= 16
    np.testing.assert_allclose(column(result, "estimate"), estimates, rtol=1e-7)
    np.testing.assert_allclose(column(result, "std_error"), errors, rtol=1e-7)
    for name, value in (("deviance", fitted.deviance), ("null_deviance", fitted.null_deviance)):
        assert result[name] == pytest.approx(value, rel=1e-8), name
    assert result["dispersion"] == pytest.approx(fitted.scale, rel=1e-7)
    assert (result["n"], result["df_residual"]) == (len(some), len(some) - 5)
    assert result["fitted_on"] == ([2, 5, 9] if gone else [2, 3, 5, 9])
    warned = [line for line in diagnostics.warnings_about(result) if "took no part in the last rounds" in line]
    assert len(warned) == gone and all("rows: 3 took" in line for line in warned)


def test_without_missing_nodes_a_tolerant_job_has_the_same_bits():
    nodes = dealt(with_rows())
    strict, tolerant = train("v6_glm", nodes), with_gaps(nodes, None)
    for part in ("weights", "state", "coefficients", "deviance"):
        assert strict[part] == tolerant[part]


@pytest.mark.parametrize("last", [3, 4])
def test_a_fit_that_ends_as_a_node_is_missing_is_about_the_other_rows(last):
    """Its numbers are sums over the same rows, at the same coefficients."""
    X, eta, rng = columns()
    rows = X.assign(y=labels("binomial", eta, rng))
    result = with_gaps(dealt(rows), missing([last]), rounds=last)
    assert not result["converged"] and result["fitted_on"] == [2, 5, 9]
    assert result["n"] == N - (CUTS[2] - CUTS[1])
    assert result["deviance"] == result["history"][-1]["deviance"]


@pytest.mark.parametrize("rounds", [[2], range(2, 99)], ids=["round 2", "from round 2 on"])
def test_a_block_that_misses_rounds_leaves_the_fit_of_the_others(rounds):
    rng = np.random.default_rng(3)
    X, eta, rng = columns()
    rows = X.assign(y=labels("binomial", eta, rng))
    nodes = {k: rows.iloc[50 * (k - 1) : 50 * k].reset_index(drop=True) for k in range(1, 9)}
    result = with_gaps(nodes, missing(rounds), StudyPlan(size=4), aggregation="pinned")
    gone = 98 in rounds
    blocks = result["privacy"]["blocks"]
    assert sorted(map(len, blocks)) == [4, 4]
    there = sorted(k for block in blocks if not (gone and 3 in block) for k in block)
    _, estimates, errors = theirs(pd.concat([nodes[k] for k in there], ignore_index=True), ("binomial", "logit"))
    assert result["converged"] and result["fitted_on"] == there and result["n"] == 50 * len(there)
    np.testing.assert_allclose(column(result, "estimate"), estimates, rtol=1e-7)
    np.testing.assert_allclose(column(result, "std_error"), errors, rtol=1e-7)


def test_a_node_that_comes_back_may_make_the_coefficients_of_the_others_impossible():
    """With the inverse link the others' line is below 0 at its values; steps are halved towards an intercept alone."""
    rng = np.random.default_rng(2)
    x = np.where(np.arange(N) >= CUTS[3], rng.uniform(4, 6, N), rng.uniform(0, 1, N))
    y = rng.gamma(9, 1 / 9, N) / np.where(x < 1, 1 - 0.5 * x, 0.4)
    rows = pd.DataFrame({"x": x, "y": y})
    settings = {"family": "gamma", "link": "inverse", "maximum_norm_ratio": 1e6}
    result = with_gaps(dealt(rows), missing([1, 2, 3, 4], who=[9]), **settings)
    b0, b1 = column(result, "estimate")
    mu = 1 / (b0 + b1 * x)
    assert (mu > 0).all() and result["converged"] and result["n"] == N
    assert any(row["deviance"] is None for row in result["history"][4:])
    for score in (y - mu, (y - mu) * x):
        assert abs(score.sum()) < 1e-8 * np.abs(score).sum()


def test_columns_that_only_missing_rows_determine_are_named():
    rows = with_rows(mri=lambda r: ((np.arange(N) >= CUTS[1]) & (np.arange(N) < CUTS[2]) & (np.arange(N) % 2 == 0)) * 1)
    with MockNetwork(
        "v6_glm", dealt(rows), environment=OPEN, on_round=lambda row: None, outcomes=missing([4])
    ) as network:
        said = network.run(min_responses=0.5, retries=0)["stopped"]
    assert "the column mri has one value in all rows of the hospitals that answered" in said


def test_a_central_that_is_lost_remembers_which_nodes_its_sums_are_from():
    nodes, gap = dealt(with_rows()), missing([3])
    settings = {"min_responses": 0.5, "retries": 0}
    whole = with_gaps(nodes, gap)
    for kept in (2, 3, 4):
        again = lost_and_started_again(
            "v6_glm",
            nodes,
            plan=lambda call: gap(call.organization, call.message),
            lost_once_kept=lambda snapshot, kept=kept: len(snapshot["history"]) == kept,
            **settings,
        )
        assert difference({**whole, "traffic": 0}, {**again.result, "traffic": 0}) == ""


# ---- fits without an end, and without anything left


def exact(scale=1.0, family="gaussian"):
    """Labels that follow from the columns."""
    X, _, _ = columns()
    eta = 1 + 0.02 * (X.age - 60) + 0.3 * X.ill
    return X[["age", "year", "ill"]].assign(y=scale * {"gaussian": eta, "gamma": np.exp(eta)}[family])


@pytest.mark.parametrize("aggregation", ["plain", "masked"])
@pytest.mark.parametrize("scale, family", [(1.0, "gaussian"), (1e6, "gaussian"), (1e-6, "gaussian"), (1.0, "gamma")])
def test_a_perfect_fit_has_converged_and_says_so(scale, family, aggregation):
    """Its steps are rounding, and so are the residuals that errors and tests would be about."""
    result = train("v6_glm", dealt(exact(scale, family)), family=family, aggregation=aggregation)
    assert result["converged"] and result["fits_perfectly"] and result["iterations"] <= 8
    np.testing.assert_allclose(column(result, "estimate")[[1, 3]], np.array([0.02, 0.3]) * scale, rtol=1e-9)
    assert all(row["std_error"] is row["p"] is None for row in result["coefficients"]) and result["aic"] is None
    said = [*diagnostics.warnings_about(result), tables.fit_of(result), page.page({"a": result})]
    assert all("fits perfectly" in text for text in (said[-1], said[-2])) and "not converged" not in str(said)
    assert any(line.startswith("the model fits perfectly") for line in said)


@pytest.mark.parametrize("noise", [1e-6, 1e-9])
def test_a_fit_with_small_residuals_is_not_perfect(noise):
    rows = exact()
    rows["y"] += noise * np.random.default_rng(0).normal(size=N)
    result = train("v6_glm", dealt(rows), family="gaussian")
    fitted, estimates, errors = theirs(rows, ("gaussian", "identity"))
    assert result["converged"] and not result["fits_perfectly"]
    np.testing.assert_allclose(column(result, "std_error"), errors, rtol=1e-4)


@pytest.mark.parametrize("family", ["binomial", "gaussian", "poisson", "gamma"])
def test_a_step_below_rounding_is_convergence_whatever_the_tolerance(family):
    X, eta, rng = columns()
    result = train("v6_glm", dealt(X.assign(y=labels(family, eta, rng))), family=family, tolerance=1e-300)
    assert result["converged"] and result["iterations"] < 15


@pytest.mark.parametrize("family", ["gaussian", "gamma"])
def test_more_columns_than_rows_leave_no_degrees_of_freedom(family):
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(rng.normal(size=(40, 50))).add_prefix("x").assign(y=rng.gamma(3, size=40))
    nodes = {k: rows[10 * k - 10 : 10 * k].reset_index(drop=True) for k in (1, 2, 3, 4)}
    result = train("v6_glm", nodes, family=family, l2=0.1)
    assert result["df_residual"] == 0 and result["dispersion"] is None and result["converged"]
    assert "0 degrees of freedom" in tables.fit_of(result)


CAREFUL = {"V6_FEDERATED_PROFILE": "careful"}


def careful(rows, stops=False, **settings):
    """A job of careful hospitals, under masks."""
    return train("v6_glm", dealt(rows), environment=CAREFUL, stops=stops, **settings)


def test_separation_under_masks_is_named_and_its_cures_work():
    rows = with_rows(y=lambda r: (r.age > 60).astype(int))[["age", "year", "ill", "y"]]
    result = careful(rows, stops=True)
    assert result["stopped"].endswith(
        "Often, columns (above all age) predict the label of nearly all rows with certainty (separation): leave them "
        "out (--exclude), merge levels, or set l2, for example --set l2=0.1"
    )
    assert "learning rate" not in result["stopped"]
    assert result["resumable"] is False
    assert careful(rows, l2=0.1)["converged"] and careful(rows, exclude=["age"])["converged"]


@pytest.mark.parametrize("aggregation", ["plain", "masked"])
def test_an_error_names_five_columns_at_most_and_then_the_cure(aggregation):
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(rng.normal(size=(N, 12))).add_prefix("column_").assign(y=rng.integers(0, 2, N))
    rows.insert(12, "total", rows.filter(like="column_").sum(axis=1))
    problem = train("v6_glm", dealt(rows), stops=True, aggregation=aggregation)["stopped"]
    assert problem == (
        "the column total follows from column_0, column_1, column_2, column_3, column_4 and 7 more, so that their "
        "coefficients are not determined; leave one of them out (--exclude), or set l2"
    )


def test_counts_that_vary_more_are_told_by_how_much_errors_are_too_small():
    X, _, rng = columns()
    rows = X[["age", "ill"]].assign(y=rng.negative_binomial(1, 0.2, N))
    result = train("v6_glm", dealt(rows), family="poisson")
    (said,) = diagnostics.overdispersed(result)
    assert "gamma" not in said, "it refuses zeros, which counts have"
    factor, what = said.split("multiply the standard errors by ")[1].split(" ", 1)
    fitted, _, _ = theirs(rows, ("poisson", "log"))
    assert what == "(the square root of deviance / degrees of freedom)", "quasi-Poisson takes Pearson's X^2"
    assert float(factor) == pytest.approx(np.sqrt(fitted.deviance / fitted.df_resid), abs=0.005)
    assert float(factor) == pytest.approx(np.sqrt(fitted.pearson_chi2 / fitted.df_resid), rel=0.25)
    assert "with zeros, choose family=poisson" in stopped(rows, family="gamma")
    assert train("v6_glm", dealt(rows), family="gaussian")["converged"]


def test_shares_of_trials_are_two_rows_each():
    """What the error of a share as label advises, against statsmodels' binomial model of successes and failures."""
    rng = np.random.default_rng(0)
    age, trials = rng.normal(60, 10, N), rng.integers(5, 40, N)
    successes = rng.binomial(trials, 1 / (1 + np.exp(-0.05 * (age - 60))))
    with pytest.raises(SafeError, match="if it is a share of trials, give two rows for each share: label 1 with"):
        data_checks._check_labels(successes / trials, False, 20, method="glm")
    counts = {1: successes, 0: trials - successes}
    halves = [pd.DataFrame({"age": age, "w": counts[y] * 1.0, "y": y}) for y in (0, 1)]
    nodes = {k: pd.concat([half[k::4] for half in halves], ignore_index=True) for k in range(1, 4)}
    nodes[4] = pd.concat([half[::4] for half in halves], ignore_index=True)
    result = train("v6_glm", nodes, label="y", weights="w")
    fitted = sm.GLM(np.column_stack([counts[1], counts[0]]), sm.add_constant(age), family=F.Binomial()).fit(tol=1e-14)
    np.testing.assert_allclose(column(result, "estimate"), fitted.params, rtol=1e-8)
    np.testing.assert_allclose(column(result, "std_error"), fitted.bse, rtol=1e-8)
