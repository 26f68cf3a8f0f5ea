"""What a privacy budget costs ``glm``: errors of coefficients, and whether intervals that count the noise are right.

No document has these tables. Each try draws rows from a table, and their labels from known coefficients, so that the
truth is known. The sums, their bounds and the steps are those of the method.
"""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import statsmodels.api as sm
from scipy import special

from benchmarks import tables
from benchmarks.private_utility.heart import HOSPITAL, LABEL, LEVELS, RANGES, SCHEMA
from v6_federated.base.errors import SafeError
from v6_federated.noise import accountant, bounded
from v6_federated.noise.plan import Plan
from v6_glm import noisy
from v6_glm.families import Glm
from v6_workbench.simulation.mock import MockNetwork
from v6_workbench.simulation.studies import StudyPlan

DOCUMENT = "private_glm"
DELTA, EPSILONS, CLIP, TRIES, FEW = 1e-5, (8.0, 3.0, 1.0), 1.5, 500, 50
NODES, COLLUDERS = 4, 1  # each node adds its share of the noise as if the colluders added none
Z = 1.959964  # of intervals of 95%
F, L = sm.families, sm.families.links


@dataclass(frozen=True)
class Case:
    """A table whose rows are drawn, and the truth.

    Attributes:
        name: what it is called.
        X: the columns, between -1 and 1 (n, d).
        b: the true coefficients, the last of the intercept (d + 1,).
        n: rows that are drawn.
        family: of the label.
        bounds: of the label.
        labels: draws labels, from random numbers and linear predictors.
        theirs: statsmodels' family.
    """

    name: str
    X: np.ndarray
    b: np.ndarray
    n: int
    family: str
    bounds: tuple[float, float]
    labels: Callable[[np.random.Generator, np.ndarray], np.ndarray]
    theirs: Any


def binary(rng: np.random.Generator, eta: np.ndarray) -> np.ndarray:
    """Labels of a logistic regression."""
    return (rng.random(len(eta)) < special.expit(eta)) * 1.0


def clipped(heart: pd.DataFrame) -> pd.DataFrame:
    """The rows without a missing value in the ten columns, as nodes see them: words by code, numbers inside bounds."""
    rows = heart[[HOSPITAL, *RANGES, *LEVELS, LABEL]].dropna()
    rows = rows.assign(**{name: rows[name].map(dict(words)) for name, words in LEVELS.items()})
    return rows.assign(**{name: rows[name].clip(low, high) for name, (low, high, _) in RANGES.items()})


def design(rows: pd.DataFrame) -> pd.DataFrame:
    """The columns after ``onehot:drop=first``, numbers between -1 and 1."""
    found = {name: 2 * (rows[name] - low) / (high - low) - 1 for name, (low, high, _) in RANGES.items()}
    for name, words in LEVELS.items():
        found |= {f"{name}={word}": (rows[name] == word) * 1.0 for word in sorted(words.values())[1:]}
    return pd.DataFrame(found)


def of_heart(rows: pd.DataFrame, name: str, columns: Sequence[str] | None, n: int | None = None) -> Case:
    """Heart disease's columns, and the coefficients of its pooled rows as the truth."""
    X = design(rows)
    X = X[[c for c in map(str, X) if columns is None or c.partition("=")[0] in columns]]
    fitted = sm.GLM(rows[LABEL].astype(float), np.column_stack([X, np.ones(len(X))]), family=F.Binomial()).fit()
    return Case(name, X.to_numpy(), fitted.params.to_numpy(), n or len(X), "binomial", (0, 1), binary, F.Binomial())


def of_numbers(rows: pd.DataFrame, family: str) -> Case:
    """Labels that are numbers, of the same columns and 5,000 rows."""
    X = design(rows)[["age", "oldpeak", "sex=male", "exang=yes"]].to_numpy()
    b = np.array([0.5, -0.4, 0.3, 0.6, 0.2])
    kinds: Mapping[str, tuple[Any, tuple[float, float], Callable[[np.random.Generator, np.ndarray], np.ndarray]]] = {
        "gaussian": (F.Gaussian(), (-5, 5), lambda rng, eta: np.clip(eta + rng.normal(size=len(eta)), -5, 5)),
        "poisson": (F.Poisson(), (0, 12), lambda rng, eta: np.minimum(rng.poisson(np.exp(eta)), 12.0)),
        "gamma": (F.Gamma(L.Log()), (0.01, 12), lambda rng, eta: np.clip(rng.gamma(3, np.exp(eta) / 3), 0.01, 12)),
    }
    theirs, bounds, labels = kinds[family]
    return Case(f"{family}, 4 columns", X, b, 5000, family, bounds, labels, theirs)


