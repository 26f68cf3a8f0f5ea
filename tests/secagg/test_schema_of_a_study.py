"""A study with a schema: nodes describe themselves from it, and take part in no job that leaves it."""

import numpy as np
import pandas as pd
import pytest

from v6_federated.base.errors import SafeError
from v6_federated.base.vantage6_api import CollectResultsError
from v6_federated.messages.job import DataSpec
from v6_federated.rules.schema import Column, Schema
from v6_workbench.simulation.mock import MockNetwork
from v6_workbench.simulation.studies import StudyPlan

SCHEMA = Schema(
    (Column("age", "number", 0, 120), Column("sex", "words", levels=("f", "m", "x"))), label="ill", classes=(0, 1)
)
CAREFUL = {"V6_FEDERATED_PROFILE": "careful"}


def hospital(n, seed):
    rng = np.random.default_rng(seed)
    age = rng.normal(60, 10, n).round()
    ill = (age + rng.normal(0, 5, n) > 60).astype(int)
    return pd.DataFrame({"age": age, "ill": ill, "sex": rng.choice(["m", "f"], n)})


def train(change=lambda table: table, schema=SCHEMA, environment=CAREFUL, **settings):
    tables = {k: change(hospital(60 + 10 * k, k)) for k in range(1, 5)}
    with MockNetwork("v6_fedavg", tables, study=StudyPlan(schema=schema), environment=environment) as network:
        return network.run(rounds=2, preprocess=["onehot", "standardize"], **settings)


def test_columns_classes_and_levels_are_the_schemas():
    """No row has the level x, and the label is not the last column of the tables."""
    result = train()
    assert result["privacy"]["aggregation"] == "pinned" and "stopped" not in result
    data = result["data"]
    assert (data["label"], data["features"], data["classes"]) == ("ill", ["age", "sex"], [0, 1])
    onehot = next(step["fitted"] for step in data["preprocess"] if step["step"] == "onehot")
    assert onehot == {"levels": {"sex": ["f", "m", "x"]}}


def test_features_may_be_named_without_the_label():
    """The last column of the tables, sex, is no label."""
    result = train(features=["sex", "age"])
    assert "stopped" not in result
    assert (result["data"]["label"], result["data"]["features"]) == ("ill", ["sex", "age"])


def test_columns_that_are_not_in_the_schema_are_not_used():
    """The operator forbids such a column, which comes last in the tables; jobs without names are not about it."""
    limits = CAREFUL | {"V6_FEDERATED_DISALLOWED_COLUMNS": "insurance"}
    result = train(lambda table: table.assign(insurance=np.arange(len(table))), environment=limits)
    assert "stopped" not in result
    assert (result["data"]["label"], result["data"]["features"]) == ("ill", ["age", "sex"])


def test_a_schema_without_a_label_trains_no_model():
    with pytest.raises(CollectResultsError, match="the schema of this study has no label, so no model can be trained"):
        train(schema=Schema(SCHEMA.columns, label=""))


def test_a_column_of_the_schema_that_a_table_lacks_is_named():
    with pytest.raises(CollectResultsError, match="no column age in the table"):
        train(lambda table: table.drop(columns="age"))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"label": "sex"}, "the label sex is not the schema's; expected ill"),
        ({"classes": [0, 1, 7]}, r"the class\(es\) 7 are not in the schema"),
        ({"features": ["age", "ill"], "label": "ill"}, "ill"),
    ],
)
def test_a_job_that_leaves_the_schema_is_refused(settings, says):
    with pytest.raises(CollectResultsError, match=says):
        train(**settings)


CODES = Schema(
    (Column("age", "number", 0, 120), Column("pain", "words", levels=("1", "2", "3"))), label="ill", classes=(0, 1)
)
FILLED = ["impute:most_frequent,columns=pain", "onehot:pain", "standardize"]


def with_codes(n, seed):
    rng = np.random.default_rng(seed)
    pain = rng.choice([1.0, 3.0, 3.0, np.nan], n)
    return hospital(n, seed).drop(columns="sex").assign(pain=pain)[["age", "pain", "ill"]]


def fill(aggregation, folder, schema=None):
    tables = {k: with_codes(60 + 10 * k, k) for k in range(1, 5)}
    required = {"V6_FEDERATED_AGGREGATION": aggregation}
    with MockNetwork(
        "v6_fedavg",
        tables,
        hospital_folder=folder,
        study=StudyPlan(schema=schema) if aggregation == "pinned" else None,
        environment={**CAREFUL, **required},
    ) as network:
        result = network.run(rounds=1, preprocess=FILLED, aggregation=aggregation)
    return {step["step"]: step["fitted"] for step in result["data"]["preprocess"]}


def test_codes_that_the_schema_declares_are_counted(tmp_path):
    """They are numbers in every table. Without the schema they have no names that all nodes know."""
    found, plain = fill("pinned", tmp_path / "study", CODES), fill("plain", tmp_path / "none")
    assert found["impute"] == plain["impute"] == {"values": {"pain": "3"}}
    assert found["onehot"] == {"levels": {"pain": ["1", "2", "3"]}}
    says = r"pain hold numbers, .* declare codes of categories in the study's schema as words with levels"
    with pytest.raises(Exception, match=says):
        fill("masked", tmp_path / "none")
    with pytest.raises(Exception, match=says):
        fill("pinned", tmp_path / "bare")


def test_a_job_cannot_name_levels_that_the_schema_does_not_have():
    """In a study hospitals count all rows of a level, also a rare one that a researcher has heard of."""
    declared = Schema((Column("sex", "words", levels=("f", "m")),), label="")
    declared.check_named(DataSpec(label=None, supervised=False, subgroup="sex", levels=["f", "m"]))
    with pytest.raises(SafeError, match=r"1 level\(s\) of the job are not the schema's of sex"):
        declared.check_named(DataSpec(label=None, supervised=False, subgroup="sex", levels=["f", "x"]))
