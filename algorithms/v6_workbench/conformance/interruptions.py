"""A job goes on after an interruption, and a new job from a result, as if there had been none."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from v6_federated.central import checkpoint
from v6_federated.central.checkpoint import Checkpoint
from v6_federated.messages import codec
from v6_federated.messages.job import SHARED_FUNCTIONS
from v6_workbench.conformance import tables
from v6_workbench.conformance.case import MethodCase, Result
from v6_workbench.conformance.jobs import OPEN, Call, Ended, Tape, difference, finished, learned, run, run_on
from v6_workbench.conformance.outcome import NotApplicable, require
from v6_workbench.conformance.tables import Nodes
from v6_workbench.simulation.call_outcomes import CallOutcome
from v6_workbench.simulation.mock import MockNetwork

ROUNDS = 5
ENOUGH = 10  # rounds in which a method that ends its rounds by itself does so on small tables
CRASHED = CallOutcome(status="crashed")
KEY = re.compile("[0-9a-f]{32}")  # of a job, in the name of a file that a node keeps
RESUMED = ("loss", "accuracy", "auc", "participants")  # of a row of history

Snapshot = Mapping[str, Any]  # what a checkpoint keeps


class Killed(BaseException):
    """The container of central is gone."""


# ---- central's container is lost


def a_lost_central_goes_on(case: MethodCase) -> None:
    """If central's container is lost and vantage6 starts it again, the job goes on from its last finished round.

    The bits are the same, and nothing more is left at the nodes in the end, even if answers were coming in.
    """
    nodes = case.nodes(tables.three())
    values = case.with_minibatches(rounds=ROUNDS, seed=3, preprocess=["standardize"])
    if case.asynchronous:
        values = case.values(rounds=ROUNDS, **case.all_rows, **case.classes)
    with _network(case.package, nodes, Tape(_uneven)) as network:
        straight, left_before = finished(run_on(network, **values)), left_at(network)
    last = len(straight["history"])
    for round_ in sorted({1, last // 2 + 1}):

        def lost(call: Call, round_: int = round_) -> bool:
            return call.round == round_ and call.function not in ("evaluate", "keep_steps")

        restarted = lost_and_started_again(case.package, nodes, lost, _uneven, **values)
        resumed, what = restarted.result, f"central was lost in round {round_}"
        # in an asynchronous method a call's round is its node's own count; a method that trains nothing begins again
        exact = case.supervised and not case.asynchronous
        again = [call.round for call in restarted.after if exact and call.own and 0 < call.round < round_]
        require(not again, f"{what}: round {min(again, default=0)} is run again")
        require(restarted.left == left_before, f"{what}: {', '.join(restarted.left)} stay at the nodes")
        if not case.asynchronous:
            parts = difference({**straight, "traffic": 0}, {**resumed, "traffic": 0})
            require(not parts, f"{what}: the result differs in {parts} from that of a job that was not interrupted")
            continue
        require(len(resumed["history"]) == last, f"{what}: {len(resumed['history'])} rounds; expected {last}")
        if case.follow is not None:
            off = np.abs(learned(resumed)["weights"] - case.follow(resumed, nodes)).max()
            require(off <= 2e-6, f"{what}: the model is off by {off:.2g} from what its history says")


def a_central_lost_at_the_end_changes_nothing(case: MethodCase) -> None:
    """If central's container is lost after the last round, no further round is run, and the result has the same bits.

    This holds before the last model is evaluated, and once it has been.
    """
    if not case.supervised:
        raise NotApplicable("it carries nothing from round to round")
    nodes = case.nodes(tables.three())
    values = case.with_minibatches(rounds=ENOUGH, seed=3, preprocess=["standardize"], **case.classes)
    with _network(case.package, nodes, Tape(_uneven)) as network:
        straight = finished(run_on(network, **values))
    moments: dict[str, Callable[[Snapshot], bool]] = {
        "before": lambda kept: kept["ended"] and kept["final"] is None,
        "after": lambda kept: kept["final"] is not None,
    }
    for when, moment in moments.items():
        restarted = lost_and_started_again(case.package, nodes, plan=_uneven, lost_once_kept=moment, **values)
        what = f"central was lost {when} the last evaluation"
        rounds, expected = len(restarted.result["history"]), len(straight["history"])
        require(rounds == expected, f"{what}: {rounds} rounds; expected {expected}")
        parts = difference({**straight, "traffic": 0}, {**restarted.result, "traffic": 0})
        require(not parts, f"{what}: the result differs in {parts} from that of a job that was not interrupted")


@dataclass(frozen=True)
class Restarted:
    """A job whose central was lost and started again.

    Attributes:
        ended: how the job ended.
        left: the files that are left at the nodes, without the job's key.
        before, after: the calls until central was lost, and those after it was started again.
    """

    ended: Ended
    left: list[str]
    before: list[Call]
    after: list[Call]

    @property
    def result(self) -> Result:
        """The job's result. Raises CheckFailed if the job did not come to its end."""
        return finished(self.ended)


