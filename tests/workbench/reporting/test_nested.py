"""Regressions and survival curves side by side, by what they have: against statsmodels."""

import re

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from helpers import train
from scipy import stats

from v6_workbench.cli.main import main
from v6_workbench.reporting import nested, page, spreadsheets, tables

N = 240


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(5)
    frame = pd.DataFrame({"age": rng.normal(60, 10, N), "bmi": rng.normal(27, 4, N), "dose": rng.normal(size=N)})
    eta = 0.04 * (frame.age - 60) + 0.08 * (frame.bmi - 27)
    time, end = rng.exponential(20, N) * np.exp(-eta), rng.uniform(5, 60, N)
    frame["months"], frame["dead"] = np.minimum(time, end), (time <= end) * 1
    frame["ill"], frame["cost"] = (rng.random(N) < 1 / (1 + np.exp(-eta))) * 1, 3 + eta + rng.normal(size=N)
    frame["visits"] = rng.poisson(np.exp(0.5 * eta))
    return frame


def fitted(rows, package, columns, label, **settings):
    """A regression of a label on some columns, at three hospitals."""
    nodes = {k: rows[k - 1 :: 3].reset_index(drop=True) for k in (1, 2, 3)}
    return train(package, nodes, features=columns, label=label, **settings)


def design(rows, columns):
    return sm.add_constant(rows[columns].to_numpy())


def p_of_glm(rows, label, family):
    small, large = (
        sm.GLM(rows[label], design(rows, columns), family=family).fit(tol=1e-14)
        for columns in (["age"], ["age", "bmi", "dose"])
    )
    return 2 * (large.llf - small.llf), stats.chi2.sf(2 * (large.llf - small.llf), 2)


def p_of_lm(rows, label):
    small, large = (sm.OLS(rows[label], design(rows, c)).fit() for c in (["age"], ["age", "bmi", "dose"]))
    statistic, p, _ = large.compare_f_test(small)
    return statistic, p


def p_of_cox(rows):
    hospital = np.arange(N) % 3
    small, large = (
        sm.PHReg(rows.months, rows[c].to_numpy(), rows.dead, strata=hospital, ties="efron").fit()
        for c in (["age"], ["age", "bmi", "dose"])
    )
    return 2 * (large.llf - small.llf), stats.chi2.sf(2 * (large.llf - small.llf), 2)


KINDS = {
    "binomial": ("v6_glm", "ill", {}, lambda r: p_of_glm(r, "ill", sm.families.Binomial())),
    "poisson": ("v6_glm", "visits", {"family": "poisson"}, lambda r: p_of_glm(r, "visits", sm.families.Poisson())),
    "gaussian": ("v6_glm", "cost", {"family": "gaussian"}, lambda r: p_of_lm(r, "cost")),
    "cox": ("v6_cox", "months", {"event": "dead"}, p_of_cox),
}


@pytest.fixture(scope="module", params=KINDS)
def pair(request, rows):
    package, label, settings, theirs = KINDS[request.param]
    names = {"small": ["age"], "large": ["age", "bmi", "dose"]}
    return {n: fitted(rows, package, c, label, **settings) for n, c in names.items()}, theirs(rows)


def test_nested_regressions_are_tested_as_statsmodels_does(pair):
    results, (statistic, p) = pair
    (found,) = nested.comparisons(results)
    assert (found.smaller, found.larger, found.df) == ("small", "large", 2)
    assert found.statistic == pytest.approx(statistic, rel=1e-6) and found.p == pytest.approx(p, rel=1e-5)
    assert found.test == ("F" if results["small"].get("family") == "gaussian" else "likelihood ratio")
    assert not nested.other_rows(results)


def texts(table):
    return [[str(cell) for cell in column.cells] for column in table.columns]


def test_no_column_has_nothing_but_dashes(pair, tmp_path):
    results, (_, p) = pair
    (fits,) = tables.regressions_tables(results)
    for table in (tables.table(results), fits, tables.nested_table(results)):
        assert not any("-" in cells for cells in texts(table))
    heads = [column.header for column in fits.columns]
    assert "AIC" in heads and ("deviance" in heads) != ("concordance" in heads)
    html = page.page(results)
    assert "a smaller AIC is better" in html and nested.comparisons(results)[0].test in html
    spreadsheets.write_all(results, tmp_path)
    (line,) = pd.read_csv(tmp_path / "comparisons.csv").to_dict("records")
    assert line["larger"] == "large" and line["p"] == pytest.approx(p, rel=1e-5)
    assert pd.read_csv(tmp_path / "results.csv").aic.notna().all()


NOT_NESTED = {
    "other rows": (["age"], {}, slice(0, 180)),
    "other columns": (["months"], {}, slice(None)),
    "another link": (["age"], {"link": "probit"}, slice(None)),
    "a penalty": (["age"], {"l2": 0.1}, slice(None)),
    "components of its columns": (["age", "dose"], {"preprocess": ["pca:1"]}, slice(None)),
}


@pytest.mark.parametrize("columns, settings, some", NOT_NESTED.values(), ids=NOT_NESTED)
def test_what_is_not_nested_in_the_same_rows_is_not_tested(rows, columns, settings, some):
    large = fitted(rows, "v6_glm", ["age", "bmi", "dose"], "ill")
    other = fitted(rows[some], "v6_glm", columns, "ill", **settings)
    results = {"large": large, "other": other}
    assert not nested.comparisons(results) and tables.nested_table(results) is None
    assert bool(nested.other_rows(results)) == (some != slice(None))


def test_each_is_tested_against_the_largest_that_is_nested_in_it(rows):
    names = {"a": ["age"], "b": ["age", "bmi"], "c": ["age", "bmi", "dose"], "alone": ["dose"]}
    found = nested.comparisons({n: fitted(rows, "v6_glm", c, "ill") for n, c in names.items()})
    assert [(one.smaller, one.larger) for one in found] == [("a", "b"), ("b", "c")]


def test_report_shows_regressions_and_curves_beside_each_other(rows, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows.to_csv("rows.csv", index=False)
    common = ["--data", "rows.csv", "--nodes", "3", "--out"]
    made = {
        "glm1": ["glm", "--label", "ill", "--features", "age"],
        "glm2": ["glm", "--label", "ill", "--features", "age,bmi"],
        "cox1": ["cox", "--label", "months", "--set", "event=dead", "--features", "age"],
        "km1": ["km", "--label", "months", "--set", "event=dead"],
        "km2": ["km", "--label", "months", "--set", "event=dead", "--set", "bins=20"],
    }
    for name, job in made.items():
        assert main(["run", *job, *common, name]) == 0
    capsys.readouterr()
    assert main(["report", *made]) == 0
    said = capsys.readouterr().out
    assert re.search(r"glm2 +glm1 +likelihood ratio", said)
    assert "concordance" in said and "median" in said and "accuracy " not in said


def test_a_group_that_is_not_shown_has_no_rows_beside_other_curves():
    """As central says it under masks, where fewer than three hospitals have rows of a group."""
    curve = {"n": 1283, "events": 95, "median": None, "rows": [{"end": 40.0}], "group": "u"}
    unseen = {**dict.fromkeys(("n", "events", "median")), "rows": [], "group": "rare", "hidden": "too few hospitals"}
    found = tables.medians_table({"a": {"curves_of_survival": [curve]}, "b": {"curves_of_survival": [unseen, curve]}})
    shown = [*zip(*(list(column.cells) for column in found.columns), strict=True)]
    of_u = "u", "1,283", "95", "not reached by 40"
    assert shown == [("a", *of_u), ("b", "rare", "", "", "not shown"), ("b", *of_u)]
