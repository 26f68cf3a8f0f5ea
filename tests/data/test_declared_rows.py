"""Rows that are moved into what a schema declares: nothing is refused that depends on a row."""

import numpy as np
import pandas as pd
import pytest

from v6_federated.base.vantage6_api import NodePermissionException
from v6_federated.data.declared import UNKNOWN, conformed
from v6_federated.data.source import Source
from v6_federated.rules.schema import Column, Schema

AGE, SEX = Column("age", "number", 0, 120), Column("sex", "words", levels=("f", "m"))
SCHEMA = Schema((AGE, SEX), "ill", classes=("no", "yes"))


def table(**columns) -> pd.DataFrame:
    whole = {"age": [30.0, 40.0, 50.0], "sex": ["f", "m", "f"], "ill": ["no", "yes", "no"], **columns}
    return pd.DataFrame(whole)


def test_numbers_move_to_the_nearest_bound_and_missing_ones_to_the_middle():
    found = conformed(Source(table=table(age=[-5, 1e300, np.nan])), SCHEMA).table
    assert found["age"].tolist() == [0, 120, 60]
    text = conformed(Source(table=table(age=["7", "old", None])), SCHEMA).table
    assert text["age"].tolist() == [7, 60, 60]
    assert conformed(Source(table=table(age=[np.inf, -np.inf, 3])), SCHEMA).table["age"].tolist() == [120, 0, 3]


def test_words_that_are_not_declared_become_one():
    found = conformed(Source(table=table(sex=["f ", "x", None])), SCHEMA).table
    assert found["sex"].tolist() == ["f", UNKNOWN, UNKNOWN]


def test_rows_whose_label_is_not_declared_are_idle():
    found = conformed(Source(table=table(ill=["no", "perhaps", None])), SCHEMA)
    assert found.idle.tolist() == [False, True, True] and set(found.table["ill"]) == {"no"}
    numbers = Schema((AGE, SEX), "ill", classes=(0, 1))
    found = conformed(Source(table=table(ill=[1.0, 0.0, 7.0])), numbers)
    assert found.table["ill"].tolist() == [1, 0, 0] and found.idle.tolist() == [False, False, True]


def test_columns_that_are_not_declared_are_gone():
    found = conformed(Source(table=table(name=["a", "b", "c"])), SCHEMA).table
    assert [*found.columns] == ["age", "sex", "ill"]


def test_a_person_has_at_most_m_rows():
    schema = Schema((AGE, SEX), "ill", classes=("no", "yes"), person="who", m=2)
    rows = pd.concat([table(who=[1, 1, 1]), table(who=[2, 1, None])], ignore_index=True)
    assert conformed(Source(table=rows), schema).idle.tolist() == [False, False, True, False, True, False]


def test_a_declared_column_that_is_missing_is_named():
    with pytest.raises(NodePermissionException, match=r"lacks the declared column\(s\) sex"):
        conformed(Source(table=table().drop(columns="sex")), SCHEMA)


def test_arrays():
    schema = Schema((Column("0", "number", 0, 1), Column("1", "number", -1, 1)), "y", classes=(0, 1))
    found = conformed(Source(X=np.array([[2.0, np.nan], [0.5, -9], [0, 0]]), y=np.array([1, 0, 5])), schema)
    assert found.X.tolist() == [[1, 0], [0.5, -1], [0, 0]] and found.y[:2].tolist() == [1, 0]
    assert found.idle.tolist() == [False, False, True]
    with pytest.raises(NodePermissionException, match="3 columns and schema.json 2"):
        conformed(Source(X=np.zeros((4, 3)), y=np.zeros(4)), schema)
