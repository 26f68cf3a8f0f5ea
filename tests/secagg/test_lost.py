"""A central that is lost and started again, runs that were killed, and jobs that go on from a result."""

import json
import os
import time
from collections import defaultdict

import pytest
from forged import central
from masked_jobs import QUICK, Tape, apart, in_blocks, learned, nodes, run
from test_equal import METHODS

from v6_federated.central import blocks
from v6_federated.gate import under_masks
from v6_workbench.conformance.interruptions import Killed
from v6_workbench.conformance.jobs import OPEN, difference
from v6_workbench.simulation.call_outcomes import CallOutcome
from v6_workbench.simulation.mock import MockNetwork, StudyPlan

CRASHED = CallOutcome(status="crashed")
DAY = 86400


@pytest.fixture
def made(monkeypatch) -> dict:
    """The answers that nodes have made, by organization and transcript."""
    found, real = defaultdict(list), under_masks.answer

    def answer(node, *arguments):
        new, n = real(node, *arguments)
        found[node.organization_id, new["T"]].append(json.dumps(new, sort_keys=True))
        return new, n

    monkeypatch.setattr(under_masks, "answer", answer)
    return found


def lost_and_started_again(package, databases, mode, lost, **settings):
    """The result of a job whose central is lost when it reads the ``lost``-th answer to some function.

    Nodes keep what they keep, as their containers are not affected. ``lost`` is (function, round, which answer).
    """
    state = {"read": 0, "gone": False, "first": True}
    sent = []

    def outcomes(organization, message):
        if state["first"] and state["gone"] and message["method"] == "forget":
            return CRASHED  # a container that is gone tidies nothing up
        sent.append((message["method"], message["kwargs"]["round"], organization))

        def alter(answer):
            if state["first"] and (message["method"], message["kwargs"]["round"]) == lost[:2]:
                state["read"] += 1
                if state["read"] == lost[2]:
                    state["gone"] = True
                    files.update({f: f.read_bytes() for f in network.folder.glob("node-*/tmp/*") if f.is_file()})
                    raise Killed
            return answer

        return CallOutcome(float(organization), alter=alter)

    files = {}
    with MockNetwork(
        package,
        databases,
        environment=OPEN,
        on_round=lambda row: None,
        outcomes=outcomes,
        keep=True,
        study=StudyPlan(5) if mode == "pinned" else None,
    ) as network:
        with pytest.raises(Killed):
            network.run(aggregation=mode, **settings)
        for file, content in files.items():
            if not file.exists():  # removed as an exception went by
                file.write_bytes(content)
        state["first"], before = False, len(sent)
        result = network.run(aggregation=mode, **settings)
        kept = [f for f in network.folder.glob("node-*/tmp/**/*") if f.is_file()]
        left = sorted(f.name for f in kept if f.parent.name in ("tmp", "answers"))
    assert "stopped" not in result, result["stopped"]
    return result, sent[before:], left


def straight(package, databases, mode, tmp_path, **settings):
    """The result of the same job without an interruption."""
    size = 5 if mode == "pinned" else None
    return run(package, databases, mode, tmp_path, size=size, environment=OPEN, **settings)


@pytest.mark.parametrize("mode", ["masked", "pinned"])
@pytest.mark.parametrize("which", [1, 2, 10])
@pytest.mark.parametrize("method", ["fedavg", "scaffold", "fsvrg", "colearning"])
def test_a_lost_central_goes_on(method, mode, which, tmp_path, made):
    """The same bits, and no node makes two answers to one request."""
    package, settings = METHODS[method]
    K = 4 if mode == "masked" else 10
    lost = ("client_update", 2, min(which, K))
    settings = {**settings, "preprocess": ["standardize"]}
    result, again, left = lost_and_started_again(package, nodes(K), mode, lost, **settings)
    assert all(round_ >= 2 for function, round_, _ in again if function != "keep_steps") and not left
    assert all(len({*found}) == 1 for found in made.values())
    assert any(len(found) > 1 for found in made.values())  # the round's requests came again
    other = straight(package, nodes(K), mode, tmp_path, **settings)
    assert difference({**result, "traffic": 0}, {**other, "traffic": 0}) == ""


