"""Federated PCA against scikit-learn's on the pooled rows, and by hand."""

import numpy as np
import pandas as pd
import pytest
from helpers import OPEN, train
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler
from vantage6.algorithm.tools.exceptions import CollectResultsError, UserInputError

from v6_federated.base.errors import SafeError
from v6_federated.messages import codec
from v6_workbench.conformance import MethodCase, conformance_tests
from v6_workbench.simulation import mock


def hospitals(d, sizes=(30, 44, 16), seed=0, offset=0.0):
    """Nodes of unequal sizes and unlike rows; column c1 is constant."""
    rng = np.random.default_rng(seed)
    mixing = rng.normal(size=(d, d)) / np.sqrt(d) * np.linspace(1, 4, d)
    rows = {k: rng.normal(size=(n, d)) @ mixing + 0.3 * k + offset for k, n in zip((3, 5, 8), sizes, strict=True)}
    columns = [f"c{i}" for i in range(d)]
    return {k: pd.DataFrame(X, columns=columns).assign(c1=7.0) for k, X in rows.items()}


def pooled(nodes):
    return np.concatenate([rows.to_numpy() for rows in nodes.values()])


def fit(nodes, **settings):
    """The fitted arrays of a job on all columns, and its result."""
    result = train("v6_pca", nodes, features=list(next(iter(nodes.values())).columns), **settings)
    return codec.decode(result["weights"]), result


def check(fitted, theirs):
    """Components to 1e-6 with their signs, variances to 1e-8, of what varies at all."""
    some = theirs.explained_variance_ > 1e-12 * theirs.explained_variance_[0]
    assert some.sum() > 3
    np.testing.assert_allclose(fitted["components"][some], theirs.components_[some], atol=1e-6)
    for name in ("explained_variance", "explained_variance_ratio"):
        np.testing.assert_allclose(fitted[name][some], getattr(theirs, f"{name}_")[some], rtol=1e-8)
    np.testing.assert_allclose(fitted["mean"], theirs.mean_, rtol=1e-12)


def pooled_pca(rows):
    """scikit-learn's on all rows, with the signs that make the largest number of each component positive."""
    theirs = PCA(2, svd_solver="full").fit(rows.X.astype(float))
    V = theirs.components_
    signs = np.sign(np.take_along_axis(V, np.abs(V).argmax(axis=1)[:, None], axis=1))
    return {"components": signs * V, "explained_variance": theirs.explained_variance_, "mean": theirs.mean_}


APART = {
    "equal_nodes_equal_one": "variances are sums over n - 1, as scikit-learn's",
    "nodes_keep_what_is_declared_and_nothing_in_the_end": "nodes keep their rows on the components for later use",
}
test_conformance = conformance_tests(
    MethodCase("pca", {"components": 2}, centralized=pooled_pca, exceptions=APART),
    MethodCase("pca", {"components": 2, "solver": "subspace"}, "subspace", centralized=pooled_pca, exceptions=APART),
)


@pytest.mark.parametrize("d", [6, 150])  # fewer columns than rows, and more
@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_exact_equals_scikit_learn(d, offset):
    nodes = hospitals(d, offset=offset)
    fitted, result = fit(nodes)
    check(fitted, PCA(min(90, d), svd_solver="full").fit(pooled(nodes)))
    assert result["model"] == {
        "name": "pca",
        "features": d,
        "components": min(90, d),
        "solver": "exact",
        "scale": False,
    }
    np.testing.assert_allclose(fitted["std"], pooled(nodes).std(axis=0), atol=1e-12)
    np.testing.assert_array_equal(fitted["scale"], 1)


def test_scaled_is_pca_of_standardized_columns():
    nodes = hospitals(6)
    fitted, _ = fit(nodes, scale=True, components=5)
    theirs = PCA(5).fit(StandardScaler().fit_transform(pooled(nodes)))
    theirs.mean_ = pooled(nodes).mean(axis=0)  # of the columns before they are scaled
    check(fitted, theirs)
    np.testing.assert_allclose(fitted["scale"], np.where(np.arange(6) == 1, 1, pooled(nodes).std(axis=0)))


def test_by_hand():
    """Garst's Algorithm 3 written out: n_k, sums, then (X_k - mean)^T (X_k - mean), summed, over n - 1."""
    nodes = {k: rows.drop(columns="c1") for k, rows in hospitals(5).items()}
    n = sum(len(rows) for rows in nodes.values())
    mean = sum(rows.to_numpy().sum(axis=0) for rows in nodes.values()) / n
    A = sum((rows.to_numpy() - mean).T @ (rows.to_numpy() - mean) for rows in nodes.values()) / (n - 1)
    fitted, result = fit(nodes, solver="exact")
    V = fitted["components"]
    np.testing.assert_allclose(V @ A @ V.T, np.diag(fitted["explained_variance"]), atol=1e-12)
    np.testing.assert_allclose(V @ V.T, np.eye(4), atol=1e-12)
    assert (np.take_along_axis(V, np.abs(V).argmax(axis=1)[:, None], axis=1) > 0).all()
    assert [row["participants"] for row in result["history"]] == [[3, 5, 8]] * 2


