"""The names of columns after steps, without rows: as the steps make them of rows."""

import numpy as np
import pytest

from v6_federated.base.errors import SafeError
from v6_federated.data import preprocessing
from v6_federated.data.step_columns import names_after
from v6_federated.data.steps import STEPS
from v6_federated.messages import codec


def moments(d, **more):
    return codec.encode({**codec.two_parts("mean", np.zeros(d)), "scale": np.ones(d), **more})


FITTED = {
    "missing_indicator": {"columns": ["age", "sex"]},
    "impute": {"values": {"age": 50.0, "sex": "f"}},
    "onehot": {"levels": {"sex": ["f", "m"], "ward": []}, "dropped": {"ward": ["A"]}},
    "clip": {"bounds": {"age": [0, 120]}},
    "standardize": moments(6),
    "scale": moments(6),
    "pca": moments(6, components=np.eye(6)[:3]),
}
COLUMNS, WORDS = ["age", "sex", "dose", "ward"], ["sex", "ward"]


def test_names_are_those_of_rows_after_every_step():
    assert FITTED.keys() == STEPS.keys()
    steps, seen = [], set()
    for name, fitted in FITTED.items():
        steps.append({"step": name, "fitted": fitted})
        names = names_after(steps, COLUMNS)
        assert names == list(preprocessing.apply(preprocessing.layout(COLUMNS, WORDS), steps).names)
        seen.add(tuple(names))
    assert {len(names) for names in seen} == {3, 6} and len(seen) == 3, "indicators, levels, components"
    assert names_after(steps, []) == [], "arrays have no names"


@pytest.mark.parametrize(
    "step",
    [
        {"step": "onehot", "fitted": {"levels": {"sex": ["f", "f"]}}},
        {"step": "onehot", "fitted": None},
        {"step": "missing_indicator", "fitted": {"columns": [1]}},
        {"step": "missing_indicator"},
    ],
)
def test_malformed_steps_are_refused(step):
    with pytest.raises(SafeError, match="of a fitted step are malformed"):
        names_after([step], COLUMNS)