@pytest.mark.parametrize("which", [1, 5, 9, 10])
@pytest.mark.parametrize("method", ["fedavg", "scaffold", "fsvrg"])
def test_a_central_that_is_lost_while_sums_wrap_goes_on(method, which, tmp_path, made, monkeypatch):
    """It asks for 32 bits again, which wrap again, and then for 64 bits, whether it had done that before or not."""
    monkeypatch.setattr(blocks, "ROOM", -9)
    package, settings = METHODS[method]
    lost = ("client_update", 2, which)
    result, _, left = lost_and_started_again(package, nodes(5), "masked", lost, **settings)
    assert not left and all(len({*found}) == 1 for found in made.values())
    other = straight(package, nodes(5), "masked", tmp_path, **settings)
    assert difference({**result, "traffic": 0}, {**other, "traffic": 0}) == ""


@pytest.mark.parametrize("function", ["describe", "confirm", "fit_step", "count_rows"])
def test_it_is_lost_in_the_preparation(function, tmp_path, made):
    """The job begins anew, with new keys."""
    settings = {**METHODS["fedavg"][1], "preprocess": [] if function == "count_rows" else ["standardize"]}
    result, again, _ = lost_and_started_again("v6_fedavg", nodes(4), "masked", (function, 0, 2), **settings)
    assert again[0][0] == "describe" and all(len({*found}) == 1 for found in made.values())
    other = straight("v6_fedavg", nodes(4), "masked", tmp_path, **settings)
    assert difference({**result, "traffic": 0}, {**other, "traffic": 0}) == ""


@pytest.mark.parametrize("function", ["evaluate", "forget"])
def test_it_is_lost_after_the_last_round(function, tmp_path, made):
    package, settings = METHODS["scaffold"]
    result, again, left = lost_and_started_again(package, nodes(4), "masked", (function, 3, 2), **settings)
    assert not left and not any(f == "client_update" for f, _, _ in again)
    other = straight(package, nodes(4), "masked", tmp_path, **settings)
    assert difference({**result, "traffic": 0}, {**other, "traffic": 0}) == ""


@pytest.mark.parametrize("method", ["pca", "pca subspace", "pca scaled"])
@pytest.mark.parametrize("last", [False, True])
def test_a_method_that_carries_nothing_begins_its_rounds_again(method, last, tmp_path, made):
    """Its first requests were answered so long ago that nodes do not keep the answers: they are asked anew."""
    package, settings = METHODS[method]
    other = straight(package, nodes(4), "masked", tmp_path, **settings)
    round_ = len(other["history"])
    lost = ("transform", round_, 2) if last else ("fit_step", round_, 2)
    result, _, _ = lost_and_started_again(package, nodes(4), "masked", lost, **settings)
    assert result["weights"] == other["weights"] and len(result["history"]) == round_
    assert all(len({*found}) == 1 for found in made.values())


@pytest.mark.parametrize("mode", ["masked", "pinned"])
@pytest.mark.parametrize("method", ["fedavg", "scaffold", "fsvrg", "colearning"])
def test_an_earlier_result_is_resumed(method, mode, tmp_path):
    """The model is that of a job in one go."""
    package, settings = METHODS[method]
    K, settings = (4 if mode == "masked" else 10), {**settings, "preprocess": ["standardize"]}
    half = straight(package, nodes(K), mode, tmp_path, **{**settings, "rounds": 2})
    resumed = straight(package, nodes(K), mode, tmp_path, **{**settings, "rounds": 4}, resume=half)
    whole = straight(package, nodes(K), mode, tmp_path, **{**settings, "rounds": 4})
    assert resumed["privacy"] == whole["privacy"] and len(resumed["history"]) == 4
    assert [row["participants"] for row in resumed["history"]] == [[*nodes(K)]] * 4
    if method != "scaffold":  # its nodes begin again without c_k
        assert apart(learned(resumed)["weights"], learned(whole)["weights"]) < 1e-6


