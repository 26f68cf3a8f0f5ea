"""Rows that take part in nothing contribute to no sum with noise, of whatever method: noise counts m rows of a person.

Rows are idle if a person has more than the m that the schema declares, or if their label is not declared. Trees once
added them: they accept missing values, by which alone idle rows were known.
"""

from importlib.metadata import entry_points

import numpy as np
import pandas as pd
import pytest

import v6_fedavg
import v6_gbdt
import v6_glm
import v6_pca
from v6_federated import codec
from v6_federated.base.vantage6_api import NodePermissionException
from v6_federated.data.declared import conformed
from v6_federated.data.source import Source
from v6_federated.messages.job import DataSpec, Job
from v6_federated.models import build
from v6_federated.node import noising
from v6_federated.node.node import Node
from v6_federated.node.request import Request
from v6_federated.noise.plan import Plan
from v6_federated.rules.policy import Policy
from v6_federated.rules.schema import Column, Schema

SCHEMA = Schema((Column("x", "number", 0, 1), Column("z", "number", 0, 1)), "y", (0, 1), person="who", m=2)
BOX = np.array([[0, 0.5, -0.0], [-1, 0, 0], [-1, 0, 0]], np.float32)  # rows without a value go right
NO_TREES, ZEROS = np.empty((0, 3), np.float32), np.zeros(3, np.float32)
CALLS = {
    "gbdt": (v6_gbdt.noisy_leaf_sums, {"name": "trees"}, (NO_TREES, BOX), {}),
    "glm": (
        v6_glm.noisy_newton,
        {"name": "glm", "family": "binomial"},
        (),
        {"transform": codec.encode({"T": np.eye(3)}, "float64"), "of_budget": 1},
    ),
    "pca": (v6_pca.noisy_moments, None, (), {"d": 2}),
    "fedavg": (v6_fedavg.noisy_gradient, {"name": "logreg"}, (ZEROS,), {}),
}


def visits(x: float, y: object) -> pd.DataFrame:
    """60 persons, and one with 42 visits: what all but the first two hold is to be chosen."""
    rng = np.random.default_rng(1)
    table = pd.DataFrame({"x": rng.random(102), "z": 0.5, "y": rng.integers(0, 2, 102).astype(object)})
    table["who"] = [*range(60), *[99] * 42]
    table.loc[62:, "x"], table.loc[62:, "y"] = x, y
    return table


def node(table: pd.DataFrame, model: dict | None, holdout: float = 0.0) -> Node:
    found = object.__new__(Node)
    spec = DataSpec("y", ["x", "z"], [0, 1], holdout=holdout)
    if model is not None:
        model = {**model, "features": 2, "classes": 2}
    request = Request(Policy.of("trusting"), None, None, {})
    vars(found).update(
        job=Job("a method", "0" * 32, 0, [1, 2, 3], [], 1, model, spec, None, "float32"),
        model=None if model is None else build(model),
        round=1,
        policy=Policy.of("private"),
        request=request,
        identity=1,
        schema=SCHEMA,
        source=conformed(Source(table=table), SCHEMA),
        _total=len(table),
        noising=noising.Noising(Plan(steps=9, statistics=9, evaluations=9, holdout=holdout), request, "job", 2),
    )
    vars(found)["check_time"] = lambda: None
    return found


@pytest.fixture(autouse=True)
def no_noise(monkeypatch):
    monkeypatch.setattr(noising, "discrete_gaussian", lambda key, sigma, size: np.zeros(size, np.int64))


@pytest.mark.parametrize("method", CALLS)
def test_idle_rows_contribute_nothing(method):
    function, model, arrays, settings = CALLS[method]
    worlds = []
    for x, y in ((0.9, 1), (0.1, 0), (0.9, "not declared")):
        answer = function.__wrapped__(node(visits(x, y), model), *arrays, **settings)
        worlds.append(next(value for value in answer.values() if len(value) > 1))
    assert worlds[0].any() and all((other == worlds[0]).all() for other in worlds[1:])


def test_each_sum_with_noise_is_tried():
    """A new method's ``noisy_...`` belongs to ``CALLS``."""
    found = {
        f"{method.name}.{name}"
        for method in entry_points(group="v6_federated.methods")
        for name in vars(__import__(method.module))
        if name.startswith("noisy_")
    }
    tried = {f"{method}.{function.__name__}" for method, (function, *_) in CALLS.items()}
    assert tried <= found and {name.rpartition(".")[2] for name in found} == {name.rpartition(".")[2] for name in tried}


@pytest.mark.parametrize(("model", "w"), [({"name": "trees"}, BOX), ({"name": "logreg"}, ZEROS)])
def test_idle_rows_are_not_counted_and_keep_their_place(model, w):
    counts = []
    for x, y in ((0.9, 1), (0.1, 0), (0.9, "not declared")):
        found = node(visits(x, y), model, holdout=0.5)
        counts.append(found.evaluate(w, "held_out")["confusion"])
        kept, held = found.source.split(found.job.data, 1, 10)
        assert len(kept) + len(held) == 102 and found.source.idle[held].any()
        rows, _ = found.evaluated
        assert len(rows) == (~found.source.idle[held]).sum()  # in the hospital's own results
    assert all((other == counts[0]).all() for other in counts[1:])


def test_persons_of_arrays_are_refused():
    """Arrays have no such column, so that nothing would bound what a person contributes."""
    source = Source(X=np.zeros((4, 2)), y=np.zeros(4))
    with pytest.raises(NodePermissionException, match="declares person, and arrays do not say whose a row is"):
        conformed(source, SCHEMA)
