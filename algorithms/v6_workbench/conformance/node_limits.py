"""What a node's operator forbids, no task may do.

Every call that central makes in a job is made again, alone and with hostile changes, as anybody who may send tasks can.
"""

import base64
import copy
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from v6_federated.base.logs import WITHHELD
from v6_federated.messages import codec
from v6_federated.messages.settings import Role
from v6_workbench.conformance import tables
from v6_workbench.conformance.case import MethodCase
from v6_workbench.conformance.jobs import Call, Tape, run
from v6_workbench.conformance.outcome import CheckFailed, NotApplicable, require
from v6_workbench.conformance.tables import Nodes
from v6_workbench.simulation.mock import MockNetwork

TARGET = 3  # the organization whose node is attacked
SMALL_BATCH = 4
LIMITS = {  # of the operator of the node, each of which the calls of the recorded job break
    "MINIMUM_ROWS": "1000",
    "MINIMUM_ORGANIZATIONS": "4",
    "DISALLOWED_COLUMNS": "x1",
}
LETTERS = 7  # of a number that is looked for in the logs

Payload = dict[str, Any]


@functools.cache
def recorded(case: MethodCase) -> list[Call]:
    """A call of each kind that central makes of the method's own partial functions, the one with the longest arrays."""
    tape = Tape()
    batches = dict.fromkeys(case.having(Role.BATCH), SMALL_BATCH)
    run(case, case.nodes(tables.three(40)), outcomes=tape, **case.values(rounds=4, **batches))
    kinds: dict[tuple[str, ...], Call] = {}
    for call in tape.own():
        arrays = call.arguments.get("arrays", {}).get("shapes", {})
        if call.organization == TARGET:
            kind = (call.function, *sorted(call.arguments), *sorted(arrays))
            if kind not in kinds or _length(call) > _length(kinds[kind]):
                kinds[kind] = call
    if not kinds:
        raise NotApplicable("central calls no partial function of the method's own")
    return list(kinds.values())


def operators_limits_hold_in_every_function(case: MethodCase) -> None:
    """Each limit of the node stops each partial function, called by itself."""
    batches: dict[str, list[str]] = {}  # what a node says that asks for more rows in a minibatch, by function
    limits = {**LIMITS, **({"DISALLOWED_COLUMNS": "label"} if case.without_features else {})}
    for call in recorded(case):
        require(*_works(case, call))
        for name, limit in limits.items():
            _refused(case, call, f"V6_FEDERATED_{name}", environment={f"V6_FEDERATED_{name}": limit})
        _refused(
            case,
            _changed(call, round=2),
            "V6_FEDERATED_MAXIMUM_ROUNDS",
            environment={"V6_FEDERATED_MAXIMUM_ROUNDS": "1"},
        )
        if SMALL_BATCH in _values_of(call.arguments, case.having(Role.BATCH)):
            log = _replay(case, call, {"V6_FEDERATED_MINIMUM_BATCH": str(SMALL_BATCH + 1)})[1]
            batches.setdefault(call.function, []).append(log)
    for function, logs in batches.items():  # a call that needs what the node has kept does not train
        limited = any("V6_FEDERATED_MINIMUM_BATCH" in log for log in logs)
        require(limited, f"{function} trains on minibatches of fewer rows than V6_FEDERATED_MINIMUM_BATCH")


def hostile_tasks_are_refused(case: MethodCase) -> None:
    """Each partial function refuses a task that asks to loosen a limit, lies about its job or has unknown settings.

    No refusal quotes a row.
    """
    for call in recorded(case):
        require(*_works(case, call))
        for changed, says in (
            (_of_job(call, minimum_rows=1), "a request can only raise it"),
            (_of_job(call, participants=[TARGET] * 3), "does not list who takes part"),
            (_of_job(call, participants=[5, 8, 9]), "does not list who takes part"),
            (_of_job(call, key="*"), "no proper key"),
            (_changed(call, round=-1), "not a whole number from 0"),
            (_changed(call, hostile_setting="all"), "unknown setting 'hostile_setting'"),
        ):
            _refused(case, changed, says)


def long_training_is_ended(case: MethodCase) -> None:
    """A node whose operator allows no time for training does not train."""
    if not case.supervised:
        raise NotApplicable("it does not train")
    calls = recorded(case)
    environment = {"V6_FEDERATED_MAXIMUM_SECONDS": "0"}
    logs = [_replay(case, call, environment)[1] for call in calls]
    if any("V6_FEDERATED_MAXIMUM_SECONDS" in log for log in logs):
        return
    if not case.having(Role.BATCH):
        raise NotApplicable("it has no minibatches between which training could be ended")
    names = ", ".join(sorted({call.function for call in calls}))
    raise CheckFailed(
        f"none of {names} ends after V6_FEDERATED_MAXIMUM_SECONDS; expected `node.batches` or `node.train`"
    )


