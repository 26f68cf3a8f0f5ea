"""Honest results of jobs over a block hold no table of two columns of levels with a cell of a few patients."""

import numpy as np
import pandas as pd
import pytest
from masked_jobs import run

from v6_federated.central import checkpoint, last_evaluation
from v6_federated.central.blocks import Pinned
from v6_federated.central.federation import Federation
from v6_federated.data import small_cells
from v6_federated.messages import codec
from v6_federated.models import details
from v6_gbdt import leaves, structures

CAREFUL = {"V6_FEDERATED_PROFILE": "careful", "V6_FEDERATED_CLASSES": "*"}
HOSPITALS = (1, 2, 3, 4)


def clinics() -> dict[int, pd.DataFrame]:
    """Two women in all have stage c; every hospital has many women, and many patients of stage c."""
    found = {}
    for k in HOSPITALS:
        rng = np.random.default_rng(k)
        sex, stage = rng.choice(["f", "m"], 90 + k), rng.choice(["a", "b", "c"], 90 + k)
        sex[(stage == "c")] = "m"
        if k in (1, 3):
            sex[np.flatnonzero(stage == "c")[0]] = "f"
        died = (rng.random(90 + k) < 0.4).astype(int)
        found[k] = pd.DataFrame({"sex": sex.astype(object), "stage": stage.astype(object), "died": died})
        found[k].insert(0, "age", rng.normal(60, 10, 90 + k).round())
    return found


def table_of(tables: dict[int, pd.DataFrame]) -> np.ndarray:
    """Patients by sex and stage over all hospitals."""
    pooled = pd.concat(tables.values())
    return pd.crosstab(pooled["sex"], pooled["stage"]).to_numpy()


def told(result: dict, steps: list[str]) -> np.ndarray:
    """The same table from the components in a result: all of them hold the whole covariance."""
    if steps[-1] == "pca:6":
        fitted = next(step["fitted"] for step in result["data"]["preprocess"] if step["step"] == "pca")
    else:
        fitted = result["weights"]
    found = codec.decode(fitted)
    V, n = found["components"].astype(float), result["history"][0]["n"]
    A = V.T @ np.diag(found["explained_variance"] * (n - 1)) @ V
    mean = codec.whole(found, "mean") if "mean_rest" in found else found["mean"].astype(float)
    products = A + n * np.outer(mean, mean)
    earlier = [step["fitted"] for step in result["data"]["preprocess"] if step["step"] == "standardize"]
    if earlier:
        standardize = codec.decode(earlier[0])
        center, scale = codec.whole(standardize, "mean"), standardize["scale"].astype(float)
        products = A * np.outer(scale, scale) + n * np.outer(center, center)
    return products[:2, 2:5]  # in the order of the columns


def job(package: str, mode: str, folder, steps: list[str]) -> dict:
    settings = {"preprocess": steps, "features": ["sex", "stage", "age"]}
    if package == "v6_pca":
        settings |= {"components": None}
    else:
        settings |= {"label": "died", "rounds": 1, "holdout": 0.0}
    size = 4 if mode == "pinned" else None
    return run(package, clinics(), mode, folder, size=size, environment=CAREFUL, **settings)


@pytest.mark.parametrize("mode", ["masked", "pinned"])
@pytest.mark.parametrize(
    ("package", "steps"),
    [("v6_pca", ["onehot"]), ("v6_pca", ["onehot", "standardize"]), ("v6_fedavg", ["onehot", "pca:6"])],
    ids=["pca", "pca after standardize", "a step pca"],
)
def test_all_components_of_levels_hold_no_small_cell(package, steps, mode, tmp_path, monkeypatch):
    """Without the cure the covariance tells that two women have stage c, and with it only the margins."""
    true = table_of(clinics())
    assert true[0, 2] == 2
    with monkeypatch.context() as patch:
        patch.setattr(small_cells, "changed", lambda products, *rest: np.zeros_like(products))
        np.testing.assert_allclose(told(job(package, mode, tmp_path / "before", steps), steps), true, atol=0.02)
    found = told(job(package, mode, tmp_path / "after", steps), steps)
    assert ((np.abs(found) < 0.02) | (found > 4.98)).all()
    np.testing.assert_allclose(found.sum(axis=0), true.sum(axis=0), atol=0.02)
    assert np.abs(found - true).max() < 5.02


