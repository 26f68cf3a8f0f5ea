"""What folding and rounding by careful nodes do to results, also where there is nothing to find.

No document has these tables. ``docs/privacy.md`` names them. The functions that fold, round and leave out are called
directly, on rows whose labels are drawn from a known model, or on real ones.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import statsmodels.api as sm
from scipy import special
from sklearn import datasets

from benchmarks import tables
from v6_federated import models
from v6_federated.data import pca, small_cells, statistics
from v6_federated.data.columns import Features
from v6_federated.data.preprocessing import Levelling
from v6_federated.data.source import Rows
from v6_federated.models import metrics
from v6_federated.rules.policy import Policy
from v6_federated.rules.rounding import Rounding

CAREFUL = Policy.of("careful")
M = CAREFUL.minimum_rows_a_class
SHARES = (0.06, 0.10, 0.14, 0.18, 0.22, 0.30)  # of the rows, by hospital
EFFECTS = (0.0, 1.0)  # log odds ratios of the rare level and of the flag
LEVEL = 0.05


@dataclass(frozen=True)
class Table:
    """A table of which one level of a column of words is rare, and a column of numbers is a rare flag.

    Attributes:
        name: what the page calls it.
        numbers: columns of numbers, standardised (n, 2).
        words: the column of words (n,); ``rare`` is one of its words.
        flag: 1 for few rows (n,).
        rare: the word.
    """

    name: str
    numbers: np.ndarray
    words: np.ndarray
    flag: np.ndarray
    rare: str


def read() -> list[Table]:
    """The tables: two that libraries bring, and one that is made."""
    X, _ = datasets.load_breast_cancer(return_X_y=True)
    cut = np.array(["a", "b", "c", "d"])[np.searchsorted(np.quantile(X[:, 7], [0.5, 0.8, 0.97]), X[:, 7])]
    cancer = Table(
        "breast cancer (scikit-learn), concave points cut into levels", X[:, [0, 4]], cut, X[:, 19] > 0.0105, "d"
    )
    fair = sm.datasets.fair.load_pandas().data.iloc[::5]
    words = np.array([f"occupation {int(k)}" for k in fair["occupation"]])
    words = np.where(words == "occupation 1", "occupation 6", words)
    flag = fair["age"].to_numpy() == 17.5
    survey = Table(
        "survey of 1978 (statsmodels' `fair`), a fifth of its rows",
        fair[["yrs_married", "religious"]].to_numpy(),
        words,
        flag,
        "occupation 6",
    )
    rng = np.random.default_rng(2026)
    made = rng.choice(["a", "b", "c", "d"], 1500, p=[0.5, 0.3, 0.17, 0.03])
    made_flag = rng.random(1500) < 0.02
    adults = Table("made: 1,500 adults", rng.normal(size=(1500, 2)), made, made_flag, "d")
    return [cancer, survey, adults]


def dealt(n: int, rng: np.random.Generator) -> list[np.ndarray]:
    """The rows of each hospital."""
    return np.split(rng.permutation(n), (np.cumsum(SHARES)[:-1] * n).astype(int))


def design(table: Table, rows: np.ndarray, folds: bool) -> np.ndarray:
    """The columns of a hospital's rows, with 1 last: numbers, the flag, and the levels but the first."""
    numbers = np.column_stack([table.numbers[rows], table.flag[rows] * 1.0])
    features = Features(
        ["x", "z", "flag", "word"],
        np.column_stack([numbers, np.full(len(rows), np.nan)]),
        {"word": table.words[rows].astype(object)},
    )
    levels = sorted({*table.words})[1:]
    if folds:
        features = features.folded(M)
        numbers = Levelling(CAREFUL.minimum_rows_a_side).fit(Features(["x", "z", "flag"], numbers, {})).X
    of_levels = [np.array([word == level for word in features.words["word"]]) * 1.0 for level in levels]
    return np.column_stack([numbers, *of_levels, np.ones(len(rows))])


