"""Attacks on weights of classes, subgroups and own results: by a researcher, a node, and whoever puts files there."""

import json

import helpers
import numpy as np
import pytest
from helpers import OPEN, table

from v6_federated.__main__ import main
from v6_federated.base.vantage6_api import CollectResultsError
from v6_federated.gate import own_results
from v6_federated.messages import codec
from v6_federated.models import details
from v6_workbench.simulation.call_outcomes import CallOutcome
from v6_workbench.simulation.mock import MockNetwork

CAREFUL = {"V6_FEDERATED_PROFILE": "careful", "V6_FEDERATED_AGGREGATION": "plain"}


def answers(nodes, function, requests, environment=CAREFUL):
    """What organization 3 answers, or why it does not, to requests of one function."""
    found = []
    with MockNetwork("v6_fedavg", nodes, environment=environment) as network:
        client = network.client()
        for request in requests:
            job = {**helpers.JOB, **request.pop("job")}
            task = client.task.create({"method": function, "kwargs": {"job": job, "round": 1, **request}}, [3])
            results = client.wait_for_results(task["id"])
            found.append(results[0] if results else client.run.from_task(task["id"])[0]["log"])
    return found


# ---- weights of classes


def rare(k, ones):
    """A hospital of 114 rows, of which ``ones`` have the class 1."""
    rows = table(114, seed=k)
    return rows.assign(label=np.random.default_rng(k).permutation(np.r_[np.ones(ones, int), np.zeros(114 - ones, int)]))


def steps(batch_size, weights, tries=10):
    """Single steps from weights of zeros, each on another minibatch."""
    model = {**helpers.JOB["model"], "weights": weights}
    for i in range(tries):
        local = {"lr": 1 + i / 100, "batch_size": batch_size, "local_steps": 1}
        yield {"job": {"model": model}, "local": local, "arrays": codec.encode({"weights": np.zeros(5)})}


def singled_out(nodes, found) -> int:
    """How many rows of class 1 are in the answers as they are."""
    rows = nodes[3].query("label == 1")[["x0", "x1", "x2", "x3"]].to_numpy()
    sent = [codec.decode(a["arrays"])["weights"] for a in found if isinstance(a, dict)]
    return len({int(i) for w in sent for i in np.flatnonzero(np.abs(rows - w[:4] / w[4]).max(axis=1) < 1e-3)})


def test_a_heavy_class_singles_out_no_row_of_a_minibatch():
    """The attack: a minibatch with one row of a heavy class has the gradient of that row, whatever the model is."""
    nodes = {k: rare(k, 14) for k in (3, 5, 8)}
    heavy = [1, 1e6]
    assert singled_out(nodes, answers(nodes, "client_update", steps(10, heavy), OPEN)) > 0, "trusting does not stop it"
    refused = answers(nodes, "client_update", steps(10, heavy))
    assert all("10 rows of this node count as fewer than 10" in said for said in refused)
    enough = answers(nodes, "client_update", steps(90, heavy))
    assert all(isinstance(a, dict) for a in enough) and singled_out(nodes, enough) == 0
    mild = answers(nodes, "client_update", steps(20, [1, 2]))
    assert all(isinstance(a, dict) for a in mild) and singled_out(nodes, mild) == 0


def test_the_end_of_an_epoch_is_no_small_minibatch_of_a_heavy_class():
    """114 rows in minibatches of 90 would leave 24: three of class 1, or sometimes one."""
    nodes = {k: rare(k, 14) for k in (3, 5, 8)}
    model = {**helpers.JOB["model"], "weights": [1, 1e6]}
    arrays = codec.encode({"weights": np.zeros(5)})
    asked = [
        {"job": {"model": model}, "local": {"lr": 1.0, "batch_size": size}, "arrays": arrays} for size in (90, None)
    ]
    one, whole = (codec.decode(a["arrays"])["weights"] for a in answers(nodes, "client_update", asked))
    np.testing.assert_array_equal(one, whole)


# ---- subgroups


def clinic(k, few=3):
    """A hospital where ``few`` rows are of the level b, all others of a."""
    rows = table(114, seed=k).assign(ward=["b"] * few + ["a"] * (114 - few))
    return rows[["x0", "x1", "x2", "x3", "ward", "label"]]


def by_ward(levels):
    data = {"features": ["x0", "x1", "x2", "x3"], "label": "label", "subgroup": "ward", "levels": levels}
    weights = codec.encode({"weights": np.array([1, 2, 0.5, 1, 0])})
    job = {"data": {**helpers.JOB["data"], **data}}
    return {"job": job, "evaluate": "all", "last": True, "arrays": weights}