def test_subspace_finds_the_variances():
    nodes = hospitals(400, sizes=(60, 70, 50))
    fitted, result = fit(nodes, solver="subspace", components=20, iterations=9, rounds=12)
    theirs = PCA(20, svd_solver="full").fit(pooled(nodes))
    np.testing.assert_allclose(fitted["explained_variance"], theirs.explained_variance_, rtol=1e-4)
    np.testing.assert_allclose(fitted["explained_variance_ratio"], theirs.explained_variance_ratio_, rtol=1e-4)
    np.testing.assert_allclose(np.abs(np.sum(fitted["components"] * theirs.components_, axis=1)), 1, atol=1e-3)
    assert result["model"]["solver"] == "subspace" and len(result["history"]) < 12


def test_subspace_of_columns_that_float32_does_not_hold():
    """A date and a number of the study, the same in all rows: what the mean lacks as it travels is no variance."""
    rng = np.random.default_rng(0)
    nodes = {k: pd.DataFrame(rng.normal(size=(60, 30)) * 0.5).rename(columns=str) for k in (1, 2, 3)}
    nodes = {k: rows.assign(extracted=20240115.0, study=100000003.0, label=0) for k, rows in nodes.items()}
    exact, subspace = (fit(nodes, solver=s, components=3)[0] for s in ("exact", "subspace"))
    np.testing.assert_allclose(subspace["explained_variance"], exact["explained_variance"], rtol=1e-4)
    assert subspace["explained_variance_ratio"].sum() < 1 and abs(subspace["components"][:, -2:]).max() < 1e-5


def test_subspace_is_exact_once_it_spans_all_rows():
    nodes = hospitals(300, sizes=(12, 10, 11))
    fitted, result = fit(nodes, solver="subspace", components=15)
    theirs = PCA(15, svd_solver="full").fit(pooled(nodes))
    np.testing.assert_allclose(fitted["components"], theirs.components_, atol=1e-4)  # products are float32
    np.testing.assert_allclose(fitted["explained_variance"], theirs.explained_variance_, rtol=1e-5)
    assert result["final"]["change"] is None


def test_components_beyond_what_varies_explain_nothing():
    """Three directions only: the others are orthonormal all the same, and nothing is infinite."""
    rng = np.random.default_rng(0)
    nodes = {k: pd.DataFrame(rng.normal(size=(20, 3)) @ rng.normal(size=(3, 40))) for k in (1,)}
    nodes = {1: nodes[1].iloc[:10].rename(columns=str), 2: nodes[1].iloc[10:].rename(columns=str)}
    for solver in ("exact", "subspace"):
        fitted, _ = fit(nodes, solver=solver, components=8)
        np.testing.assert_allclose(fitted["components"] @ fitted["components"].T, np.eye(8), atol=1e-6)
        np.testing.assert_allclose(fitted["explained_variance_ratio"][:3].sum(), 1, rtol=1e-6)
        np.testing.assert_allclose(fitted["explained_variance"][3:], 0, atol=1e-6)


def test_nodes_keep_their_projection_and_transform_is_a_task_of_its_own():
    nodes = hospitals(6)
    with mock.MockNetwork("v6_pca", nodes, environment=OPEN, on_round=lambda row: None) as network:
        result = network.run(components=2, features=list(nodes[3].columns))
        theirs = PCA(2).fit(pooled(nodes))

        def kept():
            files = {k: sorted(network.folder.glob(f"node-{k}/tmp/pca-*")) for k in nodes}
            return {k: np.load(found[-1])["projection"] for k, found in files.items()}

        for k, Z in kept().items():
            np.testing.assert_allclose(Z, theirs.transform(nodes[k].to_numpy()), atol=1e-5)
        client = network.client()
        request = {"job": {**result["job"], "key": "a" * 32}, "round": 1, "arrays": result["weights"]}
        task = client.task.create({"method": "transform", "kwargs": request}, list(nodes))
        answers = client.wait_for_results(task["id"])
        assert [a.keys() for a in answers] == [{"organization_id", "round", "n", "kept"}] * 3
        assert all((network.folder / f"node-{k}/tmp/pca-{'a' * 32}-{k}-round-1.npz").exists() for k in nodes)


