"""Momentum of local SGD: the same steps as torch's, restarted every round, and bounded with FedProx's pull."""

import numpy as np
import pytest
from helpers import crafted, refused, table, train

from v6_federated import LocalSGD, codec
from v6_federated.node import local_training

torch = pytest.importorskip("torch")


def test_steps_with_momentum_equal_those_of_torch():
    """On the same gradients, with a rate that falls from step to step."""
    rng = np.random.default_rng(0)
    w, gradients = rng.normal(size=6), rng.normal(size=(20, 6))
    step = local_training.optimizer(LocalSGD(momentum=0.9), lambda i: 0.5 / (1 + 0.1 * i), w)
    theirs = torch.nn.Parameter(torch.tensor(w))
    optimizer = torch.optim.SGD([theirs], lr=0.5, momentum=0.9)
    for i, gradient in enumerate(gradients):
        step(w, gradient.copy())
        optimizer.param_groups[0]["lr"] = 0.5 / (1 + 0.1 * i)
        theirs.grad = torch.tensor(gradient)
        optimizer.step()
        np.testing.assert_allclose(w, theirs.detach().numpy(), atol=1e-6, rtol=0)


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("proximal_mu", [0.0, 0.3])
def test_training_with_momentum_equals_a_loop_of_torch(momentum, proximal_mu):
    """Two rounds of five epochs on all rows of one node: the velocity starts at zero in each round."""
    rows = table(30)
    settings = {"epochs": 5, "lr": 0.2, "momentum": momentum, "proximal_mu": proximal_mu}
    result = train("v6_fedavg", {1: rows}, rounds=2, holdout=0, model="logreg", **settings)
    X, y = torch.tensor(rows.iloc[:, :-1].to_numpy()), torch.tensor(rows["label"].to_numpy(float))
    w = torch.zeros(5, dtype=torch.float64, requires_grad=True)
    for _ in range(2):
        w_t = w.detach().clone()
        optimizer = torch.optim.SGD([w], lr=0.2, momentum=momentum)
        for _ in range(5):
            optimizer.zero_grad()
            loss = torch.nn.functional.binary_cross_entropy_with_logits(X @ w[:4] + w[4], y)
            (loss + proximal_mu / 2 * ((w - w_t) ** 2).sum()).backward()
            optimizer.step()
    found = codec.decode(result["weights"])["weights"]
    np.testing.assert_allclose(found, w.detach().numpy(), atol=1e-6, rtol=0)


# a gradient moves the model by rate * (1 + beta + beta^2 + ...) = rate / (1 - beta) in the end
BOUND = {"lr": 0.1, "proximal_mu": 1.0, "batch_size": 5}  # times 1 / (1 - 0.8) is 0.5, as much as is accepted


def test_momentum_makes_the_bound_on_the_pull_stricter(hospitals):
    assert crafted(hospitals, **BOUND, momentum=0.8) == ("completed", "")
    status, log = crafted(hospitals, **BOUND, momentum=0.81)
    assert status == "crashed" and "a step of 0.526316 with a penalty of 1 " in log, log
    assert crafted(hospitals, **{**BOUND, "batch_size": None}, momentum=0.99) == ("completed", ""), "all rows a step"
    refused("a step of 0.526316 with a penalty of 1 ", hospitals, **BOUND, momentum=0.81)


def test_momentum_counts_with_the_penalty_of_the_model_too(hospitals):
    l2 = {"job": {"model": {"name": "logreg", "features": 4, "classes": 2, "l2": 1.0}}, "lr": 0.1, "batch_size": 5}
    assert crafted(hospitals, **l2, momentum=0.8) == ("completed", "")
    status, log = crafted(hospitals, **l2, momentum=0.81)
    assert status == "crashed" and "a step of 0.526316 with a penalty of 1 " in log, log


def test_momentum_is_refused_with_adam_which_has_its_own(hospitals):
    refused(
        "momentum=0.9 needs optimizer=sgd; set optimizer=sgd, or leave momentum out",
        hospitals,
        momentum=0.9,
        optimizer="adam",
    )
    train("v6_fedavg", hospitals, rounds=1, momentum=0.0, optimizer="adam", lr=0.01)


@pytest.mark.parametrize("momentum", [-0.1, 1.0, 1.5])
def test_momentum_that_would_never_end_is_refused(hospitals, momentum):
    refused(f"momentum={momentum} is refused", hospitals, momentum=momentum)
    status, log = crafted(hospitals, momentum=momentum)
    assert status == "crashed" and f"momentum={momentum} is refused" in log, log
