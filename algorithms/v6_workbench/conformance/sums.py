"""What a method does where central learns sums over nodes only."""

from collections.abc import Mapping
from typing import Any
from unittest import mock

import numpy as np

from v6_federated.base.arrays import Array
from v6_federated.masks import keystreams
from v6_workbench.conformance import tables
from v6_workbench.conformance.case import MethodCase
from v6_workbench.conformance.jobs import Tape, attempt, difference, learned, run
from v6_workbench.conformance.outcome import require
from v6_workbench.conformance.tables import Nodes

SECURE = ("masked", "pinned")
REQUIRED = {"V6_FEDERATED_AGGREGATION": "masked"}
NEAR = 1e-5  # relative norm: rounding to units, and the model in float32
ROUNDS = 2  # a unit that is rounded can move a row over the kink of a ReLU, and the rounds after it by more than NEAR


def the_sum_under_masks_equals_the_sum_without(case: MethodCase) -> str:
    """A masked job learns what the plain one learns, and is the same, bit for bit, as with masks of zero.

    A regression is also measured alike. A method that needs single answers refuses masks before any node computes
    something, and says why.
    """
    nodes = case.nodes(tables.three())
    if case.single_answers:
        _must_refuse(case, nodes)
        return f"needs single answers: {case.single_answers}"
    everybody = (
        {"fraction": 1.0} if "fraction" in case.schema.model_fields else {}
    )  # without a study, all are one block
    for model in case.trained_models():
        values = case.with_minibatches(model=model, rounds=ROUNDS, seed=3, **everybody)
        what = model or "it"
        masked = run(case, nodes, aggregation="masked", **values)
        with mock.patch.object(keystreams, "masked", _unmasked):
            reference = run(case, nodes, aggregation="masked", **values)
        plain = run(case, nodes, aggregation="plain", **values)
        differ = difference(masked, reference)
        require(not differ, f"{what}: with masks of zero the job differs in {differ}; expected the same bits")
        for name, array in learned(plain).items():
            off = _apart(learned(masked)[name], array, signs=not case.supervised)
            text = f"{what}: {name} under masks is off by {off:.2g} (relative norm) from the plain job"
            require(off <= NEAR, f"{text}; expected {NEAR:g} at most")
        if case.regression and case.supervised:
            _must_measure_alike(what, masked["final"], plain["final"])
    return "works with masked sums"


def _must_measure_alike(what: str, masked: Mapping[str, Any], plain: Mapping[str, Any]) -> None:
    """Labels can be of any size, and so can the sums that measure a regression: none may be rounded away."""
    for measure in (name for name in ("loss", "r2", "rmse", "mae", "c_index") if name in plain):
        found, expected = masked[measure], plain[measure]
        if found is None or expected is None:
            require(found is expected, f"{what}: {measure} is {found} under masks, and {expected} in the plain job")
            continue
        share = measure in ("r2", "c_index")
        off = abs(found - expected) / (max(abs(expected), 1.0) if share else abs(expected) or 1.0)
        text = f"{what}: {measure} of the final model under masks is off by {off:.2g} from the plain job"
        require(off <= NEAR, f"{text}; expected {NEAR:g} at most")


def _must_refuse(case: MethodCase, nodes: Nodes) -> None:
    values = case.values(rounds=ROUNDS)
    for how, environment, asked in (
        *((f"aggregation={mode}", {}, {"aggregation": mode}) for mode in SECURE),
        ("V6_FEDERATED_AGGREGATION=masked at the nodes", REQUIRED, {}),
    ):
        tape = Tape()
        problem = attempt(case, nodes, environment, outcomes=tape, **values, **asked).problem
        said = case.single_answers in problem and "\n" not in problem
        require(said, f"{how} ends in {problem or 'a model'!r}; expected one line that says {case.single_answers!r}")
        require(not tape.own(), f"{how} is refused only after nodes have computed something")


def _apart(found: Array, expected: Array, signs: bool) -> float:
    """The norm of the difference, relative to that of what is expected; of components up to the sign of each."""
    if signs and expected.ndim == 2:
        found = found * np.where(np.sum(found * expected, axis=1, keepdims=True) < 0, -1, 1)
    return float(np.linalg.norm(found - expected)) / (float(np.linalg.norm(expected)) or 1.0)


def _unmasked(words: Array, own: bytes, keys: object, T: bytes) -> Array:
    return words.copy()
