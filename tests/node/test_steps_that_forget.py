"""Steps that forget those before them would single out the last rows: a node refuses them by the settings' roles."""

import functools
import inspect
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from helpers import a_method, crafted, refused, train
from pydantic import Field

from v6_federated import PlainSGD, Role, codec, partial
from v6_federated.messages.local_sgd import BatchSize, LearningRate, ProximalMu

WEIGHTS = codec.encode({"weights": np.zeros(5)})


@pytest.mark.parametrize(
    ("settings", "pull"),
    [({"proximal_mu": 1.0}, "1"), ({"model": "logreg:l2=1"}, "1"), ({"model": "svm:l2=0.6"}, "0.6")],
)
def test_a_step_that_forgets_those_before_it_is_refused(hospitals, settings, pull):
    """The answer would be the last minibatch's gradient: with one row in it, the row."""
    refused(f"a step of 1 with a penalty of {pull} ", hospitals, lr=1.0, batch_size=20, **settings)


@pytest.mark.parametrize(
    ("package", "settings"),
    [
        ("v6_fedavg", {"lr": 5.0, "model": "logreg:l2=0.1", "batch_size": 10}),  # a product of 0.5, in float32
        ("v6_fedavg", {"lr": 1.0, "model": "logreg:l2=1", "epochs": 2}),  # all rows a step
        ("v6_fedavg", {"lr": 1.0, "proximal_mu": 1.0, "optimizer": "adam", "batch_size": 10}),
        ("v6_fsvrg", {"stepsize": 1.0, "model": "logreg:l2=1", "batch_size": 5}),
    ],
)
def test_steps_that_forget_little_are_taken(hospitals, package, settings):
    assert len(train(package, hospitals, rounds=1, **settings)["history"]) == 1


def passes(node, weights, size):
    """Train with minibatches of this size, and change nothing."""
    node.train(weights + 0, PlainSGD(batch_size=size), lambda w, g: None)
    return {}


def proximal(node, weights, *, size: BatchSize, eta: LearningRate, mu: ProximalMu):
    return passes(node, weights, size)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"size": 10, "eta": 1.0, "mu": 0.4}, ""),
        ({"size": None, "eta": 1.0, "mu": 4.0}, ""),  # a step on all rows forgets none
        ({"size": 10, "eta": 1.0, "mu": 0.6}, "a step of 1 with a penalty of 0.6 "),
        ({"size": 10, "eta": 1.0, "mu": 0.0, "round": 0}, "training rounds start at 1; got 0"),
    ],
)
def test_a_node_knows_a_rate_and_a_pull_whatever_they_are_called(hospitals, monkeypatch, settings, says):
    status, log = crafted(hospitals, package=a_method(monkeypatch, proximal), arrays=WEIGHTS, **settings)
    assert (status, log) == ("completed", "") if not says else f"organization 3: {says}" in log, log


@pytest.mark.parametrize(
    ("rule", "says"), [("adam", ""), ("momentum", "organization 3: a step of 1 with a penalty of 4 ")]
)
def test_a_node_knows_adam_whatever_the_setting_is_called(hospitals, monkeypatch, rule, says):
    Rule = Annotated[Literal["adam", "momentum"], Role.OPTIMIZER]

    def client_update(node, weights, *, size: BatchSize, mu: ProximalMu, eta: LearningRate, rule: Rule):
        return passes(node, weights, size)

    settings = {"size": 10, "eta": 1.0, "mu": 4.0, "rule": rule}
    status, log = crafted(hospitals, package=a_method(monkeypatch, client_update), arrays=WEIGHTS, **settings)
    assert (status, log) == ("completed", "") if not says else says in log, log


def unsized(node, weights, *, eta: LearningRate):
    return passes(node, weights, 10)


def other_size(node, weights, *, size: BatchSize, eta: LearningRate):
    return passes(node, weights, 5)


def all_rows(node, weights, *, size: BatchSize, eta: LearningRate):
    return passes(node, weights, min(size, node.n))


@pytest.mark.parametrize(
    ("client_update", "settings", "says"),
    [
        (unsized, {}, "minibatches of 10 rows are refused"),
        (other_size, {"size": 10}, "minibatches of 5 rows are refused"),
        (all_rows, {"size": 1000}, ""),
    ],
)
def test_a_node_takes_no_minibatches_whose_steps_it_has_not_checked(
    hospitals, monkeypatch, client_update, settings, says
):
    package = a_method(monkeypatch, client_update)
    status, log = crafted(hospitals, package=package, arrays=WEIGHTS, eta=1.0, **settings)
    assert (status, log) == ("completed", "") if not says else f"organization 3: {says}" in log, log


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
def test_every_setting_next_to_a_minibatch_needs_a_role(annotation):
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
