"""Preprocessing fitted over nodes: equal to scikit-learn's on the pooled rows; refusals; export and predict."""

import dataclasses
import importlib
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from helpers import OPEN, table, train
from sklearn.decomposition import PCA
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from vantage6.algorithm.tools.exceptions import CollectResultsError
from vantage6.algorithm.tools.mock_client import MockAlgorithmClient

from v6_federated import models
from v6_federated.base.errors import SafeError
from v6_federated.base.vantage6_api import PrivacyThresholdViolation
from v6_federated.central.dispatch import Collector
from v6_federated.data import pca, preprocessing, source
from v6_federated.data.columns import UNKNOWN, Features, read_features
from v6_federated.messages import codec
from v6_federated.messages.job import DataSpec
from v6_federated.models import metrics
from v6_federated.node.state import State
from v6_federated.privacy.policy import Policy
from v6_workbench.cli import console
from v6_workbench.cli.main import main
from v6_workbench.reporting import export
from v6_workbench.simulation.mock import CallOutcome, MockNetwork

ALL = ["impute:median", "impute:most_frequent", "onehot", "clip:0.05", "standardize", "pca:4"]
TRAINING = ["v6_fedavg", "v6_scaffold", "v6_fsvrg", "v6_loadaboost", "v6_colearning", "v6_dynavg", "v6_coop", "v6_gbdt"]
MISSING = 0.15
UPDATE = "client_update"
JOB = {
    "method": "fedavg",
    "key": "0" * 32,
    "seed": 0,
    "participants": [1, 2, 3],
    "evaluators": [],
    "rounds": 1,
    "minimum_rows": None,
    "precision": "float32",
}


def hospital(n, seed, levels):
    """A clinical table: a category, missing values in it and in a number, and a constant column."""
    rng = np.random.default_rng(seed)
    rows = table(n, seed=seed, shift=0.2 * seed)
    rows.insert(0, "sex", rng.choice(levels, n).astype(object))
    rows.insert(2, "unit", 5.0)
    rows.loc[rng.random(n) < MISSING, "x1"] = np.nan
    rows.loc[rng.random(n) < MISSING, "sex"] = None
    return rows


@pytest.fixture
def clinics():
    """Three clinics; only the first knows the level x, and has it in a few rows."""
    return {1: hospital(60, 1, ["f", "m", "x"]), 2: hospital(50, 2, ["f", "m"]), 3: hospital(70, 3, ["f", "f", "m"])}


def fitted(nodes, *steps, **settings):
    """The fitted steps of a short job on all rows."""
    result = train("v6_fedavg", nodes, **{"rounds": 1, "holdout": 0, **settings}, preprocess=list(steps))
    return [step["fitted"] for step in result["data"]["preprocess"]]


def pooled(nodes):
    return pd.concat(nodes.values(), ignore_index=True)


# ---- each step against the pooled rows


def test_mean_and_most_frequent_are_those_of_pooled_rows(clinics):
    rows = pooled(clinics)
    numbers, words, _ = fitted(clinics, "impute", "impute:most_frequent,columns=sex|unit", "onehot")
    theirs = SimpleImputer().fit(rows[list(numbers["values"])])
    np.testing.assert_allclose(list(numbers["values"].values()), theirs.statistics_, rtol=1e-12)
    assert words["values"] == {"sex": rows["sex"].mode()[0], "unit": 5.0}


def test_equally_frequent_values_give_the_smallest():
    nodes = {k: table(20).assign(x0=[2.0] * 5 + [10.0] * 5 + [np.nan] * 10) for k in (1, 2)}
    assert fitted(nodes, "impute:most_frequent,columns=x0")[0]["values"] == {"x0": 2.0}


@pytest.mark.parametrize("spread", ["normal", "skewed"])
def test_quantiles_are_near_those_of_pooled_rows(spread):
    """Within the width of a bin and the nodes' roundings."""
    rng = np.random.default_rng(0)
    draw = rng.normal if spread == "normal" else rng.exponential
    nodes = {k: table(400, seed=k).assign(x0=draw(size=400) + k) for k in (1, 2, 3)}
    x = pooled(nodes)["x0"]
    (median,) = fitted(nodes, "impute:median,columns=x0")
    assert median["values"]["x0"] == pytest.approx(x.median(), abs=0.03 * x.std())
    (clip,) = fitted(nodes, {"step": "clip", "quantile": 0.05, "columns": ["x0"]})
    assert clip["bounds"]["x0"] == pytest.approx(x.quantile([0.05, 0.95]).tolist(), abs=0.12 * x.std())


@pytest.mark.parametrize(("q", "rows"), [(0.01, 50), (0.001, 700), (0.01, 52)])
def test_the_upper_bound_is_found_where_counts_are_rounded_down(q, rows):
    """No node's rounded counts may reach all of its rows; one value far out is what clip is for."""
    rng = np.random.default_rng(0)
    nodes = {k: table(rows, seed=k).assign(x0=rng.normal(size=rows)) for k in range(1, 6)}
    nodes[1].loc[0, "x0"] = 30.0
    (clip,) = fitted(nodes, {"step": "clip", "quantile": q, "columns": ["x0"]})
    lower, upper = clip["bounds"]["x0"]
    assert -4.5 < lower < -1 and 1 < upper < 4.5


def test_a_constant_column_of_many_rows_is_constant():
    """The error of numpy's mean grows with the rows; it is no deviation."""
    X = np.column_stack([np.full(400_000, 37.2), np.arange(400_000.0)])
    found = pca.moments(X)
    scale = pca.deviation(len(X), codec.whole(found, "mean"), found["squares"])
    assert scale[0] == 1 and scale[1] == pytest.approx(X[:, 1].std())


def test_median_by_hand():
    """mean - deviation to mean + deviation in 200 bins; counts to each edge, rounded to threes, of each node."""
    nodes = {k: table(30, seed=k) for k in (1, 2)}
    x = pooled(nodes)["x0"].to_numpy()
    edges = np.linspace(x.mean() - x.std(), x.mean() + x.std(), 201)
    below = sum(3 * np.round((rows["x0"].to_numpy()[:, None] <= edges).sum(axis=0) / 3) for rows in nodes.values())
    first, last = np.searchsorted(below, 30), np.searchsorted(below, 30, side="right") - 1
    assert below[first] == 30 and last > first, "30 of 60 lie below several edges: in their middle"
    expected = (edges[first] + edges[last]) / 2
    assert fitted(nodes, "impute:median,columns=x0")[0]["values"]["x0"] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("least", [3, 10, 25])
@pytest.mark.parametrize("step", ["clip:0.02", "impute:median"])
def test_a_quantile_is_no_row_of_a_node_that_rounds_more(step, least):
    """Counts are multiples of the node's minimum: bins finer than these would only find where the rounding jumps."""
    rng = np.random.default_rng(7)
    nodes = {k: table(200, seed=k).assign(x0=rng.normal(size=200) * 3 + 2)[["x0", "label"]] for k in (1, 2, 3)}
    limits = {"V6_FEDERATED_MINIMUM_ROWS_A_CLASS": str(least)}
    (found,) = train("v6_fedavg", nodes, rounds=1, holdout=0, preprocess=[step], environment=limits)["data"][
        "preprocess"
    ]
    told = [*found["fitted"]["bounds"]["x0"]] if "bounds" in found["fitted"] else [found["fitted"]["values"]["x0"]]
    values = pooled(nodes)["x0"].to_numpy()
    for value in told:
        assert np.abs(values - value).min() > 1e-6


