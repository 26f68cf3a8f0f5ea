"""A job goes on after an interruption as if there had been none."""

import base64
import json
from pathlib import Path

import numpy as np
import pytest
from helpers import OPEN, train
from test_faults import METHODS as FAULTS
from test_faults import NODES
from test_laws import METHODS, weights
from vantage6.algorithm.tools.exceptions import UserInputError

from v6_federated import Answers
from v6_federated.base import vantage6_api
from v6_federated.base.errors import SafeError
from v6_federated.base.files import write_whole
from v6_federated.central.checkpoint import Checkpoint
from v6_federated.central.federation import Federation
from v6_federated.central.rounds import Tasks
from v6_federated.data import preprocessing
from v6_federated.node.state import State
from v6_workbench.cli import job
from v6_workbench.network import earlier_tasks, server, submit
from v6_workbench.simulation.mock import CallOutcome, MockNetwork

STATELESS = [(p, s) for p, s in METHODS if p in ("v6_fedavg", "v6_fsvrg", "v6_loadaboost", "v6_colearning")]
OWN = {"rounds": 6, "seed": 3, "preprocess": ["standardize"]}


class Killed(BaseException):
    """The container of central is gone, and nothing of it has been tidied up."""


def test_a_file_is_the_old_one_until_the_new_one_is_whole(tmp_path, monkeypatch):
    """A reader never sees a part, and neither a full disk nor a signal takes what was there."""
    file = tmp_path / "folder" / "page.md"
    write_whole(file, "old")
    truly = Path.write_text

    def cut(path, text, **options):
        truly(path, text[:1], **options)
        assert file.read_text() == "old"
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Path, "write_text", cut)
        write_whole(file, "new")
    assert file.read_text() == "old" and list(file.parent.iterdir()) == [file]
    write_whole(file, "new \N{GREEK SMALL LETTER RHO}")
    assert file.read_text(encoding="utf-8") == "new \N{GREEK SMALL LETTER RHO}"


def test_a_disk_that_was_full_for_a_moment_spoils_no_later_checkpoint(tmp_path, monkeypatch):
    """A line of rounds that was cut is written again, and whoever comes next reads all."""
    kept, history = Checkpoint(tmp_path, "fedavg-1"), []

    def save(t):
        history.append({"round": t})
        kept.save({"history": history, "per_node": [{"round": t, "organization_id": 7}], "round": t})

    truly = Path.open

    def full(path, mode="r", *arguments, **options):
        with truly(path, mode, *arguments, **options) as stream:
            stream.write('{"row": {"ro')
        raise OSError(28, "No space left on device")

    for t in (1, 2, 3):
        save(t)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", full)
        save(4)
    assert (tmp_path / "checkpoint-fedavg-1.jsonl").read_text().endswith('{"row": {"ro')
    for t in (5, 6):
        save(t)
        assert Checkpoint(tmp_path, "fedavg-1").load()["history"] == history


def test_two_containers_of_one_round_keep_their_state(tmp_path, monkeypatch):
    """vantage6 may start a task twice; the one ends while the other writes."""
    first, second = (State(tmp_path, "scaffold-x-1", 5) for _ in range(2))
    truly = np.savez

    def meanwhile(stream, **arrays):
        monkeypatch.setattr(np, "savez", truly)
        truly(stream, **arrays)
        second.save({"c_k": np.ones(3)})

    monkeypatch.setattr(np, "savez", meanwhile)
    first.save({"c_k": np.zeros(3)})
    assert State(tmp_path, "scaffold-x-1", 6).load(5)["c_k"].shape == (3,)
    assert len(list(tmp_path.iterdir())) == 1


def uneven(organization, input_):
    """Nodes of unlike speeds, so that CO-OP's merges are not in turn."""
    return CallOutcome({1: 1.0, 2: 1.7, 3: 2.9, 4: 6.1}[organization] if input_["method"] == "client_update" else 0.0)


def same(one, two):
    """Everything but times: the model, every row of the history and every answer."""
    for result in (one, two):
        for row in result["history"]:
            row.pop("seconds")
    return {k: v for k, v in one.items() if k != "traffic"} == {k: v for k, v in two.items() if k != "traffic"}


