"""What is additive only in hospitals adds up to what one node with all rows and a column of hospitals would send.

Each reference is computed from one table, in which a column says who has which rows, and by nothing of the product.
"""

import functools
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import test_additive_sums as additive_sums
from additive_table import COMPARED, OF_HOSPITALS, only_in_hospitals, requests, table_of_hospitals
from honest import HONEST
from statsmodels.duration.hazard_regression import PHReg
from test_hospital_totals import PAGE

from v6_federated.masks.exact import Exact

ANSWERED = [(m, i) for m in HONEST for i, request in enumerate(requests(m)) if request[0] != "evaluate_own"]
HOSPITALS = range(1, 5)
BY = (1.0, 0.0, -3.0)  # the weights of a request, times


def test_what_is_additive_only_in_hospitals_is_compared_or_says_why_not():
    """A new sum of hospitals needs either: it is found by what is declared."""
    assert {(m, i) for m, i in ANSWERED if only_in_hospitals(m, requests(m)[i])} == {*OF_HOSPITALS}
    assert {case for case, said in OF_HOSPITALS.items() if said.startswith(COMPARED)} == {*REFERENCES}
    assert all(said.startswith((COMPARED, "none: ")) for said in OF_HOSPITALS.values())
    assert "\n".join(table_of_hospitals()) in PAGE.read_text(encoding="utf-8")


# ---- references: what one table with a column of hospitals gives


def of_rows(table: pd.DataFrame) -> np.ndarray:
    return table[["x0", "x1", "x2", "x3"]].to_numpy(float)


def by_hospital(table: pd.DataFrame):
    return [rows for _, rows in table.groupby("hospital")]


def stratified(table: pd.DataFrame, ties: str) -> PHReg:
    return PHReg(table["label"], of_rows(table), table["ill"], strata=table["hospital"], ties=ties)


def cox(table, sent, settings):
    """The gradient and minus the second derivatives of a partial likelihood whose strata are the hospitals."""
    fit, beta = stratified(table, "efron"), sent["weights"][:4]
    measures = [len(table), table["ill"].sum(), fit.loglike(beta), 0, 0]
    return {"gradient": fit.score(beta), "hessian": -fit.hessian(beta)[np.tril_indices(4)], "measures": measures}


def step_of_cox(table, sent, settings):
    """One step down the mean of minus the same, with ties as Breslow treats them."""
    fit, beta = stratified(table, "breslow"), sent["weights"][:4]
    return {
        "weights": np.append(0.1 * fit.score(beta) / len(table), 0.0),
        "train_loss": -fit.loglike(beta),
    }


def logistic(table, w):
    """The gradients (n, 5) and losses (n,) of rows."""
    X = np.column_stack([of_rows(table), np.ones(len(table))])
    y, z = table["label"].to_numpy(float), X @ w
    return X * (1 / (1 + np.exp(-z)) - y)[:, None], np.log1p(np.exp(-np.abs(z))) + np.maximum(z, 0) - y * z


def scaffold(table, sent, settings):
    """One step down the gradient in which a row of a hospital with n of them counts 1 / (4 n)."""
    gradients, losses = logistic(table, sent["weights"])
    weight = 1 / (4 * table.groupby("hospital")["x0"].transform("size").to_numpy())
    return {"dy": -0.1 * weight @ gradients, "train_loss": losses.sum()}


def log_rank(table, sent, settings):
    """Mantel 1966, whose strata are the hospitals; and which of them have rows of a group."""
    levels = [0, 1, 2]
    difference, covariance = np.zeros(3), np.zeros((3, 3))
    for rows in by_hospital(table):
        for t in rows["label"][rows["ill"] == 1].unique():
            at_risk = rows[rows["label"] >= t]
            share = np.array([(at_risk["x3"] == g).mean() for g in levels])
            happened = at_risk[(at_risk["label"] == t) & (at_risk["ill"] == 1)]
            n, d = len(at_risk), len(happened)
            difference += [(happened["x3"] == g).sum() for g in levels] - d * share
            covariance += d * (n - d) / max(n - 1, 1) * (np.diag(share) - np.outer(share, share))
    compared = sum(rows["x3"].nunique() > 1 for rows in by_hospital(table))
    return {
        "difference": difference,
        "covariance": covariance[np.tril_indices(3)],
        "compared": [compared],
        "contributes": [*(sum((rows["x3"] == g).any() for rows in by_hospital(table)) for g in levels), 0],
    }


