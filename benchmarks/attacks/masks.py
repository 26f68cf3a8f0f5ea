"""Attacks on the masks themselves: who sees single answers, and what a server that lies can do about it."""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.attacks import thresholds, transport
from benchmarks.attacks.isolation import standardize
from benchmarks.attacks.researcher import TARGET, Failed, Outcome, Refused, Researcher
from benchmarks.attacks.transport import Agreed, Participant
from v6_federated.base.errors import SafeError
from v6_federated.masks import exact, keys, study
from v6_federated.masks.study import Hospital
from v6_federated.masks.summands import FIRST
from v6_federated.masks.summing import decoded
from v6_federated.messages import codec
from v6_workbench.simulation.call_outcomes import CallOutcome

METHOD = "v6_fedavg"
ANSWER = "hospitals' answers"
LARGEST = float(np.finfo(np.float32).max)
REPEATED = 5


def _one(researcher: Researcher, found: bool, unit: str = ANSWER) -> Outcome:
    return Outcome(int(found), 1, unit, researcher.tasks, 1, None, researcher.last_words(int(found)))


# ---- the curious


def curious(researcher: Researcher) -> Outcome:
    """An honest job; central looks at the target's answer as it came, and takes it for numbers without masks."""
    seen = list[tuple[dict[str, Any], dict[str, Any]]]()

    def outcome(organization: int, message: dict[str, Any]) -> CallOutcome:
        def alter(answer: dict[str, Any]) -> dict[str, Any]:
            if message["method"] in ("client_update", "noisy_gradient") and organization == TARGET:
                seen.append((message["kwargs"], answer))
            return answer

        researcher.tasks += 1
        return CallOutcome(alter=alter)

    researcher.network(METHOD).outcomes = outcome
    job = {"model": "logreg", "rounds": 1, "holdout": 0, "lr": 0.1, "classes": [0, 1]}
    researcher.central(METHOD, **job)
    kwargs, answer = seen[0]
    if "arrays" in answer:
        claim = codec.decode(answer["arrays"])["weights"]
    else:
        asked, function = {**kwargs["sums"]}, "client_update" if "local" in kwargs else "noisy_gradient"
        agreed = Agreed("", "masked", [TARGET], rows=asked["rows"])
        sent = codec.decode(kwargs["arrays"])
        [e] = [e for _, e in asked["units"]] or [FIRST]
        more = {name: kwargs[name] for name in ("local", "bands") if name in kwargs}
        sums = transport.question(METHOD, function, agreed, kwargs["job"], more, sent, asked["seq"], e)
        words = {bits: codec.decode_words(answer[f"y{bits}"], f"uint{bits}", sums.words(bits)) for bits in (32, 64)}
        named = ("share weights", "one gradient")
        claim = next(v for k, v in decoded(sums, words, bytes(32))[2].items() if k.startswith(named))
    with Researcher(researcher.tables, "careful") as true:
        asked = {
            "data": kwargs["job"]["data"],
            "model": kwargs["job"]["model"],
            "local": kwargs.get("local", {"lr": 0.1}),
        }
        sent = codec.decode(kwargs["arrays"])
        moved = true.ask(METHOD, "client_update", arrays=sent, **asked)["weights"] - sent["weights"]
    change = np.asarray(claim, np.float64) - (sent["weights"] if "arrays" in answer else 0)
    alike = abs(float(np.corrcoef(change, moved)[0, 1]))  # the share of rows is a factor that nobody needs to know
    return _one(researcher, alike > 0.99)


# ---- refusals


def largest_value(researcher: Researcher) -> Outcome:
    """A step divides a column by so little that values above a bound overflow: can the node compute? Halve the bound.

    Where a node may not refuse, it adds noise, and that some node of the block did so shows once a job.
    """
    column = researcher.features[researcher.finest()]
    largest = max(researcher.tables[k][column].max() for k in researcher.block)
    data: dict[str, Any] = {"features": [column]}
    request: dict[str, Any] = {"model": {"name": "logreg"}, "arrays": {"weights": np.zeros(2)}, "local": {}}
    researcher.moments()

    def overflows(bound: float) -> bool:
        name = "scale" if researcher.epsilon else "standardize"
        most = LARGEST if researcher.mode == "plain" else math.sqrt(exact.MOST)  # of a row, where sums are exact
        once = np.array([math.sqrt(bound / most)])  # no step may divide by less than 1e-30
        data["preprocess"] = [standardize(np.zeros(1), once, name)] * 2
        try:
            researcher.ask(METHOD, "client_update", data=data, **request)
            return False
        except Failed:
            return True
        except Refused as error:
            if researcher.spent:
                raise
            assert "infinite" in str(error)
            return True

    low, high = 0.0, 1e5
    while high - low > 1e-7 * high:
        middle = (low + high) / 2
        if overflows(middle):
            low = middle
        else:
            high = middle
    right = int(np.isclose(high, largest, rtol=1e-6))
    return Outcome(right, 1, "largest values", researcher.tasks, 1, None, researcher.last_words(right))