@pytest.mark.parametrize(("package", "settings"), [m for m in METHODS if m[0] != "v6_coop"])
@pytest.mark.parametrize("killed_in", [1, 3, 4])
def test_a_central_that_is_started_again_goes_on(package, settings, killed_in, hospitals, monkeypatch):
    """Killed while the answers of a round come in; vantage6 starts it again with the same job. The state at nodes
    counts as well. (CO-OP's order of merges depends on the time that has passed: see below.)"""
    settings = {**OWN, "batch_size": 10, **settings}
    straight = train(package, hospitals, **settings)
    resumed, started, left = killed_and_started_again(package, hospitals, killed_in, monkeypatch, **settings)
    assert started == [*range(1, killed_in + 1), *range(killed_in, 7)]
    assert same(straight, resumed)
    assert not left


@pytest.mark.parametrize("killed_in", [1, 2, 4])
def test_coop_goes_on_with_the_answers_under_way(killed_in, monkeypatch):
    """The model follows from the history, over the interruption; nodes go on from the state they have kept."""
    own, follow = FAULTS["v6_coop"]
    settings = {"rounds": 6, "holdout": 0, "lr": 0.3, **own}
    result, started, left = killed_and_started_again("v6_coop", NODES, killed_in, monkeypatch, uneven, **settings)
    assert started == [*range(1, killed_in + 1), *range(killed_in, 7)]
    assert {row["outcome"] for row in result["per_node"]} >= {"merged", "outdated"}
    np.testing.assert_allclose(weights(result), follow(result), atol=2e-6)
    assert not left


def killed_and_started_again(package, nodes, killed_in, monkeypatch, outcomes=None, **settings):
    """The result, the rounds that were begun, and what is left in the nodes' folders."""
    record, started = Federation.record, []

    def kill(self, *arguments, **columns):
        started.append(self._tasks.round)
        if self._tasks.round == killed_in and started.count(killed_in) == 1:
            raise Killed
        return record(self, *arguments, **columns)

    monkeypatch.setattr(Federation, "record", kill)
    give_up = Federation.give_up
    monkeypatch.setattr(Federation, "give_up", lambda self: None)
    with MockNetwork(
        package, nodes, environment=OPEN, on_round=lambda row: None, outcomes=outcomes, keep=True
    ) as network:
        with pytest.raises(Killed):
            network.run(**settings)
        monkeypatch.setattr(Federation, "give_up", give_up)
        resumed = network.run(**settings)
        left = [file.name for file in network.folder.glob("node-*/tmp/*")]
    return resumed, started, left


@pytest.mark.parametrize(("package", "settings"), STATELESS)
def test_a_new_job_goes_on_from_a_result(package, settings, hospitals):
    straight = train(package, hospitals, **{**OWN, **settings})
    half = train(package, hospitals, **{**OWN, **settings, "rounds": 3})
    resumed = train(package, hospitals, **OWN | settings, resume=json.loads(json.dumps(half)))
    assert weights(resumed).tobytes() == weights(straight).tobytes()
    for name in ("loss", "accuracy", "auc", "participants"):
        assert [row[name] for row in resumed["history"]] == [row[name] for row in straight["history"]]


STEPS = {"preprocess": ["impute:median", "standardize", "pca:3"]}


def asked(functions):
    """CallOutcomes that note the functions that are called."""

    def outcomes(organization, input_):
        functions.append(input_["method"])
        return CallOutcome()

    return outcomes


@pytest.mark.parametrize("large", [1, 10**9])
def test_fitted_steps_survive_a_restart(large, hospitals, monkeypatch):
    """They are neither fitted nor handed over again: nodes still keep those that tasks only name."""
    monkeypatch.setattr(preprocessing, "LARGE", large)
    settings, functions = {**OWN, **STEPS, "lr": 0.3}, []
    straight = train("v6_fedavg", hospitals, **settings)
    resumed, _, left = killed_and_started_again("v6_fedavg", hospitals, 3, monkeypatch, asked(functions), **settings)
    assert same(straight, resumed)
    assert functions.count("describe") == 3 and functions.count("fit_step") == 3 * 5
    assert functions.count("keep_steps") == (3 if large == 1 else 0)
    assert not left


