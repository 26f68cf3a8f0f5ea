"""Fitting steps when nodes fail, join later or lose what they kept."""

import numpy as np
import pandas as pd
import pytest
from helpers import OPEN, table, train
from vantage6.algorithm.tools.exceptions import CollectResultsError

from v6_federated.data import preprocessing
from v6_workbench.simulation.mock import CallOutcome, MockNetwork

UPDATE = "client_update"


@pytest.mark.parametrize("evaluators", [[], [3]])
def test_large_steps_are_sent_once_and_kept(evaluators, monkeypatch):
    """The tasks of the rounds only name them. The model is the same, and nothing is left at the nodes."""
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


def test_a_kept_step_that_is_gone_is_named(monkeypatch, hospitals):
    """All nodes' folders are emptied before round 1."""
    monkeypatch.setattr(preprocessing, "LARGE", 1)
    network: list[MockNetwork] = []

    def outcomes(organization, input_):
        if input_["method"] == UPDATE:
            for file in network[0].folder.glob("node-*/tmp/*"):
                file.unlink()
        return CallOutcome()

    with MockNetwork("v6_fedavg", hospitals, environment=OPEN, outcomes=outcomes) as mock:
        network.append(mock)
        with pytest.raises(CollectResultsError) as caught:
            mock.run(rounds=1, preprocess=["standardize"])
    says = "organizations 3, 5, 8: the fitted step standardize is no longer in the job's folder; run the job again"
    assert says in str(caught.value)


def train_with(outcomes, package, nodes, **settings):
    """A job on simulated time. ``outcomes(organization, function, arguments)`` decides what becomes of each call."""

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
def test_a_step_is_fitted_to_the_nodes_that_answer_all_its_questions(step, statistic):
    """Node 4 breaks down at one of them: the fitted numbers are those of the others, to the last bit."""
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
    """Node 5 breaks down until round 2: it neither described its data nor received the large steps."""
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
    """Its folder is emptied before round 2, which goes on without it. In round 3 it takes part again."""
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
    assert "the fitted step standardize is no longer in the job's folder" in history[1]["missing"][0]["reason"]
