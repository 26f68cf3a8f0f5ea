"""What a result says about levels of categories, and about what nodes leave out because few rows have it."""

import csv

import numpy as np
import pandas as pd
import pytest

from v6_federated.base import text
from v6_workbench.reporting import diagnostics, page, pictures, spreadsheets, tables
from v6_workbench.reporting.levels import known_levels, levels_of
from v6_workbench.simulation.datasets import Dataset
from v6_workbench.simulation.experiments import Experiment

CAREFUL = {"V6_FEDERATED_PROFILE": "careful"}


def rows_of(n=240, rare=0):
    """Rows of four hospitals; ``rare`` rows of each smoke a pipe."""
    rng = np.random.default_rng(3)
    rows = pd.DataFrame({"hospital": [*"abcd"] * (n // 4), "age": rng.normal(60, 9, n)})
    rows["smoking"] = np.array(["ex", "never", "smoker"])[rng.integers(0, 3, n)]
    rows.loc[: 4 * rare - 1, "smoking"] = "pipe"
    rows["died"] = (rng.random(n) < 1 / (1 + np.exp(-(rows["age"] - 60) / 9))).astype(int)
    return rows


def fitted(rows, method="glm", environment=None, **settings):
    every = {k: environment for k in range(1, 5)} if environment else {}
    experiment = Experiment(Dataset("rows", rows), None, "column:hospital", environments=every, label="died")
    return experiment.federated(method, {"preprocess": ["onehot:drop=first"], **settings})


@pytest.fixture(scope="module")
def trusting():
    return fitted(rows_of())


def test_the_reference_is_in_table_page_picture_and_spreadsheet(trusting, tmp_path):
    lines = page.of_rich(tables.coefficients_table(trusting), "").rows
    assert [line[0] for line in lines] == ["intercept", "age", "smoking=ex", "smoking=never", "smoking=smoker"]
    assert lines[2][1] == "reference" and not any(lines[2][2:])
    whole = page.page({"it": trusting})
    assert '<th scope="row">smoking=ex</th><td>reference</td>' in whole
    (axis,) = pictures.coefficients(trusting).axes
    named = ["age", "smoking=ex (reference)", "smoking=never", "smoking=smoker"]
    assert [label.get_text() for label in axis.get_yticklabels()] == named
    estimates, at_one = axis.get_lines()[:2]
    assert [*estimates.get_ydata()] == [0, 2, 3], "each estimate is at its own name"
    assert ([*at_one.get_xdata()], [*at_one.get_ydata()]) == ([1], [1])
    spreadsheets.write_all({"it": trusting}, tmp_path)
    with (tmp_path / "coefficients.csv").open(newline="") as file:
        found = {row["name"]: row["reference"] for row in csv.DictReader(file)}
    assert found == {"intercept": "", "age": "", "smoking=never": "ex", "smoking=smoker": "ex"}


def test_the_reference_of_a_model_that_is_trained_is_shown_too(tmp_path):
    result = fitted(rows_of(), "fedavg", rounds=2)
    assert '<th scope="row">smoking=never</th><td>ex</td>' in page.page({"it": result})
    spreadsheets.write_all({"it": result}, tmp_path)
    with (tmp_path / "coefficients.csv").open(newline="") as file:
        found = {row["column"]: row["reference"] for row in csv.DictReader(file)}
    assert found == {"intercept": "", "age": "", "smoking=never": "ex", "smoking=smoker": "ex"}


def test_levels_that_the_model_knows_are_named():
    """Two rows of each hospital smoke a pipe: fewer than three, so no node names that level."""
    result = fitted(rows_of(rare=2))
    says = "levels that the model knows: smoking: ex (reference), never, smoker. Any other counts as the reference"
    assert says in diagnostics.warnings_about(result) and says in page.page({"it": result})
    more = {"step": "onehot", "fitted": {"levels": {"sex": ["f", "m"]}}}
    both = {"data": {"preprocess": [*result["data"]["preprocess"], more]}}
    assert known_levels(both) == [
        "levels that the model knows: smoking: ex (reference), never, smoker; sex: f, m. Any other counts as the "
        "reference, or as none of them where there is no reference"
    ]
    assert known_levels({"data": {"preprocess": [more]}})[0].endswith("sex: f, m. Any other counts as none of them")
    many = {"step": "onehot", "fitted": {"levels": {"place": [f"p{i}" for i in range(99)]}}}
    [one] = levels_of({"data": {"preprocess": [many]}})
    assert str(one) == f"place: {text.shortened(one.known)}" and "and 89 more" in str(one)
    assert known_levels({"data": {"preprocess": []}}) == known_levels({}) == []


FEW = (
    "coefficients can differ from those of pooled rows: a level that fewer than 5 rows of a hospital have counts there "
    "as another one or as none, and a column in which fewer than 5 rows of a hospital differ from all others is "
    "constant there ({})"
)


@pytest.mark.parametrize("rare", [0, 4])
def test_careful_nodes_may_leave_out_what_few_rows_have_and_the_result_says_so(rare):
    """The line is the same whether there are such rows or not: it reveals nothing of them."""
    result = fitted(rows_of(rare=rare), environment=CAREFUL)
    assert FEW.format("limits of these nodes") in diagnostics.warnings_about(result)
    assert FEW.format("limits of these nodes") in page.page({"it": result})


def test_few_rows_of_trusting_nodes_and_of_a_network(trusting):
    [line] = diagnostics.few_rows(trusting)
    assert "a level that fewer than 3 rows" in line and "constant" not in line
    network = {**trusting, "experiment": {"network": "here", "task": 1, "organizations": {"1": "north"}}}
    [line] = diagnostics.few_rows(network)
    assert line == FEW.format("limits of careful nodes; a hospital may have chosen others")
    assert "the model can differ from that of pooled rows" in diagnostics.few_rows({**network, "coefficients": None})[0]
    groups = [{"limits": {"minimum_rows_a_class": n, "minimum_rows_a_side": 0}} for n in (3, 1, 7)]
    [line] = diagnostics.few_rows({**trusting, "experiment": {"limits": groups}})
    assert "fewer than 3 to 7 rows" in line
    without = {**trusting["data"], "categories": []}
    assert diagnostics.few_rows({**trusting, "data": without}) == [], "trusting nodes keep columns as they are"
    noisy = {"aggregation": "pinned", "plan": {}}
    assert diagnostics.few_rows({**network, "privacy": noisy}) == [], "noise takes the place of these limits"