def lost_and_started_again(
    package: str,
    nodes: Nodes,
    lost: Callable[[Call], bool] = lambda call: False,
    plan: Callable[[Call], CallOutcome] = lambda call: CallOutcome(),
    meanwhile: Callable[[Path], None] = lambda folder: None,
    lost_once_kept: Callable[[Snapshot], bool] = lambda kept: False,
    **settings: Any,
) -> Restarted:
    """Run a job on mock nodes whose central is lost, and started again by vantage6 with the same job.

    Args:
        package: the method's import package.
        nodes: a table for each organization.
        lost: central is lost when it reads the first answer to such a call.
        plan: what becomes of each call.
        meanwhile: is given the network's folder before central starts again.
        lost_once_kept: central is lost, too, once it has kept such a checkpoint.
        settings: of the job.

    Raises:
        ValueError: central was not lost, since there was no such call or checkpoint.
    """
    files: dict[Path, bytes] = {}
    ends, gone = False, False
    keep = Checkpoint.save

    def end() -> None:
        nonlocal ends
        ends = True
        files.update({file: file.read_bytes() for file in network.folder.glob("node-*/tmp/*") if file.is_file()})
        raise Killed

    def die(answer: dict[str, Any]) -> dict[str, Any]:
        if not ends:
            end()
        return answer

    def save(kept: Checkpoint, snapshot: Snapshot) -> None:
        keep(kept, snapshot)
        if not ends and lost_once_kept(snapshot):
            end()

    def outcome(call: Call) -> CallOutcome:
        if ends and not gone and call.function == "forget":
            return CRASHED  # a container that is gone tidies nothing up
        return replace(plan(call), alter=die) if not ends and lost(call) else plan(call)

    tape = Tape(outcome)
    with _network(package, nodes, tape) as network:
        try:
            with mock.patch.object(Checkpoint, "save", save):
                network.run(**settings)
        except Killed:
            gone = True
        if not gone:
            raise ValueError("central was not lost: there was no such call or checkpoint")
        for file, content in files.items():
            if not file.exists():
                file.write_bytes(content)
        meanwhile(network.folder)
        before = len(tape.calls)
        ended = run_on(network, **settings)
        return Restarted(ended, left_at(network), tape.calls[:before], tape.calls[before:])


def _network(package: str, nodes: Nodes, tape: Tape) -> MockNetwork:
    return MockNetwork(package, nodes, environment=OPEN, on_round=lambda row: None, outcomes=tape, keep=True)


def _uneven(call: Call) -> CallOutcome:
    """Nodes of different speeds."""
    return CallOutcome({3: 1.0, 5: 1.7, 8: 2.9}[call.organization] if call.own else 0.0)


def left_at(network: MockNetwork) -> list[str]:
    """The files in the nodes' job folders, whatever the job's key."""
    return sorted(KEY.sub("KEY", file.name) for file in network.folder.glob("node-*/tmp/**/*") if file.is_file())


# ---- a new job goes on from a result


def a_result_can_be_resumed(case: MethodCase) -> None:
    """A new job goes on from the result of an earlier one, up to its own number of rounds, and keeps the history."""
    half, resumed, _ = _resumed(case)
    rows = len(half["history"])
    require(
        len(resumed["history"]) == 2 * rows, f"the resumed job has {len(resumed['history'])} rounds, not {2 * rows}"
    )
    kept = [row["participants"] for row in resumed["history"][:rows]]
    require(kept == [row["participants"] for row in half["history"]], "the rounds of the first job are not kept")


def resuming_changes_nothing(case: MethodCase) -> None:
    """The model and the history of a job that was resumed are those of a job in one go."""
    _, resumed, straight = _resumed(case)
    require(resumed["weights"] == straight["weights"], "the model has other bits than that of a job in one go")
    for name in RESUMED:
        one, other = ([row[name] for row in result["history"]] for result in (straight, resumed))
        require(one == other, f"the history's {name} differs from that of a job in one go")