def cells_of_state(result: dict) -> np.ndarray | None:
    """Women by stage from what a regression carries in its result; None if it has no Hessian."""
    kept = checkpoint.from_json(result["state"])["scoring"]
    if "H" not in kept["good"]:
        return None
    H, center, scale = (np.array(part) for part in (kept["good"]["H"], kept["center"], kept["scale"]))
    back = np.diag(scale)
    back[-1, :-1] = center[:-1]  # 1, x = (1, z) times this, transposed
    products = back.T @ H @ back
    return products[0, 1:3]


def test_a_regression_carries_no_products_of_levels_in_its_result(tmp_path, monkeypatch):
    """With family=gaussian a Hessian is the table itself; the job can still be resumed, to the same coefficients."""
    settings = {"preprocess": ["onehot:drop=first"], "features": ["sex", "stage"], "label": "age", "family": "gaussian"}
    how = {"size": 4, "environment": CAREFUL, **settings}
    true = table_of(clinics())
    with monkeypatch.context() as patch:
        patch.setattr(Federation, "write_without", lambda federation, **reduced: None)
        told = cells_of_state(run("v6_glm", clinics(), "pinned", tmp_path / "before", **how))
    np.testing.assert_allclose(true[1, 1:] - told, 0, atol=0.01)  # sex=m by stages b and c: the women are the others
    result = run("v6_glm", clinics(), "pinned", tmp_path / "after", **how)
    assert cells_of_state(result) is None
    again = run("v6_glm", clinics(), "pinned", tmp_path / "after", resume=result, rounds=3, **how)
    for one, other in zip(result["coefficients"], again["coefficients"], strict=True):
        assert one["estimate"] == pytest.approx(other["estimate"], abs=1e-9)
        assert one["std_error"] == pytest.approx(other["std_error"], rel=1e-9)


# ---- evaluations, and trees


def counts_of(result: dict) -> list[int]:
    """All counts of rows that the last evaluation of a result shows."""
    bins = result["curves"]["calibration"]
    observed = [round(b["n"] * b["observed"]) for b in bins if b["n"]]
    counts = [*np.ravel(result["final"]["confusion"]), *observed]
    counts += [b["n"] - inside for b, inside in zip([b for b in bins if b["n"]], observed, strict=True)]
    return [int(c) for row in result["subgroups"]["rows"] for c in np.ravel(row["confusion"])] + [
        int(c) for c in counts
    ]


def test_an_evaluation_of_a_study_shows_no_count_of_a_few_patients(tmp_path, monkeypatch):
    """Hospitals send exact counts; central rounds the sums over the block, and leaves out levels that few rows have."""
    tables = clinics()
    for k, table in tables.items():
        table["word"] = np.where(np.arange(len(table)) < (12 if k == 1 else 0), "rare", table["sex"])
    settings = {"features": ["age"], "preprocess": ["standardize"], "label": "died", "subgroup": "word", "holdout": 0.3}
    how = {"size": 4, "environment": CAREFUL | {"V6_FEDERATED_MINIMUM_ROWS_A_CLASS": "3"}, **settings, "rounds": 2}
    with monkeypatch.context() as patch:
        patch.setattr(Pinned, "rounding", None)
        patch.setattr(details, "of_a_block", lambda found, *rest: found)
        patch.setattr(last_evaluation, "FEWEST", 0)
        before = run("v6_fedavg", tables, "pinned", tmp_path / "before", **how)
    assert {row["level"] for row in before["subgroups"]["rows"]} == {"f", "m", "rare"}
    assert any(0 < c < 3 for c in counts_of(before))
    result = run("v6_fedavg", tables, "pinned", tmp_path / "after", **how)
    assert all(c == 0 or c >= 3 for c in counts_of(result)) and result["final"]["evaluated"] > 60
    assert "rare" in result["subgroups"]["suppressed"], "one hospital has it, and few of its held-out rows"
    assert abs(result["final"]["accuracy"] - before["final"]["accuracy"]) < 0.4  # of other held-out rows, about 70