def test_a_plain_result_is_resumed_under_masks_and_the_other_way_round(tmp_path):
    settings = {**QUICK, "rounds": 2}
    whole = learned(run("v6_fedavg", nodes(4), "plain", **{**QUICK, "rounds": 4}))["weights"]
    for one, other in (("plain", "masked"), ("masked", "plain")):
        half = run("v6_fedavg", nodes(4), one, **settings)
        result = run("v6_fedavg", nodes(4), other, **{**QUICK, "rounds": 4}, resume=half)
        assert apart(learned(result)["weights"], whole) < 1e-5
        assert result["privacy"]["aggregation"] == other


@pytest.mark.parametrize("worked", [False, True])
def test_a_killed_run_gives_the_same_bytes(worked, made, tmp_path):
    """A run is killed before or after it has answered, and sent again."""
    first = set()

    def outcomes(organization, message):
        key = organization, message["method"], message["kwargs"]["round"]
        if organization == 2 and message["method"] in ("client_update", "fit_step", "evaluate") and key not in first:
            first.add(key)
            return CallOutcome(status="killed by user", worked=worked)
        return CallOutcome()

    settings = {**METHODS["scaffold"][1], "preprocess": ["standardize"]}
    result = run("v6_scaffold", nodes(4), "masked", outcomes=outcomes, retries=1, **settings)
    assert len(first) == 5 and all(len({*found}) == 1 for found in made.values())
    assert any(len(found) > 1 for found in made.values()) == worked
    assert (
        learned(result)["weights"].tolist()
        == learned(run("v6_scaffold", nodes(4), "masked", **settings))["weights"].tolist()
    )


# ---- blocks


def test_a_fraction_is_of_whole_blocks(tmp_path):
    tape = Tape()
    settings = {**QUICK, "rounds": 6, "fraction": 0.5}
    result = run("v6_fedavg", nodes(20), "pinned", tmp_path, size=5, outcomes=tape, **settings)
    drawn = [row["participants"] for row in result["history"]]
    for k, row in enumerate(drawn):
        assert sorted(block for block in in_blocks(20, 5) if {*block} <= {*row}) == [row[:5], row[5:]]
        assert result["history"][k]["evaluated"] == result["history"][0]["evaluated"]  # the others evaluate
    assert len({tuple(row) for row in drawn}) > 1
    assert {k for f, k, a in tape.answers if f == "client_update" and a["round"] == 1} == {*drawn[0]}


def test_a_fraction_without_a_study_is_refused():
    with pytest.raises(Exception, match="fraction below 1 is not possible with aggregation=masked"):
        run("v6_fedavg", nodes(4), "masked", **QUICK, fraction=0.5)


@pytest.mark.parametrize(
    ("min_responses", "gone", "ends"), [(0.5, 1, True), (0.5, 3, False), (2, 2, True), (3, 2, False)]
)
def test_min_responses_counts_blocks(min_responses, gone, ends, tmp_path):
    """One hospital of ``gone`` of four blocks is away in round 2."""

    def outcomes(organization, message):
        lost = message["kwargs"]["round"] == 2 and organization in range(1, 5 * gone, 5)
        return CRASHED if lost and message["method"] == "client_update" else CallOutcome()

    settings = {**QUICK, "retries": 0, "min_responses": min_responses}
    result = run("v6_fedavg", nodes(20), "pinned", tmp_path, size=5, outcomes=outcomes, stops=not ends, **settings)
    if not ends:
        assert f"{4 - gone} of 4 answered, " in result["stopped"]
        assert len(result["history"]) == 1
    else:
        assert result["history"][1]["participants"] == [*range(5 * gone + 1, 21)]
        assert {m["organization_id"] for m in result["history"][1]["missing"]} == {*range(1, 5 * gone + 1)}