def without_groups(table, sent, settings):
    return {"contributes": [table["hospital"].nunique(), 0]}


def with_a_level(table, sent, settings):
    return {"contributes": [sum((rows["x3"] == 1).any() for rows in by_hospital(table))]}


REFERENCES = {
    ("fedavg", 3): None,  # one step, which the node with all rows takes by itself
    ("fedavg", 13): with_a_level,
    ("fedavg", 17): step_of_cox,
    ("fedavg", 18): None,  # the same of a network, whose hospitals round their sums in float32
    ("scaffold", 0): scaffold,
    ("km", 0): log_rank,
    ("km", 1): without_groups,
    ("cox", 1): cox,
}


# ---- the comparison


def numbers(found: dict, name: str) -> np.ndarray:
    """What a node adds up, as float64."""
    given = found[name]
    if isinstance(given, Exact):
        return np.array([float(number * Fraction(2) ** given.exponent) for number in given.numbers])
    return np.ravel(getattr(given, "array", given)).astype(float)


def added(captured: dict, name: str, of=HOSPITALS) -> np.ndarray:
    """What central reads of the sum of some nodes: a mean by rows, or over hospitals, or a sum."""
    parts = captured[5][0].parts
    weight = next(part.weight for part in parts if part.name == name).partition("/")[0]
    rows = {k: captured[k][2] for k in of}
    total, exact = sum(rows.values()), isinstance(captured[5][1][name], Exact)  # which are sums over rows already
    if exact:
        by = dict.fromkeys(of, 1 / total if weight == "share" else 1)
    else:
        by = {k: {"share": n / total, "equal": 1 / len(rows), "rows": n}.get(weight, 1) for k, n in rows.items()}
    return sum(numbers(captured[k][1], name) * by[k] for k in of)


@functools.cache
def pooled(times: bool) -> pd.DataFrame:
    """All rows, with a column of hospitals."""
    dealt = additive_sums.dealt(times, hostile=False)
    return pd.concat([dealt[k].assign(hospital=k) for k in HOSPITALS], ignore_index=True)


IN_ROWS_TOO = (without_groups, with_a_level)  # these are sums over rows as well, so the deal does not matter


@pytest.mark.parametrize(("method", "i"), REFERENCES, ids=[f"{m}-{requests(m)[i][0]}-{i}" for m, i in REFERENCES])
def test_sums_of_hospitals_are_those_of_one_node_with_a_column_of_hospitals(method, i, tmp_path, monkeypatch):
    function, arrays, settings, job = requests(method)[i]
    items, of_one_table = only_in_hospitals(method, requests(method)[i]), REFERENCES[method, i]
    more = {}
    if i == 18:
        job, more = {"model": {**job["model"], "hidden": [3]}}, {"precision": "float32"}
        arrays = {"weights": np.random.default_rng(5).normal(size=4 * 3 + 3 + 2 * 3 + (3 + 1) * 2)}
    sent = [{**arrays, "weights": arrays["weights"] * by} for by in BY] if "weights" in arrays else [arrays]
    table, asked = pooled("event" in job.get("data", {})), [(each, settings) for each in sent]
    found = additive_sums.values_of(method, function, asked, job, monkeypatch, tmp_path, **more)
    for each, (captured, _) in zip(sent, found, strict=True):
        if of_one_table:
            reference = of_one_table(table, each, settings)
        else:
            reference = {name: added(captured, name, of=[5]) for name in items}
        assert {*reference} == items
        for name, expected in reference.items():
            np.testing.assert_allclose(added(captured, name), np.ravel(expected), rtol=2e-5, atol=2e-6)
        if of_one_table and of_one_table not in IN_ROWS_TOO:
            others = of_one_table(table.assign(hospital=np.roll(table["hospital"], 40)), each, settings)
            apart = [name for name in items if not np.allclose(others[name], reference[name], rtol=1e-3)]
            assert apart, "it does not depend on who has which rows"
