"""Nonsense about a node's data, before the first round: which columns, classes, levels and statistics are refused."""

import math

import numpy as np
import pytest
from four_nodes import at, edited, run
from helpers import table
from vantage6.algorithm.tools.exceptions import CollectResultsError

from v6_federated.messages import codec
from v6_workbench.simulation.call_outcomes import CallOutcome

NODES = {k: table(40, seed=k) for k in (1, 2, 3)}
WORDS = {k: rows.assign(sex=["f", "m"] * 20) for k, rows in NODES.items()}


@pytest.mark.parametrize(
    "values",
    [
        {"features": None},
        {"features": [1]},
        {"label": 3},
        {"classes": None},
        {"classes": [{}]},
        {"classes": [math.nan, 1]},
        {"classes": [math.inf]},
        {"classes": [0, 1, 10**400]},
    ],
    ids=str,
)
def test_a_malformed_description_is_refused(values):
    says = (
        "round 0, describe: organization 2: sent (a malformed data description|JSON with a whole number of more than)"
    )
    with pytest.raises(CollectResultsError, match=says):
        run(at([2], edited(**values), "describe"), classes=None)


ONE, TWO = "did not sort its columns", "sent the kind of columns that are not its features"
OTHER, UNCOUNTED = "named levels of other columns", "named levels without their counts"


@pytest.mark.parametrize(
    ("function", "values", "says"),
    [
        ("describe", {"kinds": None}, ONE),
        ("describe", {"kinds": {"words": ["a"]}}, ONE),
        ("describe", {"kinds": {"words": ["nobody's"], "mixed": [], "empty": []}}, TWO),
        ("describe", {"kinds": {"words": [{}], "mixed": [], "empty": 1}}, TWO),
        ("describe", {"marks": {"nobody's": "."}}, "sent marks for missing values that are none"),
        ("describe", {"marks": {"age": "Mr Smith"}}, "sent marks for missing values that are none"),
        ("describe", {"marks": ["."]}, "sent marks for missing values that are none"),
        ("describe", {"classes": list(range(101))}, "named 101 classes; expected 100 at most"),
        ("fit_step", {"levels": None}, OTHER),
        ("fit_step", {"levels": {"other": {"a": 1}}}, OTHER),
        ("fit_step", {"levels": {"sex": ["f", "m"]}}, UNCOUNTED),
        ("fit_step", {"levels": {"sex": {"f": -3}}}, UNCOUNTED),
        ("fit_step", {"levels": {"sex": {"f": "3"}}}, UNCOUNTED),
        ("fit_step", {"levels": {"sex": {f"l{i}": 3 for i in range(101)}}}, "named 101 levels of a column"),
        ("fit_step", {"levels": {"sex": {"f" * 1001: 3}}}, "levels of a column, or one of more than 1000 letters"),
    ],
)
def test_nonsense_about_columns_of_words_is_refused(function, values, says):
    """The job goes on without that node if the others are enough."""
    settings = {"nodes": WORDS, "rounds": 1, "classes": None, "label": "label", "preprocess": ["onehot"], "retries": 0}
    outcomes = at([2], edited(**values), function)
    with pytest.raises(CollectResultsError, match=f"round 0, {function}: organization 2: .*{says}"):
        run(outcomes, **settings)
    result = run(outcomes, **settings, min_responses=2)
    assert [row["organization_id"] for row in result["undescribed"]] == [2] and len(result["history"]) == 1


@pytest.mark.parametrize(
    ("step", "name", "value"),
    [
        ("impute:mean", "mean", 1e39),
        ("impute:mean", "squares", -1.0),
        ("impute:mean", "squares", 1e200),
        ("impute:mean", "count", 1e6),
        ("standardize", "squares", -1.0),
    ],
)
def test_statistics_that_no_rows_have_are_refused(step, name, value):
    def alter(answer):
        arrays = codec.decode(answer["arrays"])
        return {**answer, "arrays": codec.encode({**arrays, name: np.full(arrays[name].shape, value)}, "float64")}

    outcomes = at([2], CallOutcome(alter=alter), "fit_step")
    result = run(outcomes, nodes=NODES, rounds=1, preprocess=[step], retries=0, min_responses=2)
    [row] = result["undescribed"]
    assert row["organization_id"] == 2 and row["reason"].startswith(f"sent {name} that")


def test_moments_that_are_in_bounds_but_not_together_are_refused():
    def alter(answer):
        arrays = codec.decode(answer["arrays"])
        huge = {name: np.full(arrays[name].shape, 3.4e38) for name in ("mean", "mean_rest")}
        return {**answer, "n": 2**53, "arrays": codec.encode({**arrays, **huge}, "float64")}

    outcomes = at([2], CallOutcome(alter=alter), "fit_step")
    result = run(outcomes, nodes=NODES, rounds=1, preprocess=["standardize"], retries=0, min_responses=2)
    [row] = result["undescribed"]
    assert row["reason"].startswith(f"sent means and sums of squares that {2**53} rows cannot have")