def fitted(X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients of a logistic regression, and their standard errors; NaN of a column that is constant."""
    used = np.append(X[:, :-1].std(axis=0) > 0, True)
    b, se = np.full((2, X.shape[1]), np.nan)
    beta = np.zeros(used.sum())
    for _ in range(25):
        mu = special.expit(X[:, used] @ beta)
        H = X[:, used].T @ ((mu * (1 - mu))[:, None] * X[:, used])
        step = np.linalg.solve(H + 1e-9 * np.eye(len(H)), X[:, used].T @ (y - mu))
        beta = beta + step
        if np.abs(step).max() < 1e-9:
            break
    b[used], se[used] = beta, np.sqrt(np.diag(np.linalg.inv(H + 1e-9 * np.eye(len(H)))))
    return b, se


@dataclass(frozen=True)
class Found:
    """What a coefficient's estimates are like.

    Attributes:
        bias: their mean, less the true one.
        rejects: the share of runs in which p is below ``LEVEL``.
        covers: the share of runs whose interval has the true one.
    """

    bias: float
    rejects: float
    covers: float

    @classmethod
    def of(cls, b: np.ndarray, se: np.ndarray, true: float) -> "Found":
        """From estimates and standard errors (runs,)."""
        known = np.isfinite(b) & (se < 10)  # not of a level that is separated
        b, se = b[known], se[known]
        z = special.ndtri(1 - LEVEL / 2)
        return cls(
            float(b.mean() - true), float((np.abs(b) > z * se).mean()), float((np.abs(b - true) < z * se).mean())
        )


def simulated(table: Table, effect: float, runs: int) -> dict[str, tuple[Found, Found, float]]:
    """By coefficient, what all rows find, what they find folded, and the share of its rows that are folded."""
    rng = np.random.default_rng(2026)
    levels = sorted({*table.words})[1:]
    at = {"rare level": 3 + levels.index(table.rare), "flag": 2, "column of numbers": 0}
    true = np.zeros(3 + len(levels) + 1)
    true[[0, 1]] = 0.4, -0.3
    true[[at["rare level"], at["flag"]]] = effect
    true[-1] = -0.5
    found = {name: np.full((2, 2, runs), np.nan) for name in at}
    lost = {name: np.zeros(2) for name in at}
    for r in range(runs):
        rows = dealt(len(table.words), rng)
        exact, folded = (np.concatenate([design(table, own, folds) for own in rows]) for folds in (False, True))
        for name, j in at.items():
            lost[name] += [(exact[:, j] != folded[:, j]).sum(), (exact[:, j] != 0).sum()]
        center, scale = exact[:, :2].mean(axis=0), exact[:, :2].std(axis=0)
        for X in (exact, folded):
            X[:, :2] = (X[:, :2] - center) / scale
        y = rng.random(len(exact)) < special.expit(exact @ true)
        for k, X in enumerate((exact, folded)):
            b, se = fitted(X, y)
            for name, j in at.items():
                found[name][k, :, r] = b[j], se[j]
    shares = {name: float(folded / rows) for name, (folded, rows) in lost.items()}
    return {
        name: (Found.of(b[0], se[0], true[at[name]]), Found.of(b[1], se[1], true[at[name]]), shares[name])
        for name, (b, se) in ((name, of.transpose(1, 0, 2)) for name, of in found.items())
    }


def evaluations(runs: int) -> dict[str, np.ndarray]:
    """Accuracy and AUC of held-out rows, less those of exact counts (runs, 2): rounded by nodes, or by central."""
    X, y = datasets.load_breast_cancer(return_X_y=True)
    X = np.column_stack([(X[:, [0, 4]] - X[:, [0, 4]].mean(axis=0)) / X[:, [0, 4]].std(axis=0)]).astype(np.float32)
    model = models.build({"name": "logreg", "features": 2, "classes": 2})
    rng = np.random.default_rng(2026)
    found = {"each node": np.zeros((runs, 2)), "central, over the block": np.zeros((runs, 2))}
    for r in range(runs):
        rows = [own[: max(10, 10 * round(0.2 * len(own) / 10))] for own in dealt(len(y), rng)]
        w = np.array([-3.5, -0.8, 0.6], np.float32) + rng.normal(0, 0.2, 3).astype(np.float32)

        def counted(roundings: Sequence[Rounding | None], rows: Any = rows, w: Any = w) -> list[dict[str, Any]]:
            pairs = zip(rows, roundings, strict=True)
            return [metrics.evaluate(model, w, Rows(X[own], y[own]), 2, CAREFUL.score_bands, one) for own, one in pairs]

        secrets = [int(s) for s in rng.integers(0, 2**62, len(rows))]
        plain = counted([None] * len(rows))
        sums = [metrics.to_sums(one, 2, CAREFUL.score_bands) for one in plain]
        block = metrics.of_sums(
            {name: np.sum([s[name] for s in sums], axis=0) for name in sums[0]}, Rounding(M, M // 2)
        )
        exact = metrics.combine(plain)
        ways = {"each node": counted([Rounding.of(M, s) for s in secrets]), "central, over the block": [block]}
        for name, answers in ways.items():
            both = metrics.combine(answers)
            found[name][r] = [both[measure] - exact[measure] for measure in ("accuracy", "auc")]
    return found


def medians(table: Table, runs: int) -> tuple[float, float]:
    """How far medians are from exact ones, in standard deviations of the column: rounded by nodes, and by central."""
    rng = np.random.default_rng(2026)
    found = []
    for _ in range(runs):
        at = statistics.edges(-3.0, 3.0)
        x = (table.numbers[:, 0] - table.numbers[:, 0].mean()) / table.numbers[:, 0].std() + rng.normal(
            0, 0.01, len(table.numbers)
        )
        counts = np.array([np.searchsorted(np.sort(x[own]), at, side="right") for own in dealt(len(x), rng)])
        own, block = (M * np.round(counts / M)).sum(axis=0), M * np.round(counts.sum(axis=0) / M)
        exact = np.interp(len(x) / 2, counts.sum(axis=0), at)
        found.append([abs(np.interp(len(x) / 2, c, at) - exact) for c in (own, block)])
    nodes, central = np.mean(found, axis=0)
    return float(nodes), float(central)


def components(table: Table) -> tuple[int, float, float]:
    """Small cells of a table of two columns of levels; and the largest change of a share of variance, and of a loading.

    The columns are the levels, the flag, and a number that is cut into three levels.
    """
    cut = np.array(["p", "q", "r"])[np.searchsorted(np.quantile(table.numbers[:, 0], [0.3, 0.9]), table.numbers[:, 0])]
    columns = {"word": table.words, "flag": table.flag.astype(int).astype(str), "cut": cut}
    X, own = list[np.ndarray](), list[str]()
    for name, said in columns.items():
        for level in sorted({*said})[0 if name != "flag" else 1 :]:
            X.append(said == level)
            own.append(name)
    D = np.column_stack(X) * 1.0
    n, d = D.shape
    sums, squares = D.sum(axis=0), D.var(axis=0) * n
    change = small_cells.changed(D.T @ D, n, sums, squares, np.zeros(d), np.ones(d), own, CAREFUL.minimum_rows_a_side)
    A = (D - D.mean(axis=0)).T @ (D - D.mean(axis=0))
    before, after = pca.eigen(A, 3), pca.eigen(A + change, 3)
    names = [*columns]
    small = sum(
        int(((cells > 0) & (cells < M)).sum())
        for i, one in enumerate(names)
        for cells in (pd.crosstab(columns[one], columns[other]).to_numpy() for other in names[i + 1 :])
    )
    shares = np.abs(after.values - before.values).max() / np.trace(A)
    signs = np.sign((before.vectors * after.vectors).sum(axis=0))
    return small, float(shares), float(np.abs(after.vectors * signs - before.vectors).max())


def lines(runs: int) -> Iterator[str]:
    """A table of coefficients, one of evaluations, and one of medians and components."""
    read_tables = read()
    yield ""
    yield "**Coefficients** of a logistic regression; the true one is 0 or 1 of the rare level and of the flag:"
    yield ""
    heads = [f"{what}, {how}" for what in ("bias", "p < 5%", "95% interval covers") for how in ("all rows", "folded")]
    yield from tables.head("table", "coefficient", "true", "rows folded", *heads)
    for table in read_tables:
        for effect in EFFECTS:
            for name, (exact, folded, lost) in simulated(table, effect, runs).items():
                true = 0.4 if name == "column of numbers" else effect
                cells = [f"{f.bias:+.3f}" for f in (exact, folded)]
                cells += [f"{100 * getattr(f, part):.1f}%" for part in ("rejects", "covers") for f in (exact, folded)]
                yield tables.row(table.name, name, f"{true:g}", f"{100 * lost:.0f}%", *cells)
    yield ""
    yield "**Evaluations** of held-out rows (breast cancer, six hospitals): what rounding of counts changes"
    yield ""
    yield from tables.head("counts are rounded by", "accuracy: mean", "SD", "largest", "AUC: mean", "SD", "largest")
    for name, off in evaluations(runs).items():
        parts = [f"{x:.4f}" for m in range(2) for x in (off[:, m].mean(), off[:, m].std(), np.abs(off[:, m]).max())]
        yield tables.row(name, *parts)
    yield ""
    yield "**Medians** (mean error, in standard deviations of the column) and **principal components** of levels:"
    yield ""
    yield from tables.head(
        "table",
        "median, nodes round",
        "median, central rounds",
        "small cells",
        "change of a share of variance",
        "of a loading",
    )
    for table in read_tables:
        nodes, central = medians(table, max(runs // 10, 5))
        small, shares, loadings = components(table)
        yield tables.row(table.name, f"{nodes:.4f}", f"{central:.4f}", str(small), f"{shares:.5f}", f"{loadings:.4f}")


def main(dataset: Any, full: bool) -> None:
    """Print and keep the tables; they need no data from elsewhere."""
    runs = 1000 if full else 40
    about = (
        f"{runs:,} runs (seed 2026). Rows are dealt over six hospitals, with 6% to 30% of the rows each. Labels are "
        "drawn from a logistic model. *All rows*: nothing is folded. *Folded*: each `careful` hospital folds words "
        f"that fewer than {M} of its rows have, and makes a column constant that marks fewer than {M} of its rows."
    )
    page = tables.Page("folding", "What folding and rounding do to results", full, about, data="", timed=True)
    tables.page(page, lines(runs), 0)
