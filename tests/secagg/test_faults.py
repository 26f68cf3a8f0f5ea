"""Nodes that fail, are late, answer twice or are offline: blocks open whole or not at all."""

import json
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np
import pytest
from helpers import table
from masked_jobs import learned
from methods_by_hand import follow

from v6_federated.central import blocks
from v6_federated.gate import under_masks
from v6_workbench.conformance.jobs import AT_CENTRAL, FORESEEN, OPEN
from v6_workbench.simulation.call_outcomes import CallOutcome
from v6_workbench.simulation.mock import MockNetwork, StudyPlan

DEADLINE = 20.0
FAULTS = {
    "late": CallOutcome(DEADLINE + 13),
    "never": CallOutcome(math.inf),
    "crashed before it worked": CallOutcome(1.5, "crashed"),
    "crashed after it worked": CallOutcome(1.5, "crashed", worked=True),
    "killed": CallOutcome(2.5, "killed by user", worked=True),
    "twice": CallOutcome(1.5, times=2),
    "text": CallOutcome(1.5, alter=lambda a: "hello"),
    "no words": CallOutcome(1.5, alter=lambda a: {**a, "y32": None}),
    "few words": CallOutcome(1.5, alter=lambda a: {**a, "y64": a.get("y32")}),
    "no transcript": CallOutcome(1.5, alter=lambda a: {k: v for k, v in a.items() if k != "T"}),
    "with its rows": CallOutcome(1.5, alter=lambda a: {**a, "n": 7}),
    "for another round": CallOutcome(1.5, alter=lambda a: {**a, "round": a["round"] - 1}),
    "as another organization": CallOutcome(1.5, alter=lambda a: {**a, "organization_id": 1 + a["organization_id"] % 9}),
}
AGREEMENT = ("describe", "confirm")
NINE = {k: table(20 + 3 * k, seed=k) for k in range(1, 10)}
BLOCKS = [[1, 2, 3], [4, 5, 6], [7, 8, 9]]


@dataclass
class Answers:
    """Every answer that a node has made, by organization and transcript, whatever became of it."""

    made: dict[tuple[int, str], set[str]] = field(default_factory=dict)
    times: Counter[tuple[int, str]] = field(default_factory=Counter)

    def one_each(self) -> bool:
        """Whether no node has made two different answers under one transcript."""
        return all(len(found) == 1 for found in self.made.values())


@pytest.fixture
def answers(monkeypatch) -> Answers:
    """Watches the nodes' masked answers."""
    watched, real = Answers(), under_masks.answer

    def answer(node, *arguments):
        made, n = real(node, *arguments)
        key = node.organization_id, made["T"]
        watched.made.setdefault(key, set()).add(json.dumps(made, sort_keys=True))
        watched.times[key] += 1
        return made, n

    monkeypatch.setattr(under_masks, "answer", answer)
    return watched


@dataclass(frozen=True)
class Schedule:
    """What happens in one job: faults by the number of the call, and the settings that tolerate them.

    With ``wraps``, sums of 32 bits wrap, so that most rounds take two requests.
    """

    seed: int
    pinned: bool
    share: float
    early: bool
    offline: float
    wraps: bool
    policy: dict[str, float]

    @classmethod
    def drawn(cls, seed: int) -> "Schedule":
        rng = np.random.default_rng([seed, 1])
        policy = {
            "min_responses": float(rng.choice([0.2, 0.34, 0.6, 2, 1])),
            "retries": int(rng.integers(3)),
            "cooldown_rounds": int(rng.integers(3)),
            "round_timeout": DEADLINE,
            "offline_timeout": 15.0,
        }
        share = float(rng.choice([0.0, 0.02, 0.05, 0.1]))
        offline = float(rng.choice([0.0, 0.0, 0.5]))
        pinned, early, wraps = (bool(rng.random() < p) for p in (0.8, 0.1, 0.3))
        return cls(seed, pinned, share, early, offline, wraps, policy)

    def outcomes(self) -> Callable[[int, dict[str, Any]], CallOutcome]:
        """Of each call."""
        rng, names = np.random.default_rng([self.seed, 2]), [*FAULTS]

        def outcome(organization: int, message: dict[str, Any]) -> CallOutcome:
            seconds = 1 + 2 * float(rng.random())
            fault = rng.random() < self.share and (self.early or message["method"] not in AGREEMENT)
            name = names[rng.integers(len(names))]
            return FAULTS[name] if fault and message["method"] != "forget" else CallOutcome(seconds)

        return outcome

    def online(self, organization: int, time: float) -> bool:
        """Whether a node is online: the last one is not, now and then."""
        return organization != 9 or time < 5 or time % 97 >= 60 * self.offline