@pytest.mark.parametrize("outlier", [50.0, 999_999.0, -1e9, 1e15])
def test_quantiles_whatever_a_few_outliers_are(outlier):
    """Three rows of 1,200, a sentinel or an error of typing, make the deviation large, and the first bins wide."""
    rng = np.random.default_rng(0)
    nodes = {k: table(400, seed=k).assign(x0=rng.gamma(2, 10, 400), x1=rng.integers(20, 90, 400)) for k in (1, 2, 3)}
    for rows in nodes.values():
        rows.loc[0, "x0"] = outlier
    whole = pooled(nodes)
    bounds = fitted(nodes, "clip:0.01")[0]["bounds"]
    values = fitted(nodes, "impute:median")[0]["values"]
    for column, places in (("x0", 0.004), ("x1", 0.02)):  # what roundings of 3 nodes leave open; years are whole
        for value, q in ((bounds[column][0], 0.01), (bounds[column][1], 0.99), (values[column], 0.5)):
            low, high = whole[column].quantile([q - places if q > places else 0, min(q + places, 1)])
            assert low - 1e-6 <= value <= high + 1e-6, (column, q)


def test_constant_column_median_is_its_value(clinics):
    median, *_ = fitted(clinics, "impute:median", "impute:most_frequent", "onehot")
    assert median["values"]["unit"] == 5.0


def test_onehot_and_constants(clinics):
    unknown, zero, levels = fitted(clinics, "impute:constant,value=unknown", "impute:constant,value=0", "onehot")
    assert unknown["values"] == {"sex": "unknown"}
    assert zero["values"] == dict.fromkeys(["x0", "unit", "x1", "x2", "x3"], 0.0)
    assert levels["levels"] == {"sex": ["f", "m", "unknown", "x"]}


def test_a_level_that_is_rare_everywhere_is_not_named(clinics):
    clinics[2].loc[[0, 1], "sex"] = "intersex"
    *_, levels = fitted(clinics, "impute", "impute:most_frequent", "onehot")
    assert levels["levels"] == {"sex": ["f", "m", "x"]}
    clinics[2].loc[2, "sex"] = "intersex"
    *_, levels = fitted(clinics, "impute", "impute:most_frequent", "onehot")
    assert levels["levels"] == {"sex": ["f", "intersex", "m", "x"]}


def test_an_unknown_level_is_zero_in_all():
    rows = read_features(pd.DataFrame({"a": ["f", "q"], "b": [1, 2]}), ["a", "b"], ["a"])
    out = preprocessing.apply(rows, [{"step": "onehot", "fitted": {"levels": {"a": ["f", "m"]}}}])
    assert list(out.names) == ["a=f", "a=m", "b"]
    np.testing.assert_array_equal(out.X, [[1, 0, 1], [0, 0, 2]])


@pytest.mark.parametrize(("tied", "other"), [(0.0, 1.0), (1.0, 0.0), (37.5, 99.0), (-1e-3, 2e-3), (1 / 3, 5.0)])
def test_clip_to_a_value_that_nearly_all_rows_have(tied, other):
    """Both bounds are that value: else what parts them by rounding would become a deviation of 1."""
    nodes = {k: table(600, seed=k) for k in (1, 2, 3)}
    for k, rows in nodes.items():
        rows["x0"] = np.where(np.random.default_rng(k).random(600) < 0.005, other, tied)
    clip, standardize = fitted(nodes, "clip:0.01", "standardize")
    low, high = clip["bounds"]["x0"]
    assert low == high == pytest.approx(tied, rel=1e-12)
    assert codec.decode(standardize)["scale"][0] == 1, "a constant column"


def test_dates_as_numbers_keep_their_spread():
    """Bins are narrowed by the deviation, however large the values are."""
    nodes = {k: table(400, seed=k) for k in (1, 2)}
    for k, rows in nodes.items():
        rows["x0"] = 20240100.0 + np.random.default_rng(k).integers(1, 31, 400)
    low, high = fitted(nodes, "clip:0.1")[0]["bounds"]["x0"]
    assert (low, high) == pytest.approx(tuple(np.quantile(pooled(nodes)["x0"], [0.1, 0.9])), abs=1)


@pytest.mark.parametrize(
    ("first", "share", "sentinel"), [(40, 0.002, 1e25), (0, 0.002, 1e20), (1e9, 0.005, 0.0), (1e6, 0.01, 1e9)]
)
def test_quantiles_beside_values_of_another_order(first, share, sentinel):
    """However wide the first bins are, those of the other rows are no one value."""
    rng = np.random.default_rng(0)
    nodes = {k: table(900, seed=k) for k in (1, 2, 3)}
    for rows in nodes.values():
        rows["x0"] = np.where(rng.random(900) < share, sentinel, first + rng.random(900))
    low, high = fitted(nodes, "clip:0.05")[0]["bounds"]["x0"]
    assert (low, high) == pytest.approx(tuple(np.quantile(pooled(nodes)["x0"], [0.05, 0.95])), abs=0.02)


@pytest.mark.parametrize("kept", ["training", "held out"])
def test_one_missing_word_needs_a_step_wherever_its_row_is(kept):
    nodes = {k: table(60, seed=k).assign(sex=["f", "m"] * 30)[["sex", "x0", "label"]] for k in (1, 2, 3)}
    train_, held = source.split(60, 0.2, 1)
    nodes[1].loc[(train_ if kept == "training" else held)[0], "sex"] = None
    assert "missing values in the column(s) sex" in refused(nodes, "onehot", holdout=0.2)
    fitted(nodes, "impute:most_frequent", "onehot", holdout=0.2)


def test_a_column_of_words_that_a_node_lacks():
    nodes = {k: table(60, seed=k).assign(sex=["f", "m"] * 30)[["sex", "x0", "label"]] for k in (1, 2, 3)}
    nodes[3]["sex"] = np.array([None] * 60, dtype=object)
    assert fitted(nodes, "impute:most_frequent", "onehot")[1]["levels"] == {"sex": ["f", "m"]}


def test_clip_to_bounds(clinics):
    steps = [{"step": "clip", "lower": -1, "columns": ["x0"]}, "impute", "impute:most_frequent", "onehot"]
    assert fitted(clinics, *steps)[0]["bounds"] == {"x0": [-1, None]}
    rows = Features(["a"], np.array([[-2.0], [np.nan], [3.0]]), {})
    out = preprocessing.apply(rows, [{"step": "clip", "fitted": {"bounds": {"a": [-1, None]}}}])
    np.testing.assert_array_equal(out.X[:, 0], [-1, np.nan, 3])


def test_standardize_leaves_words_to_a_later_step(clinics):
    """Its mean and deviation are of numbers only, wherever the words stand."""
    fill = ["impute", "impute:most_frequent"]
    _, _, early, _ = fitted(clinics, *fill, "standardize", "onehot")
    _, _, _, late = fitted(clinics, *fill, "onehot", "standardize")
    early, late = codec.decode(early), codec.decode(late)
    assert early["mean"].shape == (5,) and late["mean"].shape == (8,)
    np.testing.assert_array_equal(early["mean"], late["mean"][3:])


def test_pca_step_equals_a_pipeline_of_scikit_learn(hospitals):
    arrays = codec.decode(fitted(hospitals, "standardize", "pca:3")[1])
    X = StandardScaler().fit_transform(pooled(hospitals).iloc[:, :-1])
    theirs = PCA(3).fit(X)
    np.testing.assert_allclose(arrays["components"], theirs.components_, atol=1e-6)
    np.testing.assert_allclose(arrays["explained_variance"], theirs.explained_variance_, rtol=1e-6)


