"""Answers that do not come, or hold nonsense: a round needs enough of them, and no single one ends the job."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from v6_federated.messages import codec
from v6_federated.messages.job import SHARED_FUNCTIONS
from v6_federated.messages.settings import LARGE
from v6_workbench.conformance import tables
from v6_workbench.conformance.case import MethodCase
from v6_workbench.conformance.jobs import COMMON, Call, Tape, Wave, attempt, run
from v6_workbench.conformance.outcome import NotApplicable, require
from v6_workbench.simulation.call_outcomes import CallOutcome

ROUNDS = 2
SPARE = 4  # rounds of a method that may begin a computation again in further rounds
NEEDED = 2  # answers of four nodes, of which half are enough
HALF = {"min_responses": NEEDED / 4, "retries": 0}
NO_REQUEST = ("describe", "evaluate", "keep_steps", "forget")  # of a round; what they bring is not the model's
CRASHED = CallOutcome(status="crashed")
NONSENSE: tuple[Any, ...] = ("x", [1], None, -1.0, 1e300, {"a": 1}, True)


def too_few_answers_are_an_error_in_every_request(case: MethodCase) -> None:
    """Each request of a round, not only the first, ends with an error if too few nodes answer.

    If half of the nodes must answer, the round goes on with half of them.
    """
    nodes = case.nodes(tables.four())
    values = case.values(rounds=ROUNDS if case.supervised else SPARE, **HALF)
    tape = Tape()
    run(case, nodes, outcomes=tape, **values)
    run(
        case,
        nodes,
        outcomes=Tape(lambda call: CRASHED if call.round and call.organization > NEEDED else CallOutcome()),
        **values,
    )
    for place, wave in _requests(case, tape):
        failing = _Failing(wave, place)
        ended = attempt(case, nodes, outcomes=Tape(failing), **values)
        what = f"round {wave.round}, {wave.function}"
        require(bool(ended.problem), f"{what}: too few nodes answer, and the job goes on; expected an error")
        named = f"{wave.function}: " in ended.problem and "run crashed" in ended.problem and not ended.unforeseen
        require(named, f"{what}: too few nodes answer, and the error does not say so: {ended.problem}")


def _requests(case: MethodCase, tape: Tape) -> list[tuple[int, Wave]]:
    """The requests of rounds, and how many of the same function in the same round come before each."""
    found, before = [], dict[tuple[str, int], int]()
    for wave in tape.waves():
        key = wave.function, wave.round
        before[key] = before.get(key, -1) + 1
        of_the_method = wave.round > 0 or wave.function not in SHARED_FUNCTIONS
        if of_the_method and wave.function not in (*NO_REQUEST, *case.optional):
            found.append((before[key], wave))
    if not found:
        raise NotApplicable("all answers of its rounds may be missing")
    # where answers are used as they arrive, a call goes to one node: only the first goes to all
    return found[:1] if case.asynchronous else found


class _Failing:
    """Nodes that fail so that the requests before one bring just enough answers, and that one brings one fewer."""

    def __init__(self, wave: Wave, place: int) -> None:
        self._wave, self._place = wave, place
        self._last: tuple[str, int] | None = None
        self._seen: dict[tuple[str, int], int] = {}
        needed = min(NEEDED, len(wave.organizations))
        self._good = sorted(wave.organizations)[: needed - 1]

    def __call__(self, call: Call) -> CallOutcome:
        key = call.function, call.round
        if key != self._last:
            self._last = key
            self._seen[key] = self._seen.get(key, -1) + 1
        before = not call.round if self._wave.round else call.round  # training, or preparation
        if before or call.function in NO_REQUEST:
            return CallOutcome()
        here = key == (self._wave.function, self._wave.round) and self._seen[key] == self._place
        fails = call.organization not in self._good if here else call.organization > NEEDED
        return CRASHED if fails else CallOutcome()


def nonsense_in_an_answer_does_not_end_the_job(case: MethodCase) -> None:
    """If a node answers anything that it should not, it counts as failed, or the answer is used; the others go on."""
    nodes, tape = case.nodes(tables.three()), Tape()
    values = case.values(rounds=ROUNDS, min_responses=2, retries=0)
    run(case, nodes, outcomes=tape, **values)
    kinds: dict[tuple[str, str], Callable[[dict[str, Any]], dict[str, Any]]] = {}
    for call in tape.own():
        if call.answer is None or call.organization != 5:
            continue
        for name in sorted({*call.answer} - {*COMMON}):
            for value in NONSENSE:
                kinds.setdefault((call.function, f"{name}={value!r}"), _with_value(name, value))
        for value in (math.nan, 10**30):
            kinds.setdefault((call.function, f"nobody_asked={value!r}"), _with_more(nobody_asked=value))
        for name in call.answer.get("arrays", {}).get("shapes", {}):
            for number in (0.0, 1.0):
                kinds.setdefault((call.function, f"{name} full of {number:g}"), _with_array(name, number))
            kinds.setdefault((call.function, f"no {name}"), _without_array(name))
    for (function, what), alter in kinds.items():

        def plan(call: Call, function: str = function, alter: Callable[[Any], Any] = alter) -> CallOutcome:
            return CallOutcome(alter=alter if (call.function, call.organization) == (function, 5) else None)

        ended = attempt(case, nodes, outcomes=Tape(plan), **values)
        blamed = ended.problem.startswith("round ") and "organization 5: " in ended.problem
        require(
            not ended.problem or (blamed and not ended.unforeseen),
            f"{function} answers {what} at one of three nodes, and the job ends: {ended.problem}; expected that node "
            "to count as failed (`numbers`, `returns` and `validate` of `federation.ask`)",
        )


def _with_value(name: str, value: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda answer: {**answer, name: value} if name in answer else answer


def _with_more(**values: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda answer: {**answer, **values}


def _with_array(name: str, number: float) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def alter(answer: dict[str, Any]) -> dict[str, Any]:
        arrays = codec.decode(answer["arrays"], most=LARGE) if "arrays" in answer else {}
        if name not in arrays:
            return answer
        return {**answer, "arrays": codec.encode({**arrays, name: np.full_like(arrays[name], number)})}

    return alter


def _without_array(name: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def alter(answer: dict[str, Any]) -> dict[str, Any]:
        arrays = codec.decode(answer["arrays"], most=LARGE) if "arrays" in answer else {}
        return {**answer, "arrays": codec.encode({k: v for k, v in arrays.items() if k != name})}

    return alter
