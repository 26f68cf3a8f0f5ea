"""A small method outside this repository, not registered, to which tests give a defect."""

import itertools

import pytest

INIT = """
from v6_federated import confirm, count_rows, describe, evaluate, extract, fit_step, forget, keep_steps
from {package}.central import central
from {package}.partial import client_update

__all__ = ["central", "client_update", "confirm", "count_rows", "describe", "evaluate", "extract", "fit_step", "forget"]
__all__ += ["keep_steps"]
"""
CENTRAL = """
from v6_federated import Federation, LearningRate, Result, Rounds, central


@central(recoverable=True)
def central(federation: Federation, *, rounds: Rounds, lr: LearningRate = 0.1) -> Result:
    \"\"\"Gradient descent with momentum at the server.\"\"\"
    s = federation.start(w=federation.initial_weights, v=0.0)
    for t in federation.rounds(rounds):
        answers = federation.ask("client_update", federation.organizations, weights=s.w, v=s.v, lr=lr)
        s.w = answers.weighted_mean("weights")
        s.v = 0.9 * s.v + 1
        federation.record(answers, s.w)
    return federation.result(s.w)
"""
PARTIAL = """
from typing import Annotated

from pydantic import Field

from v6_federated import LearningRate, Node, Number, Result, Role, Vector, partial

V = Annotated[float, Field(ge=0, description="momentum so far"), Number, Role.OTHER]


@partial
def client_update(node: Node, weights: Vector, *, v: V, lr: LearningRate) -> Result:
    loss, g = node.model.loss_and_gradient(weights, node.rows.X, node.rows.y)
    w = weights - lr * g
    return {"weights": w, "train_loss": loss}
"""
numbers = itertools.count(1)


@pytest.fixture
def method(tmp_path, monkeypatch):
    """Writes the method with changes to its text, and returns the name of its package."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(*changes, **files):
        package = f"v6_outside{next(numbers)}"
        texts = {"__init__": INIT.format(package=package), "central": CENTRAL, "partial": PARTIAL}
        for old, new in changes:
            assert any(old in text for text in texts.values()), old
            texts = {name: text.replace(old, new) for name, text in texts.items()}
        folder = tmp_path / "algorithms" / package
        monkeypatch.syspath_prepend(folder.parent)
        folder.mkdir(parents=True)
        for name, text in texts.items():
            (folder / f"{name}.py").write_text(text)
        for name, text in files.items():
            (folder / name).write_text(text)
        return package

    return write