def test_the_whole_job_equals_a_pipeline_of_scikit_learn(clinics):
    """standardize, pca, logreg: the same probabilities as scikit-learn's on the pooled rows."""
    rows = pooled(clinics)
    X, y = rows.drop(columns="label"), rows["label"]
    steps = ["impute:mean", "impute:most_frequent", "onehot", "standardize", "pca:4"]
    settings = {"rounds": 300, "lr": 1.0, "model": "logreg:l2=0.1", "holdout": 0, "preprocess": steps}
    result = train("v6_fedavg", {1: rows}, **settings)
    numbers = SimpleImputer().fit_transform(X.drop(columns="sex"))
    words = OneHotEncoder(sparse_output=False).fit_transform(
        SimpleImputer(strategy="most_frequent").fit_transform(
            X[["sex"]].astype(object).where(X[["sex"]].notna(), np.nan)
        )
    )
    logistic = LogisticRegression(C=1 / (0.1 * len(y)), tol=1e-10, max_iter=5000)
    pipeline = make_pipeline(StandardScaler(), PCA(4), logistic).fit(np.hstack([words, numbers]), y)
    predicted, measured = export.predict(result, source.Source(table=rows))
    np.testing.assert_allclose(predicted["score"], pipeline.decision_function(np.hstack([words, numbers])), atol=2e-3)
    assert measured["accuracy"] == pytest.approx(pipeline.score(np.hstack([words, numbers]), y), abs=0.01)


# ---- laws


@pytest.mark.parametrize("package", TRAINING)
def test_every_method_trains_on_components(package, clinics):
    own = {"min_rows_leaf": 10} if package == "v6_gbdt" else {}
    result = train(package, clinics, rounds=2, preprocess=ALL, **own)
    assert result["model"]["features"] == 4 and result["final"]["accuracy"] is not None
    assert [step["step"] for step in result["data"]["preprocess"]] == [step.partition(":")[0] for step in ALL]


def test_one_node_equals_pooled_rows(clinics):
    steps = ["impute", "impute:most_frequent", "onehot", "standardize"]
    one, many = (fitted(nodes, *steps) for nodes in ({1: pooled(clinics)}, clinics))
    assert one[1:3] == many[1:3]
    np.testing.assert_allclose(list(one[0]["values"].values()), list(many[0]["values"].values()), rtol=1e-12)
    for name in ("mean", "scale"):
        np.testing.assert_allclose(codec.decode(one[3])[name], codec.decode(many[3])[name], rtol=1e-5, atol=1e-6)


