"""Further looks at the scores of a model, until the AUC is exact enough."""

import numpy as np
import pandas as pd
import pytest
from helpers import OPEN, table, train
from sklearn.metrics import roc_auc_score

from v6_federated import models
from v6_federated.central import dispatch, history
from v6_federated.data import source
from v6_federated.models import metrics
from v6_workbench.reporting import export
from v6_workbench.simulation.mock import CallOutcome, MockNetwork


@pytest.mark.parametrize("fail", [[], [2], [1, 2, 3, 4]])
def test_a_second_look_changes_nothing_but_the_auc(fail):
    """And who fails in it has not failed."""
    rng = np.random.default_rng(1)
    nodes = {}
    for k in (1, 2, 3, 4):
        x = rng.normal(size=(300, 2))
        y = (rng.random(300) < 1 / (1 + np.exp(2.5 - x[:, 0]))).astype(int)
        nodes[k] = pd.DataFrame({"a": 0.01 * x[:, 0], "b": x[:, 1] * 0.001, "ill": y})
    looks = []

    def outcomes(organization, input_):
        if input_["method"] == "evaluate":  # in a round only where the first look, on the way, was not enough
            looks.append(input_["kwargs"]["round"])
            return CallOutcome(status="failed" if organization in fail and looks[-1] == 2 else "completed")
        return CallOutcome()

    settings = {"rounds": 3, "min_responses": 0.5, "cooldown_rounds": 3, "retries": 0, "lr": 0.01}
    with MockNetwork("v6_fedavg", nodes, environment=OPEN, outcomes=outcomes, on_round=lambda row: None) as network:
        result = network.run(**settings)
    assert [row["participants"] for row in result["history"]] == [[1, 2, 3, 4]] * 3
    assert [row["evaluated"] for row in result["history"]] == [240] * 3
    assert not any(row["unevaluated"] or row["missing"] for row in result["history"])
    assert 2 in looks, "the bands of round 1 are about no model's scores"
    assert result["traffic"]["evaluation"]["bytes_up"] > 0


def test_a_second_look_that_nobody_answers_places_no_bands():
    """The first look's counts are read with the first look's bands."""
    rng = np.random.default_rng(5)
    rows = source.Rows(rng.normal(size=(500, 1)).astype(np.float32) * np.float32(0.001), rng.integers(0, 2, 500))
    model = models.build({"name": "logreg", "features": 1, "classes": 2})
    told = metrics.evaluate(model, np.array([1, -2], np.float32), rows, 2, 64)
    answer = dispatch.Answer(1, 500, {}, {"evaluation": told}, 1, 1, "evaluate")
    job = history.History([], False, lambda row: None)
    placed = metrics.next_bands([told], job.scale, job.centers)
    assert job.look_again([[answer]]) == [1] and job.scale < metrics.SCALE
    assert job.look_again([[answer], []]) == []
    job.evaluated(1, [[answer], []])
    assert (job.scale, job.centers) == placed


@pytest.mark.parametrize("method", ["fedavg", "scaffold", "gbdt"])
@pytest.mark.parametrize("rounds", [1, 3])
def test_the_auc_of_a_result_is_that_of_its_scores(method, rounds):
    """Also of a rare class, of which a model that has just begun knows nothing yet."""
    nodes = {}
    for k in (1, 2, 3):
        rows = table(400, seed=k)
        nodes[k] = rows.assign(label=(np.random.default_rng(k).random(400) < 0.02 + 0.08 * rows["label"]).astype(int))
    with MockNetwork(f"v6_{method}", nodes, on_round=lambda row: None) as network:
        result = network.run(rounds=rounds, preprocess=["standardize"])
    held = [source.split(400, 0.2, k)[1] for k in nodes]
    test = pd.concat([nodes[k].iloc[i] for k, i in zip(nodes, held, strict=True)])
    told, _ = export.predict(result, source.Source(table=test))
    assert result["final"]["auc"] == pytest.approx(roc_auc_score(test["label"], told["score"]), abs=0.01)
    assert result["history"][-1]["auc"] == result["final"]["auc"]