SETTINGS = {"rounds": 4, "lr": 0.3, "holdout": 0, "classes": [0, 1]}


def job(schedule: Schedule, **settings: Any) -> tuple[dict[str, Any] | None, str]:
    """The result of a job, and why it stopped or failed."""
    rows = NINE if schedule.pinned else {k: NINE[k] for k in (1, 2, 3)}
    network = MockNetwork(
        "v6_fedavg",
        rows,
        environment=OPEN,
        on_round=lambda row: None,
        outcomes=schedule.outcomes(),
        online=schedule.online,
        study=StudyPlan(3) if schedule.pinned else None,
    )
    with network, mock.patch.object(blocks, "ROOM", -9 if schedule.wraps else 3):
        mode = "pinned" if schedule.pinned else "masked"
        try:
            result = network.run(aggregation=mode, **SETTINGS, **schedule.policy, **settings)
        except FORESEEN as error:
            return None, str(error)
    return result, result.get("stopped", "")


def check(seed: int, answers: Answers) -> str:
    """Run one schedule; how it ended."""
    schedule = Schedule.drawn(seed)
    result, problem = job(schedule)
    what = f"schedule {schedule}: {problem}"
    assert AT_CENTRAL not in problem and "is withheld" not in problem, what
    assert answers.one_each(), what
    if result is None:
        assert problem and (problem.startswith("round") or "of its block" in problem or "take no part" in problem), what
        return "failed"
    blocks = BLOCKS if schedule.pinned else BLOCKS[:1]
    for row in result["history"]:
        whole = [block for block in blocks if {*block} <= {*row["participants"]}]
        assert row["participants"] == [k for block in whole for k in block], what
        assert row["n"] == sum(len(NINE[k]) for k in row["participants"]), what
        gone = {m["organization_id"] for m in row["missing"]}
        assert not gone & {*row["participants"]}, what
        assert gone == {k for block in blocks for k in block} - {*row["participants"]}, what
        assert schedule.policy["min_responses"] != 1 or not gone, what
    np.testing.assert_allclose(learned(result)["weights"], follow(result, NINE), atol=2e-6, err_msg=what)
    missing = any(row["missing"] for row in result["history"])
    return ("stopped" if problem else "ended") + (" with blocks missing" if missing else "")


def test_random_faults(answers):
    """A job ends with the sums of the blocks that its history names, or with a reason."""
    ends = Counter(check(seed, answers) for seed in range(30))
    assert ends["ended"] >= 3 and ends["ended with blocks missing"] >= 3, ends
    assert ends["stopped"] + ends["stopped with blocks missing"] + ends["failed"] >= 2, ends


@pytest.mark.long
@pytest.mark.parametrize("part", range(10))
def test_a_thousand_schedules_of_faults(part, answers):
    ends = Counter(check(seed, answers) for seed in range(100 * part, 100 * part + 100))
    assert len(ends) >= 4, ends


def test_a_block_that_was_missing_when_rows_were_counted_takes_part_in_the_rounds():
    """Its rows are counted again before the first round; if it fails again, before the second."""

    def outcomes(organization, message):
        lost = message["method"] == "count_rows" and organization == 2 and message["kwargs"]["round"] < last
        return CallOutcome(1.0, "crashed" if lost else "completed")

    for last in (1, 2, 3):
        with MockNetwork(
            "v6_fedavg", NINE, environment=OPEN, on_round=lambda row: None, outcomes=outcomes, study=StudyPlan(3)
        ) as network:
            result = network.run(aggregation="pinned", **SETTINGS, min_responses=0.5, retries=0)
        for row in result["history"]:
            there = row["round"] >= last
            assert row["participants"] == [k for block in BLOCKS[0 if there else 1 :] for k in block]
            assert [m["organization_id"] for m in row["missing"]] == ([] if there else [1, 2, 3])
        np.testing.assert_allclose(learned(result)["weights"], follow(result, NINE), atol=2e-6)


def rounds_of(result: dict[str, Any]) -> list[tuple[list[int], dict[int, str]]]:
    """Who took part in each round, and why others did not."""
    return [
        (row["participants"], {m["organization_id"]: m["reason"] for m in row["missing"]}) for row in result["history"]
    ]


