"""What ``predict`` says about new rows, and what a result says that is too good."""

import numpy as np
import pandas as pd
import pytest
from helpers import train
from sklearn.datasets import load_breast_cancer

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
    assert far == (
        "height: 7 of 8 rows (rows 1, 2, 4, 5, 6, ...) are about 100 times larger than those that the model was "
        "trained on; check the unit of this column"
    )


@pytest.mark.parametrize("method", ["fedavg", "gbdt"])
def test_a_feature_that_repeats_the_label_is_remarked(method, result):
    settings = {"lr": 5.0, "preprocess": STEPS} if method == "fedavg" else {"mode": "cyclic", "min_rows_leaf": 10}
    told = train(f"v6_{method}", {k: rows(k, True) for k in (1, 2, 3)}, rounds=12, holdout=0.3, **settings)
    assert told["final"]["accuracy"] == 1
    (line,) = [line for line in diagnostics.warnings_about(told) if "does a feature say the label" in line]
    assert "predicted right" in line and "(--exclude diagnosis)" in line
    assert not any("say the label" in line for line in diagnostics.warnings_about(result))


def said(result, **final):
    """What a result says of a copy of the label, if anything; ``final`` changes its evaluation."""
    changed = {**result, "final": result["final"] | final}
    return [line for line in diagnostics.warnings_about(changed) if "say the label" in line]


def linear(nodes, **settings):
    """A linear model that has nearly converged."""
    settings = {"preprocess": STEPS, "rounds": 30, "lr": 0.5, "server_momentum": 0.9} | settings
    return train("v6_fedavg", nodes, holdout=0.3, **settings)


def breast_cancer(copy=False):
    """Breast cancer at three hospitals; with ``copy``, a column is the label except in 1.4% of the rows."""
    table = load_breast_cancer(as_frame=True).frame
    if copy:
        wrong = np.arange(len(table)) % 70 == 0
        table.insert(3, "report", np.where(wrong, 1 - table["target"], table["target"]))
    return {k: table[k - 1 :: 3].reset_index(drop=True) for k in (1, 2, 3)}


def test_a_copy_with_a_few_wrong_rows_is_remarked():
    """Also if counts are rounded a little, but not if the evaluation says nothing about a few rows."""
    copy = linear(breast_cancer(copy=True))
    nearly = {"accuracy": 0.985, "auc": 0.998}
    (line,) = said(copy, **nearly)
    assert line.startswith(
        "nearly every held-out row is predicted right (accuracy 0.9850 and auc 0.9980), and the model"
    )
    assert "uses the column report " in line and "times as much as any other" in line and "(--exclude report)" in line
    assert "(auc 0.9980)" in said(copy, **nearly, confusion=[[3, 0], [0, 177]])[0], "the accuracy says nothing here"
    assert said(copy, **nearly, accuracy_error=0.03) == [line]
    assert said(copy, **nearly, accuracy_error=0.06) == said(copy, accuracy=0.97, auc=0.99) == []


def test_trees_that_use_one_column_are_remarked():
    (line,) = said(
        train("v6_gbdt", breast_cancer(copy=True), rounds=3, mode="cyclic", min_rows_leaf=20), accuracy=0.985, auc=0.9
    )
    assert "(accuracy 0.9850), and the model uses the column report " in line


def test_a_copy_in_words_is_one_column():
    nodes = breast_cancer(copy=True)
    for table in nodes.values():
        table["report"] = np.where(table["report"] == 1, "benign", "malignant")
    (line,) = said(linear(nodes, preprocess=["onehot", "standardize"]), accuracy=0.985)
    assert "the model uses the column report " in line


def test_a_good_model_of_many_columns_is_not_remarked():
    """Its AUC is above .995; and coefficients of columns in different units cannot be compared."""
    assert said(linear(breast_cancer()), accuracy=0.99, auc=0.998) == []
    assert said(linear(breast_cancer(copy=True), preprocess=[], lr=1e-7, rounds=1), accuracy=0.99, auc=0.998) == []
