"""Rows from tables, arrays and folders of images."""

import numpy as np
import pandas as pd
import pytest
from helpers import table, train
from vantage6.algorithm.tools.exceptions import (
    DataError,
)

from v6_federated.data import source
from v6_federated.messages.job import DataSpec
from v6_federated.rules.policy import Policy


def test_a_missing_value_is_refused_by_its_column_alone():
    """Infinite values first, which no step fills."""
    rows = table(20)
    rows.loc[7, "x2"] = np.nan
    for value, says, cure in [(1.0, "missing values in", "--preprocess impute"), (np.inf, "infinite values ", "corr")]:
        rows.loc[3, "x1"] = value
        with pytest.raises(DataError) as error:
            source.Source(table=rows).rows(DataSpec())
        text = str(error.value)
        assert text.startswith(says) and cure in text and "7" not in text and ("impute" in text) == (value == 1)
        assert f"the column(s) {'x2' if value == 1 else 'x1'}; " in text


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (DataSpec(label="age"), "no column age"),
        (DataSpec(features=["x0", "x9"]), "no column x9"),
        (DataSpec(features=["x0", "label"]), "among the features"),
    ],
)
def test_columns_that_the_table_lacks_are_refused(spec, says):
    with pytest.raises(DataError, match=says):
        source.Source(table=table(20)).rows(spec)


def test_text_in_a_feature_is_refused_without_quoting_it():
    rows = table(20).astype({"x0": object})
    rows.loc[2, "x0"] = "Mr Smith"
    with pytest.raises(DataError) as error:
        source.Source(table=rows).rows(DataSpec())
    assert "x0" in str(error.value) and "Smith" not in str(error.value)


def test_rows_cannot_be_changed_by_a_call(hospitals):
    rows, _ = source.Source(table=hospitals[3]).prepared(DataSpec(classes=[0, 1]), 3, Policy.of("trusting"))
    with pytest.raises(ValueError, match="read-only"):
        rows.X[0] = 0


def test_held_out_rows_come_in_multiples_of_the_minimum():
    """The difference of two jobs with other holdouts is about no fewer rows than the minimum."""
    sizes = {len(source.split(40, holdout, 7)[1]) for holdout in np.linspace(0.01, 0.99, 50)}
    assert sizes == {10, 20, 30, 40}
    ten, twenty = (set(source.split(40, holdout, 7)[1]) for holdout in (0.25, 0.5))
    assert ten < twenty
    assert len(source.split(19, 0.5, 7)[1]) == 0 and len(source.split(100, 0.1, 7, step=50)[1]) == 50


@pytest.mark.parametrize("kind", [np.int64, np.float64, np.uint32])
def test_arrays_far_from_zero_keep_their_digits(kind):
    """A table and arrays of the same numbers give the same model."""
    rng = np.random.default_rng(1)
    X = (1_600_000_000 + rng.integers(0, 40, (60, 3))).astype(kind)
    y = (X[:, 0] > 1_600_000_020).astype(int)
    rows = pd.DataFrame(X, columns=list("abc")).assign(label=y)
    settings = {"rounds": 5, "lr": 0.5, "preprocess": ["standardize"]}
    one, two = (train("v6_fedavg", {1: n}, **settings) for n in (rows, (X, y)))
    assert one["weights"] == two["weights"]