def nine(outcomes: Callable[..., CallOutcome] | None = None, rows: Any = NINE, **settings: Any) -> dict[str, Any]:
    """The result of a job of three blocks."""
    with MockNetwork(
        "v6_fedavg", rows, environment=OPEN, on_round=lambda row: None, outcomes=outcomes, study=StudyPlan(3)
    ) as network:
        return network.run(aggregation="pinned", **{**SETTINGS, "retries": 0, **settings})


@pytest.mark.parametrize("method", AGREEMENT)
def test_the_job_goes_on_without_the_block_of_a_hospital_that_is_missing_when_it_begins(method):
    def outcomes(organization, message):
        return CallOutcome(1.0, "crashed" if organization == 5 and message["method"] == method else "completed")

    result = nine(outcomes, min_responses=0.5)
    assert len(result["history"]) == SETTINGS["rounds"]
    for participants, missing in rounds_of(result):
        assert participants == BLOCKS[0] + BLOCKS[2] and [*missing] == BLOCKS[1]
        assert all("5" in why for why in missing.values())
    np.testing.assert_allclose(learned(result)["weights"], follow(result, NINE), atol=2e-6)


def test_a_whole_block_is_missing_when_the_job_begins():
    def outcomes(organization, message):
        return CallOutcome(1.0, "crashed" if organization in BLOCKS[0] else "completed")

    assert {tuple(who) for who, _ in rounds_of(nine(outcomes, min_responses=0.5))} == {(4, 5, 6, 7, 8, 9)}


def test_no_block_is_whole_when_the_job_begins():
    def outcomes(organization, message):
        return CallOutcome(1.0, "crashed" if organization in (1, 5, 9) else "completed")

    with pytest.raises(FORESEEN, match=r"\[1, 5, 9\] did not answer"):
        nine(outcomes, min_responses=0.5)


def test_the_job_goes_on_without_the_block_of_a_hospital_that_cannot_compute():
    """It answers with noise from then on: the block is named, and asked no more."""
    asked = []

    def outcomes(organization, message):
        if message["method"] == "client_update":
            asked.append((message["kwargs"]["round"], organization))
        return CallOutcome(1.0)

    real = under_masks.summing.encoded

    def encoded(sums, found, n, *more, **options):
        if n == len(NINE[5]) and "weights" in {part.name for part in sums.parts} and sums.seq > 3:
            raise ZeroDivisionError
        return real(sums, found, n, *more, **options)

    with mock.patch.object(under_masks.summing, "encoded", encoded):
        result = nine(outcomes, min_responses=0.5)
        with pytest.raises(FORESEEN, match="could not compute their part"):
            nine(min_responses=1)
    lost = [t for t, (participants, _) in enumerate(rounds_of(result), 1) if participants != sorted(NINE)]
    assert lost and lost == [*range(lost[0], SETTINGS["rounds"] + 1)]
    for participants, missing in rounds_of(result)[lost[0] - 1 :]:
        assert participants == BLOCKS[0] + BLOCKS[2] and [*missing] == BLOCKS[1]
        assert all("could not compute their part" in why for why in missing.values())
    assert not [k for t, k in asked if t > lost[0] and k in BLOCKS[1]]
    np.testing.assert_allclose(learned(result)["weights"], follow(result, NINE), atol=2e-6)


def test_a_block_with_a_node_that_failed_is_not_asked_for_some_rounds():
    asked = []

    def outcomes(organization, message):
        t = message["kwargs"].get("round")
        if message["method"] == "client_update":
            asked.append((t, organization))
        return CallOutcome(1.0, "crashed" if (organization, t) == (2, 1) else "completed")

    result = nine(outcomes, min_responses=0.5, cooldown_rounds=1, rounds=3)
    assert [who for who, _ in rounds_of(result)] == [BLOCKS[1] + BLOCKS[2]] * 2 + [sorted(NINE)]
    assert {k for t, k in asked if t == 2} == {4, 5, 6, 7, 8, 9}
    assert "left out after it failed" in rounds_of(result)[1][1][2]


def test_blocks_that_are_online_are_drawn_first():
    def online(organization, now):
        return organization != 4

    with MockNetwork(
        "v6_fedavg", NINE, environment=OPEN, on_round=lambda row: None, online=online, study=StudyPlan(3)
    ) as network:
        result = network.run(
            aggregation="pinned", **{**SETTINGS, "rounds": 6, "retries": 0}, min_responses=0.5, fraction=0.67,
            offline_timeout=1,
        )  # fmt: skip
    assert [who for who, _ in rounds_of(result)] == [BLOCKS[0] + BLOCKS[2]] * 6
