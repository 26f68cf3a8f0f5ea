"""Tables as hospitals have them: missing values that say something, codes of categories, dates."""

import numpy as np
import pandas as pd
import pytest
from helpers import fitted, refused_steps, table, train

from v6_federated.base.errors import SafeError
from v6_federated.data import preprocessing
from v6_federated.data.columns import Features
from v6_federated.data.steps import MissingIndicator

ROWS = 60


@pytest.fixture
def clinics():
    """Four tables: ``thal`` is a code that some rows lack, and at clinic 4 only 4 rows have ``ca``."""
    nodes = {k: table(ROWS, seed=k)[["x0", "x1", "label"]] for k in (1, 2, 3, 4)}
    for k, rows in nodes.items():
        rows.insert(0, "thal", np.where(np.arange(ROWS) % 4 == 0, np.nan, 3 + np.arange(ROWS) % 2))
        rows.insert(0, "ca", np.where(np.arange(ROWS) < (4 if k == 4 else 30), np.arange(ROWS) % 3, np.nan))
    return nodes


def names(result):
    """The columns after all steps."""
    data = result["data"]
    layout = preprocessing.layout(data["features"], data["categories"])
    return [*preprocessing.apply(layout, data["preprocess"]).names]


def test_an_indicator_is_1_where_there_is_no_value():
    features = Features(["a", "b"], np.array([[1, np.nan], [np.nan, np.nan]]), {"b": np.array(["x", None], object)})
    after = MissingIndicator.apply({"columns": ["a", "b"]}, features)
    assert [*after.names] == ["a", "b", "missing(a)", "missing(b)"]
    np.testing.assert_array_equal(after.X[:, 2:], [[0, 0], [1, 1]])


def test_a_column_nearly_empty_at_a_hospital_is_refused_with_three_cures(clinics):
    text = refused_steps(clinics, "impute:median")
    assert "organization 4: fewer than 10 rows have a value in the column(s) ca" in text
    for cure in ("--exclude ca", "--preprocess missing_indicator:ca", "--set organizations="):
        assert cure in text


def test_each_of_the_three_cures_works(clinics):
    rest = ["impute:median", "standardize"]
    for settings in (
        {"exclude": ["ca"], "preprocess": rest},
        {"preprocess": ["missing_indicator:ca", *rest]},
        {"organizations": [1, 2, 3], "preprocess": rest},
    ):
        train("v6_fedavg", clinics, rounds=1, **settings)


def test_what_is_marked_counts_as_empty_where_few_rows_have_it(clinics):
    """The 4 values of ca at clinic 4 have no influence on any statistic."""
    steps = ["missing_indicator:ca", "impute:mean", "standardize"]
    before = fitted(clinics, *steps)
    clinics[4].loc[:3, "ca"] = 1000.0
    assert fitted(clinics, *steps) == before
    clinics[4]["ca"] = np.nan
    assert fitted(clinics, *steps) == before


def test_an_indicator_of_few_rows_tells_nothing(clinics):
    """A column from which fewer than 3 rows differ is made constant, as any column."""
    clinics[1]["x0"] = clinics[1]["x0"].where(np.arange(ROWS) > 1)
    mean = fitted({1: clinics[1]}, "missing_indicator:x0", "impute:mean,columns=x0|ca|thal", "standardize")
    assert mean  # the moments are asked for after the indicator
    rows = Features(["m"], np.where(np.arange(ROWS) < 2, 1.0, 0.0)[:, None], {})
    assert not preprocessing.Levelling(3).fit(rows).X.any()


def test_codes_are_named_with_commas_and_filled_in_any_way(clinics):
    for fill in ("impute:most_frequent,columns=thal", "impute:constant,value=9,columns=thal", "impute:most_frequent"):
        steps = ["missing_indicator:ca,thal", fill, "impute:median", "onehot:thal", "standardize"]
        assert names(train("v6_fedavg", clinics, rounds=1, preprocess=steps))[1:3] == ["thal=3", "thal=4"], fill
    steps = ["impute:median,columns=x0,x1", "missing_indicator:ca"]
    assert "missing_indicator must come before all other steps" in refused_steps(clinics, *steps, error=SafeError)
    text = refused_steps(clinics, "missing_indicator:ca", "impute:median,columns=thal", "onehot:thal", error=SafeError)
    assert "those that onehot names" in text
    assert preprocessing.parse("onehot:columns=cp,thal").columns == ["cp", "thal"]
    assert preprocessing.parse("impute:median,columns=cp,thal").columns == ["cp", "thal"]


@pytest.mark.parametrize("dates", ["2024-03-01", "1.3.2024", "3/1/24", "2024-03-01T10:30:00", pd.Timestamp(2024, 3, 1)])
@pytest.mark.parametrize("steps", [[], ["onehot", "standardize"]])
def test_dates_are_refused_with_a_cure_and_not_quoted(clinics, dates, steps):
    nodes = {k: rows[["x0", "label"]].assign(day=dates)[["day", "x0", "label"]] for k, rows in clinics.items()}
    text = refused_steps(nodes, *steps)
    assert "the column(s) day hold dates; replace each date by a number, such as an age in years" in text
    assert "--exclude day" in text and "2024" not in text and "3/1" not in text
    train("v6_fedavg", nodes, rounds=1, exclude=["day"], preprocess=steps)
