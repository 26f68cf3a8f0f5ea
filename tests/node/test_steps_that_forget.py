"""Steps that forget those before them would single out the last rows."""

import functools
import inspect
import sys
from types import ModuleType
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from helpers import crafted, refused, train
from pydantic import Field

from v6_federated import partial
from v6_federated.messages import codec
from v6_federated.messages.local_sgd import BatchSize, LearningRate, PlainSGD, ProximalMu
from v6_federated.messages.settings import Role


@pytest.mark.parametrize("settings", [{"proximal_mu": 1.0}, {"model": "logreg:l2=1"}, {"model": "svm:l2=0.6"}])
def test_no_setting_lets_the_last_rows_stand_alone(hospitals, settings):
    """A step that forgets those before it would send the last minibatch's gradient: of one row, the row."""
    refused("the last rows would stand alone", hospitals, lr=1.0, batch_size=20, **settings)


def test_steps_that_forget_nothing_or_little_are_taken(hospitals):
    """All rows a step, Adam, and a product of 0.5 in the model's own precision."""
    for package, settings in [
        ("v6_fedavg", {"lr": 5.0, "model": "logreg:l2=0.1", "batch_size": 10}),
        ("v6_fedavg", {"lr": 1.0, "model": "logreg:l2=1", "epochs": 2}),
        ("v6_fedavg", {"lr": 1.0, "proximal_mu": 1.0, "optimizer": "adam", "batch_size": 10}),
        ("v6_fsvrg", {"stepsize": 1.0, "model": "logreg:l2=1", "batch_size": 5}),
    ]:
        assert len(train(package, hospitals, rounds=1, **settings)["history"]) == 1


def test_limits_on_steps_do_not_hang_on_names(hospitals, monkeypatch):
    """Whatever a method's developer calls the settings."""
    payload = codec.encode({"weights": np.zeros(5)})

    def named(function, **settings):
        module = ModuleType("v6_named")
        module.client_update = partial(function)
        monkeypatch.setitem(sys.modules, "v6_named", module)
        return crafted(hospitals, package="v6_named", arrays=payload, **settings)

    def passes(node, weights, size):
        node.train(weights + 0, PlainSGD(batch_size=size), lambda w, g: None)
        return {}

    def prox(node, weights, *, size: BatchSize, eta: LearningRate, mu: ProximalMu):
        return passes(node, weights, size)

    assert named(prox, size=10, eta=1.0, mu=0.4) == ("completed", "")
    assert named(prox, size=None, eta=1.0, mu=4.0) == ("completed", "")  # a step of all rows forgets none
    for settings, says in (
        ({"mu": 0.6}, "a step of 1 with a penalty of 0.6"),
        ({"mu": 0.0, "round": 0}, "round 0 is none of training"),
    ):
        status, log = named(prox, size=10, eta=1.0, **settings)
        assert status != "completed" and says in log, log

    def momentum(
        node,
        weights,
        *,
        size: BatchSize,
        mu: ProximalMu,
        eta: LearningRate,
        rule: Annotated[Literal["adam", "momentum"], Role.OPTIMIZER],
    ):
        return passes(node, weights, size)

    assert named(momentum, size=10, eta=1.0, mu=4.0, rule="adam") == ("completed", "")
    status, log = named(momentum, size=10, eta=1.0, mu=4.0, rule="momentum")
    assert status != "completed" and "a step of 1 with a penalty of 4" in log, log

    def unsized(node, weights, *, eta: LearningRate):
        return passes(node, weights, 10)

    def other(node, weights, *, size: BatchSize, eta: LearningRate):
        return passes(node, weights, 5)

    def all_rows(node, weights, *, size: BatchSize, eta: LearningRate):
        return passes(node, weights, min(size, node.n))

    for function, settings, says in ((unsized, {}, "of 10 rows"), (other, {"size": 10}, "of 5 rows")):
        status, log = named(function, eta=1.0, **settings)
        assert status != "completed" and f"minibatches {says} are refused" in log, log
    assert named(all_rows, eta=1.0, size=1000) == ("completed", "")


@pytest.mark.parametrize(
    "annotation",
    [
        float,
        float | None,
        object,
        dict[str, float],
        Literal[0, 400],
        Any,
        ProximalMu | None,
        Annotated[int, Field(ge=0)],
        inspect.Parameter.empty,
    ],
)
def test_a_setting_beside_minibatches_says_what_it_is(annotation):
    def client_update(node, weights, *, size, mu):
        return {}

    keyword = functools.partial(inspect.Parameter, kind=inspect.Parameter.KEYWORD_ONLY)
    parameters = [
        inspect.Parameter("node", inspect.Parameter.POSITIONAL_OR_KEYWORD),
        keyword("size", annotation=BatchSize),
        keyword("mu", annotation=annotation),
    ]
    client_update.__signature__ = inspect.Signature(parameters)
    with pytest.raises(TypeError, match="client_update: 'mu' has no Role"):
        partial(client_update)
    parameters[-1] = keyword("mu", annotation=ProximalMu)
    client_update.__signature__ = inspect.Signature(parameters)
    partial(client_update)