@pytest.mark.parametrize(
    ("min_responses", "gone", "ends"), [(0.5, 2, True), (0.5, 3, False), (3, 1, True), (3, 2, False), (0.1, 4, False)]
)
def test_the_last_evaluation_counts_blocks(min_responses, gone, ends, tmp_path):
    """One hospital of ``gone`` of four blocks does not answer it."""

    def outcomes(organization, message):
        lost = message["kwargs"].get("last") and organization in range(1, 5 * gone, 5)
        return CRASHED if lost and message["method"] == "evaluate" else CallOutcome()

    settings = {**QUICK, "retries": 0, "min_responses": min_responses}
    result = run("v6_fedavg", nodes(20), "pinned", tmp_path, size=5, outcomes=outcomes, stops=not ends, **settings)
    assert len(result["history"]) == 3
    if ends:
        without = [row["organization_id"] for row in result["history"][-1]["unevaluated"]]
        assert without == [*range(1, 5 * gone + 1)] and result["final"]["evaluated"]
    else:
        assert f"{4 - gone} of 4 answered, " in result["stopped"] and result["final"] is None


@pytest.mark.parametrize("aggregation", ["auto", "plain"])
def test_a_careful_evaluator_says_what_helps(aggregation):
    """Its own evaluation is asked for in every mode of a job, so another one is no cure."""
    careful = {4: {"V6_FEDERATED_PROFILE": "careful"}}
    with MockNetwork("v6_fedavg", nodes(4), environments=careful, on_round=lambda row: None) as network:
        said = network.run(aggregation=aggregation, **QUICK, evaluators=[4])["stopped"]
    assert "organization 4: an organization in evaluators is asked for its own evaluation" in said
    assert "requires aggregation=masked (V6_FEDERATED_AGGREGATION); leave evaluators out, so that every" in said
    assert "or ask the operator for V6_FEDERATED_AGGREGATION=plain" in said and "leave aggregation out" not in said


@pytest.mark.parametrize("mode", ["masked", "pinned"])
def test_evaluators_answer_for_themselves(mode, tmp_path):
    """They are in no block: their evaluations are plain, and the model is the same."""
    tape = Tape()
    K = 3 if mode == "masked" else 10
    databases = nodes(K + 2)
    names = {k: f"hospital {k}" for k in range(1, K + 1)}
    settings = {**QUICK, "evaluators": [K + 1, K + 2], "preprocess": ["standardize"]}
    with MockNetwork(
        "v6_fedavg",
        databases,
        on_round=lambda row: None,
        outcomes=tape,
        study=StudyPlan(5, names=names) if mode == "pinned" else None,
    ) as network:
        result = network.run(aggregation=mode, **settings)
    plain = run("v6_fedavg", databases, "plain", **settings)
    assert apart(learned(result)["weights"], learned(plain)["weights"]) < 1e-5
    assert [row["evaluated"] for row in result["history"]] == [row["evaluated"] for row in plain["history"]]
    assert result["final"]["accuracy"] == pytest.approx(plain["final"]["accuracy"], abs=0.03)
    told = {(f, "T" in a) for f, k, a in tape.answers if k > K and f != "forget"}
    assert told <= {("evaluate", False), ("keep_steps", False)} and ("evaluate", False) in told
    assert {"T" in a for f, k, a in tape.answers if k <= K and f == "client_update"} == {True}


# ---- jobs that end without a word


def test_the_keys_of_a_job_that_died_can_be_read_by_nobody_a_month_later(tmp_path):
    """They stay in the job's volume, which no later job sees. What they are sealed with goes."""
    with central("pinned", tmp_path) as lying:
        lying.agree()
        dead = lying.job["key"]
        assert lying.update(1)["T"]
        [file] = lying.network.nodes[1].folder.rglob(f"*{dead}-*-keys.sealed")
        assert b"shared" not in file.read_bytes(), "no key can be read in the volume"
        seals = tmp_path / "node-1" / under_masks.SEALS
        [seal] = seals.iterdir()
        assert seal.stat().st_mode & 0o077 == 0
        for days, left in ((29, True), (31, False)):
            os.utime(seal, (time.time() - days * DAY,) * 2)
            lying.job["key"] = f"{days:032x}"
            lying.hello(1)  # another job begins
            assert seal.exists() == left
        lying.job["key"] = dead
        assert file.exists() and lying.update(1, 2).startswith("this job's key is gone")
        lying.job["key"] = f"{31:032x}"
        lying.call(1, "forget")
        assert [found.name for found in seals.iterdir()] == [f"{29:032x}-1"], "a job that ends takes its seal along"