def _resumed(case: MethodCase) -> tuple[Result, Result, Result]:
    """A job of three rounds, one that goes on from its result to six, and one in one go."""
    if not case.supervised:
        raise NotApplicable("it carries nothing from round to round")
    nodes, values = case.nodes(tables.three()), case.with_minibatches(seed=3, preprocess=["standardize"])
    half, straight = (run(case, nodes, rounds=rounds, **values) for rounds in (3, 6))
    return half, run(case, nodes, rounds=6, resume=json.loads(json.dumps(half)), **values), straight


def nodes_are_sent_what_central_carries(case: MethodCase) -> None:
    """A recoverable method sends the nodes in every round all that it carries, under the same names.

    If central is lost for good, a new job can go on from what the server has kept.
    """
    if not case.central.recoverable:
        raise NotApplicable("it is not declared recoverable")
    nodes, values, tape = case.nodes(tables.three()), case.with_minibatches(seed=3), Tape()
    before = run(case, nodes, rounds=2, **values)
    run(case, nodes, rounds=3, outcomes=tape, **values)
    carried = {"weights": learned(before)["weights"], **checkpoint.from_json(before["state"])}
    for call in tape.calls:
        if call.round != 3 or call.function in SHARED_FUNCTIONS:
            continue
        sent = dict(call.arguments)
        sent |= codec.decode(sent.pop("arrays", codec.encode({})))
        lacking = [name for name, value in carried.items() if not _same(sent.get(name), value)]
        require(not lacking, f"round 3, {call.function}: {', '.join(lacking)} of round 2 are not sent")


def _same(sent: Any, carried: Any) -> bool:
    return json.dumps(checkpoint.to_json(sent)) == json.dumps(checkpoint.to_json(carried))


# ---- what nodes keep


def nodes_keep_what_is_declared_and_nothing_in_the_end(case: MethodCase) -> None:
    """``keeps_state`` says whether nodes keep anything between rounds. When a job ends, well or not, it is removed."""
    nodes, values = case.nodes(tables.three()), case.values(rounds=2)
    for fails in (False, True):
        kept: set[str] = set()

        def look(answer: dict[str, Any], kept: set[str] = kept) -> dict[str, Any]:
            kept |= {name for name in left_at(network) if not name.startswith("checkpoint-")}
            return answer

        def plan(call: Call, fails: bool = fails, look: Callable[[Any], Any] = look) -> CallOutcome:
            return CRASHED if fails and call.own and call.round == 2 else CallOutcome(alter=look)

        with _network(case.package, nodes, Tape(plan)) as network:
            ended = run_on(network, **values)
            require(bool(ended.problem) == fails, f"the job ends otherwise than it must: {ended.problem or 'well'}")
            left = left_at(network)
        declared = "keeps state" if case.keeps_state else "keeps no state"
        found = ", ".join(sorted(kept)) or "nothing"
        require(fails or bool(kept) == case.keeps_state, f"declared: {declared}; at the nodes between rounds: {found}")
        require(not left, f"{', '.join(left)} stay at the nodes after a job that {'failed' if fails else 'ended'}")


def a_node_that_has_lost_its_state_says_so(case: MethodCase) -> None:
    """If a node's files are gone before it is called, the job goes on.

    If the node needed them, it says so in its answer, as ``state_lost``.
    """
    if not case.keeps_state:
        raise NotApplicable("its nodes keep nothing")
    nodes, values, loser = case.nodes(tables.three()), case.values(rounds=5), 5

    def plan(call: Call) -> CallOutcome:
        if (call.organization, call.round) == (loser, 3) and call.own:
            for file in network.folder.glob(f"node-{loser}/tmp/*"):
                file.unlink()
        return CallOutcome()

    with _network(case.package, nodes, Tape(plan)) as network:
        result = finished(run_on(network, **values))
    undisturbed = run(case, nodes, outcomes=Tape(), **values)
    said = [row["organization_id"] for row in result["per_node"] if row.get("state_lost")]
    unnoticed = not said and result["weights"] != undisturbed["weights"]
    require(not unnoticed, "a node has lost what it kept, the model is another, and no answer says state_lost")
    require({*said} <= {loser}, f"organizations {said} say that they have lost their state; expected {loser} alone")