@pytest.mark.parametrize("package", ["v6_fedavg", "v6_gbdt"])
def test_killed_while_fitted_steps_are_handed_over(package, hospitals, monkeypatch):
    """They are not fitted again, and what nodes keep goes with the job."""
    monkeypatch.setattr(preprocessing, "LARGE", 1)
    own = {"min_rows_leaf": 10} if package == "v6_gbdt" else {}
    settings, functions = {**OWN, **STEPS, "lr": 0.3, **own}, []
    straight = train(package, hospitals, **settings)
    hand_over, killed = Tasks._hand_over, []

    def kill(self, organizations):
        failed = hand_over(self, organizations)
        if self._large and not killed:
            killed.append(1)
            raise Killed
        return failed

    monkeypatch.setattr(Tasks, "_hand_over", kill)
    give_up = Federation.give_up
    monkeypatch.setattr(Federation, "give_up", lambda self: None)
    with MockNetwork(
        package, hospitals, environment=OPEN, on_round=lambda row: None, outcomes=asked(functions), keep=True
    ) as network:
        with pytest.raises(Killed):
            network.run(**settings)
        monkeypatch.setattr(Federation, "give_up", give_up)
        again = network.run(**settings)
        left = [file for file in network.folder.glob("node-*/tmp/**/*") if file.is_file()]
    assert same(straight, again) and not left
    assert functions.count("describe") == 3 and functions.count("keep_steps") == 6


def test_pca_begins_its_rounds_anew_with_the_fitted_steps(hospitals, monkeypatch):
    settings, functions = {"components": 2, "preprocess": ["standardize"], "features": ["x0", "x1", "x2"]}, []
    straight = train("v6_pca", hospitals, **settings)
    record, killed = Federation.record, []

    def kill(self, *arguments, **columns):
        if self._tasks.round == 2 and not killed:
            killed.append(2)
            raise Killed
        return record(self, *arguments, **columns)

    monkeypatch.setattr(Federation, "record", kill)
    give_up = Federation.give_up
    monkeypatch.setattr(Federation, "give_up", lambda self: None)
    with MockNetwork(
        "v6_pca", hospitals, environment=OPEN, on_round=lambda row: None, outcomes=asked(functions), keep=True
    ) as network:
        with pytest.raises(Killed):
            network.run(**settings)
        monkeypatch.setattr(Federation, "give_up", give_up)
        again = network.run(**settings)
    assert again["weights"] == straight["weights"] and len(again["history"]) == 2
    assert functions.count("describe") == 3 and functions.count("fit_step") == 3 * (1 + 2 + 2)


@pytest.mark.parametrize("evaluators", [[], [8]])
def test_fitted_steps_are_handed_to_the_nodes_of_a_new_job(evaluators, hospitals, monkeypatch):
    """Whether the request names them again or not."""
    monkeypatch.setattr(preprocessing, "LARGE", 1)
    own = {**OWN, "lr": 0.3}
    if evaluators:
        own |= {"organizations": [3, 5], "evaluators": evaluators, "holdout": 0}
    straight = train("v6_fedavg", hospitals, **own | STEPS)
    half = json.loads(json.dumps(train("v6_fedavg", hospitals, **own | STEPS | {"rounds": 3})))
    for steps in (STEPS, {"preprocess": []}):
        functions: list[str] = []
        with MockNetwork(
            "v6_fedavg", hospitals, environment=OPEN, on_round=lambda row: None, outcomes=asked(functions)
        ) as network:
            resumed = network.run(**own | steps, resume=half)
            assert not list(network.folder.glob("node-*/tmp/*"))
        assert resumed["weights"] == straight["weights"] and resumed["data"] == straight["data"]
        assert "fit_step" not in functions and functions.count("keep_steps") == 3


def test_what_a_lost_job_had_handed_over_is_read_from_the_server(hospitals, monkeypatch):
    """``submit --resume TASK``: the last round's task only names the large steps, an earlier task has them."""
    monkeypatch.setattr(preprocessing, "LARGE", 1)
    settings = {**OWN, **STEPS, "lr": 0.3}
    left, straight = lost(hospitals, settings, monkeypatch)
    assert left["data"] == straight["data"]
    assert train("v6_fedavg", hospitals, **settings, resume=left)["weights"] == straight["weights"]


def test_a_lost_job_goes_on_with_its_settings_and_hospitals(hospitals, monkeypatch):
    """``submit --resume TASK --rounds 6`` alone: the rest is what the lost task had asked for."""
    settings = {**OWN, "lr": 0.3, "epochs": 2, "batch_size": 8, "fraction": 0.5}
    left, straight = lost(hospitals, settings, monkeypatch)
    assert left["organizations"] == [*hospitals]
    values = job.resumed(left, "fedavg", {"rounds": 6})
    assert {name: values[name] for name in settings} == {**settings, "rounds": 6}
    assert train("v6_fedavg", hospitals, **values)["weights"] == straight["weights"]
    with pytest.raises(UserInputError, match="organizations"):
        train("v6_fedavg", {**hospitals, 99: hospitals[3]}, **values)