def test_same_bits_everywhere(clinics, monkeypatch, tmp_path):
    settings = {"rounds": 2, "preprocess": ALL, "seed": 3}
    one, two = (train("v6_fedavg", clinics, processes=p, **settings) for p in (1, 2))
    turned = train("v6_fedavg", {k: clinics[k] for k in (3, 1, 2)}, **settings)
    for name, value in {**OPEN, "TEMPORARY_FOLDER": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    client = MockAlgorithmClient(
        [[{"database": rows, "db_type": "csv"}] for rows in clinics.values()], "v6_fedavg", organization_ids=[1, 2, 3]
    )
    theirs = importlib.import_module("v6_fedavg").central(mock_client=client, **settings)
    for other in (two, turned, theirs):
        assert other["weights"] == one["weights"] and other["data"] == one["data"]


def test_steps_are_fitted_to_training_rows_only(clinics):
    """Spoiling what is held out changes no fitted number."""
    spoiled = {}
    for k, rows in clinics.items():
        _, held = source.split(len(rows), 0.2, k)
        spoiled[k] = rows.copy()
        spoiled[k].loc[held, ["x0", "x2"]] = 1000.0
    settings = {"rounds": 1, "preprocess": ALL}
    good, bad = (train("v6_fedavg", nodes, **settings)["data"] for nodes in (clinics, spoiled))
    assert good == bad


def test_half_precision_is_of_models_not_of_statistics(clinics):
    full, half = (train("v6_fedavg", clinics, rounds=1, preprocess=ALL, precision=p) for p in ("float32", "float16"))
    assert full["data"] == half["data"]


def test_evaluators_apply_what_others_fitted(clinics):
    result = train("v6_fedavg", clinics, rounds=2, organizations=[1, 2], evaluators=[3], holdout=0, preprocess=ALL)
    assert result["final"]["evaluated"] == 70


@pytest.mark.parametrize("evaluators", [[], [3]])
def test_large_steps_are_sent_once_and_kept(evaluators, monkeypatch):
    """The rounds' tasks only name them; the model is the same; nothing is left at the nodes."""
    rng = np.random.default_rng(0)
    nodes = {
        k: pd.DataFrame(rng.normal(size=(40, 300))).rename(columns=str).assign(label=np.arange(40) % 2)
        for k in (1, 2, 3)
    }
    settings = {"rounds": 3, "preprocess": ["standardize", "pca:70"]}
    if evaluators:
        settings |= {"organizations": [1, 2], "evaluators": evaluators, "holdout": 0}
    with MockNetwork("v6_fedavg", nodes, environment=OPEN, on_round=lambda row: None) as network:
        kept = network.run(**settings)
        assert not list(network.folder.glob("node-*/tmp/*"))
    assert kept["history"][1]["bytes_down"] < 3 * 9000
    monkeypatch.setattr(preprocessing, "LARGE", 10**9)
    sent = train("v6_fedavg", nodes, **settings)
    assert sent["history"][1]["bytes_down"] > 2 * 100_000
    assert sent["weights"] == kept["weights"] and sent["data"] == kept["data"] and sent["final"] == kept["final"]


def test_a_kept_step_that_is_gone(monkeypatch, hospitals):
    monkeypatch.setattr(preprocessing, "LARGE", 1)
    monkeypatch.setattr("v6_federated.node.state.State.load", lambda self, round_: None)
    text = refused(hospitals, "standardize")
    assert "the fitted step standardize is gone from the job's folder; run the job again" in text


# ---- nodes that are not there all the time


def train_with(outcomes, package, nodes, **settings):
    """A job on simulated time whose calls fare as ``outcomes(organization, function, arguments)`` says."""

    def outcome(organization, input_):
        return outcomes(organization, input_["method"], input_["kwargs"]) or CallOutcome(
            float(input_["method"] == UPDATE)
        )

    with MockNetwork(package, nodes, environment=OPEN, on_round=lambda row: None, outcomes=outcome) as network:
        result = network.run(min_responses=0.5, retries=0, **settings)
        assert not list(network.folder.glob("node-*/tmp/*")) or package == "v6_pca"
    return result


@pytest.mark.parametrize(
    ("step", "statistic"),
    [
        ("standardize", "moments"),
        ("impute:median", "present"),
        ("impute:median", "below"),
        ("pca:2", "covariance"),
        ({"step": "pca", "components": 2, "solver": "subspace"}, "product"),
    ],
)
def test_a_step_is_fitted_to_the_nodes_that_answer_all_it_asks(step, statistic):
    """Node 4 breaks down in one of the questions: the fitted numbers are those of the others, to the last bit."""
    nodes = {k: table(40, seed=k, shift=k) for k in (1, 2, 3, 4)}

    def outcomes(organization, function, arguments):
        return CallOutcome(status="crashed") if organization == 4 and arguments.get("statistic") == statistic else None

    result = train_with(outcomes, "v6_fedavg", nodes, rounds=1, preprocess=[step])
    del nodes[4]
    assert result["data"] == train("v6_fedavg", nodes, rounds=1, preprocess=[step])["data"]
    assert result["undescribed"] == [{"organization_id": 4, "reason": "run crashed"}]
    assert result["history"][0]["participants"] == [1, 2, 3, 4], "it may still join"


def test_a_step_needs_enough_nodes():
    nodes = {k: table(40, seed=k) for k in (1, 2, 3, 4)}

    def outcomes(organization, function, arguments):
        return CallOutcome(status="crashed") if organization > 1 and arguments.get("statistic") == "below" else None

    with pytest.raises(CollectResultsError, match="round 0, fit_step: .*1 of 4 answered, 2 are needed"):
        train_with(outcomes, "v6_fedavg", nodes, rounds=1, preprocess=["impute:median"])


@pytest.mark.parametrize("package", ["v6_fedavg", "v6_coop"])
def test_a_node_that_joins_later_gets_the_fitted_steps(package, hospitals, monkeypatch):
    """Node 5 breaks down until round 2: it was neither described, nor handed the large steps."""
    results = []
    for large in (1, 10**9):
        monkeypatch.setattr(preprocessing, "LARGE", large)
        handed = []

        def outcomes(organization, function, arguments, handed=handed):
            failed = organization == 5 and function != "forget" and arguments["round"] < 2
            if function == "keep_steps":
                handed.append((organization, failed))
            return CallOutcome(status="crashed") if failed else None

        settings = {"rounds": 4, "preprocess": ["standardize", "pca:2"], "lr": 0.3}
        results.append(train_with(outcomes, package, hospitals, **settings))
        assert [(5, False) in handed, (5, True) in handed] == [large == 1] * 2
    kept, sent = results
    assert [m["organization_id"] for m in kept["undescribed"]] == [5]
    assert 5 not in kept["history"][0]["participants"] and 5 in kept["history"][-1]["participants"]
    assert kept["weights"] == sent["weights"] and kept["data"] == sent["data"]


def test_a_node_that_has_lost_what_it_kept_is_sent_it_again(hospitals, monkeypatch):
    """Its folder is emptied before round 2: that round is without it, the next one is not."""
    monkeypatch.setattr(preprocessing, "LARGE", 1)
    network: list[MockNetwork] = []

    def outcomes(organization, input_):
        if input_["kwargs"]["round"] == 2 and input_["method"] == UPDATE and organization == 5:
            for file in network[0].folder.glob("node-5/tmp/*"):
                file.unlink()
        return CallOutcome()

    with MockNetwork("v6_fedavg", hospitals, environment=OPEN, on_round=lambda row: None, outcomes=outcomes) as mock:
        network.append(mock)
        history = mock.run(rounds=3, min_responses=0.5, preprocess=["standardize"])["history"]
    assert [row["participants"] for row in history] == [[3, 5, 8], [3, 8], [3, 5, 8]]
    assert "the fitted step standardize is gone from the job's folder" in history[1]["missing"][0]["reason"]


# ---- refusals: the column and the step that would help, never a value


def refused(nodes, *steps, error=CollectResultsError, **settings):
    with pytest.raises(error) as caught:
        train("v6_fedavg", nodes, **{"rounds": 1, **settings}, preprocess=list(steps))
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_missing_values_name_the_column_and_the_step(hospitals):
    hospitals[5].loc[3, "x2"] = np.nan
    for steps in (["standardize"], ["pca:2"], ["clip:0.1"], ["standardize", "pca:2"]):
        text = refused(hospitals, *steps)
        assert "organization 5: missing or infinite values in the column(s) x2" in text and "a step impute" in text
        assert "organization 3" not in text
    assert "missing values in the column(s) x2" not in str(
        train("v6_fedavg", hospitals, rounds=1, preprocess=["impute"])
    )


def test_words_name_the_column_and_the_step(clinics):
    text = refused(clinics, "impute", "impute:most_frequent", "standardize", error=SafeError)
    assert "the column(s) sex hold values that are not numbers" in text and "a step onehot" in text
    assert "missing values in the column(s) sex; expected none at onehot" in refused(clinics, "impute", "onehot")


def test_numbers_as_text(clinics):
    """Text that reads as a number is that number; one word among them makes a column that onehot must name."""
    steps = ["impute", "impute:most_frequent", "onehot"]
    as_text = {**clinics, 2: clinics[2].assign(x0=[f" {v!r} " for v in clinics[2]["x0"]])}
    assert fitted(as_text, *steps) == fitted(clinics, *steps)
    as_text[2].loc[4, "x0"] = "Mr Smith"
    text = refused(as_text, *steps, error=SafeError)
    assert "organization 2: the column(s) x0 hold both numbers and words" in text and "Smith" not in text
    as_text[2] = clinics[2].assign(x0="Mr Smith")
    text = refused(as_text, *steps, error=SafeError)
    assert "organization 1: the column(s) x0 hold numbers, elsewhere words" in text and "Smith" not in text


def test_numbers_that_are_named_as_categories():
    """1, 1.0, "1" and "01" are one level, wherever they stand."""
    nodes = {1: table(30), 2: table(30), 3: table(30)}
    for k, (one, two) in {1: (1, 2), 2: ("01", "2.0"), 3: (1.0, 2.5)}.items():
        nodes[k]["x1"] = np.array([one, two] * 15, dtype=object)
    (levels,) = fitted(nodes, "onehot:x1")
    assert levels["levels"] == {"x1": ["1", "2", "2.5"]}


def test_a_hospital_with_three_rows(clinics):
    assert "organization 4: fewer than 10 rows" in refused({**clinics, 4: clinics[1].head(3)}, *ALL)


def test_a_column_with_few_values(clinics):
    clinics[2].loc[5:, "x1"] = np.nan
    for step in ("impute", "impute:median", "clip:0.1"):
        text = refused(clinics, step, "impute", "impute:most_frequent", "onehot")
        assert "organization 2: fewer than 10 rows have a value in the column(s) x1" in text
    clinics[2]["x1"] = np.nan  # none at all is no statistic of anybody
    fitted(clinics, "impute", "impute:most_frequent", "onehot")
    for rows in clinics.values():
        rows["x1"] = np.nan
    text = refused(clinics, "impute", "impute:most_frequent", "onehot", error=SafeError)
    assert "no node has a value in the column(s) x1" in text


def test_a_measurement_is_no_category(clinics):
    clinics[2]["x0"] = [f"patient {i}" for i in range(50)]
    wide = {k: rows.assign(x0=[f"patient {i}" for i in range(len(rows))]) for k, rows in clinics.items()}
    fill = ["impute", "impute:most_frequent,columns=sex"]
    assert "to name it" in refused(wide, *fill, "onehot", error=SafeError)
    limit = {"V6_FEDERATED_MAXIMUM_CLASSES": "20"}
    text = refused(wide, *fill, "onehot", environment=limit)
    assert "the column x0 has more than 20 values" in text and "patient" not in text


@pytest.mark.parametrize("step", ["impute:mean", "impute:median", "clip:0.05", "standardize"])
def test_columns_in_another_order_than_the_tables(step):
    """Each keeps its own statistics, also where all of the features are named."""
    nodes = {k: table(60, d=3, seed=k) * [1, 100, 10_000, 1] for k in (1, 2, 3)}
    for rows in nodes.values():
        rows.loc[::7, ["x0", "x1", "x2"]] = np.nan
    fill = [] if step.startswith("impute") else ["impute:mean"]
    named = step if step == "standardize" else f"{step},columns=x2|x0|x1"
    before, after = (
        train("v6_fedavg", nodes, rounds=1, preprocess=[*fill, one, *([] if fill else ["standardize"])], lr=0.1)
        for one in (step, named)
    )
    assert codec.decode(before["weights"])["weights"].tolist() == codec.decode(after["weights"])["weights"].tolist()
    assert_names = [s["fitted"] for s in after["data"]["preprocess"] if s["step"] in ("impute", "clip")]
    for fitted_ in assert_names:
        values = next(v for v in fitted_.values() if isinstance(v, dict))
        sizes = [np.abs(np.ravel(values[name])).max() for name in ("x0", "x1", "x2")]
        assert sizes[0] < sizes[1] / 5 < sizes[2] / 50


def test_a_step_names_a_column_once(capsys):
    assert main(["run", "fedavg", "--data", "wine", "--rounds", "1", "--preprocess", "impute:mean,columns=a|a"]) == 2
    assert "columns are expected each once" in capsys.readouterr().err


def test_a_column_of_names_is_refused_in_evaluations_too(clinics):
    """Also where few of the rows are trained on, or none, whatever levels the task names."""
    rows = pd.concat([hospital(60, k, ["f"]) for k in range(4)], ignore_index=True)
    rows["sex"] = [f"patient {i}" for i in range(len(rows))]
    database = source.Source(table=rows)
    steps = [{"step": "onehot", "fitted": {"levels": {"sex": ["patient 123"]}}}]
    spec = DataSpec(features=["sex"], categories=["sex"], classes=[0, 1], preprocess=steps, holdout=0.95)
    for trains in (True, False):
        with pytest.raises(PrivacyThresholdViolation, match="the column sex has more than 100 values") as told:
            database.prepared(spec, 1, Policy(), trains=trains)
        assert "patient" not in str(told.value)


def test_true_and_false_are_levels_of_one_name(tmp_path):
    """Whether or not another word keeps pandas from reading them as such."""
    rows = table(120).assign(smoker=np.arange(120) % 2 == 0)
    words = rows["smoker"].astype(str).where(np.arange(120) % 4 > 0, "unknown")
    for smoker, levels in ((rows["smoker"], {"0", "1"}), (words, {"0", "1", "unknown"})):
        rows.assign(smoker=smoker).to_csv(tmp_path / "rows.csv", index=False)
        read = read_features(pd.read_csv(tmp_path / "rows.csv"), ["x0", "smoker"], ["smoker"])
        assert set(read.words["smoker"]) == levels


def test_infinite_values_and_dates(clinics):
    clinics[2].loc[3, "x0"] = np.inf
    for steps in (ALL, ["impute", "onehot:sex", "clip:lower=0,upper=1"]):  # also where no statistic is asked
        assert "organization 2: infinite values (or beyond 3.4e38) in the column(s) x0" in refused(clinics, *steps)
    clinics[2]["x0"] = pd.Timestamp("1950-03-02")
    text = refused(clinics, *ALL)
    assert "the column x0 holds values that are neither numbers nor words" in text and "1950" not in text


def test_columns_that_may_not_be_used(clinics):
    text = refused(clinics, *ALL, environment={"V6_FEDERATED_DISALLOWED_COLUMNS": "sex"})
    assert "the column(s) sex may not be used" in text


@pytest.mark.parametrize(
    ("step", "says"),
    [
        ("whiten", "unknown step 'whiten'; expected one of impute, onehot, clip, standardize, pca"),
        ("pca", "components: Field required"),
        ("pca:0", "greater than or equal to 1"),
        ("pca:many", "components"),
        ("pca:3,rank=2", "rank"),
        ("standardize:3", "is not understood at '3'"),
        ("impute:mode", "strategy"),
        ("impute:constant", "takes a value"),
        ("impute:mean,value=3", "takes a value"),
        ("clip", "clip takes a quantile, or bounds"),
        ("clip:0.7", "quantile"),
        ("clip:lower=2,upper=1", "above the upper one"),
        ("impute:mean,strategy=median", "gives strategy twice"),
        ("{", "is not JSON"),
        ({"columns": ["a"]}, "unknown step"),
    ],
)
def test_steps_that_are_none(step, says):
    with pytest.raises(SafeError) as error:
        preprocessing.parse(step)
    assert says in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        (["onehot", "impute:mean,columns=age"], "no column age"),
        (["impute:mean,columns=sex", "onehot"], "impute cannot fill the column(s) sex so"),
        (["onehot", "onehot:sex"], "no column sex"),
        (["onehot", "clip:lower=0,columns=sex"], "no column sex"),
        (["clip:lower=0,columns=sex", "onehot"], "they hold words"),
        (["impute", "impute:most_frequent", "onehot", "pca:30"], "components=30 is refused"),
    ],
)
def test_steps_that_do_not_fit_the_columns(clinics, steps, says):
    assert says in refused(clinics, *steps, error=SafeError)


