"""Each step fitted over nodes equals scikit-learn's on the pooled rows."""

import numpy as np
import pandas as pd
import pytest
from helpers import fitted, pooled, table, train
from sklearn.decomposition import PCA
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from v6_federated.data import preprocessing, source
from v6_federated.data.columns import Features
from v6_federated.data.reading import read_features
from v6_federated.messages import codec
from v6_workbench.reporting import prediction


def test_mean_and_most_frequent_are_those_of_pooled_rows(clinics):
    rows = pooled(clinics)
    numbers, words, _ = fitted(clinics, "impute", "impute:most_frequent,columns=sex|unit", "onehot")
    theirs = SimpleImputer().fit(rows[list(numbers["values"])])
    np.testing.assert_allclose(list(numbers["values"].values()), theirs.statistics_, rtol=1e-12)
    assert words["values"] == {"sex": rows["sex"].mode()[0], "unit": 5.0}


def test_equally_frequent_values_give_the_smallest():
    nodes = {k: table(20).assign(x0=[2.0] * 5 + [10.0] * 5 + [np.nan] * 10) for k in (1, 2)}
    assert fitted(nodes, "impute:most_frequent,columns=x0")[0]["values"] == {"x0": 2.0}


def test_onehot_has_a_column_for_each_level_and_for_a_constant(clinics):
    unknown, zero, levels = fitted(clinics, "impute:constant,value=unknown", "impute:constant,value=0", "onehot")
    assert unknown["values"] == {"sex": "unknown"}
    assert zero["values"] == dict.fromkeys(["x0", "unit", "x1", "x2", "x3"], 0.0)
    assert levels["levels"] == {"sex": ["f", "m", "unknown", "x"]}


def test_an_unknown_level_is_zero_in_every_column():
    rows = read_features(pd.DataFrame({"a": ["f", "q"], "b": [1, 2]}), ["a", "b"], ["a"])
    out = preprocessing.apply(rows, [{"step": "onehot", "fitted": {"levels": {"a": ["f", "m"]}}}])
    assert list(out.names) == ["a=f", "a=m", "b"]
    np.testing.assert_array_equal(out.X, [[1, 0, 1], [0, 0, 2]])


def test_clip_to_given_bounds_leaves_missing_values(clinics):
    steps = [{"step": "clip", "lower": -1, "columns": ["x0"]}, "impute", "impute:most_frequent", "onehot"]
    assert fitted(clinics, *steps)[0]["bounds"] == {"x0": [-1, None]}
    rows = Features(["a"], np.array([[-2.0], [np.nan], [3.0]]), {})
    out = preprocessing.apply(rows, [{"step": "clip", "fitted": {"bounds": {"a": [-1, None]}}}])
    np.testing.assert_array_equal(out.X[:, 0], [-1, np.nan, 3])


def test_standardize_leaves_words_to_a_later_step(clinics):
    """Only numbers have a mean and a deviation, wherever the columns of words are in the table."""
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
    """standardize, pca, logreg: the same scores as scikit-learn's on the pooled rows."""
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
    predicted, measured = prediction.predict(result, source.Source(table=rows))
    np.testing.assert_allclose(predicted["score"], pipeline.decision_function(np.hstack([words, numbers])), atol=2e-3)
    assert measured["accuracy"] == pytest.approx(pipeline.score(np.hstack([words, numbers]), y), abs=0.01)


@pytest.mark.parametrize("step", ["impute:mean", "impute:median", "clip:0.05", "standardize"])
def test_columns_named_in_another_order_keep_their_own_statistics(step):
    """A step may name all of the columns, in any order."""
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
    by_column = [s["fitted"] for s in after["data"]["preprocess"] if s["step"] in ("impute", "clip")]
    assert len(by_column) == (step != "standardize") + bool(fill)
    for fitted_ in by_column:
        values = next(v for v in fitted_.values() if isinstance(v, dict))
        sizes = [np.abs(np.ravel(values[name])).max() for name in ("x0", "x1", "x2")]
        assert sizes[0] < sizes[1] / 5 < sizes[2] / 50