def lost(hospitals, settings, monkeypatch):
    """What the server has kept of a job whose central was lost in round 4; and the result of one that was not."""
    tasks: list[dict] = []

    def outcomes(organization, input_):
        name = f"fedavg {input_['method']}, round {input_['kwargs']['round']}"
        tasks.append({"id": len(tasks) + 2, "name": name, "input": base64.b64encode(json.dumps(input_).encode())})
        return CallOutcome()

    rows: list[dict] = []
    with MockNetwork("v6_fedavg", hospitals, environment=OPEN, on_round=rows.append, outcomes=outcomes) as network:
        straight = network.run(**settings)
    asked = json.dumps({"method": "central", "kwargs": settings}).encode()
    log = "\n".join(vantage6_api.ROUND + json.dumps(row) for row in rows)
    central = {"id": 1, "input": base64.b64encode(asked), "log": log}
    end = [task["name"] for task in tasks].index("fedavg client_update, round 4") + 1
    monkeypatch.setattr(server, "subtasks", lambda client, task: tasks[:end])
    monkeypatch.setattr(server, "one_run", lambda client, task: central if task == 1 else tasks[task - 2])
    return earlier_tasks.left_by(None, 1, "fedavg"), straight


@pytest.mark.parametrize("method", ["gbdt", "coop", "dynavg", "pca"])
def test_what_central_has_told_nobody_is_not_gone_on_from(method):
    with pytest.raises(SafeError, match=f"task 1 cannot be resumed: .* {method} does not send all"):
        earlier_tasks.left_by(None, 1, method)


def test_a_result_that_was_resumed_knows_its_steps(hospitals):
    """So the next resume is refused with others, as the first was."""
    settings = {**OWN, "preprocess": ["clip:0.05", "standardize"]}
    half = train("v6_fedavg", hospitals, **{**settings, "rounds": 2})
    values = job.resumed(half, "fedavg", {"rounds": 4})
    again = train("v6_fedavg", hospitals, **values)
    assert again["settings"]["preprocess"] == settings["preprocess"]
    with pytest.raises(UserInputError, match="the earlier job had the steps"):
        train("v6_fedavg", hospitals, rounds=6, resume=again, preprocess=["clip:0.4", "standardize"])
    spoilt = {**half, "settings": {**half["settings"], "preprocess": [1]}}
    with pytest.raises(UserInputError, match="resume: not a result"):
        train("v6_fedavg", hospitals, rounds=6, resume=spoilt)


def test_a_line_of_a_log_that_is_cut():
    """It ends in a brace and is no row yet."""
    row = {"round": 1, "missing": [{"organization_id": 2, "reason": "x"}]}
    line = vantage6_api.ROUND + json.dumps(row)
    assert submit.rounds_in(f"info > begun\n{line}\n{line[:-3]}") == [row]


def test_a_checkpoint_that_lacks_a_line_goes_on_all_the_same(hospitals, monkeypatch):
    """Of that round only the row is lost: model and nodes' state are those of a job that was not interrupted."""
    straight = train("v6_scaffold", hospitals, **OWN)
    load = Checkpoint.load

    def cut(self):
        if self._rounds.exists():
            whole = self._rounds.read_text().splitlines(keepends=True)
            self._rounds.write_text("".join(line for line in whole if json.loads(line)["row"]["round"] != 4))
        return load(self)

    monkeypatch.setattr(Checkpoint, "load", cut)
    resumed, started, left = killed_and_started_again("v6_scaffold", hospitals, 5, monkeypatch, **OWN)
    assert started == [1, 2, 3, 4, 5, 5, 6] and left == []
    assert weights(resumed).tobytes() == weights(straight).tobytes()
    rows = {row["round"]: row for row in resumed["history"]}
    assert rows[4]["participants"] == [] and rows[3]["participants"] == [*hospitals]
    assert rows[4].keys() <= rows[3].keys() and len(rows) == 6


def test_a_disk_that_is_gone_at_the_end_costs_no_model(hospitals, monkeypatch):
    def gone(self):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Checkpoint, "remove", gone)
    assert len(train("v6_fedavg", hospitals, **OWN)["history"]) == OWN["rounds"]