# ---- export and predict


def same_as_at_the_node(result, rows, predicted):
    """The scores are those that a node has for the same rows."""
    spec = DataSpec(**{**result["data"], "holdout": 0.0})
    train_rows, _ = source.Source(table=rows).prepared(spec, 1, Policy(), trains=False)
    model = models.build(result["model"])
    w = codec.decode(result["weights"])["weights"]
    np.testing.assert_array_equal(np.float32(predicted["score"]), model.scores(w, train_rows.X)[:, 0])
    counts = metrics.evaluate(model, w, train_rows, 2, 0)["confusion"]
    assert np.mean(predicted["prediction"] == rows["label"]) == np.trace(counts) / len(rows)


@pytest.mark.parametrize("model", ["logreg", "fnn:hidden=6"])
def test_predict_gives_the_numbers_of_the_node(clinics, tmp_path, capsys, model):
    result = train("v6_fedavg", clinics, rounds=3, model=model, preprocess=ALL)
    (tmp_path / "result.json").write_text(json.dumps(result))
    rows = clinics[2]
    rows.loc[1, "sex"] = "never seen"
    rows.to_csv(tmp_path / "rows.csv", index=False, float_format="%.17g")
    files = [tmp_path]
    for ending in ("npz", "safetensors", "pt"):
        files.append(tmp_path / f"model.{ending}")
        assert main(["export", str(tmp_path), "--to", str(files[-1])]) == 0
    tables = []
    for file in files:
        out = tmp_path / "predictions.csv"
        assert main(["predict", str(file), "--data", str(tmp_path / "rows.csv"), "--out", str(out)]) == 0
        line = json.loads(capsys.readouterr().out.splitlines()[-1])
        tables.append(pd.read_csv(out, float_precision="round_trip"))
        assert line["rows"] == 50 and line["accuracy"] == np.mean(tables[-1]["prediction"] == rows["label"])
    for other in tables[1:]:
        pd.testing.assert_frame_equal(other, tables[0])
    if model == "logreg":
        same_as_at_the_node(result, rows, tables[0])


def test_predict_needs_no_label_and_names_classes(tmp_path):
    nodes = {
        k: table(40, classes=3, seed=k).assign(label=lambda t: t["label"].map({0: "a", 1: "b", 2: "c"})) for k in (1, 2)
    }
    result = train("v6_fedavg", nodes, rounds=3, preprocess=["standardize"])
    predicted, measured = export.predict(result, source.Source(table=nodes[1].drop(columns="label")))
    assert measured == {} and list(predicted) == [
        "prediction",
        *(f"{what}={c}" for what in ("score", "probability") for c in "abc"),
    ]
    assert set(predicted["prediction"]) <= {"a", "b", "c"}


def test_folded_coefficients_predict_too(hospitals, tmp_path):
    """standardize and pca are linear: coef and intercept are for features as they are in the table."""
    result = train("v6_fedavg", hospitals, rounds=5, preprocess=["standardize", "pca:3"])
    export.save(result, tmp_path / "m.npz")
    with np.load(tmp_path / "m.npz") as model:
        X = hospitals[3].iloc[:, :-1].to_numpy()
        scores = X @ model["coef"][0] + model["intercept"]
    predicted, _ = export.predict(result, source.Source(table=hospitals[3]))
    np.testing.assert_allclose(scores, predicted["score"], atol=1e-5)


