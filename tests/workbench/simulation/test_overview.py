"""What is said about rows before anything is trained on them."""

import numpy as np
import pandas as pd
from helpers import table

from v6_workbench.simulation import overview
from v6_workbench.simulation.datasets import Dataset
from v6_workbench.simulation.experiments import Experiment


def hospitals(**columns):
    """An experiment on two hospitals whose tables have further columns."""
    rows = [table(40, seed=i).assign(hospital=name) for i, name in enumerate(["north", "south"])]
    rows = pd.concat(rows, ignore_index=True).assign(**columns)
    return Experiment(Dataset("rows", rows), None, "column:hospital", label="label")


def warnings(experiment, method="fedavg", **values):
    return overview.warnings_about(experiment, method, values)


def test_nodes_classes_and_features_are_described():
    experiment = hospitals()
    says = "2 nodes: 1: north (40), 2: south (40); label label, 2 classes: 0 (40), 1 (40); 4 features: x0, x1, x2, x3"
    assert overview.described(experiment, "fedavg", {}) == says and warnings(experiment) == []
    last = Experiment(Dataset("rows", table(40)), 2)
    assert "; label label (the last column), 2 classes: " in overview.described(last, "fedavg", {})
    assert "classes" not in overview.described(last, "gbdt", {"objective": "regression"})
    assert "label" not in overview.described(last, "pca", {"features": ["x0"]})
    arrays = Experiment(Dataset("arrays", (np.ones((20, 2)), np.arange(20) % 2)), 2)
    assert overview.described(arrays, "fedavg", {}) == "2 nodes: 1 (10), 2 (10); 2 classes: 0 (10), 1 (10)"
    assert warnings(arrays) == []


def test_only_the_features_of_a_job_are_described():
    says = overview.described(hospitals(), "fedavg", {"features": ["x1"]})
    assert says.endswith("; 1 features: x1")


def test_a_column_like_an_identifier_is_noticed_if_each_node_counts_on_its_own():
    experiment = hospitals(number=[*range(40), *range(40)], id=[f"p{i}" for i in range(80)], code=[1, 2] * 40)
    (warning,) = warnings(experiment)
    assert warning.startswith("number,id: different in every row of a node") and "add --exclude number,id " in warning


def test_spellings_of_one_name_are_noticed():
    experiment = hospitals(sex=["F", "M", "m ", "F"] * 20)
    assert warnings(experiment) == [
        "'M', 'm' differ only in spaces or capitals; each counts as a different level of sex"
    ]
    rows = table(80).assign(hospital=["Noord", " noord"] * 40, label=["home", "home", "Home", "died"] * 20)
    found = warnings(Experiment(Dataset("rows", rows), None, "column:hospital", label="label"))
    assert found == [
        "' noord', 'Noord' differ only in spaces or capitals; each counts as a different node",
        "'home', 'Home' differ only in spaces or capitals; each counts as a different class",
    ]


def test_a_column_that_is_empty_at_a_node_is_noticed():
    experiment = hospitals(crp=[1.5] * 40 + [np.nan] * 40)
    assert warnings(experiment) == [
        "crp: no value at south; --preprocess impute fills such columns from the other nodes"
    ]
    (says,) = warnings(experiment, preprocess=["standardize", "impute:median"])
    assert says == "crp: no value at south; the step impute fills it from the other nodes"


def test_a_column_of_words_that_is_empty_at_a_node_needs_another_step():
    experiment = hospitals(smoking=["never", "ex"] * 20 + [None] * 40, sex=["f", "m"] * 40)
    cure = "smoking: no value at south; --preprocess impute:most_frequent fills such columns from the other nodes"
    filled = "smoking: no value at south; the step impute fills it from the other nodes"
    for steps, says in (
        ([], cure),
        (["impute"], cure),
        (["impute:most_frequent,columns=sex"], cure),
        (["impute", "impute:most_frequent"], filled),
        (["impute:constant,value=never"], filled),
    ):
        assert warnings(experiment, preprocess=[*steps, "onehot"]) == [says]
    codes = hospitals(cp=[1.0, 2.0] * 20 + [np.nan] * 40)
    (says,) = warnings(codes, preprocess=["impute", "onehot:cp"])
    assert says == "cp: no value at south; --preprocess impute:most_frequent fills such columns from the other nodes"


def test_a_column_that_is_almost_empty_in_held_out_rows_is_noticed():
    experiment = hospitals(crp=[1.5, np.nan] * 40)
    found = warnings(experiment)
    assert [text.partition(",")[0] for text in found] == [
        "crp: fewer than 10 of the rows held out at north have a value",
        "crp: fewer than 10 of the rows held out at south have a value",
    ]