def test_a_resumed_job_that_is_started_again(hospitals, monkeypatch):
    """It goes on from its own checkpoint, not from the result that it began with."""
    straight = train("v6_fedavg", hospitals, **OWN)
    half = train("v6_fedavg", hospitals, **{**OWN, "rounds": 3})
    resumed, started, left = killed_and_started_again("v6_fedavg", hospitals, 5, monkeypatch, **OWN, resume=half)
    assert started == [4, 5, 5, 6]
    assert resumed["weights"] == straight["weights"] and len(resumed["history"]) == 6 and not left


def test_a_job_that_is_started_again_and_cannot_go_on(hospitals, monkeypatch):
    """What it had trained before is its result."""

    calls: list[int] = []

    def outcomes(organization, input_):
        if input_["method"] != "client_update":
            return CallOutcome()
        calls.append(input_["kwargs"]["round"])
        return CallOutcome(status="crashed" if calls.count(3) > 3 else "completed")

    two = train("v6_fedavg", hospitals, **{**OWN, "rounds": 2})
    result, _, left = killed_and_started_again("v6_fedavg", hospitals, 3, monkeypatch, outcomes, **OWN)
    assert "round 3, client_update: organizations 3, 5, 8: run crashed" in result["stopped"]
    assert result["weights"] == two["weights"] and len(result["history"]) == 2 and not left


@pytest.mark.parametrize("bad", [1, 3])
def test_a_model_that_is_not_finite_at_central(bad, hospitals, monkeypatch):
    """The model of the round before is the result, and that round the last of its history; without one, the error."""
    rounds = []

    weighted_mean = Answers.weighted_mean

    def mean(answers, name):
        rounds.append(len(answers))
        return weighted_mean(answers, name) * np.float32(np.inf if len(rounds) == bad else 1)

    settings = {**OWN, "lr": 0.3}
    two = train("v6_fedavg", hospitals, **{**settings, "rounds": 2})
    monkeypatch.setattr(Answers, "weighted_mean", mean)
    if bad == 1:
        with pytest.raises(SafeError, match="not finite"):
            train("v6_fedavg", hospitals, **settings)
        return
    result = train("v6_fedavg", hospitals, stops=True, **settings)
    assert "not finite" in result["stopped"] and result["weights"] == two["weights"]
    assert [row["round"] for row in result["history"]] == [1, 2]
    assert {row["round"] for row in result["per_node"]} == {1, 2}


def test_state_at_nodes_does_not_survive_into_a_new_job(hospitals):
    """c_k stays in the folder of the old job: nodes start from zero, and say so."""
    half = train("v6_scaffold", hospitals, **{**OWN, "rounds": 3})
    resumed = train("v6_scaffold", hospitals, **OWN, resume=half)
    lost = [(row["round"], row["organization_id"]) for row in resumed["per_node"] if row.get("state_lost")]
    assert lost == [(4, 3), (4, 5), (4, 8)]
    assert len(resumed["history"]) == 6


def test_a_job_that_stopped_can_be_resumed(hospitals):
    """Node 5 breaks down in round 3, for good; the job ends with the model of round 2, and a new one goes on."""
    calls = []

    def outcomes(organization, input_):
        if organization == 5 and input_["kwargs"]["round"] >= 3:
            calls.append(input_["method"])
            return CallOutcome(status="crashed")
        return CallOutcome()

    with MockNetwork("v6_fedavg", hospitals, environment=OPEN, on_round=lambda row: None, outcomes=outcomes) as network:
        stopped = network.run(**OWN)
    assert stopped["stopped"] == "round 3, client_update: organization 5: run crashed"
    assert calls == ["client_update", "client_update"], "a node that broke down is asked once more"
    assert len(stopped["history"]) == 2
    straight = train("v6_fedavg", hospitals, **OWN)
    resumed = train("v6_fedavg", hospitals, **OWN, resume=stopped)
    assert resumed["weights"] == straight["weights"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"resume": {}}, "a result of None; expected one of 'fedavg'"),
        ({"resume": {"method": "scaffold"}}, "a result of 'scaffold'"),
        ({"resume": {"method": "fedavg"}}, "not a result"),
        ({"rounds": 2}, "the earlier job has 2 rounds already"),
        ({"model": "svm"}, "the earlier job had the model 'logreg'"),
        ({"preprocess": ["standardize"]}, r"the earlier job had the steps \[\]; expected the same"),
    ],
)
def test_what_cannot_be_resumed_is_refused(change, says, hospitals):
    half = train("v6_fedavg", hospitals, rounds=2)
    with pytest.raises(UserInputError, match=says):
        train("v6_fedavg", hospitals, **{"rounds": 4, "resume": half, **change})


