"""Generalised linear models from three sums of bounded contributions with noise."""

import math

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from v6_federated.base.errors import SafeError
from v6_federated.base.vantage6_api import CollectResultsError, UserInputError
from v6_federated.central.checkpoint import Checkpoint
from v6_federated.node import noising
from v6_federated.noise import accountant, bounded
from v6_federated.noise.ledger import Ledger
from v6_federated.noise.plan import Plan
from v6_federated.rules.schema import Column, Schema
from v6_glm import noisy
from v6_glm.families import FAMILIES, Glm
from v6_workbench.conformance.interruptions import Killed
from v6_workbench.reporting import diagnostics, tables
from v6_workbench.simulation.mock import MockNetwork
from v6_workbench.simulation.studies import StudyPlan

PRIVATE = {
    "V6_FEDERATED_PROFILE": "private",
    "V6_FEDERATED_EPSILON": "9",
    "V6_FEDERATED_EPSILON_PER_JOB": "9",
    "V6_FEDERATED_DELTA": "1e-5",
}
COLUMNS = (
    Column("age", "number", 20, 100),
    Column("dose", "number", 0, 2),
    Column("arm", "words", levels=("new", "old")),
)
BOUNDS = {"poisson": (0, 15), "gaussian": (-8, 8), "gamma": (0.01, 30)}
STEPS = ["onehot:drop=first"]
JOB = {"clip": 1.5, "preprocess": STEPS}
F, L = sm.families, sm.families.links
KINDS = {"binomial": F.Binomial(), "poisson": F.Poisson(), "gaussian": F.Gaussian(), "gamma": F.Gamma(L.Log())}


def schema_of(family="binomial", **own):
    label = {"classes": (0, 1)} if family == "binomial" else {"bounds": BOUNDS[family]}
    return Schema(COLUMNS, "y", **label, **own)