def test_bytes():
    """The upper triangle in float64; of the subspace its products, and no more than a twentieth for 4,000 columns."""
    up = 0
    for row in fit(hospitals(40), solver="exact")[1]["per_node"]:
        up += row["bytes_up"] * (row["organization_id"] == 3)
    assert up == pytest.approx(16 / 3 * (40 * 41 + 40 * 5), rel=0.2)
    d, k = 4000, 20
    sent = fit(hospitals(d, sizes=(20, 20, 20)), components=k)[1]["history"]
    assert sum(row["bytes_up"] + row["bytes_down"] for row in sent) < 3 * 16 / 3 * d * d / 20


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"components": 9}, "components=9 is refused: 90 rows of 6 columns have 6"),
        ({"solver": "subspace"}, "the subspace solver needs their number"),
        ({"rounds": 1}, "rounds=1 are too few"),
        ({"solver": "svd"}, "solver='svd' is refused"),
        ({"components": 0}, "components=0 is refused"),
    ],
)
def test_wrong_requests(settings, says):
    with pytest.raises((SafeError, UserInputError), match=says) as error:
        fit(hospitals(6), **settings)
    assert "\n" not in str(error.value)


def test_columns_that_are_all_constant():
    with pytest.raises(SafeError, match="all columns are constant"):
        fit({k: pd.DataFrame({"a": [1.0] * 20, "b": [2.0] * 20}) for k in (1, 2)})


def test_refusals_of_a_node():
    nodes = hospitals(6)
    small, missing = {**nodes, 8: nodes[8].head(3)}, {**nodes, 8: nodes[8].assign(c2=np.nan)}
    for spoiled, environment, says in [
        (small, {}, "organization 8: fewer than 10 rows"),
        (missing, {}, "organization 8: missing values in the column\\(s\\) c2"),
        (nodes, {"V6_FEDERATED_DISALLOWED_COLUMNS": "c3"}, "the column\\(s\\) c3 may not be used"),
        (nodes, {"V6_FEDERATED_MAXIMUM_ROUNDS": "4"}, "10 rounds are more than the 4"),
    ]:
        with pytest.raises(CollectResultsError, match=says):
            fit(spoiled, environment=environment)


@pytest.mark.parametrize(("solver", "statistic"), [("exact", "covariance"), ("subspace", "product")])
def test_a_node_that_drops_out(solver, statistic):
    """It begins anew with the others where they are enough; the history says so. Else one line, and nothing is left."""
    nodes = hospitals(6)
    own = {"components": 3, "solver": solver, "features": list(nodes[3].columns), "retries": 0}

    def outcomes(organization, input_):
        failed = organization == 5 and input_["kwargs"].get("statistic") == statistic
        return mock.CallOutcome(status="crashed" if failed else "completed")

    with mock.MockNetwork("v6_pca", nodes, environment=OPEN, on_round=lambda row: None, outcomes=outcomes) as network:
        result = network.run(**own, min_responses=0.5)
    with mock.MockNetwork("v6_pca", nodes, environment=OPEN, on_round=lambda row: None, outcomes=outcomes) as network:
        with pytest.raises(CollectResultsError, match="^round 2, fit_step: organization 5: run crashed$"):
            network.run(**own)
        with pytest.raises((SafeError, UserInputError), match="rounds=2 are too few: nodes dropped out"):
            network.run(**own, min_responses=0.5, rounds=2)
        assert not list(network.folder.glob("node-*/tmp/*"))
    del nodes[5]
    assert result["weights"] == train("v6_pca", nodes, **own)["weights"]
    missing = [row["round"] for row in result["history"] if row["missing"]]
    assert missing == [2] and result["history"][1]["missing"] == [{"organization_id": 5, "reason": "run crashed"}]


def test_nothing_to_resume():
    with pytest.raises(UserInputError, match="resume: pca keeps nothing to go on from"):
        fit(hospitals(6), resume={"method": "pca"})


def test_the_label_is_no_component():
    """Unless all columns are named as features, the last is the label, whatever it holds."""
    nodes = {k: rows.assign(outcome=np.arange(len(rows)) * 0.5) for k, rows in hospitals(5).items()}
    assert train("v6_pca", nodes)["data"]["features"] == [f"c{i}" for i in range(5)]


def test_preprocessing_comes_before():
    nodes = hospitals(5)
    for rows in nodes.values():
        rows.loc[::7, "c2"] = np.nan
    fitted, _ = fit(nodes, preprocess=["impute", "standardize"], components=3)
    filled = pd.concat(nodes.values()).pipe(lambda t: t.fillna(t.mean()))
    theirs = PCA(3).fit(StandardScaler().fit_transform(filled))
    np.testing.assert_allclose(fitted["explained_variance"], theirs.explained_variance_, rtol=1e-6)
    np.testing.assert_allclose(fitted["components"], theirs.components_, atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "idle"),
    [({"model": "fnn"}, "model"), ({"target": 0.9, "precision": "float16"}, "target, precision")],
)
def test_settings_of_methods_that_train_a_model_are_refused(settings, idle):
    """Two results would differ by them in nothing except what they say of themselves."""
    with pytest.raises(UserInputError, match=f"^{idle} has no effect on pca, which trains no model"):
        train("v6_pca", hospitals(6), **settings)
