"""Nodes that crash, are late, never answer or answer nonsense, in random order: nothing but their good answers counts.

``FAULT_SCHEDULES`` in the environment is the number of random schedules for each case.
"""

import base64
import functools
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from v6_federated.messages import codec
from v6_workbench import registry
from v6_workbench.conformance import tables
from v6_workbench.conformance.case import MethodCase
from v6_workbench.conformance.jobs import Call, Ended, Tape, attempt, learned
from v6_workbench.conformance.outcome import NotApplicable, require
from v6_workbench.simulation.call_outcomes import CallOutcome

SCHEDULES = int(os.environ.get("FAULT_SCHEDULES", 20))
ROUNDS = 4
DEADLINE = 20.0
Answer = dict[str, Any]


def _not_finite(answer: Answer) -> Answer:
    shapes = answer.get("arrays", {}).get("shapes", {})
    payload = codec.encode({name: np.ones(shape) for name, shape in shapes.items()})
    infinite = np.full(sum(math.prod(shape) for shape in shapes.values()), np.inf, "<f4")
    if not infinite.size:
        return {**answer, "n": math.nan}
    return {**answer, "arrays": {**payload, "data": base64.b64encode(infinite.tobytes()).decode()}}


def _of_shape(answer: Answer, shape: list[float]) -> Answer:
    arrays = answer.get("arrays") or codec.encode({"weights": np.ones(5)})
    return {**answer, "arrays": {**arrays, "shapes": dict.fromkeys(arrays["shapes"], shape)}}


def _altered(alter: Callable[[Answer], Any]) -> CallOutcome:
    return CallOutcome(1.5, alter=alter)


# what may become of a call, besides a good answer after 1 to 3 seconds
FAULTS = {
    "late": CallOutcome(DEADLINE + 13),
    "never": CallOutcome(math.inf),
    "crashed before it worked": CallOutcome(1.5, "crashed"),
    "crashed after it worked": CallOutcome(1.5, "crashed", worked=True),
    "killed": CallOutcome(2.5, "killed by user", worked=True),
    "for another round": _altered(lambda a: {**a, "round": a["round"] - 1}),
    "as another organization": _altered(lambda a: {**a, "organization_id": a["organization_id"] % 4 + 1}),
    "as nobody": _altered(lambda a: {k: v for k, v in a.items() if k != "organization_id"}),
    "not finite": _altered(_not_finite),
    "other shape": _altered(lambda a: {**a, "arrays": codec.encode({"weights": np.ones((3, 7))})}),
    "other names": _altered(lambda a: {**a, "arrays": codec.encode({"another": np.ones(5)})}),
    "no rows": _altered(lambda a: {**a, "n": 0}),
    "too few rows": _altered(lambda a: {**a, "n": 9}),
    "n is text": _altered(lambda a: {**a, "n": "many"}),
    "broken payload": _altered(lambda a: {**a, "arrays": {"dtype": "float32", "shapes": {}, "data": "!"}}),
    "twice": CallOutcome(1.5, times=2),
    "text": _altered(lambda a: "hello"),
    "endless shape": _altered(lambda a: _of_shape(a, [math.inf])),
    "too many dimensions": _altered(lambda a: _of_shape(a, [5, *[1] * 70])),
}
NAMES = ["good"] * 20 + [*FAULTS]


@dataclass(frozen=True)
class Schedule:
    """What happens in one job.

    Attributes:
        seed: that it was drawn from; 0 is a job in which nothing happens.
        names: what becomes of the calls, in turn and again from the beginning.
        policy: the settings that say which answers may be missing.
        offline: share of a minute for which node 4 is offline, now and then.
    """

    seed: int
    names: tuple[str, ...]
    policy: dict[str, float]
    offline: float

    @classmethod
    def drawn(cls, seed: int) -> "Schedule":
        """The schedule of a seed."""
        rng = np.random.default_rng(seed)
        names = tuple(rng.choice(NAMES, rng.integers(1, 61)).tolist()) if seed else ("good",)
        policy = {
            "min_responses": float(rng.choice([0.25, 0.5, 2, 3, 1])) if seed else 1.0,
            "retries": int(rng.integers(3)),
            "cooldown_rounds": int(rng.integers(3)),
            "round_timeout": DEADLINE,
            "offline_timeout": 15.0,
        }
        return cls(seed, names, policy, float(rng.choice([0.0, 0.7])) if seed else 0.0)


@dataclass(frozen=True)
class Faulty:
    """A job with faults, and which calls brought an answer that could be used.

    Attributes:
        schedule: what happened.
        ended: how the job ended.
        good: the calls that were answered well, see ``_key``.
    """

    schedule: Schedule
    ended: Ended
    good: frozenset[tuple[Any, ...]]