@pytest.mark.parametrize("package", ["v6_fedavg", "v6_scaffold"])
@pytest.mark.parametrize(("owner", "name"), [(Federation, "result"), (Tasks, "forget")])
def test_central_killed_after_the_last_round(package, owner, name, hospitals, monkeypatch):
    straight = train(package, hospitals, **OWN)
    before, killed = getattr(owner, name), []

    def kill(self, *arguments):
        if not killed:
            killed.append(name)
            raise Killed
        return before(self, *arguments)

    monkeypatch.setattr(owner, name, kill)
    give_up = Federation.give_up
    monkeypatch.setattr(Federation, "give_up", lambda self: None)
    with MockNetwork(package, hospitals, environment=OPEN, on_round=lambda row: None, keep=True) as network:
        with pytest.raises(Killed):
            network.run(**OWN)
        monkeypatch.setattr(Federation, "give_up", give_up)
        resumed = network.run(**OWN)
    assert same(straight, resumed)


def test_a_target_that_was_reached_stays_reached(hospitals, monkeypatch):
    settings = {**OWN, "rounds": 30, "lr": 0.3, "target": 0.9}
    straight = train("v6_fedavg", hospitals, **settings)
    reached = len(straight["history"])
    assert reached < 30
    resumed, _, _ = killed_and_started_again("v6_fedavg", hospitals, reached, monkeypatch, **settings)
    assert same(straight, resumed)


def test_scaffold_converges_after_its_nodes_have_lost_their_state(hospitals):
    """c is the mean of the c_k. Were it kept when they begin anew, every step from then on would be biased."""
    settings = {"seed": 3, "lr": 0.3, "epochs": 3, "holdout": 0}
    straight = train("v6_scaffold", hospitals, rounds=400, **settings)
    half = train("v6_scaffold", hospitals, rounds=3, **settings)
    resumed = train("v6_scaffold", hospitals, rounds=400, **settings, resume=half)
    np.testing.assert_allclose(weights(resumed), weights(straight), rtol=3e-3)


@pytest.mark.parametrize(
    "spoil",
    [
        {"history": []},
        {"history": [{}]},
        {"history": 3},
        {"per_node": 3},
        {"traffic": {}},
        {"state": 3},
        {"weights": "x"},
        {"model": {"name": "logreg", "features": 4, "classes": -1}},
        {"data": {}},
    ],
)
@pytest.mark.parametrize("package", ["v6_fedavg", "v6_coop"])
def test_a_spoilt_result_is_refused_in_one_line(package, spoil, hospitals):
    half = train(package, hospitals, rounds=2)
    with pytest.raises(UserInputError, match="resume: |cannot go on from that result"):
        train(package, hospitals, rounds=4, resume={**half, **spoil})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"organizations": [3, 5]}, r"organizations=\[3, 5, 8\]; expected the same, not \[3, 5\]"),
        ({"holdout": 0.5}, "holdout=0.2; expected the same, not 0.5"),
        ({"label": "x0"}, "label='label'; expected the same, not 'x0'"),
        ({"features": ["x0"]}, r"features=\['x0', 'x1', 'x2', 'x3'\]; expected the same, not \['x0'\]"),
        ({"classes": ["no", "yes"]}, r"classes=\[0, 1\]; expected the same, not \['no', 'yes'\]"),
        ({"preprocess": ["clip:0.4"]}, r"the earlier job had the steps \['clip:0.05'\]; expected the same"),
    ],
)
def test_other_hospitals_or_rows_are_refused(change, says, hospitals):
    half = train("v6_dynavg", hospitals, rounds=2, protocol="loss", preprocess=["clip:0.05"])
    with pytest.raises(UserInputError, match=says):
        train("v6_dynavg", hospitals, rounds=4, protocol="loss", resume=half, **change)


@pytest.mark.parametrize("protocol", ["svd", "loss"])
def test_dynamic_averaging_plans_anew(protocol, hospitals):
    """A job that was to last longer and is ended sooner: in its last round all come, so that no training is lost."""
    half = train("v6_dynavg", hospitals, rounds=40, protocol=protocol, target=0.01)
    assert len(half["history"]) < 12
    whole = train("v6_dynavg", hospitals, rounds=12, protocol=protocol, resume=half)
    assert whole["history"][-1]["participants"] == sorted(hospitals)
    if protocol == "loss":  # none is known: all come in the first round again
        assert whole["history"][len(half["history"])]["participants"] == sorted(hospitals)
