"""Columns that few rows have."""

import dataclasses

import numpy as np
import pytest
from helpers import train
from vantage6.algorithm.tools.exceptions import CollectResultsError

from v6_federated.base.vantage6_api import PrivacyThresholdViolation
from v6_federated.data import source
from v6_federated.messages.job import DataSpec
from v6_federated.rules.policy import Policy


def test_a_column_that_few_rows_have_is_refused_whatever_fills_it(clinics):
    """If it were filled, its mean would be that of the few rows, and so would a model's parameters."""
    few = {k: rows.assign(load=np.where(np.arange(len(rows)) < 4, 48_213.0, np.nan)) for k, rows in clinics.items()}
    few = {k: rows[["load", "x0", "label"]] for k, rows in few.items()}
    for steps in (["impute:constant,value=0", "standardize"], ["impute:constant,value=0"], ["impute:mean"]):
        with pytest.raises(
            CollectResultsError, match=r"fewer than 10 rows have a value in the column\(s\) load "
        ) as told:
            train("v6_fedavg", few, rounds=1, preprocess=steps)
        assert "48213" not in str(told.value)
    words = {k: rows.assign(load=rows["load"].map({48_213.0: "BRCA1"}).astype(object)) for k, rows in few.items()}
    with pytest.raises(CollectResultsError, match=r"fewer than 10 rows have a value in the column\(s\) load "):
        train("v6_fedavg", words, rounds=1, preprocess=["impute:most_frequent", "onehot"])


def test_a_value_that_few_evaluated_rows_have_counts_as_missing(clinics):
    """A loss would reveal the value of the only row that has one. To train on such rows is refused."""
    rows = {k: table[["x0", "label"]].assign(rare=np.nan) for k, table in clinics.items()}
    told = []
    for value in (1.0, 50.0):
        for clinic in rows.values():
            clinic.loc[clinic.index[0], "rare"] = value
        spec = DataSpec(
            label="label",
            features=["x0", "rare"],
            classes=[0, 1],
            holdout=0.0,
            supervised=True,
            regression=False,
            categories=[],
            preprocess=[{"step": "impute", "fitted": {"values": {"rare": 0.0}}}],
        )
        database = source.Source(table=rows[1])
        evaluated, _ = database.prepared(spec, 1, Policy.of("trusting"), trains=False)
        told.append(evaluated.X[:, 1].tolist())
        with pytest.raises(PrivacyThresholdViolation, match="fewer than 10 rows have a value in the column.s. rare"):
            database.prepared(spec, 1, Policy.of("trusting"))
    assert told[0] == told[1] == [0.0] * len(rows[1])
    held = source.Source(table=rows[1].assign(rare=np.where(np.arange(len(rows[1])) < 15, 1.0, np.nan)))
    train_rows, held_out = held.prepared(dataclasses.replace(spec, holdout=0.3), 1, Policy.of("trusting"))
    assert train_rows.X[:, 1].sum() >= 10 and not held_out.X[:, 1].any()


def test_evaluators_need_not_have_what_training_needs(clinics):
    """Columns and levels of few rows are evaluated as a prediction would read them."""
    few = {
        k: rows.assign(m=np.where(np.arange(len(rows)) < 5, 1.0, np.nan) if k == 3 else 1.0)
        for k, rows in clinics.items()
    }
    few = {k: rows[["sex", "x0", "m", "label"]] for k, rows in few.items()}
    steps = ["impute:constant,value=0,columns=m", "impute:most_frequent", "onehot"]
    result = train("v6_fedavg", few, rounds=2, evaluators=[3], preprocess=steps)
    assert [row["evaluated"] for row in result["history"]] == [len(few[3])] * 2