@functools.cache
def noise_of(epsilon: float) -> float:
    """The noise of one of the parts of a job's budget."""
    return accountant.calibrated(Plan(statistics=noisy.PARTS), epsilon, DELTA).statistics_noise


def fitted(case: Case, X: np.ndarray, y: np.ndarray, sigma: float, rng: np.random.Generator) -> noisy.Fit:
    """What central finds from the sums of these rows, with noise that is continuous: discrete noise has no seed."""
    model = Glm(X.shape[1], 2 if case.family == "binomial" else 1, case.family)
    fit, own = noisy.Fit([*case.bounds], np.eye(model.size)), X.astype(np.float32)
    while fit.used < noisy.PARTS:
        parts, t = fit.parts, fit.used
        longest = fit.longest(CLIP) if t else (0.0, 0.0)

        def of_rows(X: np.ndarray, y: np.ndarray, t: int = t, longest: tuple[float, float] = longest) -> np.ndarray:
            if not t:
                return noisy.first_contributions(X, y, fit.T, case.bounds)
            assert fit.b is not None
            return noisy.contributions(model, X, y, fit.b, fit.T, case.bounds, longest)

        q, deviation = noisy.size(model.size, first=not t), sigma / parts**0.5
        total = bounded.bounded_sum(of_rows, own, y, q, bounded.ROW) / bounded.ROW + rng.normal(0, deviation, q)
        if t:
            fit.advance(model, total, deviation, CLIP)
        else:
            fit.begin(model, total, deviation)
        fit.used += parts
    return fit


def measured(case: Case, epsilon: float, tries: int) -> list[object]:
    """The cells of a line."""
    rng, sigma = np.random.default_rng(0), noise_of(epsilon) * (NODES / (NODES - COLLUDERS)) ** 0.5
    off, off_pooled, covers, covers_pooled, wide, of_noise, unsure, ours_theirs = ([] for _ in range(8))
    for _ in range(tries):
        X = case.X[rng.integers(0, len(case.X), case.n)]
        y = case.labels(rng, X @ case.b[:-1] + case.b[-1])
        theirs = sm.GLM(y, np.column_stack([X, np.ones(len(X))]), family=case.theirs).fit()
        fit = fitted(case, X, y, sigma, rng)
        assert fit.b is not None and fit.covariance is not None and fit.of_noise is not None
        errors, made = (np.sqrt(np.diag(part)) for part in (fit.covariance, fit.of_noise))
        off.append((fit.b - case.b) / theirs.bse)
        off_pooled.append((theirs.params - case.b) / theirs.bse)
        covers.append(np.abs(fit.b - case.b) < Z * errors)
        covers_pooled.append(np.abs(off_pooled[-1]) < Z)
        ours_theirs.append(np.abs(fit.b - theirs.params) < Z * made)
        wide.append(errors / theirs.bse)
        of_noise.append(made**2 / errors**2)
        unsure.append(fit.hidden > 0 or not fit.converged)
    by_column = 100 * np.mean(covers, axis=0)
    return [
        f"{epsilon:g}",
        f"{np.sqrt(np.mean(np.square(off))):.2f} ({np.sqrt(np.mean(np.square(off_pooled))):.2f})",
        f"{np.median(np.abs(off)):.2f} ({np.median(np.abs(off_pooled)):.2f})",
        f"{by_column.mean():.1f} ({by_column.min():.1f} to {by_column.max():.1f})",
        f"{100 * np.mean(covers_pooled):.1f}",
        f"{100 * np.mean(ours_theirs):.1f}",
        f"{np.median(wide):.2f}",
        f"{100 * np.median(of_noise):.0f}%",
        f"{100 * np.mean(unsure):.0f}%",
    ]