def _key(call: Call) -> tuple[Any, ...]:
    apart = [call.arguments.get(name) for name in ("statistic", "end")]  # several requests of one function in a round
    return call.function, call.round, call.organization, *apart


def _values(case: MethodCase) -> dict[str, Any]:
    evaluates = case.supervised and "evaluate_every" not in registry.unused_by(case.central)
    seldom = {"evaluate_every": 2} if evaluates else {}
    return case.values(rounds=ROUNDS, minimum_rows=10, **case.all_rows, **seldom, **case.classes)


@functools.cache
def faulty_jobs(case: MethodCase) -> list[Faulty]:
    """Jobs of the method under random schedules of faults."""
    return [_faulty_job(case, Schedule.drawn(seed)) for seed in range(SCHEDULES)]


def _faulty_job(case: MethodCase, schedule: Schedule) -> Faulty:
    planned: list[str] = []

    def plan(call: Call) -> CallOutcome:
        i = len(planned)
        planned.append(schedule.names[i % len(schedule.names)])
        return CallOutcome(1 + (7 * i % 20) / 10) if planned[-1] == "good" else FAULTS[planned[-1]]

    def online(organization: int, time: float) -> bool:
        return organization != 4 or time % 97 >= 60 * schedule.offline

    tape = Tape(plan)
    values = _values(case) | schedule.policy
    ended = attempt(case, case.nodes(tables.four()), outcomes=tape, online=online, **values)
    taken = zip(tape.calls, planned, strict=True)
    return Faulty(schedule, ended, frozenset(_key(c) for c, name in taken if name == "good" and c.answer is not None))


def faults_end_in_a_model_or_one_line(case: MethodCase) -> None:
    """Whatever happens to nodes, a job ends with a model, or with an error that names a round.

    Its history names nobody as missing unless the settings allow it, and nobody without a reason.
    """
    finished, stopped, failed, missing, several = 0, 0, 0, 0, False
    for job in faulty_jobs(case):
        what, enough = f"schedule {job.schedule.seed}", job.schedule.policy["min_responses"]
        require(not job.ended.unforeseen, f"{what}: {job.ended.problem}")
        if job.ended.result is None:
            require(job.ended.problem.startswith("round"), f"{what}: the error names no round: {job.ended.problem}")
            failed += 1
            continue
        finished, stopped = finished + (not job.ended.problem), stopped + bool(job.ended.problem)
        for row in job.ended.result["history"]:
            missing += bool(row["missing"])
            several |= len(row["participants"]) > 1
            allowed = enough != 1 or not row["missing"]
            require(allowed, f"{what}: round {row['round']} goes on without nodes that must answer")
            require(all(m["reason"] for m in row["missing"]), f"{what}: a node is missing without a reason")
    # a method that asks one node a round goes on without none; one that carries no model has none to stop with
    seen = finished > 0 and (SCHEDULES < 40 or (stopped + failed > 0 and (missing > 0 or not several)))
    require(
        seen,
        f"of {SCHEDULES} jobs {finished} ended, {stopped} stopped, {failed} failed; {missing} rounds missed nodes: "
        "too one-sided",
    )


def failed_answers_change_nothing(case: MethodCase) -> None:
    """A node that answers late, badly or never changes no bit of the model, compared with one that does not work."""
    if case.asynchronous:
        raise NotApplicable("its model depends on when answers arrive")
    nodes, values = case.nodes(tables.four()), _values(case)
    for job in faulty_jobs(case):
        if job.ended.result is None:
            continue

        def plan(call: Call, job: Faulty = job) -> CallOutcome:
            good = _key(call) in job.good or call.function in ("describe", "keep_steps", "evaluate", "forget")
            return CallOutcome() if good else CallOutcome(status="crashed")

        policy = {"min_responses": job.schedule.policy["min_responses"], "retries": 0}
        again = attempt(case, nodes, outcomes=Tape(plan), **values | policy)
        require(
            again.result is not None and again.result["weights"] == job.ended.result["weights"],
            f"schedule {job.schedule.seed}: the model has other bits than if the nodes whose answers were bad or late "
            f"had not worked at all ({again.problem or 'both came to an end'})",
        )


def model_follows_from_the_history(case: MethodCase) -> None:
    """The model of a job with faults is the one that follows from exactly the answers that its history names."""
    if case.follow is None:
        raise NotApplicable("MethodCase(follow=...) says what follows from a history")
    nodes = case.nodes(tables.four())
    for job in faulty_jobs(case):
        if job.ended.result is None:
            continue
        off = np.abs(learned(job.ended.result)["weights"] - case.follow(job.ended.result, nodes)).max()
        require(off <= 2e-6, f"schedule {job.schedule.seed}: the model is off by {off:.2g} from what its history says")
