"""What a method does where central learns sums over nodes only."""

from unittest import mock

import numpy as np

from v6_federated.base.arrays import Array
from v6_federated.privacy.secagg import masks
from v6_workbench.conformance import tables
from v6_workbench.conformance.case import MethodCase
from v6_workbench.conformance.jobs import attempt, learned, run
from v6_workbench.conformance.outcome import require

NEAR = 1e-5  # relative norm: rounding to units, and the model in float32


def the_sum_under_masks_equals_the_sum_without(case: MethodCase) -> str:
    """A masked job ends in the model of the plain one, and in the same bits as with masks of zero.

    A method that needs single answers refuses masks before any node is asked, and says why.
    """
    nodes, values = case.nodes(tables.three()), case.values(rounds=3, seed=3)
    if case.single_answers:
        problem = attempt(case, nodes, aggregation="masked", **values).problem
        said = case.single_answers in problem and "\n" not in problem
        require(said, f"aggregation=masked ends in {problem or 'a model'!r}; expected one line that says why not")
        return f"needs single answers: {case.single_answers}"
    plain, masked = (run(case, nodes, aggregation=mode, **values) for mode in ("plain", "masked"))
    with mock.patch.object(masks, "masked", _unmasked):
        reference = run(case, nodes, aggregation="masked", **values)
    require(masked["weights"] == reference["weights"], "the model under masks has other bits than with masks of zero")
    require(masked["final"] == reference["final"], "the last evaluation under masks is not that with masks of zero")
    expected, found = learned(plain), learned(masked)
    for name, array in expected.items():
        off = float(np.linalg.norm(found[name] - array)) / (float(np.linalg.norm(array)) or 1.0)
        require(off <= NEAR, f"{name} under masks is off by {off:.2g} (relative norm); expected {NEAR:g} at most")
    return "works with masked sums"


def _unmasked(words: Array, own: bytes, keys: object, T: bytes) -> Array:
    return words.copy()
