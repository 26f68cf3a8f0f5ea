"""The setting ``exclude``: columns that are not features, at every hospital that has them."""

import numpy as np
import pandas as pd
import pytest

from v6_federated.base.errors import SafeError
from v6_federated.base.vantage6_api import CollectResultsError, UserInputError
from v6_federated.rules.schema import Column, Schema
from v6_workbench.simulation.mock import MockNetwork, StudyPlan

ROWS = 40


def table(seed: int, **more: object) -> pd.DataFrame:
    """Rows of a hospital."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=ROWS)
    rows = {"id": np.arange(ROWS), "x": x, "z": rng.normal(size=ROWS), **more, "ill": (x > 0).astype(int)}
    return pd.DataFrame(rows)


def trained(databases, **settings):
    with MockNetwork("v6_fedavg", dict(enumerate(databases, 1))) as network:
        return network.run(rounds=1, lr=0.1, **settings)


def test_excluding_is_naming_the_others():
    databases = [table(1), table(2), table(3)]
    by_name = trained(databases, features=["x", "z"])
    excluded = trained(databases, exclude=["id"])
    assert excluded["data"] == by_name["data"] and excluded["data"]["features"] == ["x", "z"]
    assert excluded["weights"] == by_name["weights"] and excluded["settings"]["exclude"] == ["id"]


def test_a_column_that_one_hospital_alone_has_can_be_excluded():
    assert trained([table(1), table(3), table(2, note=["a"] * ROWS)], exclude=["id", "note"])["data"]["features"] == [
        "x",
        "z",
    ]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"exclude": ["idd"]}, "exclude=idd: no organization has such a column"),
        ({"exclude": ["ill"]}, "the label ill is excluded; remove it from exclude, or name another label"),
        ({"exclude": ["id"], "features": ["x"]}, "exclude cannot be used with features"),
    ],
)
def test_a_wrong_name_is_refused_since_an_identifier_could_stay(settings, says):
    with pytest.raises((SafeError, UserInputError, CollectResultsError), match=says):
        trained([table(1), table(2), table(3)], **settings)


def test_a_schema_hides_which_other_columns_there_are():
    """Otherwise ``exclude`` would ask a hospital, name by name, for columns that its operator has not declared."""
    schema = Schema(tuple(Column(name, "number", -9, 99) for name in ("id", "x", "z")), "ill", (0, 1))
    databases = {k: table(k, hidden=1.0) for k in range(1, 5)}
    with MockNetwork("v6_fedavg", databases, study=StudyPlan(schema=schema)) as network:
        job = {"rounds": 1, "aggregation": "pinned"}
        for name in ("hidden", "none"):  # one is in all tables, and one in none
            with pytest.raises(CollectResultsError, match=f"exclude={name}: no such feature in the schema"):
                network.run(**job, exclude=[name])
        assert network.run(**job, exclude=["z"])["data"]["features"] == ["id", "x"]
