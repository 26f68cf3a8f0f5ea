"""What ``predict`` says about new rows, and what a result says that is too good."""

import numpy as np
import pandas as pd
import pytest
from helpers import train

from v6_federated.data.source import Source
from v6_workbench.reporting import diagnostics, prediction

STEPS = ["impute:median", "standardize"]


def rows(seed=0, leak=False, n=200):
    """Patients; with ``leak``, a feature repeats the label."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame({"age": rng.normal(60, 10, n), "height": rng.normal(1.7, 0.1, n)})
    table["ill"] = (table["age"] + rng.normal(0, 10, n) > 60).astype(int)
    table.insert(1, "diagnosis", table["ill"] if leak else rng.normal(size=n))
    return table


@pytest.fixture(scope="module")
def result():
    return train("v6_fedavg", {k: rows(k) for k in (1, 2, 3)}, rounds=3, lr=0.5, preprocess=STEPS)


def test_predict_names_empty_rows_and_columns_in_another_unit(result):
    new = rows(9, n=8).drop(columns="ill")
    assert prediction.warnings_about(result, Source(table=new)) == []
    new["height"] *= 100  # centimetres
    new.loc[2] = np.nan
    empty, far = prediction.warnings_about(result, Source(table=new))
    assert empty.startswith("row 3: no feature has a value, so the prediction says nothing about this patient")
    assert far.startswith("height: rows 1, 2, 4, 5, 6, ... more than 10 deviations from the training mean; check the")


@pytest.mark.parametrize("method", ["fedavg", "gbdt"])
def test_a_feature_that_repeats_the_label_is_remarked(method, result):
    settings = {"lr": 5.0, "preprocess": STEPS} if method == "fedavg" else {"min_rows_leaf": 10}
    told = train(f"v6_{method}", {k: rows(k, True) for k in (1, 2, 3)}, rounds=12, holdout=0.3, **settings)
    assert told["final"]["accuracy"] == 1
    (line,) = [line for line in diagnostics.warnings_about(told) if "does a feature say the label" in line]
    assert "predicted right" in line and "(--exclude diagnosis)" in line
    assert not any("say the label" in line for line in diagnostics.warnings_about(result))
