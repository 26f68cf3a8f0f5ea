"""One node of four that lies: the job ends and names it, for every method and every lie.

docs/dishonest-nodes.md says which lies nobody notices; ``python -m benchmarks poisoning`` measures what they cost.
"""

import base64
import functools
import math
import re

import numpy as np
import pytest
from four_nodes import CRASHED
from helpers import OPEN

from v6_federated.messages import codec
from v6_workbench import registry
from v6_workbench.conformance.jobs import FORESEEN
from v6_workbench.simulation import datasets
from v6_workbench.simulation.call_outcomes import CallOutcome
from v6_workbench.simulation.mock import MockNetwork

LIAR = 2
FEW = {"rounds": 3, "preprocess": ["pca:5"]}  # all pixels of 100 digits determine no coefficients
SETTINGS = {  # the jobs of some methods; all others have the default settings
    "cox": FEW,
    "glm": {**FEW, "family": "poisson"},
    "gbdt": {"rounds": 4, "mode": "cyclic", "growth": {}, "min_rows_leaf": 10},  # nodes take turns
    "km": {"label": "target", "bins": 4},
    "pca": {"rounds": 3, "components": 3},
}
BASE = {"rounds": 3, "classes": list(range(10))}


@functools.cache
def nodes() -> dict:
    """A hundred digits a node."""
    digits = datasets.load("digits")
    return {k: digits.take(np.arange(100 * k, 100 * k + 100)) for k in (1, 2, 3, 4)}


def ended(method: str, lie, **settings) -> str:
    """Why the job of a method ended; empty if it came to its end. ``lie`` is what becomes of the liar's calls."""

    def outcomes(k, input_):
        return lie(input_) if k == LIAR else CallOutcome(1.0)

    own = {k: v for k, v in SETTINGS.get(method, BASE).items() if k != "growth"}
    package = f"v6_{method}"
    with MockNetwork(package, nodes(), environment=OPEN, on_round=lambda row: None, outcomes=outcomes) as network:
        try:
            return network.run(**{**own, **settings}).get("stopped", "")
        except FORESEEN as error:
            return str(error)


def answering(alter, *, functions=None, first_round=0):
    """A lie in answers to some functions (None: all that count rows) from some round on."""

    def lie(input_):
        told = input_["method"] in functions if functions else input_["method"] != "forget"
        here = told and input_["kwargs"]["round"] >= first_round
        return CallOutcome(1.0, alter=alter if here else None)

    return lie


def arrays(change):
    """Change each array of an answer."""

    def alter(answer):
        if "arrays" not in answer:
            return answer
        found = codec.decode(answer["arrays"])
        precision = answer["arrays"]["dtype"]
        return {**answer, "arrays": codec.encode({k: change(k, a) for k, a in found.items()}, precision)}

    return alter


def scaled(factor: float):
    """Scale what a node sends; of a tree only the outputs of its leaves, since other features would be refused."""

    def change(name, array):
        if name != "trees":
            return factor * array
        leaves = (array[:, :1] < 0) * np.array([[0, 1, 0]])
        return np.where(leaves, factor * array, array).astype(np.float32)

    return arrays(change)


def not_finite(answer):
    if "arrays" not in answer:
        return {**answer, "n": math.nan}
    size = len(base64.b64decode(answer["arrays"]["data"])) // codec.DTYPES[answer["arrays"]["dtype"]].itemsize
    infinite = np.full(size, np.inf, codec.DTYPES[answer["arrays"]["dtype"]]).tobytes()
    return {**answer, "arrays": {**answer["arrays"], "data": base64.b64encode(infinite).decode()}}


@functools.cache
def twenty_million() -> str:
    return base64.b64encode(bytes(4 * 20_000_000)).decode()


def extra_numbers(answer):
    payload = answer.get("arrays", {"dtype": "float32", "shapes": {}, "data": ""})
    return {**answer, "arrays": {**payload, "data": payload["data"] + twenty_million()}}


LIES = {
    "n from the beginning": answering(lambda a: {**a, "n": 2**40}),
    "n in the rounds": answering(lambda a: {**a, "n": 4 * a["n"]}, first_round=1),
    "scaled": answering(scaled(1000.0), first_round=1),
    "turned and scaled": answering(scaled(-1000.0), first_round=1),
    "not finite": answering(not_finite, first_round=1),
    "silent": lambda input_: CallOutcome(math.inf if input_["kwargs"]["round"] else 1.0),
    "twenty million numbers": answering(extra_numbers, first_round=1),
    "unknown value": answering(lambda a: {**a, "nobody_asked": 1.0}, first_round=1),
    "unknown array": answering(
        lambda a: {**a, "arrays": codec.encode({**codec.decode(a.get("arrays", codec.encode({}))), "x": np.ones(1)})},
        first_round=1,
    ),
}


@pytest.mark.parametrize("method", registry.names())
@pytest.mark.parametrize("lie", LIES)
def test_one_liar_of_four_ends_the_job_and_is_named(method, lie):
    reason = ended(method, LIES[lie], round_timeout=50)
    assert re.findall(r"organizations? (\d+(?:, \d+)*)", reason) == ["2"], reason
    assert "coordinator" not in reason, "an error that nobody foresaw"


@pytest.mark.parametrize("method", registry.names())
def test_honest_nodes_end_no_job(method):
    assert ended(method, lambda input_: CallOutcome(1.0)) == ""


@pytest.mark.parametrize("method", ["dynavg"])
@pytest.mark.parametrize("protocol", ["svd", "loss"])
@pytest.mark.parametrize("lie", ["n in the rounds", "scaled", "not finite", "unknown value"])
def test_a_liar_in_a_schedule_is_named(method, protocol, lie):
    reason = ended(method, LIES[lie], protocol=protocol, rounds=6)
    assert re.findall(r"organizations? (\d+(?:, \d+)*)", reason) == ["2"], reason
    assert ended(method, lambda input_: CallOutcome(1.0), protocol=protocol, rounds=6) == ""


def test_a_travelled_of_almost_nothing_is_named():
    """SCAFFOLD's c follows from dy / travelled: with a tiny travelled, dy itself could be honest."""
    reason = ended("scaffold", answering(lambda a: {**a, "travelled": 1e-6}, functions=["client_update"]))
    assert "organization 2: sent dy / travelled with an update of norm" in reason


@pytest.mark.parametrize("change", [-1.0, 1e6, 101.0])
def test_counts_that_no_rows_have_are_named(change):
    """From such counts a node could choose the edges of all bins."""
    alter = arrays(lambda name, a: np.full_like(a, change))
    reason = ended("gbdt", answering(alter, functions=["count"]))
    assert "organization 2: sent counts that 80 rows cannot have; expected numbers from 0 to 80" in reason


def test_a_liar_that_a_round_can_do_without_is_missing_or_ends_the_job():
    """What makes a single answer unusable costs the liar its place in the round; what is wrong only next to the others
    ends the job all the same: nobody should train on with a node that owns the model."""
    away = ended("fedavg", LIES["n in the rounds"], min_responses=3)
    assert away == ""
    assert "maximum_norm_ratio" in ended("fedavg", LIES["scaled"], min_responses=3)
    assert "maximum_share" in ended("fedavg", LIES["n from the beginning"], min_responses=3)


def test_a_crash_is_no_lie():
    assert ended("fedavg", lambda input_: CRASHED if input_["kwargs"]["round"] == 2 else CallOutcome(1.0)) != ""
    assert ended("fedavg", lambda i: CRASHED if i["kwargs"]["round"] == 2 else CallOutcome(1.0), min_responses=3) == ""
