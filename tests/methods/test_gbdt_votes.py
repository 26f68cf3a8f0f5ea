"""Trees that vote: Garst 2021, Appendix B."""

import json

import numpy as np
import pytest
from boosted import SMALL, ensemble, features
from helpers import table, train
from vantage6.algorithm.tools.exceptions import CollectResultsError, UserInputError

from v6_federated.base.errors import SafeError
from v6_gbdt.trees import FEATURE, GAIN, LEAF, VALUE, Trees
from v6_workbench.cli.main import main
from v6_workbench.simulation.call_outcomes import CallOutcome
from v6_workbench.simulation.mock import MockNetwork


def nodes(classes: int):
    return {k: table(120 + 10 * k, d=4, classes=classes, seed=k) for k in (1, 2, 3)}


def output(tree: np.ndarray, x: np.ndarray) -> float:
    """A row's output, by walking down a tree."""
    at = 0
    while tree[at, FEATURE] != LEAF:
        if x[int(tree[at, FEATURE])] <= tree[at, VALUE]:
            at += 1
            continue
        at, open_ = at + 1, 1
        while open_:  # over the left subtree
            open_ += 1 if tree[at, FEATURE] != LEAF else -1
            at += 1
    return float(tree[at, VALUE])


@pytest.mark.parametrize("classes", [2, 3])
def test_by_hand(classes):
    """Each round's trees vote for the class of their largest output, with the accuracy after that round."""
    rows, rounds = nodes(classes), 6
    result = train("v6_gbdt", rows, rounds=rounds, **SMALL, prediction="vote", holdout=0.3)
    model, w = ensemble(result)
    accuracies = [row["accuracy"] for row in result["history"]]
    weights = [*accuracies[:-1], accuracies[-2]]  # the last round's is known when no tree follows
    trees = model.split(w)
    X = np.float32(features(rows[1]))[:40]
    shares = np.full((40, classes), np.mean(np.float32(weights)) / 2)
    for r in range(rounds):
        own = trees[r * model.columns : (r + 1) * model.columns]
        for i, x in enumerate(X):
            outputs = [output(tree, x) for tree in own]
            voted = int(outputs[0] > 0) if classes == 2 else int(np.argmax(outputs))
            shares[i, voted] += np.float32(weights[r])
    scores = model.scores(w, X)
    p = np.exp(np.column_stack([np.zeros(40), scores[:, 0]]) if classes == 2 else scores)
    np.testing.assert_allclose(p / p.sum(axis=1, keepdims=True), shares / shares.sum(axis=1, keepdims=True), rtol=1e-6)
    assert (model.predict(w, X) == shares.argmax(axis=1)).all()


def test_the_trees_are_those_that_are_added_up_elsewhere():
    """A vote changes how trees predict, not how they grow."""
    one, other = (
        ensemble(train("v6_gbdt", nodes(2), rounds=4, **SMALL, prediction=prediction))[1]
        for prediction in ("sum", "vote")
    )
    is_leaf = one[:, FEATURE] == LEAF
    np.testing.assert_array_equal(one[:, :GAIN], other[:, :GAIN])
    np.testing.assert_array_equal(one[~is_leaf], other[~is_leaf])
    assert (one[is_leaf, GAIN] == 0).all() and (other[is_leaf, GAIN] > 0).all()


def test_it_is_exported_but_not_as_lightgbm(tmp_path):
    result = train("v6_gbdt", nodes(2), rounds=3, **SMALL, prediction="vote")
    model, w = ensemble(result)
    with pytest.raises(SafeError, match="cannot hold trees that vote"):
        model.text(w)
    (tmp_path / "result.json").write_text(json.dumps(result))
    assert main(["export", str(tmp_path), "--to", str(tmp_path / "model.npz")]) == 0
    rows = table(30, d=4, seed=9)
    rows.to_csv(tmp_path / "new.csv", index=False)
    call = ["predict", str(tmp_path / "model.npz"), "--data", str(tmp_path / "new.csv")]
    assert main([*call, "--out", str(tmp_path / "predicted.csv")]) == 0
    said = np.loadtxt(tmp_path / "predicted.csv", delimiter=",", skiprows=1, usecols=0)
    assert (said == model.predict(w, np.float32(features(rows)))).all()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"mode": "random"}, "prediction=vote needs mode=cyclic"),
        ({**SMALL, "objective": "regression"}, "prediction=vote needs objective=classification"),
        ({**SMALL, "holdout": 0.0}, "prediction=vote needs holdout or evaluators"),
        ({**SMALL, "evaluate_every": 2}, "evaluate_every=1"),
    ],
)
def test_settings_that_give_no_weights_are_refused(settings, says):
    with pytest.raises(UserInputError, match=says):
        train("v6_gbdt", nodes(2), rounds=2, **settings, prediction="vote")


def test_a_node_cannot_give_its_trees_votes():
    """Its trees alone would then decide."""

    def voting(answer):
        from v6_federated.messages import codec

        trees = codec.decode(answer["arrays"])["trees"].copy()
        trees[trees[:, FEATURE] == LEAF, GAIN] = 1e6
        return {**answer, "arrays": codec.encode({"trees": trees})}

    def outcomes(organization, message):
        return CallOutcome(alter=voting) if message["method"] == "grow" else CallOutcome()

    network = MockNetwork("v6_gbdt", nodes(2), outcomes=outcomes, on_round=lambda row: None)
    with network, pytest.raises(CollectResultsError, match="a weight of votes, which central alone gives"):
        network.run(rounds=2, **SMALL)
    assert Trees(2, 2).scores(np.zeros((0, 3), np.float32), np.zeros((3, 2))).shape == (3, 1)
