"""Coefficients and standard errors of ``glm`` beside statsmodels' on the pooled rows, on three real tables.

No document has these tables. Heart disease is at its four hospitals; the other tables are dealt.
"""

import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import statsmodels.api as sm

from benchmarks import tables
from v6_workbench.simulation import datasets
from v6_workbench.simulation.datasets import Dataset
from v6_workbench.simulation.experiments import Experiment

DOCUMENT = "glm"
F, L = sm.families, sm.families.links
MEAN = [f"mean {name}" for name in ("texture", "smoothness", "symmetry", "fractal dimension")]
HEART = ["age", "sex", "trestbps", "chol", "thalach", "exang", "oldpeak"]  # of which few values are missing
KINDS: list[tuple[str, str, str, Any]] = [
    ("heart disease", "binomial", "logit", F.Binomial()),
    ("heart disease", "binomial", "probit", F.Binomial(L.Probit())),
    ("heart disease", "binomial", "cloglog", F.Binomial(L.CLogLog())),
    ("breast-cancer", "binomial", "logit", F.Binomial()),
    ("diabetes", "gaussian", "identity", F.Gaussian()),
    ("diabetes", "gaussian", "log", F.Gaussian(L.Log())),
    ("diabetes", "poisson", "log", F.Poisson()),
    ("diabetes", "gamma", "log", F.Gamma(L.Log())),
    ("diabetes", "gamma", "inverse", F.Gamma(L.InversePower())),
]


def table_of(name: str, heart: pd.DataFrame) -> pd.DataFrame:
    """The columns that are used, the label last, without rows in which some are missing."""
    if name == "heart disease":
        rows = heart[["hospital", *HEART, "num"]].dropna()
        return rows.assign(num=(rows["num"] > 0).astype(int))
    loaded = datasets.load(name).rows
    assert isinstance(loaded, pd.DataFrame)
    return loaded[[*MEAN, loaded.columns[-1]]] if name == "breast-cancer" else loaded


def pooled(rows: pd.DataFrame, family: Any) -> tuple[np.ndarray, np.ndarray]:
    """statsmodels' coefficients and standard errors, the intercept first; on centred columns, then turned back."""
    X, label = rows.iloc[:, :-1].to_numpy(float), rows.iloc[:, -1].to_numpy()
    y = (label == np.unique(label)[-1]).astype(float) if isinstance(family, F.Binomial) else label.astype(float)
    center, scale = X.mean(axis=0), X.std(axis=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = sm.GLM(y, sm.add_constant((X - center) / scale), family=family)
        fitted = model.fit(tol=1e-14, tol_criterion="params", maxiter=300)
    T = np.diag(1 / np.append(1.0, scale))
    T[0, 1:] = -center / scale
    return T @ fitted.params, np.sqrt(np.diag(T @ fitted.cov_params() @ T.T))


def lines(heart: pd.DataFrame) -> Iterator[str]:
    """A line for each table, family, number of hospitals and aggregation."""
    yield ""
    yield from tables.head(
        "table", "family, link", "rows", "columns", "hospitals", "aggregation", "rounds", "coefficients off by, SE",
        "standard errors off by, relative", "kB up a hospital and round", "s",
    )  # fmt: skip
    for name, family, link, theirs in KINDS:
        rows = table_of(name, heart)
        own = "hospital" in rows  # otherwise they are dealt: in parts of sizes 1 : 2 : 3, or in many equal ones
        estimates, errors = pooled(rows.drop(columns=["hospital"] * own), theirs)
        for partition, nodes in [("column:hospital", 4)] if own else [("size", 3), ("iid", 18)]:
            for aggregation in ("plain", "masked"):
                experiment = Experiment(Dataset(name, rows), nodes, partition, 1, 1, holdout=0.0)
                begin = time.perf_counter()
                result = experiment.federated("glm", family=family, link=link, aggregation=aggregation)
                seconds = time.perf_counter() - begin
                found = result["coefficients"]
                b, se = (np.array([row[part] for row in found]) for part in ("estimate", "std_error"))
                up = sum(row["bytes_up"] for row in result["history"]) / len(result["history"]) / nodes
                yield tables.row(
                    name, f"{family}, {link}", len(rows), len(found) - 1, nodes, aggregation,
                    len(result["history"]), f"{np.max(np.abs(b - estimates) / errors):.1e}",
                    f"{np.max(np.abs(se / errors - 1)):.1e}", f"{up / 1e3:.1f}", f"{seconds:.1f}",
                )  # fmt: skip


def load(file: Any) -> pd.DataFrame:
    """The table of heart disease as it is in its file."""
    return pd.read_csv(file)


def main(heart: pd.DataFrame, full: bool) -> None:
    """Print and keep the table."""
    about = (
        "The largest difference of any coefficient from that of statsmodels on the pooled rows, in standard errors, "
        "and of any standard error, relative. Rounds are requests; bytes are those of an answer in JSON."
    )
    page = tables.Page(
        DOCUMENT, "Generalised linear models beside statsmodels", full, about, "", "heart_disease.csv", timed=True
    )
    tables.page(page, lines(heart), 4 * len(KINDS))
