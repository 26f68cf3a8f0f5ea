"""What the server has kept of a task whose central was lost for good, and a job that resumes it."""

import base64
import json

import pytest
from helpers import OPEN, train
from vantage6.algorithm.tools.exceptions import UserInputError

from v6_federated.base import logs
from v6_federated.base.errors import SafeError
from v6_federated.data import preprocessing
from v6_federated.messages import organizations
from v6_workbench.cli import job
from v6_workbench.network import earlier_tasks, server, submit
from v6_workbench.simulation.call_outcomes import CallOutcome
from v6_workbench.simulation.mock import MockNetwork


def kept(input_):
    """What a server keeps of a call: ``input`` in vantage6 4, and ``arguments`` in 5."""
    said = {"input": input_, "arguments": input_["kwargs"]}
    return {name: base64.b64encode(json.dumps(value).encode()) for name, value in said.items()}


OWN = {"rounds": 6, "seed": 3, "lr": 0.3}


@pytest.fixture
def lost(hospitals, monkeypatch):
    """A job whose central is lost in round 4: what is left of it, and the result that it would have had."""

    def run(**settings):
        tasks: list[dict] = []

        def outcomes(organization, input_):
            name = f"fedavg {input_['method']}, round {input_['kwargs']['round']}"
            tasks.append({"id": len(tasks) + 2, "name": name, **kept(input_)})
            return CallOutcome()

        rows: list[dict] = []
        with MockNetwork("v6_fedavg", hospitals, environment=OPEN, on_round=rows.append, outcomes=outcomes) as network:
            straight = network.run(**settings)
        log = "\n".join(logs.ROUND + json.dumps(row) for row in rows)
        central = {"id": 1, "log": log, **kept({"method": "central", "kwargs": settings})}
        end = [task["name"] for task in tasks].index("fedavg client_update, round 4") + 1
        monkeypatch.setattr(server, "subtasks", lambda client, task: tasks[:end])
        monkeypatch.setattr(server, "one_run", lambda client, task: central if task == 1 else tasks[task - 2])
        return earlier_tasks.left_by(None, 1, "fedavg"), straight

    return run


def test_ids_in_a_row_are_read_as_they_were(hospitals, lost, monkeypatch):
    """Messages name 100 consecutive organizations by the first and the last; here three."""
    monkeypatch.setattr(organizations, "RUN", 3)
    for k, rows in zip((1, 2, 3), [hospitals.pop(k) for k in list(hospitals)], strict=True):
        hospitals[k] = rows
    left, straight = lost(**OWN)
    assert left["organizations"] == [1, 2, 3]
    assert train("v6_fedavg", hospitals, **OWN, resume=left)["weights"] == straight["weights"]


def test_fitted_steps_are_read_from_the_task_that_handed_them_over(lost, hospitals, monkeypatch):
    """``submit --resume TASK``: the last round's task only names the large steps."""
    monkeypatch.setattr(preprocessing, "LARGE", 1)
    settings = {**OWN, "preprocess": ["impute:median", "standardize", "pca:3"]}
    left, straight = lost(**settings)
    assert left["data"] == straight["data"]
    assert train("v6_fedavg", hospitals, **settings, resume=left)["weights"] == straight["weights"]


def test_a_resumed_task_has_the_settings_and_hospitals_of_the_lost_one(lost, hospitals):
    """``submit --resume TASK --rounds 6`` alone: the rest is what the lost task had asked for."""
    settings = {**OWN, "epochs": 2, "batch_size": 8, "fraction": 0.5, "preprocess": ["standardize"]}
    left, straight = lost(**settings)
    assert left["organizations"] == [*hospitals]
    values = job.resumed(left, "fedavg", {"rounds": 6})
    assert {name: values[name] for name in settings} == settings
    assert train("v6_fedavg", hospitals, **values)["weights"] == straight["weights"]
    with pytest.raises(UserInputError, match="organizations"):
        train("v6_fedavg", {**hospitals, 99: hospitals[3]}, **values)


@pytest.mark.parametrize("method", ["gbdt", "coop", "dynavg", "pca"])
def test_a_method_that_nodes_are_not_sent_in_full_cannot_be_resumed(method):
    with pytest.raises(SafeError, match=f"task 1 cannot be resumed: .* {method} does not send all"):
        earlier_tasks.left_by(None, 1, method)


def test_a_result_that_was_resumed_knows_its_steps(hospitals):
    """So the next resume with other steps is refused, as the first was."""
    settings = {**OWN, "preprocess": ["clip:0.05", "standardize"]}
    half = train("v6_fedavg", hospitals, **{**settings, "rounds": 2})
    again = train("v6_fedavg", hospitals, **job.resumed(half, "fedavg", {"rounds": 4}))
    assert again["settings"]["preprocess"] == settings["preprocess"]
    with pytest.raises(UserInputError, match="the earlier job had the steps"):
        train("v6_fedavg", hospitals, rounds=6, resume=again, preprocess=["clip:0.4", "standardize"])
    spoilt = {**half, "settings": {**half["settings"], "preprocess": [1]}}
    with pytest.raises(UserInputError, match="resume: not a result"):
        train("v6_fedavg", hospitals, rounds=6, resume=spoilt)


def test_a_line_of_a_log_that_is_cut_is_no_round():
    """It ends in a brace all the same."""
    row = {"round": 1, "missing": [{"organization_id": 2, "reason": "x"}]}
    line = logs.ROUND + json.dumps(row)
    assert submit.rounds_in(f"info > begun\n{line}\n{line[:-3]}") == [row]