@pytest.mark.parametrize("environment", [OPEN, CAREFUL], ids=["trusting", "careful"])
def test_a_level_named_twice_does_not_hide_how_few_rows_the_others_are(environment):
    """The attack: rows of a would count twice, so that nothing seems to be left; all minus a are three rows."""
    nodes = {k: clinic(k) for k in (3, 5, 8)}
    once, twice = answers(nodes, "evaluate", [by_ward(["a"]), by_ward(["a", "a"])], environment)
    assert not np.any(codec.decode(once["details"])["subgroups"]), "all minus a would be three rows"
    assert "names a level of the subgroup's column twice" in twice


def test_levels_that_nobody_has_take_neither_time_nor_memory():
    [said] = answers({k: clinic(k) for k in (3, 5, 8)}, "evaluate", [by_ward([f"l{i}" for i in range(100_000)])])
    assert "names 100000 levels of the subgroup's column, but this node accepts at most 100" in said


# ---- a dishonest node


def outcome(method, alter):
    """Organization 2 changes its answers to a function."""
    return lambda k, input_: CallOutcome(alter=alter) if (k, input_["method"]) == (2, method) else CallOutcome()


def lied(method, alter, **settings):
    nodes = {k: clinic(k, 50) for k in (1, 2, 3, 4)}
    with MockNetwork(
        "v6_fedavg", nodes, environment=OPEN, outcomes=outcome(method, alter), on_round=lambda row: None
    ) as network:
        job = {"rounds": 1, "holdout": 0.4, "min_responses": 2, "retries": 0, "preprocess": ["onehot"]}
        return network.run(**job, subgroup="ward", **settings)


@pytest.mark.parametrize(
    "change", [{"brier": np.array([1e15])}, {"predicted": np.full(10, 1e15)}], ids=["brier", "predicted"]
)
def test_probabilities_above_one_are_no_part_of_the_curves(change):
    def alter(answer):
        if not answer.get("details"):
            return answer
        return {**answer, "details": codec.encode(codec.decode(answer["details"]) | change, "float64")}

    curves = lied("evaluate", alter)["curves"]
    assert 0 <= curves["brier"] <= 1
    assert all(b["predicted"] is None or b["predicted"] <= 1 for b in curves["calibration"])
    good = {"counts": np.repeat([[1.0], [2.0]], 10, axis=1), "predicted": np.full(10, 3.0), "brier": np.array([30.0])}
    assert details.wrong(good, True, 0, 2) is None
    assert "above 1" in details.wrong({**good, **change}, True, 0, 2)


def test_a_node_that_names_very_many_levels_is_named():
    """It can end the job, and one knows whom to leave out."""
    says = r"organization 2 names most, 99: leave it out \(organizations\), or choose a column with fewer levels"
    with pytest.raises(CollectResultsError, match=says):
        lied("describe", lambda answer: {**answer, "subgroup": [f"l{i}" for i in range(99)]})


def test_half_a_character_in_an_answer_ends_no_job():
    """JSON can hold it, but the next task, the log and the result could not be written with it."""
    result = lied("describe", lambda answer: {**answer, "subgroup": ["\ud800"]})
    assert [row["level"] for row in result["subgroups"]["rows"]] == ["a", "b"]
    assert json.dumps(result).encode()


# ---- the hospital's folder


def test_own_results_do_not_fill_the_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(own_results, "MOST_RESULTS", 2)
    nodes = {k: table(60, seed=k) for k in (1, 2, 3)}
    with MockNetwork(
        "v6_fedavg", nodes, environment=OPEN, hospital_folder=tmp_path, on_round=lambda row: None
    ) as network:
        for seed in range(4):
            network.run(rounds=1, holdout=0.4, seed=seed)
    kept = [*(tmp_path / "node-1" / "results").iterdir()]
    assert sorted(file.suffix for file in kept) == [".html"] * 2 + [".json"] * 2


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", "\ud800", '{"job": 1}', '{"job": "a", "method": "b", "time": "c", "loss": "x"}', "[" * 10**6],
)
def test_an_odd_file_among_the_results_is_named_in_one_line(text, tmp_path, capsys):
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "odd.json").write_bytes(text.encode(errors="surrogatepass"))
    assert main(["results", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert len(err.splitlines()) == 1 and "odd.json holds no results of a job" in err and not out


def test_a_link_among_the_results_is_not_followed(tmp_path, capsys):
    outside = tmp_path / "outside.json"
    outside.write_text(json.dumps({"job": "a", "method": "b", "time": "secret"}))
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "link.json").symlink_to(outside)
    assert main(["results", str(tmp_path)]) == 2
    assert "secret" not in "".join(capsys.readouterr())