@pytest.mark.parametrize("lr", [0.02, 0.05])
def test_the_auc_after_rounds_without_change(lr):
    """Dynamic averaging whose nodes stay silent until the last round, after which scores lie elsewhere."""
    nodes = {k: table(400, seed=k) for k in (1, 2, 3, 4)}
    result = train("v6_dynavg", nodes, rounds=6, lr=lr)
    assert [row["uploads"] for row in result["history"]] == [0] * 5 + [4]
    test = pd.concat([nodes[k].iloc[source.split(400, 0.2, k)[1]] for k in nodes])
    told, _ = export.predict(result, source.Source(table=test))
    assert result["final"]["auc"] == pytest.approx(roc_auc_score(test["label"], told["score"]), abs=0.01)


def test_tied_scores_are_not_looked_at_for_ever():
    """Three models in a row, and the last one."""
    looks = []

    def outcomes(organization, input_):
        looks.append(input_["kwargs"]["round"] if input_["method"] == "evaluate" and organization == 1 else 0)
        return CallOutcome()

    nodes = {k: table(60, seed=k).assign(x0=0.0, x1=0.0, x2=0.0, x3=[0, 1] * 30) for k in (1, 2)}
    nodes = {k: rows.assign(label=[0, 0, 1, 1] * 15) for k, rows in nodes.items()}
    with MockNetwork("v6_fedavg", nodes, environment=OPEN, outcomes=outcomes, on_round=lambda row: None) as network:
        network.run(rounds=10, lr=0.1)
    assert looks.count(10) > 1, "the last model's are looked at whatever came before"
    assert not {7, 8, 9} & {*looks}
    assert max(looks.count(t) for t in range(2, 10)) <= 2 < history.LOOKS, "the same ties whatever the bands"


def _counted(scores, y, job):
    rows = source.Rows(np.asarray(scores, np.float32)[:, None], np.asarray(y))
    model = models.build({"name": "logreg", "features": 1, "classes": 2})
    told = metrics.evaluate(model, np.array([1, 0], np.float32), rows, 2, 64, job.scale, job.centers)
    return [dispatch.Answer(1, len(y), {}, {"evaluation": told}, 1, 1, "evaluate")]


def test_scores_that_lie_elsewhere_are_looked_at_from_the_beginning():
    job, rng = history.History([], False, lambda row: None), np.random.default_rng(0)
    y = np.arange(400) % 2
    job.scale, job.centers, job._futile = 1e-4, [-3.0], history.FUTILE
    looks = [_counted(rng.normal(size=400) + y, y, job)]
    assert job.look_again(looks) == [1] and (job.scale, job.centers) == (metrics.SCALE, None)
    looks.append(_counted(rng.normal(size=400) + y, y, job))
    assert job.look_again(looks) == [] and job.evaluated(1, looks)["auc"] > 0.7
    assert job._futile == 0


def test_a_look_without_all_nodes_ends_the_looking():
    """It is of other rows, and says nothing of ties."""
    job, rng = history.History([], False, lambda row: None), np.random.default_rng(0)
    y, scores = np.arange(400) % 2, rng.normal(size=400) * 1e-3
    both = [
        *_counted(scores, y, job),
        dispatch.Answer(2, 400, {}, _counted(scores, y, job)[0].values, 1, 1, "evaluate"),
    ]
    assert job.look_again([both]) == [1, 2]
    looks = [both, _counted(scores, y, job)]
    assert job.look_again(looks) == []
    auc = metrics.combine([a.values["evaluation"] for a in both])["auc"]
    assert job.evaluated(1, looks)["auc"] == auc and job._futile == 0


def test_a_look_that_tells_no_bands_is_not_better():
    job, rng = history.History([], False, lambda row: None), np.random.default_rng(0)
    y, scores = np.arange(400) % 2, rng.normal(size=400) * 1e-3
    looks = [_counted(scores, y, job)]
    assert job.look_again(looks) == [1]
    looks.append(
        [
            dispatch.Answer(
                1, 400, {}, {"evaluation": {**looks[0][0].values["evaluation"], "bands": []}}, 1, 1, "evaluate"
            )
        ]
    )
    assert job.look_again(looks) == [] and job.evaluated(1, looks)["auc"] is not None
