"""How near ``cox`` on bins of time comes to Cox's model with one stratum, by the number of bins.

No document has this table. ``docs/methods/cox.md`` shows it.
"""

import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
import statsmodels.api as sm

from benchmarks import tables
from v6_workbench.simulation.mock import MockNetwork

BINS, SEEDS = (5, 10, 20, 50, 100), (1, 2, 3)
NODES = 4
PROFILES: Mapping[str, Mapping[str, str]] = {
    "trusting": {"V6_FEDERATED_PROFILE": "trusting"},
    "careful": {"V6_FEDERATED_PROFILE": "careful"},
}


def patients(n: int, seed: int) -> pd.DataFrame:
    """Patients whose hazard rises with time, with columns of different sizes, and censoring; all times differ."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"age": rng.normal(60, 10, n), "year": rng.integers(2000, 2020, n) * 1.0})
    X["dose"], X["ill"] = rng.exponential(1e-3, n), rng.integers(0, 2, n) * 1.0
    eta = 0.03 * (X.age - 60) + 0.02 * (X.year - 2010) + 200 * (X.dose - 1e-3) + 0.5 * X.ill
    event, censored = 10 * rng.weibull(1.5, n) * np.exp(-eta / 1.5), rng.exponential(12, n)
    return X.assign(dead=(event <= censored) * 1, months=np.minimum(event, censored))


def dealt(rows: pd.DataFrame, equal: bool) -> dict[int, pd.DataFrame]:
    """The rows at four hospitals of equal or of growing sizes."""
    n = len(rows)
    cuts = [0, n // 4, n // 2, 3 * n // 4, n] if equal else [0, n // 10, 3 * n // 10, 6 * n // 10, n]
    return {k: rows.iloc[cuts[k - 1] : cuts[k]].reset_index(drop=True) for k in range(1, NODES + 1)}


def theirs(rows: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """statsmodels' coefficients and standard errors of one stratum with Efron's ties, on standardised columns."""
    X = rows.drop(columns=["months", "dead"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = sm.PHReg(rows.months, (X - X.mean()) / X.std(), status=rows.dead, ties="efron").fit(disp=0, gtol=1e-12)
    return fitted.params / X.std().to_numpy(), fitted.bse / X.std().to_numpy()


def measured(rows: pd.DataFrame, equal: bool, profile: str, bins: int) -> tuple[float, float]:
    """The largest error of a coefficient, in standard errors, and of a standard error, relative."""
    with MockNetwork("v6_cox", dealt(rows, equal), environment=PROFILES[profile], on_round=lambda row: None) as network:
        result: dict[str, Any] = network.run(label="months", event="dead", strata="none", bins=bins)
    found = {row["name"]: row for row in result["coefficients"]}
    columns = [c for c in rows if c not in ("months", "dead")]
    b, se = (np.array([found[c][part] for c in columns]) for part in ("estimate", "std_error"))
    estimates, errors = theirs(rows)
    return float((np.abs(b - estimates) / errors).max()), float(np.abs(se / errors - 1).max())


def lines() -> Iterator[str]:
    """A line for each number of patients and profile."""
    yield ""
    yield from tables.head("patients", "hospitals", *(f"{bins} bins" for bins in BINS), "standard errors, from 20 bins")
    for n, equal in ((1500, True), (400, False)):
        for profile in PROFILES:
            cells, errors = [], [0.0]
            for bins in BINS:
                found = [measured(patients(n, seed), equal, profile, bins) for seed in SEEDS]
                off = [o for o, _ in found]
                cells.append(f"{min(off):.2f} to {max(off):.2f}")
                errors += [e for _, e in found] if bins >= 20 else []
            sizes = "four equal ones" if equal else "of 40 to 160"
            yield tables.row(f"{n:,}", f"{sizes}, `{profile}`", *cells, f"{100 * max(errors):.1f}%")


def main(dataset: Any, full: bool) -> None:
    """Print and keep the table; it needs no data from elsewhere."""
    about = (
        "The largest error of a coefficient of `cox` with `strata=none`, in standard errors of Cox's model with one "
        "stratum and Efron's ties on the pooled rows (statsmodels): the smallest and the largest of three seeds. Four "
        "columns, hazards that rise with time, 42 to 46% of the patients censored. Under `careful` answers are "
        "masked, and bins with few events are joined at each hospital. The last column is the largest error of a "
        "standard error, relative."
    )
    page = tables.Page("cox_bins", "Proportional hazards on bins of time", full, about, data="", timed=True)
    tables.page(page, lines(), 0)
