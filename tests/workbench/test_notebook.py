"""Results as data frames and pictures: what notebooks use."""

import subprocess
import sys

import matplotlib
import numpy as np
import pandas as pd
import pytest
from helpers import table
from matplotlib import pyplot as plt

import v6_workbench
from v6_federated.base.errors import SafeError
from v6_workbench import Experiment, coefficients, history, load, per_node, plot, predict


@pytest.fixture(scope="module")
def experiment():
    parts = {"north": table(60, seed=1), "south": table(40, seed=2)}
    return Experiment(load(parts), label="label", seed=1)


@pytest.fixture(scope="module")
def result(experiment):
    return experiment.federated("fedavg", rounds=4, preprocess=["standardize"])


@pytest.fixture(autouse=True)
def figures():
    yield
    plt.close("all")


def test_the_history_is_a_row_for_each_round(result):
    frame = history(result)
    assert frame.index.tolist() == [1, 2, 3, 4] and frame.index.name == "round"
    assert frame["accuracy"].tolist() == [row["accuracy"] for row in result["history"]]


def test_histories_of_several_results_by_name(result):
    frame = history({"a": result, "b": result})
    assert frame.index.names == ["result", "round"] and len(frame) == 8
    assert frame.loc["b"].equals(history(result))


def test_what_each_node_did(result, experiment):
    frame = per_node(result)
    assert frame.index.names == ["round", "node"] and len(frame) == 8
    assert frame.xs("south", level="node")["n"].unique().tolist() == [30]
    masked = experiment.federated("fedavg", rounds=1, aggregation="masked")
    assert per_node(masked).empty


def test_coefficients_are_those_of_the_table(result):
    frame = coefficients(result)
    assert frame.index.tolist() == ["x0", "x1", "x2", "x3", "intercept"] and frame.columns.tolist() == ["1"]
    rows = table(50, seed=3)
    score = rows[["x0", "x1", "x2", "x3"]].to_numpy() @ frame["1"].iloc[:-1].to_numpy() + frame["1"].iloc[-1]
    np.testing.assert_allclose(score, predict(result, rows)["score"], rtol=1e-4, atol=1e-5)


def test_coefficients_of_a_number_to_predict():
    diabetes = Experiment(load("diabetes"), nodes=2)
    result = diabetes.federated("fedavg", loss="squared", rounds=2, preprocess=["standardize"])
    frame = coefficients(result)
    assert frame.shape == (11, 1) and frame.index[-1] == "intercept" and frame.notna().all(axis=None)


def test_coefficients_of_levels_and_classes():
    wine = Experiment(load("wine"), nodes=2).federated("fedavg", rounds=1, preprocess=["standardize"])
    assert coefficients(wine).shape == (14, 3) and coefficients(wine).columns.tolist() == ["0", "1", "2"]
    words = load(table(60).assign(x0=["a", "b"] * 30))
    named = Experiment(words, nodes=2).federated("fedavg", rounds=1, preprocess=["onehot", "standardize"])
    assert "x0=b" in coefficients(named).index
    arrays = load(*[np.asarray(part) for part in (table(40).iloc[:, :4], table(40)["label"])])
    unnamed = Experiment(arrays, nodes=2).federated("fedavg", rounds=1)
    assert coefficients(unnamed).index.tolist() == ["x0", "x1", "x2", "x3", "intercept"]


def test_a_network_has_no_coefficients(experiment):
    network = experiment.federated("fedavg", rounds=1, model="fnn:hidden=3")
    with pytest.raises(SafeError, match="a fnn model has no coefficients; expected a result of model=logreg or"):
        coefficients(network)


def test_predictions_keep_the_index_of_the_rows(result):
    rows = table(20, seed=5).drop(columns="label").set_index(pd.Index([f"row {i}" for i in range(20)]))
    found = predict(result, rows)
    assert found.index.equals(rows.index) and set(found["prediction"]) <= {0, 1}
    with pytest.raises(SafeError, match="x1"):
        predict(result, rows.drop(columns="x1"))


def test_a_picture_uses_the_back_end_that_is_there(result, experiment):
    before = matplotlib.get_backend()
    other = experiment.centralized("fedavg", rounds=4, preprocess=["standardize"])
    axes = plot({"federated": result, "centralized": other})
    assert [line.get_label() for line in axes.lines] == ["federated", "centralized"]
    assert axes.lines[0].get_ydata().tolist() == history(result)["accuracy"].tolist()
    assert [line.get_linestyle() for line in axes.lines] == ["-", "--"], "one that lies on another can be seen"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("round", "accuracy")
    again = plot(result, "train_loss", by="bytes", ax=axes)
    assert [line.get_linestyle() for line in axes.lines] == ["-", "--", "-."], "further lines differ from the first"
    assert again is axes and axes.get_ylabel() == "train loss" and matplotlib.get_backend() == before


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"what": "beauty"}, "no result has 'beauty'; expected one of accuracy, auc, "),
        ({"by": "miles"}, "by='miles' is unknown; expected one of rounds, uploads, bytes, seconds"),
    ],
)
def test_a_picture_of_nothing_is_refused(result, arguments, says):
    with pytest.raises(SafeError, match=says):
        plot(result, **arguments)


def test_every_name_is_there():
    assert set(v6_workbench.__all__) <= set(dir(v6_workbench))
    for name in v6_workbench.__all__:
        assert getattr(v6_workbench, name).__doc__
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = v6_workbench.nothing


def test_the_command_line_starts_without_them():
    """It catches Ctrl-C while libraries are imported."""
    code = "import sys, v6_workbench.cli.main; sys.exit('pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_nothing_here_chooses_how_a_notebook_draws():
    code = (
        "import sys; from v6_workbench import Experiment, history, load, plot;"
        "sys.exit('matplotlib' in sys.modules or 'v6_workbench.reporting.pictures' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