def test_components_are_exported_and_predict(hospitals, tmp_path):
    features = ["x0", "x1", "x2", "x3"]
    result = train("v6_pca", hospitals, components=2, features=features)
    export.save(result, tmp_path / "m.npz")
    theirs = PCA(2).fit(pooled(hospitals)[features])
    with np.load(tmp_path / "m.npz") as model:
        names = {"mean", "scale", "components", "explained_variance", "explained_variance_ratio"}
        assert names <= set(model.files)
        np.testing.assert_allclose(model["components"], theirs.components_, atol=1e-6)
    again, _ = export.predict(export.load(tmp_path / "m.npz"), source.Source(table=hospitals[8]))
    np.testing.assert_allclose(again, theirs.transform(hospitals[8][features]), atol=1e-5)
    assert list(again) == ["pc1", "pc2"]


def test_components_far_from_zero_predict_the_nodes_projection(monkeypatch):
    """Epoch seconds: float32 would not tell them apart."""
    rng = np.random.default_rng(0)
    nodes = {k: pd.DataFrame(1.7e9 + rng.normal(size=(30, 4)) * [9, 5, 2, 1], columns=list("abcd")) for k in (1, 2)}
    kept = {}
    save = State.save
    monkeypatch.setattr(State, "save", lambda self, arrays: (kept.update(arrays), save(self, arrays))[1])
    result = train("v6_pca", {2: nodes[2], 1: nodes[1]}, components=2, features=list("abcd"))
    projected, _ = export.predict(result, source.Source(table=nodes[2]))
    theirs = PCA(2, svd_solver="full").fit(pooled(nodes)).transform(nodes[2])  # its default loses these digits
    np.testing.assert_allclose(projected, theirs, atol=1e-4)
    np.testing.assert_allclose(kept["projection"], theirs, atol=1e-4)


@pytest.mark.parametrize("kind", [np.int64, np.float64, np.uint32])
def test_arrays_are_as_precise_as_they_are(kind):
    """A table and arrays of the same numbers far from zero: the same model."""
    rng = np.random.default_rng(1)
    X = (1_600_000_000 + rng.integers(0, 40, (60, 3))).astype(kind)
    y = (X[:, 0] > 1_600_000_020).astype(int)
    rows = pd.DataFrame(X, columns=list("abc")).assign(label=y)
    settings = {"rounds": 5, "lr": 0.5, "preprocess": ["standardize"]}
    one, two = (train("v6_fedavg", {1: n}, **settings) for n in (rows, (X, y)))
    assert one["weights"] == two["weights"]


def test_rows_without_a_label_are_predicted_and_not_counted(hospitals):
    result = train("v6_fedavg", hospitals, rounds=3)
    rows = hospitals[3].astype({"label": object})
    rows.loc[rows.index[:10], "label"] = None
    whole, _ = export.predict(result, source.Source(table=hospitals[3]))
    some, measured = export.predict(result, source.Source(table=rows))
    np.testing.assert_array_equal(whole["score"], some["score"])
    right = (whole["prediction"] == hospitals[3]["label"])[10:]
    assert measured["accuracy"] == pytest.approx(right.mean())
    assert export.predict(result, source.Source(table=rows.assign(label=None)))[1] == {}


def test_predict_on_arrays(tmp_path, capsys):
    rng = np.random.default_rng(0)
    nodes = {k: (rng.random((30, 5)), np.arange(30) % 2) for k in (1, 2)}
    result = train("v6_fedavg", nodes, rounds=1, preprocess=["standardize", "pca:2"])
    (tmp_path / "result.json").write_text(json.dumps(result))
    np.savez(tmp_path / "rows.npz", x=nodes[1][0], y=nodes[1][1])
    np.savez(tmp_path / "wide.npz", x=np.ones((30, 6)), y=np.arange(30) % 2)
    call = ["predict", str(tmp_path), "--out", str(tmp_path / "p.csv"), "--data"]
    assert main([*call, str(tmp_path / "rows.npz")]) == 0
    assert main([*call, str(tmp_path / "wide.npz")]) == 2
    assert "rows of 6 columns do not fit the model" in capsys.readouterr().err


@pytest.mark.parametrize("step", ["standardize", "clip:0.05", "impute:median", "pca:2"])
def test_arrays_have_no_names_of_columns(step, tmp_path, capsys):
    """Their models are exported, and their components shown, with whatever steps."""
    rng = np.random.default_rng(0)
    nodes = {k: (rng.random((30, 4)), np.arange(30) % 2) for k in (1, 2)}
    for package, model in (("v6_fedavg", "logreg"), ("v6_fedavg", "fnn:hidden=3"), ("v6_pca", "logreg")):
        console.write(tmp_path, train(package, nodes, rounds=2, preprocess=[step], model=model))
        assert main(["report", str(tmp_path)]) == 0
        assert ("column " in capsys.readouterr().out) == (package == "v6_pca")
        assert main(["export", str(tmp_path), "--to", str(tmp_path / "m.npz")]) == 0
        capsys.readouterr()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda rows: rows.drop(columns="x1"), "no column x1 in the table"),
        (lambda rows: rows.assign(x0="Smith"), "the column(s) x0 hold values that are not numbers"),
        (lambda rows: rows.assign(label=7), "labels that are not among the model's 2 classes"),
    ],
)
def test_predict_refuses_in_one_line(clinics, tmp_path, capsys, change, says):
    (tmp_path / "result.json").write_text(json.dumps(train("v6_fedavg", clinics, rounds=1, preprocess=ALL)))
    change(clinics[2]).to_csv(tmp_path / "rows.csv", index=False)
    out = tmp_path / "p.csv"
    assert main(["predict", str(tmp_path), "--data", str(tmp_path / "rows.csv"), "--out", str(out)]) == 2
    err = capsys.readouterr().err
    assert says in err and "Smith" not in err and err.count("\n") == 1 and not out.exists()


def test_predict_with_what_is_no_model(tmp_path, capsys):
    (tmp_path / "noise.npz").write_bytes(b"noise")
    np.savez(tmp_path / "other.npz", x=np.ones(3))
    for file, says in [
        ("noise.npz", "cannot be used"),
        ("other.npz", "cannot be used"),
        ("none.npz", "no model"),
        ("none.json", "no result"),
    ]:
        call = ["predict", str(tmp_path / file), "--data", "wine", "--out", str(tmp_path / "p.csv")]
        assert main(call) == 2
        assert says in capsys.readouterr().err