def pooled(family="binomial", n=1200):
    rng = np.random.default_rng(1)
    rows = pd.DataFrame({"age": rng.normal(60, 12, n).clip(20, 100), "dose": rng.uniform(0, 2, n)})
    rows["arm"] = np.where(rng.random(n) < 0.4, "old", "new")
    eta = 0.03 * (rows.age - 60) + 0.5 * rows.dose - 0.6 * (rows.arm == "old")
    rows["y"] = {
        "binomial": lambda: (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(int),
        "poisson": lambda: rng.poisson(np.exp(eta)).clip(0, 15),
        "gaussian": lambda: (eta + rng.normal(size=n)).clip(-8, 8),
        "gamma": lambda: rng.gamma(3, np.exp(eta) / 3).clip(0.01, 30),
    }[family]()
    return rows


def network(family="binomial", environment=PRIVATE, rows=None, schema=None, keep=False):
    rows = pooled(family) if rows is None else rows
    cuts = (0, 100, 500, 800, len(rows))
    dealt = {k: rows.iloc[a:b].reset_index(drop=True) for k, a, b in zip(range(1, 5), cuts, cuts[1:], strict=False)}
    study = StudyPlan(schema=schema or schema_of(family))
    return MockNetwork("v6_glm", dealt, environment=environment, study=study, on_round=lambda row: None, keep=keep)


def theirs(family, rows):
    """statsmodels' fit to the pooled rows, the intercept first."""
    D = sm.add_constant(rows[["age", "dose"]].assign(old=(rows.arm == "old") * 1.0))
    return sm.GLM(rows.y.astype(float), D, family=KINDS[family]).fit(tol=1e-12)


def column(result, name):
    return np.array([row[name] for row in result["coefficients"]], dtype=float)


@pytest.fixture
def silent(monkeypatch):
    monkeypatch.setattr(noising, "discrete_gaussian", lambda key, sigma, size: np.zeros(size, np.int64))


@pytest.mark.parametrize("family", KINDS)
def test_without_noise_and_bounds_it_is_the_pooled_estimate(family, silent):
    """Two Newton steps after the start leave a small part of a standard error."""
    with network(family, {**PRIVATE, "V6_FEDERATED_EPSILON": "2000", "V6_FEDERATED_EPSILON_PER_JOB": "2000"}) as found:
        result = found.run(**JOB | {"clip": 4.0}, noise=0.1, family=family)
    fitted = theirs(family, pooled(family))
    assert [row["name"] for row in result["coefficients"]] == ["intercept", "age", "dose", "arm=old"]
    assert (np.abs(column(result, "estimate") - fitted.params) / fitted.bse).max() < 0.2
    assert result["n"] == 1200 and result["converged"] and len(result["history"]) in (3, 4)


@pytest.mark.parametrize("family", KINDS)
def test_the_noise_is_in_the_intervals(family):
    with network(family) as found:
        result = found.run(**JOB, epsilon=8, family=family)
        folder = next(found.folder.rglob("ledger.sqlite")).parent
        [job] = Ledger(folder, 9, 1e-5).spent().jobs
    assert (job.steps, job.evaluations, job.statistics) == (0, 0, 10) and 0.99 < job.epsilon / 8 <= 1
    fitted, errors = theirs(family, pooled(family)), column(result, "std_error")
    assert (np.abs(column(result, "estimate") - fitted.params) / errors).max() < 5
    assert (errors > 0.7 * fitted.bse).all() and (column(result, "std_error_noise") < errors).all()
    assert result["deviance"] is None and result["privacy"]["noise_shared_in_a_block"] is True


def test_the_sum_over_hospitals_is_exactly_that_of_all_rows(monkeypatch):
    drawn, sums = [], []
    real = noising.Noising._noise
    monkeypatch.setattr(
        noising.Noising, "_noise", lambda *args, **kwargs: drawn.append(real(*args, **kwargs)) or drawn[-1]
    )
    begin = noisy.Fit.begin

    def noted(fit, model, total, sigma):
        sums.append((total, fit.T.copy()))
        return begin(fit, model, total, sigma)

    monkeypatch.setattr(noisy.Fit, "begin", noted)
    with network() as found:
        found.run(**JOB, epsilon=8)
    [(total, T)], rows = sums, pooled()
    X = rows[["age", "dose"]].assign(old=(rows.arm == "old") * 1.0).to_numpy(np.float32)
    q = noisy.size(4, first=True)
    own = bounded.bounded_sum(
        lambda X, y: noisy.first_contributions(X, y, T, (0, 1)), X, rows.y.to_numpy(), q, bounded.ROW
    )
    assert (total * bounded.ROW == own + sum(drawn[:4])).all()


def test_products_by_hand():
    x = np.array([[1.0, 2.0, 3.0]])
    assert noisy.packed(x)[0] == pytest.approx([1, 2 * 2**0.5, 4, 3 * 2**0.5, 6 * 2**0.5, 9])
    assert np.linalg.norm(noisy.packed(x)) == pytest.approx(14)
    np.testing.assert_allclose(noisy.unpacked(noisy.packed(x)[0], 3), x.T @ x)


def test_a_contribution_by_hand():
    """Of a logit at mu = 1/2: F = 1/2 and W = 1/4. |t| = 5, so that k = min(1, 1.5 / 2.5, 5 / 6.25) = 0.6."""
    got = noisy.contributions(
        Glm(1, 2), np.array([[3.0]]), np.array([1.0]), np.zeros(2), np.diag([1, 4.0]), (0, 1), (1.5, 5)
    )
    k, t = 0.6, np.array([3.0, 4.0])
    score = math.sqrt(0.65) / 1.5 * k * 0.5 * t
    hessian = math.sqrt(0.30) / 5 * k / 4 * np.array([9, 12 * math.sqrt(2), 16])
    np.testing.assert_allclose(got, [[*score, *hessian, *(math.sqrt(0.05) * k**2 / 4 / 5 * t**2)]])


NUMBERS = st.floats(allow_nan=True, allow_infinity=True, width=32)
TABLES = st.integers(1, 4).flatmap(
    lambda d: arrays(np.float32, st.tuples(st.integers(1, 5), st.just(d)), elements=NUMBERS)
)


@settings(max_examples=200, deadline=None)
@given(Z=TABLES, data=st.data())
def test_one_row_moves_the_sum_no_further_than_is_proven(Z, data):
    """Also a row of huge, tiny, infinite or missing numbers. Without it, its place is empty."""
    i, (n, q) = data.draw(st.integers(0, len(Z) - 1)), Z.shape
    without = Z.copy()
    without[i] = np.nan
    one, other = (bounded.bounded_sum(lambda X, y: X, rows, np.zeros(n), q, 1000) for rows in (Z, without))
    assert math.sqrt(sum(int(x) ** 2 for x in one - other)) <= bounded.bounded_reach(q, 1000)


def test_the_bound_is_reached():
    [x] = bounded.bounded_sum(lambda X, y: X, np.array([[1e9]]), np.zeros(1), 1, bounded.ROW)[None]
    assert x == pytest.approx(bounded.bounded_reach(1, bounded.ROW), rel=1e-5)


@settings(max_examples=100, deadline=None)
@given(
    data=st.data(),
    family=st.sampled_from([*FAMILIES]),
    scale=st.floats(0.01, 100),
    longest=st.tuples(st.floats(0.01, 100), st.floats(0.01, 100)),
)
def test_no_contribution_is_longer_than_1(data, family, scale, longest):
    """So that what the node shortens are rows far outside the declared bounds, and k does not depend on the label."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    X, beta, T = scale * rng.normal(size=(20, 3)), rng.normal(size=4), rng.normal(size=(4, 4))
    low, high = (0.0, 1.0) if family == "binomial" else BOUNDS[family]
    y = rng.uniform(low, high, 20) if family != "binomial" else rng.integers(0, 2, 20)
    with np.errstate(all="ignore"):
        Z = noisy.contributions(Glm(3, 2 if family == "binomial" else 1, family), X, y, beta, T, (low, high), longest)
    assert (np.linalg.norm(Z[np.isfinite(Z).all(axis=1)], axis=1) <= 1 + 1e-9).all()


def test_rows_of_one_person_are_in_the_intervals():
    """With m = 3 rows a person each node adds all noise of three times the size, not its share, and central knows."""
    rows = pooled().assign(who=np.arange(1200))
    with network(rows=rows, schema=schema_of(person="who", m=3)) as found:
        several = found.run(**JOB, epsilon=8)
    with network() as found:
        one = found.run(**JOB, epsilon=8)
    ratio = column(several, "std_error_noise") / column(one, "std_error_noise")
    assert ratio == pytest.approx(3 * 3**0.5 * np.ones(4), rel=0.35)


def direct(X, y, sigma, rng, clip=1.5):
    """The same from continuous noise, without a network: 5 ms."""
    fit, model = noisy.Fit([0.0, 1.0], np.eye(X.shape[1] + 1)), Glm(X.shape[1], 2)
    while fit.used < noisy.PARTS:
        parts, t = fit.parts, fit.used
        q, longest = noisy.size(len(fit.T), first=t == 0), fit.longest(clip) if t else (0.0, 0.0)

        def of_rows(X, y, t=t, longest=longest):
            if t == 0:
                return noisy.first_contributions(X, y, fit.T, (0, 1))
            return noisy.contributions(model, X, y, fit.b, fit.T, (0, 1), longest)

        own = sigma / parts**0.5
        total = bounded.bounded_sum(of_rows, X, y, q, bounded.ROW) / bounded.ROW + rng.normal(0, own, q)
        fit.begin(model, total, own) if t == 0 else fit.advance(model, total, own, clip)
        fit.used += parts
    return fit


@pytest.mark.parametrize(("epsilon", "n"), [(8, 700), (1, 4000)])
def test_intervals_cover_the_truth(epsilon, n):
    """150 tables of 5 coefficients: 93 to 97% were measured with more; here, three standard errors of a share more."""
    rng, sigma = np.random.default_rng(0), accountant.calibrated(Plan(statistics=10), epsilon, 1e-5).statistics_noise
    b, covered = np.array([1.0, -0.8, 0.5, 0.0, -0.3]), []
    for _ in range(150):
        X = np.column_stack([rng.uniform(-1, 1, (n, 2)), rng.random((n, 2)) < 0.3])
        y = (rng.random(n) < 1 / (1 + np.exp(-X @ b[:-1] - b[-1]))) * 1.0
        fit = direct(X, y, sigma, rng)
        covered.append(np.abs(fit.b - b) < 1.96 * np.sqrt(np.diag(fit.covariance)))
    assert 0.92 < np.mean(covered) < 0.98


def test_a_remark_says_that_noise_hides_effects():
    with network() as found:
        clear, hidden = found.run(**JOB, epsilon=8), found.run(**JOB, epsilon=0.4)
    assert diagnostics.hidden_effects(clear) == []
    [line, *_] = diagnostics.warnings_about(hidden)
    assert "noise" in line and "use fewer columns (--features), a larger epsilon" in line
    assert "of noise" in str([c.header for c in tables.coefficients_table(clear).columns])
    assert tables.fit_of(clear) == "odds of y=1; binomial, link logit; 1,200 rows, 1,196 degrees of freedom"


def test_a_restart_at_the_end_asks_for_no_further_sum(monkeypatch):
    """There is no budget left for one, although four requests would be allowed."""

    def killed(kept):
        raise Killed

    with network(keep=True) as found:
        with monkeypatch.context() as patch, pytest.raises(Killed):
            patch.setattr(Checkpoint, "remove", killed)
            found.run(**JOB, epsilon=8)
        result = found.run(**JOB, epsilon=8)
    assert "stopped" not in result and len(result["history"]) == 3 < noisy.MOST


def test_a_finished_job_cannot_be_resumed():
    """Its budget is used up: a further request would take no part of one."""
    with network() as found:
        first = found.run(**JOB, epsilon=1)
        with pytest.raises(
            (CollectResultsError, SafeError, UserInputError), match="resume: the earlier job has finished"
        ):
            found.run(**JOB, epsilon=1, resume=first)


def test_noise_that_hides_everything_is_one_line():
    fit = noisy.Fit([0.0, 1.0], np.eye(3))
    with pytest.raises(SafeError, match="noise hides even the number of rows"):
        fit.begin(Glm(2, 2), np.zeros(noisy.size(3, first=True)), 100.0)


@pytest.mark.parametrize(
    ("wrong", "says", "error"),
    [
        ({"preprocess": ["standardize"]}, "no noise covers what it reads", UserInputError),
        ({"clip": None, "epsilon": None}, "privacy budget", CollectResultsError),
        ({"epsilon": 10}, "What would fit", CollectResultsError),
        ({"l2": 1.0}, "l2=1.0 cannot be used with clip", UserInputError),
        ({"holdout": 0.2}, "holdout=0.2 cannot be used with clip", UserInputError),
        ({"weights": "dose"}, "weights=dose cannot be used with clip", UserInputError),
        ({"offset": "dose"}, "offset=dose cannot be used with clip", UserInputError),
        ({"rounds": 3}, "expected at least 4 with clip", UserInputError),
        ({"clip": None}, "epsilon=1.0 needs clip", UserInputError),
        ({"family": "gaussian"}, "label y is a class", CollectResultsError),
    ],
)
def test_what_noise_does_not_cover_is_refused(wrong, says, error):
    with network() as found, pytest.raises(error, match=says):
        found.run(**{**JOB, "epsilon": 1, **wrong})