@pytest.mark.parametrize("seed", range(20))
def test_no_leaf_of_a_study_is_about_few_rows(seed):
    """All rows stay in the tree, and no leaf has some but too few, unless the whole tree has."""
    rng = np.random.default_rng(seed)
    edges = [np.linspace(-1, 1, 20).astype(np.float32)] * 3
    structure = structures.drawn(rng, edges, 5, 4)
    size = int((structure[:, 0] == -1).sum())
    rows = rng.poisson(rng.choice([0.3, 4.0, 30.0], size))
    G, H = rng.normal(size=size) * rows, 0.25 * rows
    g, h, found = leaves.joined(structure, G, H, rows, 10)
    trees = np.split(np.arange(size), np.cumsum([int((t[:, 0] == -1).sum()) for t in _trees(structure)])[:-1])
    for own in trees:
        assert rows[own].sum() < 10 or ((found[own] == 0) | (found[own] >= 10)).all()
        np.testing.assert_allclose(
            [found[own].sum(), g[own].sum(), h[own].sum()], [rows[own].sum(), G[own].sum(), H[own].sum()]
        )
    kept = rows >= 10
    assert (found[kept] >= rows[kept]).all(), "no leaf of many rows loses any"


def _trees(structure: np.ndarray) -> list[np.ndarray]:
    """The single trees: each ends where as many leaves as splits, and one more, have been."""
    found, begin, open_ = [], 0, 1
    for i, row in enumerate(structure, start=1):
        open_ += 1 if row[0] != -1 else -1
        if not open_:
            found.append(structure[begin:i])
            begin, open_ = i, 1
    return found


def test_flags_in_arrays_hold_no_small_cell_either(tmp_path):
    """Columns of 0 and 1 are found by their moments: no step has made them, and they have no names."""
    flags = {}
    for k, table in clinics().items():
        X = np.column_stack([table["sex"] == "f", table["stage"] == "c", table["age"]]).astype(float)
        flags[k] = X, np.zeros(len(X), int)
    result = run("v6_pca", flags, "pinned", tmp_path, size=4, environment=CAREFUL, components=None)
    found, n = codec.decode(result["weights"]), result["history"][0]["n"]
    V, mean = found["components"].astype(float), found["mean"].astype(float)
    products = V.T @ np.diag(found["explained_variance"] * (n - 1)) @ V + n * np.outer(mean, mean)
    assert sum(int((X[:, 0] * X[:, 1]).sum()) for X, _ in flags.values()) == 2
    assert abs(products[0, 1]) < 0.02


def test_products_of_all_columns_are_refused_where_they_would_tell_tables_of_levels(tmp_path):
    """From products with as many columns as there are, the covariance itself follows. Numbers have no such tables."""
    how = {"size": 4, "environment": CAREFUL, "solver": "subspace", "rounds": 6}
    with pytest.raises(Exception, match="use solver=exact"):
        settings = {"preprocess": ["onehot"], "features": ["sex", "stage", "age"], "components": 5}
        run("v6_pca", clinics(), "pinned", tmp_path / "levels", **how, **settings)
    numbers = {k: pd.DataFrame(np.random.default_rng(k).normal(size=(60, 4)), columns=list("abcd")) for k in HOSPITALS}
    result = run("v6_pca", numbers, "pinned", tmp_path / "numbers", **how, components=4, features=list("abcd"))
    assert len(codec.decode(result["weights"])["explained_variance"]) == 4