def test_run_with_steps_on_the_command_line(clinics, tmp_path, capsys):
    pooled({k: rows.assign(hospital=f"h{k}") for k, rows in clinics.items()}).to_csv(tmp_path / "rows.csv", index=False)
    steps = [text for step in ALL for text in ("--preprocess", step)]
    call = ["run", "fedavg", "--data", str(tmp_path / "rows.csv"), "--partition", "column:hospital", "--label", "label"]
    assert main([*call, *steps, "--rounds", "10", "--set", "lr=0.5", "--out", str(tmp_path / "out")]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["accuracy"] > 0.7
    assert main([*call, "--rounds", "1"]) == 2
    assert "the column(s) sex hold values that are not numbers" in capsys.readouterr().err


def test_run_pca_on_the_command_line(tmp_path, capsys):
    call = ["run", "pca", "--data", "breast-cancer", "--nodes", "3", "--set", "components=2", "--out", str(tmp_path)]
    assert main(call) == 0
    out, err = capsys.readouterr()
    assert json.loads(out.splitlines()[-1])["method"] == "pca" and "no accuracy" not in err
    assert main(["report", str(tmp_path)]) == 0


# ---- columns and levels of a few rows


def test_a_column_that_few_rows_have_is_refused_whatever_fills_it(clinics):
    """Filled first, its mean would be that of the few; so would a model's parameters."""
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


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_a_level_that_few_rows_of_a_node_have_is_not_told_from_unknown_ones(rows, monkeypatch):
    """The second clinic has the level x, which the first names, in so many rows; of fewer than 3 nothing tells."""
    sent = []
    taken = Collector.take
    monkeypatch.setattr(Collector, "take", lambda self, task, call: sent.append(taken(self, task, call)) or sent[-1])
    nodes = {k: hospital(60, k, ["f", "m"]).dropna() for k in (1, 2, 3)}
    nodes[1].iloc[:6, 0] = "x"
    nodes[2].iloc[:rows, 0] = "x"
    result = train("v6_fedavg", nodes, rounds=1, holdout=0, preprocess=["onehot", "pca:2"])
    levels = result["data"]["preprocess"][0]["fitted"]["levels"]["sex"]
    assert levels == ["f", "m", "x"]
    (answer,) = [a for a in sent if a.organization_id == 2 and "mean" in a.arrays and a.function == "fit_step"]
    n = answer.n
    mean = codec.whole(answer.arrays, "mean")
    counts = np.round(n * mean[: len(levels)].astype(float), 6)
    assert counts[2] == (3 if rows == 3 else 0)
    assert counts.sum() == n, "else the few would be those without any level"
    spec = DataSpec(**{**result["data"], "preprocess": result["data"]["preprocess"][:1]})
    X = source.Source(table=nodes[2]).prepared(spec, 2, Policy())[0].X
    assert X[:, 2].sum() == (3 if rows == 3 else 0)
    assert (X[:, :3].sum(axis=1) == 1).all()
    nodes[2].iloc[:rows, 0] = ["p", "q", "r"][:rows]  # three may be of no level that is known
    told = source.Source(table=nodes[2]).prepared(spec, 2, Policy())[0].X
    assert (told[:rows, :3].sum(axis=1) == (0 if rows == 3 else 1)).all() and (told[rows:, :3].sum(axis=1) == 1).all()
    nodes[2].iloc[:rows, 0] = "x"
    new = read_features(nodes[2], list(nodes[2].columns[:-1]), ["sex"])
    whole = source.ready(new, spec.preprocess)
    assert whole[:, 2].sum() == rows, "who predicts knows the level"
    evaluated = source.Source(table=nodes[2]).prepared(spec, 2, Policy(), trains=False)[0].X
    assert (evaluated == whole).all(), "and who evaluates does as who predicts"


@pytest.mark.parametrize("rare", [1, 2, 3])
@pytest.mark.parametrize("what", ["level", "missing"])
def test_no_two_tasks_part_few_rows_by_a_word(rare, what):
    """Whatever levels a task names, and whatever fills what is missing, groups of fewer than 3 rows are in none of
    its sums, so no difference of two tasks is theirs."""
    rows = hospital(60, 1, ["f", "m"])[["sex", "x0", "label"]].fillna({"x0": 0.0}).reset_index(drop=True)
    rows["sex"] = ["f"] * (30 - rare) + ["m"] * 30 + [None if what == "missing" else "x"] * rare
    spec = DataSpec(label="label", features=["sex", "x0"], classes=[0, 1], holdout=0.0, categories=["sex"])

    def sums(levels, filled="f"):
        steps = [{"step": "impute", "fitted": {"values": {"sex": filled}}}] if what == "missing" else []
        steps.append({"step": "onehot", "fitted": {"levels": {"sex": levels}}})
        X = source.Source(table=rows).prepared(replace(spec, preprocess=steps), 1, Policy())[0].X
        return X.T @ X

    if what == "level":
        others = len(rows) - np.trace(sums(["f", "m"])[:2, :2])
        assert others == (3 if rare == 3 else 0) and sums(["x"])[0, 0] == others
        assert sums(["f"])[0, 0] + sums(["m"])[0, 0] == len(rows) - others
    else:
        moved = np.abs(sums(["f", "m"], "f") - sums(["f", "m"], "m"))
        assert moved[0, 0] == (3 if rare == 3 else 0) and (moved[0, 2] > 0) == (rare == 3)


def test_folded_words():
    words = np.array(["a", "a", "a", "b", "c", None, "d"], dtype=object)
    features = Features(["w"], np.full((7, 1), np.nan), {"w": words})
    assert features.folded(1).words["w"].tolist() == words.tolist()
    assert features.folded(2, ["w"]).words["w"].tolist() == ["a", "a", "a", UNKNOWN, UNKNOWN, "a", UNKNOWN]
    assert features.folded(2, ["v"]).words["w"][5] is None
    assert features.folded(4, ["w"]).words["w"].tolist() == [*[UNKNOWN] * 5, UNKNOWN, UNKNOWN], "no word is frequent"
    few = Features(["w"], np.full((5, 1), np.nan), {"w": np.array(["a", "b", "a", "b", "c"], dtype=object)})
    assert few.folded(2).words["w"].tolist() == ["a", "b", "a", "b", "a"], "the first of equally frequent ones"


def test_levels_cannot_be_guessed_where_there_are_too_many_to_be_named():
    rows = table(60).assign(postcode=[f"{1000 + i // 4}AB" for i in range(60)])
    guess = [f"{1000 + i}AB" for i in range(5000)]
    steps = [{"step": "onehot", "fitted": {"levels": {"postcode": guess}}}]
    spec = DataSpec(
        label="label",
        features=["x0", "postcode"],
        classes=[0, 1],
        holdout=0.0,
        preprocess=steps,
        categories=["postcode"],
    )
    source.Source(table=rows).prepared(spec, 1, Policy(maximum_classes=15))
    with pytest.raises(PrivacyThresholdViolation, match="the column postcode has more than 14 values"):
        source.Source(table=rows).prepared(spec, 1, Policy(maximum_classes=14))


def _forged_steps(steps, n):
    """Steps that no nodes have made, with what a node says to each. Numpy would broadcast those with a value for each
    of n rows, and a sum over rows would be a row."""
    pca, d = codec.decode(steps[1]["fitted"]), 8  # columns after onehot
    zeros = {"mean": np.zeros(d), "mean_rest": np.zeros(d), "scale": np.ones(d)}

    def with_arrays(name, **arrays):
        return [steps[0], {"step": name, "fitted": codec.encode({**zeros, **arrays}, "float64")}]

    def of_column(name, part, value):
        return [{"step": name, "fitted": {part: {"sex" if part == "levels" else "x0": value}}}, steps[0]]

    ones = np.ones((99, pca["components"].shape[1]), np.float32)
    yield [steps[0], {"step": "pca", "fitted": codec.encode({**pca, "components": ones})}], "more components than there"
    yield with_arrays("pca", components=np.eye(d)[None]), "components of shape (1, 8, 8); expected (None, 8)"
    yield with_arrays("pca", components=np.eye(d), scale=np.ones((n, d))), f"scale of shape ({n}, 8); expected (8,)"
    yield with_arrays("standardize", mean=np.zeros((n, d))), f"mean of shape ({n}, 8); expected (8,)"
    yield with_arrays("standardize", scale=np.ones((n, d))), f"scale of shape ({n}, 8); expected (8,)"
    yield [steps[0], {"step": "standardize", "fitted": codec.encode({"mean": np.zeros(d)})}], "mean_rest of shape none"
    yield of_column("onehot", "levels", [str(i) for i in range(10_001)])[:1], "levels that nothing has been fitted to"
    yield of_column("onehot", "levels", [["m"] * n])[:1], "levels that nothing has been fitted to"
    yield of_column("onehot", "levels", ["m", "m"])[:1], "levels that nothing has been fitted to"
    yield of_column("impute", "values", [0.0] * n), "values that nothing has been fitted to"
    yield of_column("impute", "values", float("nan")), "values that nothing has been fitted to"
    yield of_column("impute", "values", 1e308), "values that nothing has been fitted to"
    yield of_column("impute", "values", "0"), "impute cannot fill the column x0 so"
    yield of_column("clip", "bounds", [[0.0] * n, None]), "bounds that nothing has been fitted to"
    yield of_column("clip", "bounds", [0.0]), "bounds that nothing has been fitted to"
    yield [{"step": "clip", "fitted": ["x0"]}, steps[0]], "bounds that nothing has been fitted to"


def test_fitted_steps_that_no_nodes_have_made_are_refused(clinics):
    complete = {k: rows.dropna() for k, rows in clinics.items()}
    result = train("v6_fedavg", complete, rounds=1, preprocess=["onehot", "pca:2"])
    steps = json.loads(json.dumps(result["data"]["preprocess"]))
    n = len(complete[1])
    with MockNetwork("v6_fedavg", complete) as network:
        for forged, says in _forged_steps(steps, n):
            job = {**JOB, "data": {**result["data"], "preprocess": forged, "holdout": 0.0}, "model": None}
            for statistic, more in (("moments", {}), ("levels", {"columns": ["x0"]})):
                kwargs = {"job": job, "round": 0, "statistic": statistic, **more}
                assert says in said(network, "fit_step", kwargs), (forged[0]["step"], says)


def said(network, method, kwargs):
    """The last words of a task of organization 1, "" where it has an answer."""
    client = network.client()
    task = client.task.create({"method": method, "kwargs": kwargs}, [1])
    client.wait_for_results(task["id"])
    run = client.run.from_task(task["id"])[0]
    return "" if run["status"] == "completed" else run["log"]


def test_statistics_are_not_asked_for_row_by_row(clinics):
    """A mean or a scale for each row in place of one for each column would make a sum over rows a row."""
    rows = {k: table.dropna().drop(columns="sex") for k, table in clinics.items()}
    spec = train("v6_fedavg", rows, rounds=1)["data"]
    n, d = len(rows[1]), 5
    job = {**JOB, "data": {**spec, "holdout": 0.0}, "model": None}
    with MockNetwork("v6_fedavg", rows) as network:
        for statistic, more in (("covariance", {}), ("product", {"draw": 2})):
            for mean, scale in (((n, d), (d,)), ((d,), (n, d)), ((), (d,)), ((d,), (1,))):
                arrays = codec.encode({"mean": np.zeros(mean), "scale": np.ones(scale)})
                kwargs = {"job": job, "round": 0, "statistic": statistic, "arrays": arrays, **more}
                assert "of another shape" in said(network, "fit_step", kwargs)
            assert "of another shape" in said(
                network, "fit_step", {"job": job, "round": 0, "statistic": statistic, **more}
            )
            fine = codec.encode({"mean": np.zeros(d), "scale": np.ones(d)})
            assert not said(network, "fit_step", {**kwargs, "arrays": fine})
        bounds = codec.encode({"lower": np.zeros(2), "upper": np.ones(2)})
        kwargs = {"job": job, "round": 0, "statistic": "below", "arrays": bounds}
        assert "of another shape" in said(network, "fit_step", {**kwargs, "columns": ["x0"]})
        assert not said(network, "fit_step", {**kwargs, "columns": ["x0", "x1"]})


def test_levels_of_a_column_of_many_values_are_not_named_part_by_part(clinics):
    """Clipped to narrow bounds, a column of numbers would have few values at a time."""
    rows = {
        k: table.dropna().drop(columns="sex").assign(code=np.arange(len(table.dropna())) // 3)
        for k, table in clinics.items()
    }
    spec = train("v6_fedavg", rows, rounds=1, features=["x0", "code"], label="label")["data"]
    clip = [{"step": "clip", "fitted": {"bounds": {"code": [0, 5]}}}]
    pca = {"mean": np.zeros(2), "mean_rest": np.zeros(2), "scale": np.ones(2), "components": np.array([[0.0, 1.0]])}
    made = [{"step": "pca", "fitted": codec.encode(pca)}]
    few = {"V6_FEDERATED_MAXIMUM_CLASSES": "7"}
    for steps, column, environment, says in (
        (clip, "code", few, "the column code has more than 7 values"),
        (made, "pc1", {}, "made by a step and have no levels"),
        (clip, "code", {}, ""),
    ):
        job = {**JOB, "data": {**spec, "preprocess": steps, "holdout": 0.0}, "model": None}
        with MockNetwork("v6_fedavg", rows, environment=environment) as network:
            kwargs = {"job": job, "round": 0, "statistic": "levels", "columns": [column], "counts": True}
            assert says in (words := said(network, "fit_step", kwargs)) and bool(words) == bool(says)


def test_what_few_evaluated_rows_have_counts_as_missing(clinics):
    """A loss on rows of which one alone has a value would tell it; the rows to train on are refused."""
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
        evaluated, _ = database.prepared(spec, 1, Policy(), trains=False)
        told.append(evaluated.X[:, 1].tolist())
        with pytest.raises(PrivacyThresholdViolation, match="fewer than 10 rows have a value in the column.s. rare"):
            database.prepared(spec, 1, Policy())
    assert told[0] == told[1] == [0.0] * len(rows[1])
    held = source.Source(table=rows[1].assign(rare=np.where(np.arange(len(rows[1])) < 15, 1.0, np.nan)))
    train_rows, held_out = held.prepared(dataclasses.replace(spec, holdout=0.3), 1, Policy())
    assert train_rows.X[:, 1].sum() >= 10 and not held_out.X[:, 1].any()


def test_evaluators_are_not_held_to_what_training_needs(clinics):
    """A column that few of its rows have, and levels that few have: they are counted as predictions would be."""
    few = {
        k: rows.assign(m=np.where(np.arange(len(rows)) < 5, 1.0, np.nan) if k == 3 else 1.0)
        for k, rows in clinics.items()
    }
    few = {k: rows[["sex", "x0", "m", "label"]] for k, rows in few.items()}
    steps = ["impute:constant,value=0,columns=m", "impute:most_frequent", "onehot"]
    result = train("v6_fedavg", few, rounds=2, evaluators=[3], preprocess=steps)
    assert [row["evaluated"] for row in result["history"]] == [len(few[3])] * 2


@pytest.mark.parametrize(
    "values", [["77,5", "34,0"], [">90", "12"], ["< 0.5", "0,7"], ["12%", "7 %"], ["1.234,5", "2.000,0"]]
)
def test_numbers_written_otherwise_are_no_categories(clinics, values):
    """As a column of both numbers and words is not; where the step names it, it is one."""
    odd = {k: rows[["x0", "label"]].assign(age=np.resize(values, len(rows))) for k, rows in clinics.items()}
    odd = {k: rows[["age", "x0", "label"]] for k, rows in odd.items()}
    with pytest.raises(
        SafeError, match=r"age hold both numbers and words; expected numbers \(with a decimal point, no"
    ):
        fitted(odd, "onehot")
    levels = fitted(odd, "onehot:age")[0]["levels"]["age"]
    assert len(levels) == 2
    words_ = {k: rows.assign(age=np.resize(["old", *values], len(rows))) for k, rows in odd.items()}
    if "12" not in values:
        assert "old" in fitted(words_, "onehot")[0]["levels"]["age"]
    dates = {k: rows.assign(age=np.resize(["31.12.2020", "01.01.2021", "1.0.2"], len(rows))) for k, rows in odd.items()}
    assert len(fitted(dates, "onehot")[0]["levels"]["age"]) == 3, "words like any other"