def lines(heart: pd.DataFrame, tries: int) -> Iterator[str]:
    """A line for each table and epsilon, then coefficients of one job of each epsilon."""
    rows = clipped(heart)
    few = ("age", "sex", "exang")
    cases = [
        of_heart(rows, "heart disease, 13 columns", None),
        of_heart(rows, "heart disease, 7 columns", ("age", "trestbps", "chol", "thalach", "oldpeak", "sex", "exang")),
        of_heart(rows, "heart disease, 3 columns", few),
        of_heart(rows, "20,000 rows like these, 13 columns", None, 20_000),
        *(of_numbers(rows, family) for family in ("gaussian", "poisson", "gamma")),
    ]
    yield ""
    yield from tables.head(
        "table", "rows", "epsilon", "error, root mean square (pooled)", "median (pooled)",
        "intervals with the truth, % (by column)", "pooled intervals, %", "noise alone, %", "width over pooled",
        "noise in the variance", "warning that noise hides effects",
    )  # fmt: skip
    for case in cases:
        for epsilon in EPSILONS:
            yield tables.row(case.name, f"{case.n:,}", *measured(case, epsilon, tries))
    yield ""
    yield f"Heart disease at its {NODES} hospitals, 13 columns: one job each, on nodes with a ledger."
    yield ""
    yield from job_lines(rows)


def job_lines(rows: pd.DataFrame) -> Iterator[str]:
    """The coefficients of jobs on mock nodes beside those of the pooled rows."""
    dealt = {
        k: part.drop(columns=HOSPITAL).reset_index(drop=True) for k, (_, part) in enumerate(rows.groupby(HOSPITAL), 1)
    }
    steps = ["onehot:drop=first"]
    profile = {
        "V6_FEDERATED_PROFILE": "private",
        "V6_FEDERATED_DELTA": f"{DELTA:g}",
        "V6_FEDERATED_EPSILON": "20",
        "V6_FEDERATED_EPSILON_PER_JOB": "20",
    }
    with MockNetwork("v6_glm", dealt, on_round=lambda row: None) as network:
        found = [network.run(preprocess=steps)]
    with MockNetwork(
        "v6_glm", dealt, environment=profile, study=StudyPlan(schema=SCHEMA), on_round=lambda row: None
    ) as network:
        for epsilon in EPSILONS[:2]:
            found.append(network.run(preprocess=steps, clip=CLIP, epsilon=epsilon))
        try:
            found.append(network.run(preprocess=steps, clip=CLIP, epsilon=EPSILONS[2]))
        except SafeError as error:
            yield str(error)
    yield from tables.head("coefficient", "without noise", *(f"epsilon {epsilon:g}" for epsilon in EPSILONS))
    for parts in zip(*(result["coefficients"] for result in found), strict=True):
        yield tables.row(parts[0]["name"], *(f"{row['estimate']:.3f} ({row['std_error']:.3f})" for row in parts))


def load(file: Any) -> pd.DataFrame:
    """The table of heart disease as it is in its file."""
    return pd.read_csv(file)


def main(heart: pd.DataFrame, full: bool) -> None:
    """Print and keep the tables."""
    tries = TRIES if full else FEW
    about = (
        f"Each line is {tries:,} trials: rows drawn from the table's columns with replacement, labels from the "
        "coefficients of its pooled rows (or from fixed ones), then `glm` with `clip=1.5`, delta 1e-5, and the noise "
        "of four hospitals in a study that assumes one colluder; seed 0. Errors of coefficients are in standard errors "
        "of the pooled rows' coefficients; in brackets those of the pooled rows' coefficients themselves. Then how "
        "many intervals of 95% hold the truth, over all coefficients, of the worst and of the best one; the same for "
        "the pooled rows without noise; how often the coefficients of the same pooled rows lie within 1.96 errors that "
        "noise alone makes (fewer than 95%, as long rows count for less than in the pooled estimate); how much wider "
        "intervals are; and how often the result says that noise hides effects. Bounds and clip were chosen on such "
        "trials with other seeds. Noise is continuous here, and discrete at nodes."
    )
    page = tables.Page(
        DOCUMENT, "What a privacy budget costs a regression", full, about, "", "heart_disease.csv", timed=True
    )
    tables.page(page, lines(heart, tries), 0)