def arrays_of_another_shape_are_refused(case: MethodCase) -> None:
    """A node refuses arrays of another shape than central sends, and numbers that are not finite.

    With a number for each row, numpy would broadcast, and a sum over rows would be a row.
    """
    rows = len(case.nodes(tables.three(40))[TARGET])
    seen = False
    for call in recorded(case):
        for change in _hostile_arrays(call, rows):
            seen = True
            status, log = _replay(case, change.call)
            what = f"{call.function}, {change.name} of shape {change.shape}"
            require(status != "completed", f"{what}: accepted; expected a refusal")
            require(WITHHELD not in log, f"{what}: an error that nobody foresaw ({log}); expected a refusal")
            named = change.name in log or str(change.shape) in log
            require(named, f"{what}: the refusal names neither the array nor its shape: {log}")
    if not seen:
        raise NotApplicable("no partial function is sent an array")


# ---- one call, alone


def _replay(case: MethodCase, call: Call, environment: dict[str, str] | None = None) -> tuple[str, str]:
    """Status and last words of the attacked node when it is sent the call."""
    nodes = case.nodes(tables.three(40))
    with MockNetwork(case.package, nodes, environment=environment or {}) as network:
        client = network.client()
        task = client.task.create(orjson.loads(orjson.dumps(call.message)), [TARGET])
        client.wait_for_results(task["id"])
        (ended,) = client.run.from_task(task["id"])
    log = ended["log"] or ""
    require(not _quoted(nodes, log), f"{call.function}: the log quotes a value of a row: {log}")
    return ended["status"], log


def _works(case: MethodCase, call: Call) -> tuple[bool, str]:
    status, log = _replay(case, call)
    return status == "completed", f"{call.function}, as central calls it, fails when it is called alone: {log}"


def _refused(case: MethodCase, call: Call, says: str, environment: dict[str, str] | None = None) -> None:
    status, log = _replay(case, call, environment)
    require(status != "completed", f"{call.function} works; expected a refusal that says {says!r}")
    require(says in log, f"{call.function} is refused with {log!r}; expected a refusal that says {says!r}")


def _quoted(nodes: Nodes, log: str) -> bool:
    numbers = nodes[TARGET].select_dtypes("float").to_numpy().ravel()
    return any(text in log for text in {str(abs(number))[:LETTERS] for number in numbers if number % 1})


# ---- hostile changes


def _length(call: Call) -> int:
    return sum(len(payload["data"]) for _, payload in _payloads(call.arguments))


def _changed(call: Call, **arguments: Any) -> Call:
    kwargs = {**copy.deepcopy(call.message["kwargs"]), **arguments}
    return Call(call.function, call.organization, call.round, {**call.message, "kwargs": kwargs})


def _of_job(call: Call, **changes: Any) -> Call:
    return _changed(call, job={**call.message["kwargs"]["job"], **changes})


def _values_of(arguments: Any, names: list[str]) -> list[Any]:
    """The values of settings with these names, those inside records too."""
    if not isinstance(arguments, dict):
        return []
    inner = [value for argument in arguments.values() for value in _values_of(argument, names)]
    return [arguments[name] for name in names if name in arguments] + inner


@dataclass(frozen=True)
class _Hostile:
    """A call with one array of another form."""

    call: Call
    name: str
    shape: tuple[int, ...]


def _hostile_arrays(call: Call, rows: int) -> Iterator[_Hostile]:
    """The call with each of its arrays, those in payloads among the settings too, in each hostile form."""
    for path, payload in _payloads(call.arguments):
        for name, array in codec.decode(payload).items():
            for odd in _shapes(array.shape, rows):
                arrays = {**codec.decode(payload), name: np.zeros(odd, np.float32)}
                if arrays[name].size:
                    yield _Hostile(_with_payload(call, path, codec.encode(arrays, payload["dtype"])), name, odd)
            if array.size:
                yield _Hostile(_with_payload(call, path, _not_finite(payload)), name, array.shape)


def _shapes(shape: tuple[int, ...], rows: int) -> list[tuple[int, ...]]:
    """Shapes with which numpy would compute something else; the first of several lengths may be any."""
    *first, last = shape or (1,)
    if first:
        return [(*first, last + rows), (*first, 1), (last,), (1, *shape), ()]
    return [(rows, last), (last + rows, 1), (last, 1), (1, last), (last, rows), (1, last, last), ()]


def _payloads(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Payload]]:
    if isinstance(value, dict) and {*value} == {"dtype", "shapes", "data"}:
        yield path, value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _payloads(inner, (*path, name))


def _with_payload(call: Call, path: tuple[str, ...], payload: Payload) -> Call:
    changed = _changed(call)
    place = changed.message["kwargs"]
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = payload
    return changed


def _not_finite(payload: Payload) -> Payload:
    numbers = np.frombuffer(base64.b64decode(payload["data"]), codec.DTYPES[payload["dtype"]]).copy()
    numbers[:] = np.nan
    return {**payload, "data": base64.b64encode(numbers.tobytes()).decode()}