def description(researcher: Researcher) -> Outcome:
    """Which values of a column do five rows of the target have? The label is any column with few values, here a pixel.

    With plain answers, a job that names the value as a class is refused if they have not. Under masks, the description
    that a node gives before keys are agreed names them, unless the study has a schema.
    """
    counts = {c: len(np.unique(researcher.tables[TARGET][c])) for c in researcher.features}
    label = min((c for c in counts if counts[c] > 4), key=lambda c: (counts[c], c))
    true = researcher.tables[TARGET][label].value_counts()
    right = 0
    for value in range(17):
        spec = {**researcher.spec, "label": label, "classes": [value]}
        spec["features"] = [c for c in researcher.features if c != label][:3]
        if researcher.mode != "plain":  # a description names the classes that enough rows have
            job = researcher.job(METHOD, aggregation=researcher.mode, data={**spec, "classes": None})
            hello = researcher.send(METHOD, "describe", [TARGET], job=job, round=0, raw=True)[TARGET]
            said = value in hello["classes"]
        else:
            try:
                researcher.ask(METHOD, "fit_step", data=spec, statistic="moments")
                said = True
            except Refused:
                said = False
        right += int(said == (true.get(value, 0) >= 5))
    return Outcome(right if right == 17 else 0, 17, "answers about a hospital", researcher.tasks, 17, None, "")


# ---- keys


def swapped_keys(researcher: Researcher) -> Outcome:
    """In place of the other hospitals' keys, the target gets the attacker's, who can then take off all masks."""
    others = [k for k in sorted(researcher.tables) if k != TARGET]
    if researcher.column == "masked":  # the target hears of three hospitals, and all their keys are the attacker's
        agreed = transport.agree(researcher, METHOD, [TARGET], invented=[Participant() for _ in others], ids=others)
    else:  # the identity keys are pinned; the keys of the job are not
        agreed = transport.agree(
            researcher, METHOD, sorted(researcher.tables), swapped={k: Participant() for k in others}
        )
    sums, answers = moments(researcher, agreed, [TARGET])
    nodes, _, _ = agreed.opened(sums, answers)
    return _one(researcher, nodes == 1)


def moments(researcher: Researcher, agreed: Agreed, to: list[int], centre: float = 0.0, seq: int | None = None) -> Any:
    """Ask for sums of the columns about some number."""
    center = np.full(len(researcher.features), centre)
    request: dict[str, Any] = {"arrays": {"center": center}, "statistic": "moments"}
    return researcher.sums(METHOD, "fit_step", agreed, to=to, seq=seq, **request)


def two_studies(researcher: Researcher) -> Outcome:
    """A second version of the study without the target: its sums, subtracted from those before, are the target's."""
    network = researcher.network(METHOD)
    folders = {k: researcher.hospital(k) for k in network.nodes}
    before = study.accepted(folders[TARGET])
    assert before is not None
    own = keys.public_of(keys.identity(folders[TARGET]))
    newcomer = Hospital("newcomer", keys.public_of(Participant().s))
    changed = tuple(tuple(newcomer if h.key == own else h for h in block) for block in before.blocks)
    after = replace(before, version=before.version + 1, blocks=changed)
    accepted = 0
    for k, folder in folders.items():
        if k != TARGET:
            try:
                study.accept(folder, after, 3)
                accepted += 1
            except SafeError as error:
                researcher.refusal = str(error)
    return replace(_one(researcher, accepted > 0), refused=researcher.refusal)


# ---- requests


def together(researcher: Researcher) -> Agreed:
    """All four hospitals have agreed, with or without a study, and nobody has been invented."""
    return transport.agree(researcher, METHOD, sorted(researcher.tables), invented=[])


def another_model(researcher: Researcher) -> Outcome:
    """The number of a request again, with other numbers sent: two answers under one mask, whose difference tells."""
    agreed = together(researcher)
    moments(researcher, agreed, [TARGET], seq=1)
    moments(researcher, agreed, [TARGET], centre=1.0, seq=1)
    return _one(researcher, True)


def different_models(researcher: Researcher) -> Outcome:
    """The target is asked about another model than the others: its answer would stand out in the sum."""
    agreed = together(researcher)
    others = [k for k in agreed.members if k != TARGET]
    sums, answers = moments(researcher, agreed, others, seq=1)
    answers |= moments(researcher, agreed, [TARGET], centre=1.0, seq=1)[1]
    nodes, _, _ = agreed.opened(sums, answers)
    return _one(researcher, nodes == len(agreed.members))


# ---- colluding hospitals


def one_colludes(researcher: Researcher) -> Outcome:
    """One of the four tells the researcher its keys and answers: what is left is the sum over three."""
    researcher.colluding = sorted(researcher.tables)[-1:]
    return thresholds.two_classes(researcher)


def all_collude(researcher: Researcher) -> Outcome:
    """All but the target tell the researcher their keys and answers."""
    researcher.colluding = [k for k in sorted(researcher.tables) if k != TARGET]
    return thresholds.two_classes(researcher)
